import { useVirtualizer, type Virtualizer } from "@tanstack/react-virtual";
import {
  useCallback,
  useEffect,
  useImperativeHandle,
  useMemo,
  useRef,
  useState,
  type KeyboardEvent,
  type ReactNode,
  type Ref,
} from "react";
import { heightOf, useSteadyRows } from "../hooks/useSteadyRows";
import { slack, useStickToBottom } from "../hooks/useStickToBottom";
import { estimateRow, rowOf, rowsOf, type Row } from "../model/rows";
import { useApp } from "../state/app";
import type { OlderState } from "../state/olderTurns";
import type { SessionViewState } from "../state/sessionView";
import { useStore } from "../state/store";
import { ErrorBanner } from "./Feedback";
import { Icon } from "./Icon";
import { isSilent } from "./Items";
import { RowView, type TurnEnding } from "./TurnView";

export interface TurnListHandle {
  jump: () => void;
}

interface TurnListProps {
  view: SessionViewState;
  ref: Ref<TurnListHandle>;
}

type Virtual = Virtualizer<HTMLDivElement, HTMLDivElement>;

/** The room above the first row while there is more before it, in pixels. */
const edgeHeight = 48;

/** Rows beyond the frame that exist already, so that a wheel's turn finds them. */
const overscan = 10;

/** The conversation, of which only the rows near the reader exist. */
export function TurnList({ view, ref }: TurnListProps) {
  const app = useApp();
  const older = useStore(app.view.older.state);
  const [folded, fold] = useFolded();
  const { turns, from, viewSeq, running, arrived } = view.model;
  const rows = useMemo(
    () => rowsOf({ older, tail: { turns, from, to: viewSeq + 1, cut: false }, running, folded }),
    [older, turns, from, viewSeq, running, folded],
  );
  const scroller = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const virtual: Virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: useCallback((at: number) => estimateOf(rows[at]), [rows]),
    getItemKey: useCallback((at: number) => rows[at]?.key ?? at, [rows]),
    measureElement: heightOf,
    overscan,
    paddingStart: older.more ? edgeHeight : 10,
    paddingEnd: 24,
    anchorTo: "end",
    // The end of an older stretch is an end that nobody wants to be kept at.
    followOnAppend: follows.current,
    scrollEndThreshold: follows.current ? slack : -1,
  });
  useSteadyRows(virtual, scroller, rows, [app.view.state, app.view.older.state]);
  const stick = useStickToBottom(
    scroller,
    () => virtual.scrollToEnd(),
    !older.gap,
    (atBottom) => {
      follows.current = atBottom;
      app.view.atEnd(atBottom);
    },
  );
  const missed = useMissed(stick.atBottom, arrived);
  useLoading(rows, virtual, older);
  const sought = useSought(view, rows, virtual, stick.leave);
  const jump = useCallback((): void => {
    app.view.older.release();
    stick.jump();
  }, [app, stick]);
  useImperativeHandle(ref, () => ({ jump }), [jump]);
  const onKeyDown = useTurnKeys({ rows, virtual, fold, jump });

  return (
    <div className="turns-frame">
      <div
        className="turns-scroll"
        ref={scroller}
        tabIndex={0}
        role="region"
        aria-label="Turns"
        data-testid="turns"
        data-rows={rows.length}
        onKeyDown={onKeyDown}
      >
        <div className="turns" style={{ height: virtual.getTotalSize() }}>
          {older.more && <Earlier older={older} />}
          <div className="turns-window" style={{ transform: `translateY(${virtual.getVirtualItems()[0]?.start ?? 0}px)` }}>
            <Groups view={view} rows={rows} virtual={virtual} sought={sought} older={older} onFold={fold} />
          </div>
        </div>
      </div>
      {!stick.atBottom && (
        <button type="button" className="jump" data-testid="jump" data-missed={missed} onClick={jump}>
          <Icon name="down" />
          {missed === 0 ? "Jump to latest" : `Jump to latest (${missed} new)`}
        </button>
      )}
      <SoughtNote view={view} />
    </div>
  );
}

function estimateOf(row: Row | undefined): number {
  return row === undefined ? 0 : estimateRow(row);
}

function useFolded(): [ReadonlySet<number>, (turn: number) => void] {
  const [folded, setFolded] = useState<ReadonlySet<number>>(new Set());
  const toggle = useCallback((turn: number): void => {
    setFolded((before) => {
      const next = new Set(before);
      if (!next.delete(turn)) next.add(turn);
      return next;
    });
  }, []);
  return [folded, toggle];
}

/** How much has come since the reader went away from the end. */
function useMissed(atBottom: boolean, arrived: number): number {
  const [seen, setSeen] = useState(arrived);
  if (atBottom && seen !== arrived) setSeen(arrived);
  return atBottom ? 0 : Math.max(0, arrived - seen);
}

/** Fetches what is missing before the reader comes to it. */
function useLoading(rows: readonly Row[], virtual: Virtual, older: OlderState): void {
  const app = useApp();
  const items = virtual.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (older.failed !== null || older.loading !== null) return;
    if (older.gap && last >= rows.length - 1 - overscan / 2) {
      void app.view.older.loadAfter();
    } else if (first <= overscan / 2 && older.more) {
      void app.view.older.loadBefore();
    }
  }, [app, rows, older, first, last]);
}

interface Sought {
  key: string;
  at: number;
}

/** Brings what a link names into the frame, once it is here. */
function useSought(
  view: SessionViewState,
  rows: readonly Row[],
  virtual: Virtual,
  leave: () => void,
): Sought | null {
  const [shown, setShown] = useState<Sought | null>(null);
  const { sought } = view;
  useEffect(() => {
    if (sought === null || sought.found !== true || shown?.at === sought.at) return;
    const at = rowOf(rows, sought.place);
    const row = rows[at];
    if (row === undefined) return;
    leave();
    virtual.scrollToIndex(at, { align: row.kind === "head" ? "start" : "center" });
    setShown({ key: row.key, at: sought.at });
  }, [sought, rows, virtual, shown, leave]);
  return sought === null ? null : shown;
}

function SoughtNote({ view }: { view: SessionViewState }) {
  const { sought } = view;
  if (sought === null || sought.found !== false) return null;
  const what = "event" in sought.place ? `event ${sought.place.event}` : `turn ${sought.place.turn}`;
  return (
    <p className="sought-note" role="status" data-testid="sought-missing">
      This session has no {what}.
    </p>
  );
}

interface KeysInput {
  rows: readonly Row[];
  virtual: Virtual;
  fold: (turn: number) => void;
  jump: () => void;
}

/** Keys that work while the conversation has the focus: j and k, f, Home and End. */
function useTurnKeys({ rows, virtual, fold, jump }: KeysInput): (event: KeyboardEvent) => void {
  const app = useApp();
  return (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    const done = (): void => {
      event.preventDefault();
      event.stopPropagation();
    };
    if (event.key === "j" || event.key === "k") {
      done();
      const { above, at, below } = headsAround(rows, virtual);
      const to = event.key === "j" ? below : (above ?? at ?? 0);
      if (to === null) jump();
      else virtual.scrollToIndex(to, { align: "start" });
    } else if (event.key === "f") {
      const row = rows[headsAround(rows, virtual).at ?? -1];
      if (row?.kind !== "head") return;
      done();
      fold(row.turn.turn);
    } else if (event.key === "Home") {
      done();
      void app.view.toStart();
    } else if (event.key === "End") {
      done();
      jump();
    }
  };
}

function isTyping(target: EventTarget): boolean {
  return target instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

interface HeadsAround {
  /** The head of the turn at the top of the frame, and those before and behind what is there. */
  at: number | null;
  above: number | null;
  below: number | null;
}

/** A head within so many pixels of the top counts as being there. */
const nearTop = 8;

function headsAround(rows: readonly Row[], virtual: Virtual): HeadsAround {
  const top = virtual.scrollElement?.scrollTop ?? 0;
  const found: HeadsAround = { at: null, above: null, below: null };
  for (const [index, row] of rows.entries()) {
    if (row.kind !== "head") continue;
    const [start] = virtual.getOffsetForIndex(index, "start") ?? [0];
    if (start > top + nearTop) return { ...found, below: index };
    found.at = index;
    if (start < top - nearTop) found.above = index;
  }
  return found;
}

interface GroupsProps {
  view: SessionViewState;
  rows: readonly Row[];
  virtual: Virtual;
  sought: Sought | null;
  older: OlderState;
  onFold: (turn: number) => void;
}

/** The rows that exist, those of one turn within its article. */
function Groups({ view, rows, virtual, sought, older, onFold }: GroupsProps) {
  const groups: { turn: number | null; key: string; rows: ReactNode[] }[] = [];
  const last = view.model.turns.at(-1);
  const { running, status } = view.model;
  for (const { index } of virtual.getVirtualItems()) {
    const row = rows[index];
    if (row === undefined) continue;
    const turn = "turn" in row ? row.turn : null;
    const isLast = turn !== null && turn.turn === last?.turn;
    const liveStatus = isLast && running && last.reason === null ? status : null;
    const end: TurnEnding = !isLast ? "earlier" : view.damage === null ? "last" : "damaged";
    const element = (
      <div
        key={row.key}
        ref={virtual.measureElement}
        data-index={index}
        className={rowClass(row, liveStatus !== null)}
        data-sought={sought?.key === row.key || undefined}
      >
        {turn === null ? (
          <Gap older={older} />
        ) : (
          <RowView row={row} liveStatus={liveStatus} end={end} onFold={onFold} />
        )}
      </div>
    );
    const group = groups.at(-1);
    if (group !== undefined && turn !== null && group.turn === turn.turn) group.rows.push(element);
    else groups.push({ turn: turn?.turn ?? null, key: turn === null ? row.key : `turn${turn.turn}`, rows: [element] });
  }
  return groups.map((group) =>
    group.turn === null ? (
      group.rows
    ) : (
      <article
        key={group.key}
        className="turn"
        data-testid="turn"
        data-turn={group.turn}
        aria-label={`Turn ${group.turn}`}
      >
        {group.rows}
      </article>
    ),
  );
}

export function rowClass(row: Row, live: boolean): string {
  if (row.kind !== "item") return `row row-${row.kind}`;
  const silent = row.item.kind === "assistant" && isSilent(row.item, live);
  return silent ? "row row-silent" : `row row-${row.item.kind}`;
}

/** What stands above the first row while there is more before it. */
function Earlier({ older }: { older: OlderState }) {
  const app = useApp();
  if (older.error !== null && older.failed !== "after") {
    return (
      <div className="edge-place">
        <ErrorBanner error={older.error} onRetry={() => app.view.older.retry()} />
      </div>
    );
  }
  return (
    <div className="edge edge-place" data-testid="earlier" role="status">
      <span className="edge-bar" aria-hidden="true" />
      Earlier turns are loading
      <button type="button" className="link-button" data-testid="to-start" onClick={() => void app.view.toStart()}>
        Go to the first turn
      </button>
    </div>
  );
}

/** What stands below the last row of an older stretch. */
function Gap({ older }: { older: OlderState }) {
  const app = useApp();
  if (older.error !== null && older.failed === "after") {
    return <ErrorBanner error={older.error} onRetry={() => app.view.older.retry()} />;
  }
  return (
    <div className="edge" data-testid="gap" role="status">
      <span className="edge-bar" aria-hidden="true" />
      More turns are loading
    </div>
  );
}
