import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import { startRun } from "../api/startRun";
import type { AgentInput, ApprovalPolicy, RunStarted, SandboxMode } from "../api/types";
import { Store } from "./store";

export interface ComposerState {
  text: string;
  /** Empty means: leave it to the session or the server's defaults, never widen by accident. */
  approvalPolicy: ApprovalPolicy | "";
  sandboxMode: SandboxMode | "";
  sending: boolean;
  stopping: boolean;
  error: HumanError | null;
}

const draftKey = "threadline.draft";

export class Composer {
  readonly state = new Store<ComposerState>({
    text: readDraft(),
    approvalPolicy: "",
    sandboxMode: "",
    sending: false,
    stopping: false,
    error: null,
  });
  onStarted: (run: RunStarted) => void = () => {};
  #attempt: { key: string; content: string } | undefined;

  write(text: string): void {
    this.state.patch({ text });
    saveDraft(text);
  }

  choose(choice: Partial<Pick<ComposerState, "approvalPolicy" | "sandboxMode">>): void {
    this.state.patch(choice);
  }

  resetPolicy(): void {
    this.state.patch({ approvalPolicy: "", sandboxMode: "" });
  }

  dismissError(): void {
    this.state.patch({ error: null });
  }

  async send(sessionId: string | null): Promise<void> {
    const { text, sending, approvalPolicy, sandboxMode } = this.state.get();
    if (sending || text.trim() === "") return;
    const input: AgentInput = { task: text };
    if (sessionId !== null) input.sessionId = sessionId;
    if (approvalPolicy !== "") input.approvalPolicy = approvalPolicy;
    if (sandboxMode !== "") input.sandboxMode = sandboxMode;
    input.idempotencyKey = this.#keyFor(JSON.stringify(input));
    this.state.patch({ sending: true, error: null });
    try {
      const run = await startRun(input);
      this.#attempt = undefined;
      // Whatever was typed while the task was on its way stays.
      if (this.state.get().text === text) this.write("");
      this.state.patch({ sending: false });
      this.onStarted(run);
    } catch (error) {
      this.state.patch({ sending: false, error: toHuman(error) });
    }
  }

  /** Sends a prepared task to a session. What is being typed stays, and so do its choices. */
  async ask(sessionId: string, task: string): Promise<void> {
    if (this.state.get().sending) return;
    const input: AgentInput = { task, sessionId };
    input.idempotencyKey = this.#keyFor(JSON.stringify(input));
    this.state.patch({ sending: true, error: null });
    try {
      const run = await startRun(input);
      this.#attempt = undefined;
      this.state.patch({ sending: false });
      this.onStarted(run);
    } catch (error) {
      this.state.patch({ sending: false, error: toHuman(error) });
    }
  }

  async stop(sessionId: string): Promise<void> {
    this.state.patch({ stopping: true, error: null });
    try {
      await api.cancel(sessionId);
    } catch (error) {
      const human = toHuman(error);
      // It ended by itself a moment ago: that is what was wanted.
      if (human.code !== "not_running") this.state.patch({ error: human });
    } finally {
      this.state.patch({ stopping: false });
    }
  }

  /** The same task sent again after a lost connection keeps its key, so it cannot start twice. */
  #keyFor(content: string): string {
    if (this.#attempt?.content !== content) this.#attempt = { key: timedKey(), content };
    return this.#attempt.key;
  }
}

/**
 * A UUID of version 7: a session made under this key is kept by the key's day.
 * `crypto.randomUUID` makes no such id, and exists only in secure contexts.
 */
export function timedKey(now = Date.now()): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const view = new DataView(bytes.buffer);
  view.setUint16(0, Math.floor(now / 2 ** 32));
  view.setUint32(2, now % 2 ** 32);
  view.setUint8(6, (view.getUint8(6) & 0x0f) | 0x70);
  view.setUint8(8, (view.getUint8(8) & 0x3f) | 0x80);
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

function readDraft(): string {
  try {
    return sessionStorage.getItem(draftKey) ?? "";
  } catch {
    return "";
  }
}

function saveDraft(text: string): void {
  try {
    sessionStorage.setItem(draftKey, text);
  } catch {
    // Storage can be full or forbidden; the draft then lives as long as the page.
  }
}
