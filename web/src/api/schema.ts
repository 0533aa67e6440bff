// Written by `cargo xtask types` from the server's OpenAPI document. Do not edit.

export interface AgentInput {
  allowCommands?: Prefix[] | null;
  approvalPolicy?: ApprovalPolicy | null;
  context?: string | null;
  goal?: string | null;
  idempotencyKey?: string | null;
  images?: ImageInput[] | null;
  limits?: LimitsInput | null;
  model?: string | null;
  sandboxMode?: SandboxMode | null;
  sessionId?: string | null;
  task: string;
  temperature?: number | null;
}

export type ApprovalPolicy = "strict" | "on_request" | "never";

export interface Approvals {
  approvals: Question[];
}

export interface AssistantItem {
  id: string;
  interrupted: boolean;
  kind: "assistant";
  model: Model | null;
  parts: ViewPart[];
  seq: number;
  step: number;
  stopReason: string | null;
  streaming: boolean;
  usage: Usage | null;
}

export interface Audit {
  entries: AuditEntry[];
  next: number | null;
}

export type AuditEntry = {
  approvalId: string;
  arguments: string;
  kind: "asked";
  name: string;
  reason: string;
  seq: number;
  time: number;
} | {
  approvalId: string;
  by: string;
  comment: string | null;
  decision: "approved" | "approved_for_session" | "denied" | "expired";
  kind: "decided";
  seq: number;
  time: number;
} | {
  approvalPolicy: ApprovalPolicy;
  kind: "policy";
  sandboxMode: SandboxMode;
  seq: number;
  time: number;
  turn: number;
} | {
  by: string;
  grantId: string;
  kind: "granted";
  prefix: string[];
  seq: number;
  time: number;
} | {
  by: string;
  grantId: string;
  kind: "revoked";
  seq: number;
  time: number;
} | {
  kind: "other";
  seq: number;
  time: number;
  type: string;
};

export interface Cancelled {
  runId: string;
}

export interface CaughtUp {
  seq: number;
  type: "caught_up";
}

export interface CheckDone {
  report: Verified;
  type: "verified";
}

export interface CheckProgress {
  bytes: number;
  of: number;
  stage: "waiting" | "records" | "requests";
  type: "progress";
}

export interface CompactionItem {
  id: string;
  kind: "compaction";
  replaces: {
    fromSeq: number;
    toSeq: number;
  };
  seq: number;
  summary: ContentPart[];
  tokensAfter: number | null;
  tokensBefore: number;
}

export interface Config {
  ceiling: {
    approvalPolicy: ApprovalPolicy;
    sandboxMode: SandboxMode;
  };
  cwd: string;
  defaults: {
    approvalPolicy: ApprovalPolicy;
    sandboxMode: SandboxMode;
  };
  demonstration: boolean;
  images: ImageLimits;
  limits: {
    maxCost: number | null;
    maxSeconds: number | null;
    maxSessionCost: number | null;
    maxSessionSeconds: number | null;
    maxSessionSteps: number | null;
    maxSessionTokens: number | null;
    maxSteps: number | null;
    maxTokens: number | null;
  };
  model: string;
  /** What a million tokens cost, by provider/model or provider. */
  prices: Record<string, Price>;
  provider: string;
  providers: string[];
  store: string;
  version: string;
}

export interface ContentPart {
  blob?: string;
  mediaType?: string;
  text?: string;
  type: "text" | "image" | "unknown";
}

export interface Damage {
  bytes: number;
  file: string;
  offset: number;
  reason: string;
  seq: number;
}

export interface Decided {
  decision: Decision;
}

export type Decision = "approve" | "approve_for_session" | "deny";

export interface DecisionInput {
  comment?: string | null;
  decision: Decision;
  prefix?: string[] | null;
}

export interface Delivered {
  runId: string | null;
}

export type Delivery = "after_turn" | "next_step";

export interface ForkInput {
  at?: number | null;
}

export interface Forked {
  atSeq: number;
  closed: number;
  id: string;
  parent: string;
}

export type Grant = {
  by: string;
  grantId: string;
  grantedAt: number;
  kind: "commands";
  prefix: string[];
  seq: number;
} | {
  arguments: string;
  by: string;
  grantId: string;
  grantedAt: number;
  kind: "call";
  name: string;
  seq: number;
};

export interface GrantInput {
  prefix: Prefix;
}

export interface Grants {
  grants: Grant[];
}

export interface HeadItem {
  id: string;
  kind: "head";
  reason: "rewind" | "redo";
  seq: number;
  toSeq: number;
}

export interface Health {
  status: string;
  version: string;
}

export interface History {
  items: Record<string, unknown>[];
  /** How often normalising changed what. */
  report: Record<string, unknown>;
}

export interface ImageInput {
  data: string;
  mediaType: "image/png" | "image/jpeg" | "image/gif" | "image/webp";
}

export interface ImageLimits {
  bytes: number;
  count: number;
  mediaTypes: string[];
}

export type Item = SystemItem | UserItem | AssistantItem | ToolItem | CompactionItem | HeadItem | NoticeItem | LostItem;

export interface LimitsInput {
  maxCost?: number | null;
  maxSeconds?: number | null;
  maxSessionCost?: number | null;
  maxSessionSeconds?: number | null;
  maxSessionSteps?: number | null;
  maxSessionTokens?: number | null;
  maxSteps?: number | null;
  maxTokens?: number | null;
}

export interface Lineage {
  ancestors: Relative[];
  children: {
    nextCursor: string | null;
    sessions: Relative[];
  };
  older: boolean;
  session: Relative;
  siblings: {
    nextCursor: string | null;
    sessions: Relative[];
  };
}

/** A line of the log, as it is stored. */
export interface LogEvent {
  seq: number;
  time: number;
  type: string;
  [key: string]: unknown;
}

export interface LogPage {
  damage: Damage[];
  lines: LogEvent[];
  next: number | null;
}

export interface LostItem {
  bytes: number;
  events: {
    fromSeq: number;
    toSeq: number;
  };
  id: string;
  kind: "lost";
  reason: string;
  seq: number;
}

export interface Model {
  name: string;
  provider: string;
}

export interface Moved {
  seq: number;
  toSeq: number;
}

export interface NoticeItem {
  attempt: number;
  delayMs: number | null;
  id: string;
  kind: "notice";
  message: string;
  seq: number;
  status: number | null;
  type: "model/retry" | "model/error" | "item/rejected";
}

/** An OpenAPI 3.1 document. */
export type OpenApi = Record<string, unknown>;

export type Outcome = "ok" | "error" | "denied" | "timeout" | "cancelled" | "not_started" | "unknown";

export type Patch = {
  op: "turn";
  turn: TurnHead;
} | {
  item: Item;
  op: "item";
  turn: number;
} | {
  id: string;
  kind: "text" | "reasoning" | "tool_args" | "output";
  op: "append";
  part: number;
  text: string;
  turn: number;
} | {
  op: "status";
  running: boolean;
  status: Status;
};

/** Words that commands begin with: one by one, or as a text. */
export type Prefix = string[] | string;

export interface Price {
  cachedInput: number;
  input: number;
  output: number;
}

export interface Problem {
  code: "invalid_input" | "bad_cursor" | "empty_task" | "bad_image" | "unknown_provider" | "unauthorized" | "policy_ceiling" | "bad_host" | "bad_origin" | "not_found" | "session_not_found" | "step_not_found" | "no_such_event" | "blob_not_found" | "approval_not_found" | "grant_not_found" | "method_not_allowed" | "conflict" | "already_exists" | "not_running" | "not_waiting" | "queue_full" | "grants_full" | "already_decided" | "session_busy" | "turn_open" | "nothing_to_redo" | "fork_empty" | "locked" | "fenced" | "too_large" | "damaged" | "unsupported" | "missing_folder" | "invalid_event" | "internal" | "no_store" | "storage_error" | "poisoned" | "unknown_outcome" | "shutting_down" | "storage_full";
  detail: string;
  field?: string;
  hint?: string;
  status: number;
  title: string;
  type: string;
}

export interface Question {
  approvalId: string;
  arguments: string;
  askedAt: number;
  name: string;
  outsideSandbox?: boolean;
  prefix?: string[];
  reason: string;
  runId: string;
  sessionId: string;
  toolCallId: string;
}

export interface Queue {
  messages: QueuedMessage[];
}

export interface QueueInput {
  delivery?: Delivery;
  images?: ImageInput[] | null;
  messageId?: string;
  text: string;
}

export interface Queued {
  messageId: string;
  runId: string | null;
  seq: number;
}

export interface QueuedMessage {
  delivery: Delivery;
  images: {
    blob: string;
    mediaType: string;
  }[];
  messageId: string;
  text: string;
}

export interface Reason {
  code?: string;
  kind: "completed" | "cancelled" | "blocked" | "error" | "max_steps" | "max_tokens" | "limit" | "interrupted";
  limit?: string;
  message?: string;
}

export interface Relative {
  atSeq: number | null;
  id: string;
  kind: "session" | "fork" | "subagent";
  summary: Summary | null;
}

export interface RequestDetail {
  body: Record<string, unknown> | null;
  bytes: number;
  fingerprint: {
    match: boolean;
    rebuilt: string;
    recorded: string;
  };
  items: number;
  request: {
    items: Record<string, unknown>[];
    model: string;
    provider: string;
    system: string;
    temperature?: number;
    tools: Record<string, unknown>[];
  };
  seq: number;
  step: number;
  turn: number;
}

export interface RequestHead {
  bytes: number;
  fingerprint: string;
  items: number;
  seq: number;
  step: number;
  turn: number;
}

export interface Requests {
  damage: Damage | null;
  next: number | null;
  requests: RequestHead[];
}

export interface RewindInput {
  to: number;
}

export interface RunFinished {
  answer: string;
  durableSeq: number | null;
  reason: Reason;
  runId: string;
  sessionId: string;
  type: "run_finished";
  usage: Usage;
}

export interface RunPolicy {
  approvalPolicy: ApprovalPolicy;
  cwd: string;
  model: string;
  provider: string;
  sandboxMode: SandboxMode;
}

export interface RunResult {
  answer: string;
  reason: Reason;
  runId: string;
  subagentUsage?: Usage;
  usage: Usage;
}

export interface RunStarted {
  policy: RunPolicy;
  /** Torn bytes that opening moved aside. */
  recovered?: Record<string, unknown>;
  resumed: boolean;
  runId: string;
  sessionId: string;
  type: "run_started";
}

export type SandboxMode = "read_only" | "workspace_write" | "danger_full_access";

export interface SessionDetail {
  /** The first line of the log; see docs/format.md. */
  header: Record<string, unknown>;
  summary: Summary;
}

export interface SessionPage {
  counts?: {
    all: number;
    inTrees?: number;
    shown: number;
  };
  nextCursor: string | null;
  rebuilding: boolean;
  sessions: Summary[];
}

export interface Span {
  endedAt: number | null;
  kind: "model" | "tool" | "approval";
  label: string;
  outcome: Outcome | null;
  seq: number;
  startedAt: number;
  step: number;
}

export type Status = "idle" | "running" | "waiting" | "interrupted" | "damaged" | "unsupported" | "missing";

export interface Summary {
  archived: boolean;
  bytes: number;
  children?: number;
  createdAt: number;
  cwd: string;
  durability: "step" | "event" | "os";
  error: {
    code: string;
    file?: string;
    message: string;
    offset?: number;
    seq?: number;
  } | null;
  events: number;
  firstPrompt: string | null;
  id: string;
  madeTitle?: {
    model: Model;
    text: string;
    usage: Usage;
  };
  model: Model | null;
  parent: {
    id: string;
    seq: number;
  } | null;
  peopleDamaged?: string;
  pinned: boolean;
  revision: number;
  status: Status;
  subagentUsage?: Usage;
  tags: string[];
  title: string | null;
  turns: number;
  updatedAt: number;
  usage: Usage;
}

/** Fields that are absent stay; a null title removes it. */
export interface SummaryPatch {
  archived?: boolean;
  pinned?: boolean;
  revision: number;
  tags?: string[];
  title?: string | null;
}

export interface Sync {
  bytes: number;
  durability: "step" | "event" | "os";
  durableSeq: number | null;
  epoch: number | null;
  lastSeq: number;
  writer: {
    host: string;
    pid: number;
    since: number;
  } | null;
}

export interface SystemItem {
  id: string;
  kind: "system";
  reason: "initial" | "changed";
  seq: number;
  text: string;
  tools: string[];
}

export interface Timeline {
  cut: boolean;
  endedAt: number | null;
  spans: Span[];
  startedAt: number;
  turn: number;
}

export interface ToolItem {
  approval: ViewApproval | null;
  arguments: string;
  callId: string;
  content: ContentPart[];
  endedAt: number | null;
  full: {
    blob: string;
  } | null;
  grantId?: string;
  id: string;
  isError: boolean;
  kind: "tool";
  name: string;
  outcome: Outcome | null;
  output: string;
  outsideSandbox?: boolean;
  resultSeq: number | null;
  seq: number;
  startSeq: number | null;
  startedAt: number | null;
  step: number;
  synthetic: boolean;
}

export interface Turn {
  context: TurnContext | null;
  endSeq: number | null;
  endedAt: number | null;
  items: Item[];
  reason: Reason | null;
  runId: string;
  startSeq: number;
  startedAt: number;
  subagentUsage?: Usage;
  turn: number;
  usage: Usage;
}

export interface TurnContext {
  approvalPolicy: ApprovalPolicy;
  confined?: boolean;
  cwd: string | {
    bytes: string;
  };
  maxSteps?: number;
  model: string;
  provider: string;
  sandboxMode: SandboxMode;
  temperature?: number;
}

export interface TurnHead {
  context: TurnContext | null;
  endSeq: number | null;
  endedAt: number | null;
  reason: Reason | null;
  runId: string;
  startSeq: number;
  startedAt: number;
  subagentUsage?: Usage;
  turn: number;
  usage: Usage;
}

export interface Turns {
  atEnd: boolean;
  cut: boolean;
  damage: Damage | null;
  from: number;
  lastSeq: number;
  running: boolean;
  status: Status;
  to: number;
  turns: Turn[];
}

export interface Usage {
  cachedInputTokens?: number;
  inputTokens: number;
  outputTokens: number;
  reasoningTokens?: number;
}

export interface UserItem {
  content: ContentPart[];
  id: string;
  kind: "user";
  seq: number;
  source: "user" | "queued" | "steer" | "context";
}

export interface Verified {
  chainedTurns: number;
  events: number;
  findings: {
    message: string;
    seq: number | null;
  }[];
  found: number;
  hint: string | null;
  ok: boolean;
  requests: {
    found: number;
    ok: boolean;
    unequal: {
      seq: number;
      step: number;
    }[];
  } | null;
  unverified: number;
}

export interface ViewApproval {
  approvalId: string;
  by: string | null;
  decision: "approved" | "approved_for_session" | "denied" | "expired" | null;
  outsideSandbox?: boolean;
  prefix?: string[];
  reason: string;
}

export interface ViewMessage {
  patches: Patch[];
  seq: number;
}

export interface ViewPart {
  kind: "text" | "reasoning" | "tool_args";
  text: string;
}
