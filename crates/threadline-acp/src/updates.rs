//! From the read model to updates.
//!
//! [`Updates`] remembers what the client was shown of the newest turn and tells the difference. A
//! live turn goes through it again and again, a replayed one once at its end, so both come to the
//! same: a message in one piece or in many, a call whole or by and by.

use std::{collections::HashMap, path::PathBuf};

use agent_client_protocol_schema::v1::{
    ContentBlock, ContentChunk, MessageId, SessionUpdate, TerminalId, ToolCall, ToolCallUpdate,
    ToolCallUpdateFields,
};
use threadline_session::{
    AssistantItem, ToolItem, TurnHead, TurnItem,
    payload::{ChunkKind, EndReason, HeadReason, UserSource},
};

use crate::{calls, images::Images};

/// What was shown of an item.
enum Shown {
    /// A message, or a part of one, and how often it had to be begun anew.
    Text(String, u32),
    /// A call.
    Call(Box<ToolCall>),
    /// Something that never changes.
    Once,
}

/// Which messages of people are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum People {
    /// All: the client has forgotten them, or never knew.
    Told,
    /// None: the client has sent them itself.
    Known,
}

/// Turns items into updates. Ids are those of the read model.
pub(crate) struct Updates {
    cwd: PathBuf,
    shown: HashMap<String, Shown>,
}

impl Updates {
    /// Begins; relative paths in calls start from `cwd`.
    pub(crate) fn new(cwd: PathBuf) -> Self {
        Self {
            cwd,
            shown: HashMap::new(),
        }
    }

    /// Begins the next turn.
    pub(crate) fn turn(&mut self, head: &TurnHead) {
        self.shown.clear();
        if let Some(context) = &head.context {
            self.cwd = context.cwd.as_path().to_owned();
        }
    }

    /// Returns what the client does not know of an item yet. A command that runs in a terminal of
    /// the client is shown there.
    pub(crate) fn item(
        &mut self,
        item: &TurnItem,
        images: &Images,
        people: People,
        terminal: Option<&TerminalId>,
    ) -> Vec<SessionUpdate> {
        match item {
            TurnItem::System { .. } => Vec::new(),
            TurnItem::User {
                id,
                source,
                content,
                ..
            } => {
                let told = people == People::Told && *source != UserSource::Context;
                if !told || !self.first(id) {
                    return Vec::new();
                }
                let blocks = content.iter().map(|part| images.block(part));
                blocks
                    .map(|block| SessionUpdate::UserMessageChunk(chunk(id, block)))
                    .collect()
            }
            TurnItem::Assistant(message) => self.message(message),
            TurnItem::Tool(call) => self.call(call, images, terminal),
            TurnItem::Compaction {
                id,
                tokens_before,
                tokens_after,
                ..
            } => {
                let after = tokens_after.map(|after| format!(", {after} after"));
                self.note(
                    id,
                    format!(
                        "[The older part of the conversation was replaced by a summary: about \
                         {tokens_before} tokens before{}.]",
                        after.unwrap_or_default()
                    ),
                )
            }
            TurnItem::Head {
                id, to_seq, reason, ..
            } => {
                let way = match reason {
                    HeadReason::Rewind => "back",
                    HeadReason::Redo => "forward again",
                };
                let text = format!("[The conversation was moved {way} to event {to_seq}.]");
                self.note(id, text)
            }
            TurnItem::Notice {
                id,
                message,
                attempt,
                delay_ms,
                ..
            } => {
                let then = match delay_ms {
                    Some(_) => "; it is tried again",
                    None => "",
                };
                let text = format!("[Attempt {attempt} to ask the model failed: {message}{then}.]");
                self.note(id, text)
            }
            TurnItem::Lost {
                id, events, reason, ..
            } => {
                let (from, to) = (events.from_seq, events.to_seq);
                let text = format!(
                    "[Events {from} to {to} are lost: {reason}. The rest of the session is whole.]"
                );
                self.note(id, text)
            }
        }
    }

    /// Returns what is told of how a turn ended; nothing when that needs no word.
    pub(crate) fn end(&mut self, head: &TurnHead) -> Vec<SessionUpdate> {
        let text = match &head.reason {
            Some(EndReason::Error { message, .. }) => format!("[The turn failed: {message}]"),
            Some(EndReason::Limit { message, .. }) => format!("[The turn was ended: {message}]"),
            Some(EndReason::MaxSteps) => "[The turn was ended: it reached its step limit.]".into(),
            Some(EndReason::MaxTokens) => "[The answer was cut off at the output limit.]".into(),
            Some(EndReason::Interrupted) => "[The turn was interrupted: its process ended.]".into(),
            Some(EndReason::Blocked) => {
                "[The turn was ended: an approval was needed and nobody could be asked.]".into()
            }
            Some(EndReason::Completed | EndReason::Cancelled) | None => return Vec::new(),
        };
        self.note(&format!("end:{}", head.start_seq), text)
    }

    /// Returns a call as it was shown last.
    pub(crate) fn shown_call(&self, id: &str) -> Option<ToolCall> {
        match self.shown.get(id) {
            Some(Shown::Call(call)) => Some((**call).clone()),
            _ => None,
        }
    }

    fn first(&mut self, id: &str) -> bool {
        self.shown.insert(id.to_owned(), Shown::Once).is_none()
    }

    /// What is no word of the model's is told beside its answer.
    fn note(&mut self, id: &str, text: String) -> Vec<SessionUpdate> {
        if !self.first(id) {
            return Vec::new();
        }
        vec![SessionUpdate::AgentThoughtChunk(chunk(id, text.into()))]
    }

    fn message(&mut self, message: &AssistantItem) -> Vec<SessionUpdate> {
        // A call in the making is shown once it is made; then it is an item of its own.
        let parts = message
            .parts
            .iter()
            .filter(|part| part.kind != ChunkKind::ToolArgs);
        let mut updates = Vec::new();
        for (number, part) in parts.enumerate() {
            let id = format!("{}.{number}", message.id);
            let Some((id, text)) = self.more(id, &part.text) else {
                continue;
            };
            let chunk = chunk(&id, text.into());
            updates.push(match part.kind {
                ChunkKind::Reasoning => SessionUpdate::AgentThoughtChunk(chunk),
                ChunkKind::Text | ChunkKind::ToolArgs => SessionUpdate::AgentMessageChunk(chunk),
            });
        }
        updates
    }

    /// Returns what is new of a text, and the message that it belongs to. What was shown cannot be
    /// taken back, so a text that does not go on from there is a new message.
    fn more(&mut self, id: String, text: &str) -> Option<(String, String)> {
        let (before, begun) = match self.shown.get(&id) {
            Some(Shown::Text(before, begun)) => (before.as_str(), *begun),
            _ => ("", 0),
        };
        let (more, begun) = match text.strip_prefix(before) {
            Some(more) => (more.to_owned(), begun),
            None => (text.to_owned(), begun + 1),
        };
        if more.is_empty() {
            return None;
        }
        self.shown
            .insert(id.clone(), Shown::Text(text.to_owned(), begun));
        let message = match begun {
            0 => id,
            again => format!("{id}~{again}"),
        };
        Some((message, more))
    }

    fn call(
        &mut self,
        item: &ToolItem,
        images: &Images,
        terminal: Option<&TerminalId>,
    ) -> Vec<SessionUpdate> {
        let now = calls::show(item, &self.cwd, images, terminal);
        let mut updates = match self.shown.get(&item.id) {
            Some(Shown::Call(before)) => changed(before, &now)
                .map(SessionUpdate::ToolCallUpdate)
                .into_iter()
                .collect(),
            _ => vec![SessionUpdate::ToolCall(now.clone())],
        };
        if !updates.is_empty()
            && let Some(plan) = calls::plan(item)
        {
            updates.push(SessionUpdate::Plan(plan));
        }
        self.shown
            .insert(item.id.clone(), Shown::Call(Box::new(now)));
        updates
    }
}

fn chunk(id: &str, block: ContentBlock) -> ContentChunk {
    ContentChunk::new(block).message_id(MessageId::new(id))
}

/// Returns what turns one state of a call into another; `None` when they are the same.
fn changed(before: &ToolCall, now: &ToolCall) -> Option<ToolCallUpdate> {
    if before == now {
        return None;
    }
    let mut fields = ToolCallUpdateFields::new();
    if before.status != now.status {
        fields = fields.status(now.status);
    }
    if before.content != now.content {
        fields = fields.content(now.content.clone());
    }
    // Name, arguments and what follows from them never change.
    Some(ToolCallUpdate::new(now.tool_call_id.clone(), fields).meta(now.meta.clone()))
}
