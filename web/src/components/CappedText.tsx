import { useState } from "react";
import { plural } from "../model/format";
import { capText, type Cap } from "../model/text";

interface CappedTextProps {
  text: string;
  label: string;
  lines?: number;
  chars?: number;
  keep?: Cap["keep"];
  className?: string;
}

/** Preformatted text that never floods the page: a part of it, and a button for all of it. */
export function CappedText({
  text,
  label,
  lines = 24,
  chars = 12_000,
  keep = "head",
  className = "",
}: CappedTextProps) {
  const [all, setAll] = useState(false);
  const capped = capText(text, { lines, chars, keep });
  const hidden =
    capped.hiddenLines > 0
      ? plural(capped.hiddenLines, "more line")
      : plural(capped.hiddenChars, "more character");
  const toggle = capped.hiddenChars > 0 && (
    <button type="button" className="show-all" onClick={() => setAll(!all)}>
      {all ? "Show less" : `Show all (${hidden})`}
    </button>
  );
  return (
    <div className={`capped ${className}`}>
      {keep === "tail" && toggle}
      <pre tabIndex={0} role="group" aria-label={label}>
        {all ? text : capped.text}
      </pre>
      {keep === "head" && toggle}
    </div>
  );
}
