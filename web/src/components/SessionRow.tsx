import { useState } from "react";
import { toHuman } from "../api/problem";
import type { Summary } from "../api/types";
import { dateTime, plural, relativeTime, sessionTitle, shortId, withoutFolder } from "../model/format";
import { useApp } from "../state/app";
import { Status } from "./Feedback";
import { Icon } from "./Icon";

interface SessionRowProps {
  session: Summary;
  top: number;
  height: number;
  now: number;
  selected: boolean;
  continuing: boolean;
  focusable: boolean;
  onOpen: () => void;
}

export function SessionRow(props: SessionRowProps) {
  const { session, selected, onOpen } = props;
  const app = useApp();
  const [editing, setEditing] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const title = sessionTitle(session);

  const update = async (change: { title?: string | null; archived?: boolean }): Promise<void> => {
    setProblem(null);
    try {
      await app.update(session, change);
    } catch (error) {
      const human = toHuman(error);
      setProblem(
        human.code === "conflict"
          ? "Changed elsewhere in the meantime. The latest version is shown; try again."
          : human.message,
      );
    }
  };

  return (
    <div
      role="listitem"
      className="session-row"
      data-testid="session-row"
      data-session-id={session.id}
      data-status={session.status}
      data-selected={selected}
      style={{ height: props.height, transform: `translateY(${props.top}px)` }}
    >
      {editing ? (
        <RenameField
          initial={session.title ?? title}
          onDone={(value) => {
            setEditing(false);
            if (value !== null && value !== (session.title ?? title)) void update({ title: value || null });
          }}
        />
      ) : (
        <button
          type="button"
          className="row-main"
          aria-current={selected ? "true" : undefined}
          tabIndex={props.focusable ? 0 : -1}
          onClick={onOpen}
          onDoubleClick={() => setEditing(true)}
        >
          <span className="row-title" title={title}>
            {title}
          </span>
          <RowFacts {...props} />
          <RowReason session={session} problem={problem} />
        </button>
      )}
      {!editing && (
        <RowActions session={session} title={title} onRename={() => setEditing(true)} onUpdate={update} />
      )}
    </div>
  );
}

function RowFacts({ session, continuing, now }: SessionRowProps) {
  return (
    <span className="row-facts">
      <Status status={session.status} />
      <span title={dateTime(session.updatedAt)}>{relativeTime(session.updatedAt, now)}</span>
      {continuing ? <span className="row-mark">continuing</span> : <span>{plural(session.turns, "turn")}</span>}
    </span>
  );
}

function RowReason({ session, problem }: { session: Summary; problem: string | null }) {
  if (problem !== null) {
    return (
      <span className="row-reason" role="alert">
        {problem}
      </span>
    );
  }
  if (session.error !== null) {
    return (
      <span className="row-reason" title={session.error.message}>
        {withoutFolder(session.error.message, session.error.file)}
      </span>
    );
  }
  return (
    <span className="row-id">
      <code title={session.id}>{shortId(session.id)}</code>
      {session.archived && <span>archived</span>}
      {session.parent !== null && <span title={`Fork of ${session.parent.id}`}>fork</span>}
      <span className="row-cwd" title={session.cwd}>
        {session.cwd}
      </span>
    </span>
  );
}

interface RowActionsProps {
  session: Summary;
  title: string;
  onRename: () => void;
  onUpdate: (change: { archived: boolean }) => Promise<void>;
}

function RowActions({ session, title, onRename, onUpdate }: RowActionsProps) {
  const app = useApp();
  const verb = session.archived ? "Restore" : "Archive";
  return (
    <span className="row-actions">
      <button type="button" className="icon-button" data-testid="rename" aria-label={`Rename ${title}`} title="Rename" onClick={onRename}>
        <Icon name="edit" />
      </button>
      <button
        type="button"
        className="icon-button"
        data-testid="archive"
        aria-label={`${verb} ${title}`}
        title={verb}
        onClick={() => void onUpdate({ archived: !session.archived })}
      >
        <Icon name={session.archived ? "restore" : "archive"} />
      </button>
      <button
        type="button"
        className="icon-button"
        data-testid="delete"
        aria-label={`Delete ${title}`}
        title="Delete"
        onClick={() => app.requestDeletion(session.id, title)}
      >
        <Icon name="trash" />
      </button>
    </span>
  );
}

interface RenameFieldProps {
  initial: string;
  /** The new title, empty to go back to the first prompt, or null when it was cancelled. */
  onDone: (title: string | null) => void;
}

function RenameField({ initial, onDone }: RenameFieldProps) {
  const [value, setValue] = useState(initial);
  return (
    <form
      className="rename"
      onSubmit={(event) => {
        event.preventDefault();
        onDone(value.trim());
      }}
    >
      <input
        className="field"
        data-testid="rename-field"
        aria-label="Session title"
        autoFocus
        maxLength={200}
        value={value}
        onFocus={(event) => event.target.select()}
        onChange={(event) => setValue(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          event.stopPropagation();
          onDone(null);
        }}
        onBlur={() => onDone(null)}
      />
    </form>
  );
}
