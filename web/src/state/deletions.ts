import { api } from "../api/client";
import { toHuman } from "../api/problem";
import { Store } from "./store";

export interface PendingDeletion {
  /** The sessions that go together, and are kept together when it is undone. */
  ids: readonly string[];
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
  readonly #timers = new Map<PendingDeletion, ReturnType<typeof setTimeout>>();
  onDeleted: (id: string) => void = () => {};

  constructor() {
    globalThis.addEventListener?.("pagehide", () => this.flush());
  }

  request(deletion: PendingDeletion): void {
    const under = this.hidden();
    const ids = deletion.ids.filter((id) => !under.has(id));
    if (ids.length === 0) return;
    const pending = { ...deletion, ids };
    this.#timers.set(pending, setTimeout(() => void this.#carryOut(pending, false), undoMs));
    this.state.set({ pending: [...this.state.get().pending, pending], error: null });
  }

  undo(deletion: PendingDeletion): void {
    clearTimeout(this.#timers.get(deletion));
    this.#timers.delete(deletion);
    this.#drop(deletion);
  }

  /** Sessions that are not shown any more, although they are still there. */
  hidden(): ReadonlySet<string> {
    return new Set(this.state.get().pending.flatMap((deletion) => deletion.ids));
  }

  dismissError(): void {
    this.state.patch({ error: null });
  }

  flush(): void {
    for (const deletion of this.state.get().pending) {
      if (!this.#timers.has(deletion)) continue;
      clearTimeout(this.#timers.get(deletion));
      void this.#carryOut(deletion, true);
    }
  }

  async #carryOut(deletion: PendingDeletion, keepalive: boolean): Promise<void> {
    this.#timers.delete(deletion);
    const failed: string[] = [];
    for (const id of deletion.ids) {
      try {
        // A page that is being left gets no second chance to ask.
        const removed = api.remove(id, keepalive);
        if (keepalive) void removed.catch(() => {});
        else await removed;
        this.onDeleted(id);
      } catch (error) {
        const { message, hint, code } = toHuman(error);
        if (code === "session_not_found") this.onDeleted(id);
        else failed.push(`${message} ${hint ?? ""}`.trim());
      }
    }
    if (failed.length > 0) {
      const what = failed.length === 1 ? `"${deletion.title}"` : `${failed.length} sessions of "${deletion.title}"`;
      this.state.patch({ error: `${what} not deleted. ${failed[0]}` });
    }
    this.#drop(deletion);
  }

  #drop(deletion: PendingDeletion): void {
    this.state.patch({ pending: this.state.get().pending.filter((entry) => entry !== deletion) });
  }
}
