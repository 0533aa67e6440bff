import { useCallback, useEffect, useLayoutEffect, useRef, useState, type RefObject } from "react";

/** So near to the end counts as being there. */
export const slack = 48;

interface Sticky {
  atBottom: boolean;
  /** Goes to the end and stays there. */
  jump: () => void;
}

/**
 * Follows growing content only while the reader is at its end. Rows that grow are followed by the
 * list itself; this follows a frame that shrinks, and knows whether the reader has gone away.
 */
export function useStickToBottom(
  scroller: RefObject<HTMLElement | null>,
  scrollToEnd: () => void,
  onChange: (atBottom: boolean) => void,
): Sticky {
  const sticking = useRef(true);
  const [atBottom, setAtBottom] = useState(true);
  const told = useRef(onChange);
  told.current = onChange;
  const toEnd = useRef(scrollToEnd);
  toEnd.current = scrollToEnd;

  const say = useCallback((value: boolean): void => {
    if (sticking.current === value) return;
    sticking.current = value;
    setAtBottom(value);
    told.current(value);
  }, []);

  const jump = useCallback((): void => {
    say(true);
    toEnd.current();
  }, [say]);

  // The reader begins at the end.
  useLayoutEffect(() => toEnd.current(), []);

  useEffect(() => {
    const element = scroller.current;
    if (element === null) return;
    let lastTop = element.scrollTop;
    const onScroll = (): void => {
      const distance = element.scrollHeight - element.scrollTop - element.clientHeight;
      // Growth alone also changes the distance; only a move upwards means that someone reads.
      if (distance <= slack) say(true);
      else if (element.scrollTop < lastTop - 1) say(false);
      lastTop = element.scrollTop;
    };
    const frame = new ResizeObserver(() => {
      if (sticking.current) toEnd.current();
    });
    frame.observe(element);
    element.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      frame.disconnect();
      element.removeEventListener("scroll", onScroll);
    };
  }, [scroller, say]);

  return { atBottom, jump };
}
