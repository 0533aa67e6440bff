//! Items of a turn as lines of a terminal.

use ratatui::{
    style::Style,
    text::{Line, Span},
};
use threadline_session::{
    AssistantItem, ToolItem, TurnHead, TurnItem,
    payload::{
        ChunkKind, ContentPart, EndReason, HeadReason, Outcome, SystemReason, UserSource,
        plain_text,
    },
};

use crate::{
    limits::{FOLDED_HEAD, FOLDED_TAIL, MAX_ITEM_LINES, MAX_TEXT_BYTES},
    text,
    theme::{Theme, Tone},
};

/// Characters of a call's arguments that are shown folded.
const ARGUMENTS: usize = 300;

/// How items are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Columns.
    pub width: usize,
    /// Whether outputs, reasoning and context are shown in full.
    pub unfolded: bool,
    /// Colours.
    pub theme: Theme,
}

/// Lines in the making.
struct Sheet {
    look: Look,
    lines: Vec<Line<'static>>,
}

impl Sheet {
    fn new(look: Look) -> Self {
        Self {
            look,
            lines: Vec::new(),
        }
    }

    fn style(&self, tone: Tone) -> Style {
        self.look.theme.style(tone)
    }

    fn blank(&mut self) {
        self.lines.push(Line::default());
    }

    /// Adds one logical line, wrapped behind an indent.
    fn wrapped(&mut self, indent: &str, line: &str, style: Style) {
        let room = self.look.width.saturating_sub(text::width(indent)).max(1);
        for piece in text::wrap(line, room) {
            let spans = vec![Span::raw(indent.to_owned()), Span::styled(piece, style)];
            self.lines.push(Line::from(spans));
        }
    }

    /// Adds what is said about a text, in one tone.
    fn said(&mut self, indent: &str, said: &str, tone: Tone) {
        let style = self.style(tone);
        for line in said.lines() {
            self.wrapped(indent, &text::reveal(line), style);
        }
    }

    /// Adds a text whole, up to the limits.
    fn text(&mut self, indent: &str, whole: &str, paint: &mut dyn FnMut(&str) -> Paint) {
        let shown = text::head(whole, MAX_TEXT_BYTES);
        let begun = self.lines.len();
        for line in shown.lines() {
            if self.lines.len() - begun >= MAX_ITEM_LINES {
                break;
            }
            let line = text::reveal(line);
            match paint(&line) {
                Paint::All(tone) => {
                    let style = self.style(tone);
                    self.wrapped(indent, &line, style);
                }
                Paint::Prose => self.prose(indent, &line),
            }
        }
        let over = self.lines.len() - begun > MAX_ITEM_LINES;
        self.lines.truncate(begun + MAX_ITEM_LINES);
        if over || shown.len() < whole.len() {
            let more = format!("[shown in part: {} bytes in all]", whole.len());
            self.said(indent, &more, Tone::Faint);
        }
    }

    /// Adds a line of prose, its code and its stress marked.
    fn prose(&mut self, indent: &str, line: &str) {
        let room = self.look.width.saturating_sub(text::width(indent)).max(1);
        let trimmed = line.trim_start();
        let heading = trimmed.starts_with('#') && trimmed.trim_start_matches('#').starts_with(' ');
        for piece in text::wrap(line, room) {
            let mut spans = vec![Span::raw(indent.to_owned())];
            if heading {
                spans.push(Span::styled(piece, self.style(Tone::Strong)));
            } else {
                self.inline(&piece, &mut spans);
            }
            self.lines.push(Line::from(spans));
        }
    }

    fn inline(&self, piece: &str, spans: &mut Vec<Span<'static>>) {
        let marks = [("`", Tone::Code), ("**", Tone::Strong)];
        let mut rest = piece;
        loop {
            let found = marks
                .iter()
                .filter_map(|(mark, tone)| Some((rest.find(mark)?, *mark, *tone)))
                .min_by_key(|(at, ..)| *at);
            let pair = found.and_then(|(at, mark, tone)| {
                let inner = &rest[at + mark.len()..];
                let end = inner.find(mark)?;
                Some((at, at + 2 * mark.len() + end, tone))
            });
            let Some((from, to, tone)) = pair else {
                spans.push(Span::raw(rest.to_owned()));
                return;
            };
            spans.push(Span::raw(rest[..from].to_owned()));
            spans.push(Span::styled(rest[from..to].to_owned(), self.style(tone)));
            rest = &rest[to..];
        }
    }

    /// Adds a line across the whole width.
    fn rule(&mut self, said: &str, tone: Tone) {
        let said = text::cut(&text::reveal(said), self.look.width.saturating_sub(6));
        let used = 4 + text::width(&said);
        let rest = "─".repeat(self.look.width.saturating_sub(used + 1));
        let style = self.style(tone);
        self.lines
            .push(Line::styled(format!("── {said} {rest}"), style));
    }
}

/// How a line of a text is painted.
enum Paint {
    All(Tone),
    Prose,
}

/// Paints answers: code between fences apart from prose.
fn markdown() -> impl FnMut(&str) -> Paint {
    let mut fenced = false;
    move |line| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return Paint::All(Tone::Faint);
        }
        if fenced {
            Paint::All(Tone::Code)
        } else {
            Paint::Prose
        }
    }
}

/// Paints the lines of a difference; the signs say the same as the colours.
fn difference() -> impl FnMut(&str) -> Paint {
    let mut inside = false;
    move |line| {
        if line.starts_with("@@") {
            inside = true;
            return Paint::All(Tone::Faint);
        }
        if line.starts_with("--- ") || line.starts_with("+++ ") {
            return Paint::All(Tone::Strong);
        }
        Paint::All(match line.chars().next() {
            Some('+') if inside => Tone::Good,
            Some('-') if inside => Tone::Bad,
            _ => Tone::Plain,
        })
    }
}

/// Returns the lines above the items of a turn.
#[must_use]
pub fn turn_head(head: &TurnHead, look: Look) -> Vec<Line<'static>> {
    let mut sheet = Sheet::new(look);
    sheet.rule(&format!("turn {}", head.turn), Tone::Faint);
    sheet.lines
}

/// Returns the words for how a turn ended, unless it went well.
fn ending(reason: &EndReason) -> Option<(Tone, String)> {
    let (tone, said) = match reason {
        EndReason::Completed => return None,
        EndReason::Cancelled => (Tone::Warning, "stopped".to_owned()),
        EndReason::Blocked => (
            Tone::Warning,
            "ended: it needed an approval, and nobody was there to be asked".to_owned(),
        ),
        EndReason::Error { code, message } => (Tone::Bad, format!("failed ({code}): {message}")),
        EndReason::MaxSteps => (Tone::Warning, "ended at its step limit".to_owned()),
        EndReason::MaxTokens => (
            Tone::Warning,
            "ended at the model's output limit".to_owned(),
        ),
        EndReason::Limit { message, .. } => (Tone::Warning, format!("ended: {message}")),
        EndReason::Interrupted => (
            Tone::Warning,
            "interrupted: the process ended before the turn did".to_owned(),
        ),
    };
    Some((tone, said))
}

/// Returns the lines below the items of a turn.
#[must_use]
pub fn turn_foot(head: &TurnHead, look: Look) -> Vec<Line<'static>> {
    let mut sheet = Sheet::new(look);
    if let Some((tone, said)) = head.reason.as_ref().and_then(ending) {
        sheet.said("", &said, tone);
    }
    let usage = head.usage;
    if head.reason.is_some() && usage.input_tokens + usage.output_tokens > 0 {
        let cached = usage
            .cached_input_tokens
            .filter(|cached| *cached > 0)
            .map_or(String::new(), |cached| format!(" ({cached} cached)"));
        let took = head.ended_at.map_or(String::new(), |end| {
            format!(" · {}", seconds(end.saturating_sub(head.started_at)))
        });
        let below = head.subagent_usage;
        let below = match below.input_tokens + below.output_tokens {
            0 => String::new(),
            _ => format!(
                "; subagents {} in, {} out",
                below.input_tokens, below.output_tokens
            ),
        };
        sheet.said(
            "",
            &format!(
                "{} tokens in{cached}, {} out{below}{took}",
                usage.input_tokens, usage.output_tokens
            ),
            Tone::Faint,
        );
    }
    sheet.blank();
    sheet.lines
}

fn seconds(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        10_000..120_000 => format!("{} s", ms / 1000),
        _ => format!("{} min", ms / 60_000),
    }
}

/// Returns the lines of an item.
#[must_use]
pub fn item(item: &TurnItem, look: Look) -> Vec<Line<'static>> {
    let mut sheet = Sheet::new(look);
    match item {
        TurnItem::System {
            reason,
            text,
            tools,
            ..
        } => system(&mut sheet, *reason, text, tools),
        TurnItem::User {
            source, content, ..
        } => user(&mut sheet, *source, content),
        TurnItem::Assistant(message) => assistant(&mut sheet, message),
        TurnItem::Tool(call) => tool(&mut sheet, call),
        TurnItem::Compaction {
            summary,
            replaces,
            tokens_before,
            tokens_after,
            ..
        } => {
            let after = tokens_after.map_or(String::new(), |after| format!(", {after} after"));
            sheet.rule(
                &format!(
                    "compacted: a summary stands for events {} to {}; {tokens_before} tokens \
                     before{after}",
                    replaces.from_seq, replaces.to_seq
                ),
                Tone::Warning,
            );
            if look.unfolded {
                sheet.text("  ", &plain_text(summary), &mut |_| Paint::All(Tone::Faint));
            }
        }
        TurnItem::Head { to_seq, reason, .. } => {
            let said = match reason {
                HeadReason::Rewind => "went back: the history is what it was after event",
                _ => "the history goes on from event",
            };
            sheet.rule(&format!("{said} {to_seq}"), Tone::Warning);
        }
        TurnItem::Lost {
            events,
            bytes,
            reason,
            ..
        } => {
            let said = format!(
                "LOST: events {} to {} ({bytes} bytes) could not be read and are gone: {}",
                events.from_seq,
                events.to_seq,
                text::line(reason, 300)
            );
            sheet.said("", &said, Tone::Bad);
            sheet.blank();
        }
        TurnItem::Notice {
            message,
            status,
            delay_ms,
            ..
        } => {
            let status = status.map_or(String::new(), |status| format!(" (status {status})"));
            let again = delay_ms.map_or(String::new(), |ms| {
                format!("; trying again in {} s", ms.div_ceil(1000))
            });
            let said = format!("! model{status}: {}{again}", text::line(message, 500));
            sheet.said("", &said, Tone::Warning);
        }
    }
    sheet.lines
}

fn system(sheet: &mut Sheet, reason: SystemReason, text: &str, tools: &[String]) {
    if !sheet.look.unfolded {
        return;
    }
    let word = match reason {
        SystemReason::Initial => "system prompt",
        _ => "system prompt, changed",
    };
    sheet.said(
        "",
        &format!("{word}; tools: {}", tools.join(", ")),
        Tone::Faint,
    );
    sheet.text("  ", text, &mut |_| Paint::All(Tone::Faint));
    sheet.blank();
}

fn user(sheet: &mut Sheet, source: UserSource, content: &[ContentPart]) {
    let unfolded = sheet.look.unfolded;
    let who = match source {
        UserSource::Context if !unfolded => return,
        UserSource::Context => "context",
        UserSource::User => "you",
        UserSource::Queued => "you (queued)",
        UserSource::Steer => "you (meanwhile)",
    };
    let tone = if source == UserSource::Context {
        Tone::Faint
    } else {
        Tone::Accent
    };
    sheet.said("", who, tone);
    let said = plain_text(content);
    sheet.text("│ ", &said, &mut |_| {
        Paint::All(if source == UserSource::Context {
            Tone::Faint
        } else {
            Tone::Plain
        })
    });
    pictures(sheet, content);
    sheet.blank();
}

fn pictures(sheet: &mut Sheet, content: &[ContentPart]) {
    for part in content {
        match part {
            ContentPart::Image { media_type, blob } => sheet.said(
                "  ",
                &format!("[image {media_type}, blob {}]", text::line(blob, 16)),
                Tone::Faint,
            ),
            ContentPart::Unknown => sheet.said(
                "  ",
                "[a part that this version does not know]",
                Tone::Faint,
            ),
            ContentPart::Text { .. } => {}
        }
    }
}

fn assistant(sheet: &mut Sheet, message: &AssistantItem) {
    let begun = sheet.lines.len();
    for part in &message.parts {
        match part.kind {
            ChunkKind::Text => sheet.text("", &part.text, &mut markdown()),
            ChunkKind::Reasoning if sheet.look.unfolded => {
                sheet.said("", "thinking", Tone::Faint);
                sheet.text("  ", &part.text, &mut |_| Paint::All(Tone::Faint));
            }
            ChunkKind::Reasoning if !part.text.is_empty() => {
                let chars = part.text.chars().count() as u64;
                let said = format!(
                    "thinking ({})",
                    text::count(chars, "character", "characters")
                );
                sheet.said("", &said, Tone::Faint);
            }
            ChunkKind::ToolArgs if message.streaming && !part.text.is_empty() => {
                let bytes = part.text.len();
                sheet.said("", &format!("writes a call ({bytes} bytes)"), Tone::Faint);
            }
            ChunkKind::Reasoning | ChunkKind::ToolArgs => {}
        }
    }
    if message.interrupted {
        sheet.said("", "[cut short here]", Tone::Warning);
    }
    if sheet.lines.len() > begun {
        sheet.blank();
    }
}

/// Returns the words for how a call stands.
fn standing(call: &ToolItem) -> (Tone, String) {
    let waits = call
        .approval
        .as_ref()
        .is_some_and(|approval| approval.decision.is_none());
    let took = match (call.started_at, call.ended_at) {
        // How long a call took that recovery has closed, nobody knows.
        (Some(start), Some(end)) if !call.synthetic => {
            format!(" · {}", seconds(end.saturating_sub(start)))
        }
        _ => String::new(),
    };
    let (tone, said) = match call.outcome {
        None if waits => (Tone::Warning, "waits for you"),
        None if call.start_seq.is_some() => (Tone::Accent, "running"),
        None => (Tone::Faint, "next"),
        Some(Outcome::Ok) if call.is_error => (Tone::Bad, "error"),
        Some(Outcome::Ok) => (Tone::Good, "ok"),
        Some(Outcome::Error) => (Tone::Bad, "error"),
        Some(Outcome::Denied) => (Tone::Warning, "denied"),
        Some(Outcome::Timeout) => (Tone::Bad, "timed out"),
        Some(Outcome::Cancelled) => (Tone::Warning, "cancelled"),
        Some(Outcome::NotStarted) => (Tone::Warning, "NOT STARTED: it did nothing"),
        Some(Outcome::Unknown) => (
            Tone::Bad,
            "OUTCOME UNKNOWN: it may have run; check before it is done again",
        ),
    };
    (tone, format!("{said}{took}"))
}

/// Returns what a call does, in one line.
#[must_use]
pub fn call_line(arguments: &str) -> String {
    let parsed: Option<serde_json::Value> = serde_json::from_str(arguments).ok();
    let field = |name: &str| parsed.as_ref()?.get(name)?.as_str().map(str::to_owned);
    // What people look for first; the rest is shown unfolded.
    let told = ["command", "path", "pattern", "task", "job", "blob"]
        .into_iter()
        .find_map(field);
    match told {
        Some(told) => text::line(&told, ARGUMENTS),
        None if parsed
            .as_ref()
            .is_some_and(|value| value.as_object().is_some_and(serde_json::Map::is_empty)) =>
        {
            String::new()
        }
        None => text::line(arguments, ARGUMENTS),
    }
}

fn tool(sheet: &mut Sheet, call: &ToolItem) {
    let (tone, said) = standing(call);
    let name = text::line(&call.name, 64);
    let does = call_line(&call.arguments);
    let lead = format!("• {name} ");
    let room = sheet.look.width.saturating_sub(text::width(&lead)).max(1);
    let mut pieces = text::wrap(&does, room);
    let folded = !sheet.look.unfolded && pieces.len() > 2;
    if folded {
        pieces.truncate(2);
        if let Some(last) = pieces.last_mut() {
            *last = text::cut(&format!("{last}…"), room);
        }
    }
    for (at, piece) in pieces.into_iter().enumerate() {
        let lead = if at == 0 {
            Span::styled(lead.clone(), sheet.style(Tone::Strong))
        } else {
            Span::raw(" ".repeat(text::width(&lead).min(sheet.look.width / 2)))
        };
        let piece = Span::styled(piece, sheet.style(Tone::Code));
        sheet.lines.push(Line::from(vec![lead, piece]));
    }
    sheet.said("  ", &said, tone);
    if call.outside_sandbox {
        sheet.said("  ", "WITHOUT the sandbox", Tone::Warning);
    }
    approval(sheet, call);
    if sheet.look.unfolded {
        let pretty = serde_json::from_str::<serde_json::Value>(&call.arguments)
            .ok()
            .and_then(|value| serde_json::to_string_pretty(&value).ok());
        let arguments = pretty.as_deref().unwrap_or(&call.arguments);
        sheet.text("  ", arguments, &mut |_| Paint::All(Tone::Faint));
    }
    let result = plain_text(&call.content);
    let output = if call.outcome.is_some() {
        &result
    } else {
        &call.output
    };
    let mut body = Sheet::new(sheet.look);
    body.text("  ", output, &mut difference());
    fold(sheet, body.lines);
    pictures(sheet, &call.content);
    sheet.blank();
}

fn approval(sheet: &mut Sheet, call: &ToolItem) {
    let Some(approval) = &call.approval else {
        return;
    };
    let (Some(decision), by) = (approval.decision, approval.by.as_deref()) else {
        return;
    };
    let word = serde_json::to_value(decision).unwrap_or_default();
    let word = word.as_str().unwrap_or("decided").replace('_', " ");
    let by = by.map_or(String::new(), |by| format!(" by {}", text::line(by, 40)));
    sheet.said("  ", &format!("{word}{by}"), Tone::Faint);
}

/// Adds the lines of an output, unless all are wanted only the first and the last ones.
fn fold(sheet: &mut Sheet, lines: Vec<Line<'static>>) {
    let most = FOLDED_HEAD + FOLDED_TAIL;
    if sheet.look.unfolded || lines.len() <= most + 1 {
        sheet.lines.extend(lines);
        return;
    }
    let left_out = (lines.len() - most) as u64;
    let tail = lines.len() - FOLDED_TAIL;
    for (at, line) in lines.into_iter().enumerate() {
        if at < FOLDED_HEAD || at >= tail {
            sheet.lines.push(line);
        } else if at == FOLDED_HEAD {
            let said = format!(
                "… {} more (Ctrl-O shows all)",
                text::count(left_out, "line", "lines")
            );
            sheet.said("  ", &said, Tone::Faint);
        }
    }
}
