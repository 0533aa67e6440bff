import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import type { LogEvent, LogPage } from "../api/types";
import { Store } from "./store";

const pageSize = 200;
/** Rows kept in memory; a longer log is fetched again where it is looked at. */
const maxRows = 20_000;

export interface LogState {
  /** Events known to exist, whether their rows are loaded or not. */
  lastSeq: number;
  version: number;
  error: HumanError | null;
}

type FetchPage = (from: number, limit: number, signal: AbortSignal) => Promise<LogPage>;

/** The raw rows of one session's log: live ones as they arrive, older ones when they come in sight. */
export class LogStore {
  readonly state: Store<LogState>;
  readonly #rows = new Map<number, LogEvent>();
  readonly #loading = new Set<number>();
  readonly #abort = new AbortController();
  readonly #fetchPage: FetchPage;
  #notify: ReturnType<typeof setTimeout> | undefined;
  #lastSeq: number;

  constructor(id: string, lastSeq: number, fetchPage?: FetchPage) {
    this.#fetchPage = fetchPage ?? ((from, limit, signal) => api.log(id, from, limit, signal));
    this.#lastSeq = lastSeq;
    this.state = new Store<LogState>({ lastSeq, version: 0, error: null });
  }

  row(seq: number): LogEvent | undefined {
    return this.#rows.get(seq);
  }

  add(event: LogEvent): void {
    this.#rows.set(event.seq, event);
    this.#lastSeq = Math.max(this.#lastSeq, event.seq);
    this.#trim(event.seq);
    this.#changed();
  }

  /** Loads the pages that cover a range, each at most once at a time. */
  ensure(from: number, to: number): void {
    const first = Math.floor(Math.max(0, from) / pageSize);
    const last = Math.floor(Math.min(to, this.#lastSeq) / pageSize);
    for (let page = first; page <= last; page++) {
      if (!this.#loading.has(page) && this.#isMissing(page, from, to)) void this.#load(page);
    }
  }

  retry(): void {
    this.state.patch({ error: null });
    this.#changed();
  }

  close(): void {
    this.#abort.abort();
    clearTimeout(this.#notify);
  }

  #isMissing(page: number, from: number, to: number): boolean {
    const start = Math.max(page * pageSize, from, 0);
    const end = Math.min((page + 1) * pageSize - 1, to, this.#lastSeq);
    for (let seq = start; seq <= end; seq++) if (!this.#rows.has(seq)) return true;
    return false;
  }

  async #load(page: number): Promise<void> {
    if (this.state.get().error !== null) return;
    this.#loading.add(page);
    try {
      const from = page * pageSize;
      const answer = await this.#fetchPage(from, pageSize, this.#abort.signal);
      for (const line of answer.lines) {
        if (typeof line.seq === "number") this.#rows.set(line.seq, line);
      }
      this.#trim(from);
      this.#loading.delete(page);
      this.#changed();
    } catch (error) {
      if (this.#abort.signal.aborted) return;
      this.#loading.delete(page);
      this.state.patch({ error: toHuman(error) });
    }
  }

  /** Drops the rows that are farthest from where the reader is. */
  #trim(around: number): void {
    if (this.#rows.size <= maxRows) return;
    const byDistance = [...this.#rows.keys()].sort(
      (a, b) => Math.abs(b - around) - Math.abs(a - around),
    );
    for (const seq of byDistance.slice(0, this.#rows.size - maxRows * 0.8)) this.#rows.delete(seq);
  }

  #changed(): void {
    this.#notify ??= setTimeout(() => {
      this.#notify = undefined;
      const { version } = this.state.get();
      this.state.patch({ version: version + 1, lastSeq: this.#lastSeq });
    }, 16);
  }
}
