//! The one reducer: events in, state out.

mod queries;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use crate::{
    Event, Payload,
    codec::Line,
    grants::Grants,
    limits::FIRST_PROMPT_CHARS,
    payload::{
        self, AssistantMessage, AssistantPart, ChunkKind, EndReason, HeadReason, ModelRef,
        RejectedPart, ToolResult, TurnContext, UserMessage, UserSource, plain_text,
    },
    state::{
        ApplyError, CallKey, Change, Facts, Item, OpenStep, OpenTurn, PendingApproval, Queued,
        Refused,
    },
    surface::{Place, Slot, SlotKind, Surface},
};

/// The content of an item on the surface.
#[derive(Debug, Clone)]
pub(crate) enum Held {
    Item(Item),
    /// Its line as it is stored, without LF and not parsed yet.
    Raw(Box<[u8]>),
}

/// The surface right after some event, for a head that moves there.
#[derive(Debug, Clone)]
pub struct SurfaceAt {
    seq: u64,
    slots: Vec<Slot>,
}

/// State of a session, made only by applying its events in order.
///
/// What it keeps is bounded by what the model sees, not by the length of the log: items that no
/// longer are on the surface, and the way it came about, are let go in time.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    pub(crate) next_seq: u64,
    pub(crate) last_time: u64,
    pub(crate) open_turn: Option<OpenTurn>,
    pub(crate) open_step: Option<OpenStep>,
    pub(crate) last_turn: u64,
    pub(crate) last_step: u64,
    pub(crate) context: Option<TurnContext>,
    pub(crate) surface: Surface,
    pub(crate) items: HashMap<u64, Held>,
    /// Whether items are left out altogether.
    pub(crate) bare: bool,
    pub(crate) past: Option<SurfaceAt>,
    pub(crate) approvals: Vec<PendingApproval>,
    pub(crate) granted: Grants,
    pub(crate) inbox: Vec<Queued>,
    /// Where the history was before each rewind that nothing was built upon.
    pub(crate) undone: Vec<u64>,
    pub(crate) facts: Facts,
    /// One for each model that ever refused something.
    pub(crate) refused: Vec<Refused>,
    pub(crate) registered: Option<Arc<BTreeSet<String>>>,
    /// Registered types that the log holds and that may not be passed over without registration.
    pub(crate) relied_on: BTreeSet<String>,
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

    /// Leaves the content of items out: what remains is small, and [`missing`](Self::missing)
    /// tells what a request would need.
    #[must_use]
    pub fn bare(mut self) -> Self {
        self.bare = true;
        self.items.clear();
        self
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

    /// Returns the surface as it stands, for a head that will move here.
    #[must_use]
    pub fn into_surface_at(self) -> SurfaceAt {
        SurfaceAt {
            seq: self.next_seq.saturating_sub(1),
            slots: self.surface.into_slots(),
        }
    }

    /// Supplies what [`ApplyError::Past`] asked for. It is used by the next event, if that is the
    /// head's move to this point, and let go otherwise.
    pub fn supply_past(&mut self, past: SurfaceAt) {
        self.past = Some(past);
    }

    /// Returns events on the surface whose content is not held, with the places of their lines.
    #[must_use]
    pub fn missing(&self) -> Vec<(u64, Place)> {
        self.surface
            .slots()
            .iter()
            .flat_map(Slot::events)
            .filter(|(seq, _)| !self.items.contains_key(seq))
            .collect()
    }

    /// Supplies the content of an item that is [`missing`](Self::missing): its line without LF,
    /// whose checksum was checked. It is parsed when it is used.
    pub fn supply(&mut self, seq: u64, line: impl Into<Box<[u8]>>) {
        self.items.insert(seq, Held::Raw(line.into()));
    }

    /// Takes content for items: the counterpart of [`bare`](Self::bare).
    #[must_use]
    pub fn with_items(mut self) -> Self {
        self.bare = false;
        self
    }

    /// Parses what was supplied. Content that cannot be parsed stays as it is, and no request can
    /// be built from it.
    fn hydrate(&mut self) {
        for held in self.items.values_mut() {
            if let Held::Raw(line) = held
                && let Some(item) = parse_item(line)
            {
                *held = Held::Item(item);
            }
        }
    }

    fn item(&self, seq: u64) -> Option<Item> {
        match self.items.get(&seq)? {
            Held::Item(item) => Some(item.clone()),
            Held::Raw(line) => parse_item(line),
        }
    }

    /// Lets go of items that are not on the surface.
    fn drop_items(&mut self) {
        let live: std::collections::HashSet<u64> = self
            .surface
            .slots()
            .iter()
            .flat_map(Slot::events)
            .map(|(seq, _)| seq)
            .collect();
        self.items.retain(|seq, _| live.contains(seq));
    }

    /// Checks that a batch can be applied, and keeps what was parsed for
    /// [`apply_checked`](Self::apply_checked).
    ///
    /// # Errors
    /// What [`apply`](Self::apply) would say of the first event that cannot.
    pub fn check(&self, batch: &[Event]) -> Result<Vec<Payload>, ApplyError> {
        let mut heads = 0;
        batch
            .iter()
            .zip(self.next_seq..)
            .map(|(event, expected)| {
                let payload = self.parse(event, expected)?;
                heads += u32::from(matches!(payload, Payload::HistoryHead(_)));
                if heads > 1 {
                    return Err(ApplyError::HeadsInBatch { seq: event.seq });
                }
                Ok(payload)
            })
            .collect()
    }

    /// Applies a batch that [`check`](Self::check) has accepted, with no event applied between.
    /// `places` are those of the lines, in the same order.
    pub fn apply_checked(&mut self, batch: &[Event], payloads: Vec<Payload>, places: &[Place]) {
        let places = places
            .iter()
            .copied()
            .chain(std::iter::repeat(Place::default()));
        for ((event, payload), place) in batch.iter().zip(payloads).zip(places) {
            debug_assert_eq!(
                event.seq, self.next_seq,
                "another event was applied between"
            );
            self.take(event, payload, place);
        }
        self.prune();
    }

    /// Applies the next event.
    ///
    /// # Errors
    /// [`ApplyError`]; the transcript is then unchanged.
    pub fn apply(&mut self, event: &Event) -> Result<Change, ApplyError> {
        self.apply_at(event, Place::default())
    }

    /// Applies the next event, whose line is kept at a place.
    ///
    /// # Errors
    /// [`ApplyError`]; the transcript is then unchanged.
    pub fn apply_at(&mut self, event: &Event, place: Place) -> Result<Change, ApplyError> {
        let payload = self.parse(event, self.next_seq)?;
        let change = self.take(event, payload, place);
        self.prune();
        Ok(change)
    }

    pub(crate) fn prune(&mut self) {
        if self.surface.prune(self.next_seq) {
            self.drop_items();
        }
    }

    fn take(&mut self, event: &Event, payload: Payload, place: Place) -> Change {
        self.count(event.seq, event.time);
        let change = self.reduce(event, payload, place);
        self.past = None;
        change
    }

    pub(crate) fn count(&mut self, seq: u64, time: u64) {
        self.next_seq = seq.saturating_add(1);
        self.last_time = time;
        self.facts.events += 1;
        self.facts.updated_at = time;
    }

    /// Counts the next event without applying it.
    pub fn pass_over(&mut self, event: &Event) {
        self.count(event.seq, event.time);
    }

    /// Applies an event again to the open step alone: its beginning, or streamed pieces. The other
    /// half of [`skim`](Self::skim).
    pub fn stream(&mut self, event: &Event) {
        match event.payload() {
            Ok(Payload::StepStart(start)) => self.step_start(start),
            Ok(Payload::AssistantChunk(chunk)) => drop(self.chunk(chunk)),
            Ok(Payload::AssistantMessage(_)) => self.message_logged(),
            _ => {}
        }
    }

    pub(crate) fn step_start(&mut self, start: payload::StepStart) {
        self.last_step = start.step;
        self.open_step = Some(OpenStep {
            turn: start.turn,
            step: start.step,
            request: start.request,
            parts: Vec::new(),
            message_logged: false,
        });
    }

    pub(crate) fn step_end(&mut self, end: payload::StepEnd) {
        if let Some(usage) = end.usage {
            self.facts.usage.add(&usage);
        }
        self.open_step = None;
    }

    pub(crate) fn message_logged(&mut self) {
        if let Some(step) = &mut self.open_step {
            step.message_logged = true;
            step.parts.clear();
        }
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
            } if !self.is_registered(kind) => Err(ApplyError::UnknownType {
                seq: event.seq,
                kind: kind.clone(),
            }),
            Payload::HistoryHead(head) if !self.can_move_to(head.seq) => Err(ApplyError::Past {
                seq: event.seq,
                target: head.seq,
            }),
            _ => Ok(payload),
        }
    }

    pub(crate) fn is_registered(&self, kind: &str) -> bool {
        let types = self.registered.as_ref();
        types.is_some_and(|types| types.contains(kind))
    }

    fn can_move_to(&self, seq: u64) -> bool {
        self.surface.reaches(seq) || self.past.as_ref().is_some_and(|past| past.seq == seq)
    }

    fn move_head(&mut self, at: u64, target: u64) {
        match self.past.take().filter(|past| past.seq == target) {
            Some(past) => {
                self.surface.replace(at, past.slots);
                self.drop_items();
            }
            None => self.surface.move_head(at, target),
        }
    }

    fn reduce(&mut self, event: &Event, payload: Payload, place: Place) -> Change {
        let seq = event.seq;
        match payload {
            Payload::TurnStart(start) => self.turn_start(seq, event.time, start),
            Payload::TurnEnd(end) => self.turn_end(event.time, end),
            Payload::StepStart(start) => {
                self.step_start(start);
                Change::StepStarted
            }
            Payload::StepEnd(end) => {
                self.step_end(end);
                Change::StepEnded
            }
            Payload::SystemPrompt(prompt) => self.push(
                (seq, place),
                SlotKind::System,
                Item::System(prompt.into()),
                Vec::new(),
            ),
            Payload::UserMessage(message) => self.user_message((seq, place), message),
            Payload::AssistantChunk(chunk) => self.chunk(chunk),
            Payload::AssistantMessage(message) => {
                self.message_logged();
                let calls = message
                    .calls()
                    .map(|call| Arc::from(call.call_id))
                    .collect();
                let item = Item::Assistant(message.into());
                self.push((seq, place), SlotKind::Plain, item, calls)
            }
            Payload::ToolStart(start) => match self.surface.start(seq, &start.call_id) {
                Some(place) => Change::CallStarted(place.into(), start),
                None => Change::Nothing,
            },
            Payload::ToolOutput(output) => {
                Change::CallOutput(self.open_key(&output.call_id), output)
            }
            Payload::ToolResult(result) => self.tool_result((seq, place), result),
            Payload::SubagentUsage(used) => {
                self.facts.subagents.add(&used.added);
                Change::SubagentUsed
            }
            Payload::ApprovalAsked(asked) => {
                let key = self.open_key(&asked.call_id);
                self.approvals.push(PendingApproval {
                    seq,
                    time: event.time,
                    asked: asked.clone(),
                });
                Change::ApprovalAsked(key, asked)
            }
            Payload::ApprovalDecided(decided) => self.decided(event, decided),
            Payload::ApprovalGranted(granted) => {
                self.granted.granted((seq, event.time), granted);
                Change::Grants
            }
            Payload::ApprovalRevoked(revoked) => {
                self.granted.revoked(&revoked.grant_id);
                Change::Grants
            }
            Payload::InboxQueued(queued) => {
                self.queued(queued);
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
                    .compact(seq, place, range.from_seq, range.to_seq, &summary.kept);
                if let Some(usage) = summary.usage {
                    self.facts.usage.add(&usage);
                }
                self.undone.clear();
                let item = Item::Summary(summary.into());
                self.hold(seq, &item);
                Change::Item(item)
            }
            Payload::HistoryHead(head) => {
                self.move_head(seq, head.seq);
                self.granted.moved_to(head.seq);
                match head.reason {
                    HeadReason::Rewind => self.undone.push(seq.saturating_sub(1)),
                    HeadReason::Redo => drop(self.undone.pop()),
                }
                Change::Head(head)
            }
            Payload::ItemRejected(rejected) => self.rejected(seq, rejected),
            Payload::ModelRetry(trouble) => Change::Trouble(crate::types::MODEL_RETRY, trouble),
            Payload::ModelError(trouble) => Change::Trouble(crate::types::MODEL_ERROR, trouble),
            Payload::Other { kind, ignorable } => {
                if !ignorable {
                    self.relied_on.insert(kind);
                }
                Change::Nothing
            }
        }
    }

    fn rejected(&mut self, seq: u64, rejected: payload::ItemRejected) -> Change {
        let model = &rejected.model;
        let at = self.refused.iter().position(|known| known.model == *model);
        let at = at.unwrap_or_else(|| {
            self.refused.push(Refused {
                model: model.clone(),
                blobs: BTreeSet::new(),
                opaque_before: 0,
            });
            self.refused.len() - 1
        });
        if let Some(refused) = self.refused.get_mut(at) {
            match rejected.part {
                RejectedPart::Images => refused.blobs.extend(rejected.blobs),
                RejectedPart::Opaque => refused.opaque_before = seq,
            }
        }
        let trouble = payload::ModelTrouble {
            attempt: 1,
            status: None,
            message: rejected.message,
            delay_ms: None,
        };
        Change::Trouble(crate::types::ITEM_REJECTED, trouble)
    }

    fn queued(&mut self, queued: payload::InboxQueued) {
        let payload::InboxQueued {
            message_id,
            content,
            delivery,
        } = queued;
        let known = self.inbox.iter_mut().find(|q| q.message_id == message_id);
        match known {
            Some(waiting) => (waiting.content, waiting.delivery) = (content, delivery),
            None => self.inbox.push(Queued {
                message_id,
                content,
                delivery,
            }),
        }
    }

    fn hold(&mut self, seq: u64, item: &Item) {
        if !self.bare {
            self.items.insert(seq, Held::Item(item.clone()));
        }
    }

    pub(crate) fn turn_start(&mut self, seq: u64, time: u64, start: payload::TurnStart) -> Change {
        self.last_turn = start.turn;
        self.facts.turns += 1;
        self.context = Some(start.context);
        self.open_step = None;
        // Its requests need every item.
        self.hydrate();
        self.open_turn = Some(OpenTurn {
            turn: start.turn,
            run_id: start.run_id,
            start_seq: seq,
            started_at: time,
        });
        Change::TurnStarted
    }

    pub(crate) fn turn_end(&mut self, time: u64, end: payload::TurnEnd) -> Change {
        self.open_step = None;
        if let Some(turn) = self.open_turn.take() {
            // Clocks may jump back.
            let took = time.saturating_sub(turn.started_at);
            self.facts.active_ms = self.facts.active_ms.saturating_add(took);
        }
        self.approvals.clear();
        self.facts.completed += u64::from(end.reason == EndReason::Completed);
        self.facts.last_reason = Some(end.reason.clone());
        Change::TurnEnded(end.reason)
    }

    fn user_message(&mut self, at: (u64, Place), message: UserMessage) -> Change {
        if self.facts.first_prompt.is_none() && message.source != UserSource::Context {
            let text = plain_text(&message.content);
            let short: String = text.trim().chars().take(FIRST_PROMPT_CHARS).collect();
            self.facts.first_prompt = Some(short).filter(|text| !text.is_empty());
        }
        self.push(at, SlotKind::Plain, Item::User(message.into()), Vec::new())
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

    fn tool_result(&mut self, (seq, at): (u64, Place), result: ToolResult) -> Change {
        let result = Arc::new(result);
        let place = self.surface.answer(seq, at, &result.call_id);
        if place.is_none() {
            self.surface.push(seq, at, SlotKind::Orphan, Vec::new());
        }
        self.hold(seq, &Item::ToolResult(result.clone()));
        Change::CallAnswered(place.map(Into::into), result)
    }

    fn decided(&mut self, event: &Event, decided: payload::ApprovalDecided) -> Change {
        let at = self
            .approvals
            .iter()
            .position(|pending| pending.asked.approval_id == decided.approval_id);
        let asked = at.map(|at| self.approvals.remove(at).asked);
        let key = asked
            .as_ref()
            .and_then(|asked| self.open_key(&asked.call_id));
        if let Some(asked) = asked {
            self.granted
                .decided((event.seq, event.time), asked, &decided);
        }
        Change::ApprovalDecided(key, decided)
    }

    fn push(
        &mut self,
        (seq, place): (u64, Place),
        kind: SlotKind,
        item: Item,
        calls: Vec<Arc<str>>,
    ) -> Change {
        self.undone.clear();
        self.surface.push(seq, place, kind, calls);
        self.hold(seq, &item);
        Change::Item(item)
    }

    fn open_key(&self, call_id: &str) -> Option<CallKey> {
        self.surface.about(call_id).map(Into::into)
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

fn parse_item(line: &[u8]) -> Option<Item> {
    match Line::decode(line).ok()?.event.payload().ok()? {
        Payload::SystemPrompt(prompt) => Some(Item::System(prompt.into())),
        Payload::UserMessage(message) => Some(Item::User(message.into())),
        Payload::AssistantMessage(message) => Some(Item::Assistant(message.into())),
        Payload::ToolResult(result) => Some(Item::ToolResult(result.into())),
        Payload::CompactionSummary(summary) => Some(Item::Summary(summary.into())),
        _ => None,
    }
}
