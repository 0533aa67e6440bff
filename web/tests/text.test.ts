import { describe, expect, it } from "vitest";
import {
  callHeadline,
  capText,
  prettyJson,
  revealControls,
  revealProse,
  safeUrl,
  splitMarkdown,
  textOfContent,
} from "../src/model/text";

describe("hostile text", () => {
  it("lets only plain web and mail links through", () => {
    expect(safeUrl("https://example.com/a?b=c")).toBe("https://example.com/a?b=c");
    expect(safeUrl("mailto:a@example.com")).toBe("mailto:a@example.com");
    const bad = ["javascript:alert(1)", "JaVaScRiPt:x", " javascript:x", "data:text/html,x", "vbscript:x",
      "file:///etc/passwd", "/relative", "#/session/x", "//host/x", ""];
    for (const url of bad) expect(safeUrl(url)).toBeNull();
  });

  it("shows characters that could disguise a command", () => {
    expect(revealControls("rm\u202e x\u200b\u0007")).toBe("rm\\u202e x\\u200b\\u0007");
    expect(revealControls("tab\tand\nline stay, gr\u00fc\u00df too")).toBe("tab\tand\nline stay, gr\u00fc\u00df too");
  });

  it("shows what hides in prose, and leaves what scripts and emoji are written with", () => {
    expect(revealProse("a\u202eb\u200b")).toBe("a\\u202eb\\u200b");
    expect(revealProse("x\u{e0041}\u{e0042}")).toBe("x\\u{e0041}\\u{e0042}");
    const kept = ["\u{1f468}\u200d\u{1f469}\u200d\u{1f467}", "\u0645\u06cc\u200c\u062e", "\u2764\ufe0f",
      "\u{1f3f4}\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}"];
    for (const text of kept) expect(revealProse(text)).toBe(text);
  });
});

describe("tool calls", () => {
  it("finds the line that says what a call does", () => {
    expect(callHeadline('{"timeout":3,"command":"ls -la\\npwd"}')).toBe("ls -la pwd");
    expect(callHeadline('{"n":1}')).toBe('{"n":1}');
    expect(callHeadline('{"command": "half')).toBe('{"command": "half');
    expect(callHeadline("null")).toBe("null");
  });

  it("formats arguments and leaves invalid ones as they are", () => {
    expect(prettyJson('{"a":1}')).toBe('{\n  "a": 1\n}');
    expect(prettyJson("{a")).toBe("{a");
  });

  it("names content that is not text", () => {
    expect(textOfContent([{ type: "text", text: "a" }, { type: "image" }])).toBe("a\n[image]");
  });
});

describe("capText", () => {
  const lines = Array.from({ length: 10 }, (_, index) => `line ${index}`).join("\n");

  it("keeps short text whole", () => {
    expect(capText("a\nb", { lines: 5, chars: 100, keep: "head" })).toEqual({
      text: "a\nb",
      hiddenLines: 0,
      hiddenChars: 0,
    });
  });

  it("keeps the beginning or the end", () => {
    expect(capText(lines, { lines: 2, chars: 1000, keep: "head" })).toMatchObject({
      text: "line 0\nline 1",
      hiddenLines: 8,
    });
    expect(capText(lines, { lines: 2, chars: 1000, keep: "tail" }).text).toBe("line 8\nline 9");
  });

  it("caps one endless line", () => {
    const capped = capText("x".repeat(500), { lines: 10, chars: 100, keep: "head" });
    expect(capped).toMatchObject({ hiddenLines: 0, hiddenChars: 400 });
  });
});

describe("splitMarkdown", () => {
  it("loses nothing", () => {
    const text = "# A\n\nb\n\n```sh\nx\n\ny\n```\n\nc\n\n- d\n\n  e\n\n1. f\n";
    expect(splitMarkdown(text).join("\n")).toBe(text);
  });

  it("splits paragraphs and headings", () => {
    expect(splitMarkdown("a\n\nb\n\n## c")).toHaveLength(3);
  });

  it("never splits a fence, a list or an indented continuation", () => {
    expect(splitMarkdown("```\na\n\nb\n```")).toHaveLength(1);
    expect(splitMarkdown("~~~~\na\n\n```\n\nb\n~~~~")).toHaveLength(1);
    expect(splitMarkdown("- a\n\n- b\n\n  c")).toHaveLength(1);
  });

  it("keeps the text whole when it defines links", () => {
    expect(splitMarkdown("see [x]\n\nmore\n\n[x]: https://example.com")).toHaveLength(1);
  });

  it("only ever changes the last block while text is added", () => {
    const text = "one\n\ntwo **bold**\n\n```js\ncode\n\nmore\n```\n\nend";
    let before: string[] = [];
    for (let length = 1; length <= text.length; length++) {
      const blocks = splitMarkdown(text.slice(0, length));
      const settled = before.slice(0, -1);
      expect(blocks.slice(0, settled.length)).toEqual(settled);
      before = blocks;
    }
  });
});
