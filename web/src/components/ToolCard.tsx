import { memo, useState } from "react";
import type { Outcome, ToolItem } from "../api/types";
import { duration } from "../model/format";
import { callHeadline, prettyJson, revealControls, terminalText, textOfContent } from "../model/text";
import { useNow } from "../hooks/useNow";
import { ApprovalBox, ApprovalNote, OfferBox } from "./ApprovalBox";
import { CappedText } from "./CappedText";
import { Icon } from "./Icon";

const outcomeText: Record<Outcome, string> = {
  ok: "Done",
  error: "Failed",
  denied: "Denied",
  timeout: "Timed out",
  cancelled: "Stopped",
  not_started: "Never started: safe to retry",
  unknown: "Outcome unknown: check before retrying",
};

interface ToolCardProps {
  item: ToolItem;
  runId: string;
  /** The turn of this call is still running here. */
  live: boolean;
}

export const ToolCard = memo(function ToolCard({ item, runId, live }: ToolCardProps) {
  const asking = live && item.outcome === null && item.approval?.decision === null;
  const state = cardState(item, live, asking);
  return (
    <div
      role="group"
      className="tool-card"
      data-testid="tool-card"
      data-call-id={item.callId}
      data-outcome={item.outcome ?? "pending"}
      data-state={state}
      aria-label={`Tool call ${item.name}`}
    >
      <ToolHeader item={item} state={state} />
      {item.outsideSandbox === true && <p className="approval-outside">Ran without the sandbox.</p>}
      {item.grantId !== undefined && <p className="approval-note">Covered by what is approved for this session.</p>}
      {item.outcome === "unknown" && <UnknownNote name={item.name} />}
      <Arguments item={item} open={asking} />
      {asking && item.approval !== null && (
        <ApprovalBox approval={item.approval} runId={runId} callId={item.callId} name={item.name} />
      )}
      {!asking && item.approval !== null && <ApprovalNote approval={item.approval} />}
      {item.approval?.decision === "expired" && item.outcome === "not_started" && (
        <OfferBox approval={item.approval} runId={runId} callId={item.callId} name={item.name} />
      )}
      <Output item={item} />
    </div>
  );
});

type CardState = Outcome | "asking" | "running" | "queued" | "unfinished";

function cardState(item: ToolItem, live: boolean, asking: boolean): CardState {
  if (item.outcome !== null) return item.outcome;
  if (asking) return "asking";
  if (!live) return "unfinished";
  return item.startSeq === null ? "queued" : "running";
}

function stateText(state: CardState): string {
  switch (state) {
    case "asking":
      return "Needs your approval";
    case "running":
      return "Running";
    case "queued":
      return "Waiting to start";
    case "unfinished":
      return "No result recorded";
    default:
      return outcomeText[state];
  }
}

function ToolHeader({ item, state }: { item: ToolItem; state: CardState }) {
  const now = useNow(1000, state === "running");
  const end = item.endedAt ?? (state === "running" ? now : null);
  // Nobody saw the end of a call whose result was made up afterwards.
  const took =
    item.startedAt !== null && end !== null && !item.synthetic ? duration(end - item.startedAt) : null;
  return (
    <header className="tool-header">
      <Icon name="tool" />
      <span className="tool-name">{item.name}</span>
      <code className="tool-headline" title={callHeadline(item.arguments)}>
        {callHeadline(item.arguments)}
      </code>
      {took !== null && <span className="tool-time">{took}</span>}
      <span className="outcome" data-state={state} role="status">
        {state === "unknown" && <Icon name="warning" />}
        {stateText(state)}
      </span>
    </header>
  );
}

function UnknownNote({ name }: { name: string }) {
  return (
    <p className="unknown-note">
      <strong>{name}</strong> had started when the run was cut off, and no result was recorded. It may
      have done all, part or none of its work. Look at the files or services it touches first.
    </p>
  );
}

function Arguments({ item, open }: { item: ToolItem; open: boolean }) {
  const [chosen, setChosen] = useState<boolean | null>(null);
  const shown = chosen ?? open;
  if (item.arguments.trim() === "" || item.arguments.trim() === "{}") return null;
  return (
    <div className="tool-arguments">
      <button
        type="button"
        className="disclosure"
        aria-expanded={shown}
        onClick={() => setChosen(!shown)}
      >
        <Icon name="chevron" />
        Arguments
      </button>
      {shown && (
        <CappedText
          text={revealControls(prettyJson(item.arguments))}
          label={`Arguments of ${item.name}`}
          lines={40}
        />
      )}
    </div>
  );
}

function Output({ item }: { item: ToolItem }) {
  const live = terminalText(item.output).trimEnd();
  if (item.resultSeq === null && item.outcome === null) {
    if (live === "") return null;
    return <CappedText text={live} label="Output so far" keep="tail" className="live-output" />;
  }
  const result = terminalText(textOfContent(item.content)).trimEnd();
  return (
    <>
      {item.synthetic && live !== "" && (
        <div className="partial-output">
          <span className="output-label">Output before it was cut off</span>
          <CappedText text={live} label="Output before it was cut off" keep="tail" />
        </div>
      )}
      {result !== "" && (
        <CappedText
          text={result}
          label={`Result of ${item.name}`}
          className={item.isError ? "result-error" : ""}
        />
      )}
      {result === "" && <p className="empty-output">No output.</p>}
    </>
  );
}
