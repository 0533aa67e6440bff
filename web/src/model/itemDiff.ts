/** What one request's items have that another's do not. */
export interface ItemDiff {
  /** Items at the beginning that both have. */
  same: number;
  removed: unknown[];
  added: unknown[];
  /** Items at the end that both have. */
  sameAtEnd: number;
}

/**
 * Compares two histories by their beginnings and ends. A history grows at its end, or a summary
 * takes the place of a part of it, so what is between is what changed.
 */
export function diffItems(before: readonly unknown[], after: readonly unknown[]): ItemDiff {
  const old = before.map((item) => JSON.stringify(item));
  const now = after.map((item) => JSON.stringify(item));
  const most = Math.min(old.length, now.length);
  let same = 0;
  while (same < most && old[same] === now[same]) same += 1;
  let sameAtEnd = 0;
  while (
    sameAtEnd < most - same &&
    old[old.length - 1 - sameAtEnd] === now[now.length - 1 - sameAtEnd]
  ) {
    sameAtEnd += 1;
  }
  return {
    same,
    removed: before.slice(same, before.length - sameAtEnd),
    added: after.slice(same, after.length - sameAtEnd),
    sameAtEnd,
  };
}
