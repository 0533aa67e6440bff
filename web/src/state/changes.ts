import { api } from "../api/client";
import { Store } from "./store";

export type Reach = "connecting" | "up" | "down";

const lockName = "threadline.changes";
const channelName = "threadline.changes";
const retryMs = 500;
const maxRetryMs = 5000;

type Word = "changed" | "up" | "down";

/**
 * Hears from the server that lists have changed. A browser opens few connections to one server, so
 * of all tabs one listens and tells the others; when it is closed the next one takes over. Where
 * tabs cannot agree on that, each listens while it is in sight.
 */
export class ChangeFeed {
  readonly reach = new Store<Reach>("connecting");
  onChanged: () => void = () => {};
  #source: EventSource | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #channel: BroadcastChannel | undefined;
  #failures = 0;

  start(): void {
    if (navigator.locks === undefined || typeof BroadcastChannel === "undefined") {
      const inSight = (): void => (document.visibilityState === "visible" ? this.#listen() : this.#close());
      document.addEventListener("visibilitychange", inSight);
      inSight();
      return;
    }
    this.#channel = new BroadcastChannel(channelName);
    this.#channel.addEventListener("message", ({ data }) => {
      // Whoever has just opened asks how things stand.
      if (data === "hello") this.#answer();
      else this.#hear(data as Word);
    });
    this.#channel.postMessage("hello");
    // Held until the tab is closed.
    void navigator.locks.request(lockName, () => {
      this.#listen();
      return new Promise(() => {});
    });
  }

  /** Tries at once instead of waiting for the next attempt. */
  wake(): void {
    if (this.#retry !== undefined) this.#listen();
  }

  #answer(): void {
    const reach = this.reach.get();
    if (this.#source !== undefined && reach !== "connecting") this.#channel?.postMessage(reach);
  }

  #listen(): void {
    this.#close();
    const source = new EventSource(api.changesUrl);
    this.#source = source;
    source.addEventListener("changed", () => {
      this.#failures = 0;
      this.#tell("up");
      this.#tell("changed");
    });
    source.addEventListener("error", () => {
      this.#tell("down");
      // A refusal ends the source for good; a lost connection it mends by itself, in its own time.
      source.close();
      const wait = Math.min(retryMs * 2 ** this.#failures, maxRetryMs);
      this.#failures = Math.min(this.#failures + 1, 8);
      this.#retry ??= setTimeout(() => this.#listen(), wait);
    });
  }

  #close(): void {
    clearTimeout(this.#retry);
    this.#retry = undefined;
    this.#source?.close();
    this.#source = undefined;
  }

  #tell(word: Word): void {
    this.#channel?.postMessage(word);
    this.#hear(word);
  }

  #hear(word: Word): void {
    if (word === "changed") this.onChanged();
    else this.reach.set(word);
  }
}
