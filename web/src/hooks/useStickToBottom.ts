import { useCallback, useEffect, useLayoutEffect, useRef, useState, type RefObject } from "react";

/** So near to the end counts as being there. */
export const slack = 48;

interface Sticky {
  atBottom: boolean;
  /** Goes to the end and stays there. */
  jump: () => void;
  /** Says that the reader was taken elsewhere. */
  leave: () => void;
}

/**
 * A scroll so soon after a wheel, a touch or a key is the reader's. So is one upwards in content of
 * the same height, as the browser's own search and reading aids make them; any other is the list's.
 */
const inputMs = 1500;
const released = ["pointerup", "pointercancel"] as const;
const inputs = ["wheel", "touchstart", "touchmove", "keydown", "pointerdown"] as const;

/**
 * Follows growing content only while the reader is at its end. `scrollToEnd` goes there over rows
 * that nobody has measured yet.
 */
export function useStickToBottom(
  scroller: RefObject<HTMLElement | null>,
  scrollToEnd: () => void,
  /** Whether the end of what is there is the end. */
  isWhole: boolean,
  onChange: (atBottom: boolean) => void,
): Sticky {
  const sticking = useRef(true);
  const [atBottom, setAtBottom] = useState(true);
  const told = useRef(onChange);
  told.current = onChange;
  const toEnd = useRef(scrollToEnd);
  toEnd.current = scrollToEnd;

  const whole = useRef(isWhole);
  whole.current = isWhole;

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

  const leave = useCallback((): void => say(false), [say]);

  // The reader begins at the end.
  useLayoutEffect(() => toEnd.current(), []);

  useEffect(() => {
    const element = scroller.current;
    if (element === null) return;
    let lastTop = element.scrollTop;
    let lastHeight = element.scrollHeight;
    let lastInput = -inputMs;
    // Who drags a scroll bar gives one sign at its beginning.
    let isHeld = false;
    const onInput = (event: Event): void => {
      lastInput = event.timeStamp;
      if (event.type === "pointerdown") isHeld = true;
    };
    const onRelease = (event: Event): void => {
      if (isHeld) lastInput = event.timeStamp;
      isHeld = false;
    };
    const onScroll = (event: Event): void => {
      const distance = element.scrollHeight - element.scrollTop - element.clientHeight;
      const isSame = element.scrollHeight === lastHeight;
      const isReader = isSame || isHeld || event.timeStamp - lastInput < inputMs;
      // Growth alone also changes the distance; only a move upwards means that someone reads.
      if (distance <= slack && whole.current) say(true);
      else if (isReader && element.scrollTop < lastTop - 1) say(false);
      lastTop = element.scrollTop;
      lastHeight = element.scrollHeight;
    };
    const frame = new ResizeObserver(() => {
      if (sticking.current) element.scrollTop = element.scrollHeight;
    });
    frame.observe(element);
    if (element.firstElementChild !== null) frame.observe(element.firstElementChild);
    element.addEventListener("scroll", onScroll, { passive: true });
    for (const name of inputs) element.addEventListener(name, onInput, { passive: true });
    for (const name of released) window.addEventListener(name, onRelease, { passive: true });
    return () => {
      frame.disconnect();
      for (const name of inputs) element.removeEventListener(name, onInput);
      for (const name of released) window.removeEventListener(name, onRelease);
      element.removeEventListener("scroll", onScroll);
    };
  }, [scroller, say]);

  return { atBottom, jump, leave };
}
