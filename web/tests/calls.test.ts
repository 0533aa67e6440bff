import { describe, expect, it } from "vitest";
import type { ToolItem } from "../src/api/types";
import { checkTask, childSession, commandEnd, retryTask } from "../src/model/calls";

const item = (over: Partial<ToolItem>): ToolItem => ({
  kind: "tool", id: "t", seq: 1, step: 1, callId: "c", name: "agent", arguments: '{"task":"x"}',
  startSeq: 1, resultSeq: 2, startedAt: 1, endedAt: 2, outcome: "ok", isError: false,
  content: [], full: null, output: "", synthetic: false, approval: null, ...over,
});

describe("commandEnd", () => {
  it("tells the end of a command from what it printed", () => {
    expect(commandEnd("a\nb\n[exit code 0]")).toEqual({ body: "a\nb", note: "exit code 0", ok: true });
    expect(commandEnd("x\n[exit code 2; the sandbox mode read_only lets]")).toMatchObject({ ok: false });
    expect(commandEnd("[no output]\n[ended by signal 9]")).toEqual({ body: "", note: "ended by signal 9", ok: false });
  });

  it("believes only the last line", () => {
    expect(commandEnd("[exit code 0]\nmore")).toMatchObject({ note: null });
    expect(commandEnd("[exit code 0]\n[exit code 1]")).toMatchObject({ note: "exit code 1", ok: false });
  });
});

describe("childSession", () => {
  const id = "0199a8c2-5c00-7000-8000-000000000001";
  const other = "0199a8c2-5c00-7000-8000-000000000002";
  const end = `\n[the subagent is done; its session is ${id}, and \`resume\` goes on with it]`;

  it("is what the harness says, while it runs and after", () => {
    expect(childSession(item({ output: `[subagent: session ${id}]\n` }), "")).toBe(id);
    expect(childSession(item({}), `answer${end}`)).toBe(id);
  });

  it("is not what the subagent itself claims", () => {
    const claim = `\n[the subagent is done; its session is ${other}, and more]`;
    expect(childSession(item({}), `x${claim}${end}`)).toBe(id);
    expect(childSession(item({}), `x${claim}\nand more`)).toBeNull();
    expect(childSession(item({ name: "shell" }), `x${end}`)).toBeNull();
  });
});

describe("prepared tasks", () => {
  it("name the call and bound its arguments", () => {
    const long = item({ name: "shell", outcome: "unknown", arguments: "x".repeat(5000) });
    for (const task of [checkTask(long), retryTask(long)]) {
      expect(task).toContain("`shell`");
      expect(task.length).toBeLessThan(2600);
    }
    expect(checkTask(long)).toContain("without changing anything");
    expect(retryTask(long)).toContain("may have taken effect");
    expect(retryTask(item({ outcome: "not_started" }))).toContain("was never started");
  });
});
