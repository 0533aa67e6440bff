//! What an agent records: turns of steps, tool calls and their results.

use threadline_session::{
    OsPath, Payload, RunId,
    payload::{
        ApprovalPolicy, AssistantChunk, AssistantMessage, AssistantPart, ChunkKind, ChunkPart,
        CompactionSummary, ContentPart, EndReason, ModelRef, RequestMark, SandboxMode, SeqRange,
        StepEnd, StepStart, StopReason, SystemPrompt, SystemReason, TurnContext, TurnEnd,
        TurnStart, Usage, UserMessage, UserSource,
    },
};

use crate::{
    Outcome,
    lively::{self, Call},
    text::{self, Dice, Pool},
};

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
        Self::with(Pool::new(seed))
    }

    fn with(pool: Pool) -> Self {
        Self {
            pool,
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
            self.system(out);
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

    /// Adds a turn as people see them: a question in words, and steps whose text is Markdown that
    /// streams, with calls of several tools whose output comes in parts. The history is compacted
    /// between two steps when it has more than `full` items, as an agent does it.
    pub(crate) fn lively_turn(
        &mut self,
        out: &mut Vec<Payload>,
        steps: u64,
        full: usize,
    ) -> Outcome<()> {
        self.ask(out)?;
        for number in 1..=steps {
            if self.items > full {
                self.compact(out, full / 10);
            }
            self.lively_step(out, number == steps);
        }
        let end = TurnEnd {
            turn: self.turn,
            reason: EndReason::Completed,
        };
        self.put(out, Payload::TurnEnd(end));
        Ok(())
    }

    /// Adds a turn of one question and one answer in words.
    pub(crate) fn chat_turn(&mut self, out: &mut Vec<Payload>) -> Outcome<()> {
        self.ask(out)?;
        self.begin_step(out);
        let size = self.pool.dice().skewed(60, 1_200);
        let text = self.pool.prose(size);
        let usage = self.usage();
        let message = self.message_of(text, &[], usage);
        self.put(out, message);
        self.end_step(out, usage);
        let end = TurnEnd {
            turn: self.turn,
            reason: EndReason::Completed,
        };
        self.put(out, Payload::TurnEnd(end));
        Ok(())
    }

    /// Adds a turn that goes as far as the middle of a call.
    pub(crate) fn dying_turn(&mut self, out: &mut Vec<Payload>) -> Outcome<()> {
        self.ask(out)?;
        self.begin_step(out);
        let text = self.pool.prose(400);
        self.stream(out, &text);
        let call = lively::call(&mut self.pool, format!("call_{}_0", self.step));
        let message = self.message_of(text, std::slice::from_ref(&call), Usage::default());
        self.put(out, message);
        self.put(out, call.start());
        self.put(out, call.output("Compiling the workspace\n"));
        Ok(())
    }

    /// Goes on behind what was appended when the session was opened again: the result of the call
    /// that was under way, and the ends of its step and turn.
    pub(crate) fn revived(&mut self, next_seq: u64) {
        self.next_seq = next_seq;
        self.items += 1;
        self.steps.push((next_seq - 1, self.items));
    }

    /// Begins a turn with a question in words.
    fn ask(&mut self, out: &mut Vec<Payload>) -> Outcome<()> {
        self.turn += 1;
        let start = self.start()?;
        self.put(out, start);
        if self.turn == 1 {
            self.system(out);
        }
        let content = vec![ContentPart::text(lively::task(&mut self.pool))];
        let source = UserSource::User;
        self.put(out, Payload::UserMessage(UserMessage { content, source }));
        Ok(())
    }

    fn lively_step(&mut self, out: &mut Vec<Payload>, last: bool) {
        self.begin_step(out);
        let size = self.pool.dice().skewed(60, 4_000);
        let text = self.pool.prose(size);
        self.stream(out, &text);
        let count = if last {
            0
        } else {
            self.pool.dice().between(1, 3)
        };
        let calls: Vec<Call> = (0..count)
            .map(|at| lively::call(&mut self.pool, format!("call_{}_{at}", self.step)))
            .collect();
        let usage = self.usage();
        let message = self.message_of(text, &calls, usage);
        self.put(out, message);
        for call in &calls {
            self.put(out, call.start());
            for part in call.parts() {
                self.put(out, call.output(part));
            }
            self.put(out, call.result());
        }
        self.end_step(out, usage);
    }

    /// Adds a text as it streams: what comes in 40 ms is one event.
    fn stream(&mut self, out: &mut Vec<Payload>, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let size = self.pool.dice().between(8, 60);
            let (delta, more) = rest.split_at(text::boundary(rest, size));
            rest = more;
            let chunk = self.chunk_of(delta.to_owned());
            self.put(out, chunk);
        }
    }

    /// Goes on with what agents of this seed say and do, whatever came before.
    pub(crate) fn reseed(&mut self, seed: u64) {
        self.pool = Pool::new(seed);
    }

    /// Begins the session of a number: the same whatever came before.
    pub(crate) fn numbered(self, number: u64) -> Self {
        let mut agent = Self::with(self.pool);
        *agent.pool.dice() = Dice::new(number);
        agent
    }

    /// Begins another session, with other text.
    pub(crate) fn anew(self) -> Self {
        Self::with(self.pool)
    }

    fn system(&mut self, out: &mut Vec<Payload>) {
        let text = self.pool.cut(4_000);
        let prompt = SystemPrompt {
            text,
            tools: Vec::new(),
            reason: SystemReason::Initial,
        };
        self.put(out, Payload::SystemPrompt(prompt));
        self.first = self.next_seq;
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

    fn begin_step(&mut self, out: &mut Vec<Payload>) {
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
    }

    fn usage(&self) -> Usage {
        Usage {
            input_tokens: self.next_seq * 200 % 180_000,
            output_tokens: 300,
            cached_input_tokens: Some(self.next_seq * 100 % 90_000),
            reasoning_tokens: None,
        }
    }

    fn end_step(&mut self, out: &mut Vec<Payload>, usage: Usage) {
        let end = StepEnd {
            turn: self.turn,
            step: self.step,
            usage: Some(usage),
        };
        self.put(out, Payload::StepEnd(end));
        self.steps.push((self.next_seq - 1, self.items));
    }

    fn step(&mut self, out: &mut Vec<Payload>, last: bool) {
        self.begin_step(out);
        for _ in 0..CHUNKS {
            let chunk = self.chunk();
            self.put(out, chunk);
        }
        let calls = if last {
            0
        } else {
            self.pool.dice().between(1, 3)
        };
        let usage = self.usage();
        let message = self.message(calls, usage);
        self.put(out, message);
        for call in 0..calls {
            self.call(out, &format!("call_{}_{call}", self.step));
        }
        self.end_step(out, usage);
    }

    fn chunk(&mut self) -> Payload {
        let size = self.pool.dice().between(20, 200);
        let delta = self.pool.cut(size);
        self.chunk_of(delta)
    }

    fn chunk_of(&self, delta: String) -> Payload {
        Payload::AssistantChunk(AssistantChunk {
            turn: self.turn,
            step: self.step,
            parts: vec![ChunkPart {
                index: 0,
                kind: ChunkKind::Text,
                delta,
            }],
        })
    }

    fn message(&mut self, calls: u64, usage: Usage) -> Payload {
        let size = self.pool.dice().skewed(200, 4_000);
        let text = self.pool.cut(size);
        let calls: Vec<_> = (0..calls)
            .map(|call| {
                let path = self.pool.dice().next();
                let arguments = format!("{{\"command\":\"cat src/{path:x}.rs | head -200\"}}");
                Call::new(format!("call_{}_{call}", self.step), "shell", arguments)
            })
            .collect();
        self.message_of(text, &calls, usage)
    }

    fn message_of(&self, text: String, calls: &[Call], usage: Usage) -> Payload {
        let mut content = vec![AssistantPart::Text { text }];
        content.extend(calls.iter().map(Call::asked));
        Payload::AssistantMessage(AssistantMessage {
            turn: self.turn,
            step: self.step,
            content,
            model: ModelRef {
                provider: PROVIDER.into(),
                name: MODEL.into(),
            },
            stop_reason: if calls.is_empty() {
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
        let mut call = Call::new(id.into(), "shell", String::new());
        self.put(out, call.start());
        let size = self.pool.dice().skewed(500, 20_000);
        call.text = self.pool.cut(size);
        self.put(out, call.output(&call.text));
        self.put(out, call.result());
    }

    /// What its text is made of.
    pub(crate) fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Events so far.
    pub(crate) fn events(&self) -> u64 {
        self.next_seq
    }

    /// Turns so far.
    pub(crate) fn turns(&self) -> u64 {
        self.turn
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
