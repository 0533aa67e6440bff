import { useVirtualizer } from "@tanstack/react-virtual";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { RequestDetail, RequestHead } from "../api/types";
import { byteSize, plural } from "../model/format";
import { diffItems } from "../model/itemDiff";
import { revealControls } from "../model/text";
import type { ReadModel } from "../model/patch";
import { RequestChecks, type CheckState } from "../state/requestChecks";
import { useStore } from "../state/store";
import { CappedText } from "./CappedText";
import { ErrorBanner } from "./Feedback";
import { Icon } from "./Icon";
import { TimelinePanel } from "./TimelinePanel";

interface DebugPanelProps {
  id: string;
  model: ReadModel;
}

export function DebugPanel({ id, model }: DebugPanelProps) {
  const checks = useMemo(() => new RequestChecks(id), [id]);
  const state = useStore(checks.state);
  useEffect(() => () => checks.close(), [checks]);
  // A request exists from the moment its step shows up in the read model.
  const steps = lastStep(model);
  useEffect(() => {
    const timer = setTimeout(() => void checks.load(), 150);
    return () => clearTimeout(timer);
  }, [checks, steps, model.running]);

  if (state.error !== null && state.requests === null) {
    return <ErrorBanner error={state.error} onRetry={() => void checks.load()} />;
  }
  if (state.requests === null) return <p className="list-empty">Loading the steps</p>;
  if (state.requests.length === 0) {
    return <p className="list-empty">No request was sent to a model in this session yet.</p>;
  }
  return (
    <>
      <TimelinePanel id={id} running={model.running} steps={steps} />
      {state.error !== null && (
        <ErrorBanner error={state.error} onRetry={() => void checks.loadOlder()} />
      )}
      {state.older !== null && (
        <button type="button" className="link-button debug-older" onClick={() => void checks.loadOlder()}>
          Show older steps
        </button>
      )}
      <p className="debug-intro quiet">
        Each step's request, rebuilt from the log. A match proves that resuming sends exactly what the
        live run sent.
      </p>
      <StepList requests={state.requests} checks={checks} results={state.results} />
    </>
  );
}

function lastStep(model: ReadModel): number {
  let last = 0;
  for (const item of model.turns.at(-1)?.items ?? []) {
    if (item.kind === "assistant" || item.kind === "tool") last = Math.max(last, item.step);
  }
  return last;
}

interface StepListProps {
  requests: readonly RequestHead[];
  checks: RequestChecks;
  results: ReadonlyMap<number, CheckState>;
}

function StepList({ requests, checks, results }: StepListProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  const virtual = useVirtualizer({
    count: requests.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => 78,
    getItemKey: (index) => requests[index]?.step ?? index,
    overscan: 4,
  });
  const toggle = useCallback(
    (step: number) => {
      checks.want(step);
      // What is new in a request shows against the one before.
      const before = requests[requests.findIndex((head) => head.step === step) - 1];
      if (before !== undefined) checks.want(before.step);
      setOpen((known) => {
        const next = new Set(known);
        if (!next.delete(step)) next.add(step);
        return next;
      });
    },
    [checks, requests],
  );
  const items = virtual.getVirtualItems();
  useEffect(() => {
    for (const item of items) {
      const head = requests[item.index];
      if (head !== undefined) checks.glance(head);
    }
  });
  return (
    <div className="log-scroll" ref={scroller} data-testid="debug-steps" data-total={requests.length}>
      <div className="virtual" role="list" aria-label="Steps" style={{ height: virtual.getTotalSize() }}>
        {items.map((item) => {
          const head = requests[item.index];
          if (head === undefined) return null;
          const before = requests[item.index - 1];
          return (
            <div
              key={item.key}
              role="listitem"
              ref={virtual.measureElement}
              data-index={item.index}
              className="virtual-row"
              style={{ transform: `translateY(${item.start}px)` }}
            >
              <Step
                head={head}
                check={results.get(head.step)}
                before={before === undefined ? undefined : results.get(before.step)}
                open={open.has(head.step)}
                onToggle={toggle}
                onRetry={() => checks.want(head.step)}
              />
            </div>
          );
        })}
      </div>
    </div>
  );
}

interface StepProps {
  head: RequestHead;
  check: CheckState | undefined;
  /** The step before; `undefined` when there is none or it was not asked for. */
  before: CheckState | undefined;
  open: boolean;
  onToggle: (step: number) => void;
  onRetry: () => void;
}

function Step({ head, check, before, open, onToggle, onRetry }: StepProps) {
  return (
    <section className="debug-step" data-testid="debug-step" data-step={head.step}>
      <button type="button" className="step-head" aria-expanded={open} onClick={() => onToggle(head.step)}>
        <Icon name="chevron" />
        <strong>Step {head.step}</strong>
        <span className="quiet">
          turn {head.turn}, {plural(head.items, "item")}, {byteSize(head.bytes)}
        </span>
      </button>
      <Fingerprint head={head} check={check} />
      {check?.kind === "failed" && <ErrorBanner error={check.error} onRetry={onRetry} />}
      {open && check?.kind === "done" && (
        <>
          {before?.kind === "done" && <Changes before={before.detail} after={check.detail} />}
          <RequestView detail={check.detail} />
        </>
      )}
      {open && check?.kind === "loading" && <p className="list-empty">Rebuilding the request</p>}
    </section>
  );
}

function Fingerprint({ head, check }: { head: RequestHead; check: CheckState | undefined }) {
  if (check?.kind !== "done") {
    return (
      <div className="fingerprint" data-testid="fingerprint" data-match="pending">
        <code title={head.fingerprint}>{short(head.fingerprint)}</code>
        <span className="match">{check?.kind === "loading" ? "Checking" : "Not checked yet"}</span>
      </div>
    );
  }
  const { recorded, rebuilt, match } = check.detail.fingerprint;
  return (
    <div className="fingerprint" data-testid="fingerprint" data-match={match}>
      <span>
        recorded <code title={recorded}>{short(recorded)}</code>
      </span>
      <span>
        rebuilt <code title={rebuilt}>{short(rebuilt)}</code>
      </span>
      <span className="match">
        <Icon name={match ? "check" : "warning"} />
        {match ? "Match" : "Mismatch"}
      </span>
    </div>
  );
}

function short(fingerprint: string): string {
  return fingerprint.length > 12 ? `${fingerprint.slice(0, 12)}...` : fingerprint;
}

/** What the request says that the one of the step before did not, and the other way round. */
function Changes({ before, after }: { before: RequestDetail; after: RequestDetail }) {
  const diff = useMemo(
    () => diffItems(before.request.items ?? [], after.request.items ?? []),
    [before, after],
  );
  const parts = (["provider", "model", "system", "tools", "temperature"] as const).filter(
    (part) => JSON.stringify(before.request[part]) !== JSON.stringify(after.request[part]),
  );
  const kept = diff.same + diff.sameAtEnd;
  return (
    <section className="request changes" data-testid="request-diff">
      <h3>Since step {before.step}</h3>
      <p className="quiet">
        {plural(kept, "item")} as before, {diff.removed.length} removed, {diff.added.length} added.
        {parts.length > 0 && ` Changed: ${parts.join(", ")}.`}
      </p>
      <DiffItems kind="removed" sign="-" items={diff.removed} />
      <DiffItems kind="added" sign="+" items={diff.added} />
    </section>
  );
}

interface DiffItemsProps {
  kind: "removed" | "added";
  sign: "-" | "+";
  items: readonly unknown[];
}

function DiffItems({ kind, sign, items }: DiffItemsProps) {
  const text = useMemo(() => {
    const lines = items.flatMap((item) => JSON.stringify(item, null, 2).split("\n"));
    return revealControls(lines.map((line) => `${sign} ${line}`).join("\n"));
  }, [items, sign]);
  if (items.length === 0) return null;
  return (
    <CappedText
      className={`diff-${kind}`}
      text={text}
      label={kind === "added" ? "Items added" : "Items removed"}
      lines={40}
      chars={20_000}
    />
  );
}

function RequestView({ detail }: { detail: RequestDetail }) {
  const { items = [], ...rest } = detail.request;
  return (
    <div className="request">
      <Json title="Request" value={rest} />
      <Json title={`Items (${items.length})`} value={items} />
      <Json title="Body for the provider" value={detail.body} />
    </div>
  );
}

function Json({ title, value }: { title: string; value: unknown }) {
  const text = useMemo(() => revealControls(JSON.stringify(value, null, 2) ?? "null"), [value]);
  return (
    <div className="json">
      <h3>{title}</h3>
      <CappedText text={text} label={title} lines={40} chars={20_000} />
    </div>
  );
}
