import { ApiError, errorFromProblem, errorFromResponse } from "../api/problem";
import type { LogEvent, Problem, ViewMessage } from "../api/types";
import { SseParser, type SseMessage } from "./parser";

export type ConnectionState = "idle" | "connecting" | "live" | "reconnecting" | "closed" | "error";

export interface FollowerOptions {
  url: (after: number) => string;
  /** The last event already known; only later ones are delivered. */
  lastSeq: number;
  onView: (view: ViewMessage) => void;
  onEvent: (event: LogEvent) => void;
  /** The backlog is complete. `reconnected` is false for the first connection only. */
  onCaughtUp: (reconnected: boolean) => void;
  onState: (state: ConnectionState) => void;
  /** The server said that following is over; there will be no further attempt. */
  onFatal: (error: ApiError) => void;
  fetch?: typeof fetch;
  sleep?: (ms: number, signal: AbortSignal) => Promise<void>;
  /** A silent connection is cut after this long; the server sends a comment every 15 s. */
  idleMs?: number;
}

/** After a connection that delivered something there is no reason to wait for long. */
const quickRetryMs = 120;
const maxDelayMs = 5000;

class Gap extends Error {}

/**
 * Follows the log of one session and delivers every event after `lastSeq` exactly once, whatever
 * happens to the connection. A `view` comes before its event; a cut between the two makes the server
 * send both again, so views and events are each deduplicated by their own last sequence number.
 */
export class Follower {
  readonly #options: FollowerOptions;
  readonly #stop = new AbortController();
  #lastSeq: number;
  #lastView: number;
  #retryMs = 1000;
  #failures = 0;
  #productive = false;
  #connections = 0;
  #gapAt: number | undefined;
  #wake: (() => void) | undefined;

  constructor(options: FollowerOptions) {
    this.#options = options;
    this.#lastSeq = options.lastSeq;
    this.#lastView = options.lastSeq;
  }

  get lastSeq(): number {
    return this.#lastSeq;
  }

  /** Runs until stopped or until the server ends it for good. */
  async run(): Promise<void> {
    this.#options.onState("connecting");
    while (!this.#stopped) {
      try {
        await this.#connect();
      } catch (error) {
        if (this.#stopped) return;
        if (error instanceof ApiError && isFatal(error)) {
          this.#options.onState("error");
          this.#options.onFatal(error);
          return;
        }
      }
      if (this.#stopped) return;
      this.#options.onState("reconnecting");
      await this.#pause();
    }
  }

  stop(): void {
    if (this.#stopped) return;
    this.#stop.abort();
    this.#wake?.();
    this.#options.onState("closed");
  }

  /** Cuts a backoff short, for example when the network comes back. */
  wake(): void {
    this.#wake?.();
  }

  get #stopped(): boolean {
    return this.#stop.signal.aborted;
  }

  async #connect(): Promise<void> {
    this.#productive = false;
    const connection = new AbortController();
    const cut = (): void => connection.abort();
    this.#stop.signal.addEventListener("abort", cut);
    try {
      const response = await this.#open(connection.signal);
      if (!response.ok) throw await errorFromResponse(response);
      this.#connections += 1;
      this.#options.onState("live");
      if (response.body !== null) await this.#read(response.body.getReader(), cut);
    } finally {
      this.#stop.signal.removeEventListener("abort", cut);
      cut();
    }
  }

  #open(signal: AbortSignal): Promise<Response> {
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (this.#lastSeq >= 0) headers["last-event-id"] = String(this.#lastSeq);
    const doFetch = this.#options.fetch ?? fetch.bind(globalThis);
    return doFetch(this.#options.url(this.#lastSeq), {
      headers,
      signal,
      credentials: "same-origin",
      cache: "no-store",
    });
  }

  async #read(reader: ReadableStreamDefaultReader<Uint8Array>, cut: () => void): Promise<void> {
    const parser = new SseParser();
    const idleMs = this.#options.idleMs ?? 45_000;
    while (!this.#stopped) {
      const watchdog = setTimeout(cut, idleMs);
      const chunk = await reader.read().finally(() => clearTimeout(watchdog));
      if (chunk.done || this.#stopped) return;
      const messages = parser.feed(chunk.value);
      if (parser.retryMs !== undefined) this.#retryMs = parser.retryMs;
      for (const message of messages) {
        if (this.#stopped) return;
        this.#deliver(message);
      }
    }
  }

  #deliver(message: SseMessage): void {
    if (message.id !== undefined) {
      this.#deliverEvent(JSON.parse(message.data) as LogEvent, Number(message.id));
      return;
    }
    switch (message.event) {
      case "view":
        this.#deliverView(JSON.parse(message.data) as ViewMessage);
        break;
      case "caught_up":
        this.#options.onCaughtUp(this.#connections > 1);
        break;
      case "error":
        throw fatalFrom(JSON.parse(message.data) as Problem & { message?: string });
      default:
        break;
    }
  }

  #deliverView(view: ViewMessage): void {
    if (view.seq <= this.#lastView || view.seq <= this.#lastSeq) return;
    this.#checkGap(view.seq);
    this.#lastView = view.seq;
    this.#productive = true;
    this.#options.onView(view);
  }

  #deliverEvent(event: LogEvent, seq: number): void {
    if (!Number.isSafeInteger(seq) || seq <= this.#lastSeq) return;
    this.#checkGap(seq);
    this.#lastSeq = seq;
    this.#productive = true;
    this.#options.onEvent(event);
  }

  /**
   * Sequence numbers are contiguous, so a hole means that something was lost on the way: ask again
   * from the last known event. If the server repeats the hole, it is the log's own and is accepted.
   */
  #checkGap(seq: number): void {
    if (seq <= this.#lastSeq + 1 || this.#gapAt === this.#lastSeq) return;
    this.#gapAt = this.#lastSeq;
    throw new Gap(`expected event ${this.#lastSeq + 1}, got ${seq}`);
  }

  async #pause(): Promise<void> {
    this.#failures = this.#productive ? 0 : this.#failures + 1;
    const backoff = this.#retryMs * 2 ** Math.min(this.#failures - 1, 8);
    const delay = this.#productive ? quickRetryMs : Math.min(backoff, maxDelayMs);
    const awake = new AbortController();
    this.#wake = () => awake.abort();
    await (this.#options.sleep ?? sleepFor)(delay, awake.signal);
    this.#wake = undefined;
  }
}

/** A client error will not heal by asking again; a busy or restarting server will. */
function isFatal(error: ApiError): boolean {
  if (error.status === 408 || error.status === 425 || error.status === 429) return false;
  return error.status < 500;
}

function fatalFrom(problem: Problem & { message?: string }): ApiError {
  const detail = problem.message ?? problem.detail;
  return errorFromProblem(detail === undefined ? problem : { ...problem, detail }, 200);
}

function sleepFor(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
