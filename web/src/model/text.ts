/** Everything a model or a tool wrote is hostile. These helpers make it safe and honest to show. */

import type { ContentPart } from "../api/types";
import { oneLine } from "./format";

export function textOfContent(content: readonly ContentPart[]): string {
  return content
    .map((part) => (typeof part.text === "string" ? part.text : `[${part.type}]`))
    .join("\n");
}

// Terminal control sequences: CSI, OSC (ended by BEL or ST), and two-character escapes.
const ansi = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;

export function stripAnsi(text: string): string {
  return text.includes("\u001b") ? text.replace(ansi, "") : text;
}

// C0 except tab and newline, C1, zero-width, bidirectional overrides and isolates, BOM.
const invisible =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Shows what could disguise a command: an approval must be given for what is really there. */
export function revealControls(text: string): string {
  return text.replace(invisible, (char) => {
    const code = char.charCodeAt(0).toString(16).padStart(4, "0");
    return `\\u${code}`;
  });
}

/** Prepares terminal output: a progress bar's carriage returns keep the last state of each line. */
export function terminalText(text: string): string {
  const plain = stripAnsi(text).replaceAll("\r\n", "\n");
  if (!plain.includes("\r")) return plain;
  return plain
    .split("\n")
    .map((line) => line.slice(line.replace(/\r+$/, "").lastIndexOf("\r") + 1).replace(/\r+$/, ""))
    .join("\n");
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
