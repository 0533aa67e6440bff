import { useEffect, useId, useRef, useState, type KeyboardEvent } from "react";
import { api } from "../api/client";
import type { Summary } from "../api/types";
import { sessionTitle, shortId } from "../model/format";
import { pieces, wordsOf } from "../model/match";
import { useApp, type App } from "../state/app";
import { Dialog } from "./Dialog";
import { Status } from "./Feedback";
import { Highlight } from "./Highlight";
import { Icon, type IconName } from "./Icon";

interface Command {
  name: string;
  icon: IconName;
  keys?: string;
  run: () => void;
}

const shownSessions = 12;
const waitMs = 120;

/** Finds a session or a command by a few letters. */
export default function Palette({ onClose }: { onClose: () => void }) {
  const app = useApp();
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const list = useId();
  const { found, searching, failed } = useFound(text);
  const words = wordsOf(text);
  // What an earlier search has found must not be picked by the keys of this one.
  const sessions = found.filter((session) => words.every((word) => textOf(session).includes(word)));
  const commands = commandsOf(app).filter(({ name }) =>
    words.every((word) => name.toLowerCase().includes(word)),
  );
  const count = sessions.length + commands.length;
  const active = Math.min(at, Math.max(0, count - 1));

  const pick = (index: number): void => {
    const session = sessions[index];
    const command = commands[index - sessions.length];
    onClose();
    if (session !== undefined) app.router.view(session.id);
    else command?.run();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
    const step = steps[event.key];
    if (step !== undefined && count > 0) {
      event.preventDefault();
      const next = active + step;
      setAt(Math.abs(step) === 1 ? (next + count) % count : Math.min(Math.max(next, 0), count - 1));
    } else if (event.key === "Enter" && !event.nativeEvent.isComposing) {
      event.preventDefault();
      if (count > 0) pick(active);
    }
  };
  const option = (index: number) => ({
    id: `${list}-${index}`,
    role: "option" as const,
    "aria-selected": index === active,
    "data-testid": "palette-option",
    onMouseMove: () => setAt(index),
    onClick: () => pick(index),
    ref: (element: HTMLElement | null) => {
      if (index === active) element?.scrollIntoView({ block: "nearest" });
    },
  });

  return (
    <Dialog title="Find a session or a command" onClose={onClose} kind="bare" testId="palette">
      <div className="palette-field">
        <Icon name="search" />
        <input
          data-first
          role="combobox"
          aria-expanded="true"
          aria-controls={list}
          aria-activedescendant={count > 0 ? `${list}-${active}` : undefined}
          aria-label="Find a session or a command"
          placeholder="Find a session or a command"
          data-testid="palette-field"
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setAt(0);
          }}
          onKeyDown={onKeyDown}
        />
        <kbd>Esc</kbd>
      </div>
      <div className="palette-list" role="listbox" id={list} aria-label="Sessions and commands">
        {sessions.map((session, index) => (
          <div key={session.id} className="palette-option" {...option(index)}>
            <Icon name="chat" />
            <span className="palette-name">
              <Highlight pieces={pieces(sessionTitle(session), words)} />
            </span>
            <Status status={session.status} />
            <code>{shortId(session.id)}</code>
          </div>
        ))}
        {commands.map((command, index) => (
          <div key={command.name} className="palette-option" {...option(sessions.length + index)}>
            <Icon name={command.icon} />
            <span className="palette-name">
              <Highlight pieces={pieces(command.name, words)} />
            </span>
            {command.keys !== undefined && <kbd>{command.keys}</kbd>}
          </div>
        ))}
      </div>
      {count === 0 && (
        <p className="list-empty" role="status">
          {searching ? "Searching." : failed ? "The server does not answer." : "Nothing is called that."}
        </p>
      )}
    </Dialog>
  );
}

function textOf({ title, firstPrompt, id, tags }: Summary): string {
  return [title, firstPrompt, id, ...tags].join("\n").toLowerCase();
}

function useFound(text: string) {
  const [found, setFound] = useState<readonly Summary[]>([]);
  const [state, setState] = useState<"searching" | "done" | "failed">("searching");
  const first = useRef(true);
  useEffect(() => {
    const abort = new AbortController();
    setState("searching");
    const ask = (): void => {
      const query = { query: text.trim(), archived: text.trim() === "" ? "false" : "all" } as const;
      api.sessions(query, { limit: shownSessions }, abort.signal).then(
        (page) => {
          setFound(page.sessions);
          setState("done");
        },
        () => {
          if (!abort.signal.aborted) setState("failed");
        },
      );
    };
    const timer = setTimeout(ask, first.current ? 0 : waitMs);
    first.current = false;
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);
  return { found, searching: state === "searching", failed: state === "failed" };
}

function commandsOf(app: App): Command[] {
  const view = app.view.state.get();
  const { id } = view;
  const focusComposer = (): void => document.getElementById("composer-text")?.focus();
  const commands: Command[] = [
    { name: "New session", icon: "plus", keys: "N", run: () => (app.newSession(), focusComposer()) },
  ];
  if (id !== null && view.phase === "ready") {
    if (view.damage === null) {
      commands.push({
        name: "Continue this session",
        icon: "send",
        run: () => (app.continueSession(id), focusComposer()),
      });
    }
    if (view.model.running) {
      commands.push({ name: "Stop the run", icon: "stop", run: () => void app.composer.stop(id) });
    }
    commands.push({
      name: "Compare with a fork",
      icon: "panel",
      run: () => app.show({ compare: [id, view.summary?.parent?.id ?? null] }),
    });
  }
  return [
    ...commands,
    { name: "Waiting for approval", icon: "bell", keys: "A", run: () => app.show("approvals") },
    { name: "Settings", icon: "gear", run: () => app.show("settings") },
    { name: "Keyboard help", icon: "help", keys: "?", run: () => app.show("help") },
    { name: "Theme: light", icon: "sun", run: () => app.settings.choose({ theme: "light" }) },
    { name: "Theme: dark", icon: "moon", run: () => app.settings.choose({ theme: "dark" }) },
    { name: "Theme: as the system", icon: "auto", run: () => app.settings.choose({ theme: "auto" }) },
  ];
}
