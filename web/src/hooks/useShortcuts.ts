import { useEffect, useRef } from "react";

export interface Shortcuts {
  palette: () => void;
  search: () => void;
  help: () => void;
  approvals: () => void;
  newSession: () => void;
  move: (by: 1 | -1) => void;
  escape: () => void;
}

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

function isInDialog(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("dialog") !== null;
}

/** Page-wide keys. They stay out of the way of typing, of dialogs and of the browser's own shortcuts. */
export function useShortcuts(shortcuts: Shortcuts): void {
  const latest = useRef(shortcuts);
  latest.current = shortcuts;
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.defaultPrevented || event.altKey || event.isComposing) return;
      if ((event.ctrlKey || event.metaKey) && !event.shiftKey && event.key.toLowerCase() === "k") {
        event.preventDefault();
        return latest.current.palette();
      }
      if (event.ctrlKey || event.metaKey || isInDialog(event.target)) return;
      if (event.key === "Escape") return latest.current.escape();
      if (isTyping(event.target)) return;
      const keys: Record<string, () => void> = {
        "/": latest.current.search,
        "?": latest.current.help,
        a: latest.current.approvals,
        n: latest.current.newSession,
        j: () => latest.current.move(1),
        k: () => latest.current.move(-1),
      };
      const deed = keys[event.key];
      if (deed === undefined) return;
      event.preventDefault();
      deed();
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
}
