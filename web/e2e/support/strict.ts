import { Program, program } from "./processes";

export type Step =
  | { text: string }
  | { reasoning: string }
  | { gate: string }
  | { toolCall: { id: string; name: string; arguments: unknown } };

/** A scripted answer; the format is in crates/threadline-strict-model. */
export interface Reply {
  when?: { user?: string; last?: string };
  text?: string;
  steps?: Step[];
}

interface StrictState {
  requests: { json: { messages: { role: string; content: unknown }[] }; accepted: boolean }[];
  violations: unknown[];
  queued: number;
}

/** A model server that refuses what the real ones refuse, and waits at gates for the test. */
export class StrictModel {
  readonly baseUrl: string;
  readonly #program: Program;

  private constructor(running: Program, baseUrl: string) {
    this.#program = running;
    this.baseUrl = baseUrl;
  }

  static async start(cwd: string): Promise<StrictModel> {
    const running = new Program(program("STRICT_MODEL_BIN", "strict-model"), [], { cwd, env: {} });
    return new StrictModel(running, await running.line(/^http:.*$/));
  }

  async script(...replies: Reply[]): Promise<void> {
    await this.#control("POST", "script", JSON.stringify(replies));
  }

  /** Waits until an answer has come to a gate. */
  async reached(gate: string): Promise<void> {
    await this.#control("GET", `gate/${gate}`);
  }

  async open(gate: string): Promise<void> {
    await this.#control("POST", `gate/${gate}`);
  }

  async state(): Promise<StrictState> {
    return (await (await this.#control("GET", "state")).json()) as StrictState;
  }

  kill(): Promise<void> {
    return this.#program.kill();
  }

  async #control(method: string, path: string, body?: string): Promise<Response> {
    const url = new URL(`/_strict/${path}`, this.baseUrl);
    const response = await fetch(url, body === undefined ? { method } : { method, body });
    if (!response.ok) throw new Error(`${method} ${url.pathname}: ${await response.text()}`);
    return response;
  }
}

/** Words that can each be looked for: `w1 w2 ... w9 `. */
export function words(from: number, to: number): string {
  let text = "";
  for (let at = from; at <= to; at++) text += `w${at} `;
  return text;
}
