// The wire contract by the names that the page uses. What the shapes are, the server's document
// says: `schema.ts` is written from it. See docs/http-api.md for the meaning.

import type * as wire from "./schema";

export type {
  AgentInput,
  ApprovalPolicy,
  AssistantItem,
  Audit,
  AuditEntry,
  CheckDone,
  CheckProgress,
  CompactionItem,
  ContentPart,
  Damage,
  Decision,
  Grant,
  HeadItem,
  Item,
  Lineage,
  LogPage,
  LostItem,
  NoticeItem,
  Outcome,
  Patch,
  Price,
  RequestDetail,
  RequestHead,
  Requests,
  Relative,
  RunStarted,
  SandboxMode,
  SessionDetail,
  SessionPage,
  Summary,
  Span,
  Sync,
  SystemItem,
  Timeline,
  ToolItem,
  Turn,
  TurnContext,
  TurnHead,
  Usage,
  UserItem,
  Verified,
  ViewMessage,
} from "./schema";

/** What an answer of the server that is an error may say; anything between may answer too. */
export type Problem = Partial<Omit<wire.Problem, "code">> & { code?: string };

export type SessionStatus = wire.Status;
export type ModelName = wire.Model;
export type TurnReasonKind = wire.Reason["kind"];
export type AssistantPart = wire.ViewPart;
export type PartKind = wire.ViewPart["kind"];
export type Approval = wire.ViewApproval;
export type TurnsResponse = wire.Turns;
export type ServerConfig = wire.Config;

/** A raw log event. The page shows it and never interprets it. */
export type LogEvent = wire.LogEvent;
