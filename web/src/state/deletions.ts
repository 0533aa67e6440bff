import { api } from "../api/client";
import { toHuman } from "../api/problem";
import { Store } from "./store";

export interface PendingDeletion {
  id: string;
  title: string;
}

export interface DeletionState {
  pending: readonly PendingDeletion[];
  error: string | null;
}

export const undoMs = 6000;

/** Deletes after a delay in which it can be undone. Leaving the page carries out what was asked. */
export class Deletions {
  readonly state = new Store<DeletionState>({ pending: [], error: null });
  readonly #timers = new Map<string, ReturnType<typeof setTimeout>>();
  onDeleted: (id: string) => void = () => {};

  constructor() {
    globalThis.addEventListener?.("pagehide", () => this.flush());
  }

  request(deletion: PendingDeletion): void {
    if (this.#timers.has(deletion.id)) return;
    const timer = setTimeout(() => void this.#carryOut(deletion, false), undoMs);
    this.#timers.set(deletion.id, timer);
    this.state.set({ pending: [...this.state.get().pending, deletion], error: null });
  }

  undo(id: string): void {
    clearTimeout(this.#timers.get(id));
    this.#timers.delete(id);
    this.#drop(id);
  }

  dismissError(): void {
    this.state.patch({ error: null });
  }

  flush(): void {
    for (const deletion of this.state.get().pending) {
      if (!this.#timers.has(deletion.id)) continue;
      clearTimeout(this.#timers.get(deletion.id));
      void this.#carryOut(deletion, true);
    }
  }

  async #carryOut(deletion: PendingDeletion, keepalive: boolean): Promise<void> {
    this.#timers.delete(deletion.id);
    try {
      await api.remove(deletion.id, keepalive);
      this.onDeleted(deletion.id);
    } catch (error) {
      const { message, hint } = toHuman(error);
      this.state.patch({
        error: `"${deletion.title}" was not deleted. ${message} ${hint ?? ""}`.trim(),
      });
    }
    this.#drop(deletion.id);
  }

  #drop(id: string): void {
    this.state.patch({ pending: this.state.get().pending.filter((entry) => entry.id !== id) });
  }
}
