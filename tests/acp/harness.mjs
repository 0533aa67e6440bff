// What all checks need: the programs, a model that answers from a script, and a client that speaks
// lines by hand and keeps everything it reads.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
export const target = process.env.CARGO_TARGET_DIR ?? join(root, "target");

export const THREADLINE = process.env.THREADLINE_BIN ?? join(target, "debug", "threadline");
const STRICT = process.env.STRICT_MODEL_BIN ?? join(target, "debug", "strict-model");

/** A folder of its own, a model and a store, as long as `use` runs. */
export async function world(use) {
  const home = mkdtempSync(join(tmpdir(), "threadline-acp-"));
  const model = spawn(STRICT, [], { stdio: ["ignore", "pipe", "inherit"] });
  try {
    const [url] = await once(createInterface({ input: model.stdout }), "line");
    const args = ["--store", join(home, "store"), "--base-url", url, "--model", "openai-chat/strict-1", "acp"];
    const work = mkdtempSync(join(tmpdir(), "threadline-acp-work-"));
    const control = url.replace(/\/v1\/?$/, "");
    const script = async (replies) => {
      const answer = await fetch(`${control}/_strict/script`, {
        method: "POST",
        body: JSON.stringify(replies),
        headers: { "content-type": "application/json" },
      });
      if (!answer.ok) throw new Error(`the script was refused: ${await answer.text()}`);
    };
    const violations = async () =>
      (await (await fetch(`${control}/_strict/state`)).json()).violations;
    const env = { ...process.env, HOME: home, XDG_CONFIG_HOME: join(home, "config"), OPENAI_API_KEY: "none" };
    await use({ home, work, args, env, script, violations });
    rmSync(work, { recursive: true, force: true });
  } finally {
    model.kill();
    rmSync(home, { recursive: true, force: true });
  }
}

/** An editor: texts that are not saved, and terminals. */
export class Editor {
  buffers = new Map();
  terminals = new Map();
  /** Every method it was asked for, in order. */
  asked = [];

  /** Answers a request, or throws what it refuses it with. */
  async answer(method, params) {
    this.asked.push(method);
    const terminal = this.terminals.get(params.terminalId);
    switch (method) {
      case "fs/read_text_file":
        return { content: this.buffers.get(params.path) ?? readFileSync(params.path, "utf8") };
      case "fs/write_text_file":
        this.buffers.delete(params.path);
        writeFileSync(params.path, params.content);
        return {};
      case "terminal/create":
        return { terminalId: this.create(params) };
      case "terminal/output":
        return { output: terminal.output, truncated: false, exitStatus: terminal.status };
      case "terminal/wait_for_exit":
        return terminal.exited;
      case "terminal/kill":
        end(terminal);
        return {};
      case "terminal/release":
        end(terminal);
        this.terminals.delete(params.terminalId);
        return {};
      default:
        throw new Error(`no such method: ${method}`);
    }
  }

  create({ command, args, cwd }) {
    const terminalId = `terminal-${this.asked.length}`;
    // An editor has the environment of its person.
    const env = { ...globalThis.process.env, EDITOR_TOKEN: "s3cret" };
    const process = spawn(command, args, { cwd, env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    const terminal = { process, output: "" };
    for (const stream of [process.stdout, process.stderr]) {
      stream.on("data", (piece) => (terminal.output += piece));
    }
    terminal.exited = once(process, "close").then(([exitCode, signal]) => {
      terminal.status = { exitCode, signal };
      return terminal.status;
    });
    this.terminals.set(terminalId, terminal);
    return terminalId;
  }

  /** Ends what is left, as an editor does whose agent is gone. */
  close() {
    for (const terminal of this.terminals.values()) end(terminal);
  }
}

/** Ends a command with all that it has started. */
function end({ process: { pid } }) {
  try {
    process.kill(-pid, "SIGKILL");
  } catch (error) {
    if (error.code !== "ESRCH") throw error;
  }
}

/** A client by hand. */
export class Client {
  constructor({ args, env, work }) {
    this.process = spawn(THREADLINE, args, { env, cwd: work, stdio: ["pipe", "pipe", "pipe"] });
    this.exited = once(this.process, "exit");
    this.stderr = "";
    this.process.stderr.on("data", (piece) => (this.stderr += piece));
    /** Everything written and read, in order. */
    this.log = [];
    this.waiting = [];
    this.next = 1;
    this.decide = () => "approve";
    /** Who answers for files and terminals. */
    this.editor = undefined;
    const lines = createInterface({ input: this.process.stdout });
    this.closed = once(lines, "close");
    lines.on("line", (line) => this.take(line));
  }

  take(line) {
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      message = { unreadable: line };
    }
    this.log.push({ from: "agent", message, line });
    if (message.method === "session/request_permission") this.permit(message);
    if (this.editor && /^(fs|terminal)\//.test(message.method)) this.serve(message);
    this.waiting = this.waiting.filter((wait) => !wait(message));
  }

  permit(question) {
    const option = this.decide(question.params);
    if (option === undefined) return;
    const outcome =
      option === "cancelled" ? { outcome: "cancelled" } : { outcome: "selected", optionId: option };
    this.send({ jsonrpc: "2.0", id: question.id, result: { outcome } });
  }

  async serve({ id, method, params }) {
    try {
      this.send({ jsonrpc: "2.0", id, result: await this.editor.answer(method, params) });
    } catch (error) {
      this.send({ jsonrpc: "2.0", id, error: { code: -32603, message: error.message } });
    }
  }

  raw(bytes) {
    this.process.stdin.write(bytes);
  }

  send(message) {
    this.log.push({ from: "client", message });
    this.raw(`${JSON.stringify(message)}\n`);
  }

  notify(method, params) {
    this.send({ jsonrpc: "2.0", method, params });
  }

  /** Waits for a message that fits and is still to come. */
  until(fits) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`waited too long for ${fits}`)), 60_000);
      this.waiting.push((message) => {
        if (!fits(message)) return false;
        clearTimeout(timer);
        resolve(message);
        return true;
      });
    });
  }

  update(kind, more = () => true) {
    return this.until((m) => m.params?.update?.sessionUpdate === kind && more(m.params.update));
  }

  async ask(method, params) {
    const id = this.next++;
    const answer = this.until((m) => m.id === id && m.method === undefined);
    this.send({ jsonrpc: "2.0", id, method, params });
    return answer;
  }

  async must(method, params) {
    const answer = await this.ask(method, params);
    if (answer.error) throw new Error(`${method}: ${JSON.stringify(answer.error)}`);
    return answer.result;
  }

  prompt(sessionId, text) {
    return this.ask("session/prompt", { sessionId, prompt: [{ type: "text", text }] });
  }

  updates(from, to = this.log.length) {
    return this.log
      .slice(from, to)
      .filter((entry) => entry.message.method === "session/update")
      .map((entry) => entry.message.params.update);
  }

  async end() {
    this.process.stdin.end();
    const [code] = await this.exited;
    await this.closed;
    return code;
  }

  async kill() {
    this.process.kill("SIGKILL");
    await this.exited;
    await this.closed;
  }
}

/** Counts checks as `cargo test` prints them. */
export class Checks {
  passed = 0;
  failed = 0;

  check(name, good, detail) {
    if (good) {
      this.passed += 1;
    } else {
      this.failed += 1;
      console.log(`FAILED ${name}${detail === undefined ? "" : `: ${JSON.stringify(detail)}`}`);
    }
  }

  conclude() {
    const word = this.failed === 0 ? "ok" : "FAILED";
    console.log(`test result: ${word}. ${this.passed} passed; ${this.failed} failed`);
    process.exitCode = this.failed === 0 ? 0 : 1;
  }
}

export const file = (path, text) => writeFileSync(path, text);
