import { SseParser, type SseMessage } from "../sse/parser";
import { api } from "./client";
import { ApiError, errorFromMessage, errorFromResponse, unreachable } from "./problem";
import type { AgentInput, RunStarted } from "./types";

/**
 * Starts a turn and returns as soon as the server has named the run. The body is dropped then: the
 * run does not depend on this connection, and the page follows it like any other session.
 */
export async function startRun(
  input: AgentInput,
  fetchImpl: typeof fetch = fetch.bind(globalThis),
): Promise<RunStarted> {
  const abort = new AbortController();
  try {
    const response = await open(input, fetchImpl, abort.signal);
    if (!response.ok) throw await errorFromResponse(response);
    if (response.body === null) throw unreachable();
    return await firstAnswer(response.body.getReader());
  } finally {
    abort.abort();
  }
}

async function open(
  input: AgentInput,
  fetchImpl: typeof fetch,
  signal: AbortSignal,
): Promise<Response> {
  try {
    return await fetchImpl(api.streamUrl, {
      method: "POST",
      credentials: "same-origin",
      headers: { "content-type": "application/json", accept: "text/event-stream" },
      body: JSON.stringify(input),
      signal,
    });
  } catch {
    throw unreachable();
  }
}

async function firstAnswer(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<RunStarted> {
  const parser = new SseParser();
  for (;;) {
    let chunk: ReadableStreamReadResult<Uint8Array>;
    try {
      chunk = await reader.read();
    } catch {
      throw unclear();
    }
    if (chunk.done) throw unclear();
    for (const message of parser.feed(chunk.value)) {
      const started = answerOf(message);
      if (started !== null) return started;
    }
  }
}

function answerOf(message: SseMessage): RunStarted | null {
  if (message.event === "run_started") return JSON.parse(message.data) as RunStarted;
  if (message.event === "error") throw errorFromMessage(message.data);
  return null;
}

/** The connection broke before the run was named: sending again with the same key is safe. */
function unclear(): ApiError {
  return new ApiError({
    status: 0,
    code: "unclear",
    detail: "The connection was lost before the server confirmed the task.",
    hint: "Send it again: the same task is never started twice.",
  });
}
