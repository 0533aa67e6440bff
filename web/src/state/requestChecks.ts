import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import type { RequestDetail, RequestHead } from "../api/types";
import { Store } from "./store";

export type CheckState =
  | { kind: "loading" }
  | { kind: "done"; detail: RequestDetail }
  | { kind: "failed"; error: HumanError };

export interface RequestChecksState {
  requests: readonly RequestHead[] | null;
  /** Where older steps are asked for; `null` when all are here. */
  older: number | null;
  results: ReadonlyMap<number, CheckState>;
  error: HumanError | null;
}

/** Rebuilding a large request is work for the server: such a step is checked only when asked for. */
const glanceLimit = 256 * 1024;
const keptDetails = 60;

/** The steps of a session and the check of each: one rebuild at a time, visible steps first. */
export class RequestChecks {
  readonly state = new Store<RequestChecksState>({
    requests: null,
    older: null,
    results: new Map(),
    error: null,
  });
  readonly #id: string;
  #abort = new AbortController();
  #queue: number[] = [];
  #busy = false;

  constructor(id: string) {
    this.#id = id;
  }

  async load(): Promise<void> {
    if (this.#abort.signal.aborted) this.#abort = new AbortController();
    const { signal } = this.#abort;
    try {
      const page = await api.requests(this.#id, null, signal);
      const first = page.requests[0]?.seq ?? 0;
      // Older pages that were asked for stay in front of the newest.
      const kept = (this.state.get().requests ?? []).filter((head) => head.seq < first);
      const older = kept.length > 0 ? this.state.get().older : page.next;
      this.state.patch({ requests: [...kept, ...page.requests], older, error: null });
    } catch (error) {
      if (signal.aborted) return;
      // What is already on the screen stays there; a failed refresh is not news.
      if (this.state.get().requests === null) this.state.patch({ error: toHuman(error) });
    }
  }

  async loadOlder(): Promise<void> {
    const { older, requests } = this.state.get();
    const { signal } = this.#abort;
    if (older === null || requests === null) return;
    try {
      const page = await api.requests(this.#id, older, signal);
      if (this.state.get().older !== older) return;
      const known = this.state.get().requests ?? [];
      this.state.patch({ requests: [...page.requests, ...known], older: page.next, error: null });
    } catch (error) {
      if (!signal.aborted) this.state.patch({ error: toHuman(error) });
    }
  }

  /** A step came into view. */
  glance(head: RequestHead): void {
    if (head.bytes > glanceLimit || this.state.get().results.has(head.step)) return;
    this.#enqueue(head.step);
  }

  /** Someone asked for this step. */
  want(step: number): void {
    const known = this.state.get().results.get(step);
    if (known === undefined || known.kind === "failed") this.#enqueue(step);
  }

  close(): void {
    this.#abort.abort();
    this.#queue = [];
  }

  #enqueue(step: number): void {
    this.#queue.push(step);
    this.#put(step, { kind: "loading" });
    if (!this.#busy) void this.#drain();
  }

  async #drain(): Promise<void> {
    this.#busy = true;
    for (let step = this.#queue.shift(); step !== undefined; step = this.#queue.shift()) {
      const { signal } = this.#abort;
      try {
        const head = this.state.get().requests?.find((one) => one.step === step);
        if (head === undefined) {
          this.#forget(step);
          continue;
        }
        this.#put(step, { kind: "done", detail: await api.requestOf(this.#id, head, signal) });
      } catch (error) {
        if (signal.aborted) this.#forget(step);
        else this.#put(step, { kind: "failed", error: toHuman(error) });
      }
    }
    this.#busy = false;
  }

  #put(step: number, result: CheckState): void {
    const results = new Map(this.state.get().results);
    results.delete(step);
    results.set(step, result);
    for (const old of results.keys()) {
      if (results.size <= keptDetails) break;
      results.delete(old);
    }
    this.state.patch({ results });
  }

  #forget(step: number): void {
    const results = new Map(this.state.get().results);
    results.delete(step);
    this.state.patch({ results });
  }
}
