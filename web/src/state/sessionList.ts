import { api, type ArchivedFilter } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import type { SessionPage, Summary } from "../api/types";
import { Store } from "./store";

const pageSize = 50;

export interface SessionListState {
  sessions: readonly Summary[];
  cursor: string | null;
  phase: "loading" | "ready" | "error";
  loadingMore: boolean;
  error: HumanError | null;
  query: string;
  archived: ArchivedFilter;
}

/** The list of sessions: newest first, paged by the server's cursor, refreshed at its head. */
export class SessionList {
  readonly state = new Store<SessionListState>({
    sessions: [],
    cursor: null,
    phase: "loading",
    loadingMore: false,
    error: null,
    query: "",
    archived: "false",
  });
  #generation = new AbortController();

  async search(query: string, archived: ArchivedFilter): Promise<void> {
    this.state.patch({ query, archived, phase: "loading", sessions: [], cursor: null });
    await this.load();
  }

  async load(): Promise<void> {
    const signal = this.#restart();
    this.state.patch({ error: null, loadingMore: false });
    try {
      const page = await this.#page(undefined, signal);
      this.state.patch({ sessions: page.sessions, cursor: page.nextCursor, phase: "ready" });
    } catch (error) {
      if (signal.aborted) return;
      this.state.patch({ phase: "error", error: toHuman(error) });
    }
  }

  async loadMore(): Promise<void> {
    const { cursor, loadingMore, phase, error } = this.state.get();
    if (cursor === null || loadingMore || phase !== "ready" || error !== null) return;
    const signal = this.#generation.signal;
    this.state.patch({ loadingMore: true });
    try {
      const page = await this.#page(cursor, signal);
      const known = new Set(this.state.get().sessions.map((session) => session.id));
      const added = page.sessions.filter((session) => !known.has(session.id));
      const sessions = [...this.state.get().sessions, ...added];
      this.state.patch({ sessions, cursor: page.nextCursor, loadingMore: false });
    } catch (error) {
      if (!signal.aborted) this.state.patch({ loadingMore: false, error: toHuman(error) });
    }
  }

  /** Brings the newest page up to date without losing the pages below it or the scroll position. */
  async refresh(): Promise<void> {
    if (this.state.get().phase === "error") return this.load();
    if (this.state.get().phase === "loading" || this.state.get().loadingMore) return;
    const signal = this.#generation.signal;
    try {
      const page = await this.#page(undefined, signal);
      if (!signal.aborted) this.state.patch(mergeHead(this.state.get(), page));
    } catch {
      // A quiet refresh fails quietly; the connection indicator tells about an unreachable server.
    }
  }

  retryMore(): void {
    this.state.patch({ error: null });
    void this.loadMore();
  }

  replace(summary: Summary): void {
    const { sessions, archived } = this.state.get();
    const visible = archived === "all" || summary.archived === (archived === "true");
    this.state.patch({
      sessions: visible
        ? sessions.map((known) => (known.id === summary.id ? summary : known))
        : sessions.filter((known) => known.id !== summary.id),
    });
  }

  remove(id: string): void {
    const { sessions } = this.state.get();
    this.state.patch({ sessions: sessions.filter((session) => session.id !== id) });
  }

  find(id: string | null): Summary | undefined {
    return this.state.get().sessions.find((session) => session.id === id);
  }

  #page(cursor: string | undefined, signal: AbortSignal): Promise<SessionPage> {
    const { query, archived } = this.state.get();
    return api.sessions({ cursor, query, archived, limit: pageSize }, signal);
  }

  #restart(): AbortSignal {
    this.#generation.abort();
    this.#generation = new AbortController();
    return this.#generation.signal;
  }
}

export function mergeHead(
  state: Pick<SessionListState, "sessions" | "cursor">,
  head: SessionPage,
): Pick<SessionListState, "sessions" | "cursor"> {
  const oldest = head.sessions.at(-1)?.updatedAt;
  if (head.nextCursor === null || oldest === undefined || state.sessions.length === 0) {
    return { sessions: head.sessions, cursor: head.nextCursor };
  }
  const fresh = new Set(head.sessions.map((session) => session.id));
  // What should be in the head by its time but is not there any more was deleted or archived.
  const tail = state.sessions.filter(
    (session) => !fresh.has(session.id) && session.updatedAt <= oldest,
  );
  const cursor = tail.length === 0 ? head.nextCursor : state.cursor;
  return { sessions: [...head.sessions, ...tail], cursor };
}
