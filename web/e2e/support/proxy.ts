import { createServer, request, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** One message of an event stream, as it went by. */
export interface Passing {
  /** `view:7`, `event:7`, or the name of a control message. */
  key: string;
  /** Connection it went by on, from 1. */
  connection: number;
  /** Position on its connection, from 1. */
  position: number;
}

export type Fate = "pass" | "cut after" | "cut inside";

/** Decides what happens to the connection at a message. */
export type Cutter = (message: Passing) => Fate;

/** A proxy that breaks the connections on which the page follows a session. */
export class CuttingProxy {
  readonly cuts: { key: string; fate: Fate }[] = [];
  connections = 0;
  cutter: Cutter | undefined;
  readonly #target: URL;
  readonly #server: Server;

  private constructor(target: string) {
    this.#target = new URL(target);
    this.#server = createServer((incoming, outgoing) => this.#forward(incoming, outgoing));
  }

  static async start(target: string): Promise<CuttingProxy> {
    const proxy = new CuttingProxy(target);
    await new Promise<void>((ready) => proxy.#server.listen(0, "127.0.0.1", ready));
    return proxy;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((closed) => this.#server.close(closed));
  }

  #forward(incoming: IncomingMessage, outgoing: ServerResponse): void {
    const forwarded = request(
      {
        host: this.#target.hostname,
        port: this.#target.port,
        method: incoming.method,
        path: incoming.url,
        headers: incoming.headers,
        agent: false,
      },
      (answer) => {
        outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
        const follows = /\/sessions\/[^/]+\/events/.test(incoming.url ?? "");
        if (follows && answer.statusCode === 200) this.#cutUp(answer, outgoing);
        else answer.pipe(outgoing);
        answer.on("error", () => outgoing.destroy());
      },
    );
    forwarded.on("error", () => outgoing.destroy());
    outgoing.on("close", () => forwarded.destroy());
    incoming.pipe(forwarded);
  }

  #cutUp(answer: IncomingMessage, outgoing: ServerResponse): void {
    const connection = ++this.connections;
    let position = 0;
    let pending = "";
    let done = false;
    answer.setEncoding("utf8");
    answer.on("end", () => outgoing.end());
    answer.on("data", (text: string) => {
      pending += text;
      while (!done && pending.includes("\n\n")) {
        const end = pending.indexOf("\n\n") + 2;
        const frame = pending.slice(0, end);
        pending = pending.slice(end);
        const key = keyOf(frame);
        if (key === null) {
          // A cut connection is tried again soon, so that a test with many cuts is short.
          outgoing.write(frame.replace(/^retry: .*$/m, "retry: 10"));
          continue;
        }
        position += 1;
        const fate = this.cutter?.({ key, connection, position }) ?? "pass";
        if (fate === "pass") {
          outgoing.write(frame);
          continue;
        }
        done = true;
        this.cuts.push({ key, fate });
        const bytes = Buffer.from(frame);
        const sent = fate === "cut after" ? bytes : bytes.subarray(0, Math.floor(bytes.length / 2));
        // Both ways in which a connection ends: in good order, and broken off.
        if (connection % 2 === 0) outgoing.end(sent);
        else outgoing.write(sent, () => outgoing.destroy());
      }
    });
  }
}

/** Returns null for what is no message. */
function keyOf(frame: string): string | null {
  const field = (name: string): string | undefined => new RegExp(`^${name}: (.*)$`, "m").exec(frame)?.[1];
  const id = field("id");
  if (id !== undefined) return `event:${id}`;
  const name = field("event");
  if (name !== "view") return name ?? null;
  return `view:${/"seq":(\d+)/.exec(field("data") ?? "")?.[1]}`;
}
