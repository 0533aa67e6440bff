import { memo } from "react";
import type { Turn } from "../api/types";
import { sentence } from "../api/problem";
import { clock, dateTime, duration, shortId, tokens } from "../model/format";
import { Icon } from "./Icon";
import { Status } from "./Feedback";
import { ItemView, Thinking } from "./Items";
import { TurnActions, TurnFollowUps } from "./TurnActions";

interface TurnViewProps {
  turn: Turn;
  /** Set on the last turn while the session is running: "running" or "waiting". */
  liveStatus: string | null;
  /** What comes after this turn: other turns, nothing yet, or what cannot be read any more. */
  end: "earlier" | "last" | "damaged";
  /** Whether it stands where nothing can be done with it, as in a comparison. */
  readOnly?: boolean;
}

export const TurnView = memo(function TurnView({ turn, liveStatus, end, readOnly }: TurnViewProps) {
  const live = liveStatus !== null;
  return (
    <article className="turn" data-testid="turn" data-turn={turn.turn} aria-label={`Turn ${turn.turn}`}>
      <TurnHeader turn={turn} liveStatus={liveStatus} />
      {readOnly !== true && <TurnActions turn={turn} last={end !== "earlier"} live={live} />}
      {turn.items.map((item) => (
        <ItemView key={item.id} item={item} runId={turn.runId} live={live} />
      ))}
      {live && isQuiet(turn) && <Thinking />}
      <TurnEnd turn={turn} live={live} end={end} />
      {readOnly !== true && <TurnFollowUps turn={turn} last={end !== "earlier"} live={live} />}
    </article>
  );
});

/** Nothing on the screen moves although the run goes on: show that it is alive. */
function isQuiet(turn: Turn): boolean {
  const last = turn.items.at(-1);
  if (last === undefined) return true;
  if (last.kind === "assistant") return !last.streaming;
  return last.kind !== "tool" || last.outcome !== null;
}

function TurnHeader({ turn, liveStatus }: Pick<TurnViewProps, "turn" | "liveStatus">) {
  const status = liveStatus ?? turn.reason?.kind ?? "interrupted";
  const took = turn.endedAt === null ? null : duration(turn.endedAt - turn.startedAt);
  const used = turn.usage.inputTokens + turn.usage.outputTokens > 0;
  return (
    <header className="turn-header">
      <h3>Turn {turn.turn}</h3>
      <Status status={status} />
      <span className="turn-facts">
        <time dateTime={new Date(turn.startedAt).toISOString()} title={dateTime(turn.startedAt)}>
          {clock(turn.startedAt)}
        </time>
        {took !== null && <span>{took}</span>}
        {used && <span title="Tokens">{tokens(turn.usage)}</span>}
        <span title={`Run ${turn.runId}`}>run {shortId(turn.runId)}</span>
      </span>
    </header>
  );
}

interface TurnEndProps {
  turn: Turn;
  live: boolean;
  end: TurnViewProps["end"];
}

function TurnEnd({ turn, live, end }: TurnEndProps) {
  if (live) return null;
  const kind = turn.reason?.kind ?? "interrupted";
  const text = endText(kind, turn.reason === null ? end : end === "last" ? "last" : "earlier");
  if (text === null) return null;
  const { message, code } = turn.reason ?? {};
  return (
    <div className="turn-end" data-reason={kind}>
      <Icon name="warning" />
      <div>
        <strong>{text}</strong>
        {message !== undefined && <span>{sentence(message)}</span>}
        {code !== undefined && <code>{code}</code>}
      </div>
    </div>
  );
}

function endText(kind: string, end: TurnViewProps["end"]): string | null {
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
