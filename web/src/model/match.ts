/** Which parts of a row a search has found. */

import type { Summary } from "../api/types";
import { oneLine, sessionTitle } from "./format";

export interface Piece {
  text: string;
  hit: boolean;
}

export interface Match {
  title: Piece[];
  /** Where else it was found, when the title alone does not show it. */
  where: { label: string; pieces: Piece[] } | null;
}

const around = 32;

export function wordsOf(query: string): string[] {
  return query.toLowerCase().split(/\s+/).filter((word) => word !== "");
}

/** Cuts a text where words begin and end. */
export function pieces(text: string, words: readonly string[]): Piece[] {
  const small = text.toLowerCase();
  // Some letters have another length in small; then the places do not fit.
  if (small.length !== text.length || words.length === 0) return [{ text, hit: false }];
  const marked = new Array<boolean>(text.length).fill(false);
  for (const word of words) {
    for (let at = small.indexOf(word); at >= 0; at = small.indexOf(word, at + 1)) {
      marked.fill(true, at, at + word.length);
    }
  }
  const found: Piece[] = [];
  for (let at = 0; at < text.length; at++) {
    const last = found.at(-1);
    if (last !== undefined && last.hit === marked[at]) last.text += text[at];
    else found.push({ text: text[at] ?? "", hit: marked[at] === true });
  }
  return found;
}

export function matchOf(session: Summary, words: readonly string[]): Match {
  const title = sessionTitle(session);
  const missing = words.filter((word) => !title.toLowerCase().includes(word));
  return { title: pieces(title, words), where: missing.length === 0 ? null : elsewhere(session, missing) };
}

function elsewhere(session: Summary, words: readonly string[]): Match["where"] {
  const texts: [string, string][] = [
    ["prompt", session.firstPrompt ?? ""],
    ...session.tags.map((tag): [string, string] => ["tag", tag]),
    ["title", session.title ?? ""],
    ["id", session.id],
  ];
  for (const [label, text] of texts) {
    const small = text.toLowerCase();
    const word = words.find((candidate) => small.includes(candidate));
    if (word === undefined) continue;
    const at = small.indexOf(word);
    const from = Math.max(0, at - around);
    const cut = oneLine(text.slice(from, at + word.length + around * 2));
    return { label, pieces: pieces(from > 0 ? `...${cut}` : cut, words) };
  }
  return null;
}
