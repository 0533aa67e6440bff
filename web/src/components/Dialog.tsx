import { useEffect, useId, useRef, type MouseEvent, type ReactNode } from "react";
import { Icon } from "./Icon";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
  /** Beside the title. */
  extra?: ReactNode;
  kind?: "usual" | "wide" | "full" | "bare";
  testId?: string;
}

/**
 * A dialog over the page. The browser itself keeps the focus inside, closes it on Escape and makes
 * the rest inert; the focus goes back to where it came from.
 */
export function Dialog({ title, onClose, children, extra, kind = "usual", testId }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const close = useRef(onClose);
  close.current = onClose;
  useEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    if (dialog !== null && !dialog.open) {
      dialog.showModal();
      // Not the first button, which is the one that closes it.
      (dialog.querySelector<HTMLElement>("[data-first]") ?? dialog).focus();
    }
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      className={`dialog ${kind}`}
      tabIndex={-1}
      data-testid={testId}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        close.current();
      }}
      onClick={(event) => {
        if (isOutside(event, element.current)) close.current();
      }}
    >
      <div className="dialog-body">
        <header className={kind === "bare" ? "visually-hidden" : "dialog-top"}>
          <h2 id={heading}>{title}</h2>
          {extra}
          {kind !== "bare" && (
            <button type="button" className="icon-button" aria-label="Close" onClick={onClose}>
              <Icon name="cross" />
            </button>
          )}
        </header>
        {children}
      </div>
    </dialog>
  );
}

function isOutside(event: MouseEvent, dialog: HTMLDialogElement | null): boolean {
  // A key that presses a button gives a click without a place.
  if (event.target !== dialog || dialog === null || event.detail === 0) return false;
  const box = dialog.getBoundingClientRect();
  const { clientX: x, clientY: y } = event;
  return x < box.left || x > box.right || y < box.top || y > box.bottom;
}
