import { useEffect, useImperativeHandle, useRef, useState, type Ref } from "react";
import type { ArchivedFilter } from "../api/client";
import { useTheme } from "../hooks/useTheme";
import { useApp } from "../state/app";
import { useStore } from "../state/store";
import { CurrentRunCard } from "./CurrentRunCard";
import { Icon } from "./Icon";
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
          onClick={() => {
            app.newSession();
            onOpened();
            requestAnimationFrame(() => document.getElementById("composer-text")?.focus());
          }}
        >
          <Icon name="plus" />
          New session
        </button>
        <SearchBox field={field} onDown={() => list.current?.move(1)} />
      </div>
      <SessionListView ref={list} onOpened={onOpened} />
    </section>
  );
}

function Brand() {
  const { server } = useApp();
  const { config } = useStore(server);
  const [theme, nextTheme] = useTheme();
  const icon = theme === "auto" ? "auto" : theme === "light" ? "sun" : "moon";
  return (
    <div className="brand">
      <svg viewBox="0 0 32 32" aria-hidden="true" className="logo">
        <rect width="32" height="32" rx="8" />
        <path d="M7 11h12a4.5 4.5 0 0 1 0 9h-6" />
        <circle cx="9" cy="20" r="2.4" />
      </svg>
      <span className="brand-name">Threadline</span>
      {config !== null && <span className="version">{config.version}</span>}
      <button
        type="button"
        className="icon-button"
        data-testid="theme"
        aria-label={`Theme: ${theme}. Change`}
        title={`Theme: ${theme}`}
        onClick={nextTheme}
      >
        <Icon name={icon} />
      </button>
    </div>
  );
}

interface SearchBoxProps {
  field: Ref<HTMLInputElement>;
  onDown: () => void;
}

function SearchBox({ field, onDown }: SearchBoxProps) {
  const { list } = useApp();
  const [text, setText] = useState("");
  const [archived, setArchived] = useState<ArchivedFilter>("false");
  const first = useRef(true);
  useEffect(() => {
    if (first.current) {
      first.current = false;
      return;
    }
    const timer = setTimeout(() => void list.search(text.trim(), archived), 180);
    return () => clearTimeout(timer);
  }, [text, archived, list]);
  return (
    <div className="search" role="search">
      <Icon name="search" />
      <input
        ref={field}
        type="search"
        data-testid="search"
        placeholder="Search sessions"
        aria-label="Search sessions"
        aria-keyshortcuts="/"
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== "ArrowDown") return;
          event.preventDefault();
          onDown();
        }}
      />
      <select
        aria-label="Which sessions to list"
        value={archived}
        onChange={(event) => setArchived(event.target.value as ArchivedFilter)}
      >
        <option value="false">Active</option>
        <option value="true">Archived</option>
        <option value="all">All</option>
      </select>
    </div>
  );
}
