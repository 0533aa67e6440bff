/** What the page says about tool calls beyond their text. */

import type { ToolItem } from "../api/types";

/** How a command ended, as the last line of its result says, and the output before it. */
export interface CommandEnd {
  body: string;
  note: string | null;
  ok: boolean;
}

const commands = new Set(["shell", "job_start", "job_status", "job_kill"]);
const lastNote = /(?:^|\n)\[((?:exit code -?\d+|ended by signal \d+|took longer than|cancelled;|its end is not known)[^\n]*)\]$/;

export function isCommand(name: string): boolean {
  return commands.has(name);
}

export function commandEnd(text: string): CommandEnd {
  const match = lastNote.exec(text);
  if (match === null) return { body: text, note: null, ok: true };
  const note = match[1] ?? "";
  const body = text.slice(0, match.index);
  return { body: body === "[no output]" ? "" : body, note, ok: note.startsWith("exit code 0") };
}

const uuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
const begun = new RegExp(`^\\[subagent: session (${uuid})\\]`);
const ended = new RegExp(`\\n\\[the subagent [^\\n]*; its session is (${uuid}), [^\\n]*\\]$`);

/** The session that a subagent's call began. The model's own words in between are not believed. */
export function childSession(item: ToolItem, result: string): string | null {
  if (item.name !== "agent") return null;
  return ended.exec(result)?.[1] ?? begun.exec(item.output)?.[1] ?? null;
}

/** What a subagent answered, without the harness's line about its session. */
export function withoutNote(result: string): string {
  const match = ended.exec(result);
  return match === null ? result : result.slice(0, match.index);
}

const maxQuoted = 2000;

function quoted(item: ToolItem): string {
  const { arguments: args } = item;
  return args.length > maxQuoted ? `${args.slice(0, maxQuoted)} ... (shortened)` : args;
}

/** The task that asks what a call of unknown outcome has done. */
export function checkTask(item: ToolItem): string {
  return (
    `The outcome of your call of \`${item.name}\` is unknown: it had started when the run was cut off. ` +
    "Check what it did, without changing anything and without calling it again, and tell me whether it " +
    `took effect in whole, in part or not at all. Its arguments were: ${quoted(item)}`
  );
}

/** The task that has a call made again. */
export function retryTask(item: ToolItem): string {
  const why =
    item.outcome === "unknown"
      ? "had started when the run was cut off, so it may have taken effect. Make sure that doing it again does no harm, then call it"
      : "was never started. Call it";
  return `Your call of \`${item.name}\` ${why} again, with the same arguments: ${quoted(item)}`;
}
