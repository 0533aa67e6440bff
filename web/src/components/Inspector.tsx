import { useState, type KeyboardEvent } from "react";
import { useApp } from "../state/app";
import { useStore } from "../state/store";
import { DebugPanel } from "./DebugPanel";
import { Icon } from "./Icon";
import { LogPanel } from "./LogPanel";

type Tab = "session" | "debug";

interface InspectorProps {
  onClose: () => void;
  onContinue: () => void;
}

export function Inspector({ onClose, onContinue }: InspectorProps) {
  const app = useApp();
  const view = useStore(app.view.state);
  const { continuing } = useStore(app.router.state);
  const [tab, setTab] = useState<Tab>("session");
  return (
    <section className="inspector" aria-label="Session log and debug">
      <h2 className="visually-hidden">Session log and debug</h2>
      <Tabs tab={tab} onTab={setTab} onClose={onClose} />
      <div role="tabpanel" id={`panel-${tab}`} aria-labelledby={`tab-${tab}`} className="tab-panel">
        {view.id === null || view.log === null ? (
          <p className="list-empty">
            {view.id === null ? "Open a session to see its log." : "Nothing to show yet."}
          </p>
        ) : tab === "session" ? (
          <>
            <div className="continue-bar">
              <button
                type="button"
                className="button primary"
                data-testid="continue-session"
                data-active={continuing === view.id}
                disabled={view.damage !== null}
                onClick={() => {
                  if (view.id !== null) app.continueSession(view.id);
                  onContinue();
                  document.getElementById("composer-text")?.focus();
                }}
              >
                Continue this session
              </button>
            </div>
            <LogPanel key={view.id} log={view.log} turns={view.model.turns} />
          </>
        ) : (
          <DebugPanel key={view.id} id={view.id} model={view.model} />
        )}
      </div>
    </section>
  );
}

interface TabsProps {
  tab: Tab;
  onTab: (tab: Tab) => void;
  onClose: () => void;
}

function Tabs({ tab, onTab, onClose }: TabsProps) {
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const other = tab === "session" ? "debug" : "session";
    onTab(other);
    document.getElementById(`tab-${other}`)?.focus();
  };
  return (
    <div className="inspector-top">
      <div role="tablist" aria-label="Session log and debug" className="tabs" onKeyDown={onKeyDown}>
        <TabButton id="session" tab={tab} onTab={onTab} label="Session" />
        <TabButton id="debug" tab={tab} onTab={onTab} label="Debug" />
      </div>
      <button type="button" className="icon-button inspector-close" aria-label="Close" onClick={onClose}>
        <Icon name="cross" />
      </button>
    </div>
  );
}

function TabButton(props: { id: Tab; tab: Tab; onTab: (tab: Tab) => void; label: string }) {
  const selected = props.tab === props.id;
  return (
    <button
      type="button"
      role="tab"
      id={`tab-${props.id}`}
      data-testid={`tab-${props.id}`}
      aria-selected={selected}
      aria-controls={`panel-${props.id}`}
      tabIndex={selected ? 0 : -1}
      onClick={() => props.onTab(props.id)}
    >
      {props.label}
    </button>
  );
}
