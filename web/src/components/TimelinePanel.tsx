import { useCallback, useState } from "react";
import { api } from "../api/client";
import type { Span, Timeline } from "../api/types";
import { useLoaded } from "../hooks/useLoaded";
import { duration, plural, words } from "../model/format";
import { revealControls } from "../model/text";
import { hashOf } from "../state/route";
import { ErrorBanner } from "./Feedback";

interface TimelinePanelProps {
  id: string;
  running: boolean;
  /** Changes when a step was added. */
  steps: number;
}

/** When the model calls, tools and questions of one turn began and ended. */
export function TimelinePanel({ id, running, steps }: TimelinePanelProps) {
  const [turn, setTurn] = useState<number | null>(null);
  const load = useCallback(
    (signal: AbortSignal) => {
      void running;
      void steps;
      return api.timeline(id, turn, signal);
    },
    [id, turn, running, steps],
  );
  const { value, error, reload } = useLoaded(load);
  return (
    <section className="timeline" aria-label="Timeline" data-testid="timeline">
      {error !== null && <ErrorBanner error={error} onRetry={reload} />}
      {value === null && error === null && <p className="list-empty">Loading the timeline</p>}
      {value !== null && value.turn > 0 && (
        <>
          <div className="timeline-head">
            <h3>Turn {value.turn}</h3>
            <span className="quiet">
              {plural(value.spans.length, "span")}
              {value.cut && ", a part of the turn"}
            </span>
            <button
              type="button"
              className="link-button"
              disabled={value.turn <= 1}
              onClick={() => setTurn(value.turn - 1)}
            >
              Earlier turn
            </button>
            <button
              type="button"
              className="link-button"
              disabled={turn === null}
              onClick={() => setTurn(null)}
            >
              Newest
            </button>
          </div>
          <Bars id={id} timeline={value} />
        </>
      )}
    </section>
  );
}

const kinds = { model: "Model", tool: "Tool", approval: "Question" } as const;

function Bars({ id, timeline }: { id: string; timeline: Timeline }) {
  const { spans } = timeline;
  const from = Math.min(...spans.map((span) => span.startedAt), timeline.startedAt || Infinity);
  const to = Math.max(...spans.map((span) => span.endedAt ?? span.startedAt), timeline.endedAt ?? from);
  const whole = Math.max(1, to - from);
  return (
    <ol className="timeline-bars" tabIndex={0} aria-label={`Turn ${timeline.turn}, ${duration(whole)}`}>
      {spans.map((span) => (
        <li key={span.seq} data-testid="span" data-kind={span.kind} data-open={span.endedAt === null}>
          <a href={hashOf(id, { event: span.seq })}>
            {kinds[span.kind]} {revealControls(span.label)}
          </a>
          <Bar span={span} from={from} whole={whole} end={to} />
          <span className="quiet">
            {span.endedAt === null ? "no end" : duration(span.endedAt - span.startedAt)}
            {span.outcome !== null && span.outcome !== "ok" && `, ${words(span.outcome)}`}
          </span>
        </li>
      ))}
    </ol>
  );
}

function Bar({ span, from, whole, end }: { span: Span; from: number; whole: number; end: number }) {
  const x = (100 * (span.startedAt - from)) / whole;
  const width = Math.max(0.8, (100 * ((span.endedAt ?? end) - span.startedAt)) / whole);
  return (
    <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
      <rect x={Math.min(x, 99.2)} y="0" width={width} height="8" />
    </svg>
  );
}
