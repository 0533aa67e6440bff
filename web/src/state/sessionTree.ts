import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import type { Summary } from "../api/types";
import type { FetchSessions, SessionList } from "./sessionList";
import { Store } from "./store";

/** Sessions of a branch that are fetched at once; a row behind them asks for as many more. */
export const branchPage = 100;
/** Most sessions of one branch; what is behind them is found by searching. */
const maxBranch = 500;
/** Branches that are open at once; the one that was opened first is closed for another. */
const maxOpen = 100;

interface Branch {
  rows: readonly Summary[];
  /** More sessions than `rows` has. */
  hasMore: boolean;
  loading: boolean;
  error: HumanError | null;
  /** Something has changed since it was fetched. */
  stale: boolean;
}

export type ListRow =
  | { kind: "session"; session: Summary; depth: number; parent: string | null; isOpen: boolean }
  | { kind: "loading"; depth: number }
  | { kind: "more"; of: string; depth: number; loading: boolean; error: HumanError | null };

/** The rows below one root, in the order in which they are shown. */
interface Below {
  root: number;
  rows: readonly ListRow[];
}

/**
 * The list as it is seen: its rows with those of the open branches between them. Only what is open
 * is held; the roots stay with the list, which holds those near the reader.
 */
export class SessionTree {
  readonly state = new Store({ version: 0 });
  readonly #list: SessionList;
  readonly #fetch: FetchSessions;
  readonly #open = new Map<string, Branch>();
  #below: readonly Below[] | null = null;

  constructor(list: SessionList, fetch: FetchSessions = api.sessions) {
    this.#list = list;
    this.#fetch = fetch;
    list.onChanged = (anew) => {
      if (anew) this.#open.clear();
      this.#below = null;
    };
    list.onRefreshed = () => {
      for (const branch of this.#open.values()) branch.stale = true;
      this.#changed();
    };
  }

  /** Rows on the screen, those not loaded yet included. */
  count(): number {
    return this.#segments().reduce((sum, { rows }) => sum + rows.length, this.#list.state.get().total);
  }

  row(at: number): ListRow | undefined {
    let before = 0;
    for (const { root, rows } of this.#segments()) {
      const inside = at - before - root - 1;
      if (inside < 0) break;
      if (inside < rows.length) return rows[inside];
      before += rows.length;
    }
    const session = this.#list.row(at - before);
    return session === undefined ? undefined : this.#root(session);
  }

  /** The place of a session on the screen; -1 when it is not there. */
  placeOf(id: string | null): number {
    if (id === null) return -1;
    let before = 0;
    for (const { root, rows } of this.#segments()) {
      const at = rows.findIndex((row) => row.kind === "session" && row.session.id === id);
      if (at >= 0) return before + root + 1 + at;
      before += rows.length;
    }
    const place = this.#list.placeOf(id);
    if (place < 0) return -1;
    const above = this.#segments().filter(({ root }) => root < place);
    return above.reduce((sum, { rows }) => sum + rows.length, place);
  }

  /** Loads what a range of places lacks, and brings the branches in it up to date. */
  ensure(from: number, to: number): void {
    this.#list.ensure(this.#rootAt(from), this.#rootAt(to));
    for (let at = from; at <= to; at++) {
      const row = this.row(at);
      if (row?.kind !== "session") continue;
      const branch = this.#open.get(row.session.id);
      if (branch?.stale === true && !branch.loading) void this.#load(row.session.id, branch.rows.length);
    }
  }

  toggle(id: string, open = !this.#open.has(id)): void {
    if (open === this.#open.has(id)) return;
    if (!open) {
      this.#open.delete(id);
      this.#changed();
      return;
    }
    for (const [oldest] of this.#open) {
      if (this.#open.size < maxOpen) break;
      this.#open.delete(oldest);
    }
    this.#open.set(id, { rows: [], hasMore: true, loading: false, error: null, stale: false });
    void this.#load(id, branchPage);
  }

  more(id: string): void {
    const branch = this.#open.get(id);
    if (branch !== undefined && !branch.loading) void this.#load(id, branch.rows.length + branchPage);
  }

  #root(session: Summary): ListRow {
    return { kind: "session", session, depth: 0, parent: null, isOpen: this.#open.has(session.id) };
  }

  #rootAt(at: number): number {
    let before = 0;
    for (const { root, rows } of this.#segments()) {
      if (at <= before + root) break;
      if (at <= before + root + rows.length) return root;
      before += rows.length;
    }
    return Math.max(0, at - before);
  }

  #segments(): readonly Below[] {
    if (this.#below !== null) return this.#below;
    const below: Below[] = [];
    for (const id of this.#open.keys()) {
      const root = this.#list.placeOf(id);
      if (root >= 0) below.push({ root, rows: this.#rowsBelow(id, 1) });
    }
    below.sort((a, b) => a.root - b.root);
    this.#below = below;
    return below;
  }

  #rowsBelow(id: string, depth: number): ListRow[] {
    const branch = this.#open.get(id);
    if (branch === undefined) return [];
    const rows: ListRow[] = [];
    for (const session of branch.rows) {
      rows.push({ kind: "session", session, depth, parent: id, isOpen: this.#open.has(session.id) });
      rows.push(...this.#rowsBelow(session.id, depth + 1));
    }
    if (branch.rows.length === 0 && branch.loading) rows.push({ kind: "loading", depth });
    else if (branch.hasMore || branch.error !== null) {
      rows.push({ kind: "more", of: id, depth, loading: branch.loading, error: branch.error });
    }
    return rows;
  }

  async #load(id: string, wanted: number): Promise<void> {
    const branch = this.#open.get(id);
    if (branch === undefined) return;
    Object.assign(branch, { loading: true, stale: false });
    this.#changed();
    try {
      const limit = Math.min(Math.max(wanted, branchPage), maxBranch);
      const page = await this.#fetch(this.#list.asked(), { parent: id, limit });
      const hasMore = page.nextCursor !== null && limit < maxBranch;
      Object.assign(branch, { rows: page.sessions, hasMore, error: null });
      if (page.sessions.length === 0) this.#open.delete(id);
    } catch (error) {
      branch.error = toHuman(error);
    }
    branch.loading = false;
    this.#changed();
  }

  #changed(): void {
    this.#below = null;
    this.state.patch({ version: this.state.get().version + 1 });
  }
}
