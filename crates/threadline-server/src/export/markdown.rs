//! A session as Markdown.

use threadline_session::{
    Turn, TurnItem,
    payload::{ChunkKind, ContentPart, HeadReason, UserSource, plain_text},
};
use threadline_store::SessionSummary;

use super::{ending, outcome, title_of};

pub(super) fn begin(summary: &SessionSummary) -> String {
    let title = title_of(summary).replace(['\n', '\r'], " ");
    format!("# {}\n\nSession `{}`.\n", escaped(&title), summary.id)
}

pub(super) fn end(damage: Option<&str>) -> String {
    damage.map_or_else(String::new, |damage| {
        format!("\n> The log cannot be read further: {}\n", escaped(damage))
    })
}

pub(super) fn turn(turn: &Turn, goes_on: bool) -> String {
    let mut text = if goes_on {
        String::new()
    } else {
        format!("\n## Turn {}\n", turn.head.turn)
    };
    for item in &turn.items {
        text.push_str(&one(item));
    }
    if let Some(why) = ending(turn) {
        text.push_str(&format!("\n_{}_\n", escaped(&why)));
    }
    text
}

fn one(item: &TurnItem) -> String {
    match item {
        TurnItem::System { .. } => String::new(),
        TurnItem::User {
            source: UserSource::Context,
            ..
        } => String::new(),
        TurnItem::User { content, .. } => format!("\n**You**\n\n{}\n", quoted(content)),
        TurnItem::Assistant(message) => {
            let texts = message.parts.iter().filter(|p| p.kind == ChunkKind::Text);
            let text: String = texts.map(|part| part.text.as_str()).collect();
            if text.is_empty() {
                return String::new();
            }
            format!("\n**Assistant**\n\n{text}\n")
        }
        TurnItem::Tool(tool) => {
            let outcome = outcome(tool);
            format!(
                "\n**Tool `{}`** ({outcome})\n\n{}\n{}",
                tool.name.replace('`', ""),
                fenced(&tool.arguments, "json"),
                fenced(&plain_text(&tool.content), "")
            )
        }
        TurnItem::Compaction {
            summary, replaces, ..
        } => format!(
            "\n---\n\n_From here on a summary stands for events {} to {}._\n\n{}\n",
            replaces.from_seq,
            replaces.to_seq,
            quoted(summary)
        ),
        TurnItem::Head { to_seq, reason, .. } => {
            let word = match reason {
                HeadReason::Rewind => "Went back",
                HeadReason::Redo => "Went forward again",
            };
            format!("\n_{word} to event {to_seq}._\n")
        }
        TurnItem::Notice { message, .. } => format!("\n_Model: {}_\n", escaped(message)),
        TurnItem::Lost { events, reason, .. } => format!(
            "\n> **Events {} to {} are lost for good:** {}\n",
            events.from_seq,
            events.to_seq,
            escaped(reason)
        ),
    }
}

fn quoted(content: &[ContentPart]) -> String {
    let mut text = plain_text(content);
    for part in content {
        if let ContentPart::Image { media_type, blob } = part {
            text.push_str(&format!("\n[image {media_type}, blob {blob}]"));
        }
    }
    let lines: Vec<String> = text.lines().map(|line| format!("> {line}")).collect();
    lines.join("\n")
}

/// Puts text into a fence that is longer than any in it.
fn fenced(text: &str, language: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!(
        "{fence}{language}\n{}\n{fence}\n",
        text.trim_end_matches('\n')
    )
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '#') {
            out.push('\\');
        }
        out.push(if c == '\n' || c == '\r' { ' ' } else { c });
    }
    out
}
