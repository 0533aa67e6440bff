//! Sequences of events made from random bytes, the rules of providers, and a page's copy of the
//! read model.

use proptest::prelude::*;
use serde_json::{Value, json};
use threadline_session::{
    Event, HistoryItem, Patch, Payload,
    payload::{
        AssistantPart, ChunkKind, ContentPart, Decision, Delivery, EndReason, HeadReason,
        InboxMark, InboxQueued, ModelRef, ModelTrouble, Opaque, StepEnd, StepStart, ToolResult,
        TurnStart,
    },
    types,
};

use crate::support::{Log, call, context, mark, message, model, result, says, text, thinks};

/// One choice of the interpreter.
pub(crate) type Choice = (u8, u8, u8);

/// How far a sequence strays from what an agent writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Turns as an agent logs them, without compaction and rewind.
    Straight,
    /// With compaction and rewind between turns.
    Plausible,
    /// Anything in any order.
    Wild,
}

pub(crate) fn choices() -> impl Strategy<Value = Vec<Choice>> {
    prop::collection::vec(any::<Choice>(), 0..60)
}

const TEXTS: [&str; 12] = [
    "hello",
    "",
    " \t",
    "line\nbreak\r\n",
    "\u{e9}\u{1d11e}\u{202e}",
    "\u{0}\u{1b}[31m\u{7f}",
    "\"quoted\\ \\ud800",
    "\u{fffd}",
    "{\"seq\":1}",
    "</tool>",
    "a rather longer piece of text, as an answer would be, to have some weight",
    ",\"crc\":\"00000000\"}",
];
const ARGUMENTS: [&str; 8] = [
    "{}",
    "{\"command\":\"ls\"}",
    "",
    "[1]",
    "{\"a\":",
    "{\"a\":\"\\udc00\"}",
    "{\"a\":1e999}",
    "null",
];
const IDS: [&str; 5] = ["a", "b", "a", "", "c\u{e9}"];
const KINDS: [ChunkKind; 3] = [ChunkKind::Text, ChunkKind::Reasoning, ChunkKind::ToolArgs];

fn pick<T: Copy>(from: &[T], by: u8) -> T {
    from[usize::from(by) % from.len()]
}

/// Turns choices into a log.
pub(crate) fn interpret(choices: &[Choice], style: Style) -> Log {
    let mut log = Log::new();
    let mut answered = false;
    for &(kind, a, b) in choices {
        if style == Style::Wild && kind % 2 == 0 {
            wild(&mut log, kind / 2, a, b);
            continue;
        }
        if log.state.open_turn().is_none() {
            between_turns(&mut log, style, a, b);
        } else if log.state.open_step().is_none() {
            answered = false;
            if a.is_multiple_of(4) {
                log.turn_end(EndReason::Completed);
            } else {
                log.step_start();
            }
        } else if !answered {
            answered = in_stream(&mut log, a, b);
        } else {
            in_tools(&mut log, a, b);
        }
    }
    log
}

fn between_turns(log: &mut Log, style: Style, a: u8, b: u8) -> u64 {
    let next = log.state.next_seq();
    if style != Style::Straight && next > 0 {
        let somewhere = u64::from(b) % next;
        match a % 8 {
            0 => return log.compact(0, somewhere, &[somewhere / 2]),
            1 => return log.head(somewhere, HeadReason::Rewind),
            _ => {}
        }
    }
    log.turn_start();
    if log.state.system().is_none() {
        log.system("You are an agent.");
    }
    log.user(pick(&TEXTS, b))
}

/// Returns whether the answer is complete.
fn in_stream(log: &mut Log, a: u8, b: u8) -> bool {
    match a % 4 {
        0 | 1 => {
            log.chunk(&[(u32::from(a / 4) % 3, pick(&KINDS, b), pick(&TEXTS, b / 3))]);
            false
        }
        2 => {
            log.assistant(vec![thinks("hm"), says(pick(&TEXTS, b))]);
            true
        }
        _ => {
            let mut content = vec![says(pick(&TEXTS, b))];
            for at in 0..=(a / 4 % 3) {
                let id = pick(&IDS, at.wrapping_add(b));
                content.push(call(id, "shell", pick(&ARGUMENTS, at.wrapping_add(a))));
            }
            log.assistant(content);
            true
        }
    }
}

fn in_tools(log: &mut Log, a: u8, b: u8) {
    let open = log.state.open_calls();
    if open.is_empty() {
        log.step_end();
        return;
    }
    let chosen = open[usize::from(a) % open.len()].clone();
    let id = chosen.call_id.as_str();
    match (chosen.started, b % 4) {
        (false, 0) => log.asked(&format!("q{}", log.state.next_seq()), id),
        (false, 1) if !log.state.pending_approvals().is_empty() => {
            let question = log.state.pending_approvals()[0].asked.approval_id.clone();
            log.decided(&question, pick(&[Decision::Approved, Decision::Denied], a))
        }
        (false, _) => log.start(id),
        (true, 0) => log.output(id, pick(&TEXTS, a)),
        (true, _) => log.result(id, pick(&TEXTS, a)),
    };
}

fn wild(log: &mut Log, kind: u8, a: u8, b: u8) -> u64 {
    let seq = log.state.next_seq();
    let somewhere = u64::from(a);
    let other = ModelRef {
        name: "another".into(),
        ..model()
    };
    let opaque = |issuer| Opaque {
        issuer,
        kind: "signature".into(),
        data: pick(&TEXTS, b).into(),
    };
    let payload = match kind % 20 {
        0 => Payload::TurnStart(TurnStart {
            turn: somewhere / 8,
            run_id: threadline_session::RunId::parse("run").unwrap(),
            context: context(&if b.is_multiple_of(2) { model() } else { other }),
        }),
        1 => return log.turn_end(EndReason::Cancelled),
        2 => Payload::StepStart(StepStart {
            turn: 1,
            step: somewhere / 16,
            request: mark(),
        }),
        3 => Payload::StepEnd(StepEnd {
            turn: 9,
            step: somewhere,
            usage: None,
        }),
        4 => return log.user_parts(vec![ContentPart::Unknown, ContentPart::text("")]),
        5 => return log.user(pick(&TEXTS, a)),
        6 => return log.chunk(&[(u32::from(a) * 9999, pick(&KINDS, b), pick(&TEXTS, b))]),
        7 => {
            let id = pick(&IDS, a);
            let calls = vec![
                call(id, pick(&TEXTS, b), pick(&ARGUMENTS, b)),
                AssistantPart::Unknown,
                call(id, "x", "{}"),
            ];
            let mut message = message(somewhere, u64::from(b) / 16, calls);
            message.opaque = vec![opaque(model()), opaque(other)];
            Payload::AssistantMessage(message)
        }
        8 => return log.assistant(vec![thinks(pick(&TEXTS, a))]),
        9 => return log.start(pick(&IDS, a)),
        10 => return log.output(pick(&IDS, a), pick(&TEXTS, b)),
        11 => Payload::ToolResult(ToolResult {
            content: if b.is_multiple_of(3) {
                Vec::new()
            } else {
                text(pick(&TEXTS, b))
            },
            ..result(pick(&IDS, a), "")
        }),
        12 => return log.asked(pick(&IDS, b), pick(&IDS, a)),
        13 => return log.decided(pick(&IDS, b), Decision::ApprovedForSession),
        14 => Payload::InboxQueued(InboxQueued {
            message_id: pick(&IDS, a).into(),
            content: text(pick(&TEXTS, b)),
            delivery: if b.is_multiple_of(2) {
                Delivery::AfterTurn
            } else {
                Delivery::NextStep
            },
        }),
        15 => Payload::InboxTaken(InboxMark {
            message_id: pick(&IDS, a).into(),
        }),
        16 => {
            let kept = [somewhere, u64::from(b), seq];
            return log.compact(somewhere / 2, u64::from(b), &kept);
        }
        17 => return log.head(somewhere / 2, HeadReason::Redo),
        18 => Payload::ModelRetry(ModelTrouble {
            attempt: a.into(),
            status: Some(429),
            message: pick(&TEXTS, b).into(),
            delay_ms: None,
        }),
        _ => {
            log.push_event(foreign(seq, a, b));
            return seq;
        }
    };
    log.push(payload)
}

/// Events as another version or a plug-in would write them.
fn foreign(seq: u64, a: u8, b: u8) -> Event {
    let (kind, data) = match a % 4 {
        0 => ("vendor/thing", json!({"text": pick(&TEXTS, b), "n": 1.5e300}).to_string()),
        1 => (types::USER_MESSAGE, r#"{"new":[],"content":[{"type":"text","text":"\ud83d"},{"type":"video","url":"x"}],"source":"user"}"#.into()),
        2 => (types::ASSISTANT_MESSAGE, r#"{"turn":1,"step":1,"content":[{"type":"hologram"},{"type":"text","text":"x\udc00"}],"model":{"provider":"p","name":"n"},"stopReason":"bored","later":{"a":1}}"#.into()),
        _ => (types::TOOL_RESULT, r#"{ "callId" : "a", "name":"x", "content":[], "isError":true, "outcome":"error", "took":12 }"#.into()),
    };
    Event::from_json(seq, u64::from(b) * 7, kind, &data, a.is_multiple_of(4)).unwrap()
}

/// Checks the rules that every provider has, from their point of view.
pub(crate) fn check_history(items: &[HistoryItem]) -> Result<(), String> {
    let mut awaited: Vec<(&str, &str)> = Vec::new();
    let text_parts = |at: usize, parts: &[ContentPart]| -> Result<(), String> {
        let blank = |part: &ContentPart| match part {
            ContentPart::Text { text } => text.trim().is_empty(),
            ContentPart::Image { .. } => false,
            ContentPart::Unknown => true,
        };
        if parts.is_empty() || parts.iter().any(blank) {
            return Err(format!("item {at} has nothing to say: {parts:?}"));
        }
        Ok(())
    };
    for (at, item) in items.iter().enumerate() {
        if let HistoryItem::Tool {
            call_id,
            name,
            content,
            ..
        } = item
        {
            if awaited.is_empty() || awaited.remove(0) != (call_id.as_str(), name.as_str()) {
                return Err(format!(
                    "item {at} is a result of {call_id} that is not awaited"
                ));
            }
            text_parts(at, content)?;
            continue;
        }
        if let Some((call_id, _)) = awaited.first() {
            return Err(format!("item {at} stands before the result of {call_id}"));
        }
        match item {
            HistoryItem::User { content } => text_parts(at, content)?,
            HistoryItem::Assistant { content, .. } => {
                let mut speaks = false;
                for part in content {
                    match part {
                        AssistantPart::Text { text } if text.trim().is_empty() => {
                            return Err(format!("item {at} has an empty text"));
                        }
                        AssistantPart::Text { .. } => speaks = true,
                        AssistantPart::Reasoning { text } if text.is_empty() => {
                            return Err(format!("item {at} has an empty reasoning"));
                        }
                        AssistantPart::Reasoning { .. } => {}
                        AssistantPart::Unknown => return Err(format!("item {at} is unknown")),
                        AssistantPart::ToolCall {
                            call_id,
                            name,
                            arguments,
                        } => {
                            speaks = true;
                            let object: Result<Value, _> = serde_json::from_str(arguments);
                            if !object.is_ok_and(|value| value.is_object()) {
                                return Err(format!("item {at} has the arguments {arguments}"));
                            }
                            awaited.push((call_id, name));
                        }
                    }
                }
                if !speaks {
                    return Err(format!("item {at} says nothing"));
                }
            }
            HistoryItem::Tool { .. } => {}
        }
    }
    match awaited.first() {
        Some((call_id, _)) => Err(format!("the history ends before the result of {call_id}")),
        None => Ok(()),
    }
}

/// Logs a history again as it is, as if it had never needed mending.
pub(crate) fn relog(items: &[HistoryItem]) -> Log {
    let mut log = Log::new();
    log.turn_start();
    for item in items {
        match item.clone() {
            HistoryItem::User { content } => log.user_parts(content),
            HistoryItem::Assistant { content, opaque } => {
                let mut message = message(1, 1, content);
                message.opaque = opaque;
                log.push(Payload::AssistantMessage(message))
            }
            HistoryItem::Tool {
                call_id,
                name,
                content,
                is_error,
            } => {
                let given = ToolResult {
                    name,
                    content,
                    is_error,
                    ..result(&call_id, "")
                };
                log.push(Payload::ToolResult(given))
            }
        };
    }
    log
}

/// A page's copy of the read model, as dumb as the page: it finds turns by number and items by id.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) turns: Vec<Value>,
    pub(crate) status: Value,
    pub(crate) running: Value,
}

impl Page {
    pub(crate) fn apply(&mut self, patch: &Patch) {
        let patch = serde_json::to_value(patch).unwrap();
        match patch["op"].as_str().unwrap() {
            "turn" => self.head(&patch["turn"]),
            "item" => self.item(&patch["turn"], &patch["item"]),
            "append" => self.append(&patch),
            "status" => {
                self.status = patch["status"].clone();
                self.running = patch["running"].clone();
            }
            other => panic!("a page does not know {other}"),
        }
    }

    fn head(&mut self, head: &Value) {
        let number = head["turn"].as_u64().unwrap();
        let found = self.turns.iter().position(|turn| turn["turn"] == number);
        let mut turn = head.clone();
        match found {
            Some(at) => {
                turn["items"] = self.turns[at]["items"].take();
                self.turns[at] = turn;
            }
            None => {
                turn["items"] = json!([]);
                let at = self
                    .turns
                    .iter()
                    .filter(|t| t["turn"].as_u64().unwrap() < number)
                    .count();
                self.turns.insert(at, turn);
            }
        }
    }

    fn items(&mut self, number: &Value) -> &mut Vec<Value> {
        let turn = self
            .turns
            .iter_mut()
            .find(|turn| turn["turn"] == *number)
            .unwrap();
        turn["items"].as_array_mut().unwrap()
    }

    fn item(&mut self, number: &Value, item: &Value) {
        let items = self.items(number);
        match items.iter_mut().find(|known| known["id"] == item["id"]) {
            Some(known) => *known = item.clone(),
            None => items.push(item.clone()),
        }
    }

    fn append(&mut self, patch: &Value) {
        let more = patch["text"].as_str().unwrap();
        let add = |text: &mut Value| *text = format!("{}{more}", text.as_str().unwrap()).into();
        let items = self.items(&patch["turn"]);
        let item = items
            .iter_mut()
            .find(|item| item["id"] == patch["id"])
            .unwrap();
        if patch["kind"] == "output" {
            return add(&mut item["output"]);
        }
        let parts = item["parts"].as_array_mut().unwrap();
        let at = usize::try_from(patch["part"].as_u64().unwrap()).unwrap();
        while parts.len() <= at {
            parts.push(json!({"kind": patch["kind"], "text": ""}));
        }
        add(&mut parts[at]["text"]);
    }
}
