import type { Turn } from "../api/types";
import { textOfContent } from "../model/text";
import { useApp } from "../state/app";
import { useStore } from "../state/store";
import { Icon, type IconName } from "./Icon";

interface TurnActionsProps {
  turn: Turn;
  /** Whether no other turn follows. */
  last: boolean;
  /** Whether it is still going on. */
  live: boolean;
}

/** What can be done from a turn: say something else, go another way, go back. */
export function TurnActions({ turn, last, live }: TurnActionsProps) {
  const app = useApp();
  const { id, damage, model } = useStore(app.view.state);
  if (id === null || damage !== null) return null;
  const prompt = turn.items.find((item) => item.kind === "user" && item.source !== "context");
  const text = prompt?.kind === "user" ? textOfContent(prompt.content) : null;
  const number = turn.turn;
  const actions: (readonly [string, string, IconName, () => void])[] = [];
  if (text !== null) {
    actions.push([
      "turn-edit",
      `Edit the message of turn ${number} and send it in a fork`,
      "edit",
      () => app.branching.ask({ kind: "edit", id, turn, text }),
    ]);
  }
  if (!live) {
    // The closing events of a turn that was cut short may not be stored yet.
    const at = last ? undefined : (turn.endSeq ?? undefined);
    actions.push([
      "turn-fork",
      `Fork after turn ${number}`,
      "fork",
      () => app.branching.ask({ kind: "fork", id, turn, at }),
    ]);
  }
  if (!live && !last && !model.running && turn.endSeq !== null) {
    actions.push([
      "turn-rewind",
      `Rewind to the end of turn ${number}`,
      "back",
      () => app.branching.ask({ kind: "rewind", id, turn }),
    ]);
  }
  return (
    <span className="turn-actions">
      {actions.map(([testId, label, icon, deed]) => (
        <button
          key={testId}
          type="button"
          className="icon-button"
          data-testid={testId}
          aria-label={label}
          title={label}
          onClick={deed}
        >
          <Icon name={icon} />
        </button>
      ))}
    </span>
  );
}

/** What follows from how the last turn ended: go on after a break, or take a rewind back. */
export function TurnFollowUps({ turn, last, live }: TurnActionsProps) {
  const app = useApp();
  const { id, damage } = useStore(app.view.state);
  const { continuing } = useStore(app.router.state);
  const { busy, error } = useStore(app.branching.state);
  if (id === null || damage !== null || !last || live) return null;
  const end = turn.items.at(-1);
  const moved = end?.kind === "head" && end.reason === "rewind";
  const unfinished = turn.reason?.kind !== "completed" && continuing !== id;
  if (!moved && !unfinished) return null;
  return (
    <p className="turn-follow-ups">
      {moved && (
        <button
          type="button"
          className="button small"
          data-testid="redo"
          disabled={busy}
          onClick={() => void app.branching.redo(id)}
        >
          <Icon name="redo" />
          Redo
        </button>
      )}
      {unfinished && (
        <button
          type="button"
          className="button small"
          data-testid="turn-continue"
          onClick={() => {
            app.continueSession(id);
            document.getElementById("composer-text")?.focus();
          }}
        >
          <Icon name="send" />
          Continue
        </button>
      )}
      {error !== null && (
        <span className="row-reason" role="alert">
          {error.message} {error.hint}
        </span>
      )}
    </p>
  );
}
