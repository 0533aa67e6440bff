//! What an agent records: turns of steps, tool calls and their results.

use threadline_session::{
    OsPath, Payload, RunId,
    payload::{
        ApprovalPolicy, AssistantChunk, AssistantMessage, AssistantPart, ChunkKind, ChunkPart,
        CompactionSummary, ContentPart, EndReason, ModelRef, Outcome as CallOutcome, OutputStream,
        RequestMark, SandboxMode, SeqRange, StepEnd, StepStart, StopReason, SystemPrompt,
        SystemReason, ToolOutput, ToolResult, ToolStart, TurnContext, TurnEnd, TurnStart, Usage,
        UserMessage, UserSource,
    },
};

use crate::{Outcome, text::Pool};

const CHUNKS: usize = 6;
const PROVIDER: &str = "openai-chat";
const MODEL: &str = "bench";

/// Writes the history of a session.
pub(crate) struct Agent {
    pool: Pool,
    next_seq: u64,
    turn: u64,
    step: u64,
    /// After each step: the number of its last event, and how many items there were then.
    steps: Vec<(u64, usize)>,
    items: usize,
    /// First event that a summary may replace.
    first: u64,
}

impl Agent {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            pool: Pool::new(seed),
            next_seq: 0,
            turn: 0,
            step: 0,
            steps: Vec::new(),
            items: 0,
            first: 0,
        }
    }

    fn put(&mut self, out: &mut Vec<Payload>, payload: Payload) {
        if matches!(
            payload,
            Payload::UserMessage(_) | Payload::AssistantMessage(_) | Payload::ToolResult(_)
        ) {
            self.items += 1;
        }
        self.next_seq += 1;
        out.push(payload);
    }

    /// Adds a turn: a prompt and two to six steps.
    pub(crate) fn turn(&mut self, out: &mut Vec<Payload>) -> Outcome<()> {
        self.turn += 1;
        let start = self.start()?;
        self.put(out, start);
        if self.turn == 1 {
            let text = self.pool.cut(4_000);
            let prompt = SystemPrompt {
                text,
                tools: Vec::new(),
                reason: SystemReason::Initial,
            };
            self.put(out, Payload::SystemPrompt(prompt));
            self.first = self.next_seq;
        }
        let size = self.pool.dice().skewed(100, 3_000);
        let prompt = self.user(size, UserSource::User);
        self.put(out, prompt);
        let steps = self.pool.dice().between(2, 6);
        for number in 1..=steps {
            self.step(out, number == steps);
        }
        let end = TurnEnd {
            turn: self.turn,
            reason: EndReason::Completed,
        };
        self.put(out, Payload::TurnEnd(end));
        Ok(())
    }

    /// Adds a turn of one short question and one short answer.
    pub(crate) fn small_turn(&mut self, out: &mut Vec<Payload>) -> Outcome<()> {
        self.turn += 1;
        self.step += 1;
        let start = self.start()?;
        self.put(out, start);
        let prompt = self.user(80, UserSource::User);
        self.put(out, prompt);
        let (turn, step) = (self.turn, self.step);
        let request = RequestMark {
            fingerprint: format!("{step:064x}"),
            items: 1,
            bytes: 100,
        };
        let start = StepStart {
            turn,
            step,
            request,
        };
        self.put(out, Payload::StepStart(start));
        let message = self.message(0, Usage::default());
        self.put(out, message);
        let end = StepEnd {
            turn,
            step,
            usage: None,
        };
        self.put(out, Payload::StepEnd(end));
        let end = TurnEnd {
            turn,
            reason: EndReason::Completed,
        };
        self.put(out, Payload::TurnEnd(end));
        Ok(())
    }

    /// Goes on with what agents of this seed say and do, whatever came before.
    pub(crate) fn reseed(&mut self, seed: u64) {
        self.pool = Pool::new(seed);
    }

    /// Begins another session, with other text.
    pub(crate) fn anew(self) -> Self {
        Self {
            pool: self.pool,
            ..Self::new(0)
        }
    }

    fn start(&self) -> Outcome<Payload> {
        Ok(Payload::TurnStart(TurnStart {
            turn: self.turn,
            run_id: RunId::parse(format!("run-{}", self.turn))?,
            context: TurnContext {
                confined: false,
                provider: PROVIDER.into(),
                model: MODEL.into(),
                approval_policy: ApprovalPolicy::Never,
                sandbox_mode: SandboxMode::ReadOnly,
                cwd: OsPath::from("/tmp"),
                temperature: None,
                max_steps: None,
            },
        }))
    }

    /// Makes something that a person says.
    pub(crate) fn user(&mut self, bytes: u64, source: UserSource) -> Payload {
        Payload::UserMessage(UserMessage {
            content: vec![ContentPart::text(self.pool.cut(bytes))],
            source,
        })
    }

    fn step(&mut self, out: &mut Vec<Payload>, last: bool) {
        self.step += 1;
        let (turn, step) = (self.turn, self.step);
        let request = RequestMark {
            fingerprint: format!("{step:064x}"),
            items: self.items as u64,
            bytes: self.next_seq * 700,
        };
        let start = StepStart {
            turn,
            step,
            request,
        };
        self.put(out, Payload::StepStart(start));
        for _ in 0..CHUNKS {
            let chunk = self.chunk();
            self.put(out, chunk);
        }
        let calls = if last {
            0
        } else {
            self.pool.dice().between(1, 3)
        };
        let usage = Usage {
            input_tokens: self.next_seq * 200 % 180_000,
            output_tokens: 300,
            cached_input_tokens: Some(self.next_seq * 100 % 90_000),
            reasoning_tokens: None,
        };
        let message = self.message(calls, usage);
        self.put(out, message);
        for call in 0..calls {
            self.call(out, &format!("call_{step}_{call}"));
        }
        let end = StepEnd {
            turn,
            step,
            usage: Some(usage),
        };
        self.put(out, Payload::StepEnd(end));
        self.steps.push((self.next_seq - 1, self.items));
    }

    fn chunk(&mut self) -> Payload {
        let size = self.pool.dice().between(20, 200);
        Payload::AssistantChunk(AssistantChunk {
            turn: self.turn,
            step: self.step,
            parts: vec![ChunkPart {
                index: 0,
                kind: ChunkKind::Text,
                delta: self.pool.cut(size),
            }],
        })
    }

    fn message(&mut self, calls: u64, usage: Usage) -> Payload {
        let size = self.pool.dice().skewed(200, 4_000);
        let mut content = vec![AssistantPart::Text {
            text: self.pool.cut(size),
        }];
        for call in 0..calls {
            let path = self.pool.dice().next();
            content.push(AssistantPart::ToolCall {
                call_id: format!("call_{}_{call}", self.step),
                name: "shell".into(),
                arguments: format!("{{\"command\":\"cat src/{path:x}.rs | head -200\"}}"),
            });
        }
        Payload::AssistantMessage(AssistantMessage {
            turn: self.turn,
            step: self.step,
            content,
            model: ModelRef {
                provider: PROVIDER.into(),
                name: MODEL.into(),
            },
            stop_reason: if calls == 0 {
                StopReason::Stop
            } else {
                StopReason::ToolCalls
            },
            usage: Some(usage),
            opaque: Vec::new(),
            interrupted: false,
        })
    }

    fn call(&mut self, out: &mut Vec<Payload>, id: &str) {
        let start = ToolStart {
            call_id: id.into(),
            name: "shell".into(),
            cwd: OsPath::from("/tmp"),
            outside_sandbox: false,
            grant_id: None,
        };
        self.put(out, Payload::ToolStart(start));
        let size = self.pool.dice().skewed(500, 20_000);
        let text = self.pool.cut(size);
        let output = ToolOutput {
            call_id: id.into(),
            stream: OutputStream::Stdout,
            delta: text.clone(),
        };
        self.put(out, Payload::ToolOutput(output));
        let result = ToolResult {
            call_id: id.into(),
            name: "shell".into(),
            content: vec![ContentPart::text(text)],
            is_error: false,
            outcome: CallOutcome::Ok,
            full: None,
            synthetic: false,
        };
        self.put(out, Payload::ToolResult(result));
    }

    /// Returns how many items would be on the surface without a compaction since the last one.
    pub(crate) fn items(&self) -> usize {
        self.items
    }

    /// Adds a summary that replaces all but about the last `keep` items.
    pub(crate) fn compact(&mut self, out: &mut Vec<Payload>, keep: usize) {
        let wanted = self.items.saturating_sub(keep);
        let cut = self.steps.iter().rev().find(|(_, items)| *items <= wanted);
        let Some((to_seq, before)) = cut.copied() else {
            return;
        };
        let summary = CompactionSummary {
            summary: vec![ContentPart::text(self.pool.cut(3_000))],
            replaces: SeqRange {
                from_seq: self.first,
                to_seq,
            },
            kept: Vec::new(),
            tokens_before: 180_000,
            tokens_after: Some(9_000),
            usage: None,
            algorithm: "bench".into(),
        };
        self.put(out, Payload::CompactionSummary(summary));
        self.items -= before;
        self.steps.clear();
    }
}
