//! Looking after a session: checking its log, and how far it is stored.

use std::ops::ControlFlow;

use axum::{Json, extract::State, response::Response};
use futures_util::Stream;
use serde::Serialize;
use threadline_session::SessionId;
use threadline_store::{
    CheckProgress, CheckStage, Finding, Holder, VerifyReport, WatchCheck, WindowAt,
};
use tokio::{sync::watch, task::JoinHandle, time::MissedTickBehavior};
use tokio_util::sync::DropGuard;

use crate::{
    error::{Code, Problem},
    input::{self, Params, Path},
    limits::{CHECK_GAP, MAX_FINDINGS},
    sse::{self, Frames},
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

/// What a check is asked to look at.
fn asked(params: &Params) -> Result<bool, Problem> {
    params.choice("requests", false, &[("1", true), ("0", false)])
}

/// `POST /api/agent/sessions/{id}/verify`
pub(crate) async fn verify(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    params: Params,
) -> Result<Json<Verified>, Problem> {
    let id = input::session_id(id)?;
    let mut check = Check::start(&shared, id, asked(&params)?);
    check.outcome().await.map(Json)
}

/// `POST /api/agent/sessions/{id}/verify/stream`
pub(crate) async fn verify_stream(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    params: Params,
) -> Result<Response, Problem> {
    let id = input::session_id(id)?;
    let requests = asked(&params)?;
    shared.agents.store().stat(&id).await?;
    let check = Check::start(&shared, id, requests);
    Ok(sse::respond(&shared, check.into_stream()))
}

/// A check that goes on in a task of its own and ends with this: when the client has gone or the
/// server goes down.
struct Check {
    task: JoinHandle<Result<Verified, Problem>>,
    progress: watch::Receiver<Option<CheckProgress>>,
    _ends: DropGuard,
}

#[derive(Serialize)]
struct Progress {
    r#type: &'static str,
    /// `waiting` while another check goes on, then what the check does.
    stage: &'static str,
    bytes: u64,
    of: u64,
}

#[derive(Serialize)]
struct Done {
    r#type: &'static str,
    report: Verified,
}

impl Check {
    fn start(shared: &Shared, id: SessionId, requests: bool) -> Self {
        let ends = shared.closing.child_token();
        let (tell, progress) = watch::channel(None);
        let work = {
            let (shared, ends) = (shared.clone(), ends.clone());
            async move {
                let mut watch = move |progress| {
                    tell.send_replace(Some(progress));
                    if ends.is_cancelled() {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                };
                check(&shared, &id, requests, &mut watch).await
            }
        };
        let given_up = ends.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                biased;
                () = given_up.cancelled() => Err(stopped()),
                done = work => done,
            }
        });
        Self {
            task,
            progress,
            _ends: ends.drop_guard(),
        }
    }

    async fn outcome(&mut self) -> Result<Verified, Problem> {
        (&mut self.task).await.unwrap_or_else(|error| {
            tracing::error!(%error, "a check has failed");
            Err(Problem::new(Code::Internal, "the check has failed"))
        })
    }

    /// Says now and then how far the check is, and at last what it found.
    fn into_stream(self) -> impl Stream<Item = Frames> + Send + 'static {
        let mut ticks = tokio::time::interval(CHECK_GAP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        futures_util::stream::unfold(Some((self, ticks)), async |state| {
            let (mut check, mut ticks) = state?;
            let mut frames = Frames::default();
            tokio::select! {
                biased;
                done = check.outcome() => {
                    match done {
                        Ok(report) => {
                            frames.control("verified", &Done { r#type: "verified", report });
                        }
                        Err(problem) => frames.error(problem.into_failure()),
                    }
                    Some((frames, None))
                }
                _ = ticks.tick() => {
                    frames.control("progress", &said(*check.progress.borrow_and_update()));
                    Some((frames, Some((check, ticks))))
                }
            }
        })
    }
}

fn said(progress: Option<CheckProgress>) -> Progress {
    let (stage, bytes, of) = match progress {
        None => ("waiting", 0, 0),
        Some(CheckProgress { stage, bytes, of }) => {
            let stage = match stage {
                CheckStage::Records => "records",
                CheckStage::Requests => "requests",
            };
            (stage, bytes, of)
        }
    };
    Progress {
        r#type: "progress",
        stage,
        bytes,
        of,
    }
}

fn stopped() -> Problem {
    Problem::new(Code::ShuttingDown, "the check was stopped")
}

async fn check(
    shared: &Shared,
    id: &SessionId,
    requests: bool,
    watch: &mut WatchCheck<'_>,
) -> Result<Verified, Problem> {
    // It reads a whole log as fast as the disk gives it: one at a time, so that the rest goes on.
    let _turn = shared.checking.lock().await;
    let store = shared.agents.store();
    let report = store.verify_watched(id, watch).await?.ok_or_else(stopped)?;
    let rebuilt = if requests && report.ok {
        let unequal = store.unequal_requests_watched(id, watch).await?;
        let unequal = unequal.ok_or_else(stopped)?;
        Some(Rebuilt {
            ok: unequal.is_empty(),
            found: unequal.len() as u64,
            unequal: unequal.into_iter().take(MAX_FINDINGS).collect(),
        })
    } else {
        None
    };
    Ok(verified(report, rebuilt))
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
    /// Counts the writers of the session; `null` when nobody has written it here.
    epoch: Option<u64>,
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
        epoch: window.stat.epoch,
        bytes: window.stat.bytes,
        writer: window.stat.writer,
    }))
}
