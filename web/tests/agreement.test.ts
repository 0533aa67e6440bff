import { afterEach, describe, expect, it, vi } from "vitest";
import type { Question, WaitingMessage } from "../src/api/acting";
import type { Turn } from "../src/api/types";
import { Approvals } from "../src/state/approvals";
import { Branching } from "../src/state/branching";
import { Queue } from "../src/state/queue";

interface Asked {
  method: string;
  path: string;
  body: unknown;
}

/** A server that answers by method and path. */
function serve(answers: Record<string, (asked: Asked) => Response | unknown>): Asked[] {
  const asked: Asked[] = [];
  vi.stubGlobal("fetch", async (url: string, init: RequestInit = {}) => {
    const path = url.replace("/api/agent", "").replace(/\?.*/, "");
    const method = init.method ?? "GET";
    const body: unknown = typeof init.body === "string" ? JSON.parse(init.body) : undefined;
    const request = { method, path, body };
    asked.push(request);
    const answer = answers[`${method} ${path}`]?.(request);
    if (answer instanceof Response) return answer;
    return answer === undefined ? Response.json({ code: "not_found" }, { status: 404 }) : Response.json(answer);
  });
  return asked;
}

afterEach(() => vi.unstubAllGlobals());

describe("Approvals", () => {
  const question = (approvalId: string, sessionId = "s"): Question =>
    ({ approvalId, sessionId, runId: "r", toolCallId: "c", name: "shell" }) as Question;

  it("tell of what is new, not of what was there when the page was opened", async () => {
    let approvals = [question("a")];
    serve({
      "GET /approvals": () => ({ approvals }),
      "GET /sessions": () => ({ sessions: [{ id: "s", title: "Named" }], nextCursor: null }),
    });
    const board = new Approvals();
    const told: string[] = [];
    board.onAsked = ({ approvalId }, session) => told.push(`${approvalId} of ${session?.title}`);
    await board.refresh();
    approvals = [question("a"), question("b")];
    await board.refresh();
    await board.refresh();
    expect(told).toEqual(["b of Named"]);
    approvals = [];
    await board.refresh();
    expect(board.state.get()).toMatchObject({ questions: [], loaded: true });
  });

  it("ask once more when something changes meanwhile, however often", async () => {
    const asked = serve({ "GET /approvals": () => ({ approvals: [] }) });
    const board = new Approvals();
    await Promise.all([board.refresh(), board.refresh(), board.refresh()]);
    await new Promise((resolve) => setTimeout(resolve));
    expect(asked).toHaveLength(2);
  });
});

describe("Queue", () => {
  const message: WaitingMessage = { messageId: "m", text: "old", delivery: "after_turn" };

  it("changes a message in its place", async () => {
    const asked = serve({
      "GET /sessions/s/queue": () => ({ messages: [message] }),
      "POST /sessions/s/queue": () => ({ messageId: "m", seq: 1, runId: null }),
    });
    const queue = new Queue();
    queue.show("s");
    expect(await queue.edit(message, "new")).toBe(true);
    expect(asked.find(({ method }) => method === "POST")?.body).toEqual({ messageId: "m", text: "new", delivery: "after_turn" });
    expect(queue.state.get().messages).toEqual([message]);
  });

  it("says when a message was taken before it could be changed", async () => {
    serve({
      "GET /sessions/s/queue": () => ({ messages: [] }),
      "DELETE /sessions/s/queue/m": () => Response.json({ code: "not_waiting", detail: "it does not wait" }, { status: 409 }),
    });
    const queue = new Queue();
    queue.show("s");
    expect(await queue.drop(message)).toBe(false);
    expect(queue.state.get()).toMatchObject({ messages: [], error: { code: "not_waiting", hint: "The model has it already." } });
  });
});

describe("Branching", () => {
  const turn = (startSeq: number, endSeq: number): Turn => ({ turn: 1, startSeq, endSeq, items: [] }) as unknown as Turn;

  function branching() {
    const done: string[] = [];
    const subject = new Branching();
    subject.onForked = (id, edited) => done.push(`forked ${id} ${edited}`);
    subject.onMoved = (id) => done.push(`moved ${id}`);
    subject.onBegin = (text) => done.push(`begin ${text}`);
    return { subject, done };
  }

  it("forks before a message that is sent anew", async () => {
    const asked = serve({ "POST /sessions/s/fork": () => ({ id: "f", parent: "s", atSeq: 6, closed: 0 }) });
    const { subject, done } = branching();
    subject.ask({ kind: "edit", id: "s", turn: turn(7, 12), text: "old" });
    await subject.carryOut("new");
    expect(asked[0]?.body).toEqual({ at: 6 });
    expect(done).toEqual(["forked f new"]);
    expect(subject.state.get().plan).toBeNull();
  });

  it("begins a session with a first message, which has nothing before it", async () => {
    const asked = serve({});
    const { subject, done } = branching();
    subject.ask({ kind: "edit", id: "s", turn: turn(0, 5), text: "old" });
    await subject.carryOut("new");
    expect(asked).toEqual([]);
    expect(done).toEqual(["begin new"]);
  });

  it("rewinds to the end of a turn, and keeps the question open when it is refused", async () => {
    const asked = serve({
      "POST /sessions/s/rewind": () => Response.json({ code: "session_busy", detail: "it has a run" }, { status: 409 }),
    });
    const { subject, done } = branching();
    subject.ask({ kind: "rewind", id: "s", turn: turn(0, 5) });
    await subject.carryOut();
    expect(asked[0]?.body).toEqual({ to: 5 });
    expect(done).toEqual([]);
    expect(subject.state.get()).toMatchObject({ busy: false, error: { code: "session_busy" }, plan: { kind: "rewind" } });
  });
});
