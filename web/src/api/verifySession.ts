import { SseParser } from "../sse/parser";
import { api } from "./client";
import { errorFromMessage, errorFromResponse, unreachable } from "./problem";
import type { CheckDone, CheckProgress, Verified } from "./types";

interface VerifyOptions {
  /** Whether the request of every step is rebuilt too. */
  requests: boolean;
  onProgress: (progress: CheckProgress) => void;
  /** Its abort ends the check on the server too. */
  signal: AbortSignal;
}

/** Checks a session's log, and tells meanwhile how far the server is. */
export async function verifySession(id: string, options: VerifyOptions): Promise<Verified> {
  const { requests, onProgress, signal } = options;
  const response = await fetch(api.verifyUrl(id, requests), {
    method: "POST",
    credentials: "same-origin",
    headers: { accept: "text/event-stream" },
    signal,
  });
  if (!response.ok) throw await errorFromResponse(response);
  if (response.body === null) throw unreachable();
  const reader = response.body.getReader();
  const parser = new SseParser();
  for (;;) {
    const chunk = await reader.read();
    if (chunk.done) throw unreachable();
    for (const { event, data } of parser.feed(chunk.value)) {
      if (event === "progress") onProgress(JSON.parse(data) as CheckProgress);
      else if (event === "verified") return (JSON.parse(data) as CheckDone).report;
      else if (event === "error") throw errorFromMessage(data);
    }
  }
}
