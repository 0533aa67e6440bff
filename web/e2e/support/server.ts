import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type {
  AgentInput,
  LogPage,
  RequestDetail,
  RequestHead,
  Summary,
  TurnsResponse,
} from "../../src/api/types";
import { Program, program } from "./processes";

/** The folders of one test: what the server keeps, and where its agent works. */
export class Place {
  readonly root = mkdtempSync(join(tmpdir(), "threadline-e2e-"));
  readonly home: string;
  readonly cwd = join(this.root, "work");

  /** The store may be one that is there already; it is not removed then. */
  constructor(home?: string) {
    this.home = home ?? join(this.root, "store");
    mkdirSync(this.home, { recursive: true });
    mkdirSync(this.cwd);
  }

  file(name: string): string {
    return join(this.cwd, name);
  }

  /** The log of a session. */
  log(sessionId: string): string {
    const found = readdirSync(this.home, { recursive: true, encoding: "utf8" }).find((path) =>
      path.endsWith(join(sessionId, "log.jsonl")),
    );
    if (found === undefined) throw new Error(`session ${sessionId} has no log`);
    return join(this.home, found);
  }

  remove(): void {
    rmSync(this.root, { recursive: true, force: true });
  }
}

/** The same when a server starts again, so that the page stays signed in. */
const usualToken = "e2e-0123456789abcdef";

export interface ServerOptions {
  /** Base URL of a model; the offline provider without. */
  modelUrl?: string;
  port?: number;
  token?: string;
}

/** The real binary, serving. */
export class Server {
  readonly #place: Place;
  #options: ServerOptions;
  #program: Program;
  #origin: string;

  private constructor(place: Place, options: ServerOptions, running: Program, origin: string) {
    this.#place = place;
    this.#options = options;
    this.#program = running;
    this.#origin = origin;
  }

  static async start(place: Place, options: ServerOptions = {}): Promise<Server> {
    const [running, origin] = await launch(place, options);
    return new Server(place, options, running, origin);
  }

  get origin(): string {
    return this.#origin;
  }

  /** The address that `serve` prints, at another origin when a proxy is in between. */
  url(origin = this.#origin): string {
    return `${origin}/?token=${this.#token}`;
  }

  get #token(): string {
    return this.#options.token ?? usualToken;
  }

  get #auth(): Record<string, string> {
    return { authorization: `Bearer ${this.#token}` };
  }

  kill(): Promise<void> {
    return this.#program.kill();
  }

  /** Starts again on the same store and port. */
  async restart(token = this.#token): Promise<void> {
    this.#options = { ...this.#options, token };
    const port = Number(new URL(this.#origin).port);
    [this.#program, this.#origin] = await launch(this.#place, { ...this.#options, port });
  }

  async get<T>(path: string): Promise<T> {
    const response = await fetch(`${this.#origin}/api/agent${path}`, { headers: this.#auth });
    if (!response.ok) throw new Error(`GET ${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as T;
  }

  turns(id: string): Promise<TurnsResponse> {
    return this.get(`/sessions/${id}/turns`);
  }

  log(id: string): Promise<LogPage> {
    return this.get(`/sessions/${id}/log?from=0&limit=1000`);
  }

  async sessions(archived = "all"): Promise<Summary[]> {
    return (await this.get<{ sessions: Summary[] }>(`/sessions?archived=${archived}`)).sessions;
  }

  requests(id: string): Promise<{ requests: RequestHead[] }> {
    return this.get(`/sessions/${id}/requests`);
  }

  request(id: string, step: number): Promise<RequestDetail> {
    return this.get(`/sessions/${id}/requests/${step}`);
  }

  /** Forks a session at its end and returns the fork's id. */
  async fork(id: string): Promise<string> {
    const response = await fetch(`${this.#origin}/api/agent/sessions/${id}/fork`, {
      method: "POST",
      headers: { ...this.#auth, "content-type": "application/json" },
      body: "{}",
    });
    if (!response.ok) throw new Error(`fork ${id}: ${response.status} ${await response.text()}`);
    return ((await response.json()) as { id: string }).id;
  }

  /** Runs one turn to its end without the page and returns the session's id. */
  async run(input: AgentInput): Promise<string> {
    const response = await fetch(`${this.#origin}/api/agent/stream`, {
      method: "POST",
      headers: { ...this.#auth, "content-type": "application/json" },
      body: JSON.stringify(input),
    });
    const text = await response.text();
    const id = /"sessionId":"([^"]+)"/.exec(text)?.[1];
    if (id === undefined || !text.includes("event: run_finished")) throw new Error(text);
    return id;
  }
}

async function launch(place: Place, options: ServerOptions): Promise<[Program, string]> {
  const provider =
    options.modelUrl === undefined
      ? ["--provider", "offline"]
      : ["--provider", "openai-chat", "--base-url", options.modelUrl, "--model", "strict"];
  const token = options.token ?? usualToken;
  const args = ["serve", "--listen", `127.0.0.1:${options.port ?? 0}`, "--token", token, ...provider];
  const running = new Program(program("THREADLINE_BIN", "threadline"), args, {
    cwd: place.cwd,
    env: {
      PATH: process.env["PATH"] ?? "",
      HOME: place.root,
      THREADLINE_HOME: place.home,
      NO_COLOR: "1",
    },
  });
  return [running, await running.line(/(http:\/\/[^/\s]+)\//)];
}
