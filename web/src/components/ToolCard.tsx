import { memo, useMemo, useState } from "react";
import { api } from "../api/client";
import type { Outcome, ToolItem } from "../api/types";
import { useNow } from "../hooks/useNow";
import { lastStates } from "../model/ansi";
import { checkTask, childSession, commandEnd, isCommand, retryTask, withoutNote } from "../model/calls";
import { diffsOfCall } from "../model/diff";
import { duration, shortId } from "../model/format";
import { callHeadline, prettyJson, revealControls, textOfContent } from "../model/text";
import { ApprovalBox, ApprovalNote, OfferBox, useOffered } from "./ApprovalBox";
import { CallActions, OpenSession } from "./CallActions";
import { CappedText } from "./CappedText";
import { DiffView } from "./DiffView";
import { Icon } from "./Icon";
import { Images } from "./Images";
import { useSessionId } from "./SessionIdContext";

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
  /** Nothing came after this turn, so what it left open can be taken up. */
  isNewest?: boolean;
}

export const ToolCard = memo(function ToolCard({ item, runId, live, isNewest = false }: ToolCardProps) {
  const asking = live && item.outcome === null && item.approval?.decision === null;
  const offered = useOffered(item, runId, isNewest && !live);
  const state = cardState(item, live, asking || offered);
  const [chosen, setChosen] = useState<boolean | null>(null);
  const shown = chosen ?? (asking || offered);
  const result = textOfContent(item.content.filter((part) => part.type !== "image"));
  const diffs = useMemo(() => diffsOfCall(item.name, item.arguments, result), [item.name, item.arguments, result]);
  const child = childSession(item, result);
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
      <ToolHeader item={item} state={state} shown={shown} onToggle={hasArguments(item) ? () => setChosen(!shown) : null} />
      {item.outsideSandbox === true && <p className="approval-outside">Ran without the sandbox.</p>}
      {item.grantId !== undefined && <p className="approval-note">Covered by what is approved for this session.</p>}
      {item.outcome === "unknown" && <UnknownNote name={item.name} />}
      {item.outcome === "not_started" && !offered && <NotStartedNote name={item.name} />}
      {isNewest && !live && !offered && <TakeUp item={item} />}
      {shown && hasArguments(item) && (
        <CappedText
          text={prettyJson(item.arguments)}
          label={`Arguments of ${item.name}`}
          lines={40}
          className="tool-arguments"
        />
      )}
      {diffs !== null && <DiffView files={diffs} />}
      {asking && item.approval !== null && (
        <ApprovalBox approval={item.approval} runId={runId} callId={item.callId} name={item.name} />
      )}
      {!asking && !offered && item.approval !== null && <ApprovalNote approval={item.approval} />}
      {offered && item.approval !== null && (
        <OfferBox approval={item.approval} runId={runId} callId={item.callId} name={item.name} />
      )}
      {child !== null && <OpenSession id={child}>Open the subagent's session {shortId(child)}</OpenSession>}
      <Output item={item} result={result} hasDiff={diffs !== null} />
    </div>
  );
});

type CardState = Outcome | "asking" | "running" | "queued" | "unfinished";

function cardState(item: ToolItem, live: boolean, asking: boolean): CardState {
  if (asking) return "asking";
  if (item.outcome !== null) return item.outcome;
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

function hasArguments(item: ToolItem): boolean {
  const text = item.arguments.trim();
  return text !== "" && text !== "{}";
}

interface ToolHeaderProps {
  item: ToolItem;
  state: CardState;
  shown: boolean;
  /** Null when there is nothing to be shown. */
  onToggle: (() => void) | null;
}

function ToolHeader({ item, state, shown, onToggle }: ToolHeaderProps) {
  const headline = callHeadline(item.arguments);
  return (
    <header className="tool-header">
      <button
        type="button"
        className="disclosure tool-toggle"
        aria-expanded={shown}
        disabled={onToggle === null}
        title={onToggle === null ? "No arguments" : shown ? "Hide the arguments" : "Show the arguments"}
        onClick={() => onToggle?.()}
      >
        <Icon name="chevron" />
        <span className="tool-name">{item.name}</span>
      </button>
      <code className="tool-headline" title={headline}>
        {headline}
      </code>
      <Took item={item} running={state === "running"} />
      <span className="outcome" data-state={state}>
        {(state === "unknown" || state === "not_started") && <Icon name="warning" />}
        {stateText(state)}
      </span>
    </header>
  );
}

function Took({ item, running }: { item: ToolItem; running: boolean }) {
  const now = useNow(1000, running);
  const end = item.endedAt ?? (running ? now : null);
  // Nobody saw the end of a call whose result was made up afterwards.
  if (item.startedAt === null || end === null || item.synthetic) return null;
  return <span className="tool-time">{duration(end - item.startedAt)}</span>;
}

function UnknownNote({ name }: { name: string }) {
  return (
    <p className="unknown-note">
      <strong>{name}</strong> had started when the run was cut off, and no result was recorded. It may
      have done all, part or none of its work. Look at the files or services it touches first.
    </p>
  );
}

function NotStartedNote({ name }: { name: string }) {
  return (
    <p className="unknown-note">
      The run ended before <strong>{name}</strong> began. Nothing was executed.
    </p>
  );
}

/** What a person can have done about a call that was cut off. */
function TakeUp({ item }: { item: ToolItem }) {
  if (item.outcome === "unknown") {
    return (
      <CallActions
        actions={[
          { id: "check-call", label: "Check what it did", task: checkTask(item) },
          { id: "retry-call", label: "Retry", task: retryTask(item) },
        ]}
      />
    );
  }
  if (item.outcome !== "not_started") return null;
  return <CallActions actions={[{ id: "retry-call", label: "Retry", task: retryTask(item) }]} />;
}

interface OutputProps {
  item: ToolItem;
  result: string;
  hasDiff: boolean;
}

function Output({ item, result, hasDiff }: OutputProps) {
  const live = useMemo(() => lastStates(item.output).trimEnd(), [item.output]);
  if (item.resultSeq === null && item.outcome === null) {
    if (live === "") return null;
    return (
      <CappedText text={live} label="Output so far" keep="tail" className="terminal live-output" as="terminal" />
    );
  }
  return (
    <>
      {item.synthetic && live !== "" && (
        <div className="partial-output">
          <span className="output-label">Output before it was cut off</span>
          <CappedText text={live} label="Output before it was cut off" keep="tail" className="terminal" as="terminal" />
        </div>
      )}
      <Result item={item} result={result} hasDiff={hasDiff} />
      <Images content={item.content} of={`the result of ${item.name}`} />
    </>
  );
}

function Result({ item, result, hasDiff }: OutputProps) {
  const session = useSessionId();
  const readable = useMemo(() => lastStates(result).trimEnd(), [result]);
  // The card says above, in a form for people, what a made-up result tells the model.
  if (item.synthetic) return null;
  const { body, note, ok } = isCommand(item.name)
    ? commandEnd(readable)
    : { body: readable, note: null, ok: true };
  const blob = item.full?.blob;
  const whole =
    blob === undefined || session === null
      ? undefined
      : (signal: AbortSignal) => api.blob(session, blob, signal);
  // The difference itself is shown as one; what the tool says before it is enough.
  if (hasDiff && !item.isError) return <p className="tool-note">{revealControls(beforeDiff(body))}</p>;
  const text = item.name === "agent" ? withoutNote(body) : body;
  const hasImage = item.content.some((part) => part.type === "image");
  return (
    <>
      {text !== "" && (
        <CappedText
          text={text}
          label={`Result of ${item.name}`}
          className={resultClass(item)}
          as={item.name === "agent" ? "prose" : "terminal"}
          whole={whole}
        />
      )}
      {text === "" && !hasImage && <p className="empty-output">No output.</p>}
      {note !== null && (
        <p className="exit-note" data-ok={ok}>
          {note}
        </p>
      )}
    </>
  );
}

function resultClass(item: ToolItem): string {
  const kind = isCommand(item.name) ? "terminal" : "tool-said";
  return item.isError ? `${kind} result-error` : kind;
}

function beforeDiff(text: string): string {
  const at = text.search(/(^|\n)--- /);
  return at < 0 ? text : text.slice(0, at).trimEnd();
}
