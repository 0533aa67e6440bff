import { useCallback, useState, type ReactNode } from "react";
import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import type { Relative } from "../api/types";
import { useLoaded } from "../hooks/useLoaded";
import { plural, sessionTitle, shortId } from "../model/format";
import { revealControls } from "../model/text";
import { hashOf } from "../state/route";
import { ErrorBanner, Status } from "./Feedback";

/** Where the session comes from, what else did, and what came of it. */
export function LineagePanel({ id }: { id: string }) {
  const load = useCallback((signal: AbortSignal) => api.lineage(id, null, signal), [id]);
  const { value, error, reload } = useLoaded(load);
  if (value === null) {
    if (error !== null) return <ErrorBanner error={error} onRetry={reload} />;
    return <p className="list-empty">Loading the lineage</p>;
  }
  const { ancestors, session, children, siblings } = value;
  const alone = ancestors.length === 0 && children.sessions.length === 0;
  return (
    <div className="log-scroll lineage" data-testid="lineage">
      {error !== null && <ErrorBanner error={error} onRetry={reload} />}
      {alone && (
        <p className="list-empty">
          This session was forked from none, and none was forked from it. Forks and the children that
          its tool calls begin will show up here.
        </p>
      )}
      {value.older && <p className="quiet lineage-note">Older ancestors are not shown.</p>}
      {!alone && <Branch path={[...ancestors, session]} here={id} children={children} />}
      {siblings.sessions.length > 0 && (
        <section>
          <h3 className="log-heading">Others from the same session</h3>
          <ul className="lineage-list">
            {siblings.sessions.map((one) => (
              <Node key={one.id} one={one} here={id} />
            ))}
          </ul>
          {siblings.nextCursor !== null && (
            <p className="quiet lineage-note">There are more; open the parent to see all of them.</p>
          )}
        </section>
      )}
    </div>
  );
}

interface BranchProps {
  path: readonly Relative[];
  here: string;
  children: { sessions: readonly Relative[]; nextCursor: string | null };
}

/** The way from the oldest ancestor down, each level inside the one before. */
function Branch({ path, here, children }: BranchProps) {
  const [first, ...rest] = path;
  if (first === undefined) return null;
  return (
    <ul className="lineage-list">
      <Node one={first} here={here}>
        {rest.length > 0 ? (
          <Branch path={rest} here={here} children={children} />
        ) : (
          <Children of={first.id} here={here} first={children} />
        )}
      </Node>
    </ul>
  );
}

function Children({ of, here, first }: { of: string; here: string; first: BranchProps["children"] }) {
  const [more, setMore] = useState<readonly Relative[]>([]);
  const [cursor, setCursor] = useState(first.nextCursor);
  const [error, setError] = useState<HumanError | null>(null);
  const sessions = [...first.sessions, ...more];
  if (sessions.length === 0) return null;
  const next = async (): Promise<void> => {
    try {
      const { children } = await api.lineage(of, cursor);
      setMore((known) => [...known, ...children.sessions]);
      setCursor(children.nextCursor);
      setError(null);
    } catch (failed) {
      setError(toHuman(failed));
    }
  };
  return (
    <ul className="lineage-list">
      {sessions.map((one) => (
        <Node key={one.id} one={one} here={here} />
      ))}
      {error !== null && (
        <li>
          <ErrorBanner error={error} onRetry={() => void next()} />
        </li>
      )}
      {cursor !== null && error === null && (
        <li>
          <button type="button" className="link-button" onClick={() => void next()}>
            Show more
          </button>
        </li>
      )}
    </ul>
  );
}

const kinds = { session: "Session", fork: "Fork", subagent: "Child" } as const;

interface NodeProps {
  one: Relative;
  here: string;
  children?: ReactNode;
}

function Node({ one, here, children }: NodeProps) {
  const { summary } = one;
  const from = one.atSeq === null ? "" : ` at event ${one.atSeq}`;
  return (
    <li>
      <div className="lineage-node" data-testid="lineage-node" data-id={one.id} data-kind={one.kind}>
        <span className="quiet">
          {kinds[one.kind]}
          {one.kind === "session" ? "" : from}
        </span>
        {summary === null ? (
          <span className="quiet">{shortId(one.id)}, deleted or unreadable</span>
        ) : one.id === here ? (
          <strong aria-current="true">{revealControls(sessionTitle(summary))} (this session)</strong>
        ) : (
          <a href={hashOf(one.id)}>{revealControls(sessionTitle(summary))}</a>
        )}
        {summary !== null && (
          <span className="lineage-facts quiet">
            <Status status={summary.status} /> {plural(summary.turns, "turn")}
          </span>
        )}
      </div>
      {children}
    </li>
  );
}
