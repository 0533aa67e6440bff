import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import type { Turn } from "../api/types";
import { Store } from "./store";

/** What a person is about to do with a turn. */
export type Plan =
  /** `at` is the last event that the fork has; absent for all. */
  | { kind: "fork"; id: string; turn: Turn; at: number | undefined }
  | { kind: "rewind"; id: string; turn: Turn }
  | { kind: "edit"; id: string; turn: Turn; text: string };

export interface BranchingState {
  plan: Plan | null;
  busy: boolean;
  error: HumanError | null;
}

/** Forks, rewinds and redos of the session on the screen. */
export class Branching {
  readonly state = new Store<BranchingState>({ plan: null, busy: false, error: null });
  onForked: (id: string, edited: string | null) => void = () => {};
  onMoved: (id: string) => void = () => {};
  /** An edited first message: there is nothing to fork, so it begins a session. */
  onBegin: (text: string) => void = () => {};

  ask(plan: Plan): void {
    this.state.set({ plan, busy: false, error: null });
  }

  cancel(): void {
    this.state.set({ plan: null, busy: false, error: null });
  }

  async carryOut(text = ""): Promise<void> {
    const { plan, busy } = this.state.get();
    if (plan === null || busy) return;
    const { id, turn } = plan;
    await this.#do(async () => {
      if (plan.kind === "rewind") {
        await api.rewind(id, turn.endSeq ?? turn.startSeq);
        this.onMoved(id);
      } else if (plan.kind === "fork") {
        const fork = await api.fork(id, plan.at);
        this.onForked(fork.id, null);
      } else if (turn.startSeq === 0) {
        this.onBegin(text);
      } else {
        const fork = await api.fork(id, turn.startSeq - 1);
        this.onForked(fork.id, text);
      }
      this.cancel();
    });
  }

  async redo(id: string): Promise<void> {
    await this.#do(async () => {
      await api.redo(id);
      this.onMoved(id);
    });
  }

  dismissError(): void {
    this.state.patch({ error: null });
  }

  async #do(deed: () => Promise<void>): Promise<void> {
    this.state.patch({ busy: true, error: null });
    try {
      await deed();
    } catch (error) {
      this.state.patch({ error: toHuman(error) });
    } finally {
      this.state.patch({ busy: false });
    }
  }
}
