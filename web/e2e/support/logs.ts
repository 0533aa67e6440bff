import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { blake3 } from "@noble/hashes/blake3.js";
import type { Place } from "./server";

type Data = Record<string, unknown>;

/** A session written by hand, as docs/format.md says, for what would take days to happen. */
export class Log {
  readonly id: string;
  readonly #place: Place;
  readonly #lines: string[] = [];
  #seq = 0;
  #turn = 0;
  #step = 0;
  #time = 1_764_489_600_000;

  constructor(place: Place, id = "0199a8c2-5c00-7000-8000-000000000001") {
    this.id = id;
    this.#place = place;
    this.#lines.push(
      JSON.stringify({
        format: "threadline",
        version: 1,
        id,
        createdAt: this.#time,
        cwd: place.cwd,
        origin: { kind: "user" },
        app: "e2e/1",
      }),
    );
  }

  /** The number that the next event will have. */
  get next(): number {
    return this.#seq;
  }

  event(type: string, data: Data): number {
    const seq = this.#seq;
    this.#seq += 1;
    this.#time += 700;
    this.#lines.push(JSON.stringify({ seq, time: this.#time, type, data }));
    return seq;
  }

  open(prompt: string, content: Data[] = [{ type: "text", text: prompt }]): this {
    this.#turn += 1;
    const context = {
      provider: "offline",
      model: "demonstration",
      approvalPolicy: "on_request",
      sandboxMode: "workspace_write",
      cwd: this.#place.cwd,
    };
    this.event("turn/start", { turn: this.#turn, runId: `run-${this.id}-${this.#turn}`, context });
    this.event("user/message", { content, source: "user" });
    return this;
  }

  close(reason: Data = { kind: "completed" }): this {
    this.event("turn/end", { turn: this.#turn, reason });
    return this;
  }

  say(content: Data[], over: Data = {}): number {
    this.#step += 1;
    const place = { turn: this.#turn, step: this.#step };
    const fingerprint = "0".repeat(64);
    this.event("step/start", { ...place, request: { fingerprint, items: 1, bytes: 100 } });
    const calls = content.some((part) => part["type"] === "tool_call");
    return this.event("assistant/message", {
      ...place,
      content,
      model: { provider: "offline", name: "demonstration" },
      stopReason: calls ? "tool_calls" : "stop",
      ...over,
    });
  }

  endStep(inputTokens = 4200, outputTokens = 180): this {
    const usage = { inputTokens, outputTokens };
    this.event("step/end", { turn: this.#turn, step: this.#step, usage });
    return this;
  }

  answer(text: string): this {
    this.say([{ type: "text", text }]);
    return this.endStep();
  }

  /** A step with one call and its result. */
  call(name: string, args: unknown, text: string, over: Data = {}): this {
    const callId = `call_${this.#seq}`;
    this.say([{ type: "tool_call", callId, name, arguments: JSON.stringify(args) }]);
    this.event("tool/start", { callId, name, cwd: this.#place.cwd });
    const content = [{ type: "text", text }];
    this.event("tool/result", { callId, name, content, isError: false, outcome: "ok", ...over });
    return this.endStep();
  }

  /** Keeps bytes beside the sessions and gives their name. */
  blob(bytes: Uint8Array): string {
    const name = Buffer.from(blake3(bytes)).toString("hex");
    const folder = join(this.#place.home, "blobs", name.slice(0, 2));
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, name), bytes);
    return name;
  }

  write(): string {
    const day = new Date(Number.parseInt(this.id.replaceAll("-", "").slice(0, 12), 16));
    const folder = join(
      this.#place.home,
      "sessions",
      String(day.getUTCFullYear()),
      String(day.getUTCMonth() + 1).padStart(2, "0"),
      String(day.getUTCDate()).padStart(2, "0"),
      this.id,
    );
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "log.jsonl"), `${this.#lines.join("\n")}\n`);
    return this.id;
  }
}

/** A picture of two colours. */
export const png = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAEAAAAAwCAIAAAAuKetIAAAAXklEQVR42u3XMQ0AIAwEQBzgDxGMWMMXCjBQpi4QLun4Q2/6fFmzhVdHD++2fAEAAAAASAFeefSUBwAAAADIATQxAAAAgD2giQEAAADsAU0MAAAAYA9oYgAAAIDvABuxCsUA0IRNQAAAAABJRU5ErkJggg==",
  "base64",
);
