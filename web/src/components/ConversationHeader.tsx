import { byteSize, plural, sessionTitle } from "../model/format";
import { useApp } from "../state/app";
import type { SessionViewState } from "../state/sessionView";
import type { ConnectionState } from "../sse/follower";
import { CopyId } from "./CopyId";
import { Status } from "./Feedback";
import { GrantsButton } from "./GrantsPanel";
import { Icon } from "./Icon";
import { TrayButton } from "./SessionRail";
import { SessionUsage } from "./UsageFacts";

interface ConversationHeaderProps {
  view: SessionViewState;
  inspecting: boolean;
  onInspect: () => void;
}

export function ConversationHeader({ view, inspecting, onInspect }: ConversationHeaderProps) {
  const app = useApp();
  const { summary } = view;
  return (
    <header className="conversation-header">
      <div className="heading">
        <h2 title={summary === null ? undefined : sessionTitle(summary)}>{view.id === null ? "New session" : summary === null ? "Session" : sessionTitle(summary)}</h2>
        <div className="heading-facts">
          {view.id !== null && <CopyId id={view.id} label="session id" />}
          {view.phase === "ready" && <Status status={view.model.status} />}
          {summary !== null && (
            <>
              <span className="optional">{plural(summary.turns, "turn")}</span>
              <SessionUsage summary={summary} />
              <span className="optional" title="Size of the log">
                {byteSize(summary.bytes)}
              </span>
              <ParentLink parent={summary.parent} onOpen={(id) => app.router.view(id)} />
            </>
          )}
        </div>
      </div>
      <Connection state={view.connection} />
      {view.id !== null && view.phase === "ready" && (
        <GrantsButton key={view.id} id={view.id} version={`${view.model.status} ${view.model.turns.length}`} />
      )}
      <span className="header-tray">
        <TrayButton />
      </span>
      {view.id !== null && view.phase === "ready" && (
        <button
          type="button"
          className="icon-button"
          data-testid="open-compare"
          aria-label="Compare with a fork"
          title="Compare with a fork"
          onClick={() => {
            if (view.id !== null) app.show({ compare: [view.id, summary?.parent?.id ?? null] });
          }}
        >
          <Icon name="compare" />
        </button>
      )}
      <button
        type="button"
        className="icon-button inspect-toggle"
        aria-label="Session log and debug"
        aria-expanded={inspecting}
        title="Session log and debug"
        onClick={onInspect}
      >
        <Icon name="panel" />
      </button>
    </header>
  );
}

interface ParentLinkProps {
  parent: { id: string; seq: number } | null;
  onOpen: (id: string) => void;
}

function ParentLink({ parent, onOpen }: ParentLinkProps) {
  if (parent === null) return null;
  return (
    <button type="button" className="link-button" title={parent.id} onClick={() => onOpen(parent.id)}>
      forked at event {parent.seq}
    </button>
  );
}

const connectionText: Record<ConnectionState, string> = {
  idle: "",
  connecting: "Connecting",
  live: "Live",
  reconnecting: "Reconnecting...",
  closed: "",
  error: "Not following",
};

function Connection({ state }: { state: ConnectionState }) {
  return (
    <span className="connection" data-testid="connection" data-state={state} role="status" aria-live="polite">
      {connectionText[state]}
    </span>
  );
}
