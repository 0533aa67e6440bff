import { useState, type ReactNode } from "react";
import { useApp } from "../state/app";
import { useStore } from "../state/store";
import { Icon } from "./Icon";
import { useSessionId } from "./SessionIdContext";

interface Action {
  id: string;
  label: string;
  /** The task that is sent. */
  task: string;
}

/** Buttons that send a prepared task to the session they stand in. */
export function CallActions({ actions }: { actions: readonly Action[] }) {
  const app = useApp();
  const session = useSessionId();
  const { model, damage } = useStore(app.view.state);
  const { sending } = useStore(app.composer.state);
  const [sent, setSent] = useState<string | null>(null);
  if (session === null || damage !== null) return null;
  const send = async (action: Action): Promise<void> => {
    setSent(action.id);
    await app.composer.ask(session, action.task);
    setSent(null);
  };
  return (
    <div className="call-actions">
      {actions.map((action) => (
        <button
          key={action.id}
          type="button"
          className="button small"
          data-testid={action.id}
          disabled={sending || model.running || sent !== null}
          aria-busy={sent === action.id}
          title={action.task}
          onClick={() => void send(action)}
        >
          {action.label}
        </button>
      ))}
    </div>
  );
}

export function OpenSession({ id, children }: { id: string; children: ReactNode }) {
  const app = useApp();
  return (
    <button type="button" className="open-session" data-testid="open-child" title={id} onClick={() => app.router.view(id)}>
      <Icon name="chat" />
      {children}
    </button>
  );
}
