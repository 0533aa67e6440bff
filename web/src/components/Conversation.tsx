import { useRef } from "react";
import { useApp } from "../state/app";
import type { SessionViewState } from "../state/sessionView";
import { useStore } from "../state/store";
import { ComposerView } from "./ComposerView";
import { ConversationHeader } from "./ConversationHeader";
import { ErrorBanner } from "./Feedback";
import { SessionIdContext } from "./SessionIdContext";
import { TurnList, type TurnListHandle } from "./TurnList";
import { Welcome } from "./Welcome";

interface ConversationProps {
  inspecting: boolean;
  onInspect: () => void;
}

export function Conversation(props: ConversationProps) {
  const app = useApp();
  const view = useStore(app.view.state);
  const list = useRef<TurnListHandle>(null);
  return (
    <section className="conversation" aria-label="Conversation">
      <ConversationHeader view={view} {...props} />
      <SessionIdContext value={view.id}>
        {view.phase === "ready" && view.model.turns.length > 0 ? (
          <>
            <Problems view={view} />
            <TurnList key={view.id} view={view} ref={list} />
          </>
        ) : (
          <div className="turns-frame">
            <div className="turns-scroll" tabIndex={0} role="region" aria-label="Turns">
              <div className="turns still">
                <Problems view={view} />
                <NoTurns view={view} />
              </div>
            </div>
          </div>
        )}
      </SessionIdContext>
      <Announcer view={view} />
      <ComposerView onSent={() => list.current?.jump()} />
    </section>
  );
}

function Problems({ view }: { view: SessionViewState }) {
  const app = useApp();
  if (view.error === null && view.followError === null && view.damage === null) return null;
  return (
    <div className="problems">
      {view.error !== null && <ErrorBanner error={view.error} onRetry={() => app.view.reload()} />}
      {view.followError !== null && view.damage === null && (
        <ErrorBanner error={view.followError} onRetry={() => app.view.reload()} />
      )}
      {view.damage !== null && (
        <ErrorBanner
          error={{
            message: `This session's log is damaged: ${view.damage.reason}`,
            hint: `It can be read but not continued. All findings: threadline verify ${view.id ?? ""}`,
            code: "damaged",
          }}
        >
          <span className="quiet">
            {[
              view.damage.file ?? null,
              view.damage.offset === null ? null : `byte ${view.damage.offset}`,
              view.damage.seq === null ? null : `event ${view.damage.seq}`,
            ]
              .filter((fact) => fact !== null)
              .join(", ")}
          </span>
        </ErrorBanner>
      )}
    </div>
  );
}

function NoTurns({ view }: { view: SessionViewState }) {
  if (view.phase === "none") return <Welcome />;
  if (view.phase === "loading") {
    return (
      <div className="skeletons" role="status" aria-label="Loading the conversation">
        <span className="skeleton tall" />
        <span className="skeleton" />
        <span className="skeleton tall" />
      </div>
    );
  }
  if (view.phase === "error" || view.damage !== null) return null;
  return <p className="list-empty">Nothing has happened in this session yet.</p>;
}

/** Speaks what changed, once, instead of reading every streamed word aloud. */
function Announcer({ view }: { view: SessionViewState }) {
  const { status, running, turns } = view.model;
  const last = turns.at(-1);
  let text = "";
  if (view.phase === "ready" && last !== undefined) {
    if (status === "waiting") text = `Turn ${last.turn} needs your approval.`;
    else if (running) text = `Turn ${last.turn} is running.`;
    else text = `Turn ${last.turn} ended: ${last.reason?.kind ?? "interrupted"}.`;
  }
  return (
    <p className="visually-hidden" role="status" aria-live="polite">
      {text}
    </p>
  );
}
