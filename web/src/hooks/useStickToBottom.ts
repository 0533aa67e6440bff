import { useCallback, useEffect, useRef, useState, type RefObject } from "react";

const slack = 48;

interface Sticky {
  scroller: RefObject<HTMLDivElement | null>;
  content: RefObject<HTMLDivElement | null>;
  atBottom: boolean;
  jump: () => void;
}

/** Follows growing content only while the reader is at its end. `key` restarts at the bottom. */
export function useStickToBottom(key: string | null): Sticky {
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const sticking = useRef(true);
  const [atBottom, setAtBottom] = useState(true);

  const jump = useCallback(() => {
    const element = scroller.current;
    sticking.current = true;
    setAtBottom(true);
    if (element !== null) element.scrollTop = element.scrollHeight;
  }, []);

  useEffect(() => {
    const element = scroller.current;
    const inner = content.current;
    if (element === null || inner === null) return;
    let lastTop = element.scrollTop;
    const onScroll = (): void => {
      const distance = element.scrollHeight - element.scrollTop - element.clientHeight;
      // Growth alone also changes the distance; only a move upwards means that someone reads.
      if (distance <= slack) sticking.current = true;
      else if (element.scrollTop < lastTop - 1) sticking.current = false;
      lastTop = element.scrollTop;
      setAtBottom(sticking.current);
    };
    const follow = new ResizeObserver(() => {
      if (sticking.current) element.scrollTop = element.scrollHeight;
    });
    follow.observe(inner);
    follow.observe(element);
    element.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      follow.disconnect();
      element.removeEventListener("scroll", onScroll);
    };
  }, []);

  useEffect(() => jump(), [key, jump]);

  return { scroller, content, atBottom, jump };
}
