import type { Turn } from "../api/types";

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
