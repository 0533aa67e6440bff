//! The read model by turn, and the patches that keep a copy of it current.
//!
//! [`View::apply`] lets [`Transcript`] reduce the event and only translates what changed, so a page
//! that applies the patches shows exactly what a fresh read would show.

mod items;

use std::{collections::HashMap, sync::Arc};

use items::ViewApproval;
pub use items::{AssistantItem, Patch, ToolItem, Turn, TurnHead, TurnItem, ViewPart};

use crate::{
    ApplyError, Change, Event, Item, Place, Transcript,
    limits::VIEW_OUTPUT_BYTES,
    payload::{AssistantMessage, AssistantPart, ChunkKind, ChunkPart, LogLost, SeqRange, Usage},
    state::CallKey,
};

/// The read model of one session.
#[derive(Debug, Clone, Default)]
pub struct View {
    transcript: Transcript,
    turns: Vec<Turn>,
    /// Turns that were taken out at the front.
    taken: usize,
    /// Where each tool item is: the number of its turn, those taken out included, and its place
    /// in that turn.
    tools: HashMap<CallKey, (usize, usize)>,
    /// Place of each step's message in the newest turn.
    messages: HashMap<u64, usize>,
    /// Tokens of all turns before the newest, and of the subagents of those.
    usage_before: (Usage, Usage),
}

fn chunk_name(kind: ChunkKind) -> &'static str {
    match kind {
        ChunkKind::Text => "text",
        ChunkKind::Reasoning => "reasoning",
        ChunkKind::ToolArgs => "tool_args",
    }
}

impl View {
    /// Starts with an empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts on a transcript that has seen no event yet.
    #[must_use]
    pub fn over(transcript: Transcript) -> Self {
        Self {
            transcript,
            ..Self::default()
        }
    }

    /// Starts in the middle of a log, where `transcript` is its state. `open` is the head of the
    /// turn that is open there and shown without the items it has so far; `None` shows none, as
    /// right before a turn.
    #[must_use]
    pub fn resumed(transcript: Transcript, open: Option<TurnHead>) -> Self {
        let (own, subagents) = open
            .as_ref()
            .map_or_else(Default::default, |head| (head.usage, head.subagent_usage));
        let facts = transcript.facts();
        Self {
            usage_before: (facts.usage.minus(&own), facts.subagents.minus(&subagents)),
            turns: Vec::from_iter(open.map(|head| Turn {
                head,
                items: Vec::new(),
            })),
            transcript,
            ..Self::default()
        }
    }

    /// Returns the state underneath.
    #[must_use]
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// Returns all turns.
    #[must_use]
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Returns the turns alone.
    #[must_use]
    pub fn into_turns(self) -> Vec<Turn> {
        self.turns
    }

    /// Takes out all turns but the newest, so that a log of any length can be shown turn by turn.
    /// What comes after changes only the newest one.
    pub fn take_turns(&mut self) -> Vec<Turn> {
        let last = self.turns.len().saturating_sub(1);
        self.taken += last;
        self.tools.retain(|_, (turn, _)| *turn >= self.taken);
        self.turns.drain(..last).collect()
    }

    /// Returns the state underneath, to supply it with what it lacks.
    pub fn transcript_mut(&mut self) -> &mut Transcript {
        &mut self.transcript
    }

    /// Applies the next event and returns what changed.
    ///
    /// # Errors
    /// [`ApplyError`]; the view is then unchanged.
    pub fn apply(&mut self, event: &Event) -> Result<Vec<Patch>, ApplyError> {
        self.apply_at(event, Place::default())
    }

    /// Applies the next event, whose line is kept at a place.
    ///
    /// # Errors
    /// [`ApplyError`]; the view is then unchanged.
    pub fn apply_at(&mut self, event: &Event, place: Place) -> Result<Vec<Patch>, ApplyError> {
        let before = self.transcript.status();
        let change = self.transcript.apply_at(event, place)?;
        let mut patches = self.translate(event, change);
        let status = self.transcript.status();
        if status != before {
            let running = self.transcript.open_turn().is_some();
            patches.push(Patch::Status { status, running });
        }
        Ok(patches)
    }

    fn translate(&mut self, event: &Event, change: Change) -> Vec<Patch> {
        match change {
            Change::TurnStarted => self.turn_started(event),
            Change::TurnEnded(reason) => {
                let Some(turn) = self.turns.last_mut() else {
                    return Vec::new();
                };
                turn.head.end_seq = Some(event.seq);
                turn.head.ended_at = Some(event.time);
                turn.head.reason = Some(reason);
                let head = turn.head.clone();
                let mut patches = self.stop_streaming();
                patches.push(Patch::Turn { turn: head });
                patches
            }
            Change::StepEnded | Change::SubagentUsed => {
                let facts = self.transcript.facts();
                let (own, subagents) = &self.usage_before;
                let (own, subagents) = (facts.usage.minus(own), facts.subagents.minus(subagents));
                let Some(turn) = self.turns.last_mut() else {
                    return Vec::new();
                };
                turn.head.usage = own;
                turn.head.subagent_usage = subagents;
                vec![Patch::Turn {
                    turn: turn.head.clone(),
                }]
            }
            Change::Item(item) => self.item(event, item),
            Change::Chunk(parts) => self.chunk(event, &parts),
            Change::CallStarted(key, start) => self.tool(key, |tool| {
                tool.start_seq = Some(event.seq);
                tool.started_at = Some(event.time);
                tool.outside_sandbox = start.outside_sandbox;
                tool.grant_id = start.grant_id;
            }),
            Change::CallOutput(Some(key), output) => self.output(key, &output.delta),
            // A call that a rewind opened again is answered anew for the model. What it did when it
            // ran stays what is shown of it.
            Change::CallAnswered(Some(key), _) if self.is_answered(key) => Vec::new(),
            Change::CallAnswered(Some(key), result) => self.tool(key, |tool| {
                tool.result_seq = Some(event.seq);
                tool.ended_at = Some(event.time);
                tool.outcome = Some(result.outcome);
                tool.is_error = result.is_error;
                tool.content.clone_from(&result.content);
                tool.full.clone_from(&result.full);
                tool.synthetic = result.synthetic;
            }),
            Change::ApprovalAsked(Some(key), asked) => self.tool(key, |tool| {
                tool.approval = Some(Box::new(ViewApproval {
                    approval_id: asked.approval_id.clone(),
                    reason: asked.reason.clone(),
                    decision: None,
                    by: None,
                    prefix: asked.prefix.clone(),
                    outside_sandbox: asked.outside_sandbox,
                }));
            }),
            Change::ApprovalDecided(Some(key), decided) => self.tool(key, |tool| {
                if let Some(approval) = &mut tool.approval {
                    approval.decision = Some(decided.decision);
                    approval.by = Some(decided.by.clone());
                    approval.prefix.clone_from(&decided.prefix);
                }
            }),
            Change::Head(head) => self.push(TurnItem::Head {
                id: item_id(event.seq),
                seq: event.seq,
                to_seq: head.seq,
                reason: head.reason,
            }),
            Change::Trouble(kind, trouble) => self.push(TurnItem::Notice {
                id: item_id(event.seq),
                seq: event.seq,
                kind,
                message: trouble.message,
                attempt: trouble.attempt,
                status: trouble.status,
                delay_ms: trouble.delay_ms,
            }),
            Change::Nothing if event.kind == crate::types::LOG_LOST => self.lost(event),
            Change::StepStarted
            | Change::CallOutput(None, _)
            | Change::CallAnswered(None, _)
            | Change::ApprovalAsked(None, _)
            | Change::ApprovalDecided(None, _)
            | Change::Grants
            | Change::Inbox
            | Change::Nothing => Vec::new(),
        }
    }

    /// Shows the first of the events that stand in the place of lost ones; only it says how many.
    fn lost(&mut self, event: &Event) -> Vec<Patch> {
        let Ok(lost) = serde_json::from_str::<LogLost>(event.data.get()) else {
            return Vec::new();
        };
        self.push(TurnItem::Lost {
            id: item_id(event.seq),
            seq: event.seq,
            events: SeqRange {
                from_seq: lost.from_seq,
                to_seq: lost.to_seq,
            },
            bytes: lost.bytes,
            reason: lost.reason,
        })
    }

    fn turn_started(&mut self, event: &Event) -> Vec<Patch> {
        let Some(open) = self.transcript.open_turn() else {
            return Vec::new();
        };
        let facts = self.transcript.facts();
        self.usage_before = (facts.usage, facts.subagents);
        // Turns are found by number. A log from elsewhere may repeat one; it is then shown under
        // the next free number instead of being merged into another turn.
        let free = self
            .turns
            .last()
            .map_or(0, |last| last.head.turn.saturating_add(1));
        let head = TurnHead {
            turn: open.turn.max(free),
            run_id: open.run_id.clone(),
            start_seq: event.seq,
            end_seq: None,
            started_at: event.time,
            ended_at: None,
            context: self.transcript.context().cloned(),
            reason: None,
            usage: Usage::default(),
            subagent_usage: Usage::default(),
        };
        self.messages.clear();
        self.turns.push(Turn {
            head: head.clone(),
            items: Vec::new(),
        });
        vec![Patch::Turn { turn: head }]
    }

    fn item(&mut self, event: &Event, item: Item) -> Vec<Patch> {
        let seq = event.seq;
        let id = item_id(seq);
        match item {
            Item::System(prompt) => self.push(TurnItem::System {
                id,
                seq,
                reason: prompt.reason,
                text: prompt.text.clone(),
                tools: prompt.tools.iter().map(|tool| tool.name.clone()).collect(),
            }),
            Item::User(message) => self.push(TurnItem::User {
                id,
                seq,
                source: message.source,
                content: message.content.clone(),
            }),
            Item::Summary(summary) => self.push(TurnItem::Compaction {
                id,
                seq,
                summary: summary.summary.clone(),
                replaces: summary.replaces,
                tokens_before: summary.tokens_before,
                tokens_after: summary.tokens_after,
            }),
            Item::Assistant(message) => self.assistant(seq, &message),
            Item::ToolResult(_) => Vec::new(),
        }
    }

    fn assistant(&mut self, seq: u64, message: &Arc<AssistantMessage>) -> Vec<Patch> {
        let parts = message
            .content
            .iter()
            .filter_map(|part| match part {
                AssistantPart::Text { text } => Some((ChunkKind::Text, text)),
                AssistantPart::Reasoning { text } => Some((ChunkKind::Reasoning, text)),
                AssistantPart::ToolCall { .. } | AssistantPart::Unknown => None,
            })
            .map(|(kind, text)| ViewPart {
                kind,
                text: text.clone(),
            })
            .collect();
        let mut patches = self.push(TurnItem::Assistant(AssistantItem {
            id: step_id(message.step),
            seq,
            step: message.step,
            streaming: false,
            interrupted: message.interrupted,
            stop_reason: Some(message.stop_reason),
            model: Some(message.model.clone()),
            usage: message.usage,
            parts,
        }));
        for (index, call) in message.calls().enumerate() {
            let item = ToolItem {
                id: format!("call:{seq}:{index}"),
                seq,
                step: message.step,
                call_id: call.call_id.into(),
                name: call.name.into(),
                arguments: call.arguments.into(),
                start_seq: None,
                result_seq: None,
                started_at: None,
                ended_at: None,
                outcome: None,
                is_error: false,
                content: Vec::new(),
                full: None,
                output: String::new(),
                synthetic: false,
                approval: None,
                outside_sandbox: false,
                grant_id: None,
            };
            patches.extend(self.push(TurnItem::Tool(item)));
            if let Some(turn) = self.turns.last() {
                let at = turn.items.len() - 1;
                let turn = self.taken + self.turns.len() - 1;
                self.tools.insert(
                    CallKey {
                        assistant_seq: seq,
                        index,
                    },
                    (turn, at),
                );
            }
        }
        patches
    }

    fn chunk(&mut self, event: &Event, parts: &[ChunkPart]) -> Vec<Patch> {
        let Some(step) = self.transcript.open_step().map(|step| step.step) else {
            return Vec::new();
        };
        let id = step_id(step);
        let mut patches = Vec::new();
        if !self.messages.contains_key(&step) {
            patches = self.push(TurnItem::Assistant(AssistantItem {
                id: id.clone(),
                seq: event.seq,
                step,
                streaming: true,
                interrupted: false,
                stop_reason: None,
                model: None,
                usage: None,
                parts: Vec::new(),
            }));
        }
        let Some(turn) = self.turns.last_mut() else {
            return patches;
        };
        let number = turn.head.turn;
        let at = self.messages.get(&step).copied();
        let Some(TurnItem::Assistant(item)) = at.and_then(|at| turn.items.get_mut(at)) else {
            return patches;
        };
        for part in parts {
            // Part indexes come from a stream; a hole is filled so that they stay positions, and
            // a wild one is put at the end instead of being believed.
            let at = (part.index as usize).min(item.parts.len() + 1);
            while item.parts.len() <= at {
                item.parts.push(ViewPart {
                    kind: part.kind,
                    text: String::new(),
                });
            }
            let filled = &mut item.parts[at];
            let turns_out = filled.text.is_empty() && filled.kind != part.kind;
            if turns_out {
                filled.kind = part.kind;
            }
            filled.text.push_str(&part.delta);
            if turns_out {
                // A hole was filled as another kind; appending would leave a copy's part as that.
                let item = TurnItem::Assistant(item.clone());
                patches.push(Patch::Item { turn: number, item });
                continue;
            }
            patches.push(Patch::Append {
                turn: number,
                id: id.clone(),
                part: at,
                kind: chunk_name(part.kind),
                text: part.delta.clone(),
            });
        }
        patches
    }

    fn output(&mut self, key: CallKey, delta: &str) -> Vec<Patch> {
        let Some((turn, tool)) = self.tool_mut(key) else {
            return Vec::new();
        };
        let room = VIEW_OUTPUT_BYTES.saturating_sub(tool.output.len());
        let cut = (0..=room.min(delta.len()))
            .rev()
            .find(|at| delta.is_char_boundary(*at));
        let text = &delta[..cut.unwrap_or(0)];
        if text.is_empty() {
            return Vec::new();
        }
        tool.output.push_str(text);
        let id = tool.id.clone();
        vec![Patch::Append {
            turn,
            id,
            part: 0,
            kind: "output",
            text: text.into(),
        }]
    }

    fn tool(&mut self, key: CallKey, change: impl FnOnce(&mut ToolItem)) -> Vec<Patch> {
        let Some((turn, tool)) = self.tool_mut(key) else {
            return Vec::new();
        };
        change(tool);
        vec![Patch::Item {
            turn,
            item: TurnItem::Tool(tool.clone()),
        }]
    }

    fn is_answered(&mut self, key: CallKey) -> bool {
        self.tool_mut(key)
            .is_some_and(|(_, tool)| tool.outcome.is_some())
    }

    fn tool_mut(&mut self, key: CallKey) -> Option<(u64, &mut ToolItem)> {
        let (turn, at) = *self.tools.get(&key)?;
        let turn = self.turns.get_mut(turn.checked_sub(self.taken)?)?;
        match turn.items.get_mut(at) {
            Some(TurnItem::Tool(tool)) => Some((turn.head.turn, tool)),
            _ => None,
        }
    }

    /// Sets an item by its id in the newest turn. What is logged before the first turn is kept in
    /// the log and not shown.
    fn push(&mut self, item: TurnItem) -> Vec<Patch> {
        let Some(turn) = self.turns.last_mut() else {
            return Vec::new();
        };
        let number = turn.head.turn;
        // A message takes the place of what was streamed of it.
        let mut place = None;
        if let TurnItem::Assistant(message) = &item {
            let behind = turn.items.len();
            let at = *self.messages.entry(message.step).or_insert(behind);
            place = turn.items.get_mut(at);
        }
        match place {
            Some(streamed) => streamed.clone_from(&item),
            None => turn.items.push(item.clone()),
        }
        vec![Patch::Item { turn: number, item }]
    }

    fn stop_streaming(&mut self) -> Vec<Patch> {
        let Some(turn) = self.turns.last_mut() else {
            return Vec::new();
        };
        let number = turn.head.turn;
        turn.items
            .iter_mut()
            .filter_map(|item| match item {
                TurnItem::Assistant(assistant) if assistant.streaming => {
                    assistant.streaming = false;
                    Some(Patch::Item {
                        turn: number,
                        item: item.clone(),
                    })
                }
                _ => None,
            })
            .collect()
    }
}

fn item_id(seq: u64) -> String {
    format!("seq:{seq}")
}

fn step_id(step: u64) -> String {
    format!("step:{step}")
}
