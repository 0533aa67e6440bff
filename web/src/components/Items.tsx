import { memo, useState, type ReactNode } from "react";
import type {
  AssistantItem,
  AssistantPart,
  CompactionItem,
  HeadItem,
  Item,
  LostItem,
  NoticeItem,
  SystemItem,
  UserItem,
} from "../api/types";
import { byteSize, duration, plural } from "../model/format";
import { revealProse, textOfContent } from "../model/text";
import { useApp } from "../state/app";
import { CappedText } from "./CappedText";
import { Icon } from "./Icon";
import { Images } from "./Images";
import { Markdown } from "./Markdown";
import { ToolCard } from "./ToolCard";

interface ItemViewProps {
  item: Item;
  runId: string;
  live: boolean;
  isNewest: boolean;
}

export const ItemView = memo(function ItemView({ item, runId, live, isNewest }: ItemViewProps) {
  switch (item.kind) {
    case "user":
      return item.source === "context" ? <ContextMessage item={item} /> : <UserMessage item={item} />;
    case "assistant":
      return <AssistantMessage item={item} live={live} />;
    case "tool":
      return <ToolCard item={item} runId={runId} live={live} isNewest={isNewest} />;
    case "system":
      return <SystemPrompt item={item} />;
    case "compaction":
      return <Compaction item={item} />;
    case "notice":
      return <Notice item={item} />;
    case "head":
      return <Head item={item} />;
    case "lost":
      return <Lost item={item} />;
    default:
      // A newer server may have more kinds of items; saying so is better than a hole.
      return <p className="notice">Something that this page cannot show. The log has it.</p>;
  }
});

const sourceText: Record<UserItem["source"], string> = {
  user: "You",
  queued: "You (queued)",
  steer: "You (while it was running)",
  context: "Context",
};

const longPrompt = 4000;

/** The words of a message; its pictures are shown as such. */
function saidIn(item: UserItem): string {
  return textOfContent(item.content.filter((part) => part.type !== "image"));
}

function UserMessage({ item }: { item: UserItem }) {
  const text = saidIn(item);
  return (
    <div className="message user" data-testid="item-user" data-source={item.source}>
      <span className="who">{sourceText[item.source]}</span>
      {text.length > longPrompt ? (
        <CappedText text={text} label="Message" lines={30} chars={longPrompt} as="prose" />
      ) : (
        <p className="user-text">{revealProse(text)}</p>
      )}
      <Images content={item.content} of="the message" />
    </div>
  );
}

/** What the harness told the model on its own; seldom worth reading, never hidden. */
function ContextMessage({ item }: { item: UserItem }) {
  const text = saidIn(item);
  return (
    <Fold testId="item-user" source="context" title="Context for the model" hint={firstLine(text)} eager>
      <CappedText text={text} label="Context for the model" lines={40} as="prose" className="user-text" />
      <Images content={item.content} of="the context" />
    </Fold>
  );
}

function firstLine(text: string): string {
  const line = text.slice(0, 200).trim().split("\n")[0] ?? "";
  return revealProse(line);
}

interface FoldProps {
  title: string;
  hint: string;
  testId?: string;
  source?: string;
  kind?: string;
  /** Whether the content is there before somebody opens it, to be found by a search of the page. */
  eager?: boolean;
  children: ReactNode;
}

/** A quiet row that opens. */
function Fold({ title, hint, testId, source, kind = "", eager = false, children }: FoldProps) {
  const [open, setOpen] = useState(false);
  return (
    <details
      className={`reasoning ${kind}`}
      data-testid={testId}
      data-source={source}
      onToggle={(event) => setOpen(event.currentTarget.open)}
    >
      <summary>
        <Icon name="chevron" />
        <span className="fold-title">{title}</span>
        <span className="quiet fold-hint">{hint}</span>
      </summary>
      {(open || eager) && <div className="fold-body">{children}</div>}
    </details>
  );
}

function AssistantMessage({ item, live }: { item: AssistantItem; live: boolean }) {
  const streaming = item.streaming && live;
  const parts = item.parts.filter((part) => part.text !== "");
  return (
    <div
      className={isSilent(item, live) ? "message assistant silent" : "message assistant"}
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
      {item.stopReason === "content_filter" && (
        <p className="interrupted">
          <Icon name="warning" /> The provider withheld the rest of this reply.
        </p>
      )}
      {item.stopReason === "length" && (
        <p className="interrupted">
          <Icon name="warning" /> The reply reached the model's limit of output.
        </p>
      )}
    </div>
  );
}

/** A message that only calls tools has nothing to say; its cards follow it. */
export function isSilent(item: AssistantItem, live: boolean): boolean {
  if (item.interrupted || (item.streaming && live)) return false;
  return item.parts.every((part) => part.text === "");
}

export function Thinking() {
  return (
    <p className="thinking">
      <span aria-hidden="true" />
      <span aria-hidden="true" />
      <span aria-hidden="true" />
      <span className="visually-hidden">Waiting for the model</span>
    </p>
  );
}

const longReply = 200_000;

function Part({ part, active }: { part: AssistantPart; active: boolean }) {
  if (part.kind === "reasoning") return <Reasoning text={part.text} active={active} />;
  if (part.kind === "tool_args") {
    return (
      <div className="writing-call">
        <span className="output-label">Writing a tool call</span>
        <CappedText text={part.text} label="Tool call being written" lines={8} keep="tail" />
      </div>
    );
  }
  if (part.text.length <= longReply) return <Markdown text={part.text} growing={active} />;
  return (
    <>
      <Markdown text={part.text.slice(0, longReply)} />
      <p className="quiet">The rest of this very long reply is shown as plain text.</p>
      <CappedText text={part.text.slice(longReply)} label="The rest of the reply" lines={12} as="prose" />
    </>
  );
}

function Reasoning({ text, active }: { text: string; active: boolean }) {
  const words = countWords(text);
  return (
    <Fold title={active ? "Reasoning now" : "Reasoning"} hint={plural(words, "word")} kind="thought">
      <CappedText text={text} label="Reasoning" lines={60} as="prose" />
    </Fold>
  );
}

/** Cheap enough to be asked with every piece of a stream. */
function countWords(text: string): number {
  let count = 0;
  let inWord = false;
  for (let at = 0; at < text.length; at++) {
    const isSpace = text.charCodeAt(at) <= 32;
    if (!isSpace && !inWord) count += 1;
    inWord = !isSpace;
  }
  return count;
}

function SystemPrompt({ item }: { item: SystemItem }) {
  return (
    <Fold
      title={item.reason === "changed" ? "Instructions changed" : "Instructions"}
      hint={plural(item.tools.length, "tool")}
      kind="system-prompt"
    >
      {item.tools.length > 0 && <p className="tool-names">{revealProse(item.tools.join(", "))}</p>}
      <CappedText text={item.text} label="Instructions" lines={40} as="prose" />
    </Fold>
  );
}

function Compaction({ item }: { item: CompactionItem }) {
  const app = useApp();
  const { tokensBefore, tokensAfter, replaces } = item;
  const size = (tokens: number): string => tokens.toLocaleString("en");
  return (
    <section className="seam" data-testid="compaction" aria-label="History summarised">
      <div className="seam-line">
        <span className="seam-title">Older history was summarised for the model</span>
        <span className="seam-figures">
          {size(tokensBefore)} tokens
          <Icon name="arrow" />
          <span className="visually-hidden">to</span>
          {tokensAfter === null ? "not counted" : `${size(tokensAfter)} tokens`}
        </span>
      </div>
      <Fold title="What the model knows of it" hint={`events ${replaces.fromSeq} to ${replaces.toSeq}`}>
        <Markdown text={textOfContent(item.summary)} />
      </Fold>
      <p className="quiet seam-note">
        Nothing was removed: all of it is above, and in the log.{" "}
        <button
          type="button"
          className="link-button"
          data-testid="originals"
          onClick={() => void app.view.seek({ event: replaces.fromSeq })}
        >
          Go to the originals
        </button>
      </p>
    </section>
  );
}

function Head({ item }: { item: HeadItem }) {
  const app = useApp();
  return (
    <section className="seam" data-testid="head-moved">
      <div className="seam-line">
        <span className="seam-title">
          {item.reason === "rewind" ? "Went back" : "Went forward again"} to{" "}
          <button type="button" className="link-button" onClick={() => void app.view.seek({ event: item.toSeq })}>
            event {item.toSeq}
          </button>
        </span>
      </div>
      <p className="quiet seam-note">
        {item.reason === "rewind"
          ? "The model no longer sees what came after it. Files on disk were not changed."
          : "The model sees again what came after it. Files on disk were not changed."}
      </p>
    </section>
  );
}

/** Acknowledged events that are gone: nothing else on the page is as bad as this. */
function Lost({ item }: { item: LostItem }) {
  const { fromSeq, toSeq } = item.events;
  const what = fromSeq === toSeq ? `Event ${fromSeq} is` : `Events ${fromSeq} to ${toSeq} are`;
  return (
    <section className="seam lost" data-testid="lost-events">
      <div className="seam-line">
        <span className="seam-title">
          <Icon name="warning" />
          {what} lost for good
        </span>
        <span className="seam-figures">{byteSize(item.bytes)}</span>
      </div>
      <p className="seam-note">{revealProse(item.reason)}. A repair has kept everything around them.</p>
    </section>
  );
}

function Notice({ item }: { item: NoticeItem }) {
  if (item.type === "model/retry" || item.type === "model/error") return <Trouble item={item} />;
  if (item.type === "item/rejected") {
    return (
      <p className="notice warn" data-testid="notice" data-type={item.type}>
        <Icon name="warning" />
        <span>Left out of the conversation with this model from here on: {revealProse(item.message)}</span>
      </p>
    );
  }
  return (
    <p className="notice bad" data-testid="notice" data-type={item.type}>
      <Icon name="warning" />
      <span>{revealProse((item as NoticeItem).message)}</span>
    </p>
  );
}

function Trouble({ item }: { item: NoticeItem }) {
  const retry = item.type === "model/retry";
  const facts = [
    item.attempt === undefined ? null : `attempt ${item.attempt}`,
    item.status === undefined || item.status === null ? null : `status ${item.status}`,
    item.delayMs === undefined || item.delayMs === null ? null : `next one after ${duration(item.delayMs)}`,
  ].filter((fact) => fact !== null);
  return (
    <p className={retry ? "notice" : "notice bad"} data-testid="notice" data-type={item.type}>
      <Icon name="warning" />
      <span>
        {retry ? "The model provider did not answer well; trying again" : "The model provider failed"}
        {facts.length > 0 && ` (${facts.join(", ")})`}: {revealProse(item.message)}
      </span>
    </p>
  );
}
