import {
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
  type ClipboardEvent,
  type DragEvent,
  type KeyboardEvent,
  type RefObject,
} from "react";
import type { Delivery, ImageLimits } from "../api/acting";
import { shortId } from "../model/format";
import { textOfContent } from "../model/text";
import { useApp } from "../state/app";
import { readImages } from "../state/attachments";
import { useStore } from "../state/store";
import { AttachmentList, AttachButton } from "./Attachments";
import { ErrorBanner } from "./Feedback";
import { Icon } from "./Icon";
import { PolicySelects, Widening } from "./PolicySelects";
import { QueueList } from "./QueueList";

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
  const queueing = running && continuing !== null && continuing === view.id;
  const canSend = text.trim() !== "" && !sending;
  // Stop stands where Send will be again, so that nothing moves when a run begins or ends.
  const onlyStops = running && view.id !== null && !queueing && text === "" && !sending;
  const send = (): void => {
    if (!canSend) return;
    onSent();
    if (queueing) void app.composer.queue(continuing);
    else void app.composer.send(continuing);
  };
  const stop = useStopByEscape(running && view.id !== null ? view.id : null);
  const recall = useRecall(field);
  const images = useImages();
  const onKeyDown = (event: KeyboardEvent): void => {
    // Enter also ends the composition of a character in an input method: that is not a send.
    if (event.nativeEvent.isComposing) return;
    if (event.key === "Escape" && stop.press()) event.preventDefault();
    else if ((event.key === "ArrowUp" || event.key === "ArrowDown") && recall(event.key)) event.preventDefault();
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    send();
  };

  return (
    <section className="composer" aria-label="Composer">
      <Target />
      <QueueList />
      {error !== null && <ErrorBanner error={error} onDismiss={() => app.composer.dismissError()} />}
      {images.refused.length > 0 && (
        <ErrorBanner
          error={{ message: images.refused.join(" "), hint: undefined, code: "image" }}
          onDismiss={images.dismiss}
        />
      )}
      <div className="composer-box" data-dropping={images.dropping} {...images.drop}>
        <AttachmentList />
        <textarea
          id="composer-text"
          ref={field}
          data-testid="composer"
          rows={1}
          aria-label="Task"
          placeholder={placeholder(continuing, queueing)}
          value={text}
          onChange={(event) => app.composer.write(event.target.value)}
          onKeyDown={onKeyDown}
          onPaste={images.paste}
        />
        <div className="composer-actions">
          {images.limits !== null && <AttachButton limits={images.limits} onFiles={images.add} />}
          {queueing ? <DeliverySelect /> : <PolicySelects />}
          <span className="composer-hint quiet" role="status">
            {stop.armed ? "Press Esc again to stop the run." : ""}
          </span>
          {running && view.id !== null && <StopButton id={view.id} stopping={stopping} />}
          {!onlyStops && <SendButton enabled={canSend} sending={sending} queueing={queueing} onClick={send} />}
        </div>
      </div>
      {!queueing && <Widening />}
      <ProviderNote />
    </section>
  );
}

function placeholder(continuing: string | null, queueing: boolean): string {
  if (queueing) return "Say more while it works: it waits its turn";
  return continuing === null ? "What should be done?" : "What should happen next?";
}

/** Says, always, where the next task will go. */
function Target() {
  const app = useApp();
  const { viewed, continuing } = useStore(app.router.state);
  const { damage, phase, model } = useStore(app.view.state);
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
          {model.running ? `Queue it for ${shortId(viewed)}` : `Continue ${shortId(viewed)} instead`}
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
      title="Stop (Esc twice)"
      onClick={() => void composer.stop(id)}
    >
      <Icon name="stop" />
      {stopping ? "Stopping" : "Stop"}
    </button>
  );
}

interface SendButtonProps {
  enabled: boolean;
  sending: boolean;
  queueing: boolean;
  onClick: () => void;
}

function SendButton({ enabled, sending, queueing, onClick }: SendButtonProps) {
  return (
    <button
      type="button"
      className="button primary"
      data-testid="send"
      disabled={!enabled}
      aria-busy={sending}
      title={queueing ? "Queue (Enter). New line: Shift+Enter" : "Send (Enter). New line: Shift+Enter"}
      onClick={onClick}
    >
      <Icon name={queueing ? "clock" : "send"} />
      {queueing ? "Queue" : sending ? "Starting" : "Send"}
    </button>
  );
}

export const deliveries: readonly (readonly [Delivery, string])[] = [
  ["after_turn", "After this turn"],
  ["next_step", "At the next step"],
];

function DeliverySelect() {
  const { composer } = useApp();
  const { delivery } = useStore(composer.state);
  return (
    <select
      className="policy"
      aria-label="When it is delivered"
      data-testid="delivery"
      value={delivery}
      onChange={(event) => composer.choose({ delivery: event.target.value as Delivery })}
    >
      {deliveries.map(([value, label]) => (
        <option key={value} value={value}>
          {label}
        </option>
      ))}
    </select>
  );
}

const armedMs = 2000;

/** The first Escape says what a second one does. */
function useStopByEscape(running: string | null) {
  const { composer } = useApp();
  const [armed, setArmed] = useState(false);
  useEffect(() => {
    if (!armed) return;
    const timer = setTimeout(() => setArmed(false), armedMs);
    return () => clearTimeout(timer);
  }, [armed]);
  const press = (): boolean => {
    if (running === null) return false;
    if (armed) void composer.stop(running);
    setArmed(!armed);
    return true;
  };
  return { armed: armed && running !== null, press };
}

/** Up and down go through the session's own prompts, from an empty field. */
function useRecall(field: RefObject<HTMLTextAreaElement | null>) {
  const app = useApp();
  return (key: "ArrowUp" | "ArrowDown"): boolean => {
    const { composer } = app;
    if (!composer.recalling && (key === "ArrowDown" || composer.state.get().text !== "")) return false;
    const element = field.current;
    // Within a text of several lines the keys move the caret first.
    const { selectionStart: at = 0, value = "" } = element ?? {};
    const atEdge = key === "ArrowUp" ? !value.slice(0, at).includes("\n") : !value.slice(at).includes("\n");
    if (!atEdge) return false;
    const { continuing } = app.router.state.get();
    const { id, model } = app.view.state.get();
    if (continuing !== null && continuing !== id) return false;
    const prompts = model.turns
      .flatMap((turn) => turn.items)
      .flatMap((item) => (item.kind === "user" && item.source !== "context" ? [textOfContent(item.content)] : []));
    return composer.recall(prompts, key === "ArrowUp" ? 1 : -1);
  };
}

/** Images that are pasted or dropped, as far as the server takes any. */
function useImages() {
  const app = useApp();
  const { config } = useStore(app.server);
  const [refused, setRefused] = useState<readonly string[]>([]);
  const [dropping, setDropping] = useState(false);
  const limits: ImageLimits | null = config?.images ?? null;
  const add = (files: readonly File[]): void => {
    if (limits === null || files.length === 0) return;
    const have = app.composer.state.get().images.length;
    readImages(files, limits, have).then(
      (read) => {
        app.composer.attach(read.taken);
        setRefused(read.refused);
      },
      (error: unknown) => setRefused([`The image cannot be read: ${String(error)}`]),
    );
  };
  const paste = (event: ClipboardEvent): void => {
    const files = [...event.clipboardData.files];
    if (limits === null || files.length === 0) return;
    event.preventDefault();
    add(files);
  };
  const drop = {
    onDragOver: (event: DragEvent) => {
      if (limits === null || !event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      setDropping(true);
    },
    onDragLeave: () => setDropping(false),
    onDrop: (event: DragEvent) => {
      setDropping(false);
      if (limits === null || event.dataTransfer.files.length === 0) return;
      event.preventDefault();
      add([...event.dataTransfer.files]);
    },
  };
  return { limits, refused, dismiss: () => setRefused([]), dropping, add, paste, drop };
}

function ProviderNote() {
  const { server } = useApp();
  const { config } = useStore(server);
  if (config === null) return <p className="provider-note quiet">Connecting to the server</p>;
  if (config.demonstration) {
    return (
      <p className="provider-note demonstration" data-testid="demonstration">
        <strong>Demonstration:</strong> no model is connected. Answers are fixed, and lines that start with{" "}
        <code>$</code> run in a shell.
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
