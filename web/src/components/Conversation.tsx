import { useState } from "react";
import { useStickToBottom } from "../hooks/useStickToBottom";
import { plural } from "../model/format";
import { useApp } from "../state/app";
import type { SessionViewState } from "../state/sessionView";
import { useStore } from "../state/store";
import { ComposerView } from "./ComposerView";
import { ConversationHeader } from "./ConversationHeader";
import { ErrorBanner } from "./Feedback";
import { Icon } from "./Icon";
import { TurnView } from "./TurnView";
import { Welcome } from "./Welcome";

interface ConversationProps {
  inspecting: boolean;
  onInspect: () => void;
}

export function Conversation(props: ConversationProps) {
  const app = useApp();
  const view = useStore(app.view.state);
  const stick = useStickToBottom(view.phase === "ready" ? view.id : null);
  return (
    <section className="conversation" aria-label="Conversation">
      <ConversationHeader view={view} {...props} />
      <div className="turns-frame">
        <div className="turns-scroll" ref={stick.scroller}>
          <div className="turns" ref={stick.content}>
            <Problems view={view} />
            <Body view={view} key={view.id} />
          </div>
        </div>
        {!stick.atBottom && (
          <button type="button" className="jump" data-testid="jump" onClick={stick.jump}>
            <Icon name="down" />
            Jump to latest
          </button>
        )}
      </div>
      <Announcer view={view} />
      <ComposerView onSent={stick.jump} />
    </section>
  );
}

function Problems({ view }: { view: SessionViewState }) {
  const app = useApp();
  return (
    <>
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
    </>
  );
}

const pageOfTurns = 40;

function Body({ view }: { view: SessionViewState }) {
  const [shown, setShown] = useState(pageOfTurns);
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
  const { turns, running, status } = view.model;
  if (view.phase === "ready" && turns.length === 0) {
    return <p className="list-empty">Nothing has happened in this session yet.</p>;
  }
  const hidden = Math.max(0, turns.length - shown);
  const last = turns.at(-1);
  return (
    <>
      {hidden > 0 && (
        <button type="button" className="show-all earlier" onClick={() => setShown(shown + pageOfTurns)}>
          Show earlier turns ({plural(hidden, "more turn")})
        </button>
      )}
      {turns.slice(hidden).map((turn) => (
        <TurnView
          key={turn.turn}
          turn={turn}
          liveStatus={turn === last && running && turn.reason === null ? status : null}
          end={turn !== last ? "earlier" : view.damage === null ? "last" : "damaged"}
        />
      ))}
    </>
  );
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
