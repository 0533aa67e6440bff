import { useEffect, useRef, useState } from "react";
import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import type { Verified } from "../api/types";
import { plural } from "../model/format";
import { hashOf } from "../state/route";
import { ErrorBanner } from "./Feedback";
import { Icon } from "./Icon";

type Check =
  | { kind: "not_checked" }
  | { kind: "checking" }
  | { kind: "failed"; error: HumanError }
  | { kind: "done"; report: Verified };

const formats = [
  ["jsonl", "Log (JSON lines)"],
  ["markdown", "Markdown"],
  ["html", "Web page"],
] as const;

/** Checking the session's log, and taking the session away as a file. */
export function SessionTools({ id }: { id: string }) {
  const [check, setCheck] = useState<Check>({ kind: "not_checked" });
  const abort = useRef<AbortController | null>(null);
  useEffect(() => () => abort.current?.abort(), []);

  const verify = async (requests: boolean): Promise<void> => {
    abort.current?.abort();
    const mine = new AbortController();
    abort.current = mine;
    setCheck({ kind: "checking" });
    try {
      const report = await api.verify(id, requests, mine.signal);
      if (!mine.signal.aborted) setCheck({ kind: "done", report });
    } catch (error) {
      if (!mine.signal.aborted) setCheck({ kind: "failed", error: toHuman(error) });
    }
  };

  const state = stateOf(check);
  return (
    <section className="session-tools" aria-label="Check and export">
      <div className="tools-row">
        <span className="integrity" data-testid="integrity" data-state={state} role="status">
          <Icon name={state === "intact" ? "check" : state === "damaged" ? "warning" : "panel"} />
          {labels[state]}
        </span>
        <button
          type="button"
          className="button small"
          data-testid="verify"
          disabled={check.kind === "checking"}
          onClick={() => void verify(false)}
        >
          {check.kind === "not_checked" ? "Check the log" : "Check again"}
        </button>
        {state === "intact" && check.kind === "done" && check.report.requests === null && (
          <button
            type="button"
            className="button small"
            data-testid="verify-requests"
            title="Rebuilds the request of every step; a long session takes a while"
            onClick={() => void verify(true)}
          >
            Check requests too
          </button>
        )}
      </div>
      {check.kind === "failed" && <ErrorBanner error={check.error} onRetry={() => void verify(false)} />}
      {check.kind === "done" && <Report id={id} report={check.report} />}
      <nav className="tools-row export" aria-label="Export">
        <span className="quiet">Export as</span>
        {formats.map(([format, label]) => (
          <a key={format} href={api.exportUrl(id, format)} download data-testid={`export-${format}`}>
            {label}
          </a>
        ))}
      </nav>
    </section>
  );
}

type State = "not_checked" | "checking" | "unknown" | "intact" | "mismatch" | "damaged";

const labels: Record<State, string> = {
  not_checked: "Not checked yet",
  checking: "Checking every record",
  unknown: "Could not be checked",
  intact: "Intact",
  mismatch: "Requests differ",
  damaged: "Damaged",
};

function stateOf(check: Check): State {
  if (check.kind === "failed") return "unknown";
  if (check.kind !== "done") return check.kind;
  if (!check.report.ok) return "damaged";
  return check.report.requests?.ok === false ? "mismatch" : "intact";
}

function Report({ id, report }: { id: string; report: Verified }) {
  const unequal = report.requests?.unequal ?? [];
  return (
    <div className="report" data-testid="verify-report">
      <p className="quiet">
        {plural(report.events, "event")} read, {plural(report.chainedTurns, "turn")} with a chain
        value.
        {report.requests?.ok === true && " Every request is rebuilt as it was sent."}
        {report.unverified > 0 && ` ${plural(report.unverified, "line")} without a checksum.`}
      </p>
      {report.findings.length > 0 && (
        <ul>
          {report.findings.map((finding, index) => (
            <li key={index}>
              {finding.seq !== null && (
                <a href={hashOf(id, { event: finding.seq })}>Event {finding.seq}</a>
              )}{" "}
              {finding.message}
            </li>
          ))}
        </ul>
      )}
      {report.found > report.findings.length && (
        <p className="quiet">{plural(report.found - report.findings.length, "more finding")}.</p>
      )}
      {unequal.length > 0 && (
        <ul>
          {unequal.map((one) => (
            <li key={one.step}>
              <a href={hashOf(id, { event: one.seq })}>Step {one.step}</a>: the log does not rebuild
              the request that was sent.
            </li>
          ))}
        </ul>
      )}
      {report.hint !== null && <p>{report.hint}</p>}
    </div>
  );
}
