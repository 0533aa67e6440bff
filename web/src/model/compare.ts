import type { Turn } from "../api/types";
import type { Stretch } from "./window";

/** The turns of pages that follow each other. One that goes over several pages is put together. */
export function stitched(pages: readonly Stretch[]): Turn[] {
  const turns: Turn[] = [];
  for (const turn of pages.flatMap((page) => page.turns)) {
    const begun = turns.at(-1);
    if (begun?.turn !== turn.turn) {
      turns.push(turn);
      continue;
    }
    // A message that the next page has whole may have begun to stream in this one.
    const again = new Set(turn.items.map((item) => item.id));
    const items = [...begun.items.filter((item) => !again.has(item.id)), ...turn.items];
    turns[turns.length - 1] = { ...turn, items };
  }
  return turns;
}

/** Both from the same turn on: what only one of them has read back to cannot be compared. */
export function aligned(left: readonly Turn[], right: readonly Turn[]): [Turn[], Turn[]] {
  const first = Math.max(left[0]?.turn ?? 0, right[0]?.turn ?? 0);
  const since = (turns: readonly Turn[]): Turn[] => turns.filter((turn) => turn.turn >= first);
  return [since(left), since(right)];
}

/** How many turns two sessions have in common, from their beginnings. */
export function commonTurns(left: readonly Turn[], right: readonly Turn[]): number {
  const most = Math.min(left.length, right.length);
  let count = 0;
  while (count < most && sameTurn(left[count], right[count])) count += 1;
  return count;
}

/** A fork has the events of its parent, so a turn in common has the same run and the same items. */
function sameTurn(left: Turn | undefined, right: Turn | undefined): boolean {
  if (left === undefined || right === undefined) return false;
  return (
    left.runId === right.runId &&
    left.endSeq === right.endSeq &&
    left.items.length === right.items.length &&
    left.items.every((item, at) => item.id === right.items[at]?.id)
  );
}
