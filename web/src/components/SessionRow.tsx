import { memo, useRef, useState, type CSSProperties, type KeyboardEvent, type MouseEvent } from "react";
import { toHuman } from "../api/problem";
import type { Summary } from "../api/types";
import { dateTime, plural, relativeTime, sessionTitle, shortId, withoutFolder } from "../model/format";
import { matchOf, type Match } from "../model/match";
import { useApp } from "../state/app";
import { Status } from "./Feedback";
import { Highlight } from "./Highlight";
import { Icon, type IconName } from "./Icon";

interface SessionRowProps {
  session: Summary;
  top: number;
  height: number;
  /** Its place in the list. */
  at: number;
  now: number;
  /** What is searched for. */
  words: readonly string[];
  selected: boolean;
  continuing: boolean;
  picked: boolean;
  /** Rows are being picked, so each shows its box. */
  picking: boolean;
  focusable: boolean;
  /** How far it stands below a root. */
  depth: number;
  /** Whether sessions stand below it, in a list of trees. */
  branch: "none" | "leaf" | "closed" | "open";
  onOpen: () => void;
}

type Change = { title?: string | null; archived?: boolean; pinned?: boolean };

export const SessionRow = memo(
  function SessionRow(props: SessionRowProps) {
    const { session, selected, picked, onOpen } = props;
    const app = useApp();
    const [editing, setEditing] = useState(false);
    const [problem, setProblem] = useState<string | null>(null);
    const main = useRef<HTMLButtonElement>(null);
    const title = sessionTitle(session);
    const match = matchOf(session, props.words);

    const update = async (change: Change): Promise<void> => {
      setProblem(null);
      try {
        await app.update(session, change);
      } catch (error) {
        setProblem(whyNot(error));
      }
    };
    const onClick = (event: MouseEvent): void => {
      if (event.ctrlKey || event.metaKey) app.selection.toggle(session.id);
      else onOpen();
    };
    const onKeyDown = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const keys: Record<string, () => void> = {
        F2: () => setEditing(true),
        Delete: () => app.requestDeletion([session.id], title),
        x: () => app.selection.toggle(session.id),
        p: () => void update({ pinned: !session.pinned }),
        e: () => void update({ archived: !session.archived }),
      };
      const deed = keys[event.key];
      if (deed === undefined) return;
      event.preventDefault();
      deed();
    };

    return (
      <div
        role="listitem"
        className="session-row"
        data-testid="session-row"
        data-at={props.at}
        data-session-id={session.id}
        data-status={session.status}
        data-selected={selected}
        data-picking={props.picking}
        {...(props.branch === "none" ? {} : { "aria-level": props.depth + 1, "data-branch": props.branch })}
        style={{ height: props.height, transform: `translateY(${props.top}px)`, ...indentOf(props.depth) }}
      >
        {props.branch !== "none" && (
          <BranchMark session={session} branch={props.branch} title={title} onToggle={() => app.tree.toggle(session.id)} />
        )}
        {props.picking && (
          <input
            type="checkbox"
            className="row-pick"
            aria-label={`Pick ${title}`}
            checked={picked}
            onChange={() => app.selection.toggle(session.id)}
          />
        )}
        {editing ? (
          <RenameField
            initial={session.title ?? title}
            onDone={(value, by) => {
              setEditing(false);
              if (by === "key") requestAnimationFrame(() => main.current?.focus());
              if (value !== null && value !== (session.title ?? title)) void update({ title: value || null });
            }}
          />
        ) : (
          <button
            ref={main}
            type="button"
            className="row-main"
            aria-current={selected ? "true" : undefined}
            tabIndex={props.focusable ? 0 : -1}
            onClick={onClick}
            onKeyDown={onKeyDown}
            onDoubleClick={() => setEditing(true)}
          >
            <RowTitle session={session} match={match} title={title} />
            <RowFacts {...props} />
            <RowReason session={session} problem={problem} match={match} />
          </button>
        )}
        {!editing && (
          <RowActions session={session} title={title} onRename={() => setEditing(true)} onUpdate={update} />
        )}
      </div>
    );
  },
  // The handler changes with every render and always does the same.
  (before, after) =>
    (Object.keys(after) as (keyof SessionRowProps)[]).every(
      (key) => key === "onOpen" || sameProp(before[key], after[key]),
    ),
);

/** Deeper rows than this stand below each other, so that their words stay readable. */
const deepest = 8;

/** What the style of a row needs to stand below another. */
export function indentOf(depth: number): CSSProperties {
  return { ["--depth" as string]: Math.min(depth, deepest) };
}

interface BranchMarkProps {
  session: Summary;
  branch: "leaf" | "closed" | "open";
  title: string;
  onToggle: () => void;
}

function BranchMark({ session, branch, title, onToggle }: BranchMarkProps) {
  if (branch === "leaf") return <span className="row-branch" />;
  const below = plural(session.children ?? 0, "session");
  return (
    <button
      type="button"
      className="row-branch"
      tabIndex={-1}
      aria-expanded={branch === "open"}
      aria-label={`${below} below ${title}`}
      title={`${below} below`}
      onClick={onToggle}
    >
      <Icon name="chevron" />
    </button>
  );
}

function sameProp(before: unknown, after: unknown): boolean {
  if (Array.isArray(before) && Array.isArray(after)) return before.join(" ") === after.join(" ");
  return Object.is(before, after);
}

function whyNot(error: unknown): string {
  const human = toHuman(error);
  return human.code === "conflict"
    ? "Changed elsewhere in the meantime. The latest version is shown; try again."
    : human.message;
}

function RowTitle({ session, match, title }: { session: Summary; match: Match; title: string }) {
  return (
    <span className="row-title" title={title}>
      {session.pinned && (
        <span className="row-pin">
          <Icon name="pin" />
          <span className="visually-hidden">Pinned: </span>
        </span>
      )}
      {session.parent !== null && (
        <span className="row-lineage" title={`Fork of ${session.parent.id}`}>
          <Icon name="fork" />
        </span>
      )}
      <span className="row-name">
        <Highlight pieces={match.title} />
      </span>
    </span>
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

function RowReason({ session, problem, match }: { session: Summary; problem: string | null; match: Match }) {
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
  if (match.where !== null) {
    return (
      <span className="row-id row-found">
        <span>{match.where.label}</span>
        <span className="row-cwd">
          <Highlight pieces={match.where.pieces} />
        </span>
      </span>
    );
  }
  return (
    <span className="row-id">
      <code title={session.id}>{shortId(session.id)}</code>
      {session.archived && <span>archived</span>}
      {session.parent !== null && <span title={session.parent.id}>fork of {shortId(session.parent.id)}</span>}
      {session.tags.slice(0, 3).map((tag) => (
        <span key={tag} className="row-tag">
          {tag}
        </span>
      ))}
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
  onUpdate: (change: Change) => Promise<void>;
}

function RowActions({ session, title, onRename, onUpdate }: RowActionsProps) {
  const app = useApp();
  const pin = session.pinned ? "Unpin" : "Pin";
  const archive = session.archived ? "Restore" : "Archive";
  const actions: readonly (readonly [string, string, IconName, () => void])[] = [
    ["rename", "Rename", "edit", onRename],
    ["pin", pin, "pin", () => void onUpdate({ pinned: !session.pinned })],
    [
      "archive",
      archive,
      session.archived ? "restore" : "archive",
      () => void onUpdate({ archived: !session.archived }),
    ],
    ["delete", "Delete", "trash", () => app.requestDeletion([session.id], title)],
  ];
  return (
    <span className="row-actions">
      {actions.map(([id, verb, icon, deed]) => (
        <button
          key={id}
          type="button"
          className="icon-button"
          data-testid={id}
          aria-label={`${verb} ${title}`}
          title={verb}
          onClick={deed}
        >
          <Icon name={icon} />
        </button>
      ))}
    </span>
  );
}

interface RenameFieldProps {
  initial: string;
  /** The new title, empty to go back to the first prompt, or null when it was cancelled. */
  onDone: (title: string | null, by: "key" | "leaving") => void;
}

function RenameField({ initial, onDone }: RenameFieldProps) {
  const [value, setValue] = useState(initial);
  return (
    <form
      className="rename"
      onSubmit={(event) => {
        event.preventDefault();
        onDone(value.trim(), "key");
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
          onDone(null, "key");
        }}
        onBlur={() => onDone(null, "leaving")}
      />
    </form>
  );
}
