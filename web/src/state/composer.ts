import type { Delivery } from "../api/acting";
import { api } from "../api/client";
import { toHuman, type HumanError } from "../api/problem";
import { startRun } from "../api/startRun";
import type { AgentInput, ApprovalPolicy, RunStarted, SandboxMode } from "../api/types";
import { toInput, type Attachment } from "./attachments";
import { readDraft, saveDraft } from "./drafts";
import { Store } from "./store";

export interface ComposerState {
  text: string;
  /** Empty means: leave it to the session or the server's defaults, never widen by accident. */
  approvalPolicy: ApprovalPolicy | "";
  sandboxMode: SandboxMode | "";
  /** `provider/name` or a name; empty as above. */
  model: string;
  images: readonly Attachment[];
  /** When a message that is sent during a run reaches the model. */
  delivery: Delivery;
  sending: boolean;
  stopping: boolean;
  error: HumanError | null;
}

type Choice = Partial<Pick<ComposerState, "approvalPolicy" | "sandboxMode" | "model" | "delivery">>;

const noChoice = { approvalPolicy: "", sandboxMode: "", model: "" } as const;

export class Composer {
  readonly state: Store<ComposerState>;
  onStarted: (run: RunStarted) => void = () => {};
  onQueued: (sessionId: string) => void = () => {};
  #target: string | null;
  #attempt: { key: string; content: string } | undefined;
  /** What was typed before the reader went back to an earlier prompt. */
  #own: string | null = null;
  #earlier = 0;

  constructor(target: string | null = null) {
    this.#target = target;
    this.state = new Store<ComposerState>({
      ...noChoice,
      text: readDraft(target),
      images: [],
      delivery: "after_turn",
      sending: false,
      stopping: false,
      error: null,
    });
  }

  /** Where the next task goes has changed: each session has its own draft. */
  aim(target: string | null): void {
    if (target === this.#target) return;
    const { text } = this.state.get();
    const draft = readDraft(target);
    const undecided = this.#target === null && text !== "" && draft === "";
    // What was written with no session in mind goes along to the one that is chosen for it.
    if (undecided) saveDraft(null, "");
    this.#target = target;
    this.#forgetEarlier();
    this.state.patch({ ...noChoice, text: undecided ? text : draft, error: null });
    if (undecided) saveDraft(target, text);
  }

  write(text: string): void {
    this.#forgetEarlier();
    this.state.patch({ text });
    saveDraft(this.#target, text);
  }

  choose(choice: Choice): void {
    this.state.patch(choice);
  }

  resetPolicy(): void {
    this.state.patch(noChoice);
  }

  attach(images: readonly Attachment[]): void {
    this.state.patch({ images: [...this.state.get().images, ...images] });
  }

  detach(id: number): void {
    this.state.patch({ images: this.state.get().images.filter((image) => image.id !== id) });
  }

  /** Shows an earlier prompt, one further back or forward. Returns whether there was one. */
  recall(prompts: readonly string[], by: 1 | -1): boolean {
    const wanted = this.#earlier + by;
    if (wanted < 0 || wanted > prompts.length) return false;
    this.#own ??= this.state.get().text;
    this.#earlier = wanted;
    const text = wanted === 0 ? this.#own : (prompts[prompts.length - wanted] ?? "");
    if (wanted === 0) this.#own = null;
    this.state.patch({ text });
    return true;
  }

  get recalling(): boolean {
    return this.#earlier > 0;
  }

  fail(error: HumanError): void {
    this.state.patch({ error });
  }

  dismissError(): void {
    this.state.patch({ error: null });
  }

  async send(sessionId: string | null): Promise<void> {
    const { text, images, sending, approvalPolicy, sandboxMode, model } = this.state.get();
    if (sending || text.trim() === "") return;
    const input: AgentInput & { images?: unknown } = { task: text };
    if (sessionId !== null) input.sessionId = sessionId;
    if (approvalPolicy !== "") input.approvalPolicy = approvalPolicy;
    if (sandboxMode !== "") input.sandboxMode = sandboxMode;
    if (model.trim() !== "") input.model = model.trim();
    if (images.length > 0) input.images = images.map(toInput);
    input.idempotencyKey = this.#keyFor(JSON.stringify(input));
    await this.#deed(async () => {
      const run = await startRun(input);
      this.#attempt = undefined;
      this.#sent(sessionId, text, images);
      this.onStarted(run);
    });
  }

  /** Leaves a message for a session that is at work. */
  async queue(sessionId: string): Promise<void> {
    const { text, images, delivery, sending } = this.state.get();
    if (sending || text.trim() === "") return;
    await this.#deed(async () => {
      const more = images.length > 0 ? { images: images.map(toInput) } : {};
      await api.enqueue(sessionId, { text, delivery, ...more });
      this.#sent(sessionId, text, images);
      this.onQueued(sessionId);
    });
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

  async #deed(deed: () => Promise<void>): Promise<void> {
    this.state.patch({ sending: true, error: null });
    try {
      await deed();
    } catch (error) {
      this.state.patch({ error: toHuman(error) });
    } finally {
      this.state.patch({ sending: false });
    }
  }

  #sent(sessionId: string | null, text: string, images: readonly Attachment[]): void {
    saveDraft(sessionId, "");
    // Whatever was typed while the task was on its way stays.
    if (this.#target === sessionId && this.state.get().text === text) this.write("");
    const gone = new Set(images);
    this.state.patch({ images: this.state.get().images.filter((image) => !gone.has(image)) });
  }

  #forgetEarlier(): void {
    this.#own = null;
    this.#earlier = 0;
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
