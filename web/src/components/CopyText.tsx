import { useState } from "react";

type State = "ready" | "copied" | "refused";

const labels: Record<State, string> = {
  ready: "Copy",
  copied: "Copied",
  refused: "The browser did not allow it",
};

export function CopyText({ text, label }: { text: string; label: string }) {
  const [state, setState] = useState<State>("ready");
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setState("copied");
    } catch {
      setState("refused");
    }
    setTimeout(() => setState("ready"), 1500);
  };
  return (
    <button type="button" className="link-button" aria-label={label} onClick={() => void copy()}>
      <span aria-live="polite">{labels[state]}</span>
    </button>
  );
}
