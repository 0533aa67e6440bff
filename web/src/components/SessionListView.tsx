import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useImperativeHandle, useRef, useState, type KeyboardEvent, type Ref } from "react";
import { useNow } from "../hooks/useNow";
import { useApp } from "../state/app";
import { useStore } from "../state/store";
import type { Summary } from "../api/types";
import { ErrorBanner } from "./Feedback";
import { SessionRow } from "./SessionRow";

export interface ListHandle {
  move: (by: 1 | -1) => void;
}

interface SessionListViewProps {
  ref: Ref<ListHandle>;
  onOpened: () => void;
}

const rowHeight = 66;

export function SessionListView({ ref, onOpened }: SessionListViewProps) {
  const app = useApp();
  const state = useStore(app.list.state);
  const { viewed, continuing } = useStore(app.router.state);
  const { pending } = useStore(app.deletions.state);
  const view = useStore(app.view.state);
  const now = useNow(30_000);
  const scroller = useRef<HTMLDivElement>(null);
  const hidden = new Set(pending.map((entry) => entry.id));
  const sessions = state.sessions.filter((session) => !hidden.has(session.id));
  const more = state.cursor !== null;

  const virtual = useVirtualizer({
    count: sessions.length + (more ? 1 : 0),
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    getItemKey: (index) => sessions[index]?.id ?? "more",
    overscan: 8,
  });
  const items = virtual.getVirtualItems();
  const end = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (more && end >= sessions.length - 5) void app.list.loadMore();
  }, [more, end, sessions.length, app]);

  const { current, setActive, move, onKeyDown } = useRovingFocus(sessions, viewed, (index, id) => {
    virtual.scrollToIndex(index, { align: "auto" });
    // The row may only come into existence with the scroll.
    requestAnimationFrame(() => requestAnimationFrame(() => focusRow(scroller.current, id)));
  });
  useImperativeHandle(ref, () => ({ move }));

  return (
    <div className="session-scroll" ref={scroller} onKeyDown={onKeyDown}>
      <ListMessages sessions={sessions} />
      <div className="virtual" role="list" aria-label="Sessions" style={{ height: virtual.getTotalSize() }}>
        {items.map((item) => {
          const session = sessions[item.index];
          if (session === undefined) return <MoreRow key="more" top={item.start} />;
          return (
            <SessionRow
              key={session.id}
              session={live(session, view)}
              top={item.start}
              height={item.size}
              now={now}
              selected={session.id === viewed}
              continuing={session.id === continuing}
              focusable={session.id === current || (current === null && item.index === 0)}
              onOpen={() => {
                setActive(session.id);
                app.router.view(session.id);
                onOpened();
              }}
            />
          );
        })}
      </div>
    </div>
  );
}

/** One row is reachable by Tab; the arrow keys, j and k move on from it. */
function useRovingFocus(
  sessions: readonly Summary[],
  viewed: string | null,
  reveal: (index: number, id: string) => void,
) {
  const [active, setActive] = useState<string | null>(null);
  const current = active ?? viewed;
  const move = (by: 1 | -1): void => {
    const at = sessions.findIndex((session) => session.id === current);
    const next = Math.min(Math.max(at + by, 0), sessions.length - 1);
    const target = sessions[next];
    if (target === undefined) return;
    setActive(target.id);
    reveal(next, target.id);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.target instanceof HTMLInputElement) return;
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    move(event.key === "ArrowDown" ? 1 : -1);
  };
  return { current, setActive, move, onKeyDown };
}

/** The followed session knows its status before the list's next refresh. */
function live(session: Summary, view: { id: string | null; phase: string; model: { status: string } }): Summary {
  if (view.id !== session.id || view.phase !== "ready") return session;
  const status = view.model.status as Summary["status"];
  return status === session.status ? session : { ...session, status };
}

function focusRow(scroller: HTMLElement | null, id: string): void {
  scroller?.querySelector<HTMLElement>(`[data-session-id="${CSS.escape(id)}"] .row-main`)?.focus();
}

function ListMessages({ sessions }: { sessions: readonly Summary[] }) {
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
  if (sessions.length > 0) return null;
  if (state.query !== "") {
    return <p className="list-empty">No session matches "{state.query}".</p>;
  }
  return (
    <p className="list-empty">
      {state.archived === "true" ? "Nothing is archived." : "No sessions yet. The first task starts one."}
    </p>
  );
}

function MoreRow({ top }: { top: number }) {
  const { list } = useApp();
  const { error } = useStore(list.state);
  return (
    <div className="more-row" style={{ transform: `translateY(${top}px)` }} role="status">
      {error === null ? (
        "Loading more"
      ) : (
        <button type="button" className="button small" onClick={() => list.retryMore()}>
          Loading more failed. Try again
        </button>
      )}
    </div>
  );
}
