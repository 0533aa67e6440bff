import type { Question } from "../api/acting";
import { api } from "../api/client";
import type { Summary } from "../api/types";
import { Store } from "./store";

export interface ApprovalsState {
  /** Oldest first. */
  questions: readonly Question[];
  /** What is known of the sessions that ask. */
  sessions: ReadonlyMap<string, Summary>;
  loaded: boolean;
}

/** Questions that wait for a person, of all sessions. */
export class Approvals {
  readonly state = new Store<ApprovalsState>({ questions: [], sessions: new Map(), loaded: false });
  /** Called with each question that was not there before; not with those found first. */
  onAsked: (question: Question, session: Summary | undefined) => void = () => {};
  #busy = false;
  #again = false;

  async refresh(): Promise<void> {
    if (this.#busy) {
      this.#again = true;
      return;
    }
    this.#busy = true;
    try {
      const questions = await api.questions();
      const sessions = await this.#sessionsOf(questions);
      const before = this.state.get();
      this.state.set({ questions, sessions, loaded: true });
      if (before.loaded) this.#tell(before.questions, questions);
    } catch {
      // That the server is out of reach is told elsewhere.
    }
    this.#busy = false;
    if (this.#again) {
      this.#again = false;
      void this.refresh();
    }
  }

  #tell(before: readonly Question[], now: readonly Question[]): void {
    const known = new Set(before.map((question) => question.approvalId));
    for (const question of now) {
      if (known.has(question.approvalId)) continue;
      this.onAsked(question, this.state.get().sessions.get(question.sessionId));
    }
  }

  async #sessionsOf(questions: readonly Question[]): Promise<ReadonlyMap<string, Summary>> {
    const known = this.state.get().sessions;
    const sessions = new Map<string, Summary>();
    for (const id of new Set(questions.map((question) => question.sessionId))) {
      const session = known.get(id) ?? (await sessionOf(id));
      if (session !== undefined) sessions.set(id, session);
    }
    return sessions;
  }
}

/** A session's row, which is cheap, unlike the session itself. */
export async function sessionOf(id: string): Promise<Summary | undefined> {
  const page = await api.sessions({ query: id, archived: "all" }, { limit: 2 });
  return page.sessions.find((session) => session.id === id);
}
