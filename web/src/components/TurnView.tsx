import { memo } from "react";
import type { Turn } from "../api/types";
import { sentence } from "../api/problem";
import { clock, dateTime, duration, plural, shortId } from "../model/format";
import type { Row } from "../model/rows";
import { revealProse } from "../model/text";
import { hashOf } from "../state/route";
import { Icon } from "./Icon";
import { Status } from "./Feedback";
import { ItemView, Thinking } from "./Items";
import { useSessionId } from "./SessionIdContext";
import { TurnActions, TurnFollowUps } from "./TurnActions";
import { TurnUsage } from "./UsageFacts";

/** What comes after a turn: other turns, nothing yet, or what cannot be read any more. */
export type TurnEnding = "earlier" | "last" | "damaged";

interface RowViewProps {
  row: Row;
  /** Set on the last turn while the session is running: "running" or "waiting". */
  liveStatus: string | null;
  end: TurnEnding;
  onFold: (turn: number) => void;
  /** Whether it stands where nothing can be done with it, as in a comparison. */
  readOnly?: boolean;
}

/** One row of a turn. */
export const RowView = memo(function RowView({ row, liveStatus, end, onFold, readOnly = false }: RowViewProps) {
  switch (row.kind) {
    case "head":
      return (
        <>
          <TurnHeader row={row} liveStatus={liveStatus} onFold={onFold} />
          {!readOnly && <TurnActions turn={row.turn} last={end !== "earlier"} live={liveStatus !== null} />}
        </>
      );
    case "item":
      return (
        <ItemView
          item={row.item}
          runId={row.turn.runId}
          live={liveStatus !== null}
          isNewest={end === "last" && !readOnly}
        />
      );
    case "folded":
      return (
        <button type="button" className="folded-items" onClick={(event) => unfold(event.currentTarget, () => onFold(row.turn.turn))}>
          <Icon name="chevron" />
          {plural(row.count, "more item")} in this turn
        </button>
      );
    case "quiet":
      return <Thinking />;
    case "end":
      return <TurnEnd turn={row.turn} end={end} />;
    case "follow":
      return readOnly ? null : <TurnFollowUps turn={row.turn} last={end !== "earlier"} live={liveStatus !== null} />;
    default:
      return null;
  }
});

/** The button goes away with its click; the keys that were meant for the conversation stay there. */
function unfold(button: HTMLElement, open: () => void): void {
  button.closest<HTMLElement>(".turns-scroll")?.focus({ preventScroll: true });
  open();
}

interface TurnHeaderProps {
  row: Extract<Row, { kind: "head" }>;
  liveStatus: string | null;
  onFold: (turn: number) => void;
}

function TurnHeader({ row, liveStatus, onFold }: TurnHeaderProps) {
  const { turn, folded, isCut } = row;
  const session = useSessionId();
  const status = liveStatus ?? turn.reason?.kind ?? "interrupted";
  const took = turn.endedAt === null ? null : duration(turn.endedAt - turn.startedAt);
  return (
    <header className="turn-header">
      <h3>
        <button
          type="button"
          className="turn-fold"
          aria-expanded={!folded}
          title={folded ? "Unfold (f)" : "Fold (f)"}
          disabled={liveStatus !== null}
          onClick={() => onFold(turn.turn)}
        >
          <Icon name="chevron" />
          Turn {turn.turn}
        </button>
      </h3>
      {!isCut && <Status status={status} />}
      <span className="turn-facts">
        <a
          className="turn-link"
          href={hashOf(session, { turn: turn.turn })}
          title={`${dateTime(turn.startedAt)}. Link to this turn`}
        >
          <time dateTime={new Date(turn.startedAt).toISOString()}>{clock(turn.startedAt)}</time>
        </a>
        {took !== null && <span>{took}</span>}
        <TurnUsage turn={turn} />
        <span className="turn-run" title={`Run ${turn.runId}`}>
          run {shortId(turn.runId)}
        </span>
      </span>
    </header>
  );
}

function TurnEnd({ turn, end }: { turn: Turn; end: TurnEnding }) {
  const kind = turn.reason?.kind ?? "interrupted";
  const text = endText(kind, turn.reason === null ? end : end === "last" ? "last" : "earlier");
  if (text === null) return null;
  const { message, code } = turn.reason ?? {};
  return (
    <div className="turn-end" data-reason={kind}>
      <Icon name="warning" />
      <div>
        <strong>{text}</strong>
        {message !== undefined && <span>{revealProse(sentence(message))}</span>}
        {code !== undefined && <code>{code}</code>}
      </div>
    </div>
  );
}

function endText(kind: string, end: TurnEnding): string | null {
  switch (kind) {
    case "completed":
      return null;
    case "cancelled":
      return "Stopped. Everything up to here is kept.";
    case "interrupted":
      if (end === "damaged") return "The log is damaged here: the rest of this turn cannot be read.";
      if (end === "earlier") return "This turn was interrupted. Everything up to here is kept.";
      return "This turn was interrupted. Everything up to here is kept; continue when you are ready.";
    case "error":
      return "The turn failed.";
    case "blocked":
      return "The turn was blocked.";
    case "max_steps":
      return "The turn reached its limit of steps. Continue to let it go on.";
    case "max_tokens":
      return "The model reached its limit of tokens. Continue to let it go on.";
    case "limit":
      return "The turn reached a limit. Continue to let it go on.";
    default:
      return `The turn ended: ${kind}.`;
  }
}
