import { useEffect, useRef, useState } from "react";
import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import type { CheckProgress, Verified } from "../api/types";
import { verifySession } from "../api/verifySession";
import { byteSize, plural } from "../model/format";
import { hashOf } from "../state/route";
import { ErrorBanner } from "./Feedback";
import { Icon } from "./Icon";

type Check =
  | { kind: "not_checked" }
  | { kind: "checking"; progress: CheckProgress | null }
  | { kind: "stopped" }
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
    setCheck({ kind: "checking", progress: null });
    const onProgress = (progress: CheckProgress): void => {
      if (!mine.signal.aborted) setCheck({ kind: "checking", progress });
    };
    try {
      const report = await verifySession(id, { requests, onProgress, signal: mine.signal });
      if (!mine.signal.aborted) setCheck({ kind: "done", report });
    } catch (error) {
      if (!mine.signal.aborted) setCheck({ kind: "failed", error: toHuman(error) });
    }
  };

  const stop = (): void => {
    abort.current?.abort();
    setCheck({ kind: "stopped" });
  };

  const state = stateOf(check);
  return (
    <section className="session-tools" aria-label="Check and export">
      <div className="tools-row">
        <span className="integrity" data-testid="integrity" data-state={state} role="status">
          <Icon name={state === "intact" ? "check" : state === "damaged" ? "warning" : "panel"} />
          {labels[state]}
        </span>
        {check.kind === "checking" ? (
          <button type="button" className="button small" data-testid="verify-stop" onClick={stop}>
            Stop the check
          </button>
        ) : (
          <button
            type="button"
            className="button small"
            data-testid="verify"
            onClick={() => void verify(false)}
          >
            {check.kind === "not_checked" ? "Check the log" : "Check again"}
          </button>
        )}
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
      {check.kind === "checking" && <HowFar progress={check.progress} />}
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

/** A check that takes a moment says how far it is; a short one is over before anybody reads it. */
function HowFar({ progress }: { progress: CheckProgress | null }) {
  const label = stages[progress?.stage ?? "waiting"];
  const known = progress !== null && progress.of > 0;
  const part = known ? Math.min(1, progress.bytes / progress.of) : undefined;
  return (
    <p className="check-progress" data-testid="verify-progress" data-stage={progress?.stage}>
      <progress aria-label={label} {...(part === undefined ? {} : { value: part })} />
      <span className="quiet">
        {label}
        {known && `: ${Math.floor((part ?? 0) * 100)} % of ${byteSize(progress.of)}`}
      </span>
    </p>
  );
}

const stages: Record<CheckProgress["stage"], string> = {
  waiting: "Waiting for another check to end",
  records: "Reading every record",
  requests: "Rebuilding every request",
};

type State = "not_checked" | "checking" | "stopped" | "unknown" | "intact" | "mismatch" | "damaged";

const labels: Record<State, string> = {
  not_checked: "Not checked yet",
  checking: "Checking",
  stopped: "Not checked: stopped",
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
