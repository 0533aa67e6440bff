//! Payloads and events of a session as an agent writes them.

use threadline_session::{
    Event, OsPath, Payload, RunId,
    payload::{
        ApprovalAsked, ApprovalDecided, ApprovalPolicy, AssistantChunk, AssistantMessage,
        AssistantPart, BlobRef, ChunkKind, ChunkPart, CompactionSummary, ContentPart, Decision,
        EndReason, ModelRef, Outcome, RequestMark, SandboxMode, SeqRange, StepEnd, StepStart,
        StopReason, SystemPrompt, SystemReason, ToolResult, ToolStart, TurnContext, TurnEnd,
        TurnStart, UserMessage, UserSource,
    },
};

/// A turn begins.
#[must_use]
pub fn turn_start(turn: u64) -> Payload {
    Payload::TurnStart(TurnStart {
        turn,
        run_id: RunId::parse(format!("run-{turn}")).unwrap(),
        context: TurnContext {
            confined: false,
            provider: "offline".into(),
            model: "demo".into(),
            approval_policy: ApprovalPolicy::OnRequest,
            sandbox_mode: SandboxMode::WorkspaceWrite,
            cwd: OsPath::from("/work"),
            temperature: None,
            max_steps: None,
        },
    })
}

/// A turn ends, completed.
#[must_use]
pub fn turn_end(turn: u64) -> Payload {
    Payload::TurnEnd(TurnEnd {
        turn,
        reason: EndReason::Completed,
    })
}

/// A person says something.
#[must_use]
pub fn user(text: &str) -> Payload {
    Payload::UserMessage(UserMessage {
        content: vec![ContentPart::text(text)],
        source: UserSource::User,
    })
}

/// A step begins.
#[must_use]
pub fn step_start(turn: u64, step: u64) -> Payload {
    let request = RequestMark {
        fingerprint: "00".into(),
        items: 1,
        bytes: 2,
    };
    Payload::StepStart(StepStart {
        turn,
        step,
        request,
    })
}

/// A step ends.
#[must_use]
pub fn step_end(turn: u64, step: u64) -> Payload {
    Payload::StepEnd(StepEnd {
        turn,
        step,
        usage: None,
    })
}

/// A piece of the answer arrives.
#[must_use]
pub fn chunk(turn: u64, step: u64, text: &str) -> Payload {
    Payload::AssistantChunk(AssistantChunk {
        turn,
        step,
        parts: vec![ChunkPart {
            index: 0,
            kind: ChunkKind::Text,
            delta: text.into(),
        }],
    })
}

fn assistant(turn: u64, step: u64, content: Vec<AssistantPart>) -> Payload {
    Payload::AssistantMessage(AssistantMessage {
        turn,
        step,
        content,
        model: ModelRef {
            provider: "offline".into(),
            name: "demo".into(),
        },
        stop_reason: StopReason::Stop,
        usage: None,
        opaque: Vec::new(),
        interrupted: false,
    })
}

/// The model answers.
#[must_use]
pub fn answer(turn: u64, step: u64, text: &str) -> Payload {
    assistant(turn, step, vec![AssistantPart::Text { text: text.into() }])
}

/// The model calls `shell` once per id.
#[must_use]
pub fn calls(turn: u64, step: u64, ids: &[&str]) -> Payload {
    let call = |id: &&str| AssistantPart::ToolCall {
        call_id: (*id).into(),
        name: "shell".into(),
        arguments: "{}".into(),
    };
    assistant(turn, step, ids.iter().map(call).collect())
}

/// A tool is about to run.
#[must_use]
pub fn tool_start(call_id: &str) -> Payload {
    Payload::ToolStart(ToolStart {
        call_id: call_id.into(),
        name: "shell".into(),
        cwd: OsPath::from("/work"),
        outside_sandbox: false,
        grant_id: None,
    })
}

/// A tool has run.
#[must_use]
pub fn tool_result(call_id: &str, text: &str) -> Payload {
    Payload::ToolResult(ToolResult {
        call_id: call_id.into(),
        name: "shell".into(),
        content: vec![ContentPart::text(text)],
        is_error: false,
        outcome: Outcome::Ok,
        full: None,
        synthetic: false,
    })
}

/// A tool has run, and what it said in full is a blob.
#[must_use]
pub fn tool_result_in(call_id: &str, blob: &str) -> Payload {
    match tool_result(call_id, "in short") {
        Payload::ToolResult(result) => Payload::ToolResult(ToolResult {
            full: Some(BlobRef { blob: blob.into() }),
            ..result
        }),
        other => other,
    }
}

/// A person shows a picture.
#[must_use]
pub fn picture(blob: &str) -> Payload {
    Payload::UserMessage(UserMessage {
        content: vec![ContentPart::Image {
            media_type: "image/png".into(),
            blob: blob.into(),
        }],
        source: UserSource::User,
    })
}

/// The model is told how to behave.
#[must_use]
pub fn system(text: &str) -> Payload {
    Payload::SystemPrompt(SystemPrompt {
        text: text.into(),
        tools: Vec::new(),
        reason: SystemReason::Initial,
    })
}

/// A summary takes the place of items.
#[must_use]
pub fn compaction(from_seq: u64, to_seq: u64, kept: &[u64]) -> Payload {
    Payload::CompactionSummary(CompactionSummary {
        summary: vec![ContentPart::text("what came before")],
        replaces: SeqRange { from_seq, to_seq },
        kept: kept.to_vec(),
        tokens_before: 100,
        tokens_after: None,
        usage: None,
        algorithm: "test".into(),
    })
}

/// A person is asked about a call.
#[must_use]
pub fn asked(approval_id: &str, call_id: &str) -> Payload {
    Payload::ApprovalAsked(ApprovalAsked {
        approval_id: approval_id.into(),
        call_id: call_id.into(),
        name: "shell".into(),
        arguments: "{}".into(),
        reason: "it leaves the sandbox".into(),
        prefix: None,
        outside_sandbox: false,
    })
}

/// A person allows it for the rest of the session.
#[must_use]
pub fn allowed(approval_id: &str) -> Payload {
    Payload::ApprovalDecided(ApprovalDecided {
        approval_id: approval_id.into(),
        decision: Decision::ApprovedForSession,
        by: "test".into(),
        comment: None,
        prefix: None,
    })
}

/// A turn with three calls, which run at once and end in another order.
#[must_use]
pub fn turn_with_calls(turn: u64, step: u64) -> Vec<Payload> {
    vec![
        turn_start(turn),
        system("be brief"),
        user("do it"),
        step_start(turn, step),
        chunk(turn, step, "I will"),
        calls(turn, step, &["a", "b", "c"]),
        tool_start("a"),
        tool_start("b"),
        tool_result("b", "B"),
        tool_result("a", "A"),
        tool_start("c"),
        tool_result("c", "C"),
        step_end(turn, step),
        step_start(turn, step + 1),
        chunk(turn, step + 1, "do"),
        answer(turn, step + 1, "done"),
        step_end(turn, step + 1),
        turn_end(turn),
    ]
}

/// A turn that asks before it calls.
#[must_use]
pub fn turn_with_question(turn: u64, step: u64) -> Vec<Payload> {
    vec![
        turn_start(turn),
        user("and that"),
        step_start(turn, step),
        // An id that was used before.
        calls(turn, step, &["a"]),
        asked("q", "a"),
        allowed("q"),
        tool_start("a"),
        tool_result("a", "A2"),
        step_end(turn, step),
        turn_end(turn),
    ]
}

/// The beginning of a turn that is cut while the first of two calls runs.
#[must_use]
pub fn cut_turn(turn: u64, step: u64) -> Vec<Payload> {
    vec![
        turn_start(turn),
        user("go on"),
        step_start(turn, step),
        chunk(turn, step, "well"),
        calls(turn, step, &["x", "y"]),
        tool_start("x"),
    ]
}

/// The payloads of a whole turn.
#[must_use]
pub fn plain_turn(turn: u64, prompt: &str) -> Vec<Payload> {
    vec![
        turn_start(turn),
        user(prompt),
        step_start(turn, turn),
        chunk(turn, turn, "do"),
        answer(turn, turn, "done"),
        step_end(turn, turn),
        turn_end(turn),
    ]
}

/// Numbers payloads from `first`, each with a time of its own.
#[must_use]
pub fn events_from(first: u64, payloads: &[Payload]) -> Vec<Event> {
    let event = |(payload, seq): (&Payload, u64)| {
        Event::new(seq, 1_700_000_000_000 + seq, payload).unwrap()
    };
    payloads.iter().zip(first..).map(event).collect()
}

/// The events of a whole turn that continues a log at `first`.
#[must_use]
pub fn whole_turn(first: u64, turn: u64, prompt: &str) -> Vec<Event> {
    events_from(first, &plain_turn(turn, prompt))
}

/// A turn that was cut while the first of two calls ran.
#[must_use]
pub fn cut_in_a_tool() -> Vec<Event> {
    events_from(
        0,
        &[
            turn_start(1),
            user("do it"),
            step_start(1, 1),
            calls(1, 1, &["a", "b"]),
            tool_start("a"),
        ],
    )
}

/// An event of a plug-in, in the JSON text it was given as.
#[must_use]
pub fn vendor(seq: u64, data: &str, ignorable: bool) -> Event {
    Event::from_json(
        seq,
        1_700_000_000_000 + seq,
        "vendor/thing",
        data,
        ignorable,
    )
    .unwrap()
}
