import type { Delivery, WaitingMessage } from "../api/acting";
import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import { Store } from "./store";

export interface QueueState {
  id: string | null;
  messages: readonly WaitingMessage[];
  error: HumanError | null;
}

/** The messages that wait for their turn in the session on the screen. */
export class Queue {
  readonly state = new Store<QueueState>({ id: null, messages: [], error: null });
  #generation = new AbortController();

  show(id: string | null): void {
    if (id === this.state.get().id) return;
    this.state.set({ id, messages: [], error: null });
    void this.refresh();
  }

  async refresh(): Promise<void> {
    const { id } = this.state.get();
    this.#generation.abort();
    this.#generation = new AbortController();
    const { signal } = this.#generation;
    if (id === null) return;
    try {
      const messages = await api.queue(id, signal);
      if (!signal.aborted) this.state.patch({ messages });
    } catch {
      // A session that is not there or is damaged says so itself, and has no queue to show.
      if (!signal.aborted) this.state.patch({ messages: [] });
    }
  }

  edit(message: WaitingMessage, text: string): Promise<boolean> {
    return this.#do((id) => api.enqueue(id, { ...without(message), text }));
  }

  deliverAt(message: WaitingMessage, delivery: Delivery): Promise<boolean> {
    return this.#do((id) => api.enqueue(id, { ...without(message), delivery }));
  }

  drop(message: WaitingMessage): Promise<boolean> {
    return this.#do((id) => api.withdraw(id, message.messageId));
  }

  /** Begins to work on what waits, as after a restart of the server. */
  deliver(): Promise<boolean> {
    return this.#do((id) => api.deliver(id));
  }

  dismissError(): void {
    this.state.patch({ error: null });
  }

  async #do(deed: (id: string) => Promise<unknown>): Promise<boolean> {
    const { id } = this.state.get();
    if (id === null) return false;
    this.state.patch({ error: null });
    let done = true;
    try {
      await deed(id);
    } catch (failure) {
      done = false;
      const error = toHuman(failure);
      const hint = error.code === "not_waiting" ? "The model has it already." : error.hint;
      if (this.state.get().id === id) this.state.patch({ error: { ...error, hint } });
    }
    await this.refresh();
    return done;
  }
}

/** What is sent to replace a message; its images stay with it as long as they are not named. */
function without({ messageId, text, delivery }: WaitingMessage) {
  return { messageId, text, delivery };
}
