import { describe, expect, it } from "vitest";
import { errorFromProblem, sentence, toHuman } from "../src/api/problem";
import { startRun } from "../src/api/startRun";
import type { LogPage, RunStarted, Summary, Turn } from "../src/api/types";
import { emptyModel } from "../src/model/patch";
import { timedKey } from "../src/state/composer";
import { currentRun } from "../src/state/currentRun";
import { LogStore } from "../src/state/logStore";
import { hashOf, viewedFromHash } from "../src/state/route";

const started: RunStarted = {
  type: "run_started",
  runId: "r2",
  sessionId: "s",
  resumed: true,
  policy: { approvalPolicy: "on_request", sandboxMode: "read_only", provider: "p", model: "m", cwd: "/w" },
};

const summary = (id: string, updatedAt: number): Summary => ({ id, updatedAt, status: "idle" }) as Summary;
const turn = (number: number, runId: string, reason: Turn["reason"] = null): Turn =>
  ({ turn: number, runId, reason, items: [] }) as unknown as Turn;

describe("startRun", () => {
  const answer = (...parts: string[]): typeof fetch => {
    return async () =>
      new Response(
        new ReadableStream<Uint8Array>({
          start(controller) {
            for (const part of parts) controller.enqueue(new TextEncoder().encode(part));
            controller.close();
          },
        }),
      );
  };

  it("returns what the server started", async () => {
    const text = `retry: 1000\n\nevent: run_started\ndata: ${JSON.stringify(started)}\n\n`;
    expect(await startRun({ task: "x" }, answer(text.slice(0, 30), text.slice(30)))).toEqual(started);
  });

  it("reports the server's refusal in its words", async () => {
    const error = 'event: error\ndata: {"code":"session_not_found","message":"no session 1","hint":"look"}\n\n';
    await expect(startRun({ task: "x" }, answer(error))).rejects.toMatchObject({
      code: "session_not_found",
      message: "no session 1",
      hint: "look",
    });
  });

  it("does not claim anything when the connection breaks first", async () => {
    await expect(startRun({ task: "x" }, answer("retry: 1000\n\n"))).rejects.toMatchObject({ code: "unclear" });
  });
});

describe("errors", () => {
  it("become sentences with a hint", () => {
    expect(sentence("the lock is held by 42")).toBe("The lock is held by 42.");
    expect(toHuman(errorFromProblem({ detail: "stale", hint: "reload", code: "conflict" }, 409))).toEqual({
      message: "Stale.",
      hint: "Reload.",
      code: "conflict",
    });
    expect(toHuman(errorFromProblem({}, 418)).message).toContain("418");
    expect(toHuman(new TypeError("Failed to fetch")).code).toBe("unreachable");
  });
});

describe("routes", () => {
  it("round-trip any id", () => {
    for (const id of ["4786ba7e-1", "a/b c?d#e", "%"]) expect(viewedFromHash(hashOf(id))).toBe(id);
    expect(viewedFromHash(hashOf(null))).toBeNull();
    expect(viewedFromHash("#/session/%E0%A4%A")).toBeNull();
  });
});

describe("currentRun", () => {
  it("is nothing at first", () => {
    expect(currentRun(null, { id: null, model: emptyModel }, [])).toBeNull();
  });

  it("is found again after a reload, with its marker", () => {
    const model = { ...emptyModel, turns: [turn(1, "r1"), turn(2, "r2")], running: true, status: "running" };
    expect(currentRun(null, { id: "s", model }, [])).toMatchObject({ runId: "r2", resumed: true, running: true });
  });

  it("shows how the started run ended", () => {
    const model = { ...emptyModel, turns: [turn(1, "r1"), turn(2, "r2", { kind: "cancelled" })] };
    expect(currentRun(started, { id: "s", model }, [])).toMatchObject({ status: "cancelled", running: false });
  });

  it("asks the list while another session is viewed", () => {
    const run = currentRun(started, { id: "other", model: emptyModel }, [summary("s", 1)]);
    expect(run).toMatchObject({ sessionId: "s", status: "idle", running: false });
  });
});

describe("LogStore", () => {
  const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 30));

  it("loads a page once, adds live rows, and counts what is known", async () => {
    const asked: number[] = [];
    const page = async (from: number, limit: number): Promise<LogPage> => {
      asked.push(from);
      const count = Math.min(limit, 450 - from);
      return {
        lines: Array.from({ length: count }, (_, index) => ({ seq: from + index, time: 0, type: "t" })),
        next: null,
        damage: [],
      };
    };
    const log = new LogStore("s", 449, page);
    log.ensure(150, 250);
    log.ensure(150, 250);
    await settle();
    expect(asked).toEqual([0, 200]);
    log.ensure(10, 390);
    expect(asked).toEqual([0, 200]);
    log.add({ seq: 450, time: 0, type: "live" });
    await settle();
    expect(log.state.get().lastSeq).toBe(450);
    expect(log.row(450)?.type).toBe("live");
  });

  it("stops asking after a failure until someone retries", async () => {
    let calls = 0;
    const log = new LogStore("s", 10, async () => {
      calls += 1;
      throw new TypeError("down");
    });
    log.ensure(0, 10);
    await settle();
    log.ensure(0, 10);
    expect(calls).toBe(1);
    expect(log.state.get().error?.code).toBe("unreachable");
    log.retry();
    log.ensure(0, 10);
    expect(calls).toBe(2);
  });
});

describe("timedKey", () => {
  it("is a UUID of version 7 that begins with its time", () => {
    const key = timedKey(0x01_9a_d2_c4_38_00);
    expect(key).toMatch(/^019ad2c4-3800-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(timedKey(0)).not.toBe(timedKey(0));
  });
});
