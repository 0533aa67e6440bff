// The wire contract as types. Nothing here is behaviour; see docs/http-api.md for the meaning.

import type { ImageLimits } from "./acting";

export interface Problem {
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  code?: string;
  field?: string;
  hint?: string;
}

export type SessionStatus =
  | "idle"
  | "running"
  | "waiting"
  | "interrupted"
  | "damaged"
  | "unsupported"
  | "missing";

export interface Usage {
  inputTokens: number;
  outputTokens: number;
}

export interface ModelName {
  provider: string;
  name: string;
}

export interface Summary {
  id: string;
  title: string | null;
  firstPrompt: string | null;
  createdAt: number;
  updatedAt: number;
  turns: number;
  events: number;
  status: SessionStatus;
  cwd: string;
  model: ModelName | null;
  usage: Usage;
  bytes: number;
  archived: boolean;
  pinned: boolean;
  tags: string[];
  revision: number;
  parent: { id: string; seq: number } | null;
  durability: "step" | "event" | "os";
  error: { code: string; message: string; file?: string; offset?: number; seq?: number } | null;
  peopleDamaged?: string;
}

export interface SessionPage {
  sessions: Summary[];
  nextCursor: string | null;
}

export type ApprovalPolicy = "strict" | "on_request" | "never";
export type SandboxMode = "read_only" | "workspace_write" | "danger_full_access";

export interface TurnContext {
  provider?: string;
  model?: string;
  approvalPolicy?: string;
  sandboxMode?: string;
  cwd?: string;
}

export type TurnReasonKind =
  | "completed"
  | "cancelled"
  | "blocked"
  | "error"
  | "max_steps"
  | "max_tokens"
  | "limit"
  | "interrupted";

export interface TurnHead {
  turn: number;
  runId: string;
  startSeq: number;
  endSeq: number | null;
  startedAt: number;
  endedAt: number | null;
  context: TurnContext;
  reason: null | { kind: TurnReasonKind; code?: string; message?: string };
  usage: Usage;
}

export interface Turn extends TurnHead {
  items: Item[];
}

export interface ContentPart {
  type: string;
  text?: string;
}

export type PartKind = "text" | "reasoning" | "tool_args";

export interface AssistantPart {
  kind: PartKind;
  text: string;
}

interface ItemBase {
  id: string;
  seq: number;
}

export interface SystemItem extends ItemBase {
  kind: "system";
  reason: "initial" | "changed";
  text: string;
  tools: string[];
}

export interface UserItem extends ItemBase {
  kind: "user";
  source: "user" | "queued" | "steer" | "context";
  content: ContentPart[];
}

export interface AssistantItem extends ItemBase {
  kind: "assistant";
  step: number;
  streaming: boolean;
  interrupted: boolean;
  stopReason: string | null;
  model: ModelName | null;
  usage: Usage | null;
  parts: AssistantPart[];
}

export type Outcome =
  | "ok"
  | "error"
  | "denied"
  | "timeout"
  | "cancelled"
  | "not_started"
  | "unknown";

export interface Approval {
  approvalId: string;
  reason: string | null;
  decision: null | "approved" | "approved_for_session" | "denied" | "expired";
  by: string | null;
}

export interface ToolItem extends ItemBase {
  kind: "tool";
  step: number;
  callId: string;
  name: string;
  arguments: string;
  startSeq: number | null;
  resultSeq: number | null;
  startedAt: number | null;
  endedAt: number | null;
  outcome: Outcome | null;
  isError: boolean;
  content: ContentPart[];
  output: string;
  synthetic: boolean;
  approval: Approval | null;
}

export interface CompactionItem extends ItemBase {
  kind: "compaction";
  summary: ContentPart[];
  replaces: { fromSeq: number; toSeq: number };
  tokensBefore: number;
  tokensAfter: number | null;
}

export interface HeadItem extends ItemBase {
  kind: "head";
  toSeq: number;
  reason: "rewind" | "redo";
}

export interface NoticeItem extends ItemBase {
  kind: "notice";
  type: "model/retry" | "model/error" | "item/rejected";
  message: string;
  attempt?: number;
  status?: number;
  delayMs?: number;
}

export type Item =
  | SystemItem
  | UserItem
  | AssistantItem
  | ToolItem
  | CompactionItem
  | HeadItem
  | NoticeItem;

export interface Damage {
  file: string | null;
  offset: number | null;
  seq: number | null;
  reason: string;
}

export interface TurnsResponse {
  turns: Turn[];
  lastSeq: number;
  running: boolean;
  status: string;
  damage: Damage | null;
}

export interface SessionDetail {
  header: Record<string, unknown>;
  summary: Summary;
  turns: TurnHead[];
}

export type Patch =
  | { op: "turn"; turn: TurnHead }
  | { op: "item"; turn: number; item: Item }
  | {
      op: "append";
      turn: number;
      id: string;
      part?: number;
      kind: PartKind | "output";
      text: string;
    }
  | { op: "status"; status: string; running: boolean };

export interface ViewMessage {
  seq: number;
  patches: Patch[];
}

/** A raw log event. The page shows it and never interprets it. */
export interface LogEvent {
  seq: number;
  time: number;
  type: string;
  data?: unknown;
  [key: string]: unknown;
}

export interface LogPage {
  lines: LogEvent[];
  next: number | null;
}

export interface RequestHead {
  step: number;
  turn: number;
  seq: number;
  fingerprint: string;
  items: number;
  bytes: number;
}

export interface RequestDetail {
  step: number;
  turn: number;
  seq: number;
  request: {
    provider?: string;
    model?: string;
    system?: unknown;
    tools?: unknown;
    items?: unknown[];
    temperature?: number;
  };
  body: unknown;
  fingerprint: { recorded: string; rebuilt: string; match: boolean };
  items: number;
  bytes: number;
}

export interface AgentInput {
  task: string;
  goal?: string;
  context?: string;
  model?: string;
  temperature?: number;
  approvalPolicy?: ApprovalPolicy;
  sandboxMode?: SandboxMode;
  sessionId?: string;
  idempotencyKey?: string;
}

export interface RunStarted {
  type: "run_started";
  runId: string;
  sessionId: string;
  resumed: boolean;
  policy: TurnContext;
}

export type Decision = "approve" | "approve_for_session" | "deny";

export interface ServerConfig {
  version: string;
  cwd: string;
  store: string;
  provider: string;
  model: string;
  /** The providers that are set up. */
  providers?: string[];
  /** What may be attached to a message. */
  images?: ImageLimits;
  demonstration: boolean;
  defaults: { approvalPolicy: ApprovalPolicy; sandboxMode: SandboxMode };
  ceiling: { approvalPolicy: ApprovalPolicy; sandboxMode: SandboxMode };
}
