import { useCallback, useEffect, useState } from "react";
import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import type { Audit, AuditEntry, Sync } from "../api/types";
import { useLoaded } from "../hooks/useLoaded";
import { byteSize, dateTime, oneLine, words } from "../model/format";
import { revealControls } from "../model/text";
import { hashOf } from "../state/route";
import { ErrorBanner } from "./Feedback";

/** Who allowed what, what was in force, and how far the log is stored. */
export function AuditPanel({ id, running, lastSeq }: { id: string; running: boolean; lastSeq: number }) {
  return (
    <div className="log-scroll" data-testid="audit">
      <Stored id={id} running={running} lastSeq={lastSeq} />
      <Decisions id={id} running={running} />
    </div>
  );
}

function Stored({ id, running, lastSeq }: { id: string; running: boolean; lastSeq: number }) {
  const load = useCallback((signal: AbortSignal) => api.sync(id, signal), [id]);
  const { value, error, reload } = useLoaded(load);
  useEffect(() => {
    const timer = setTimeout(reload, 400);
    return () => clearTimeout(timer);
  }, [lastSeq, running, reload]);
  return (
    <section aria-label="Stored">
      <h3 className="log-heading">Stored</h3>
      {error !== null && <ErrorBanner error={error} onRetry={reload} />}
      {value !== null && <Watermark sync={value} />}
    </section>
  );
}

const promises = {
  step: "At the end of each step",
  event: "After each event",
  os: "When the operating system does",
} as const;

function Watermark({ sync }: { sync: Sync }) {
  const behind = sync.durableSeq === null ? null : sync.lastSeq - sync.durableSeq;
  return (
    <dl className="facts">
      <dt>Durable up to</dt>
      <dd data-testid="durable-seq">
        {sync.durableSeq === null ? "not known" : `event ${sync.durableSeq}`}
        {behind !== null && behind > 0 && `, ${behind} behind the last`}
      </dd>
      <dt>Last event</dt>
      <dd>{sync.lastSeq < 0 ? "none" : sync.lastSeq}</dd>
      <dt>Synced</dt>
      <dd>{promises[sync.durability]}</dd>
      <dt>Epoch</dt>
      <dd data-testid="epoch">
        {sync.epoch === null ? "not known" : `${sync.epoch}; writers of earlier ones are fenced`}
      </dd>
      <dt>Log</dt>
      <dd>{byteSize(sync.bytes)}</dd>
      <dt>Writer</dt>
      <dd>
        {sync.writer === null
          ? "none"
          : `process ${sync.writer.pid} on ${sync.writer.host} since ${dateTime(sync.writer.since)}`}
      </dd>
    </dl>
  );
}

function Decisions({ id, running }: { id: string; running: boolean }) {
  // A run that has ended or begun may have asked something.
  const load = useCallback(
    (signal: AbortSignal) => {
      void running;
      return api.audit(id, null, signal);
    },
    [id, running],
  );
  const { value, error, reload } = useLoaded(load);
  const [older, setOlder] = useState<Audit | null>(null);
  const [failed, setFailed] = useState<HumanError | null>(null);
  useEffect(() => setOlder(null), [value]);
  if (value === null) {
    if (error !== null) return <ErrorBanner error={error} onRetry={reload} />;
    return <p className="list-empty">Loading the decisions</p>;
  }
  const entries = [...value.entries, ...(older?.entries ?? [])];
  const next = older === null ? value.next : older.next;
  const more = async (): Promise<void> => {
    try {
      const page = await api.audit(id, next);
      setOlder((known) => ({ entries: [...(known?.entries ?? []), ...page.entries], next: page.next }));
      setFailed(null);
    } catch (reason) {
      setFailed(toHuman(reason));
    }
  };
  return (
    <section aria-label="Permissions">
      <h3 className="log-heading">Permissions</h3>
      {error !== null && <ErrorBanner error={error} onRetry={reload} />}
      {entries.length === 0 && next === null && (
        <p className="list-empty">Nobody was asked anything, and no policy was in force yet.</p>
      )}
      <ol className="audit-list">
        {entries.map((entry) => (
          <Row key={`${entry.seq}-${entry.kind}`} id={id} entry={entry} />
        ))}
      </ol>
      {failed !== null && <ErrorBanner error={failed} onRetry={() => void more()} />}
      {next !== null && (
        <button type="button" className="link-button audit-more" onClick={() => void more()}>
          Show older
        </button>
      )}
    </section>
  );
}

function Row({ id, entry }: { id: string; entry: AuditEntry }) {
  return (
    <li data-testid="audit-entry" data-kind={entry.kind}>
      <a className="log-seq" href={hashOf(id, { event: entry.seq })} aria-label={`Event ${entry.seq}`}>
        {entry.seq}
      </a>
      <div>
        <Said entry={entry} />
        <time className="quiet">{dateTime(entry.time)}</time>
      </div>
    </li>
  );
}

function Said({ entry }: { entry: AuditEntry }) {
  switch (entry.kind) {
    case "asked":
      return (
        <p>
          <strong>Asked</strong> for <code>{entry.name}</code>: {revealControls(entry.reason)}
          <code className="audit-arguments">{revealControls(oneLine(entry.arguments))}</code>
        </p>
      );
    case "decided":
      return (
        <p>
          <strong>{sentence(entry.decision)}</strong> by {revealControls(entry.by)}
          {entry.comment !== null && `: ${revealControls(entry.comment)}`}
        </p>
      );
    case "policy":
      return (
        <p>
          <strong>Policy from turn {entry.turn} on</strong>: approvals {words(entry.approvalPolicy)},
          sandbox {words(entry.sandboxMode)}
        </p>
      );
    case "granted":
      return (
        <p>
          <strong>Granted</strong> by {revealControls(entry.by)}: commands that begin with
          <code className="audit-arguments">{revealControls(entry.prefix.join(" "))}</code>
        </p>
      );
    case "revoked":
      return (
        <p>
          <strong>Revoked</strong> by {revealControls(entry.by)}: what was approved for the session under{" "}
          <code>{revealControls(entry.grantId)}</code>
        </p>
      );
    case "other":
      return (
        <p>
          <strong>{entry.type}</strong>
        </p>
      );
  }
}

function sentence(decision: string): string {
  const text = words(decision);
  return text.charAt(0).toUpperCase() + text.slice(1);
}
