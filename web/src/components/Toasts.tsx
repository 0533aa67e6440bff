import { useApp } from "../state/app";
import { useStore } from "../state/store";
import { ErrorBanner } from "./Feedback";

export function Toasts() {
  const { deletions } = useApp();
  const { pending, error } = useStore(deletions.state);
  return (
    <div className="toasts" role="region" aria-label="Notifications" aria-live="polite">
      {pending.map((entry) => (
        <div className="toast" key={entry.ids[0]} data-testid="undo-toast">
          <span>
            Deleted <strong>{entry.title}</strong>
          </span>
          <button type="button" className="button small" data-testid="undo" onClick={() => deletions.undo(entry)}>
            Undo
          </button>
          <span className="toast-timer" aria-hidden="true" />
        </div>
      ))}
      {error !== null && (
        <ErrorBanner
          error={{ message: error, hint: undefined, code: "delete_failed" }}
          onDismiss={() => deletions.dismissError()}
        />
      )}
    </div>
  );
}
