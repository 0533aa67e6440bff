import { describe, expect, it } from "vitest";
import { diffItems } from "../src/model/itemDiff";

describe("diffItems", () => {
  it("shows what was added at the end", () => {
    expect(diffItems([{ a: 1 }], [{ a: 1 }, { b: 2 }])).toEqual({
      same: 1,
      removed: [],
      added: [{ b: 2 }],
      sameAtEnd: 0,
    });
  });

  it("shows a summary in the place of a part, and what stayed around it", () => {
    expect(diffItems([1, 2, 3, 4], [1, "summary", 4])).toEqual({
      same: 1,
      removed: [2, 3],
      added: ["summary"],
      sameAtEnd: 1,
    });
  });

  it("counts no item twice when items repeat", () => {
    expect(diffItems(["x", "x"], ["x", "x", "x"])).toEqual({
      same: 2,
      removed: [],
      added: ["x"],
      sameAtEnd: 0,
    });
    expect(diffItems([], [])).toEqual({ same: 0, removed: [], added: [], sameAtEnd: 0 });
  });
});
