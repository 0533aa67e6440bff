import { useImperativeHandle, useRef, type Ref } from "react";
import { useApp } from "../state/app";
import { useStore } from "../state/store";
import { CurrentRunCard } from "./CurrentRunCard";
import { Icon } from "./Icon";
import { ListFilters } from "./ListFilters";
import { SearchBox } from "./SearchBox";
import { SelectionBar } from "./SelectionBar";
import { SessionListView, type ListHandle } from "./SessionListView";

export interface RailHandle {
  search: () => void;
  move: (by: 1 | -1) => void;
}

interface SessionRailProps {
  ref: Ref<RailHandle>;
  onOpened: () => void;
}

export function SessionRail({ ref, onOpened }: SessionRailProps) {
  const app = useApp();
  const field = useRef<HTMLInputElement>(null);
  const list = useRef<ListHandle>(null);
  useImperativeHandle(ref, () => ({
    // The column may have been hidden until this very key press.
    search: () => requestAnimationFrame(() => field.current?.select()),
    move: (by) => list.current?.move(by),
  }));
  return (
    <section className="rail" aria-label="Sessions">
      <Brand />
      <CurrentRunCard onOpened={onOpened} />
      <div className="rail-tools">
        <button
          type="button"
          className="button new-session"
          data-testid="new-session"
          aria-keyshortcuts="n"
          onClick={() => {
            app.newSession();
            onOpened();
            requestAnimationFrame(() => document.getElementById("composer-text")?.focus());
          }}
        >
          <Icon name="plus" />
          New session
        </button>
        <SearchBox field={field} onDown={() => list.current?.enter()} />
        <ListFilters />
      </div>
      <SelectionBar />
      <SessionListView ref={list} onOpened={onOpened} />
    </section>
  );
}

const nextTheme = { auto: "light", light: "dark", dark: "auto" } as const;
const themeIcon = { auto: "auto", light: "sun", dark: "moon" } as const;

function Brand() {
  const app = useApp();
  const { config } = useStore(app.server);
  const { theme } = useStore(app.settings.state);
  return (
    <div className="brand">
      <svg viewBox="0 0 32 32" aria-hidden="true" className="logo">
        <rect width="32" height="32" rx="8" />
        <path d="M7 11h12a4.5 4.5 0 0 1 0 9h-6" />
        <circle cx="9" cy="20" r="2.4" />
      </svg>
      <span className="brand-name">Threadline</span>
      {config !== null && <span className="version">{config.version}</span>}
      <span className="brand-actions">
        <TrayButton />
        <button
          type="button"
          className="icon-button"
          data-testid="theme"
          aria-label={`Theme: ${theme}. Change`}
          title={`Theme: ${theme}`}
          onClick={() => app.settings.choose({ theme: nextTheme[theme] })}
        >
          <Icon name={themeIcon[theme]} />
        </button>
        <button
          type="button"
          className="icon-button"
          data-testid="open-settings"
          aria-label="Settings"
          title="Settings"
          onClick={() => app.show("settings")}
        >
          <Icon name="gear" />
        </button>
      </span>
    </div>
  );
}

/** How many questions wait, of all sessions. */
export function TrayButton() {
  const app = useApp();
  const { questions } = useStore(app.approvals.state);
  const waiting = questions.length;
  const label = waiting === 0 ? "Nothing waits for approval" : `${waiting} waiting for approval`;
  return (
    <button
      type="button"
      className="icon-button tray-button"
      data-testid="open-tray"
      data-waiting={waiting}
      aria-label={label}
      aria-keyshortcuts="a"
      title={label}
      onClick={() => app.show("approvals")}
    >
      <Icon name="bell" />
      {waiting > 0 && (
        <span className="badge" aria-hidden="true">
          {waiting > 99 ? "99+" : waiting}
        </span>
      )}
    </button>
  );
}
