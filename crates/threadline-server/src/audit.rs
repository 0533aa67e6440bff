//! What was asked, who decided and what was in force: `GET /api/agent/sessions/{id}/audit`.

use axum::{Json, extract::State};
use serde::Serialize;
use threadline_session::{
    Payload,
    codec::Line,
    payload::{ApprovalPolicy, Decision, SandboxMode},
};
use threadline_store::{ReadError, WindowAt};

use crate::{
    error::Problem,
    input::{self, Params, Path},
    limits::{AUDIT_EVENTS, AUDIT_LIMIT, MAX_AUDIT_LIMIT},
    state::Shared,
};

#[derive(Debug, Serialize)]
pub(crate) struct Audit {
    /// Newest first.
    entries: Vec<Entry>,
    /// `before` of the next page; `null` at the beginning of the log.
    next: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Entry {
    seq: u64,
    time: u64,
    #[serde(flatten)]
    what: What,
}

#[derive(Debug, Serialize)]
#[serde(
    tag = "kind",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
enum What {
    Asked {
        approval_id: String,
        name: String,
        arguments: String,
        reason: String,
    },
    Decided {
        approval_id: String,
        decision: Decision,
        by: String,
        comment: Option<String>,
    },
    /// What a turn ran under, when the turn before it ran under something else.
    Policy {
        turn: u64,
        approval_policy: ApprovalPolicy,
        sandbox_mode: SandboxMode,
    },
    /// Commands that begin with these words are approved from now on.
    Granted {
        grant_id: String,
        prefix: Vec<String>,
        by: String,
    },
    /// They, or calls of a tool that were approved for the session, are asked about again.
    Revoked { grant_id: String, by: String },
    /// Another event about approvals.
    Other { r#type: String },
}

/// `GET /api/agent/sessions/{id}/audit`
pub(crate) async fn show(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    params: Params,
) -> Result<Json<Audit>, Problem> {
    let id = input::session_id(id)?;
    let limit = params.number("limit", AUDIT_LIMIT as u64, 1..=MAX_AUDIT_LIMIT as u64)?;
    let store = shared.agents.store();
    let before = match params.get("before") {
        Some(_) => params.number("before", 0, 0..=u64::MAX)?,
        None => store.window(&id, WindowAt::End, 1).await?.end,
    };
    let mut reading = Reading::new(limit, before);
    let read = store.each_event_back(&id, before, |line| reading.take(line));
    match read.await {
        // What can be read of a damaged log is told.
        Ok(()) | Err(ReadError::Corrupt { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    if reading.next.is_some()
        && let Some(newer) = &reading.newer
        && let Some((view, _)) = store.view_before(&id, newer.seq).await?
        && let Some(context) = view.transcript().context()
        && newer.is_policy(context.approval_policy, context.sandbox_mode)
    {
        reading.newer = None;
    }
    Ok(Json(reading.finish()))
}

impl Entry {
    fn is_policy(&self, approval: ApprovalPolicy, sandbox: SandboxMode) -> bool {
        matches!(
            &self.what,
            What::Policy { approval_policy, sandbox_mode, .. }
                if *approval_policy == approval && *sandbox_mode == sandbox
        )
    }
}

/// A reading of the log backwards.
struct Reading {
    entries: Vec<Entry>,
    limit: u64,
    /// Events that may still be read.
    left: u64,
    /// The newer of two turns that are compared, until the older one is known.
    newer: Option<Entry>,
    /// Where the next page goes on.
    next: Option<u64>,
    at: u64,
}

impl Reading {
    fn new(limit: u64, before: u64) -> Self {
        Self {
            entries: Vec::new(),
            limit,
            left: AUDIT_EVENTS,
            newer: None,
            next: None,
            at: before,
        }
    }

    fn take(&mut self, line: &Line) -> bool {
        self.at = line.event.seq;
        if let Some(what) = what(line) {
            self.entry(Entry {
                seq: line.event.seq,
                time: line.event.time,
                what,
            });
        }
        self.left = self.left.saturating_sub(1);
        if self.entries.len() as u64 >= self.limit || self.left == 0 {
            self.next = Some(self.at).filter(|next| *next > 0);
            return false;
        }
        true
    }

    fn entry(&mut self, entry: Entry) {
        let What::Policy {
            approval_policy,
            sandbox_mode,
            ..
        } = &entry.what
        else {
            return self.entries.push(entry);
        };
        let same = (self.newer.as_ref())
            .is_some_and(|newer| newer.is_policy(*approval_policy, *sandbox_mode));
        let newer = self.newer.replace(entry);
        if !same {
            self.entries.extend(newer);
        }
    }

    /// Makes the page. Before the first turn of a log nothing was in force.
    fn finish(mut self) -> Audit {
        self.entries.extend(self.newer);
        self.entries
            .sort_by_key(|entry| std::cmp::Reverse(entry.seq));
        Audit {
            entries: self.entries,
            next: self.next,
        }
    }
}

fn what(line: &Line) -> Option<What> {
    match line.event.payload().ok()? {
        Payload::ApprovalAsked(asked) => Some(What::Asked {
            approval_id: asked.approval_id,
            name: asked.name,
            arguments: asked.arguments,
            reason: asked.reason,
        }),
        Payload::ApprovalDecided(decided) => Some(What::Decided {
            approval_id: decided.approval_id,
            decision: decided.decision,
            by: decided.by,
            comment: decided.comment,
        }),
        Payload::TurnStart(start) => Some(What::Policy {
            turn: start.turn,
            approval_policy: start.context.approval_policy,
            sandbox_mode: start.context.sandbox_mode,
        }),
        Payload::ApprovalGranted(granted) => Some(What::Granted {
            grant_id: granted.grant_id,
            prefix: granted.prefix,
            by: granted.by,
        }),
        Payload::ApprovalRevoked(revoked) => Some(What::Revoked {
            grant_id: revoked.grant_id,
            by: revoked.by,
        }),
        _ if line.event.kind.starts_with("approval/") => Some(What::Other {
            r#type: line.event.kind.clone(),
        }),
        _ => None,
    }
}
