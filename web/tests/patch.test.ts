import { describe, expect, it } from "vitest";
import type { AssistantItem, Patch, ToolItem, Turn, TurnHead } from "../src/api/types";
import {
  applyPatch,
  applyView,
  emptyModel,
  fromSnapshot,
  maxLiveOutput,
  type ReadModel,
} from "../src/model/patch";

const head = (turn: number, over: Partial<TurnHead> = {}): TurnHead => ({
  turn,
  runId: `run-${turn}`,
  startSeq: turn * 10,
  endSeq: null,
  startedAt: 1,
  endedAt: null,
  context: null,
  reason: null,
  usage: { inputTokens: 0, outputTokens: 0 },
  ...over,
});

const assistant = (id: string): AssistantItem => ({
  kind: "assistant",
  id,
  seq: 1,
  step: 1,
  streaming: true,
  interrupted: false,
  stopReason: null,
  model: null,
  usage: null,
  parts: [],
});

const tool = (id: string): ToolItem => ({
  kind: "tool",
  id,
  seq: 2,
  step: 1,
  callId: "call",
  name: "shell",
  arguments: "{}",
  startSeq: 2,
  resultSeq: null,
  startedAt: 1,
  endedAt: null,
  outcome: null,
  isError: false,
  content: [],
  full: null,
  output: "",
  synthetic: false,
  approval: null,
});

const model = (...patches: Patch[]): ReadModel => patches.reduce(applyPatch, emptyModel);
const items = (state: ReadModel, turn = 1): Turn["items"] =>
  state.turns.find((candidate) => candidate.turn === turn)?.items ?? [];

describe("applyView", () => {
  it("applies a view once, whatever is sent again", () => {
    const view = {
      seq: 5,
      patches: [
        { op: "turn", turn: head(1) },
        { op: "item", turn: 1, item: assistant("a") },
        { op: "append", turn: 1, id: "a", part: 0, kind: "text", text: "hi" },
      ] satisfies Patch[],
    };
    const once = applyView(emptyModel, view);
    expect(applyView(once, view)).toBe(once);
    expect(applyView(once, { seq: 4, patches: [{ op: "status", status: "running", running: true }] })).toBe(once);
    expect(once.viewSeq).toBe(5);
  });

  it("ignores what the snapshot already contains", () => {
    const state = fromSnapshot({ turns: [], from: 0, lastSeq: 9, running: false, status: "idle" });
    expect(applyView(state, { seq: 9, patches: [{ op: "turn", turn: head(1) }] })).toBe(state);
  });
});

describe("turn", () => {
  it("adds turns in order and keeps the items on an update", () => {
    const state = model(
      { op: "turn", turn: head(2) },
      { op: "turn", turn: head(1) },
      { op: "item", turn: 1, item: tool("t") },
      { op: "turn", turn: head(1, { endSeq: 19, reason: { kind: "completed" } }) },
    );
    expect(state.turns.map((turn) => turn.turn)).toEqual([1, 2]);
    expect(state.turns[0]?.reason?.kind).toBe("completed");
    expect(items(state)).toHaveLength(1);
  });
});

describe("item", () => {
  it("replaces by id in place and appends new ones", () => {
    const state = model(
      { op: "turn", turn: head(1) },
      { op: "item", turn: 1, item: assistant("a") },
      { op: "item", turn: 1, item: tool("t") },
      { op: "item", turn: 1, item: { ...assistant("a"), streaming: false } },
    );
    expect(items(state).map((item) => item.id)).toEqual(["a", "t"]);
    expect(items(state)[0]).toMatchObject({ streaming: false });
  });

  it("passes over what lies before the part that is here", () => {
    const snapshot = { turns: [{ ...head(7), startSeq: 3, items: [] }], from: 40, lastSeq: 60 };
    const state = fromSnapshot({ ...snapshot, running: true, status: "running" });
    const next = applyView(state, {
      seq: 61,
      patches: [
        { op: "turn", turn: { ...head(6), startSeq: 1 } },
        { op: "item", turn: 7, item: { ...tool("old"), seq: 39 } },
        { op: "item", turn: 7, item: { ...tool("new"), seq: 61 } },
      ],
    });
    expect(next.turns.map((turn) => turn.turn)).toEqual([7]);
    expect(items(next, 7).map((item) => item.id)).toEqual(["new"]);
    expect(next.arrived).toBe(1);
  });

  it("leaves other turns untouched, so they need no new rendering", () => {
    const before = model({ op: "turn", turn: head(1) }, { op: "turn", turn: head(2) });
    const after = applyPatch(before, { op: "item", turn: 2, item: tool("t") });
    expect(after.turns[0]).toBe(before.turns[0]);
  });

  it("ignores an unknown turn", () => {
    expect(applyPatch(emptyModel, { op: "item", turn: 7, item: tool("t") })).toBe(emptyModel);
  });
});

describe("append", () => {
  const base = model(
    { op: "turn", turn: head(1) },
    { op: "item", turn: 1, item: assistant("a") },
    { op: "item", turn: 1, item: tool("t") },
  );
  const append = (state: ReadModel, part: number, kind: "text" | "reasoning", text: string): ReadModel =>
    applyPatch(state, { op: "append", turn: 1, id: "a", part, kind, text });

  it("creates parts and adds to them", () => {
    let state = append(base, 0, "reasoning", "let me ");
    state = append(state, 0, "reasoning", "think");
    state = append(state, 1, "text", "Hello");
    expect(items(state)[0]).toMatchObject({
      parts: [
        { kind: "reasoning", text: "let me think" },
        { kind: "text", text: "Hello" },
      ],
    });
  });

  it("creates a part beyond the next one without leaving a hole", () => {
    expect(items(append(base, 2, "text", "x"))[0]).toMatchObject({
      parts: [{ text: "" }, { text: "" }, { text: "x" }],
    });
  });

  it("never changes the state it was given", () => {
    append(base, 0, "text", "x");
    expect(items(base)[0]).toMatchObject({ parts: [] });
  });

  it("adds output to a tool and bounds it", () => {
    const output = (state: ReadModel, text: string): ReadModel =>
      applyPatch(state, { op: "append", turn: 1, id: "t", part: 0, kind: "output", text });
    const state = output(output(base, "one\n"), "two\n");
    expect(items(state)[1]).toMatchObject({ output: "one\ntwo\n" });
    const flooded = output(state, "x".repeat(maxLiveOutput) + "end");
    const item = items(flooded)[1];
    expect(item?.kind === "tool" && item.output.length).toBe(maxLiveOutput);
    expect(item?.kind === "tool" && item.output.endsWith("end")).toBe(true);
  });

  it("ignores an unknown item and an append of the wrong kind", () => {
    const wrong = applyPatch(base, { op: "append", turn: 1, id: "t", part: 0, kind: "text", text: "x" });
    expect(items(wrong)).toEqual(items(base));
    const unknown = applyPatch(base, { op: "append", turn: 1, id: "?", part: 0, kind: "output", text: "x" });
    expect(items(unknown)).toEqual(items(base));
  });
});

describe("status and the future", () => {
  it("sets the status", () => {
    expect(model({ op: "status", status: "waiting", running: true })).toMatchObject({
      status: "waiting",
      running: true,
    });
  });

  it("skips a kind of patch it does not know", () => {
    const patches = [{ op: "sparkle" } as unknown as Patch, { op: "turn", turn: head(1) } as Patch];
    expect(applyView(emptyModel, { seq: 0, patches }).turns).toHaveLength(1);
  });
});
