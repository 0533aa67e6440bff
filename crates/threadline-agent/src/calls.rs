//! The tool calls of one step: judged, asked for, started, run and answered.
//!
//! Neighbouring read-only calls run at the same time; all others one after the other, in the
//! order of the message. Each result is logged as soon as it is there; one that is too long for the
//! model is stored as a blob before.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use serde_json::Value;
use threadline_session::{
    Payload,
    payload::{
        ApprovalAsked, ApprovalDecided, AssistantMessage, Decision, EndReason, Outcome,
        OutputStream, SandboxMode, ToolOutput as OutputPiece, ToolResult, ToolStart,
    },
};
use threadline_store::{AppendError, AppendOptions, SessionStore, SessionWriter};
use tokio::{sync::mpsc, time::Instant};
use tracing::Instrument as _;

use crate::{
    Approver,
    agents::Core,
    approvals::{Answer, Answered, ApprovalInfo},
    driver::{Driver, Stop},
    limits::{OUTPUT_LOG_BYTES, OUTPUT_TIME, PARALLEL_CALLS},
    outputs,
    policy::{Grant, SHELL, Verdict, judge, suggest},
    spans,
    tools::{CallSession, Effect, Tool, ToolContext, ToolOutput, parse_arguments},
};

/// Ends the live output that is logged when there is more.
const LIVE_END: &str = "\n[the rest of the output is in the result]\n";

/// What the model is told when a call of this run may not leave the sandbox.
const CONFINED: &str = "`outside_sandbox` is more than the server allows, so nobody was asked; do \
    it without, or say in your answer what the person should run";

/// A call of the message.
#[derive(Clone)]
struct Call {
    call_id: String,
    name: String,
    arguments: String,
}

/// What a call runs under besides the turn's context.
#[derive(Debug, Clone, Default)]
struct Leave {
    /// A person has let it run without the sandbox.
    outside: bool,
    /// The grant that covers it.
    grant_id: Option<String>,
}

/// What is to be done with a call once it was judged.
enum Plan {
    Run {
        tool: Arc<dyn Tool>,
        arguments: Value,
        effect: Effect,
        grant_id: Option<String>,
    },
    /// It is asked for first, then run.
    Ask {
        tool: Arc<dyn Tool>,
        arguments: Value,
        reason: String,
        outside: bool,
    },
    Refuse(ToolOutput),
}

impl Driver {
    /// Runs the calls of a message until each is answered.
    pub(crate) async fn run_calls(&mut self, message: AssistantMessage) -> Result<(), Stop> {
        let calls: Vec<Call> = message
            .calls()
            .map(|call| Call {
                call_id: call.call_id.into(),
                name: call.name.into(),
                arguments: call.arguments.into(),
            })
            .collect();
        // Logged without a barrier: the one before the first tool covers it.
        self.record(vec![Payload::AssistantMessage(message)], false)
            .await?;
        let mut at = 0;
        while let Some(call) = calls.get(at) {
            if self.halt().is_cancelled() {
                return Err(self.halted());
            }
            match self.plan(call).await {
                Plan::Refuse(output) => {
                    self.answer(call, output).await?;
                    at += 1;
                }
                Plan::Ask {
                    tool,
                    arguments,
                    reason,
                    outside,
                } => {
                    let offered = self.offered(call, &arguments, outside);
                    if let Some(refusal) = self.ask(call, reason, outside, offered).await? {
                        self.answer(call, refusal).await?;
                    } else {
                        let leave = Leave {
                            outside,
                            grant_id: None,
                        };
                        self.run_group(vec![(call.clone(), tool, arguments)], leave)
                            .await?;
                    }
                    at += 1;
                }
                Plan::Run {
                    tool,
                    arguments,
                    effect: Effect::ReadOnly,
                    ..
                } => {
                    let mut group = vec![(call.clone(), tool, arguments)];
                    at += 1;
                    while let Some(next) = calls.get(at).filter(|_| group.len() < PARALLEL_CALLS) {
                        let Plan::Run {
                            tool,
                            arguments,
                            effect: Effect::ReadOnly,
                            ..
                        } = self.plan(next).await
                        else {
                            break;
                        };
                        group.push((next.clone(), tool, arguments));
                        at += 1;
                    }
                    self.run_group(group, Leave::default()).await?;
                }
                Plan::Run {
                    tool,
                    arguments,
                    grant_id,
                    ..
                } => {
                    let leave = Leave {
                        outside: false,
                        grant_id,
                    };
                    self.run_group(vec![(call.clone(), tool, arguments)], leave)
                        .await?;
                    at += 1;
                }
            }
        }
        Ok(())
    }

    async fn plan(&self, call: &Call) -> Plan {
        let toolbox = &self.toolbox;
        let Some(tool) = toolbox.get(&call.name) else {
            return Plan::Refuse(toolbox.unknown(&call.name));
        };
        let arguments = match parse_arguments(&call.arguments) {
            Ok(arguments) => arguments,
            Err(error) => return Plan::Refuse(error.into()),
        };
        let grants: Vec<Grant> = self
            .core
            .writer
            .with_transcript(|transcript| {
                transcript
                    .session_grants()
                    .iter()
                    .filter_map(Grant::read)
                    .collect()
            })
            .await;
        let effect = tool.effect(&arguments);
        let (policy, sandbox) = (self.context.approval_policy, self.context.sandbox_mode);
        let tool = tool.clone();
        let run = |tool, arguments, grant_id| Plan::Run {
            tool,
            arguments,
            effect,
            grant_id,
        };
        let ask = |tool, arguments, reason, outside| Plan::Ask {
            tool,
            arguments,
            reason,
            outside,
        };
        match judge(policy, sandbox, effect, &call.name, &arguments, &grants) {
            Verdict::Allow => run(tool, arguments, None),
            Verdict::Granted { grant_id } => run(tool, arguments, Some(grant_id)),
            Verdict::Ask { reason } => ask(tool, arguments, reason, false),
            Verdict::AskOutside { .. } if self.context.confined => {
                Plan::Refuse(ToolOutput::denied(CONFINED))
            }
            Verdict::AskOutside { reason } => ask(tool, arguments, reason, true),
            Verdict::Deny { reason } => Plan::Refuse(ToolOutput::denied(reason)),
        }
    }

    /// Returns the words that a question offers to approve the like of its command by.
    fn offered(&self, call: &Call, arguments: &Value, outside: bool) -> Option<Vec<String>> {
        if outside || call.name != SHELL {
            return None;
        }
        let command = arguments.get("command")?.as_str()?;
        Some(suggest(command)?.into_words())
    }

    /// Asks a person. Returns the refusal, or nothing when the call may run.
    async fn ask(
        &mut self,
        call: &Call,
        reason: String,
        outside_sandbox: bool,
        prefix: Option<Vec<String>>,
    ) -> Result<Option<ToolOutput>, Stop> {
        let asked = ApprovalAsked {
            approval_id: uuid::Uuid::now_v7().to_string(),
            call_id: call.call_id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            reason,
            prefix,
            outside_sandbox,
        };
        if self.is_approved(&asked).await? {
            return Ok(None);
        }
        let config = &self.core.shared.config;
        if config.approver == Approver::Nobody {
            return Err(Stop::End(EndReason::Blocked));
        }
        let timeout = config.approval_timeout;
        let info = ApprovalInfo::of(
            self.run.run_id().clone(),
            self.run.session_id().clone(),
            asked.clone(),
            self.core.shared.store.clock().now_ms(),
        );
        // Put up before it is logged: whoever sees the event can answer at once.
        let board = self.core.shared.board.clone();
        let answer = board.ask(info.clone());
        let logged = self.record(vec![Payload::ApprovalAsked(asked)], true).await;
        let halt = self.halt().clone();
        let answered = match logged {
            Err(error) => Err(Stop::Storage(error)),
            Ok(_) => tokio::select! {
                biased;
                () = halt.cancelled() => Err(self.halted()),
                answered = tokio::time::timeout(timeout, answer) => {
                    Ok(answered.ok().and_then(Result::ok))
                }
            },
        };
        board.withdraw(self.run.run_id(), &call.call_id);
        let answered = answered?;
        let decided = match &answered {
            Some(answered) => info.decided(answered),
            None => ApprovalDecided {
                approval_id: info.approval_id,
                decision: Decision::Expired,
                by: "timeout".into(),
                comment: None,
                prefix: None,
            },
        };
        self.record(vec![Payload::ApprovalDecided(decided)], false)
            .await?;
        Ok(refusal(answered))
    }

    async fn answer(&mut self, call: &Call, output: ToolOutput) -> Result<(), Stop> {
        self.counters().tool_call(output.outcome);
        let result = result(&self.core.shared.store, call, output).await?;
        self.record(vec![result], false).await?;
        Ok(())
    }

    /// Runs calls at the same time. Their starts are on stable storage before the first begins.
    async fn run_group(
        &mut self,
        group: Vec<(Call, Arc<dyn Tool>, Value)>,
        leave: Leave,
    ) -> Result<(), Stop> {
        let starts = group
            .iter()
            .map(|(call, _, _)| {
                Payload::ToolStart(ToolStart {
                    call_id: call.call_id.clone(),
                    name: call.name.clone(),
                    cwd: self.context.cwd.clone(),
                    outside_sandbox: leave.outside,
                    grant_id: leave.grant_id.clone(),
                })
            })
            .collect();
        self.record(starts, true).await?;
        let core = self.core.clone();
        let mut running: FuturesUnordered<_> = group
            .into_iter()
            .map(|(call, tool, arguments)| {
                let context = self.tool_context(&call, &leave);
                run_one(&core, call, tool, arguments, context)
            })
            .collect();
        let mut outcome = Ok(());
        // All of them are waited for, also after a failure: a tool is never left running unseen.
        while let Some(done) = running.next().await {
            outcome = outcome.and(done);
        }
        outcome?;
        if self.halt().is_cancelled() {
            return Err(self.halted());
        }
        Ok(())
    }

    fn tool_context(&self, call: &Call, leave: &Leave) -> ToolContext {
        let mode = match leave.outside {
            true => SandboxMode::DangerFullAccess,
            false => self.context.sandbox_mode,
        };
        let mut context = ToolContext::new(self.context.cwd.as_path(), mode);
        context.granted = leave.grant_id.is_some();
        context.denied = self.core.shared.store.private_paths();
        context
            .denied
            .extend(self.core.shared.config.denied.iter().cloned());
        context.passed = self.core.shared.config.env.clone();
        context.files = self.borrowed.files.clone();
        context.terminals = self.borrowed.terminals.clone();
        context.cancel = self.halt().clone();
        context.session = Some(CallSession::new(
            &self.core,
            &self.run,
            &self.context,
            &call.call_id,
            self.budget(),
        ));
        context
    }
}

async fn run_one(
    core: &Core,
    call: Call,
    tool: Arc<dyn Tool>,
    arguments: Value,
    mut context: ToolContext,
) -> Result<(), Stop> {
    let (sender, receiver) = mpsc::channel(64);
    context.output = Some(sender);
    let run = async {
        let output = tool.run(&arguments, &context).await;
        drop(context);
        output
    };
    let span = spans::tool(&call.name, &call.call_id);
    let content = core.shared.config.span_content;
    if content {
        spans::content(&span, "gen_ai.tool.call.arguments", &call.arguments);
    }
    let live = log_output(&core.writer, &call.call_id, receiver);
    let (output, streamed) = tokio::join!(run.instrument(span.clone()), live);
    spans::word(&span, "threadline.tool.outcome", &output.outcome);
    if content {
        spans::content(&span, "gen_ai.tool.call.result", &output.text());
    }
    core.shared.config.counters.tool_call(output.outcome);
    let result = result(&core.shared.store, &call, output).await?;
    let options = AppendOptions::default();
    core.writer.record(vec![result], options).await?;
    Ok(streamed?)
}

/// Logs live output until the tool is done, gathered for a moment and capped.
async fn log_output(
    writer: &SessionWriter,
    call_id: &str,
    mut pieces: mpsc::Receiver<(OutputStream, String)>,
) -> Result<(), AppendError> {
    let mut room = Some(OUTPUT_LOG_BYTES);
    let mut gathered: Option<(OutputStream, String, Instant)> = None;
    let mut outcome = Ok(());
    loop {
        let due = async {
            match &gathered {
                Some((_, _, since)) => tokio::time::sleep_until(*since + OUTPUT_TIME).await,
                None => std::future::pending().await,
            }
        };
        let piece = tokio::select! {
            piece = pieces.recv() => Some(piece),
            () = due => None,
        };
        let (flush, ended) = match piece {
            None => (gathered.take(), false),
            Some(None) => (gathered.take(), true),
            Some(Some((stream, text))) => match (fitting(&mut room, text), &mut gathered) {
                (None, _) => continue,
                (Some(text), Some((before, held, _))) if *before == stream => {
                    held.push_str(&text);
                    continue;
                }
                (Some(text), _) => (gathered.replace((stream, text, Instant::now())), false),
            },
        };
        // A full disk must not stop the tool from being waited for; the result's append says it.
        if let Some((stream, delta, _)) = flush
            && outcome.is_ok()
        {
            let piece = OutputPiece {
                call_id: call_id.into(),
                stream,
                delta,
            };
            let options = AppendOptions::default();
            outcome = writer
                .record(vec![Payload::ToolOutput(piece)], options)
                .await
                .map(drop);
        }
        if ended {
            return outcome;
        }
    }
}

/// Takes of live output what there is room for. The piece that does not fit is cut and ends with
/// the one note; nothing comes after it.
fn fitting(room: &mut Option<usize>, mut text: String) -> Option<String> {
    let left = (*room)?;
    *room = left.checked_sub(text.len());
    if room.is_none() {
        text.truncate(text.floor_char_boundary(left));
        text.push_str(LIVE_END);
    }
    Some(text)
}

/// Makes the result of a call. Whatever blob it names is on stable storage.
async fn result(store: &SessionStore, call: &Call, output: ToolOutput) -> Result<Payload, Stop> {
    let is_error = output.is_error();
    for bytes in &output.blobs {
        store.put_blob(bytes).await?;
    }
    let kept = outputs::keep(store, output.content).await?;
    Ok(Payload::ToolResult(ToolResult {
        call_id: call.call_id.clone(),
        name: call.name.clone(),
        is_error,
        content: kept.content,
        outcome: output.outcome,
        full: kept.full,
        synthetic: false,
    }))
}

fn refusal(answered: Option<Answered>) -> Option<ToolOutput> {
    let text = match answered {
        Some(Answered {
            answer: Answer::Approve | Answer::ApproveForSession,
            ..
        }) => return None,
        Some(Answered {
            comment: Some(comment),
            ..
        }) if !comment.trim().is_empty() => {
            format!("the person refused this call and says: {}", comment.trim())
        }
        Some(_) => "the person refused this call".into(),
        None => "nobody answered whether this call may run, so it was not".to_owned(),
    };
    Some(ToolOutput::new(Outcome::Denied, text))
}
