import { useEffect, useRef } from "react";

export interface Shortcuts {
  search: () => void;
  move: (by: 1 | -1) => void;
  escape: () => void;
}

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

/** Page-wide keys. They stay out of the way of typing and of the browser's own shortcuts. */
export function useShortcuts(shortcuts: Shortcuts): void {
  const latest = useRef(shortcuts);
  latest.current = shortcuts;
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Escape") return latest.current.escape();
      if (isTyping(event.target)) return;
      if (event.key === "/") {
        event.preventDefault();
        latest.current.search();
      } else if (event.key === "j" || event.key === "k") {
        event.preventDefault();
        latest.current.move(event.key === "j" ? 1 : -1);
      }
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
}
