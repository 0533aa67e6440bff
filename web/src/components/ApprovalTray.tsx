import type { Question } from "../api/acting";
import { relativeTime, sessionTitle, shortId } from "../model/format";
import { callHeadline } from "../model/text";
import { useNow } from "../hooks/useNow";
import { useApp } from "../state/app";
import { useStore } from "../state/store";
import { ApprovalBox } from "./ApprovalBox";
import { Dialog } from "./Dialog";

/** What waits for a person, whatever session is on the screen. */
export default function ApprovalTray({ onClose }: { onClose: () => void }) {
  const { approvals } = useApp();
  const { questions, loaded } = useStore(approvals.state);
  return (
    <Dialog title="Waiting for you" onClose={onClose} kind="wide" testId="tray">
      {questions.length === 0 ? (
        <p className="list-empty">{loaded ? "Nothing waits for your approval." : "Looking."}</p>
      ) : (
        <ul className="tray">
          {questions.map((question) => (
            <Entry key={question.approvalId} question={question} onClose={onClose} />
          ))}
        </ul>
      )}
    </Dialog>
  );
}

function Entry({ question, onClose }: { question: Question; onClose: () => void }) {
  const app = useApp();
  const { sessions } = useStore(app.approvals.state);
  const now = useNow(30_000);
  const session = sessions.get(question.sessionId);
  const { runId, toolCallId, name, reason, approvalId } = question;
  return (
    <li data-testid="tray-entry" data-session-id={question.sessionId}>
      <div className="tray-session">
        <button
          type="button"
          className="link-button"
          onClick={() => {
            app.router.view(question.sessionId);
            onClose();
          }}
        >
          {session === undefined ? `Session ${shortId(question.sessionId)}` : sessionTitle(session)}
        </button>
        <span className="quiet">{relativeTime(question.askedAt, now)}</span>
      </div>
      <p className="tray-call">
        <strong>{name}</strong> <code>{callHeadline(question.arguments)}</code>
      </p>
      <ApprovalBox
        approval={{ approvalId, reason, decision: null, by: null }}
        runId={runId}
        callId={toolCallId}
        name={name}
        onDecided={() => void app.approvals.refresh()}
      />
    </li>
  );
}
