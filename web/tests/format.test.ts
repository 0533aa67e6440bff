import { describe, expect, it } from "vitest";
import {
  byteSize,
  compactNumber,
  duration,
  oneLine,
  plural,
  relativeTime,
  sessionTitle,
  shortId,
  tokens,
  withoutFolder,
} from "../src/model/format";

const now = 1_790_000_000_000;
const min = 60_000;

describe("format", () => {
  it("tells relative time", () => {
    expect(relativeTime(now, now)).toBe("just now");
    expect(relativeTime(now + 5000, now)).toBe("just now");
    expect(relativeTime(now - 50_000, now)).toBe("1 min ago");
    expect(relativeTime(now - 59 * min, now)).toBe("59 min ago");
    expect(relativeTime(now - 3 * 60 * min, now)).toBe("3 h ago");
    expect(relativeTime(now - 24 * 60 * min, now)).toBe("1 day ago");
    expect(relativeTime(now - 6 * 24 * 60 * min, now)).toBe("6 days ago");
    expect(relativeTime(now - 30 * 24 * 60 * min, now)).toMatch(/^\d{4}-\d\d-\d\d$/);
  });

  it("shortens the path that a message begins with", () => {
    expect(withoutFolder("/a/b/log.jsonl is damaged", "/a/b/log.jsonl")).toBe("log.jsonl is damaged");
    expect(withoutFolder("in /a/log.jsonl", "/a/log.jsonl")).toBe("in /a/log.jsonl");
    expect(withoutFolder("locked", undefined)).toBe("locked");
  });

  it("tells durations", () => {
    expect([0, 999, 1500, 12_400, 65_200, 3_720_000].map(duration)).toEqual([
      "0 ms",
      "999 ms",
      "1.5 s",
      "12 s",
      "1 min 5 s",
      "1 h 2 min",
    ]);
    expect(duration(-5)).toBe("0 ms");
    expect(duration(Number.NaN)).toBe("0 ms");
  });

  it("tells sizes and counts", () => {
    expect([0, 1023, 1024, 48_213, 5 * 1024 ** 3].map(byteSize)).toEqual([
      "0 B",
      "1023 B",
      "1.0 KiB",
      "47 KiB",
      "5.0 GiB",
    ]);
    expect([7, 1000, 1234, 56_789, 2_500_000].map(compactNumber)).toEqual(["7", "1k", "1.2k", "57k", "2.5M"]);
    expect(plural(1, "turn")).toBe("1 turn");
    expect(plural(0, "turn")).toBe("0 turns");
    expect(tokens({ inputTokens: 1200, outputTokens: 30 })).toBe("1.2k in, 30 out");
  });

  it("names sessions", () => {
    expect(sessionTitle({ title: "  A\n title ", firstPrompt: "x" })).toBe("A title");
    expect(sessionTitle({ title: null, firstPrompt: "do\nthis" })).toBe("do this");
    expect(sessionTitle({ title: " ", firstPrompt: null })).toBe("Untitled session");
    expect(shortId("4786ba7e-1111-7222")).toBe("4786ba7e");
    expect(oneLine("x".repeat(300))).toHaveLength(200);
  });
});
