import { shortId } from "../model/format";
import { useApp } from "../state/app";
import { currentRun } from "../state/currentRun";
import { useStore } from "../state/store";
import { Status } from "./Feedback";

export function CurrentRunCard({ onOpened }: { onOpened: () => void }) {
  const app = useApp();
  useStore(app.list.state);
  const run = currentRun(useStore(app.run), useStore(app.view.state), app.list.loaded());
  return (
    <section className="current-run" data-testid="current-run" aria-label="Current run" aria-live="polite">
      <h2>Current run</h2>
      {run === null ? (
        <p className="quiet">Nothing is running in this tab.</p>
      ) : (
        <button
          type="button"
          className="run-body"
          data-session-id={run.sessionId}
          data-run-id={run.runId}
          onClick={() => {
            app.router.view(run.sessionId);
            onOpened();
          }}
        >
          <span className="run-line">
            <code title={run.sessionId}>{shortId(run.sessionId)}</code>
            <Status status={run.status} />
          </span>
          {run.resumed && <span className="run-marker">continuing session {shortId(run.sessionId)}</span>}
          <span className="run-id" title={run.runId}>
            run {run.runId}
          </span>
        </button>
      )}
    </section>
  );
}
