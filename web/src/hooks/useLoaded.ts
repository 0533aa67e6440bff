import { useCallback, useEffect, useState } from "react";
import { toHuman, type HumanError } from "../api/problem";

export interface Loaded<T> {
  value: T | null;
  error: HumanError | null;
  reload: () => void;
}

/**
 * What a request answers. It is asked again when `load` changes, and what is there stays on the
 * screen until the new answer has come.
 */
export function useLoaded<T>(load: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const [round, setRound] = useState(0);
  const [state, setState] = useState<Omit<Loaded<T>, "reload">>({ value: null, error: null });
  useEffect(() => {
    const abort = new AbortController();
    load(abort.signal).then(
      (value) => !abort.signal.aborted && setState({ value, error: null }),
      (error: unknown) => {
        if (!abort.signal.aborted) setState((known) => ({ ...known, error: toHuman(error) }));
      },
    );
    return () => abort.abort();
  }, [load, round]);
  const reload = useCallback(() => setRound((known) => known + 1), []);
  return { ...state, reload };
}
