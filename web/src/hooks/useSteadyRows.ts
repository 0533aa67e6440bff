import type { Virtualizer } from "@tanstack/react-virtual";
import { useEffect, useLayoutEffect, type RefObject } from "react";
import type { Store } from "../state/store";

type Virtual = Virtualizer<HTMLDivElement, HTMLDivElement>;

/** Heights of rows that have gone are kept for so many times as many rows as there are. */
const heightsKept = 4;

/**
 * The height of a row, fractions of pixels included: rows stand below one another as they are, and
 * rounded heights of twenty would put the first of them a few pixels away from where it was.
 */
export function heightOf(element: HTMLDivElement, entry: ResizeObserverEntry | undefined, list: Virtual): number {
  const told = entry?.borderBoxSize[0]?.blockSize;
  if (told !== undefined) return told;
  // A row that is known is not measured again: whenever it changes, an entry comes.
  const known = list.itemSizeCache.get(list.options.getItemKey(list.indexFromElement(element)));
  return known ?? element.getBoundingClientRect().height;
}

/**
 * Keeps what is being read where it is while rows above it come, go, and get their height. `sources`
 * are what the rows are made of.
 */
export function useSteadyRows(
  virtual: Virtual,
  scroller: RefObject<HTMLElement | null>,
  keys: readonly { key: string }[],
  sources: readonly Pick<Store<unknown>, "subscribe">[],
): void {
  virtual.shouldAdjustScrollPositionOnItemSizeChange = isAboveReader;

  // While somebody scrolls, the list leaves the heights of new rows to an observer. It is not told in
  // this frame of rows that came with a change that it made itself: they would be painted once where
  // their guessed heights put them.
  useLayoutEffect(() => {
    const scrolls = virtual.isScrolling;
    virtual.isScrolling = false;
    for (const [key, row] of virtual.elementsCache) {
      if (virtual.itemSizeCache.has(key) || !row.isConnected) continue;
      // The places that the next one is compared by.
      virtual.getTotalSize();
      virtual.measureElement(row);
    }
    virtual.isScrolling = scrolls;
  });

  // A wheel has moved the element before the browser tells so. Rows that come in meanwhile would be
  // placed by where the reader was, and take his last move back: so the list is told first.
  useEffect(() => {
    const tell = (): void => {
      const element = scroller.current;
      if (element !== null && element.scrollTop !== virtual.scrollOffset) element.dispatchEvent(new Event("scroll"));
    };
    const ends = sources.map((source) => source.subscribe(tell));
    return () => ends.forEach((end) => end());
  }, [scroller, virtual, ...sources]);

  // A long way through a session must not leave a height behind for each row on it.
  useEffect(() => {
    const heights = virtual.itemSizeCache;
    if (heights.size <= keys.length * heightsKept) return;
    const here = new Set(keys.map(({ key }) => key));
    for (const key of heights.keys()) if (!here.has(String(key))) heights.delete(key);
  }, [virtual, keys]);
}

interface Ground {
  frame: CSSNumberish | null;
  /** What the rows were then. */
  keys: unknown;
  /** The topmost row in the frame whose height was known when the frame began. */
  index: number;
}

const grounds = new WeakMap<Virtual, Ground>();

/**
 * Whether a row lies above what the reader looks at, so that a change of its height is made up for.
 * What he looks at begins with the first row that reaches into the frame, and that he can have seen:
 * rows above it that get their first height have only just come in.
 */
function isAboveReader(item: { index: number; end: number }, _delta: number, list: Virtual): boolean {
  // The element knows where he is; the list learns it a moment later.
  const top = list.scrollElement?.scrollTop ?? 0;
  if (item.end <= top + 1) return true;
  const frame = document.timeline.currentTime;
  let ground = grounds.get(list);
  const keys = list.options.getItemKey;
  if (ground === undefined || ground.frame !== frame || ground.keys !== keys) {
    const known = list.getVirtualItems().find(({ key, end }) => end > top + 1 && list.itemSizeCache.has(key));
    ground = { frame, keys, index: known?.index ?? -1 };
    grounds.set(list, ground);
  }
  return item.index < ground.index;
}
