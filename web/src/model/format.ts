/** Formatting for people. Pure: the time zone and "now" come from the caller or the browser. */

const minute = 60_000;
const hour = 60 * minute;
const day = 24 * hour;

export function relativeTime(at: number, now: number): string {
  const ago = now - at;
  if (ago < 45_000) return "just now";
  if (ago < hour) return `${Math.max(1, Math.round(ago / minute))} min ago`;
  if (ago < day) return `${Math.round(ago / hour)} h ago`;
  if (ago < 7 * day) return plural(Math.round(ago / day), "day") + " ago";
  return isoDate(at);
}

export function isoDate(at: number): string {
  const date = new Date(at);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
}

export function clock(at: number): string {
  const date = new Date(at);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}`;
}

export function clockWithMillis(at: number): string {
  const date = new Date(at);
  const millis = String(date.getMilliseconds()).padStart(3, "0");
  return `${clock(at)}:${pad(date.getSeconds())}.${millis}`;
}

export function dateTime(at: number): string {
  return `${isoDate(at)} ${clock(at)}`;
}

function pad(value: number): string {
  return String(value).padStart(2, "0");
}

export function duration(ms: number): string {
  if (!Number.isFinite(ms) || ms < 0) return "0 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < minute) return `${Math.round(ms / 1000)} s`;
  if (ms < hour) return `${Math.floor(ms / minute)} min ${Math.floor((ms % minute) / 1000)} s`;
  return `${Math.floor(ms / hour)} h ${Math.floor((ms % hour) / minute)} min`;
}

export function byteSize(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = bytes / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function compactNumber(value: number): string {
  if (value < 1000) return String(value);
  if (value < 1_000_000) return `${trimZero((value / 1000).toFixed(value < 10_000 ? 1 : 0))}k`;
  return `${trimZero((value / 1_000_000).toFixed(1))}M`;
}

function trimZero(text: string): string {
  return text.endsWith(".0") ? text.slice(0, -2) : text;
}

export function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

export function tokens(usage: { inputTokens: number; outputTokens: number }): string {
  return `${compactNumber(usage.inputTokens)} in, ${compactNumber(usage.outputTokens)} out`;
}

/** The same eight characters that the command line prints and accepts as a prefix. */
export function shortId(id: string): string {
  return id.slice(0, 8);
}

export function words(identifier: string): string {
  return identifier.replaceAll("_", " ");
}

export function sessionTitle(summary: { title: string | null; firstPrompt: string | null }): string {
  return oneLine(summary.title ?? "") || oneLine(summary.firstPrompt ?? "") || "Untitled session";
}

export function oneLine(text: string, max = 200): string {
  const line = text.slice(0, max * 4).replace(/\s+/g, " ").trim();
  return line.length > max ? `${line.slice(0, max - 3)}...` : line;
}

/** A reason that begins with a long path says nothing in a narrow row: the file's name must do. */
export function withoutFolder(message: string, file: string | undefined): string {
  if (file === undefined || !message.startsWith(file)) return message;
  return file.slice(file.lastIndexOf("/") + 1) + message.slice(file.length);
}
