//! A builder of logs, and what is compared about them.

use threadline_session::{
    Event, OsPath, Payload, Request, RunId, Transcript, closers, normalise,
    payload::{
        ApprovalAsked, ApprovalDecided, ApprovalPolicy, AssistantChunk, AssistantMessage,
        AssistantPart, ChunkKind, ChunkPart, CompactionSummary, ContentPart, Decision, EndReason,
        HeadReason, HistoryHead, ModelRef, Outcome, RequestMark, SandboxMode, SeqRange, StepEnd,
        StepStart, StopReason, SystemPrompt, SystemReason, ToolDefinition, ToolOutput, ToolResult,
        ToolStart, TurnContext, TurnEnd, TurnStart, Usage, UserMessage, UserSource,
    },
};

/// The model of every log unless it says otherwise.
pub(crate) fn model() -> ModelRef {
    ModelRef {
        provider: "offline".into(),
        name: "demo".into(),
    }
}

pub(crate) fn text(text: &str) -> Vec<ContentPart> {
    vec![ContentPart::text(text)]
}

pub(crate) fn call(call_id: &str, name: &str, arguments: &str) -> AssistantPart {
    AssistantPart::ToolCall {
        call_id: call_id.into(),
        name: name.into(),
        arguments: arguments.into(),
    }
}

pub(crate) fn says(text: &str) -> AssistantPart {
    AssistantPart::Text { text: text.into() }
}

pub(crate) fn thinks(text: &str) -> AssistantPart {
    AssistantPart::Reasoning { text: text.into() }
}

pub(crate) fn result(call_id: &str, said: &str) -> ToolResult {
    ToolResult {
        call_id: call_id.into(),
        name: "shell".into(),
        content: text(said),
        is_error: false,
        outcome: Outcome::Ok,
        full: None,
        synthetic: false,
    }
}

pub(crate) fn message(turn: u64, step: u64, content: Vec<AssistantPart>) -> AssistantMessage {
    AssistantMessage {
        turn,
        step,
        content,
        model: model(),
        stop_reason: StopReason::Stop,
        usage: None,
        opaque: Vec::new(),
        interrupted: false,
    }
}

pub(crate) fn context(model: &ModelRef) -> TurnContext {
    TurnContext {
        confined: false,
        provider: model.provider.clone(),
        model: model.name.clone(),
        approval_policy: ApprovalPolicy::OnRequest,
        sandbox_mode: SandboxMode::WorkspaceWrite,
        cwd: OsPath::from("/work"),
        temperature: None,
        max_steps: None,
    }
}

/// Events as an agent would log them, with the state they lead to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    pub(crate) events: Vec<Event>,
    pub(crate) state: Transcript,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Appends a payload and returns its sequence number.
    pub(crate) fn push(&mut self, payload: Payload) -> u64 {
        let seq = self.state.next_seq();
        self.push_event(Event::new(seq, 1000 + seq * 10, &payload).unwrap());
        seq
    }

    pub(crate) fn push_event(&mut self, event: Event) {
        self.state.apply(&event).unwrap();
        self.events.push(event);
    }

    pub(crate) fn turn_start(&mut self) -> u64 {
        self.turn_start_with(&model())
    }

    pub(crate) fn turn_start_with(&mut self, model: &ModelRef) -> u64 {
        let turn = self.state.last_turn() + 1;
        self.push(Payload::TurnStart(TurnStart {
            turn,
            run_id: RunId::parse(format!("run-{turn}")).unwrap(),
            context: context(model),
        }))
    }

    pub(crate) fn turn_end(&mut self, reason: EndReason) -> u64 {
        let turn = self.state.last_turn();
        self.push(Payload::TurnEnd(TurnEnd { turn, reason }))
    }

    /// Starts a step with the fingerprint of the request that the state gives.
    pub(crate) fn step_start(&mut self) -> u64 {
        let (request, _) = Request::build(&self.state).unwrap();
        let mark = request.fingerprint().unwrap().into();
        self.push(Payload::StepStart(StepStart {
            turn: self.state.last_turn(),
            step: self.state.last_step() + 1,
            request: mark,
        }))
    }

    pub(crate) fn step_end(&mut self) -> u64 {
        self.push(Payload::StepEnd(StepEnd {
            turn: self.state.last_turn(),
            step: self.state.last_step(),
            usage: Some(Usage {
                input_tokens: 10,
                output_tokens: 5,
                ..Usage::default()
            }),
        }))
    }

    pub(crate) fn system(&mut self, said: &str) -> u64 {
        self.push(Payload::SystemPrompt(SystemPrompt {
            text: said.into(),
            tools: vec![ToolDefinition {
                name: "shell".into(),
                description: "Runs a command".into(),
                parameters: serde_json::json!({"type": "object"}),
            }],
            reason: SystemReason::Initial,
        }))
    }

    pub(crate) fn user(&mut self, said: &str) -> u64 {
        self.user_parts(text(said))
    }

    pub(crate) fn user_parts(&mut self, content: Vec<ContentPart>) -> u64 {
        self.push(Payload::UserMessage(UserMessage {
            content,
            source: UserSource::User,
        }))
    }

    pub(crate) fn chunk(&mut self, parts: &[(u32, ChunkKind, &str)]) -> u64 {
        let parts = parts
            .iter()
            .map(|(index, kind, delta)| ChunkPart {
                index: *index,
                kind: *kind,
                delta: (*delta).into(),
            })
            .collect();
        self.push(Payload::AssistantChunk(AssistantChunk {
            turn: self.state.last_turn(),
            step: self.state.last_step(),
            parts,
        }))
    }

    pub(crate) fn assistant(&mut self, content: Vec<AssistantPart>) -> u64 {
        let message = message(self.state.last_turn(), self.state.last_step(), content);
        self.push(Payload::AssistantMessage(message))
    }

    pub(crate) fn start(&mut self, call_id: &str) -> u64 {
        self.push(Payload::ToolStart(ToolStart {
            call_id: call_id.into(),
            name: "shell".into(),
            cwd: OsPath::from("/work"),
            outside_sandbox: false,
            grant_id: None,
        }))
    }

    pub(crate) fn output(&mut self, call_id: &str, delta: &str) -> u64 {
        self.push(Payload::ToolOutput(ToolOutput {
            call_id: call_id.into(),
            stream: threadline_session::payload::OutputStream::Stdout,
            delta: delta.into(),
        }))
    }

    pub(crate) fn result(&mut self, call_id: &str, said: &str) -> u64 {
        self.push(Payload::ToolResult(result(call_id, said)))
    }

    pub(crate) fn asked(&mut self, approval_id: &str, call_id: &str) -> u64 {
        self.push(Payload::ApprovalAsked(ApprovalAsked {
            approval_id: approval_id.into(),
            call_id: call_id.into(),
            name: "shell".into(),
            arguments: "{}".into(),
            reason: "it leaves the sandbox".into(),
            prefix: None,
            outside_sandbox: false,
        }))
    }

    pub(crate) fn decided(&mut self, approval_id: &str, decision: Decision) -> u64 {
        self.push(Payload::ApprovalDecided(ApprovalDecided {
            approval_id: approval_id.into(),
            decision,
            by: "user".into(),
            comment: None,
            prefix: None,
        }))
    }

    pub(crate) fn compact(&mut self, from_seq: u64, to_seq: u64, kept: &[u64]) -> u64 {
        self.push(Payload::CompactionSummary(CompactionSummary {
            summary: text("what happened so far"),
            replaces: SeqRange { from_seq, to_seq },
            kept: kept.to_vec(),
            tokens_before: 100,
            tokens_after: None,
            usage: None,
            algorithm: "test".into(),
        }))
    }

    pub(crate) fn head(&mut self, seq: u64, reason: HeadReason) -> u64 {
        self.push(Payload::HistoryHead(HistoryHead { seq, reason }))
    }

    /// Opens a turn with a prompt and its first step.
    pub(crate) fn open_turn(&mut self, prompt: &str) -> &mut Self {
        self.turn_start();
        if self.state.system().is_none() {
            self.system("You are an agent.");
        }
        self.user(prompt);
        self.step_start();
        self
    }

    /// Logs a step that makes these calls of `shell` and answers them in order.
    pub(crate) fn tool_step(&mut self, calls: &[&str]) -> &mut Self {
        self.assistant(calls.iter().map(|id| call(id, "shell", "{}")).collect());
        for id in calls {
            self.start(id);
            self.output(id, "working\n");
            self.result(id, &format!("output of {id}"));
        }
        self.step_end();
        self.step_start();
        self
    }

    /// Ends the open step with an answer, and the turn.
    pub(crate) fn answer(&mut self, said: &str) -> &mut Self {
        self.assistant(vec![says(said)]);
        self.step_end();
        self.turn_end(EndReason::Completed);
        self
    }

    /// Three turns: a plain one, one with tools, and one more.
    pub(crate) fn three_turns() -> Self {
        let mut log = Self::new();
        log.open_turn("first").answer("one");
        log.open_turn("second")
            .tool_step(&["a", "b"])
            .tool_step(&["a"])
            .answer("two");
        log.open_turn("third").answer("three");
        log
    }

    /// Appends what recovery would and returns it.
    pub(crate) fn recover(&mut self) -> Vec<Event> {
        let events = closers(&self.state).unwrap();
        for event in &events {
            self.push_event(event.clone());
        }
        events
    }
}

/// Returns what recovery would append to these events.
pub(crate) fn closed_with(log: &Log) -> Vec<Payload> {
    let events = closers(&log.state).unwrap();
    events
        .iter()
        .map(|event| event.payload().unwrap())
        .collect()
}

/// Returns the canonical request that a state leads to, whichever turn it is in.
pub(crate) fn request_json(state: &Transcript) -> String {
    Request::build(state).map_or_else(
        |error| error.to_string(),
        |(request, _)| serde_json::to_string(&request).unwrap(),
    )
}

/// Returns the normalised items for the model of [`model`], as JSON.
pub(crate) fn items_json(state: &Transcript) -> Vec<serde_json::Value> {
    let (items, _) = normalise(state, &model());
    items
        .iter()
        .map(|item| serde_json::to_value(item).unwrap())
        .collect()
}

/// Returns the surface in a form that can be compared.
pub(crate) fn surface(state: &Transcript) -> Vec<(u64, String)> {
    state
        .surface()
        .map(|(seq, item)| (seq, format!("{item:?}")))
        .collect()
}

pub(crate) fn mark() -> RequestMark {
    RequestMark {
        fingerprint: "00".into(),
        items: 0,
        bytes: 0,
    }
}
