import { memo, useState } from "react";
import type {
  AssistantItem,
  AssistantPart,
  CompactionItem,
  Item,
  NoticeItem,
  SystemItem,
  UserItem,
} from "../api/types";
import { duration, plural } from "../model/format";
import { textOfContent } from "../model/text";
import { CappedText } from "./CappedText";
import { Icon } from "./Icon";
import { Markdown } from "./Markdown";
import { ToolCard } from "./ToolCard";

export const ItemView = memo(function ItemView(props: { item: Item; runId: string; live: boolean }) {
  const { item, runId, live } = props;
  switch (item.kind) {
    case "user":
      return <UserMessage item={item} />;
    case "assistant":
      return <AssistantMessage item={item} live={live} />;
    case "tool":
      return <ToolCard item={item} runId={runId} live={live} />;
    case "system":
      return <SystemPrompt item={item} />;
    case "compaction":
      return <Compaction item={item} />;
    case "notice":
      return <Notice item={item} />;
    case "lost":
      return (
        <p className="notice bad" data-testid="lost-events">
          <Icon name="warning" />
          <span>
            {item.events.fromSeq === item.events.toSeq
              ? `Event ${item.events.fromSeq} is`
              : `Events ${item.events.fromSeq} to ${item.events.toSeq} are`}{" "}
            lost for good: {item.reason}. A repair has kept everything around them.
          </span>
        </p>
      );
    case "head":
      return (
        <p className="notice">
          {item.reason === "rewind" ? "Went back" : "Went forward again"} to event {item.toSeq}. Files
          on disk were not changed.
        </p>
      );
    default:
      return null;
  }
});

const sourceText: Record<UserItem["source"], string> = {
  user: "You",
  queued: "You (queued)",
  steer: "You (while it was running)",
  context: "Context",
};

const longPrompt = 4000;

function UserMessage({ item }: { item: UserItem }) {
  const text = textOfContent(item.content);
  return (
    <div className="message user" data-testid="item-user" data-source={item.source}>
      <span className="who">{sourceText[item.source]}</span>
      {text.length > longPrompt ? (
        <CappedText text={text} label="Message" lines={30} chars={longPrompt} className="prose" />
      ) : (
        <p className="user-text">{text}</p>
      )}
    </div>
  );
}

function AssistantMessage({ item, live }: { item: AssistantItem; live: boolean }) {
  const streaming = item.streaming && live;
  const parts = item.parts.filter((part) => part.text !== "");
  // A message that only calls tools has nothing to say; its cards follow it.
  const silent = parts.length === 0 && !streaming && !item.interrupted;
  return (
    <div
      className={silent ? "message assistant silent" : "message assistant"}
      data-testid="item-assistant"
      data-streaming={streaming}
      data-interrupted={item.interrupted}
      aria-busy={streaming}
    >
      {parts.map((part, index) => (
        <Part key={index} part={part} active={streaming && index === parts.length - 1} />
      ))}
      {streaming && parts.length === 0 && <Thinking />}
      {item.interrupted && (
        <p className="interrupted">
          <Icon name="warning" /> Interrupted: the reply was cut off here.
        </p>
      )}
    </div>
  );
}

export function Thinking() {
  return (
    <p className="thinking" role="status">
      <span aria-hidden="true" />
      <span aria-hidden="true" />
      <span aria-hidden="true" />
      <span className="visually-hidden">Waiting for the model</span>
    </p>
  );
}

const longReply = 200_000;

function Part({ part, active }: { part: AssistantPart; active: boolean }) {
  const [all, setAll] = useState(false);
  if (part.kind === "reasoning") return <Reasoning text={part.text} active={active} />;
  if (part.kind === "tool_args") {
    return (
      <div className="writing-call">
        <span className="output-label">Writing a tool call</span>
        <CappedText text={part.text} label="Tool call being written" lines={8} keep="tail" />
      </div>
    );
  }
  const cut = part.text.length > longReply && !all;
  return (
    <>
      <Markdown text={cut ? part.text.slice(0, longReply) : part.text} />
      {cut && (
        <button type="button" className="show-all" onClick={() => setAll(true)}>
          Show all of this reply
        </button>
      )}
    </>
  );
}

function Reasoning({ text, active }: { text: string; active: boolean }) {
  return (
    <details className="reasoning">
      <summary>
        <Icon name="chevron" />
        {active ? "Reasoning now" : "Reasoning"}
        <span className="quiet">{plural(text.trim().split(/\s+/).length, "word")}</span>
      </summary>
      <CappedText text={text} label="Reasoning" lines={60} className="prose" />
    </details>
  );
}

function SystemPrompt({ item }: { item: SystemItem }) {
  return (
    <details className="reasoning system-prompt">
      <summary>
        <Icon name="chevron" />
        {item.reason === "changed" ? "Instructions changed" : "Instructions"}
        <span className="quiet">{plural(item.tools.length, "tool")}</span>
      </summary>
      {item.tools.length > 0 && <p className="tool-names">{item.tools.join(", ")}</p>}
      <CappedText text={item.text} label="Instructions" lines={40} className="prose" />
    </details>
  );
}

function Compaction({ item }: { item: CompactionItem }) {
  return (
    <details className="reasoning compaction">
      <summary>
        <Icon name="chevron" />
        Older history was summarised for the model
        <span className="quiet">
          events {item.replaces.fromSeq} to {item.replaces.toSeq}, about{" "}
          {item.tokensBefore.toLocaleString("en")} tokens before
          {item.tokensAfter !== null && `, ${item.tokensAfter.toLocaleString("en")} after`}
        </span>
      </summary>
      <Markdown text={textOfContent(item.summary)} />
      <p className="quiet">Nothing was removed: the full history stays in the log.</p>
    </details>
  );
}

function Notice({ item }: { item: NoticeItem }) {
  const retry = item.type === "model/retry";
  if (item.type === "item/rejected") {
    return (
      <p className="notice">
        <Icon name="warning" />
        <span>Left out of the conversation with this model from here on: {item.message}</span>
      </p>
    );
  }
  return (
    <p className={retry ? "notice" : "notice bad"}>
      <Icon name="warning" />
      <span>
        {retry ? "The model provider did not answer well; trying again" : "The model provider failed"}
        {` (attempt ${item.attempt})`}
        {item.delayMs !== null && ` after ${duration(item.delayMs)}`}
        {item.status !== null && `, status ${item.status}`}: {item.message}
      </span>
    </p>
  );
}
