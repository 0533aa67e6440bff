import { describe, expect, it } from "vitest";
import { hashOf, placeFromHash, viewedFromHash } from "../src/state/route";

describe("addresses", () => {
  it("name a session, a turn and an event, and are read as they were written", () => {
    for (const place of [null, { turn: 3 }, { event: 41 }]) {
      const hash = hashOf("a/b", place);
      expect(viewedFromHash(hash)).toBe("a/b");
      expect(placeFromHash(hash)).toEqual(place);
    }
    expect(placeFromHash("#/s/x/e/7")).toEqual({ event: 7 });
  });

  it("that are none are passed over", () => {
    for (const hash of ["", "#/", "#/session/", "#/session/x/e/", "#/session/x/q/1", "#/session/x/e/-1"]) {
      expect(viewedFromHash(hash)).toBe(null);
      expect(placeFromHash(hash)).toBe(null);
    }
  });
});
