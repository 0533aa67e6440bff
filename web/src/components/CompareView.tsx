import { useEffect, useState } from "react";
import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import { turnPages } from "../api/turnPages";
import type { Summary, Turn } from "../api/types";
import { aligned, commonTurns, stitched } from "../model/compare";
import { dateTime, oneLine, plural, sessionTitle, shortId } from "../model/format";
import { rowsOf } from "../model/rows";
import { noOlder, type Stretch } from "../model/window";
import { useApp } from "../state/app";
import { sessionOf } from "../state/approvals";
import { Dialog } from "./Dialog";
import { ErrorBanner, Status } from "./Feedback";
import { SessionIdContext } from "./SessionIdContext";
import { rowClass } from "./TurnList";
import { RowView } from "./TurnView";

interface CompareViewProps {
  left: string;
  right: string | null;
  onClose: () => void;
}

interface Side {
  turns: readonly Turn[];
  /** Whether there is more before them. */
  more: boolean;
  summary: Summary | undefined;
}

/** How many pages of a session are read, from its end. */
const maxPages = 12;

/** Two sessions of one family beside each other; what they have in common is folded away. */
export default function CompareView({ left, right, onClose }: CompareViewProps) {
  const [other, setOther] = useState(right);
  return (
    <Dialog title="Compare" onClose={onClose} kind="full" testId="compare" extra={<Relatives of={left} other={other} onPick={setOther} />}>
      {other === null ? (
        <p className="list-empty">Choose the session to compare with.</p>
      ) : (
        <Pair key={other} left={left} right={other} onClose={onClose} />
      )}
    </Dialog>
  );
}

/** The session's parent, its other forks and its own. */
function Relatives({ of, other, onPick }: { of: string; other: string | null; onPick: (id: string) => void }) {
  const [relatives, setRelatives] = useState<readonly Summary[] | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    relativesOf(of, abort.signal).then(setRelatives, () => {
      if (!abort.signal.aborted) setRelatives([]);
    });
    return () => abort.abort();
  }, [of]);
  if (relatives === null) return <span className="quiet">Looking for forks.</span>;
  if (relatives.length === 0 && other === null) {
    return <span className="quiet">This session has neither a parent nor forks.</span>;
  }
  const known = relatives.some((session) => session.id === other);
  return (
    <select
      className="policy"
      aria-label="Compare with"
      data-testid="compare-with"
      value={other ?? ""}
      onChange={(event) => onPick(event.target.value)}
    >
      {other === null && <option value="">Choose a session</option>}
      {other !== null && !known && <option value={other}>{shortId(other)}</option>}
      {relatives.map((session) => (
        <option key={session.id} value={session.id}>
          {shortId(session.id)} {sessionTitle(session).slice(0, 60)}
        </option>
      ))}
    </select>
  );
}

const maxRelatives = 100;

async function relativesOf(id: string, signal: AbortSignal): Promise<readonly Summary[]> {
  const forksOf = async (parent: string): Promise<readonly Summary[]> =>
    (await api.sessions({ archived: "all" }, { limit: maxRelatives, parent }, signal)).sessions;
  const [own, self] = await Promise.all([forksOf(id), sessionOf(id)]);
  const parent = self?.parent?.id;
  if (parent === undefined) return own;
  const [above, beside] = await Promise.all([sessionOf(parent), forksOf(parent)]);
  const found = [...(above === undefined ? [] : [above]), ...beside, ...own];
  return found.filter((session) => session.id !== id);
}

function Pair({ left, right, onClose }: { left: string; right: string; onClose: () => void }) {
  const [sides, setSides] = useState<readonly [Side, Side] | null>(null);
  const [error, setError] = useState<HumanError | null>(null);
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    setError(null);
    Promise.all([sideOf(left, abort.signal), sideOf(right, abort.signal)]).then(setSides, (failure) => {
      if (!abort.signal.aborted) setError(toHuman(failure));
    });
    return () => abort.abort();
  }, [left, right, attempt]);
  if (error !== null) return <ErrorBanner error={error} onRetry={() => setAttempt(attempt + 1)} />;
  if (sides === null) {
    return (
      <div className="skeletons" role="status" aria-label="Loading both sessions">
        <span className="skeleton tall" />
        <span className="skeleton tall" />
      </div>
    );
  }
  return <Columns ids={[left, right]} sides={sides} onClose={onClose} />;
}

async function sideOf(id: string, signal: AbortSignal): Promise<Side> {
  const [pages, summary] = await Promise.all([pagesOf(id, signal), sessionOf(id)]);
  const more = (pages[0]?.from ?? 0) > 0;
  const turns = stitched(pages);
  // The first turn may lack what the page before has of it.
  return { turns: more ? turns.slice(1) : turns, more, summary };
}

async function pagesOf(id: string, signal: AbortSignal): Promise<Stretch[]> {
  let first: Stretch = await turnPages.newest(id, signal);
  const pages = [first];
  while (first.from > 0 && pages.length < maxPages) {
    first = await turnPages.before(id, first.from, signal);
    pages.unshift(first);
  }
  return pages;
}

const names = ["Left", "Right"] as const;

function nameOf(id: string, { summary }: Side): string {
  return summary === undefined ? shortId(id) : oneLine(sessionTitle(summary), 40);
}

interface ColumnsProps {
  ids: readonly [string, string];
  sides: readonly [Side, Side];
  onClose: () => void;
}

function Columns({ ids, sides, onClose }: ColumnsProps) {
  const [open, setOpen] = useState(false);
  const [tab, setTab] = useState<0 | 1>(0);
  const [left, right] = aligned(sides[0].turns, sides[1].turns);
  const turns = [left, right] as const;
  const common = commonTurns(left, right);
  return (
    <div className="compare">
      <div className="compare-common">
        <button type="button" className="disclosure" aria-expanded={open} disabled={common === 0} onClick={() => setOpen(!open)}>
          {common === 0 ? "No turn in common" : `${plural(common, "turn")} in common`}
        </button>
        {sides.some((side) => side.more) && <span className="quiet"> Only the newest turns are compared.</span>}
        {open && <Shown id={ids[0]} turns={left.slice(0, common)} />}
      </div>
      {/* Side by side there is no room for on a phone. */}
      <div className="compare-tabs" role="group" aria-label="Which session">
        {([0, 1] as const).map((at) => (
          <button key={at} type="button" aria-pressed={tab === at} onClick={() => setTab(at)}>
            {names[at]}: {nameOf(ids[at], sides[at])}
          </button>
        ))}
      </div>
      <div className="compare-columns" data-tab={tab}>
        {([0, 1] as const).map((at) => (
          <Column key={at} place={names[at]} id={ids[at]} side={sides[at]} own={turns[at].slice(common)} onClose={onClose} />
        ))}
      </div>
    </div>
  );
}

interface ColumnProps {
  place: string;
  id: string;
  side: Side;
  /** What the other session has not. */
  own: readonly Turn[];
  onClose: () => void;
}

function Column({ place, id, side, own, onClose }: ColumnProps) {
  const app = useApp();
  const { summary } = side;
  return (
    <section className="compare-column" data-testid="compare-column" data-session-id={id} aria-label={`${place} session`}>
      <header>
        <button
          type="button"
          className="link-button"
          onClick={() => {
            app.router.view(id);
            onClose();
          }}
        >
          {summary === undefined ? shortId(id) : sessionTitle(summary)}
        </button>
        <span className="heading-facts">
          <code>{shortId(id)}</code>
          {summary !== undefined && <Status status={summary.status} />}
          {summary !== undefined && <span>{dateTime(summary.updatedAt)}</span>}
        </span>
      </header>
      {own.length === 0 && <p className="list-empty">Nothing beyond what both have in common.</p>}
      <Shown id={id} turns={own} />
    </section>
  );
}

const nothingFolded: ReadonlySet<number> = new Set();

function Shown({ id, turns }: { id: string; turns: readonly Turn[] }) {
  return (
    <SessionIdContext value={id}>
      {turns.map((turn) => (
        <article key={turn.turn} className="turn" data-testid="turn" data-turn={turn.turn} aria-label={`Turn ${turn.turn}`}>
          {rowsOf({ older: noOlder, tail: { turns: [turn], from: 0, to: Number.MAX_SAFE_INTEGER, cut: false }, running: false, folded: nothingFolded }).map((row) =>
            "turn" in row ? (
              <div key={row.key} className={rowClass(row, false)}>
                <RowView row={row} liveStatus={null} end="earlier" onFold={ignore} readOnly />
              </div>
            ) : null,
          )}
        </article>
      ))}
    </SessionIdContext>
  );
}

function ignore(): void {}
