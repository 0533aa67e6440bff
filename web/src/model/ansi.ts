/**
 * Terminal output as styled pieces. Only SGR (colours and emphasis) is understood; every other
 * control is shown as the text it is, so nothing that a command prints can move, hide or link
 * anything. Colours are names, not values: the page's themes keep them readable.
 */

import { revealControls } from "./text";

/** Which of the sixteen colours (0 to 15), and emphasis. */
export interface Style {
  fg: number | null;
  bg: number | null;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
  strike: boolean;
  inverse: boolean;
}

export interface Piece {
  text: string;
  style: Style;
}

export const plain: Style = {
  fg: null,
  bg: null,
  bold: false,
  dim: false,
  italic: false,
  underline: false,
  strike: false,
  inverse: false,
};

// A tool writes control characters out, so an escape can also come as the four characters \x1b.
const sgr = /(?:\u001b|\\x1b)\[([0-9;:]{0,64})m/g;

/** Whether a text holds anything that `stylePieces` would show otherwise than as it is. */
export function hasStyles(text: string): boolean {
  sgr.lastIndex = 0;
  return sgr.test(text);
}

/** Splits a text into pieces of one style each, beginning in `style`. */
export function stylePieces(text: string, style: Style = plain): { pieces: Piece[]; end: Style } {
  const pieces: Piece[] = [];
  let current = style;
  let from = 0;
  const push = (to: number): void => {
    if (to > from) pieces.push({ text: revealControls(text.slice(from, to)), style: current });
  };
  sgr.lastIndex = 0;
  for (let match = sgr.exec(text); match !== null; match = sgr.exec(text)) {
    push(match.index);
    from = sgr.lastIndex;
    current = applySgr(current, match[1] ?? "");
  }
  push(text.length);
  return { pieces, end: current };
}

/** A progress bar's carriage returns keep the last state of each line. */
export function lastStates(text: string): string {
  const lines = text.replaceAll("\r\n", "\n");
  if (!lines.includes("\r")) return lines;
  return lines
    .split("\n")
    .map((line) => line.slice(line.replace(/\r+$/, "").lastIndexOf("\r") + 1).replace(/\r+$/, ""))
    .join("\n");
}

function applySgr(style: Style, parameters: string): Style {
  const codes = parameters.split(/[;:]/).map((code) => (code === "" ? 0 : Number(code)));
  let next = style;
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at] ?? 0;
    if (code === 38 || code === 48) {
      const [colour, used] = extended(codes, at + 1);
      at += used;
      if (colour !== null) next = { ...next, [code === 38 ? "fg" : "bg"]: colour };
    } else {
      next = applyCode(next, code);
    }
  }
  return next;
}

function applyCode(style: Style, code: number): Style {
  if (code >= 30 && code <= 37) return { ...style, fg: code - 30 };
  if (code >= 40 && code <= 47) return { ...style, bg: code - 40 };
  if (code >= 90 && code <= 97) return { ...style, fg: code - 90 + 8 };
  if (code >= 100 && code <= 107) return { ...style, bg: code - 100 + 8 };
  switch (code) {
    case 0:
      return plain;
    case 1:
      return { ...style, bold: true };
    case 2:
      return { ...style, dim: true };
    case 3:
      return { ...style, italic: true };
    case 4:
    case 21:
      return { ...style, underline: true };
    case 7:
      return { ...style, inverse: true };
    case 9:
      return { ...style, strike: true };
    case 22:
      return { ...style, bold: false, dim: false };
    case 23:
      return { ...style, italic: false };
    case 24:
      return { ...style, underline: false };
    case 27:
      return { ...style, inverse: false };
    case 29:
      return { ...style, strike: false };
    case 39:
      return { ...style, fg: null };
    case 49:
      return { ...style, bg: null };
    // 5 and 8 (blink, conceal) are left out on purpose: nothing a command prints is hidden.
    default:
      return style;
  }
}

/** Reads `5;n` or `2;r;g;b` behind 38 or 48. Returns the nearest of the sixteen, and what it took. */
function extended(codes: readonly number[], at: number): [number | null, number] {
  if (codes[at] === 5) return [indexed(codes[at + 1] ?? 0), 2];
  if (codes[at] === 2) return [nearest(codes[at + 1] ?? 0, codes[at + 2] ?? 0, codes[at + 3] ?? 0), 4];
  return [null, 0];
}

function indexed(index: number): number | null {
  if (index < 16) return index;
  if (index > 255) return null;
  if (index >= 232) {
    const grey = 8 + (index - 232) * 10;
    return nearest(grey, grey, grey);
  }
  const level = (value: number): number => (value === 0 ? 0 : 55 + value * 40);
  const cube = index - 16;
  return nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6));
}

function nearest(red: number, green: number, blue: number): number {
  const high = Math.max(red, green, blue);
  const low = Math.min(red, green, blue);
  if (high - low < 32) return high < 64 ? 0 : high < 144 ? 8 : high < 216 ? 7 : 15;
  const middle = (high + low) / 2;
  const base = (red > middle ? 1 : 0) + (green > middle ? 2 : 0) + (blue > middle ? 4 : 0);
  return high > 200 ? base + 8 : base;
}

/** The classes that a style is shown with; none for plain text. */
export function styleClass(style: Style): string {
  const [fg, bg] = style.inverse ? [style.bg ?? "i", style.fg ?? "i"] : [style.fg, style.bg];
  const names: string[] = [];
  // On a background the text takes the colour that can be read there.
  if (bg !== null) names.push(`ansi-bg-${bg}`);
  else if (fg !== null) names.push(`ansi-${fg}`);
  if (style.bold) names.push("ansi-bold");
  if (style.dim) names.push("ansi-dim");
  if (style.italic) names.push("ansi-italic");
  if (style.underline) names.push("ansi-underline");
  if (style.strike) names.push("ansi-strike");
  return names.join(" ");
}
