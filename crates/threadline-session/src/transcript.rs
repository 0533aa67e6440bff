//! The one reducer: events in, state out.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use serde::Serialize;

use crate::{
    Event, Payload, RunId,
    limits::FIRST_PROMPT_CHARS,
    payload::{
        self, ApprovalAsked, AssistantMessage, AssistantPart, ChunkKind, CompactionSummary,
        ContentPart, EndReason, ModelRef, PayloadError, RequestMark, SystemPrompt, ToolResult,
        TurnContext, Usage, UserMessage, UserSource, plain_text,
    },
    surface::{CallPlace, Slot, SlotKind, Surface},
};

/// A model-visible item.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// System prompt and tools.
    System(Arc<SystemPrompt>),
    /// A user message.
    User(Arc<UserMessage>),
    /// An assistant message.
    Assistant(Arc<AssistantMessage>),
    /// A tool's result.
    ToolResult(Arc<ToolResult>),
    /// The summary that stands for compacted items.
    Summary(Arc<CompactionSummary>),
}

/// Says why an event cannot be applied. The transcript is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The event is not the next one.
    #[error("event {found} stands where event {expected} belongs")]
    OutOfOrder {
        /// Sequence number that belongs there.
        expected: u64,
        /// Sequence number found.
        found: u64,
    },
    /// A known type with data that cannot be read.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// A type this version does not know, and that may not be passed over.
    #[error(
        "event {seq} has the type {kind}, which this threadline does not know and may not pass over: upgrade it, or register the type"
    )]
    UnknownType {
        /// The event.
        seq: u64,
        /// Its type.
        kind: String,
    },
}

/// What applying an event changed, for read models.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A turn began.
    TurnStarted,
    /// The open turn ended.
    TurnEnded(EndReason),
    /// A step began.
    StepStarted,
    /// A step ended.
    StepEnded,
    /// An item joined the surface.
    Item(Item),
    /// Streamed pieces arrived.
    Chunk(Vec<payload::ChunkPart>),
    /// A call is about to run.
    CallStarted(CallKey),
    /// Live output of a call arrived.
    CallOutput(Option<CallKey>, payload::ToolOutput),
    /// A call was answered; `None` for a result that belongs to no open call.
    CallAnswered(Option<CallKey>, Arc<ToolResult>),
    /// A person is asked about a call.
    ApprovalAsked(Option<CallKey>, ApprovalAsked),
    /// An approval was decided.
    ApprovalDecided(Option<CallKey>, payload::ApprovalDecided),
    /// The inbox changed.
    Inbox,
    /// The head moved.
    Head(payload::HistoryHead),
    /// A model call failed.
    Trouble(&'static str, payload::ModelTrouble),
    /// Nothing that this version shows.
    Nothing,
}

/// Identifies a call: the assistant message and the position among its calls. Call ids may repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallKey {
    /// Sequence number of the assistant message.
    pub assistant_seq: u64,
    /// Position among the message's calls.
    pub index: usize,
}

impl From<CallPlace> for CallKey {
    fn from(place: CallPlace) -> Self {
        Self {
            assistant_seq: place.assistant,
            index: place.index,
        }
    }
}

/// The open turn.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenTurn {
    /// Turn number.
    pub turn: u64,
    /// Its run.
    pub run_id: RunId,
    /// Its first event.
    pub start_seq: u64,
}

/// The open step.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenStep {
    /// The turn it belongs to.
    pub turn: u64,
    /// Step number.
    pub step: u64,
    /// Its request.
    pub request: RequestMark,
    parts: Vec<(u32, ChunkKind, String)>,
    message_logged: bool,
}

/// A call without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCall {
    /// Where it stands.
    pub key: CallKey,
    /// The provider's id.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// Arguments as JSON text.
    pub arguments: String,
    /// Whether `tool/start` was logged, also when the head has moved back before it since.
    pub started: bool,
}

/// An approval without a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingApproval {
    /// Event that asked.
    pub seq: u64,
    /// When it asked, unix milliseconds.
    pub time: u64,
    /// The question.
    pub asked: ApprovalAsked,
}

/// A message that waits for its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// Identifies it.
    pub message_id: String,
    /// What it says.
    pub content: Vec<ContentPart>,
}

/// How a session stands, as far as its log tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// No turn is open.
    Idle,
    /// A turn is open.
    Running,
    /// A turn is open and waits for a person.
    Waiting,
    /// The last turn was interrupted.
    Interrupted,
}

/// What lists show of a session, derived from its log.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts {
    /// Text of the first message a person wrote, shortened.
    pub first_prompt: Option<String>,
    /// Turns begun.
    pub turns: u64,
    /// Events in the log.
    pub events: u64,
    /// Time of the last event, unix milliseconds.
    pub updated_at: u64,
    /// Tokens of all model calls; never falls.
    pub usage: Usage,
    /// Reason of the last finished turn.
    pub last_reason: Option<EndReason>,
}

/// State of a session, made only by applying its events in order.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    next_seq: u64,
    last_time: u64,
    open_turn: Option<OpenTurn>,
    open_step: Option<OpenStep>,
    last_turn: u64,
    last_step: u64,
    context: Option<TurnContext>,
    surface: Surface,
    items: HashMap<u64, Item>,
    approvals: Vec<PendingApproval>,
    granted: Vec<ApprovalAsked>,
    asked: HashMap<String, ApprovalAsked>,
    inbox: Vec<Queued>,
    facts: Facts,
    registered: Option<Arc<BTreeSet<String>>>,
}

impl Transcript {
    /// Starts with an empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts with an empty log that may hold these event types of plug-ins besides the known
    /// ones. They are passed over.
    #[must_use]
    pub fn with_registered(types: Arc<BTreeSet<String>>) -> Self {
        Self {
            registered: Some(types),
            ..Self::default()
        }
    }

    /// Folds events that start at sequence number 0.
    ///
    /// # Errors
    /// The first [`ApplyError`].
    pub fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Self, ApplyError> {
        let mut transcript = Self::new();
        for event in events {
            transcript.apply(event)?;
        }
        Ok(transcript)
    }

    /// Returns the sequence number the next event must have.
    #[must_use]
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Returns the time of the last event, unix milliseconds.
    #[must_use]
    pub fn last_time(&self) -> u64 {
        self.last_time
    }

    /// Returns the open turn.
    #[must_use]
    pub fn open_turn(&self) -> Option<&OpenTurn> {
        self.open_turn.as_ref()
    }

    /// Returns the open step.
    #[must_use]
    pub fn open_step(&self) -> Option<&OpenStep> {
        self.open_step.as_ref()
    }

    /// Returns the number of the last turn begun; 0 before the first.
    #[must_use]
    pub fn last_turn(&self) -> u64 {
        self.last_turn
    }

    /// Returns the number of the last step begun; 0 before the first.
    #[must_use]
    pub fn last_step(&self) -> u64 {
        self.last_step
    }

    /// Returns what the last turn ran under.
    #[must_use]
    pub fn context(&self) -> Option<&TurnContext> {
        self.context.as_ref()
    }

    /// Returns what lists show.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns approvals that nobody has decided.
    #[must_use]
    pub fn pending_approvals(&self) -> &[PendingApproval] {
        &self.approvals
    }

    /// Returns what was approved for the rest of the session.
    #[must_use]
    pub fn session_grants(&self) -> &[ApprovalAsked] {
        &self.granted
    }

    /// Returns messages that wait for their turn, oldest first.
    #[must_use]
    pub fn inbox(&self) -> &[Queued] {
        &self.inbox
    }

    /// Returns how the session stands.
    #[must_use]
    pub fn status(&self) -> Status {
        if self.open_turn.is_some() {
            return if self.approvals.is_empty() {
                Status::Running
            } else {
                Status::Waiting
            };
        }
        match self.facts.last_reason {
            Some(EndReason::Interrupted) => Status::Interrupted,
            _ => Status::Idle,
        }
    }

    /// Returns the system prompt and tools in force.
    #[must_use]
    pub fn system(&self) -> Option<&Arc<SystemPrompt>> {
        let slot = self
            .surface
            .slots()
            .iter()
            .rev()
            .find(|slot| slot.kind == SlotKind::System)?;
        match self.items.get(&slot.seq) {
            Some(Item::System(prompt)) => Some(prompt),
            _ => None,
        }
    }

    /// Returns the surface: model-visible items in order with their sequence numbers, each tool
    /// result right after its assistant message and in call order. The system prompt is left out.
    pub fn surface(&self) -> impl Iterator<Item = (u64, &Item)> {
        self.surface
            .slots()
            .iter()
            .filter(|slot| slot.kind != SlotKind::System)
            .flat_map(slot_seqs)
            .filter_map(|seq| Some((seq, self.items.get(&seq)?)))
    }

    /// Returns calls on the surface that have no result, in call order.
    #[must_use]
    pub fn open_calls(&self) -> Vec<OpenCall> {
        self.surface
            .open_calls()
            .filter_map(|(place, _)| {
                let Some(Item::Assistant(message)) = self.items.get(&place.assistant) else {
                    return None;
                };
                let call = message.calls().nth(place.index)?;
                Some(OpenCall {
                    key: place.into(),
                    call_id: call.call_id.into(),
                    name: call.name.into(),
                    arguments: call.arguments.into(),
                    started: self.surface.began(place),
                })
            })
            .collect()
    }

    /// Checks that a batch can be applied, and keeps what was parsed for
    /// [`apply_checked`](Self::apply_checked).
    ///
    /// # Errors
    /// What [`apply`](Self::apply) would say of the first event that cannot.
    pub fn check(&self, batch: &[Event]) -> Result<Vec<Payload>, ApplyError> {
        batch
            .iter()
            .zip(self.next_seq..)
            .map(|(event, expected)| self.parse(event, expected))
            .collect()
    }

    /// Applies a batch that [`check`](Self::check) has accepted, with no event applied between.
    pub fn apply_checked(&mut self, batch: &[Event], payloads: Vec<Payload>) {
        for (event, payload) in batch.iter().zip(payloads) {
            debug_assert_eq!(
                event.seq, self.next_seq,
                "another event was applied between"
            );
            self.take(event, payload);
        }
    }

    /// Applies the next event.
    ///
    /// # Errors
    /// [`ApplyError`]; the transcript is then unchanged.
    pub fn apply(&mut self, event: &Event) -> Result<Change, ApplyError> {
        let payload = self.parse(event, self.next_seq)?;
        Ok(self.take(event, payload))
    }

    fn take(&mut self, event: &Event, payload: Payload) -> Change {
        self.next_seq = event.seq + 1;
        self.last_time = event.time;
        self.facts.events += 1;
        self.facts.updated_at = event.time;
        self.reduce(event, payload)
    }

    fn parse(&self, event: &Event, expected: u64) -> Result<Payload, ApplyError> {
        if event.seq != expected {
            return Err(ApplyError::OutOfOrder {
                expected,
                found: event.seq,
            });
        }
        let payload = event.payload()?;
        match &payload {
            Payload::Other {
                kind,
                ignorable: false,
            } if !self
                .registered
                .as_ref()
                .is_some_and(|types| types.contains(kind)) =>
            {
                Err(ApplyError::UnknownType {
                    seq: event.seq,
                    kind: kind.clone(),
                })
            }
            _ => Ok(payload),
        }
    }

    fn reduce(&mut self, event: &Event, payload: Payload) -> Change {
        let seq = event.seq;
        match payload {
            Payload::TurnStart(start) => self.turn_start(seq, start),
            Payload::TurnEnd(end) => {
                self.open_step = None;
                self.open_turn = None;
                self.approvals.clear();
                self.facts.last_reason = Some(end.reason.clone());
                Change::TurnEnded(end.reason)
            }
            Payload::StepStart(start) => {
                self.last_step = start.step;
                self.open_step = Some(OpenStep {
                    turn: start.turn,
                    step: start.step,
                    request: start.request,
                    parts: Vec::new(),
                    message_logged: false,
                });
                Change::StepStarted
            }
            Payload::StepEnd(end) => {
                if let Some(usage) = end.usage {
                    self.facts.usage.add(&usage);
                }
                self.open_step = None;
                Change::StepEnded
            }
            Payload::SystemPrompt(prompt) => self.push(
                seq,
                SlotKind::System,
                Item::System(prompt.into()),
                Vec::new(),
            ),
            Payload::UserMessage(message) => self.user_message(seq, message),
            Payload::AssistantChunk(chunk) => self.chunk(chunk),
            Payload::AssistantMessage(message) => {
                if let Some(step) = &mut self.open_step {
                    step.message_logged = true;
                    step.parts.clear();
                }
                let calls = message
                    .calls()
                    .map(|call| call.call_id.to_owned())
                    .collect();
                self.push(seq, SlotKind::Plain, Item::Assistant(message.into()), calls)
            }
            Payload::ToolStart(start) => match self.surface.start(seq, &start.call_id) {
                Some(place) => Change::CallStarted(place.into()),
                None => Change::Nothing,
            },
            Payload::ToolOutput(output) => {
                Change::CallOutput(self.open_key(&output.call_id), output)
            }
            Payload::ToolResult(result) => self.tool_result(seq, result),
            Payload::ApprovalAsked(asked) => {
                let key = self.open_key(&asked.call_id);
                self.asked.insert(asked.approval_id.clone(), asked.clone());
                self.approvals.push(PendingApproval {
                    seq,
                    time: event.time,
                    asked: asked.clone(),
                });
                Change::ApprovalAsked(key, asked)
            }
            Payload::ApprovalDecided(decided) => self.decided(decided),
            Payload::InboxQueued(queued) => {
                self.inbox.push(Queued {
                    message_id: queued.message_id,
                    content: queued.content,
                });
                Change::Inbox
            }
            Payload::InboxTaken(mark) | Payload::InboxDropped(mark) => {
                self.inbox
                    .retain(|queued| queued.message_id != mark.message_id);
                Change::Inbox
            }
            Payload::CompactionSummary(summary) => {
                let range = summary.replaces;
                self.surface
                    .compact(seq, range.from_seq, range.to_seq, &summary.kept);
                if let Some(usage) = summary.usage {
                    self.facts.usage.add(&usage);
                }
                let item = Item::Summary(summary.into());
                self.items.insert(seq, item.clone());
                Change::Item(item)
            }
            Payload::HistoryHead(head) => {
                self.surface.move_head(seq, head.seq);
                Change::Head(head)
            }
            Payload::ModelRetry(trouble) => Change::Trouble(crate::types::MODEL_RETRY, trouble),
            Payload::ModelError(trouble) => Change::Trouble(crate::types::MODEL_ERROR, trouble),
            Payload::Other { .. } => Change::Nothing,
        }
    }

    fn turn_start(&mut self, seq: u64, start: payload::TurnStart) -> Change {
        self.last_turn = start.turn;
        self.facts.turns += 1;
        self.context = Some(start.context);
        self.open_step = None;
        self.open_turn = Some(OpenTurn {
            turn: start.turn,
            run_id: start.run_id,
            start_seq: seq,
        });
        Change::TurnStarted
    }

    fn user_message(&mut self, seq: u64, message: UserMessage) -> Change {
        if self.facts.first_prompt.is_none() && message.source != UserSource::Context {
            let text = plain_text(&message.content);
            let short: String = text.trim().chars().take(FIRST_PROMPT_CHARS).collect();
            self.facts.first_prompt = Some(short).filter(|text| !text.is_empty());
        }
        self.push(seq, SlotKind::Plain, Item::User(message.into()), Vec::new())
    }

    fn chunk(&mut self, chunk: payload::AssistantChunk) -> Change {
        if let Some(step) = &mut self.open_step {
            for part in &chunk.parts {
                match step
                    .parts
                    .iter_mut()
                    .find(|(index, kind, _)| *index == part.index && *kind == part.kind)
                {
                    Some((_, _, text)) => text.push_str(&part.delta),
                    None => step.parts.push((part.index, part.kind, part.delta.clone())),
                }
            }
        }
        Change::Chunk(chunk.parts)
    }

    fn tool_result(&mut self, seq: u64, result: ToolResult) -> Change {
        let result = Arc::new(result);
        let place = self.surface.answer(seq, &result.call_id);
        if place.is_none() {
            self.surface.push(seq, SlotKind::Orphan, Vec::new());
        }
        self.items.insert(seq, Item::ToolResult(result.clone()));
        Change::CallAnswered(place.map(Into::into), result)
    }

    fn decided(&mut self, decided: payload::ApprovalDecided) -> Change {
        self.approvals
            .retain(|pending| pending.asked.approval_id != decided.approval_id);
        let asked = self.asked.remove(&decided.approval_id);
        let key = asked
            .as_ref()
            .and_then(|asked| self.open_key(&asked.call_id));
        if let (payload::Decision::ApprovedForSession, Some(asked)) = (decided.decision, asked) {
            self.granted.push(asked);
        }
        Change::ApprovalDecided(key, decided)
    }

    fn push(&mut self, seq: u64, kind: SlotKind, item: Item, calls: Vec<String>) -> Change {
        self.surface.push(seq, kind, calls);
        self.items.insert(seq, item.clone());
        Change::Item(item)
    }

    fn open_key(&self, call_id: &str) -> Option<CallKey> {
        let mut open: Vec<_> = self
            .surface
            .open_calls()
            .filter(|(_, call)| call.call_id == call_id)
            .collect();
        let newest = open.iter().map(|(place, _)| place.assistant).max()?;
        open.retain(|(place, _)| place.assistant == newest);
        let started = open.iter().find(|(_, call)| call.started.is_some());
        started
            .or_else(|| open.first())
            .map(|(place, _)| (*place).into())
    }

    /// Returns the message that the open step's chunks amount to, when its real one is missing.
    /// Incomplete tool calls are dropped; `None` when nothing remains.
    #[must_use]
    pub fn partial_message(&self) -> Option<AssistantMessage> {
        let step = self
            .open_step
            .as_ref()
            .filter(|step| !step.message_logged)?;
        let mut parts: Vec<_> = step.parts.iter().collect();
        parts.sort_by_key(|(index, _, _)| *index);
        let content: Vec<AssistantPart> = parts
            .into_iter()
            .filter(|(_, _, text)| !text.is_empty())
            .filter_map(|(_, kind, text)| match kind {
                ChunkKind::Text => Some(AssistantPart::Text { text: text.clone() }),
                ChunkKind::Reasoning => Some(AssistantPart::Reasoning { text: text.clone() }),
                ChunkKind::ToolArgs => None,
            })
            .collect();
        let context = self.context.as_ref()?;
        (!content.is_empty()).then(|| AssistantMessage {
            turn: step.turn,
            step: step.step,
            content,
            model: ModelRef {
                provider: context.provider.clone(),
                name: context.model.clone(),
            },
            stop_reason: payload::StopReason::Interrupted,
            usage: None,
            opaque: Vec::new(),
            interrupted: true,
        })
    }
}

fn slot_seqs(slot: &Slot) -> impl Iterator<Item = u64> {
    std::iter::once(slot.seq).chain(slot.calls.iter().filter_map(|call| call.result))
}
