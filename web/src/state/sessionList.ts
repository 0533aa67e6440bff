import type { CountedPage, ListQuery } from "../api/acting";
import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import type { Summary } from "../api/types";
import { Store } from "./store";

export const listPageSize = 100;
/** Pages kept in memory; what is farther from the reader is fetched again when it comes in sight. */
const keptPages = 30;
/** More pinned sessions than this are found in the rest of the list's order only by searching. */
const maxPinned = 200;

export const everything: ListQuery = { query: "", archived: "false", status: "", cwd: "", model: "", tree: "" };

/** Whether a list is shown as trees: what waits or runs is a matter of each session alone. */
export function isTree(query: ListQuery): boolean {
  return query.tree === "1" && query.status === "";
}

export interface SessionListState {
  query: ListQuery;
  phase: "loading" | "ready" | "error";
  error: HumanError | null;
  /** Pinned sessions; the places of the list begin with them. */
  pinned: readonly Summary[];
  /** Rows that the list shows on all its pages, pinned ones included; of trees, their roots. */
  total: number;
  /** Sessions that it shows, those in closed trees included. */
  shown: number;
  /** Sessions that are stored. */
  all: number;
  /** The server is still making the list. */
  rebuilding: boolean;
  /** A search whose answer is not there yet. */
  searching: boolean;
  /** Changes with every loaded row. */
  version: number;
}

export type FetchSessions = typeof api.sessions;

/**
 * The list of sessions, pinned ones first, then the newest. Only the pages around what is in sight
 * are held; any other place is fetched when it is scrolled to.
 */
export class SessionList {
  readonly state = new Store<SessionListState>({
    query: everything,
    phase: "loading",
    error: null,
    pinned: [],
    total: 0,
    shown: 0,
    all: 0,
    rebuilding: false,
    searching: false,
    version: 0,
  });
  /** A session that was seen running does not run any more. */
  onSettled: (summary: Summary) => void = () => {};
  /** Rows have changed; with `anew`, the list was asked for something else. */
  onChanged: (anew: boolean) => void = () => {};
  /** Something may have changed in what the list does not hold. */
  onRefreshed: () => void = () => {};
  readonly #fetch: FetchSessions;
  readonly #pages = new Map<number, readonly Summary[]>();
  readonly #loading = new Map<number, AbortController>();
  #generation = new AbortController();
  #range: [number, number] = [0, 0];
  #refreshing = false;
  #again = false;

  constructor(fetch: FetchSessions = api.sessions) {
    this.#fetch = fetch;
  }

  /** The session at a place; nothing when it is not loaded. */
  row(place: number): Summary | undefined {
    const { pinned } = this.state.get();
    if (place < pinned.length) return pinned[place];
    const at = place - pinned.length;
    return this.#pages.get(Math.floor(at / listPageSize))?.[at % listPageSize];
  }

  find(id: string | null): Summary | undefined {
    return id === null ? undefined : this.loaded().find((session) => session.id === id);
  }

  /** The place of a loaded session; -1 for one that is not. */
  placeOf(id: string | null): number {
    if (id === null) return -1;
    const { pinned } = this.state.get();
    const first = pinned.findIndex((session) => session.id === id);
    if (first >= 0) return first;
    for (const [page, rows] of this.#pages) {
      const at = rows.findIndex((session) => session.id === id);
      if (at >= 0) return pinned.length + page * listPageSize + at;
    }
    return -1;
  }

  loaded(): readonly Summary[] {
    return [...this.state.get().pinned, ...[...this.#pages.values()].flat()];
  }

  /** What the server is asked for. */
  asked(): ListQuery {
    const { query } = this.state.get();
    return isTree(query) ? query : { ...query, tree: "" };
  }

  async search(change: Partial<ListQuery>): Promise<void> {
    this.state.patch({ query: { ...this.state.get().query, ...change }, searching: true });
    await this.load();
  }

  /** Begins anew. What was shown stays until the answer is there. */
  async load(): Promise<void> {
    this.#generation.abort();
    const generation = new AbortController();
    this.#generation = generation;
    this.#range = [0, 0];
    try {
      const found = await this.#top([0], generation.signal);
      if (generation.signal.aborted) return;
      this.#pages.clear();
      this.onChanged(true);
      this.#accept(found);
    } catch (error) {
      if (generation.signal.aborted) return;
      this.state.patch({ phase: "error", searching: false, error: toHuman(error) });
    }
  }

  /** Loads what a range of places lacks, and gives up what was asked for outside of it. */
  ensure(from: number, to: number): void {
    const { pinned, total } = this.state.get();
    this.#range = [from, to];
    const rest = total - pinned.length;
    const first = Math.max(0, Math.floor((from - pinned.length) / listPageSize));
    const last = Math.floor((Math.min(to, total - 1) - pinned.length) / listPageSize);
    for (const [page, request] of this.#loading) {
      if (page < first || page > last) request.abort();
    }
    for (let page = first; page <= last && page * listPageSize < rest; page++) {
      if (!this.#pages.has(page) && !this.#loading.has(page)) void this.#loadPage(page);
    }
  }

  /** Brings what is in sight up to date. Several wishes at once become one more refresh. */
  async refresh(): Promise<void> {
    const { phase } = this.state.get();
    if (phase === "error") return this.load();
    if (phase === "loading") return;
    if (this.#refreshing) {
      this.#again = true;
      return;
    }
    this.#refreshing = true;
    const { signal } = this.#generation;
    try {
      const found = await this.#top(this.#pagesInSight(), signal);
      if (!signal.aborted) this.#refreshed(found);
    } catch {
      // A quiet refresh fails quietly: that the server is out of reach is told elsewhere.
    }
    this.#refreshing = false;
    if (this.#again) {
      this.#again = false;
      void this.refresh();
    }
  }

  retry(): void {
    this.state.patch({ error: null });
    if (this.state.get().phase === "error") void this.load();
    else this.ensure(...this.#range);
  }

  /** Shows a session as it is now. One that belongs elsewhere by now is found by the refresh. */
  replace(summary: Summary): void {
    const { pinned, query } = this.state.get();
    const shown = query.archived === "all" || summary.archived === (query.archived === "true");
    const known = this.find(summary.id);
    if (known === undefined || !shown || known.pinned !== summary.pinned) {
      if (known !== undefined && !shown) this.remove(summary.id);
      void this.refresh();
      return;
    }
    const put = (list: readonly Summary[]): readonly Summary[] =>
      // How many are below it, only lists say.
      list.map((session) =>
        session.id === summary.id ? { ...summary, ...childrenOf(session) } : session,
      );
    for (const [page, rows] of this.#pages) this.#pages.set(page, put(rows));
    this.#changed({ pinned: put(pinned) });
  }

  remove(id: string): void {
    const place = this.placeOf(id);
    if (place < 0) {
      if (isTree(this.state.get().query)) void this.refresh();
      return;
    }
    const { pinned, total, shown, all } = this.state.get();
    const without = (list: readonly Summary[]): readonly Summary[] =>
      list.filter((session) => session.id !== id);
    const page = Math.floor((place - pinned.length) / listPageSize);
    if (place >= pinned.length) {
      this.#pages.set(page, without(this.#pages.get(page) ?? []));
      // Everything behind it has moved up by one.
      for (const known of this.#pages.keys()) if (known > page) this.#pages.delete(known);
    }
    this.#changed({ pinned: without(pinned), total: total - 1, shown: Math.max(0, shown - 1), all: Math.max(0, all - 1) });
    void this.refresh();
  }

  #pagesInSight(): number[] {
    const [from, to] = this.#range;
    const { pinned } = this.state.get();
    const first = Math.max(0, Math.floor((from - pinned.length) / listPageSize));
    const last = Math.max(first, Math.floor((to - pinned.length) / listPageSize));
    return Array.from({ length: Math.min(last - first + 1, 3) }, (_, at) => first + at);
  }

  async #top(pages: readonly number[], signal: AbortSignal): Promise<Found> {
    const query = this.asked();
    const pins = (): Promise<CountedPage> => this.#fetch(query, { limit: maxPinned, pinned: true }, signal);
    const [pinned, ...rest] = await Promise.all([
      // A pinned fork stands below what it came from like any other.
      isTree(query) ? Promise.resolve(noPins) : pins(),
      ...pages.map((page, at) => this.#fetch(query, placeOfPage(query, page, at === 0), signal)),
    ]);
    return { pinned, pages: rest.map((page, at) => [pages[at] ?? 0, page] as const) };
  }

  async #loadPage(page: number): Promise<void> {
    if (this.state.get().error !== null) return;
    const request = new AbortController();
    const { signal: generation } = this.#generation;
    const stop = (): void => request.abort();
    generation.addEventListener("abort", stop);
    this.#loading.set(page, request);
    try {
      const query = this.asked();
      const found = await this.#fetch(query, placeOfPage(query, page, false), request.signal);
      if (request.signal.aborted) return;
      this.#put(page, found.sessions);
      this.#changed({});
    } catch (error) {
      if (!request.signal.aborted) this.state.patch({ error: toHuman(error) });
    } finally {
      generation.removeEventListener("abort", stop);
      if (this.#loading.get(page) === request) this.#loading.delete(page);
    }
  }

  #refreshed(found: Found): void {
    const before = new Map(this.loaded().map((session) => [session.id, session]));
    const fresh = new Set(found.pages.map(([page]) => page));
    // What lies elsewhere may have moved; it is fetched again when it is looked at.
    for (const page of this.#pages.keys()) if (!fresh.has(page)) this.#pages.delete(page);
    this.#accept(found);
    this.onRefreshed();
    for (const session of this.loaded()) {
      const known = before.get(session.id);
      if (known !== undefined && isActive(known) && !isActive(session)) this.onSettled(session);
    }
  }

  #accept({ pinned, pages }: Found): void {
    for (const [page, found] of pages) this.#put(page, found.sessions);
    const first = pages[0]?.[1];
    const rows = first?.counts?.shown ?? first?.sessions.length ?? 0;
    const shown = (first?.counts?.inTrees ?? rows) + pinned.sessions.length;
    this.#changed({
      phase: "ready",
      error: null,
      searching: false,
      pinned: pinned.sessions,
      total: rows + pinned.sessions.length,
      shown,
      all: first?.counts?.all ?? shown,
      rebuilding: first?.rebuilding === true,
    });
  }

  #put(page: number, sessions: readonly Summary[]): void {
    this.#pages.delete(page);
    this.#pages.set(page, sessions);
    for (const old of this.#pages.keys()) {
      if (this.#pages.size <= keptPages) break;
      this.#pages.delete(old);
    }
  }

  #changed(change: Partial<SessionListState>): void {
    this.onChanged(false);
    this.state.patch({ ...change, version: this.state.get().version + 1 });
  }
}

interface Found {
  pinned: CountedPage;
  pages: (readonly [number, CountedPage])[];
}

const noPins: CountedPage = { sessions: [], nextCursor: null, rebuilding: false };

function placeOfPage(query: ListQuery, page: number, count: boolean) {
  const place = { skip: page * listPageSize, limit: listPageSize, count };
  return isTree(query) ? place : { ...place, pinned: false };
}

function childrenOf(session: Summary): Pick<Summary, "children"> {
  return session.children === undefined ? {} : { children: session.children };
}

export function isActive(session: Pick<Summary, "status">): boolean {
  return session.status === "running" || session.status === "waiting";
}
