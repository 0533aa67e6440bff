/**
 * Which part of a session the page holds. The newest part (the tail) is always there and follows
 * the run; of what is older there is one contiguous row of pages around what is being read. Both
 * are bounded: what is far from the reader is let go, and fetched again when it is needed.
 */

import type { Item, Turn } from "../api/types";

/** A contiguous part of the conversation. */
export interface Stretch {
  /** The first one lacks the items before `from` when it began earlier. */
  turns: readonly Turn[];
  /** First event. */
  from: number;
  /** Behind the last event. */
  to: number;
  /** Whether the last turn goes on behind it. */
  cut: boolean;
}

/** What the page holds before the tail. */
export interface Older {
  /** Each begins where the one before ends. */
  pages: readonly Stretch[];
  /** Whether something is missing between the last page and the tail. */
  gap: boolean;
}

export const noOlder: Older = { pages: [], gap: false };

/** What may be held. Texts count because one item can have as many as a thousand others. */
export interface Budget {
  items: number;
  chars: number;
}

export const budget: Budget = { items: 800, chars: 6_000_000 };

const sizes = new WeakMap<Item, number>();

/** About how many characters an item has. */
export function sizeOf(item: Item): number {
  let size = sizes.get(item);
  if (size === undefined) {
    size = measure(item);
    sizes.set(item, size);
  }
  return size;
}

function measure(item: Item): number {
  const content = (parts: readonly { text?: string }[]): number =>
    parts.reduce((sum, part) => sum + (part.text?.length ?? 64), 0);
  switch (item.kind) {
    case "user":
      return content(item.content);
    case "assistant":
      return content(item.parts);
    case "tool":
      return item.arguments.length + item.output.length + content(item.content);
    case "system":
      return item.text.length;
    case "compaction":
      return content(item.summary);
    default:
      return 64;
  }
}

export function weigh(turns: readonly Turn[]): Budget {
  let items = 0;
  let chars = 0;
  for (const turn of turns) {
    items += turn.items.length + 1;
    for (const item of turn.items) chars += sizeOf(item);
  }
  return { items, chars };
}

function isOver(weight: Budget, most: Budget): boolean {
  return weight.items > most.items || weight.chars > most.chars;
}

/** Lets pages go at one side until the rest fits. The page at the other side always stays. */
export function trimPages(
  pages: readonly Stretch[],
  side: "front" | "back",
  most: Budget = budget,
): readonly Stretch[] {
  const kept = [...pages];
  while (kept.length > 1 && isOver(weigh(kept.flatMap((page) => page.turns)), most)) {
    if (side === "front") kept.shift();
    else kept.pop();
  }
  return kept;
}

/**
 * Lets the front of the tail go when it is over its budget, down to three quarters of it, so that
 * not every new item cuts. It is cut where a turn begins, or before a message of a long turn.
 */
export function trimTail(
  turns: readonly Turn[],
  from: number,
  most: Budget = budget,
): { turns: readonly Turn[]; from: number } {
  let weight = weigh(turns);
  if (!isOver(weight, most)) return { turns, from };
  const wanted = { items: most.items * 0.75, chars: most.chars * 0.75 };
  let at = 0;
  while (at < turns.length - 1 && isOver(weight, wanted)) {
    const whole = weigh(turns.slice(at, at + 1));
    weight = { items: weight.items - whole.items, chars: weight.chars - whole.chars };
    at += 1;
  }
  const first = turns[at];
  if (first === undefined) return { turns, from };
  const rest = turns.slice(at + 1);
  const cut = isOver(weight, wanted) ? cutTurn(first, weight, wanted) : 0;
  const begin = first.items[cut];
  if (cut > 0 && begin !== undefined) {
    return { turns: [{ ...first, items: first.items.slice(cut) }, ...rest], from: begin.seq };
  }
  return at === 0 ? { turns, from } : { turns: [first, ...rest], from: first.startSeq };
}

/** How many items from a turn's front go; the rest begins with a message. */
function cutTurn(turn: Turn, weight: Budget, wanted: Budget): number {
  let { items, chars } = weight;
  let cut = 0;
  for (const [at, item] of turn.items.entries()) {
    if (item.kind === "assistant") {
      cut = at;
      if (items <= wanted.items && chars <= wanted.chars) break;
    }
    items -= 1;
    chars -= sizeOf(item);
  }
  return cut;
}

/** What of a stretch comes before an event; null when nothing does. */
export function before(page: Stretch, seq: number): Stretch | null {
  if (page.to <= seq) return page;
  if (page.from >= seq) return null;
  const turns = page.turns
    .filter((turn) => turn.startSeq < seq)
    .map((turn) =>
      turn.items.some((item) => item.seq >= seq)
        ? { ...turn, items: turn.items.filter((item) => item.seq < seq) }
        : turn,
    );
  const last = turns.at(-1);
  const cut = last !== undefined && (last.endSeq === null || last.endSeq >= seq);
  return { turns, from: page.from, to: seq, cut };
}

/** Whether a stretch has an event. */
export function holds(page: Pick<Stretch, "from" | "to">, seq: number): boolean {
  return page.from <= seq && seq < page.to;
}
