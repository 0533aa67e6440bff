//! Putting the questions of a run to the person behind the client.

use std::{path::Path, sync::Arc};

use agent_client_protocol_schema::v1::{
    CancelRequestNotification, PermissionOption, PermissionOptionKind, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, ToolCall, ToolCallUpdate,
};
use threadline_agent::{Answer, Answered, ApprovalInfo};
use tokio_util::sync::CancellationToken;

use crate::{calls, connection::Connection, sessions::Open};

const APPROVE: &str = "approve";
const APPROVE_FOR_SESSION: &str = "approve_for_session";
const APPROVE_PREFIX: &str = "approve_prefix";
const DENY: &str = "deny";

/// What came of a question.
pub(crate) enum Said {
    Answer(Answer),
    /// The client could not ask, or has not said what came of it. Why, in words.
    Unasked(&'static str),
    /// Yes, for all commands of the session that begin with the words of the question.
    Prefix,
    /// The person has stopped the turn instead.
    Stop,
    /// It was answered elsewhere, or its run has ended.
    Settled,
}

/// Shows a call that is not in the client's view, or not as one that may still run: one of a
/// subagent, or of a process that has died.
pub(crate) fn alone(info: &ApprovalInfo, cwd: &Path) -> ToolCall {
    calls::asked(
        format!("question:{}", info.approval_id),
        &info.name,
        &info.arguments,
        cwd,
    )
}

/// What ends the asking before the person has answered.
#[derive(Clone, Default)]
pub(crate) struct Asking {
    /// Somebody else has answered; the client is told that it need not.
    pub(crate) settled: CancellationToken,
    /// The turn is over, and the client knows why.
    pub(crate) over: CancellationToken,
}

/// Asks, and hands the answer to the run.
pub(crate) async fn ask(
    c: Arc<Connection>,
    open: Arc<Open>,
    info: ApprovalInfo,
    call: ToolCall,
    asking: Asking,
) {
    let said = tokio::select! {
        biased;
        () = asking.over.cancelled() => return,
        said = put(&c, &open, &info, call, &asking.settled) => said,
    };
    let answered = match said {
        Said::Stop => {
            open.cancel(&c.agents, None);
            return;
        }
        Said::Unasked(why) => Answered {
            comment: Some(why.into()),
            ..answered(&c, Answer::Deny)
        },
        said => match said.answered(&c, &info) {
            Some(answered) => answered,
            None => return,
        },
    };
    let board = c.agents.approvals();
    if let Err(error) = board.answer(&info.run_id, &info.tool_call_id, answered) {
        // Somebody else was faster, or the run has ended.
        tracing::debug!(%error, "an answer came too late");
    }
}

impl Said {
    /// Returns the answer, if a person has given one.
    pub(crate) fn answered(self, c: &Connection, info: &ApprovalInfo) -> Option<Answered> {
        match self {
            Self::Answer(answer) => Some(answered(c, answer)),
            Self::Prefix => Some(Answered {
                prefix: info.prefix.clone(),
                ..answered(c, Answer::ApproveForSession)
            }),
            Self::Unasked(_) | Self::Stop | Self::Settled => None,
        }
    }
}

fn answered(c: &Connection, answer: Answer) -> Answered {
    Answered {
        answer,
        by: c.client(),
        comment: None,
        prefix: None,
    }
}

/// What a person can say. A call that leaves the sandbox is allowed alone, and the option says so.
fn options(info: &ApprovalInfo) -> Vec<PermissionOption> {
    let deny = PermissionOption::new(DENY, "Deny", PermissionOptionKind::RejectOnce);
    let once = PermissionOptionKind::AllowOnce;
    if info.outside_sandbox {
        let name = "Allow this once, outside of the sandbox";
        return vec![PermissionOption::new(APPROVE, name, once), deny];
    }
    let always = PermissionOptionKind::AllowAlways;
    let mut options = vec![
        PermissionOption::new(APPROVE, "Allow", once),
        PermissionOption::new(APPROVE_FOR_SESSION, "Allow for this session", always),
    ];
    if let Some(prefix) = &info.prefix {
        let name = format!("Allow `{} …` for this session", prefix.join(" "));
        options.push(PermissionOption::new(APPROVE_PREFIX, name, always));
    }
    options.push(deny);
    options
}

/// Puts a question to the person, and waits until something comes of it.
pub(crate) async fn put(
    c: &Connection,
    open: &Open,
    info: &ApprovalInfo,
    call: ToolCall,
    settled: &CancellationToken,
) -> Said {
    let options = options(info);
    let id = open.id.as_str().to_owned();
    let request = RequestPermissionRequest::new(id, ToolCallUpdate::from(call), options);
    let asked = c.peer.request("session/request_permission", request);
    let mut asked = tokio::select! {
        biased;
        () = settled.cancelled() => return Said::Settled,
        asked = asked => match asked {
            Ok(asked) => asked,
            Err(_) => return Said::Settled,
        },
    };
    let answer = tokio::select! {
        biased;
        () = settled.cancelled() => {
            let notification = CancelRequestNotification::new(asked.id.cast_signed());
            let _ = c.peer.notify("$/cancel_request", notification).await;
            return Said::Settled;
        }
        answer = asked.answer() => answer,
    };
    let response = match answer {
        None => return Said::Settled,
        Some(Err(error)) => {
            tracing::warn!(
                code = i32::from(error.code),
                "the client cannot ask its person"
            );
            return Said::Unasked("the editor could not ask, so the call was not allowed");
        }
        Some(Ok(raw)) => serde_json::from_str::<RequestPermissionResponse>(raw.get()),
    };
    match response.map(|response| response.outcome) {
        Ok(RequestPermissionOutcome::Cancelled) => Said::Stop,
        Ok(RequestPermissionOutcome::Selected(selected)) => match &*selected.option_id.0 {
            APPROVE => Said::Answer(Answer::Approve),
            APPROVE_FOR_SESSION => Said::Answer(Answer::ApproveForSession),
            APPROVE_PREFIX if info.prefix.is_some() => Said::Prefix,
            DENY => Said::Answer(Answer::Deny),
            _ => Said::Unasked("the editor answered with an option that was not offered"),
        },
        _ => Said::Unasked("the editor's answer could not be read, so the call was not allowed"),
    }
}
