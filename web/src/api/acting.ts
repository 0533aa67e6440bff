// What acting on sessions says over the wire; see docs/http-api.md for the meaning.

import type { ImageInput } from "./schema";
import type { SessionPage, SessionStatus } from "./types";
import type { ArchivedFilter } from "./client";

export interface ListQuery {
  query: string;
  archived: ArchivedFilter;
  /** Empty: all. */
  status: SessionStatus | "";
  /** A folder; empty: all. */
  cwd: string;
  /** `provider/model` that was used last; empty: all. */
  model: string;
  /** Forks and children below what they came from. */
  tree: "1" | "";
}

export interface ListPlace {
  skip?: number;
  limit: number;
  pinned?: boolean;
  count?: boolean;
  parent?: string;
}

export interface CountedPage extends SessionPage {
  counts?: { shown: number; inTrees?: number; all: number };
}

export type Delivery = "after_turn" | "next_step";

export interface WaitingMessage {
  messageId: string;
  text: string;
  delivery: Delivery;
  images?: { mediaType: string; blob: string }[];
}

export interface Queued {
  messageId: string;
  seq: number;
  /** The run that began with it, when the session had none. */
  runId: string | null;
}

export type { ImageInput, ImageLimits } from "./schema";

export interface QueueInput {
  text: string;
  delivery?: Delivery;
  messageId?: string;
  images?: ImageInput[];
}

export interface Forked {
  id: string;
  parent: string;
  atSeq: number;
  closed: number;
}

export interface Moved {
  toSeq: number;
  seq: number;
}

/** A question that waits for a person, of any session. */
export interface Question {
  approvalId: string;
  runId: string;
  sessionId: string;
  toolCallId: string;
  name: string;
  arguments: string;
  reason: string;
  askedAt: number;
}
