import { describe, expect, it } from "vitest";
import type { ApiError } from "../src/api/problem";
import { applyView, emptyModel, type ReadModel } from "../src/model/patch";
import { Follower, type ConnectionState } from "../src/sse/follower";

const total = 12;

/** What the server sends for one event: the view first, then the event itself. */
function messages(seq: number): string[] {
  const patches =
    seq === 0
      ? [
          { op: "turn", turn: { turn: 1, runId: "r", startSeq: 0 } },
          { op: "item", turn: 1, item: { kind: "assistant", id: "a", parts: [] } },
        ]
      : [{ op: "append", turn: 1, id: "a", part: 0, kind: "text", text: `${seq} ` }];
  return [
    `event: view\ndata: ${JSON.stringify({ seq, patches })}\n\n`,
    `id: ${seq}\nevent: assistant/chunk\ndata: ${JSON.stringify({ seq, time: 1, type: "assistant/chunk" })}\n\n`,
  ];
}

function backlog(after: number, upTo = total): string[] {
  const list = ["retry: 1000\n\n"];
  for (let seq = after + 1; seq < upTo; seq++) list.push(...messages(seq));
  list.push(`event: caught_up\ndata: {"seq":${upTo - 1}}\n\n`);
  return list;
}

type Answer = (after: number, connection: number) => Response | Promise<Response>;

function stream(parts: string[], keepOpen = false): Response {
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const part of parts) controller.enqueue(new TextEncoder().encode(part));
      if (!keepOpen) controller.close();
    },
  });
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}

interface Recorded {
  events: number[];
  views: number[];
  model: ReadModel;
  states: ConnectionState[];
  delays: number[];
  afters: number[];
  headers: (string | null)[];
  fatal: ApiError | null;
  caughtUp: boolean[];
}

/** Follows until every event is there, the server ends it, or it makes no more progress. */
async function follow(answer: Answer, lastSeq = -1, until = total): Promise<Recorded> {
  const seen: Recorded = {
    events: [],
    views: [],
    model: emptyModel,
    states: [],
    delays: [],
    afters: [],
    headers: [],
    fatal: null,
    caughtUp: [],
  };
  const follower: Follower = new Follower({
    url: (after) => {
      seen.afters.push(after);
      return `/events?after=${after}`;
    },
    lastSeq,
    onView: (view) => {
      seen.views.push(view.seq);
      seen.model = applyView(seen.model, view);
    },
    onEvent: (event) => {
      seen.events.push(event.seq);
      if (event.seq >= until - 1) follower.stop();
    },
    onCaughtUp: (reconnected) => seen.caughtUp.push(reconnected),
    onState: (state) => seen.states.push(state),
    onFatal: (error) => (seen.fatal = error),
    fetch: async (_url, init) => {
      const header = new Headers(init?.headers).get("last-event-id");
      seen.headers.push(header);
      return answer(header === null ? -1 : Number(header), seen.headers.length);
    },
    sleep: async (ms) => {
      seen.delays.push(ms);
      if (seen.delays.length > 200) follower.stop();
    },
  });
  await follower.run();
  return seen;
}

const all = Array.from({ length: total }, (_, seq) => seq);
const text = all.slice(1).map((seq) => `${seq} `).join("");

function expectExactlyOnce(seen: Recorded): void {
  expect(seen.events).toEqual(all);
  expect(seen.views).toEqual(all);
  expect(seen.model.turns[0]?.items[0]).toMatchObject({ parts: [{ text }] });
}

describe("Follower", () => {
  it("delivers everything in order over one connection", async () => {
    const seen = await follow((after) => stream(backlog(after), true));
    expectExactlyOnce(seen);
    expect(seen.states).toEqual(["connecting", "live", "closed"]);
  });

  it("shows every event exactly once when the connection is cut after every message", async () => {
    for (let keep = 3; keep <= 8; keep++) {
      expectExactlyOnce(await follow((after) => stream(backlog(after).slice(0, keep))));
    }
  });

  it("survives a cut at every single byte", async () => {
    const whole = backlog(-1).join("");
    for (let cut = 0; cut < whole.length; cut += 1) {
      const seen = await follow((after, connection) =>
        connection === 1 ? stream([whole.slice(0, cut)]) : stream(backlog(after), true),
      );
      expect(seen.events).toEqual(all);
      expect(seen.views).toEqual(all);
    }
  });

  it("survives a cut between a view and its event, every time", async () => {
    let half = false;
    const seen = await follow((after) => {
      half = !half;
      return stream(backlog(after).slice(0, half ? 2 : 3));
    });
    expectExactlyOnce(seen);
  });

  it("drops what a server sends again from the beginning", async () => {
    const seen = await follow((_after, connection) =>
      stream(backlog(-1).slice(0, 1 + connection * 4), connection > 8),
    );
    expectExactlyOnce(seen);
  });

  it("starts after the snapshot and sends its position both ways", async () => {
    const seen = await follow((after) => stream(backlog(after), true), 4);
    expect(seen.events).toEqual(all.slice(5));
    expect(seen.views).toEqual(all.slice(5));
    expect(seen.afters[0]).toBe(4);
    expect(seen.headers[0]).toBe("4");
  });

  it("sends no position when nothing is known", async () => {
    const seen = await follow((after) => stream(backlog(after), true));
    expect(seen.headers[0]).toBeNull();
  });

  it("asks again when events are missing, and accepts a hole that is really there", async () => {
    const holed = (after: number): string[] => {
      const parts = ["retry: 1000\n\n"];
      for (const seq of all.filter((candidate) => candidate > after && candidate !== 5)) {
        parts.push(...messages(seq));
      }
      return parts;
    };
    const healed = await follow((after, connection) =>
      stream(connection === 1 ? holed(after) : backlog(after), true),
    );
    expectExactlyOnce(healed);
    const real = await follow((after) => stream(holed(after), true));
    expect(real.events).toEqual(all.filter((seq) => seq !== 5));
  });
});

describe("reconnecting", () => {
  it("backs off up to five seconds while nothing arrives and is quick after progress", async () => {
    const seen = await follow((after, connection) => {
      if (connection <= 6) throw new TypeError("connection refused");
      return stream(backlog(after).slice(0, 3));
    });
    expect(seen.delays.slice(0, 6)).toEqual([1000, 2000, 4000, 5000, 5000, 5000]);
    expect(seen.delays[6]).toBeLessThan(500);
    expect(seen.events).toEqual(all);
    expect(seen.states).toContain("reconnecting");
  });

  it("tries again after a server error or a garbled message", async () => {
    const seen = await follow((after, connection) => {
      if (connection === 1) return new Response("busy", { status: 503 });
      if (connection === 2) return stream(["id: 0\nevent: x\ndata: {broken\n\n"]);
      return stream(backlog(after), true);
    });
    expectExactlyOnce(seen);
    expect(seen.caughtUp.every((reconnected) => reconnected)).toBe(true);
  });

  it("ends for good on an error message, and says what it was", async () => {
    const seen = await follow(() =>
      stream([...messages(0), 'event: error\ndata: {"code":"corrupt","message":"line 3 is damaged"}\n\n']),
    );
    expect(seen.events).toEqual([0]);
    expect(seen.fatal).toMatchObject({ code: "corrupt", message: "line 3 is damaged" });
    expect(seen.states.at(-1)).toBe("error");
    expect(seen.delays).toEqual([]);
  });

  it("ends for good when the server refuses, with its own words", async () => {
    const problem = { code: "unauthorized", detail: "the token is missing", hint: "open the URL" };
    const seen = await follow(() => Response.json(problem, { status: 401 }));
    expect(seen.fatal).toMatchObject({ code: "unauthorized", hint: "open the URL" });
  });

  it("cuts a connection that stays silent for too long", async () => {
    let connections = 0;
    const events: number[] = [];
    const follower: Follower = new Follower({
      url: () => "/events",
      lastSeq: -1,
      idleMs: 20,
      onView: () => {},
      onEvent: (event) => {
        events.push(event.seq);
        if (event.seq === total - 1) follower.stop();
      },
      onCaughtUp: () => {},
      onState: () => {},
      onFatal: () => {},
      sleep: async () => {},
      fetch: async (_url, init) => {
        connections += 1;
        if (connections > 1) return stream(backlog(-1), true);
        const body = new ReadableStream<Uint8Array>({
          start(controller) {
            init?.signal?.addEventListener("abort", () => controller.error(new Error("aborted")));
          },
        });
        return new Response(body);
      },
    });
    await follower.run();
    expect(events).toEqual(all);
  });
});
