import { memo, useState } from "react";
import type { DiffLine, FileDiff } from "../model/diff";
import { plural } from "../model/format";
import { revealControls } from "../model/text";
import { CopyButton } from "./CopyButton";
import { Icon } from "./Icon";

/** What is shown of a file before somebody asks for more, and at most. */
const firstLines = 24;
const maxLines = 2000;
const maxChars = 600;

const signs: Record<DiffLine["kind"], string> = { add: "+", del: "-", same: " ", hunk: "", file: "", note: "" };
const spoken: Partial<Record<DiffLine["kind"], string>> = { add: "added: ", del: "removed: " };

export const DiffView = memo(function DiffView({ files }: { files: readonly FileDiff[] }) {
  return (
    <div className="diffs" data-testid="diff">
      {files.map((file, at) => (
        <FileView key={at} file={file} />
      ))}
    </div>
  );
});

function FileView({ file }: { file: FileDiff }) {
  const [all, setAll] = useState(false);
  const shown = file.lines.slice(0, all ? maxLines : firstLines);
  const hidden = file.lines.length - shown.length;
  const numbered = file.lines.some((line) => line.before !== null || line.after !== null);
  return (
    <section className="diff" aria-label={`Changes of ${revealControls(file.path)}`}>
      <header className="diff-head">
        <Icon name="edit" />
        <code className="diff-path" title={revealControls(file.path)}>
          {revealControls(file.path)}
        </code>
        <span className="diff-count">
          <span className="diff-added" aria-label={plural(file.added, "line") + " added"}>
            +{file.added}
          </span>
          <span className="diff-removed" aria-label={plural(file.removed, "line") + " removed"}>
            -{file.removed}
          </span>
        </span>
        <CopyButton text={() => Promise.resolve(asText(file))} label={`Copy the changes of ${file.path}`} />
      </header>
      <div className="diff-body" tabIndex={0} role="group" aria-label="Lines">
        <div className={numbered ? "diff-lines numbered" : "diff-lines"}>
          {shown.map((line, at) => (
            <LineView key={at} line={line} />
          ))}
        </div>
      </div>
      {file.lines.length > firstLines && (
        <button type="button" className="show-all" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? "Show less" : `Show all (${plural(hidden, "more line")})`}
        </button>
      )}
      {all && hidden > 0 && <p className="quiet">{plural(hidden, "more line")} in the arguments of the call.</p>}
    </section>
  );
}

function LineView({ line }: { line: DiffLine }) {
  const text = line.text.length > maxChars ? `${line.text.slice(0, maxChars)} ...` : line.text;
  return (
    <div className="diff-line" data-kind={line.kind}>
      <span className="diff-number" aria-hidden="true">
        {line.after ?? line.before ?? ""}
      </span>
      <span className="diff-sign" aria-hidden="true">
        {signs[line.kind]}
      </span>
      <code>
        {spoken[line.kind] !== undefined && <span className="visually-hidden">{spoken[line.kind]}</span>}
        {revealControls(text)}
      </code>
    </div>
  );
}

function asText(file: FileDiff): string {
  return file.lines.map((line) => signs[line.kind] + line.text).join("\n");
}
