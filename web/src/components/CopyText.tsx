import { useState } from "react";

type State = "ready" | "copied" | "refused";

const labels: Record<Exclude<State, "ready">, string> = {
  copied: "Copied",
  refused: "The browser did not allow it",
};

interface CopyTextProps {
  /** What is copied; a function when making it takes time. */
  text: string | (() => string);
  /** What the button says. */
  name?: string;
  /** The same for who cannot see what stands around it. */
  label?: string;
}

export function CopyText({ text, name = "Copy", label }: CopyTextProps) {
  const [state, setState] = useState<State>("ready");
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(typeof text === "string" ? text : text());
      setState("copied");
    } catch {
      setState("refused");
    }
    setTimeout(() => setState("ready"), 1500);
  };
  return (
    <button type="button" className="link-button" aria-label={label} onClick={() => void copy()}>
      <span aria-live="polite">{state === "ready" ? name : labels[state]}</span>
    </button>
  );
}
