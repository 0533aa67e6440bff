import { useMemo, useState, type ReactNode } from "react";
import { hasStyles } from "../model/ansi";
import { plural } from "../model/format";
import { capText, revealControls, revealProse, type Cap } from "../model/text";
import { Styled } from "./Styled";
import { TextViewer } from "./TextViewer";

interface CappedTextProps {
  text: string;
  label: string;
  lines?: number;
  chars?: number;
  keep?: Cap["keep"];
  className?: string;
  /** What people wrote for people, terminal output with colours, or anything else. */
  as?: "prose" | "terminal" | "plain";
  /** Fetches a longer text than the one that is here. */
  whole?: ((signal: AbortSignal) => Promise<Blob>) | undefined;
}

/** What the page shows at once without a viewer. */
const maxInline = 40_000;

/** Preformatted text that never floods the page: a part of it, and a button for all of it. */
export function CappedText(props: CappedTextProps) {
  const { text, label, lines = 24, chars = 12_000, keep = "head", className = "", as = "plain", whole } = props;
  const [all, setAll] = useState(false);
  const [exact, setExact] = useState(false);
  const capped = capText(text, { lines, chars, keep });
  const needsViewer = whole !== undefined || text.length > maxInline;
  const toggle = (capped.hiddenChars > 0 || whole !== undefined) && (
    <button type="button" className="show-all" onClick={() => setAll(!all)}>
      {all ? "Show less" : `Show all${hiddenText(capped, whole !== undefined)}`}
    </button>
  );
  const shown = all ? text : capped.text;
  const isStyled = useMemo(() => as === "terminal" && hasStyles(shown), [as, shown]);
  if (all && needsViewer) {
    const load = whole ?? (() => Promise.resolve(new Blob([text])));
    return <TextViewer load={load} label={label} onClose={() => setAll(false)} />;
  }
  return (
    <div className={`capped ${as === "prose" ? "prose" : ""} ${className}`}>
      {keep === "tail" && toggle}
      <pre tabIndex={0} role="group" aria-label={label}>
        {render(shown, exact ? "plain" : as)}
      </pre>
      {keep === "head" && toggle}
      {isStyled && (
        <button type="button" className="show-all exact" aria-pressed={exact} onClick={() => setExact(!exact)}>
          Exact text
        </button>
      )}
    </div>
  );
}

function hiddenText(capped: { hiddenLines: number; hiddenChars: number }, isShortened: boolean): string {
  if (isShortened) return " of the output";
  if (capped.hiddenLines > 0) return ` (${plural(capped.hiddenLines, "more line")})`;
  return ` (${plural(capped.hiddenChars, "more character")})`;
}

function render(text: string, as: "prose" | "terminal" | "plain"): ReactNode {
  if (as === "terminal") return <Styled text={text} />;
  return as === "prose" ? revealProse(text) : revealControls(text);
}
