import { spawn, type ChildProcessByStdio } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { createInterface } from "node:readline";
import { resolve } from "node:path";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../..", import.meta.url));

/** The path of a program: what the environment names, else what `cargo build` makes. */
export function program(variable: string, name: string): string {
  const path = resolve(root, process.env[variable] ?? `target/debug/${name}`);
  if (!existsSync(path)) throw new Error(`${path} is missing; build it, or name it in ${variable}`);
  return path;
}

type Child = ChildProcessByStdio<null, Readable, Readable>;

/** A program that a test started. It is only ever ended by its own process id. */
export class Program {
  readonly #child: Child;
  readonly #exited: Promise<unknown>;
  #printed = "";

  constructor(path: string, args: readonly string[], options: { cwd: string; env: Record<string, string> }) {
    this.#child = spawn(path, args, { ...options, stdio: ["ignore", "pipe", "pipe"] });
    this.#exited = once(this.#child, "exit");
    this.#child.stderr.on("data", (data: Buffer) => (this.#printed += data.toString()));
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error("the program did not start");
    return this.#child.pid;
  }

  /** What the program said on standard error. */
  get printed(): string {
    return this.#printed;
  }

  /** Waits for a line of standard output and returns what the pattern found in it. */
  async line(pattern: RegExp): Promise<string> {
    const lines = createInterface({ input: this.#child.stdout });
    for await (const line of lines) {
      const found = pattern.exec(line);
      if (found === null) continue;
      // From here on nobody reads; the pipe must not fill up.
      lines.close();
      this.#child.stdout.resume();
      return found[1] ?? found[0];
    }
    throw new Error(`the program ended before it printed ${pattern}: ${this.#printed}`);
  }

  /** kill -9, and waits until the process is gone. */
  async kill(): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      this.#child.kill("SIGKILL");
      await this.#exited;
    }
  }
}

export function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
