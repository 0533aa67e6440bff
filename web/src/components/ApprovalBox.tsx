import { useEffect, useState } from "react";
import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import type { Approval, Decision } from "../api/types";
import { revealControls } from "../model/text";
import { ErrorBanner } from "./Feedback";

interface ApprovalBoxProps {
  approval: Approval;
  runId: string;
  callId: string;
  name: string;
  onDecided?: () => void;
}

export function ApprovalBox({ approval, runId, callId, name, onDecided }: ApprovalBoxProps) {
  const [comment, setComment] = useState("");
  const [sent, setSent] = useState<Decision | null>(null);
  const [error, setError] = useState<HumanError | null>(null);

  const decide = async (decision: Decision): Promise<void> => {
    setSent(decision);
    setError(null);
    try {
      await api.decide(runId, callId, decision, comment.trim());
      onDecided?.();
    } catch (failure) {
      const human = toHuman(failure);
      setError(human);
      // Somebody else was first: there is nothing left to choose, and what was chosen will show.
      if (human.code === "already_decided") onDecided?.();
      else setSent(null);
    }
  };

  return (
    <div className="approval" role="group" aria-label={`Approval for ${name}`}>
      <p className="approval-reason">
        {approval.reason === null || approval.reason === ""
          ? `May ${name} run?`
          : revealControls(approval.reason)}
      </p>
      <input
        type="text"
        className="field"
        placeholder="Comment for the model (optional)"
        aria-label="Comment for the model"
        value={comment}
        disabled={sent !== null}
        onChange={(event) => setComment(event.target.value)}
      />
      <div className="approval-actions">
        <Choice id="approve" style="primary" sent={sent} decision="approve" onPick={decide}>
          Approve
        </Choice>
        <Choice id="approve-session" style="" sent={sent} decision="approve_for_session" onPick={decide}>
          Approve for this session
        </Choice>
        <Choice id="deny" style="danger" sent={sent} decision="deny" onPick={decide}>
          Deny
        </Choice>
      </div>
      {error !== null && <ErrorBanner error={error} onDismiss={() => setError(null)} />}
    </div>
  );
}

/**
 * A question whose process died before anyone answered. The server says whether it is still open:
 * it is not once somebody has gone on with the session.
 */
export function OfferBox(props: ApprovalBoxProps) {
  const { runId, callId } = props;
  const [open, setOpen] = useState(false);
  useEffect(() => {
    let current = true;
    api.askedCalls(runId).then(
      (calls) => {
        if (current) setOpen(calls.includes(callId));
      },
      // The note above says what became of it; there is nothing more to offer.
      () => undefined,
    );
    return () => {
      current = false;
    };
  }, [runId, callId]);
  if (!open) return null;
  return (
    <div data-testid="offer">
      <p className="quiet">The server stopped before anyone answered. The call was not made.</p>
      <ApprovalBox {...props} />
    </div>
  );
}

interface ChoiceProps {
  id: string;
  style: string;
  decision: Decision;
  sent: Decision | null;
  onPick: (decision: Decision) => Promise<void>;
  children: string;
}

function Choice({ id, style, decision, sent, onPick, children }: ChoiceProps) {
  return (
    <button
      type="button"
      className={`button ${style}`}
      data-testid={id}
      disabled={sent !== null}
      aria-busy={sent === decision}
      onClick={() => void onPick(decision)}
    >
      {children}
    </button>
  );
}

const decisionText = {
  approved: "Approved",
  approved_for_session: "Approved for this session",
  denied: "Denied",
  expired: "The question expired before anyone answered",
} as const;

export function ApprovalNote({ approval }: { approval: Approval }) {
  if (approval.decision === null) return <p className="approval-note">Nobody answered the question.</p>;
  const by = approval.by === null || approval.by === "" ? "" : ` by ${approval.by}`;
  return (
    <p className="approval-note" data-decision={approval.decision}>
      {decisionText[approval.decision]}
      {approval.decision === "expired" ? "" : by}
    </p>
  );
}
