import { describe, expect, it } from "vitest";
import { hasStyles, lastStates, plain, styleClass, stylePieces } from "../src/model/ansi";

const esc = "\u001b";
const classes = (text: string): [string, string][] =>
  stylePieces(text).pieces.map(({ text: said, style }) => [said, styleClass(style)]);

describe("stylePieces", () => {
  it("reads colours and emphasis, also as a tool writes them out", () => {
    expect(classes(`a${esc}[1;31mb${esc}[22mc\\x1b[0md`)).toEqual([
      ["a", ""],
      ["b", "ansi-1 ansi-bold"],
      ["c", "ansi-1"],
      ["d", ""],
    ]);
  });

  it("takes the nearest of sixteen for every other colour", () => {
    expect(classes(`${esc}[38;5;196mx`)).toEqual([["x", "ansi-9"]]);
    expect(classes(`${esc}[38;2;0;160;0mx`)).toEqual([["x", "ansi-2"]]);
    expect(classes(`${esc}[38;5;250mx`)).toEqual([["x", "ansi-7"]]);
    expect(classes(`${esc}[38;5mx${esc}[38mz`)).toEqual([["x", "ansi-0"], ["z", "ansi-0"]]);
  });

  it("hides nothing: conceal and equal colours leave the text to be read", () => {
    expect(classes(`${esc}[8mhidden`)).toEqual([["hidden", ""]]);
    // A background brings its own colour of text.
    expect(classes(`${esc}[31;41mred on red`)).toEqual([["red on red", "ansi-bg-1"]]);
    expect(classes(`${esc}[7mi`)).toEqual([["i", "ansi-bg-i"]]);
  });

  it("spells out every other control", () => {
    const { pieces } = stylePieces(`${esc}]8;;javascript:x\u0007y${esc}[2Jz\u202e`);
    expect(pieces).toEqual([{ text: "\\u001b]8;;javascript:x\\u0007y\\u001b[2Jz\\u202e", style: plain }]);
  });

  it("goes on in the style that the text before ended in", () => {
    const { end } = stylePieces(`${esc}[32mgreen`);
    expect(styleClass(end)).toBe("ansi-2");
    expect(stylePieces("more", end).pieces[0]?.style).toEqual(end);
  });

  it("takes no time that grows with the square of a hostile text", () => {
    const text = `${esc}[`.repeat(200_000);
    expect(stylePieces(text).pieces).toHaveLength(1);
    expect(hasStyles(text)).toBe(false);
  });
});

describe("plain views of output", () => {
  it("knows whether there are styles", () => {
    expect(hasStyles("\\x1b[31mred")).toBe(true);
    expect(hasStyles("plain [31m")).toBe(false);
  });

  it("keeps the last state of a line that was overwritten", () => {
    expect(lastStates("10%\r50%\r100%\r\nnext\r\n")).toBe("100%\nnext\n");
    expect(lastStates("working\r")).toBe("working");
  });
});
