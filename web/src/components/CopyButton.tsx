import { useEffect, useState } from "react";
import { Icon } from "./Icon";

interface CopyButtonProps {
  /** What is copied: a text, or something that is fetched when it is asked for. */
  text: string | (() => Promise<string>);
  label: string;
}

type Outcome = "idle" | "done" | "failed";

const said: Record<Outcome, string> = { idle: "Copy", done: "Copied", failed: "Not copied" };

export function CopyButton({ text, label }: CopyButtonProps) {
  const [outcome, setOutcome] = useState<Outcome>("idle");
  useEffect(() => {
    if (outcome === "idle") return;
    const timer = setTimeout(() => setOutcome("idle"), 1800);
    return () => clearTimeout(timer);
  }, [outcome]);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(typeof text === "string" ? text : await text());
      setOutcome("done");
    } catch {
      setOutcome("failed");
    }
  };
  return (
    <button type="button" className="copy-button" aria-label={label} data-outcome={outcome} onClick={() => void copy()}>
      <Icon name={outcome === "done" ? "check" : "copy"} />
      <span aria-live="polite">{said[outcome]}</span>
    </button>
  );
}
