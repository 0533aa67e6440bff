/** The conversation as a list of rows, so that only those near the reader are on the page. */

import type { Item, Turn } from "../api/types";
import type { Place } from "../state/route";
import type { Older, Stretch } from "./window";

export type Row =
  | { kind: "gap"; key: string }
  | { kind: "head"; key: string; turn: Turn; folded: boolean; isCut: boolean }
  | { kind: "item"; key: string; turn: Turn; item: Item }
  | { kind: "folded"; key: string; turn: Turn; count: number }
  | { kind: "quiet"; key: string; turn: Turn }
  | { kind: "end"; key: string; turn: Turn }
  | { kind: "follow"; key: string; turn: Turn };

export interface RowsInput {
  older: Older;
  tail: Stretch;
  running: boolean;
  folded: ReadonlySet<number>;
}

/**
 * Keys stay with what they stand for, whatever comes before it. What is behind a gap is not listed:
 * nobody could scroll into it without passing over what is missing.
 */
export function rowsOf({ older, tail, running, folded }: RowsInput): Row[] {
  const rows: Row[] = [];
  const pages = older.gap ? older.pages : [...older.pages, tail];
  const heads = headsOf([...older.pages, tail]);
  for (const [at, page] of pages.entries()) {
    const previous = pages[at - 1];
    const goesOn = page.cut ? pages[at + 1] : undefined;
    for (const [index, turn] of page.turns.entries()) {
      const isLast = index === page.turns.length - 1;
      pushTurn(rows, turn, {
        head: heads.get(turn.turn) ?? { turn, isCut: false },
        // Its head stands above, or comes when that is read: a row never changes its place.
        wasBegun:
          index === 0 && (turn.startSeq < page.from || previous?.turns.at(-1)?.turn === turn.turn),
        rest: isLast ? goesOn?.turns[0] : undefined,
        isCut: isLast && page.cut,
        isNewest: isLast && page === tail,
        live: isLast && page === tail && running && turn.reason === null,
        isFolded: folded.has(turn.turn),
      });
    }
  }
  if (older.gap) rows.push({ kind: "gap", key: "gap" });
  return rows;
}

interface Head {
  turn: Turn;
  /** Its end is not here, so that nobody knows how it stands. */
  isCut: boolean;
}

/** Only the last part of a turn knows how it stands. */
function headsOf(pages: readonly Stretch[]): Map<number, Head> {
  const heads = new Map<number, Head>();
  for (const page of pages) {
    for (const [at, turn] of page.turns.entries()) {
      heads.set(turn.turn, { turn, isCut: page.cut && at === page.turns.length - 1 });
    }
  }
  return heads;
}

interface TurnContext {
  head: Head;
  /** The part of the turn before this one has its head. */
  wasBegun: boolean;
  /** What stands right behind this part. */
  rest: Turn | undefined;
  /** The turn goes on behind this part. */
  isCut: boolean;
  /** No other turn follows. */
  isNewest: boolean;
  live: boolean;
  isFolded: boolean;
}

function pushTurn(rows: Row[], turn: Turn, context: TurnContext): void {
  const { head, wasBegun, rest, isCut, live } = context;
  const key = `t${turn.turn}`;
  const folded = context.isFolded && !live;
  if (!wasBegun) {
    rows.push({ kind: "head", key: `${key}:head`, turn: head.turn, folded, isCut: head.isCut });
  }
  // A message that the next part has whole may have begun to stream in this one.
  const repeated = rest?.turn === turn.turn ? rest.items[0]?.id : undefined;
  const own = repeated === undefined ? turn.items : turn.items.filter((item) => item.id !== repeated);
  const shown = folded ? foldedItems(turn, own) : own;
  for (const item of shown) rows.push({ kind: "item", key: `${key}:${item.id}`, turn, item });
  const hidden = own.length - shown.length;
  if (hidden > 0) {
    rows.push({ kind: "folded", key: `${key}:folded:${own[0]?.id ?? ""}`, turn, count: hidden });
  }
  if (isCut) return;
  if (live && isQuiet(turn)) rows.push({ kind: "quiet", key: `${key}:quiet`, turn });
  if (!live && turn.reason?.kind !== "completed") rows.push({ kind: "end", key: `${key}:end`, turn });
  if (context.isNewest && !live && asksWhatNext(turn)) rows.push({ kind: "follow", key: `${key}:follow`, turn });
}

/** It was not completed, or the conversation was taken back behind it. */
function asksWhatNext(turn: Turn): boolean {
  const end = turn.items.at(-1);
  return turn.reason?.kind !== "completed" || (end?.kind === "head" && end.reason === "rewind");
}

/** A folded turn says what was asked and what was answered, and never hides an unknown outcome. */
function foldedItems(turn: Turn, own: readonly Item[]): Item[] {
  const answer = turn.items.findLast(
    (item) => item.kind === "assistant" && item.parts.some((part) => part.kind === "text" && part.text !== ""),
  );
  return own.filter((item) => {
    if (item.kind === "user") return item.source !== "context";
    if (item.kind === "tool") return item.outcome === "unknown";
    return item === answer;
  });
}

/** Nothing on the screen moves although the run goes on: show that it is alive. */
function isQuiet(turn: Turn): boolean {
  const last = turn.items.at(-1);
  if (last === undefined) return true;
  if (last.kind === "assistant") return !last.streaming;
  return last.kind !== "tool" || last.outcome !== null;
}

/** What a row will be high, in pixels, as long as nobody has measured it. */
export function estimateRow(row: Row): number {
  switch (row.kind) {
    case "head":
      return 46;
    case "item":
      return estimateItem(row.item);
    case "end":
      return 70;
    default:
      return 40;
  }
}

function estimateItem(item: Item): number {
  switch (item.kind) {
    case "user":
      return 76;
    case "assistant": {
      const chars = item.parts.reduce((sum, part) => sum + (part.kind === "text" ? part.text.length : 40), 0);
      return chars === 0 ? 0 : 34 + Math.ceil(chars / 90) * 23;
    }
    case "tool":
      return item.content.length === 0 ? 60 : 150;
    default:
      return 36;
  }
}

/** The row that an event or a turn is shown at. */
export function rowOf(rows: readonly Row[], place: Place): number {
  if ("turn" in place) {
    return rows.findIndex((row) => row.kind === "head" && row.turn.turn === place.turn);
  }
  let found = -1;
  for (let at = 0; at < rows.length; at++) {
    const row = rows[at];
    if (row === undefined || !("turn" in row)) continue;
    if (row.turn.startSeq > place.event) break;
    if (row.kind === "head") found = at;
    else if (row.kind === "item" && row.item.seq <= place.event) found = at;
    if (row.kind === "item" && ownsEvent(row.item, place.event)) return at;
    if (row.kind === "end" && row.turn.endSeq === place.event) return at;
  }
  return found;
}

function ownsEvent(item: Item, seq: number): boolean {
  if (item.seq === seq && item.kind !== "tool") return true;
  return item.kind === "tool" && (item.startSeq === seq || item.resultSeq === seq);
}
