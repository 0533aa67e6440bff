import { useEffect, useState } from "react";
import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import type { Approval, Decision, ToolItem } from "../api/types";
import { revealControls } from "../model/text";
import { ErrorBanner } from "./Feedback";

/** A button: a decision, or the one with the words that the question offers. */
type Picked = Decision | "approve_prefix";

interface ApprovalBoxProps {
  approval: Approval;
  runId: string;
  callId: string;
  name: string;
  onDecided?: () => void;
}

export function ApprovalBox({ approval, runId, callId, name, onDecided }: ApprovalBoxProps) {
  const [comment, setComment] = useState("");
  const [sent, setSent] = useState<Picked | null>(null);
  const [error, setError] = useState<HumanError | null>(null);

  const decide = async (picked: Picked): Promise<void> => {
    setSent(picked);
    setError(null);
    const decision = picked === "approve_prefix" ? "approve_for_session" : picked;
    const prefix = picked === "approve_prefix" ? approval.prefix : undefined;
    try {
      await api.decide(runId, callId, decision, comment.trim(), prefix);
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
      {approval.outsideSandbox === true && (
        <p className="approval-outside" data-testid="outside-sandbox">
          This command runs without the sandbox.
        </p>
      )}
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
        {approval.outsideSandbox !== true && (
          <Choice id="approve-session" style="" sent={sent} decision="approve_for_session" onPick={decide}>
            Approve for this session
          </Choice>
        )}
        {approval.prefix !== undefined && approval.outsideSandbox !== true && (
          <Choice id="approve-prefix" style="" sent={sent} decision="approve_prefix" onPick={decide}>
            {`Approve all \u201c${revealControls(approval.prefix.join(" "))} ...\u201d`}
          </Choice>
        )}
        <Choice id="deny" style="danger" sent={sent} decision="deny" onPick={decide}>
          Deny
        </Choice>
      </div>
      {error !== null && <ErrorBanner error={error} onDismiss={() => setError(null)} />}
    </div>
  );
}

/**
 * Whether a question whose process died before anyone answered can still be answered. The server
 * knows: it is over once somebody has gone on with the session.
 */
export function useOffered({ approval, outcome, callId }: ToolItem, runId: string, isNewest: boolean): boolean {
  const isExpired = isNewest && approval?.decision === "expired" && outcome === "not_started";
  const [open, setOpen] = useState(false);
  useEffect(() => {
    if (!isExpired) return;
    let current = true;
    api.askedCalls(runId).then(
      (calls) => {
        if (current) setOpen(calls.includes(callId));
      },
      // The card says what became of the question; there is nothing more to offer.
      () => undefined,
    );
    return () => {
      current = false;
    };
  }, [isExpired, runId, callId]);
  return isExpired && open;
}

export function OfferBox(props: ApprovalBoxProps) {
  return (
    <div data-testid="offer">
      <p className="unknown-note">
        The server stopped before anyone answered. Nothing was executed; your answer goes on from here.
      </p>
      <ApprovalBox {...props} />
    </div>
  );
}

interface ChoiceProps {
  id: string;
  style: string;
  decision: Picked;
  sent: Picked | null;
  onPick: (decision: Picked) => Promise<void>;
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
      {approval.prefix !== undefined && `: all \u201c${revealControls(approval.prefix.join(" "))} ...\u201d`}
      {approval.outsideSandbox === true && ", without the sandbox"}
      {approval.decision === "expired" ? "" : by}
    </p>
  );
}
