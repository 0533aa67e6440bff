import { useState } from "react";
import type { Delivery, WaitingMessage } from "../api/acting";
import { plural } from "../model/format";
import { useApp } from "../state/app";
import { useStore } from "../state/store";
import { deliveries } from "./ComposerView";
import { ErrorBanner } from "./Feedback";
import { Icon } from "./Icon";

/** The messages that wait for the session on the screen. Each may be changed until it is taken. */
export function QueueList() {
  const { queue, view } = useApp();
  const { messages, error } = useStore(queue.state);
  const { phase, model } = useStore(view.state);
  if (phase !== "ready" || (messages.length === 0 && error === null)) return null;
  return (
    <section className="queue" aria-label="Queue" data-testid="queue">
      {messages.length > 0 && (
        <header>
          <h3>
            {plural(messages.length, "message")} {messages.length === 1 ? "waits" : "wait"}
          </h3>
          {!model.running && (
            <button
              type="button"
              className="button small"
              data-testid="deliver"
              title="The session is not at work: begin with what waits"
              onClick={() => void queue.deliver()}
            >
              Deliver now
            </button>
          )}
        </header>
      )}
      <ol>
        {messages.map((message) => (
          <Waiting key={message.messageId} message={message} />
        ))}
      </ol>
      {error !== null && <ErrorBanner error={error} onDismiss={() => queue.dismissError()} />}
    </section>
  );
}

function Waiting({ message }: { message: WaitingMessage }) {
  const { queue } = useApp();
  const [editing, setEditing] = useState(false);
  const images = message.images?.length ?? 0;
  if (editing) return <Edit message={message} onDone={() => setEditing(false)} />;
  return (
    <li data-testid="queued" data-message-id={message.messageId}>
      <p className="queue-text">
        {message.text}
        {images > 0 && <span className="quiet"> {plural(images, "image")}</span>}
      </p>
      <select
        className="policy"
        aria-label="When it is delivered"
        value={message.delivery}
        onChange={(event) => void queue.deliverAt(message, event.target.value as Delivery)}
      >
        {deliveries.map(([value, label]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
      <button
        type="button"
        className="icon-button"
        data-testid="queue-edit"
        aria-label="Edit this message"
        title="Edit"
        onClick={() => setEditing(true)}
      >
        <Icon name="edit" />
      </button>
      <button
        type="button"
        className="icon-button"
        data-testid="queue-drop"
        aria-label="Withdraw this message"
        title="Withdraw"
        onClick={() => void queue.drop(message)}
      >
        <Icon name="trash" />
      </button>
    </li>
  );
}

function Edit({ message, onDone }: { message: WaitingMessage; onDone: () => void }) {
  const { queue } = useApp();
  const [text, setText] = useState(message.text);
  const save = async (): Promise<void> => {
    if (text.trim() === "" || text === message.text || (await queue.edit(message, text))) onDone();
  };
  return (
    <li>
      <form
        className="queue-edit"
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <textarea
          className="field"
          aria-label="Message"
          data-testid="queue-field"
          autoFocus
          rows={2}
          value={text}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "Escape") {
              event.stopPropagation();
              event.preventDefault();
              onDone();
            }
            if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
            event.preventDefault();
            void save();
          }}
        />
        <button type="submit" className="button small primary">
          Save
        </button>
        <button type="button" className="button small" onClick={onDone}>
          Cancel
        </button>
      </form>
    </li>
  );
}
