import { lazy, Suspense, useState, type KeyboardEvent } from "react";
import { useApp } from "../state/app";
import { useStore } from "../state/store";
import { Icon } from "./Icon";
import { LogPanel } from "./LogPanel";
import { SessionTools } from "./SessionTools";
import { UsageFacts } from "./UsageFacts";

// Seldom looked at, so they are not part of the first load.
const DebugPanel = lazy(async () => ({ default: (await import("./DebugPanel")).DebugPanel }));
const LineagePanel = lazy(async () => ({ default: (await import("./LineagePanel")).LineagePanel }));
const AuditPanel = lazy(async () => ({ default: (await import("./AuditPanel")).AuditPanel }));

const tabs = [
  { id: "session", label: "Session" },
  { id: "lineage", label: "Lineage" },
  { id: "audit", label: "Audit" },
  { id: "debug", label: "Debug" },
] as const;

type Tab = (typeof tabs)[number]["id"];

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
            <SessionTools key={`tools-${view.id}`} id={view.id} />
            {view.summary !== null && <UsageFacts summary={view.summary} />}
            <LogPanel key={view.id} id={view.id} log={view.log} turns={view.model.turns} />
          </>
        ) : (
          <Suspense fallback={<p className="list-empty">Loading</p>}>
            {tab === "lineage" && <LineagePanel key={view.id} id={view.id} />}
            {tab === "audit" && (
              <AuditPanel
                key={view.id}
                id={view.id}
                running={view.model.running}
                lastSeq={view.model.viewSeq}
              />
            )}
            {tab === "debug" && <DebugPanel key={view.id} id={view.id} model={view.model} />}
          </Suspense>
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
    const at = tabs.findIndex((one) => one.id === tab);
    const step = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
    const other = tabs[(at + step + tabs.length) % tabs.length];
    if (step === 0 || other === undefined) return;
    event.preventDefault();
    onTab(other.id);
    document.getElementById(`tab-${other.id}`)?.focus();
  };
  return (
    <div className="inspector-top">
      <div role="tablist" aria-label="Session log and debug" className="tabs" onKeyDown={onKeyDown}>
        {tabs.map((one) => (
          <TabButton key={one.id} id={one.id} tab={tab} onTab={onTab} label={one.label} />
        ))}
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
