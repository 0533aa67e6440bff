import { useEffect, useLayoutEffect, useRef, type KeyboardEvent, type RefObject } from "react";
import { shortId } from "../model/format";
import { useApp } from "../state/app";
import { useStore } from "../state/store";
import { ErrorBanner } from "./Feedback";
import { Icon } from "./Icon";
import { PolicySelects } from "./PolicySelects";

export function ComposerView({ onSent }: { onSent: () => void }) {
  const app = useApp();
  const { continuing } = useStore(app.router.state);
  const view = useStore(app.view.state);
  const { text, sending, stopping, error } = useStore(app.composer.state);
  const field = useRef<HTMLTextAreaElement>(null);
  useAutoHeight(field, text);
  useEffect(() => {
    if (continuing !== null) field.current?.focus();
  }, [continuing]);

  const running = view.phase === "ready" && view.model.running;
  const targetBusy = running && continuing === view.id;
  const canSend = text.trim() !== "" && !sending && !targetBusy;
  const send = (): void => {
    if (!canSend) return;
    onSent();
    void app.composer.send(continuing);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    // Enter also ends the composition of a character in an input method: that is not a send.
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  };

  return (
    <section className="composer" aria-label="Composer">
      <Target />
      {error !== null && <ErrorBanner error={error} onDismiss={() => app.composer.dismissError()} />}
      <div className="composer-box">
        <textarea
          id="composer-text"
          ref={field}
          data-testid="composer"
          rows={1}
          aria-label="Task"
          placeholder={continuing === null ? "What should be done?" : "What should happen next?"}
          value={text}
          onChange={(event) => app.composer.write(event.target.value)}
          onKeyDown={onKeyDown}
        />
        <div className="composer-actions">
          <PolicySelects />
          <span className="composer-hint quiet">
            {targetBusy ? "This session is running: stop it or wait." : ""}
          </span>
          {running && view.id !== null && <StopButton id={view.id} stopping={stopping} />}
          <button
            type="button"
            className="button primary"
            data-testid="send"
            disabled={!canSend}
            aria-busy={sending}
            title="Send (Enter). New line: Shift+Enter"
            onClick={send}
          >
            <Icon name="send" />
            {sending ? "Starting" : "Send"}
          </button>
        </div>
      </div>
      <ProviderNote />
    </section>
  );
}

/** Says, always, where the next task will go. */
function Target() {
  const app = useApp();
  const { viewed, continuing } = useStore(app.router.state);
  const { damage, phase } = useStore(app.view.state);
  if (continuing !== null) {
    return (
      <div className="banner" data-testid="banner-continuing" data-session-id={continuing} role="status">
        <span title={continuing}>Continuing session {shortId(continuing)}</span>
        {continuing !== viewed && (
          <button type="button" className="link-button" onClick={() => app.router.view(continuing)}>
            Show it
          </button>
        )}
        <button type="button" className="button small" data-testid="start-new" onClick={() => app.startNew()}>
          Start new session
        </button>
      </div>
    );
  }
  if (viewed === null) return null;
  return (
    <div className="banner quiet-banner">
      <span>The next task starts a new session.</span>
      {damage === null && phase !== "error" && (
        <button
          type="button"
          className="link-button"
          data-testid="continue-viewed"
          onClick={() => app.continueSession(viewed)}
        >
          Continue {shortId(viewed)} instead
        </button>
      )}
    </div>
  );
}

function StopButton({ id, stopping }: { id: string; stopping: boolean }) {
  const { composer } = useApp();
  return (
    <button
      type="button"
      className="button danger"
      data-testid="stop"
      disabled={stopping}
      onClick={() => void composer.stop(id)}
    >
      <Icon name="stop" />
      {stopping ? "Stopping" : "Stop"}
    </button>
  );
}

function ProviderNote() {
  const { server } = useApp();
  const { config } = useStore(server);
  if (config === null) return <p className="provider-note quiet">Connecting to the server</p>;
  if (config.demonstration) {
    return (
      <p className="provider-note demonstration" data-testid="demonstration">
        <strong>Demonstration:</strong> no model is connected. The offline provider gives fixed answers
        and runs each line that starts with <code>$</code> as a shell command.
      </p>
    );
  }
  return (
    <p className="provider-note quiet">
      {config.provider} / {config.model} in <code>{config.cwd}</code>
    </p>
  );
}

function useAutoHeight(field: RefObject<HTMLTextAreaElement | null>, text: string): void {
  useLayoutEffect(() => {
    const element = field.current;
    if (element === null) return;
    element.style.height = "auto";
    element.style.height = `${element.scrollHeight}px`;
  }, [field, text]);
}
