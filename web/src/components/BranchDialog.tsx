import { useState } from "react";
import type { Turn } from "../api/types";
import { plural } from "../model/format";
import { callHeadline } from "../model/text";
import { useApp } from "../state/app";
import type { Plan } from "../state/branching";
import { useStore } from "../state/store";
import { Dialog } from "./Dialog";
import { ErrorBanner } from "./Feedback";

const titles: Record<Plan["kind"], (turn: number) => string> = {
  fork: (turn) => `Fork after turn ${turn}`,
  rewind: (turn) => `Rewind to the end of turn ${turn}`,
  edit: (turn) => `Edit the message of turn ${turn}`,
};
const verbs: Record<Plan["kind"], string> = { fork: "Fork", rewind: "Rewind", edit: "Send in a fork" };

/** Says what is about to happen, and what is not. */
export default function BranchDialog({ plan }: { plan: Plan }) {
  const { branching, view } = useApp();
  const { busy, error } = useStore(branching.state);
  const [text, setText] = useState(plan.kind === "edit" ? plan.text : "");
  const { turns } = view.state.get().model;
  const after = turns.filter((turn) => turn.turn > plan.turn.turn);
  const close = (): void => branching.cancel();
  return (
    <Dialog title={titles[plan.kind](plan.turn.turn)} onClose={close} testId="branch">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void branching.carryOut(text);
        }}
      >
        {plan.kind === "edit" && (
          <textarea
            className="field branch-text"
            aria-label="Message"
            data-testid="branch-text"
            data-first
            rows={6}
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
        )}
        <Consequences plan={plan} after={after} />
        {error !== null && <ErrorBanner error={error} onDismiss={() => branching.dismissError()} />}
        <div className="dialog-actions">
          <button type="button" className="button" onClick={close}>
            Cancel
          </button>
          <button
            type="submit"
            className="button primary"
            data-testid="branch-do"
            disabled={busy || (plan.kind === "edit" && text.trim() === "")}
            aria-busy={busy}
          >
            {plan.kind === "edit" && plan.turn.startSeq === 0 ? "Send as a new session" : verbs[plan.kind]}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Consequences({ plan, after }: { plan: Plan; after: readonly Turn[] }) {
  const { kind, turn } = plan;
  if (kind === "rewind") {
    return (
      <>
        <p>
          The model goes on as if {plural(after.length, "later turn")} had not been said. Nothing is
          removed: the turns stay in the log and on this page, and Redo takes the rewind back until the
          session is continued.
        </p>
        <NotUndone turns={after} />
      </>
    );
  }
  const images = turn.items.some(
    (item) => item.kind === "user" && item.content.some((part) => part.type === "image"),
  );
  return (
    <>
      <p>
        {kind === "fork"
          ? `A new session begins with everything up to the end of turn ${turn.turn} and goes its own way.`
          : turn.startSeq === 0
            ? "It is the first message, so it begins a new session."
            : `A new session begins with everything before turn ${turn.turn}, and gets this message.`}{" "}
        This session stays as it is. Both work in the same folder.
      </p>
      {kind === "edit" && images && <p className="quiet">The images of the message do not go along.</p>}
      <NotUndone turns={kind === "edit" ? [turn, ...after] : after} />
    </>
  );
}

const named = 4;

/** What tools have done in the world stays done. */
function NotUndone({ turns }: { turns: readonly Turn[] }) {
  const calls = turns
    .flatMap((turn) => turn.items)
    .flatMap((item) => (item.kind === "tool" && item.outcome !== "not_started" && item.outcome !== "denied" ? [item] : []));
  if (turns.length === 0) return null;
  if (calls.length === 0) return <p className="quiet">No tool has run in what is left out.</p>;
  return (
    <div className="not-undone" data-testid="not-undone">
      <p>
        <strong>Not undone:</strong> files on disk and everything else that {plural(calls.length, "tool call")}{" "}
        did.
      </p>
      <ul>
        {calls.slice(0, named).map((call) => (
          <li key={call.id}>
            {call.name} <code>{callHeadline(call.arguments)}</code>
          </li>
        ))}
        {calls.length > named && <li>and {calls.length - named} more</li>}
      </ul>
    </div>
  );
}
