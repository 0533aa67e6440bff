import { describe, expect, it } from "vitest";
import type { AssistantItem, Item, ToolItem, Turn, UserItem } from "../src/api/types";
import { estimateRow, rowOf, rowsOf, type Row } from "../src/model/rows";
import type { Place } from "../src/state/route";
import type { Stretch } from "../src/model/window";

const user = (seq: number, source: UserItem["source"] = "user"): UserItem => ({
  kind: "user", id: `seq:${seq}`, seq, source, content: [{ type: "text", text: "u" }],
});
const said = (seq: number, text = "a", streaming = false): AssistantItem => ({
  kind: "assistant", id: `step:${seq}`, seq, step: seq, streaming, interrupted: false,
  stopReason: "stop", model: null, usage: null, parts: [{ kind: "text", text }],
});
const tool = (seq: number, over: Partial<ToolItem> = {}): ToolItem => ({
  kind: "tool", id: `call:${seq}:0`, seq, step: 1, callId: "c", name: "shell", arguments: "{}",
  startSeq: seq + 1, resultSeq: seq + 3, startedAt: 0, endedAt: 1, outcome: "ok", isError: false,
  content: [], full: null, output: "", synthetic: false, approval: null, ...over,
});
const turn = (number: number, startSeq: number, items: Item[], kind: string | null = "completed"): Turn => ({
  turn: number, runId: `r${number}`, startSeq, endSeq: kind === null ? null : startSeq + 9,
  startedAt: 0, endedAt: null, context: {}, reason: kind === null ? null : { kind },
  usage: { inputTokens: 0, outputTokens: 0 }, items,
} as Turn);
const page = (from: number, to: number, turns: Turn[], cut = false): Stretch => ({ from, to, turns, cut });

const rows = (tail: Stretch, over: { pages?: Stretch[]; gap?: boolean; running?: boolean; folded?: number[] } = {}): Row[] =>
  rowsOf({
    older: { pages: over.pages ?? [], gap: over.gap ?? false },
    tail,
    running: over.running ?? false,
    folded: new Set(over.folded),
  });
const keys = (list: Row[]): string[] => list.map((row) => row.key);

describe("rowsOf", () => {
  it("lists heads, items and unusual ends", () => {
    const tail = page(0, 20, [turn(1, 0, [user(1), said(5)]), turn(2, 10, [user(11)], "cancelled")]);
    expect(keys(rows(tail))).toEqual([
      "t1:head", "t1:seq:1", "t1:step:5", "t2:head", "t2:seq:11", "t2:end", "t2:follow",
    ]);
    expect(rows(page(0, 0, []))).toEqual([]);
  });

  it("shows that a run is alive while nothing else moves", () => {
    const running = (items: Item[]): string[] =>
      keys(rows(page(0, 9, [turn(1, 0, items, null)]), { running: true }));
    expect(running([user(1)])).toContain("t1:quiet");
    expect(running([user(1), said(5, "a", true)])).not.toContain("t1:quiet");
    expect(running([user(1), tool(5, { outcome: null })])).not.toContain("t1:quiet");
    expect(running([user(1), tool(5)])).toContain("t1:quiet");
    expect(running([user(1)])).not.toContain("t1:end");
  });

  it("shows a turn that two pages share once, with the head that knows how it stands", () => {
    const first = page(0, 6, [turn(1, 0, [user(1), said(5)], null)], true);
    const tail = page(6, 10, [turn(1, 0, [said(7)])]);
    const list = rows(tail, { pages: [first] });
    expect(keys(list)).toEqual(["t1:head", "t1:seq:1", "t1:step:5", "t1:step:7"]);
    expect(list[0]).toMatchObject({ kind: "head", isCut: false, turn: { reason: { kind: "completed" } } });
  });

  it("shows a message once that one page has whole and the page before in part", () => {
    const first = page(0, 7, [turn(1, 0, [user(1), said(7, "ha")], null)], true);
    const tail = page(7, 10, [turn(1, 0, [said(7, "half")])]);
    const list = keys(rows(tail, { pages: [first] }));
    expect(list).toEqual([...new Set(list)]);
  });

  it("ends where something is missing, and claims no end of a turn that it has not seen", () => {
    const list = rows(page(50, 60, [turn(6, 50, [user(51)])]), {
      pages: [page(0, 6, [turn(1, 0, [user(1)], null)], true)],
      gap: true,
    });
    expect(keys(list)).toEqual(["t1:head", "t1:seq:1", "gap"]);
    expect(list[0]).toMatchObject({ isCut: true });
  });

  it("keeps keys whatever is put in front", () => {
    const tail = page(10, 20, [turn(2, 10, [user(11), said(15)])]);
    const alone = keys(rows(tail));
    const more = keys(rows(tail, { pages: [page(0, 10, [turn(1, 0, [user(1)])])] }));
    expect(more.slice(-3)).toEqual(alone.slice(-3));
    expect(new Set(more).size).toBe(more.length);
  });

  it("has no head for a turn that began before what is here, so that none changes its place", () => {
    const tail = page(6, 10, [turn(1, 0, [said(7)])]);
    expect(keys(rows(tail))).toEqual(["t1:step:7"]);
    expect(keys(rows(tail, { pages: [page(0, 6, [turn(1, 0, [user(1)], null)], true)] }))).toEqual([
      "t1:head", "t1:seq:1", "t1:step:7",
    ]);
  });

  it("folds a turn to what was asked and answered, and never hides an unknown outcome", () => {
    const items = [user(1, "context"), user(2), said(3, ""), tool(3), tool(4, { outcome: "unknown" }), said(5), said(6, "end")];
    const list = rows(page(0, 9, [turn(1, 0, items)]), { folded: [1] });
    expect(list.flatMap((row) => (row.kind === "item" ? [row.item.id] : []))).toEqual(["seq:2", "call:4:0", "step:6"]);
    expect(list.find((row) => row.kind === "folded")).toMatchObject({ count: 4 });
  });
});

describe("rowOf", () => {
  const list = rows(page(0, 40, [
    turn(1, 0, [user(1), said(5), tool(5)]),
    turn(2, 10, [user(11), said(15)], "error"),
  ]));
  const key = (target: Place): string | undefined => list[rowOf(list, target)]?.key;

  it("finds turns", () => {
    expect(key({ turn: 2 })).toBe("t2:head");
    expect(key({ turn: 3 })).toBeUndefined();
  });

  it("finds the row that shows an event", () => {
    expect(key({ event: 0 })).toBe("t1:head");
    expect(key({ event: 1 })).toBe("t1:seq:1");
    expect(key({ event: 3 })).toBe("t1:seq:1");
    expect(key({ event: 5 })).toBe("t1:step:5");
    expect(key({ event: 6 })).toBe("t1:call:5:0");
    expect(key({ event: 8 })).toBe("t1:call:5:0");
    expect(key({ event: 12 })).toBe("t2:seq:11");
    expect(key({ event: 19 })).toBe("t2:end");
  });
});

describe("estimateRow", () => {
  it("gives longer answers more room, and silent ones none", () => {
    const row = (item: Item): Row => ({ kind: "item", key: "k", turn: turn(1, 0, []), item });
    expect(estimateRow(row(said(1, "x".repeat(5000))))).toBeGreaterThan(estimateRow(row(said(1, "x"))));
    expect(estimateRow(row({ ...said(1), parts: [] }))).toBe(0);
  });
});
