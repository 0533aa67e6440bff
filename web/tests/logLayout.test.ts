import { describe, expect, it } from "vitest";
import { layoutLog, rowAt, rowOfEvent } from "../src/model/logLayout";

const turn = (number: number, startSeq: number, endSeq: number | null) => ({ turn: number, startSeq, endSeq });

function flatten(layout: ReturnType<typeof layoutLog>): string[] {
  return Array.from({ length: layout.rows }, (_, index) => {
    const row = rowAt(layout, index);
    if (row === null) return "none";
    return row.kind === "event" ? String(row.seq) : `turn ${row.segment.turn ?? "-"}`;
  });
}

describe("layoutLog", () => {
  it("puts every event under its turn exactly once", () => {
    const layout = layoutLog([turn(1, 0, 2), turn(2, 4, null)], 6);
    expect(flatten(layout)).toEqual(["turn 1", "0", "1", "2", "turn -", "3", "turn 2", "4", "5", "6"]);
  });

  it("shows events before the first turn and after the last", () => {
    expect(flatten(layoutLog([turn(1, 1, 1)], 2))).toEqual(["turn -", "0", "turn 1", "1", "turn -", "2"]);
  });

  it("shows events without any turn, and nothing for an empty log", () => {
    expect(flatten(layoutLog([], 1))).toEqual(["turn -", "0", "1"]);
    expect(layoutLog([], -1).rows).toBe(0);
  });

  it("does not go past what is known", () => {
    expect(flatten(layoutLog([turn(1, 0, 9), turn(2, 10, 12)], 3))).toEqual(["turn 1", "0", "1", "2", "3"]);
  });

  it("ends an open turn where the next one starts", () => {
    expect(flatten(layoutLog([turn(1, 0, null), turn(2, 2, null)], 3))).toEqual([
      "turn 1", "0", "1", "turn 2", "2", "3",
    ]);
  });

  it("answers null outside of the list", () => {
    const layout = layoutLog([turn(1, 0, 1)], 1);
    expect(rowAt(layout, 3)).toBeNull();
    expect(rowAt(layoutLog([], -1), 0)).toBeNull();
  });
});

describe("rowOfEvent", () => {
  it("finds the row of every event", () => {
    const layout = layoutLog([turn(1, 0, 3), turn(2, 6, null)], 9);
    for (let seq = 0; seq <= 9; seq++) {
      expect(rowAt(layout, rowOfEvent(layout, seq))).toEqual({ kind: "event", seq });
    }
  });

  it("takes an event that is not there for the last", () => {
    const layout = layoutLog([turn(1, 0, 3)], 3);
    expect(rowOfEvent(layout, 99)).toBe(layout.rows - 1);
  });
});
