/** Texts that were typed and not sent, one for each session, over reloads and restarts. */

const prefix = "threadline.draft.";
const forNew = "new";
const maxDrafts = 50;
const maxChars = 200_000;

const keyOf = (session: string | null): string => prefix + (session ?? forNew);

export function readDraft(session: string | null): string {
  try {
    const kept = localStorage.getItem(keyOf(session));
    if (kept === null) return "";
    const parsed: unknown = JSON.parse(kept);
    const text = (parsed as { text?: unknown } | null)?.text;
    return typeof text === "string" ? text : "";
  } catch {
    return "";
  }
}

export function saveDraft(session: string | null, text: string, now = Date.now()): void {
  try {
    if (text === "" || text.length > maxChars) localStorage.removeItem(keyOf(session));
    else localStorage.setItem(keyOf(session), JSON.stringify({ text, at: now }));
    if (text !== "") dropOldest();
  } catch {
    // Storage can be full or forbidden; the draft then lives as long as the page.
  }
}

function dropOldest(): void {
  const keys = Object.keys(localStorage).filter((key) => key.startsWith(prefix));
  if (keys.length <= maxDrafts) return;
  const at = (key: string): number => {
    try {
      const parsed: unknown = JSON.parse(localStorage.getItem(key) ?? "null");
      return Number((parsed as { at?: unknown } | null)?.at ?? 0);
    } catch {
      return 0;
    }
  };
  const oldest = keys.map((key) => [at(key), key] as const).sort(([a], [b]) => a - b);
  for (const [, key] of oldest.slice(0, keys.length - maxDrafts)) localStorage.removeItem(key);
}
