import { useVirtualizer } from "@tanstack/react-virtual";
import {
  useEffect,
  useImperativeHandle,
  useRef,
  useState,
  type FocusEvent,
  type KeyboardEvent,
  type Ref,
  type RefObject,
} from "react";
import { useNow } from "../hooks/useNow";
import { wordsOf } from "../model/match";
import { useApp } from "../state/app";
import { isTree } from "../state/sessionList";
import type { ListRow, SessionTree } from "../state/sessionTree";
import { useStore } from "../state/store";
import type { Summary } from "../api/types";
import { ErrorBanner } from "./Feedback";
import { ListFooter } from "./ListFilters";
import { indentOf, SessionRow } from "./SessionRow";

export interface ListHandle {
  move: (by: 1 | -1) => void;
  /** Focuses the row that Tab would reach. */
  enter: () => void;
}

interface SessionListViewProps {
  ref: Ref<ListHandle>;
  onOpened: () => void;
}

const rowHeights = { comfortable: 66, compact: 46 } as const;
const pageOfRows = 10;

export function SessionListView({ ref, onOpened }: SessionListViewProps) {
  const app = useApp();
  const state = useStore(app.list.state);
  const { viewed, continuing } = useStore(app.router.state);
  const picked = useStore(app.selection.ids);
  const { density } = useStore(app.settings.state);
  const view = useStore(app.view.state);
  const now = useNow(30_000);
  useStore(app.deletions.state);
  useStore(app.tree.state);
  const tree = isTree(state.query);
  const scroller = useRef<HTMLDivElement>(null);
  const places = usePlaces(app.tree.placeOf.bind(app.tree), app.deletions.hidden());
  const count = Math.max(0, app.tree.count() - places.gaps.length);
  const row = (at: number): ListRow | undefined => app.tree.row(places.real(at));

  const virtual = useVirtualizer({
    count,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeights[density],
    overscan: 8,
  });
  useEffect(() => virtual.measure(), [density, virtual]);
  const items = virtual.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (state.phase === "ready") app.tree.ensure(places.real(first), places.real(last));
  });

  const { focusAt, onFocus, onBlur } = useRowFocus(scroller);
  const { current, setActive, move, enter, onKeyDown } = useRovingFocus({
    count,
    viewed,
    reveal: (at) => {
      virtual.scrollToIndex(at, { align: "auto" });
      focusAt(at);
    },
    sideways: (at, key) => (tree ? sideways(app.tree, row, at, key) : null),
  });
  useImperativeHandle(ref, () => ({ move, enter }));
  const words = wordsOf(state.query.query);

  return (
    <>
      <div className="session-scroll" ref={scroller} onKeyDown={onKeyDown} onFocus={onFocus} onBlur={onBlur} aria-busy={state.searching}>
        <ListMessages empty={count === 0} />
        <div className="virtual" role="list" aria-label="Sessions" style={{ height: virtual.getTotalSize() }}>
          {items.map((item) => {
            const shown = row(item.index);
            const place = { top: item.start, height: item.size, at: item.index };
            const key = keyOf(item.index, row);
            if (shown?.kind === "more") return <MoreRow key={key} {...place} row={shown} focusable={item.index === current} />;
            if (shown?.kind !== "session") return <LoadingRow key={key} {...place} depth={shown?.depth ?? 0} />;
            const { session, depth, isOpen } = shown;
            return (
              <SessionRow
                key={key}
                {...place}
                session={live(session, view)}
                depth={depth}
                branch={!tree ? "none" : isOpen ? "open" : (session.children ?? 0) > 0 ? "closed" : "leaf"}
                now={now}
                words={words}
                selected={session.id === viewed}
                continuing={session.id === continuing}
                picked={picked.has(session.id)}
                picking={picked.size > 0}
                focusable={item.index === current}
                onOpen={() => {
                  setActive(item.index);
                  app.router.view(session.id);
                  onOpened();
                }}
              />
            );
          })}
        </div>
      </div>
      {state.phase === "ready" && state.error !== null && (
        <ErrorBanner error={state.error} onRetry={() => app.list.retry()} />
      )}
      <ListFooter deleting={places.gaps.length} />
    </>
  );
}

/** Sessions about to be deleted leave no gap: places on the screen skip theirs. */
function usePlaces(placeOf: (id: string) => number, hidden: ReadonlySet<string>) {
  const gaps = [...hidden].map(placeOf).filter((place) => place >= 0);
  gaps.sort((a, b) => a - b);
  const real = (at: number): number => {
    let place = at;
    for (const gap of gaps) if (gap <= place) place += 1;
    return place;
  };
  return { gaps, real };
}

/** While pages change one by one, a session can be seen at two places for a moment. */
function keyOf(at: number, row: (at: number) => ListRow | undefined): string {
  const id = idOf(row(at));
  if (id === undefined) return `place ${at}`;
  for (let near = 1; near <= 3; near++) if (idOf(row(at - near)) === id) return `${id} ${at}`;
  return id;
}

function idOf(row: ListRow | undefined): string | undefined {
  return row?.kind === "session" ? row.session.id : undefined;
}

/** Right opens a branch or goes into it, left closes it or goes to where it begins. */
function sideways(
  tree: SessionTree,
  row: (at: number) => ListRow | undefined,
  at: number,
  key: "ArrowLeft" | "ArrowRight",
): number | null {
  const here = row(at);
  if (here === undefined) return null;
  if (key === "ArrowRight") {
    if (here.kind !== "session" || (here.session.children ?? 0) === 0) return at;
    if (here.isOpen) return at + 1;
    tree.toggle(here.session.id, true);
    return at;
  }
  if (here.kind === "session" && here.isOpen) {
    tree.toggle(here.session.id, false);
    return at;
  }
  for (let above = at - 1; above >= 0; above--) {
    const other = row(above);
    if (other === undefined) return at;
    if (other.depth < here.depth) return above;
  }
  return at;
}

interface RovingFocus {
  count: number;
  viewed: string | null;
  reveal: (at: number) => void;
  /** Where the keys of a tree lead; null when there is none. */
  sideways: (at: number, key: "ArrowLeft" | "ArrowRight") => number | null;
}

/** One row is reachable by Tab; the arrow keys, j and k move on from it. */
function useRovingFocus({ count, viewed, reveal, sideways }: RovingFocus) {
  const { tree } = useApp();
  const [active, setActive] = useState<number | null>(null);
  const [seen, setSeen] = useState(viewed);
  if (seen !== viewed) {
    // Another session was opened, perhaps from elsewhere: go on from there.
    setSeen(viewed);
    setActive(null);
  }
  const from = active ?? tree.placeOf(viewed);
  const current = count === 0 ? -1 : Math.min(Math.max(from, 0), count - 1);
  const go = (at: number): void => {
    if (count === 0) return;
    const next = Math.min(Math.max(at, 0), count - 1);
    setActive(next);
    reveal(next);
  };
  const move = (by: 1 | -1): void => go(from + by);
  const enter = (): void => go(Math.max(from, 0));
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey) return;
    const aside = event.key === "ArrowLeft" || event.key === "ArrowRight" ? sideways(placeOf(event.target) ?? from, event.key) : null;
    const goals: Record<string, number> = {
      ...(aside === null ? {} : { [event.key]: aside }),
      ArrowDown: from + 1,
      ArrowUp: from - 1,
      PageDown: from + pageOfRows,
      PageUp: from - pageOfRows,
      Home: 0,
      End: count - 1,
    };
    const goal = goals[event.key];
    if (goal === undefined) return;
    event.preventDefault();
    go(goal);
  };
  return { current, setActive, move, enter, onKeyDown };
}

/** The place of the row that has the focus. */
function placeOf(target: EventTarget): number | null {
  const at = target instanceof Element ? target.closest<HTMLElement>("[data-at]")?.dataset["at"] : undefined;
  return at === undefined ? null : Number(at);
}

/** The followed session knows its status before the list's next refresh. */
function live(session: Summary, view: { id: string | null; phase: string; model: { status: string } }): Summary {
  if (view.id !== session.id || view.phase !== "ready") return session;
  const status = view.model.status as Summary["status"];
  return status === session.status ? session : { ...session, status };
}

/**
 * Focuses the row at a place. It may only come into existence with the scroll, or when its page has
 * been loaded; whoever goes elsewhere meanwhile is left alone. When the focused row goes away, for
 * example because it was deleted, the one in its place takes over.
 */
function useRowFocus(scroller: RefObject<HTMLElement | null>) {
  const last = useRef<{ row: Element; at: number } | null>(null);
  const wanted = useRef<{ at: number; from: Element | null } | null>(null);
  const settle = (): void => {
    if (last.current !== null && !last.current.row.isConnected) {
      wanted.current ??= { at: last.current.at, from: document.body };
      last.current = null;
    }
    const goal = wanted.current;
    const list = scroller.current;
    if (goal === null || list === null) return;
    const active = document.activeElement;
    if (active !== goal.from && active !== document.body && !list.contains(active)) {
      wanted.current = null;
      return;
    }
    const row = list.querySelector<HTMLElement>(`[data-at="${goal.at}"]`);
    row?.querySelector<HTMLElement>(".row-main")?.focus({ preventScroll: true });
    if (row?.dataset["sessionId"] !== undefined) wanted.current = null;
  };
  useEffect(settle);
  return {
    focusAt: (at: number): void => {
      wanted.current = { at, from: document.activeElement };
      settle();
    },
    onFocus: ({ target }: FocusEvent): void => {
      const row = target.closest<HTMLElement>("[data-at]");
      last.current = row === null ? null : { row, at: Number(row.dataset["at"]) };
    },
    onBlur: ({ relatedTarget }: FocusEvent): void => {
      if (relatedTarget !== null) last.current = null;
    },
  };
}

interface PlacedRow {
  top: number;
  height: number;
  at: number;
}

/** What a branch has behind those of its sessions that are shown. */
function MoreRow({ top, height, at, row, focusable }: PlacedRow & { row: ListRow & { kind: "more" }; focusable: boolean }) {
  const { tree } = useApp();
  return (
    <div
      role="listitem"
      className="session-row"
      data-testid="more-row"
      data-branch="leaf"
      data-at={at}
      style={{ height, transform: `translateY(${top}px)`, ...indentOf(row.depth) }}
    >
      <button type="button" className="row-main" tabIndex={focusable ? 0 : -1} aria-busy={row.loading} onClick={() => tree.more(row.of)}>
        {row.error === null ? "Show more of this branch" : `${row.error.message} Try again`}
      </button>
    </div>
  );
}

function LoadingRow({ top, height, at, depth }: PlacedRow & { depth: number }) {
  return (
    <div
      role="listitem"
      className="session-row loading"
      data-at={at}
      {...(depth > 0 ? { "data-branch": "leaf" } : {})}
      style={{ height, transform: `translateY(${top}px)`, ...indentOf(depth) }}
    >
      <button type="button" className="row-main" tabIndex={-1} aria-label="Loading" aria-busy="true">
        <span className="skeleton line" />
        <span className="skeleton line short" />
      </button>
    </div>
  );
}

function ListMessages({ empty }: { empty: boolean }) {
  const { list } = useApp();
  const state = useStore(list.state);
  if (state.phase === "loading") {
    return (
      <div className="skeletons" role="status" aria-label="Loading sessions">
        {[1, 2, 3, 4].map((key) => (
          <span key={key} className="skeleton" />
        ))}
      </div>
    );
  }
  if (state.error !== null && state.phase === "error") {
    return <ErrorBanner error={state.error} onRetry={() => void list.load()} />;
  }
  if (!empty || state.searching) return null;
  const { query, status, cwd, model, archived } = state.query;
  if (query !== "") return <p className="list-empty">No session matches "{query}".</p>;
  if (status !== "" || cwd !== "" || model !== "") return <p className="list-empty">No session is left by these filters.</p>;
  return (
    <p className="list-empty">
      {archived === "true" ? "Nothing is archived." : "No sessions yet. The first task starts one."}
    </p>
  );
}
