import { describe, expect, it } from "vitest";
import type { AssistantItem, Item, Turn, UserItem } from "../src/api/types";
import { before, holds, sizeOf, trimPages, trimTail, weigh, type Stretch } from "../src/model/window";

const user = (seq: number, text = "u"): UserItem => ({
  kind: "user",
  id: `seq:${seq}`,
  seq,
  source: "user",
  content: [{ type: "text", text }],
});

const said = (seq: number, text = "a"): AssistantItem => ({
  kind: "assistant",
  id: `step:${seq}`,
  seq,
  step: seq,
  streaming: false,
  interrupted: false,
  stopReason: "stop",
  model: null,
  usage: null,
  parts: [{ kind: "text", text }],
});

const turn = (number: number, startSeq: number, items: Item[], endSeq: number | null = startSeq + 9): Turn => ({
  turn: number,
  runId: `r${number}`,
  startSeq,
  endSeq,
  startedAt: 0,
  endedAt: endSeq,
  context: {},
  reason: endSeq === null ? null : { kind: "completed" },
  usage: { inputTokens: 0, outputTokens: 0 },
  items,
} as Turn);

const ten = (number: number): Turn => turn(number, number * 10, [user(number * 10 + 1), said(number * 10 + 5)]);
const page = (from: number, to: number, turns: Turn[], cut = false): Stretch => ({ from, to, turns, cut });

describe("trimPages", () => {
  const pages = [page(0, 10, [ten(0)]), page(10, 20, [ten(1)]), page(20, 30, [ten(2)])];

  it("keeps everything within the budget", () => {
    expect(trimPages(pages, "back", { items: 9, chars: 100 })).toHaveLength(3);
  });

  it("lets go of the far side, and never of the page that is read", () => {
    expect(trimPages(pages, "back", { items: 6, chars: 100 }).map((kept) => kept.from)).toEqual([0, 10]);
    expect(trimPages(pages, "front", { items: 6, chars: 100 }).map((kept) => kept.from)).toEqual([10, 20]);
    expect(trimPages(pages, "front", { items: 0, chars: 0 }).map((kept) => kept.from)).toEqual([20]);
  });

  it("counts texts", () => {
    const long = page(0, 10, [turn(0, 0, [user(1, "x".repeat(500))])]);
    expect(trimPages([long, page(10, 20, [ten(1)])], "front", { items: 99, chars: 400 })).toHaveLength(1);
  });
});

describe("trimTail", () => {
  it("keeps a tail within its budget as it is", () => {
    const turns = [ten(1), ten(2)];
    expect(trimTail(turns, 10, { items: 6, chars: 100 })).toEqual({ turns, from: 10 });
  });

  it("cuts where a turn begins", () => {
    const turns = [1, 2, 3, 4].map(ten);
    const { turns: kept, from } = trimTail(turns, 10, { items: 11, chars: 1000 });
    expect(kept.map((left) => left.turn)).toEqual([3, 4]);
    expect(from).toBe(30);
  });

  it("cuts a long turn before a message, so that a call stays with it", () => {
    const items = Array.from({ length: 40 }, (_, at) => (at % 2 === 0 ? user(at) : said(at)));
    const { turns, from } = trimTail([turn(1, 0, items, null)], 0, { items: 20, chars: 1000 });
    expect(turns[0]?.items[0]).toMatchObject({ kind: "assistant", seq: from });
    expect(turns[0]?.items.length).toBeLessThanOrEqual(16);
    expect(turns[0]?.items.length).toBeGreaterThanOrEqual(13);
    expect(turns[0]?.items.at(-1)).toBe(items.at(-1));
  });

  it("leaves a turn that has no message to cut at", () => {
    const turns = [turn(1, 0, Array.from({ length: 50 }, (_, at) => user(at)), null)];
    expect(trimTail(turns, 0, { items: 10, chars: 1000 })).toEqual({ turns, from: 0 });
  });
});

describe("before", () => {
  const whole = page(10, 40, [ten(1), ten(2), ten(3)]);

  it("takes what comes before an event", () => {
    expect(before(whole, 40)).toBe(whole);
    expect(before(whole, 10)).toBeNull();
    expect(before(whole, 30)).toMatchObject({ to: 30, cut: false, turns: [{ turn: 1 }, { turn: 2 }] });
  });

  it("cuts a turn in two", () => {
    const front = before(whole, 25);
    expect(front).toMatchObject({ to: 25, cut: true });
    expect(front?.turns.at(-1)?.items.map((item) => item.seq)).toEqual([21]);
  });
});

describe("measures", () => {
  it("count items with their turns, and texts", () => {
    expect(weigh([turn(1, 0, [user(1, "abc"), said(2, "de")])])).toEqual({ items: 3, chars: 5 });
    expect(sizeOf(user(1, "abc"))).toBe(3);
  });

  it("know what a stretch has", () => {
    expect([9, 10, 19, 20].map((seq) => holds({ from: 10, to: 20 }, seq))).toEqual([false, true, true, false]);
  });
});
