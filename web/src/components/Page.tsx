import { useRef, useState } from "react";
import { useShortcuts } from "../hooks/useShortcuts";
import { useApp } from "../state/app";
import { useStore } from "../state/store";
import { Conversation } from "./Conversation";
import { ErrorBanner } from "./Feedback";
import { Icon, type IconName } from "./Icon";
import { Inspector } from "./Inspector";
import { OfflineBanner } from "./OfflineBanner";
import { Overlays } from "./Overlays";
import { SessionRail, type RailHandle } from "./SessionRail";
import { Toasts } from "./Toasts";

export type Pane = "sessions" | "chat" | "inspect";

const panes: readonly { pane: Pane; label: string; icon: IconName }[] = [
  { pane: "sessions", label: "Sessions", icon: "list" },
  { pane: "chat", label: "Conversation", icon: "chat" },
  { pane: "inspect", label: "Log", icon: "panel" },
];

export function Page() {
  const app = useApp();
  const { error } = useStore(app.server);
  const [pane, setPane] = useState<Pane>("chat");
  const rail = useRef<RailHandle>(null);
  useShortcuts({
    palette: () => app.show(app.overlay.get() === "palette" ? null : "palette"),
    help: () => app.show("help"),
    approvals: () => app.show("approvals"),
    newSession: () => {
      app.newSession();
      setPane("chat");
      requestAnimationFrame(() => document.getElementById("composer-text")?.focus());
    },
    search: () => {
      setPane("sessions");
      rail.current?.search();
    },
    move: (by) => rail.current?.move(by),
    escape: () => {
      setPane("chat");
      if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
    },
  });

  return (
    <div className="page" data-pane={pane}>
      {/* The brand's column is hidden on a phone; the page needs its heading there too. */}
      <header className="visually-hidden">
        <h1>Threadline</h1>
      </header>
      <a className="skip-link" href="#composer-text" onClick={focusComposer}>
        Skip to the composer
      </a>
      <OfflineBanner />
      {error !== null && error.code !== "unreachable" && (
        <div className="page-error">
          <ErrorBanner error={error} onRetry={() => app.retry()} />
        </div>
      )}
      {/* On a phone only one column shows, and each is the main thing then. */}
      <main className="columns">
        <SessionRail ref={rail} onOpened={() => setPane("chat")} />
        <Conversation
          inspecting={pane === "inspect"}
          onInspect={() => setPane(pane === "inspect" ? "chat" : "inspect")}
        />
        <div className="scrim" aria-hidden="true" onClick={() => setPane("chat")} />
        <Inspector onClose={() => setPane("chat")} onContinue={() => setPane("chat")} />
      </main>
      <nav className="tab-bar" aria-label="Parts of the page">
        {panes.map((entry) => (
          <button
            key={entry.pane}
            type="button"
            aria-current={pane === entry.pane ? "page" : undefined}
            onClick={() => setPane(entry.pane)}
          >
            <Icon name={entry.icon} />
            {entry.label}
          </button>
        ))}
      </nav>
      <Toasts />
      <Overlays />
    </div>
  );
}

/** The address belongs to the router, so the link must not change it. */
function focusComposer(event: { preventDefault: () => void }): void {
  event.preventDefault();
  document.getElementById("composer-text")?.focus();
}
