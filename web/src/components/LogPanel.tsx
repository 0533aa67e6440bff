import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { LogEvent, Turn } from "../api/types";
import { clockWithMillis, plural } from "../model/format";
import type { TreeState } from "../model/jsonTree";
import { layoutLog, rowAt, rowOfEvent, type LogSegment } from "../model/logLayout";
import { revealControls } from "../model/text";
import { useApp } from "../state/app";
import type { LogStore } from "../state/logStore";
import { useStore } from "../state/store";
import { CopyText } from "./CopyText";
import { ErrorBanner } from "./Feedback";
import { Icon } from "./Icon";
import { JsonTree } from "./JsonTree";

interface LogPanelProps {
  id: string;
  log: LogStore;
  turns: readonly Turn[];
}

const slack = 40;

export function LogPanel({ id, log, turns }: LogPanelProps) {
  const app = useApp();
  const { place } = useStore(app.router.state);
  const { lastSeq, version, error } = useStore(log.state);
  const layout = useMemo(() => layoutLog(turns, lastSeq), [turns, lastSeq]);
  const scroller = useRef<HTMLDivElement>(null);
  const sticking = useRef(true);
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  // Rows that scroll out of sight are taken away; what was open in them is kept.
  const trees = useRef(new Map<number, TreeState>());
  const toggle = useCallback((seq: number) => {
    setOpen((known) => {
      const next = new Set(known);
      if (!next.delete(seq)) next.add(seq);
      else trees.current.delete(seq);
      return next;
    });
  }, []);

  const virtual = useVirtualizer({
    count: layout.rows,
    getScrollElement: () => scroller.current,
    estimateSize: () => 28,
    overscan: 12,
  });
  const items = virtual.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items.at(-1)?.index ?? 0;

  useEffect(() => {
    const from = seqNear(rowAt(layout, first), "from");
    const to = seqNear(rowAt(layout, last), "to");
    if (from !== null && to !== null) log.ensure(from, to);
  }, [layout, first, last, log, version]);

  // From the conversation, a link or a finding to its line.
  const sought = place !== null && "event" in place ? place.event : null;
  const known = useRef(layout);
  known.current = layout;
  useEffect(() => {
    if (sought === null) return;
    sticking.current = false;
    virtual.scrollToIndex(rowOfEvent(known.current, sought), { align: "center" });
  }, [place, sought, virtual]);

  const show = useCallback((seq: number) => app.router.seek(id, { event: seq }), [app, id]);

  useEffect(() => {
    if (sticking.current && layout.rows > 0) virtual.scrollToIndex(layout.rows - 1, { align: "end" });
  }, [layout.rows, virtual]);

  return (
    <>
      {error !== null && <ErrorBanner error={error} onRetry={() => log.retry()} />}
      <div
        className="log-scroll"
        ref={scroller}
        data-testid="log"
        data-total={lastSeq + 1}
        data-last-seq={lastSeq}
        role="region"
        aria-label={`Log, ${plural(lastSeq + 1, "event")}`}
        tabIndex={0}
        onScroll={(event) => {
          const element = event.currentTarget;
          sticking.current =
            element.scrollHeight - element.scrollTop - element.clientHeight <= slack;
        }}
      >
        <div className="virtual" style={{ height: virtual.getTotalSize() }}>
          {items.map((item) => {
            const row = rowAt(layout, item.index);
            if (row === null) return null;
            return (
              <div
                key={item.key}
                ref={virtual.measureElement}
                data-index={item.index}
                className="virtual-row"
                style={{ transform: `translateY(${item.start}px)` }}
              >
                {row.kind === "heading" ? (
                  <Heading segment={row.segment} first={turns[0]?.startSeq ?? 0} />
                ) : (
                  <EventRow
                    seq={row.seq}
                    event={log.row(row.seq)}
                    open={open.has(row.seq)}
                    trees={trees.current}
                    sought={row.seq === sought}
                    onToggle={toggle}
                    onShow={show}
                  />
                )}
              </div>
            );
          })}
        </div>
      </div>
    </>
  );
}

function seqNear(row: ReturnType<typeof rowAt>, edge: "from" | "to"): number | null {
  if (row === null) return null;
  if (row.kind === "event") return row.seq;
  return edge === "from" ? row.segment.from : Math.max(0, row.segment.from - 1);
}

/** `first` is where the turns begin that are loaded; what is before them has not been looked at. */
function Heading({ segment, first }: { segment: LogSegment; first: number }) {
  const rest = segment.to < first ? "Earlier events" : "Between turns";
  return (
    <h3 className="log-heading">
      {segment.turn === null ? rest : `Turn ${segment.turn}`}
      <span className="quiet">{plural(segment.to - segment.from + 1, "event")}</span>
    </h3>
  );
}

interface EventRowProps {
  seq: number;
  event: LogEvent | undefined;
  open: boolean;
  trees: Map<number, TreeState>;
  sought: boolean;
  onToggle: (seq: number) => void;
  onShow: (seq: number) => void;
}

const EventRow = memo(function EventRow(props: EventRowProps) {
  const { seq, event, open, trees, sought, onToggle, onShow } = props;
  return (
    <div
      className="log-row"
      data-testid="log-row"
      data-seq={seq}
      data-type={event?.type}
      data-sought={sought}
    >
      <button type="button" aria-expanded={open} disabled={event === undefined} onClick={() => onToggle(seq)}>
        <Icon name="chevron" />
        <span className="log-seq">{seq}</span>
        {event === undefined ? (
          <span className="log-preview quiet">Loading</span>
        ) : (
          <>
            <span className="log-type">{event.type}</span>
            <span className="log-preview">{previewOf(event)}</span>
            <time className="log-time">{clockWithMillis(event.time)}</time>
          </>
        )}
      </button>
      {open && event !== undefined && (
        <>
          <div className="log-actions">
            <button type="button" className="link-button" onClick={() => onShow(seq)}>
              Show in the conversation
            </button>
            <CopyText text={() => JSON.stringify(event)} label={`Copy event ${seq}`} />
          </div>
          <JsonTree
            value={event}
            label={`Event ${seq} as JSON`}
            initial={trees.get(seq)}
            onChange={(state) => trees.set(seq, state)}
          />
        </>
      )}
    </div>
  );
});

/** The beginning of the payload as it is; what it means is for the server to say. */
function previewOf(event: LogEvent): string {
  const text = event.data === undefined ? "" : JSON.stringify(event.data);
  return revealControls(text.slice(1, 160).replace(/}$/, ""));
}
