import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { ImageLimits } from "../src/api/acting";
import type { Summary, Turn } from "../src/api/types";
import { widened } from "../src/components/PolicySelects";
import { aligned, commonTurns, stitched } from "../src/model/compare";
import { matchOf, pieces, wordsOf } from "../src/model/match";
import { refusal, toInput } from "../src/state/attachments";
import { Composer } from "../src/state/composer";
import { Deletions, undoMs } from "../src/state/deletions";
import { readDraft, saveDraft } from "../src/state/drafts";
import { pageTitle } from "../src/state/notifier";
import { Settings } from "../src/state/settings";

/** What a browser keeps. */
function storage(): Storage {
  const kept = new Map<string, string>();
  const methods = {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
    removeItem: (key: string) => void kept.delete(key),
  };
  return new Proxy(methods as unknown as Storage, {
    ownKeys: () => [...kept.keys()],
    getOwnPropertyDescriptor: () => ({ enumerable: true, configurable: true }),
  });
}

beforeEach(() => vi.stubGlobal("localStorage", storage()));
afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

describe("drafts", () => {
  it("are kept for each session", () => {
    saveDraft("a", "for a");
    saveDraft(null, "for none");
    expect([readDraft("a"), readDraft("b"), readDraft(null)]).toEqual(["for a", "", "for none"]);
    saveDraft("a", "");
    expect(readDraft("a")).toBe("");
  });

  it("make room for new ones, the oldest first", () => {
    for (let at = 0; at < 60; at++) saveDraft(`s${at}`, "x", at);
    expect(readDraft("s0")).toBe("");
    expect(readDraft("s59")).toBe("x");
  });

  it("that are no drafts are passed over", () => {
    localStorage.setItem("threadline.draft.a", "{broken");
    localStorage.setItem("threadline.draft.b", '{"text":7}');
    expect([readDraft("a"), readDraft("b")]).toEqual(["", ""]);
  });
});

describe("Composer", () => {
  it("has a text for each session, and takes one written for none along", () => {
    const composer = new Composer(null);
    composer.write("undecided");
    composer.aim("a");
    expect(composer.state.get().text).toBe("undecided");
    composer.aim("b");
    expect(composer.state.get().text).toBe("");
    composer.write("for b");
    composer.aim("a");
    expect(composer.state.get().text).toBe("undecided");
    composer.aim(null);
    expect(composer.state.get().text).toBe("");
    expect(new Composer("b").state.get().text).toBe("for b");
  });

  it("forgets what was chosen for another session", () => {
    const composer = new Composer("a");
    composer.choose({ sandboxMode: "danger_full_access", model: "other" });
    composer.aim("b");
    expect(composer.state.get()).toMatchObject({ sandboxMode: "", model: "" });
  });

  it("goes through earlier prompts and back to what was typed", () => {
    const composer = new Composer("a");
    const prompts = ["first", "second"];
    expect(composer.recall(prompts, -1)).toBe(false);
    expect(composer.recall(prompts, 1)).toBe(true);
    expect(composer.state.get().text).toBe("second");
    composer.recall(prompts, 1);
    expect(composer.state.get().text).toBe("first");
    expect(composer.recall(prompts, 1)).toBe(false);
    composer.recall(prompts, -1);
    composer.recall(prompts, -1);
    expect(composer.state.get().text).toBe("");
    expect(composer.recalling).toBe(false);
  });
});

describe("attachments", () => {
  const limits: ImageLimits = { count: 2, bytes: 1000, mediaTypes: ["image/png", "image/jpeg"] };

  it("are refused with a reason", () => {
    expect(refusal({ name: "a.png", type: "image/png", size: 1000 }, limits, 1)).toBeNull();
    expect(refusal({ name: "a.png", type: "image/png", size: 1001 }, limits, 0)).toContain("1001 B");
    expect(refusal({ name: "a.svg", type: "image/svg+xml", size: 1 }, limits, 0)).toContain("PNG, JPEG");
    expect(refusal({ name: "", type: "image/png", size: 1 }, limits, 2)).toContain("2 images");
  });

  it("are sent as base64 alone", () => {
    const image = { id: 1, name: "a", bytes: 3, mediaType: "image/png", url: "data:image/png;base64,AAAA" };
    expect(toInput(image)).toEqual({ mediaType: "image/png", data: "AAAA" });
  });
});

describe("Deletions", () => {
  it("take several together back", () => {
    vi.useFakeTimers();
    const deletions = new Deletions();
    deletions.request({ ids: ["a", "b"], title: "2 sessions" });
    deletions.request({ ids: ["b", "c"], title: "2 sessions" });
    const [first, second] = deletions.state.get().pending;
    expect([first?.ids, second?.ids]).toEqual([["a", "b"], ["c"]]);
    if (first !== undefined) deletions.undo(first);
    expect([...deletions.hidden()]).toEqual(["c"]);
  });

  it("are carried out after a while, and a session that is gone already is no failure", async () => {
    vi.useFakeTimers();
    const gone = { code: "session_not_found", detail: "no session" };
    vi.stubGlobal("fetch", async (url: string) =>
      url.endsWith("/a") ? new Response(null, { status: 204 }) : Response.json(gone, { status: 404 }),
    );
    const deletions = new Deletions();
    const deleted: string[] = [];
    deletions.onDeleted = (id) => deleted.push(id);
    deletions.request({ ids: ["a", "b"], title: "2 sessions" });
    await vi.advanceTimersByTimeAsync(undoMs);
    expect(deleted).toEqual(["a", "b"]);
    expect(deletions.state.get()).toEqual({ pending: [], error: null });
  });
});

describe("matches", () => {
  const session = (more: Partial<Summary>): Summary =>
    ({ id: "0199a8c2", title: null, firstPrompt: null, tags: [], ...more }) as Summary;

  it("are marked where they are", () => {
    expect(pieces("Fix the Parser", wordsOf(" parser  FIX "))).toEqual([
      { text: "Fix", hit: true },
      { text: " the ", hit: false },
      { text: "Parser", hit: true },
    ]);
    // A letter that is longer in small.
    expect(pieces("\u0130stanbul", ["stan"])).toEqual([{ text: "\u0130stanbul", hit: false }]);
  });

  it("beyond the title are named", () => {
    const long = `${"x ".repeat(500)}needle ${"y ".repeat(500)}`;
    const found = matchOf(session({ title: "Named", firstPrompt: long }), ["needle"]).where;
    expect(found?.label).toBe("prompt");
    expect(found?.pieces.find((piece) => piece.hit)?.text).toBe("needle");
    expect(matchOf(session({ title: "t", tags: ["night"] }), ["nigh"]).where?.label).toBe("tag");
    expect(matchOf(session({ title: "t" }), ["a8c2"]).where?.label).toBe("id");
    expect(matchOf(session({ title: "needle" }), ["needle"]).where).toBeNull();
  });
});

describe("commonTurns", () => {
  const turn = (runId: string, ...items: string[]): Turn =>
    ({ runId, endSeq: 1, items: items.map((id) => ({ id })) }) as unknown as Turn;

  it("ends where two forks go their own ways", () => {
    const left = [turn("a", "1"), turn("b", "2"), turn("c")];
    expect(commonTurns(left, [turn("a", "1"), turn("b", "2"), turn("d")])).toBe(2);
    expect(commonTurns(left, [turn("a", "1"), turn("b", "2", "3")])).toBe(1);
    expect(commonTurns(left, left)).toBe(3);
    expect(commonTurns([], left)).toBe(0);
  });
});

describe("what is wider", () => {
  const options = ["narrow", "middle", "wide"].map((value) => ({ value, label: value }));

  it("is said, and nothing else", () => {
    expect(widened(options, "narrow", "wide")).toBe("narrow becomes wide");
    for (const [before, chosen] of [["wide", "narrow"], ["middle", "middle"], ["narrow", ""], [undefined, "wide"]]) {
      expect(widened(options, before, chosen ?? "")).toBeNull();
    }
  });
});

describe("the page's title", () => {
  it("counts what waits", () => {
    expect(pageTitle(null, 0)).toBe("Threadline");
    expect(pageTitle("Fix it", 2)).toBe("(2) Fix it - Threadline");
  });
});

describe("Settings", () => {
  it("are remembered; what is no setting is not", () => {
    new Settings().choose({ theme: "dark", density: "compact" });
    expect(new Settings().state.get()).toMatchObject({ theme: "dark", density: "compact", notify: false });
    localStorage.setItem("threadline.settings", '{"theme":"pink","notify":"yes"}');
    expect(new Settings().state.get()).toEqual({ theme: "auto", density: "comfortable", notify: false });
  });
});

describe("turns read in pages", () => {
  const part = (number: number, ...ids: string[]): Turn =>
    ({ turn: number, runId: `r${number}`, endSeq: null, items: ids.map((id) => ({ id })) }) as unknown as Turn;
  const page = (...turns: Turn[]) => ({ turns, from: 0, to: 1, cut: true });

  it("puts a turn together that goes over several pages, each item once", () => {
    const end = { ...part(2, "b", "c"), endSeq: 9 } as Turn;
    const turns = stitched([page(part(1, "x"), part(2, "a", "b")), page(end, part(3, "d"))]);
    expect(turns.map((turn) => turn.items.map((item) => item.id))).toEqual([["x"], ["a", "b", "c"], ["d"]]);
    expect(turns[1]?.endSeq).toBe(9);
    expect(stitched([])).toEqual([]);
  });

  it("compares from the first turn that both have read back to", () => {
    const numbers = (turns: readonly Turn[]): number[] => turns.map((turn) => turn.turn);
    const [left, right] = aligned([part(1), part(2), part(3)], [part(2), part(3), part(4)]);
    expect([numbers(left), numbers(right)]).toEqual([[2, 3], [2, 3, 4]]);
    expect(aligned([], [part(5)])).toEqual([[], [part(5)]]);
  });
});
