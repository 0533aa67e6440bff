import type {
  CountedPage,
  Delivery,
  Forked,
  ListPlace,
  ListQuery,
  Moved,
  Question,
  Queued,
  QueueInput,
  WaitingMessage,
} from "./acting";
import { errorFromResponse, unreachable } from "./problem";
import type {
  Audit,
  Decision,
  Grant,
  Lineage,
  LogPage,
  RequestDetail,
  RequestHead,
  Requests,
  ServerConfig,
  SessionDetail,
  Summary,
  Sync,
  Timeline,
  TurnsResponse,
} from "./types";

const root = "/api/agent";

export type ArchivedFilter = "false" | "true" | "all";

/** Where a page of turns is, by events or by a turn, and about how many items it has. */
export type TurnsPlace = { limit?: number } & (
  | { before?: number }
  | { from: number }
  | { around: number }
  | { turn: number }
);

export interface SummaryPatch {
  title?: string | null;
  archived?: boolean;
  pinned?: boolean;
  revision: number;
}

async function request(path: string, init?: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(root + path, { credentials: "same-origin", cache: "no-store", ...init });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw unreachable();
  }
  if (!response.ok) throw await errorFromResponse(response);
  return response;
}

async function json<T>(path: string, init?: RequestInit): Promise<T> {
  const response = await request(path, init);
  return (await response.json()) as T;
}

function send(method: string, body: unknown): RequestInit {
  return { method, headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}

const session = (id: string): string => `/sessions/${encodeURIComponent(id)}`;

export const api = {
  config: () => json<ServerConfig>("/config"),

  /** A page of the list, begun at any place of it. */
  sessions(query: Partial<ListQuery>, place: ListPlace, signal?: AbortSignal) {
    const params = new URLSearchParams({ limit: String(place.limit) });
    for (const [name, value] of Object.entries(query)) if (value !== "") params.set(name, value);
    const { skip, pinned, count, parent } = place;
    if (skip !== undefined && skip > 0) params.set("skip", String(skip));
    if (pinned !== undefined) params.set("pinned", String(pinned));
    if (parent !== undefined) params.set("parent", parent);
    if (count === true) params.set("count", "1");
    return json<CountedPage>(`/sessions?${params}`, signal ? { signal } : {});
  },

  session: (id: string, signal?: AbortSignal) =>
    json<SessionDetail>(session(id), signal ? { signal } : {}),

  /** A page of the conversation; the newest when no place is named. */
  turns(id: string, signal?: AbortSignal, place: TurnsPlace = {}) {
    const params = new URLSearchParams();
    for (const [name, value] of Object.entries(place)) params.set(name, String(value));
    return json<TurnsResponse>(`${session(id)}/turns?${params}`, signal ? { signal } : {});
  },

  log: (id: string, from: number, limit: number, signal?: AbortSignal) =>
    json<LogPage>(`${session(id)}/log?from=${from}&limit=${limit}`, signal ? { signal } : {}),

  verifyUrl: (id: string, requests: boolean) =>
    `${root}${session(id)}/verify/stream?requests=${requests ? 1 : 0}`,

  sync: (id: string, signal?: AbortSignal) =>
    json<Sync>(`${session(id)}/sync`, signal ? { signal } : {}),

  lineage: (id: string, children: string | null, signal?: AbortSignal) =>
    json<Lineage>(
      `${session(id)}/lineage${children === null ? "" : `?children=${encodeURIComponent(children)}`}`,
      signal ? { signal } : {},
    ),

  audit: (id: string, before: number | null, signal?: AbortSignal) =>
    json<Audit>(
      `${session(id)}/audit${before === null ? "" : `?before=${before}`}`,
      signal ? { signal } : {},
    ),

  exportUrl: (id: string, format: "jsonl" | "markdown" | "html") =>
    `${root}${session(id)}/export?format=${format}`,

  /** The newest steps, or those before a place in the log. */
  requests: (id: string, before: number | null, signal?: AbortSignal) =>
    json<Requests>(
      `${session(id)}/requests${before === null ? "" : `?before=${before}`}`,
      signal ? { signal } : {},
    ),

  requestOf: (id: string, head: Pick<RequestHead, "step" | "seq">, signal?: AbortSignal) =>
    json<RequestDetail>(
      `${session(id)}/requests/${head.step}?seq=${head.seq}`,
      signal ? { signal } : {},
    ),

  timeline: (id: string, turn: number | null, signal?: AbortSignal) =>
    json<Timeline>(
      `${session(id)}/timeline${turn === null ? "" : `?turn=${turn}`}`,
      signal ? { signal } : {},
    ),

  update: (id: string, patch: SummaryPatch) => json<Summary>(session(id), send("PATCH", patch)),

  async remove(id: string, keepalive = false): Promise<void> {
    await request(session(id), { method: "DELETE", keepalive });
  },

  async cancel(id: string): Promise<void> {
    await request(`${session(id)}/cancel`, { method: "POST" });
  },

  /** `at` is the last event that the fork has; absent for all. */
  fork: (id: string, at?: number) =>
    json<Forked>(`${session(id)}/fork`, send("POST", at === undefined ? {} : { at })),

  rewind: (id: string, to: number) => json<Moved>(`${session(id)}/rewind`, send("POST", { to })),

  redo: (id: string) => json<Moved>(`${session(id)}/redo`, { method: "POST" }),

  async queue(id: string, signal?: AbortSignal): Promise<WaitingMessage[]> {
    const answer = await json<{ messages: WaitingMessage[] }>(
      `${session(id)}/queue`,
      signal ? { signal } : {},
    );
    return answer.messages;
  },

  enqueue: (id: string, message: QueueInput) =>
    json<Queued>(`${session(id)}/queue`, send("POST", message)),

  redeliver: (id: string, message: WaitingMessage, delivery: Delivery) =>
    api.enqueue(id, { text: message.text, messageId: message.messageId, delivery }),

  async withdraw(id: string, messageId: string): Promise<void> {
    await request(`${session(id)}/queue/${encodeURIComponent(messageId)}`, { method: "DELETE" });
  },

  deliver: (id: string) =>
    json<{ runId: string | null }>(`${session(id)}/queue/deliver`, { method: "POST" }),

  /** Every question that waits for a person, of all sessions. */
  async questions(signal?: AbortSignal): Promise<Question[]> {
    const answer = await json<{ approvals: Question[] }>("/approvals", signal ? { signal } : {});
    return answer.approvals;
  },

  /** Calls of a run about which a person is asked, also when the process that asked has died. */
  async askedCalls(runId: string): Promise<string[]> {
    const answer = await request(`/approvals?runId=${encodeURIComponent(runId)}`);
    const { approvals } = (await answer.json()) as { approvals: { toolCallId: string }[] };
    return approvals.map((approval) => approval.toolCallId);
  },

  /** `prefix` are the words that the question offers, to approve commands by that begin with them. */
  async decide(
    runId: string,
    callId: string,
    decision: Decision,
    comment: string,
    prefix?: string[],
  ): Promise<void> {
    const path = `/approvals/${encodeURIComponent(runId)}/${encodeURIComponent(callId)}`;
    const more = { ...(comment === "" ? {} : { comment }), ...(prefix === undefined ? {} : { prefix }) };
    await request(path, send("POST", { decision, ...more }));
  },

  grants: async (id: string) => (await json<{ grants: Grant[] }>(`${session(id)}/grants`)).grants,

  async grant(id: string, prefix: string): Promise<void> {
    await request(`${session(id)}/grants`, send("POST", { prefix }));
  },

  async revoke(id: string, grantId: string): Promise<void> {
    await request(`${session(id)}/grants/${encodeURIComponent(grantId)}`, { method: "DELETE" });
  },

  /**
   * `after` is left out when nothing is known yet: the route then starts at the first event, and
   * no negative number ever reaches a server that counts from zero.
   */
  eventsUrl(id: string, after: number): string {
    const position = after >= 0 ? `after=${after}&` : "";
    return `${root}${session(id)}/events?${position}view=1`;
  },

  blobUrl: (id: string, blob: string): string =>
    `${root}${session(id)}/blobs/${encodeURIComponent(blob)}`,

  /** The bytes behind a name in the log. The browser keeps them outside of the script's memory. */
  async blob(id: string, blob: string, signal?: AbortSignal): Promise<Blob> {
    const path = `${session(id)}/blobs/${encodeURIComponent(blob)}`;
    return (await request(path, signal ? { signal } : {})).blob();
  },

  streamUrl: `${root}/stream`,

  changesUrl: `${root}/changes`,
};
