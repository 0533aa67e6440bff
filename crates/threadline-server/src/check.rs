//! Looking after a session: checking its log, and how far it is stored.

use axum::{Json, extract::State};
use serde::Serialize;
use threadline_store::{Finding, Holder, VerifyReport, WindowAt};

use crate::{
    error::Problem,
    input::{self, Params, Path},
    limits::MAX_FINDINGS,
    state::Shared,
};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Verified {
    /// Whether nothing is wrong with the log.
    ok: bool,
    events: u64,
    chained_turns: u64,
    unverified: u64,
    /// What is wrong, in order; the first of them.
    findings: Vec<Found>,
    /// How many there are.
    found: u64,
    /// What a person does about it.
    hint: Option<String>,
    /// Whether the requests of all steps were rebuilt too, and which are not what was sent.
    requests: Option<Rebuilt>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Found {
    seq: Option<u64>,
    message: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Rebuilt {
    ok: bool,
    unequal: Vec<threadline_store::Unequal>,
    found: u64,
}

fn seq_of(finding: &Finding) -> Option<u64> {
    match finding {
        Finding::Damage { damage } => Some(damage.seq),
        Finding::Chain { seq, .. }
        | Finding::Unchained { seq }
        | Finding::Unreadable { seq, .. } => Some(*seq),
        Finding::Unchecked { seq } => *seq,
        Finding::Truncated { last_seq, .. } => Some(last_seq.map_or(0, |seq| seq + 1)),
    }
}

/// `POST /api/agent/sessions/{id}/verify`
pub(crate) async fn verify(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    params: Params,
) -> Result<Json<Verified>, Problem> {
    let id = input::session_id(id)?;
    let requests = params.choice("requests", false, &[("1", true), ("0", false)])?;
    // It reads a whole log as fast as the disk gives it: one at a time, so that the rest goes on.
    let _turn = shared.checking.lock().await;
    let store = shared.agents.store();
    let report = store.verify(&id).await?;
    let rebuilt = if requests && report.ok {
        let unequal = store.unequal_requests(&id).await?;
        Some(Rebuilt {
            ok: unequal.is_empty(),
            found: unequal.len() as u64,
            unequal: unequal.into_iter().take(MAX_FINDINGS).collect(),
        })
    } else {
        None
    };
    Ok(Json(verified(report, rebuilt)))
}

fn verified(report: VerifyReport, requests: Option<Rebuilt>) -> Verified {
    let hint = (!report.ok).then(|| {
        format!(
            "`threadline repair {} --dry-run` says what can be kept; nothing is changed by that",
            report.id
        )
    });
    let findings = report.findings.iter().take(MAX_FINDINGS);
    Verified {
        ok: report.ok,
        events: report.events,
        chained_turns: report.chained_turns,
        unverified: report.unverified,
        findings: findings
            .map(|finding| Found {
                seq: seq_of(finding),
                message: finding.to_string(),
            })
            .collect(),
        found: report.findings.len() as u64,
        hint,
        requests,
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sync {
    /// The last event; -1 when there is none.
    last_seq: i64,
    /// The last event that a writer has acknowledged as durable, when the storage remembers it.
    durable_seq: Option<u64>,
    durability: &'static str,
    bytes: u64,
    writer: Option<Holder>,
}

/// `GET /api/agent/sessions/{id}/sync`
pub(crate) async fn sync(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<Sync>, Problem> {
    let id = input::session_id(id)?;
    let store = shared.agents.store();
    let window = store.window(&id, WindowAt::End, 1).await?;
    Ok(Json(Sync {
        last_seq: i64::try_from(window.end).unwrap_or(i64::MAX) - 1,
        durable_seq: window.stat.acknowledged,
        durability: match store.durability() {
            threadline_store::Durability::Step => "step",
            threadline_store::Durability::Event => "event",
            threadline_store::Durability::Os => "os",
        },
        bytes: window.stat.bytes,
        writer: window.stat.writer,
    }))
}
