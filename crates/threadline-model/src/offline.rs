//! A deterministic demonstration that needs no network and no key.
//!
//! It answers from the last user message alone: lines `$ COMMAND` and `> TOOL {json}` become tool
//! calls, `!slow N` makes it pause N ms between deltas, and everything else is repeated back.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use threadline_session::{
    HistoryItem, Request,
    payload::{AssistantPart, ChunkKind, ChunkPart, ContentPart, StopReason, Usage, plain_text},
};

use crate::{Completion, ModelEvent, ModelStream, Provider, limits};

/// Name of the demonstration's only model.
pub(crate) const MODEL: &str = "demonstration";

/// Characters of a call's arguments in one delta.
const ARGUMENT_CHARS: usize = 16;

/// The provider `offline`.
pub(crate) struct Offline;

impl Provider for Offline {
    fn name(&self) -> &'static str {
        "offline"
    }

    fn body(&self, request: &Request) -> Value {
        let mut body = json!({
            "model": request.model,
            "system": request.system,
            "tools": request.tools,
            "messages": request.items,
        });
        body.sort_all_objects();
        body
    }

    fn stream(&self, request: Request) -> ModelStream {
        let answer = answer(&request);
        let pause = answer.pause;
        let mut events: Vec<ModelEvent> = deltas(&answer.content)
            .into_iter()
            .map(ModelEvent::Delta)
            .collect();
        events.push(ModelEvent::Done(Completion {
            usage: Some(usage(&request, &answer.content)),
            stop_reason: answer.stop_reason,
            content: answer.content,
            opaque: Vec::new(),
            model: MODEL.to_owned(),
        }));
        stream::iter(events)
            .enumerate()
            .then(move |(at, event)| async move {
                if at > 0 && !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                Ok(event)
            })
            .boxed()
    }
}

struct Answer {
    content: Vec<AssistantPart>,
    stop_reason: StopReason,
    pause: Duration,
}

fn answer(request: &Request) -> Answer {
    let last = request.items.iter().rposition(is_user);
    let (said, after) = match last.and_then(|at| request.items.split_at_checked(at)) {
        Some((_, [HistoryItem::User { content }, after @ ..])) => (plain_text(content), after),
        _ => (String::new(), &[][..]),
    };
    let pause = said.lines().find_map(slow).unwrap_or_default();
    let results: Vec<_> = after.iter().filter_map(result_line).collect();
    let calls = calls(&said, request.items.len());
    if !results.is_empty() {
        let text = format!(
            "This is Threadline's offline demonstration. The {}:\n{}",
            if results.len() == 1 {
                "tool answered"
            } else {
                "tools answered"
            },
            results.join("\n")
        );
        return text_answer(text, pause);
    }
    if calls.is_empty() {
        return text_answer(echo(&said, request), pause);
    }
    let text = format!(
        "This is Threadline's offline demonstration. It makes the {} your message asks for.",
        if calls.len() == 1 { "call" } else { "calls" }
    );
    let mut content = vec![AssistantPart::Text { text }];
    content.extend(calls);
    Answer {
        content,
        stop_reason: StopReason::ToolCalls,
        pause,
    }
}

fn text_answer(text: String, pause: Duration) -> Answer {
    Answer {
        content: vec![AssistantPart::Text { text }],
        stop_reason: StopReason::Stop,
        pause,
    }
}

fn echo(said: &str, request: &Request) -> String {
    let users = request.items.iter().filter(|item| is_said(item)).count();
    format!(
        "This is Threadline's offline demonstration. You said: \"{}\". \
         User messages in this conversation so far: {users}. \
         A line that begins with `$ ` runs a command.",
        cut(said.trim())
    )
}

fn is_user(item: &HistoryItem) -> bool {
    matches!(item, HistoryItem::User { .. })
}

/// What a person said: the harness tells the folder in a user message of its own, which would make
/// the demonstration's count look wrong.
fn is_said(item: &HistoryItem) -> bool {
    let HistoryItem::User { content } = item else {
        return false;
    };
    !plain_text(content).starts_with("Environment: ")
}

fn slow(line: &str) -> Option<Duration> {
    let millis = line.trim().strip_prefix("!slow ")?.trim().parse().ok()?;
    Some(Duration::from_millis(millis).min(limits::MAX_SLOW))
}

fn calls(said: &str, items: usize) -> Vec<AssistantPart> {
    said.lines()
        .filter_map(asked_call)
        .enumerate()
        .map(|(n, (name, arguments))| AssistantPart::ToolCall {
            call_id: format!("offline_{items}_{n}"),
            name,
            arguments,
        })
        .collect()
}

/// Reads `$ COMMAND` or `> TOOL {json}`. The JSON is passed on as it stands, so that broken
/// arguments can be tried too; a quotation without an opening brace is no call.
fn asked_call(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    if let Some(command) = line.strip_prefix("$ ").map(str::trim) {
        let arguments = json!({ "command": command }).to_string();
        return (!command.is_empty()).then(|| ("shell".to_owned(), arguments));
    }
    let (name, arguments) = line
        .strip_prefix("> ")?
        .trim()
        .split_once(char::is_whitespace)?;
    let arguments = arguments.trim();
    arguments
        .starts_with('{')
        .then(|| (name.to_owned(), arguments.to_owned()))
}

fn result_line(item: &HistoryItem) -> Option<String> {
    let HistoryItem::Tool {
        name,
        content,
        is_error,
        ..
    } = item
    else {
        return None;
    };
    let text = plain_text(content);
    let total = text.lines().count();
    let mut lines: Vec<String> = text
        .lines()
        .take(limits::OFFLINE_RESULT_LINES)
        .map(cut)
        .collect();
    if total > lines.len() {
        lines.push(format!("... {} more lines", total - lines.len()));
    }
    let verdict = if *is_error { "failed" } else { "ok" };
    Some(format!("{name} ({verdict}): {}", lines.join("\n")))
}

fn cut(text: &str) -> String {
    let mut chars = text.chars();
    let mut head: String = chars.by_ref().take(limits::OFFLINE_QUOTE_CHARS).collect();
    if chars.next().is_some() {
        head.push_str("...");
    }
    head
}

fn deltas(content: &[AssistantPart]) -> Vec<ChunkPart> {
    let mut out = Vec::new();
    for (index, part) in (0_u32..).zip(content) {
        let (kind, pieces): (_, Vec<String>) = match part {
            AssistantPart::Text { text } => {
                let words = text.split_inclusive([' ', '\n']).map(str::to_owned);
                (ChunkKind::Text, words.collect())
            }
            AssistantPart::ToolCall { arguments, .. } => {
                let chars: Vec<char> = arguments.chars().collect();
                let pieces = chars
                    .chunks(ARGUMENT_CHARS)
                    .map(|piece| piece.iter().collect());
                (ChunkKind::ToolArgs, pieces.collect())
            }
            AssistantPart::Reasoning { .. } | AssistantPart::Unknown => continue,
        };
        out.extend(
            pieces
                .into_iter()
                .map(|delta| ChunkPart { index, kind, delta }),
        );
    }
    out
}

/// Counts four characters as one token.
fn usage(request: &Request, answer: &[AssistantPart]) -> Usage {
    let tools: u64 = request
        .tools
        .iter()
        .map(|tool| {
            count(&tool.name) + count(&tool.description) + count(&tool.parameters.to_string())
        })
        .sum();
    let items: u64 = request
        .items
        .iter()
        .map(|item| match item {
            HistoryItem::User { content } | HistoryItem::Tool { content, .. } => {
                content.iter().map(content_chars).sum()
            }
            HistoryItem::Assistant { content, .. } => content.iter().map(part_chars).sum::<u64>(),
        })
        .sum();
    let output: u64 = answer.iter().map(part_chars).sum();
    Usage {
        input_tokens: (count(&request.system) + tools + items).div_ceil(4),
        output_tokens: output.div_ceil(4),
        cached_input_tokens: None,
        reasoning_tokens: None,
    }
}

fn count(text: &str) -> u64 {
    text.chars().count() as u64
}

fn content_chars(part: &ContentPart) -> u64 {
    match part {
        ContentPart::Text { text } => count(text),
        ContentPart::Image { .. } | ContentPart::Unknown => 0,
    }
}

fn part_chars(part: &AssistantPart) -> u64 {
    match part {
        AssistantPart::Text { text } | AssistantPart::Reasoning { text } => count(text),
        AssistantPart::ToolCall {
            name, arguments, ..
        } => count(name) + count(arguments),
        AssistantPart::Unknown => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> HistoryItem {
        HistoryItem::User {
            content: vec![ContentPart::text(text)],
        }
    }

    fn request(items: Vec<HistoryItem>) -> Request {
        Request {
            provider: "offline".into(),
            model: MODEL.into(),
            system: "sys!".into(),
            tools: Vec::new(),
            items,
            temperature: None,
        }
    }

    async fn run(items: Vec<HistoryItem>) -> (Vec<ChunkPart>, Completion) {
        let mut stream = Offline.stream(request(items));
        let mut chunks = Vec::new();
        let mut done = None;
        while let Some(event) = stream.next().await {
            assert!(done.is_none(), "an event after the last");
            match event.unwrap() {
                ModelEvent::Delta(chunk) => chunks.push(chunk),
                ModelEvent::Done(completion) => done = Some(completion),
                ModelEvent::Retry(_) => panic!("a retry"),
            }
        }
        (chunks, done.unwrap())
    }

    fn said(done: &Completion) -> &str {
        match done.content.first() {
            Some(AssistantPart::Text { text }) => text,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn it_says_what_it_is_and_remembers() {
        let (chunks, done) = run(vec![user("hello"), user("again \"é\"")]).await;
        assert!(said(&done).starts_with("This is Threadline's offline demonstration. You said: "));
        assert!(said(&done).contains("so far: 2."));
        assert!(chunks.len() > 5);
        let streamed: String = chunks.iter().map(|chunk| chunk.delta.as_str()).collect();
        assert_eq!(streamed, said(&done));
        assert_eq!(done.usage.unwrap().input_tokens, 5);
        let again = run(vec![user("hello"), user("again \"é\"")]).await;
        assert_eq!((chunks, done), again);
    }

    #[tokio::test]
    async fn lines_become_calls_in_one_batch() {
        let task = "do\n$ echo hi\n> a quotation\n> write {\"path\":\"a\"}\n$ \n > x {broken";
        let (chunks, done) = run(vec![user("before"), user(task)]).await;
        let wanted = [
            ("offline_2_0", "shell", "{\"command\":\"echo hi\"}"),
            ("offline_2_1", "write", "{\"path\":\"a\"}"),
            ("offline_2_2", "x", "{broken"),
        ];
        assert_eq!(done.content.len(), 4);
        assert_eq!(done.stop_reason, StopReason::ToolCalls);
        for (at, (id, tool, args)) in (1..).zip(wanted) {
            let part = AssistantPart::ToolCall {
                call_id: id.into(),
                name: tool.into(),
                arguments: args.into(),
            };
            assert_eq!(done.content[at], part);
            let streamed: String = chunks
                .iter()
                .filter(|chunk| chunk.index as usize == at)
                .map(|chunk| chunk.delta.as_str())
                .collect();
            assert_eq!(streamed, args);
        }
    }

    #[tokio::test]
    async fn results_are_reported() {
        let result = |text: &str, is_error| HistoryItem::Tool {
            call_id: "c".into(),
            name: "shell".into(),
            content: vec![ContentPart::text(text)],
            is_error,
        };
        let items = vec![
            user("$ ls\n$ false"),
            result("1\n2\n3\n4\n5\n6\n7", false),
            result("exit 1", true),
        ];
        let (_, done) = run(items).await;
        assert_eq!(done.stop_reason, StopReason::Stop);
        assert!(said(&done).contains("shell (ok): 1\n2\n3\n4\n5\n... 2 more lines"));
        assert!(said(&done).contains("shell (failed): exit 1"));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_pauses_between_deltas() {
        let start = tokio::time::Instant::now();
        let (chunks, _) = run(vec![user("!slow 100\nhi")]).await;
        assert_eq!(
            start.elapsed(),
            Duration::from_millis(100) * chunks.len() as u32
        );
        assert_eq!(slow("!slow 999999999"), Some(limits::MAX_SLOW));
        assert_eq!(slow("!slow x"), None);
    }

    #[tokio::test]
    async fn an_empty_conversation_is_answered() {
        let (_, done) = run(Vec::new()).await;
        assert!(said(&done).contains("You said: \"\""));
    }
}
