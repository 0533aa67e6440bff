/** Everything a model or a tool wrote is hostile. These helpers make it safe and honest to show. */

import type { ContentPart } from "../api/types";
import { oneLine } from "./format";

export function textOfContent(content: readonly ContentPart[]): string {
  return content
    .map((part) => (typeof part.text === "string" ? part.text : `[${part.type}]`))
    .join("\n");
}

// What has no picture of its own and changes what stands around it, or hides in it: C0 except tab
// and newline, C1, bidirectional marks and overrides, zero widths, fillers, tag characters.
const invisible =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu;

// Joiners and marks that some scripts and emoji are written with stay in what people read as prose.
const invisibleInProse =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e001f}\u{e0080}-\u{e0fff}]/gu;
// Tag characters spell flags behind one emoji, and hidden orders everywhere else.
const hiddenTags = /(?<!\u{1f3f4}[\u{e0020}-\u{e007f}]{0,8})[\u{e0020}-\u{e007f}]/gu;

function named(char: string): string {
  const code = char.codePointAt(0) ?? 0;
  return code > 0xffff ? `\\u{${code.toString(16)}}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

/** Shows what could disguise a command: an approval must be given for what is really there. */
export function revealControls(text: string): string {
  return text.replace(invisible, named);
}

/** The same for what people and models say to each other. */
export function revealProse(text: string): string {
  return text.replace(invisibleInProse, named).replace(hiddenTags, named);
}

export function prettyJson(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** The line that says what a call does, for a card's header: its single or most telling argument. */
export function callHeadline(args: string): string {
  let parsed: unknown;
  try {
    parsed = JSON.parse(args);
  } catch {
    return oneLine(revealControls(args), 160);
  }
  if (parsed === null || typeof parsed !== "object") return oneLine(String(parsed), 160);
  const values = Object.values(parsed as Record<string, unknown>);
  const first = values.find((value) => typeof value === "string" && value !== "");
  const headline = typeof first === "string" ? first : JSON.stringify(parsed);
  return oneLine(revealControls(headline), 160);
}

export interface Capped {
  text: string;
  /** Lines left out before the text (`tail`) or after it. */
  hiddenLines: number;
  hiddenChars: number;
}

export interface Cap {
  lines: number;
  chars: number;
  keep: "head" | "tail";
}

export function capText(text: string, cap: Cap): Capped {
  let kept = text;
  if (kept.length > cap.chars) {
    kept = cap.keep === "head" ? kept.slice(0, cap.chars) : kept.slice(-cap.chars);
  }
  const lines = kept.split("\n");
  if (lines.length > cap.lines) {
    const part = cap.keep === "head" ? lines.slice(0, cap.lines) : lines.slice(-cap.lines);
    kept = part.join("\n");
  }
  const hiddenChars = text.length - kept.length;
  return { text: kept, hiddenLines: hiddenChars === 0 ? 0 : countLines(text) - countLines(kept), hiddenChars };
}

export function countLines(text: string): number {
  let count = 1;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) count += 1;
  return count;
}

const schemes = new Set(["http:", "https:", "mailto:"]);

/** Returns an absolute link that is safe to open, or null. Relative ones would lead into this page. */
export function safeUrl(url: string): string | null {
  try {
    const parsed = new URL(url);
    return schemes.has(parsed.protocol) ? parsed.href : null;
  } catch {
    return null;
  }
}

/** The host that a link leads to, in the spelling that cannot look like another: punycode. */
export function hostOf(url: string): string {
  try {
    return new URL(url).host;
  } catch {
    return "";
  }
}

const fence = /^ {0,3}(`{3,}|~{3,})/;
const startsBlock = /^(?:#{1,6}\s|`{3,}|~{3,}|[A-Za-z("'*_`\u00c0-\uffff])/;
const listMarker = /^(?:[*+-]|\d{1,9}[.)])(?:\s|$)/;
const definition = /^ {0,3}\[[^\]\n]+\]:/m;

/**
 * Splits Markdown at blank lines where both sides mean the same alone as together, so that a long
 * reply re-parses only its last block while it streams. When in doubt it does not split.
 */
export function splitMarkdown(text: string): string[] {
  if (definition.test(text)) return [text];
  const blocks: string[] = [];
  let current: string[] = [];
  let open: string | null = null;
  let blank = false;
  for (const line of text.split("\n")) {
    const boundary = blank && open === null && startsBlock.test(line) && !listMarker.test(line);
    if (boundary && current.length > 0) {
      blocks.push(current.join("\n"));
      current = [];
    }
    const mark = fence.exec(line)?.[1];
    if (mark !== undefined) open = toggleFence(open, mark, line);
    blank = line.trim() === "";
    current.push(line);
  }
  blocks.push(current.join("\n"));
  return blocks;
}

function toggleFence(open: string | null, mark: string, line: string): string | null {
  if (open === null) return mark;
  const closes = mark[0] === open[0] && mark.length >= open.length && line.trim() === mark;
  return closes ? null : open;
}
