//! A session as one page of HTML: no script, no address but those of its own parts, all text inert.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use threadline_session::{
    Turn, TurnItem,
    payload::{ChunkKind, ContentPart, HeadReason, UserSource, plain_text},
};
use threadline_store::{BlobId, SessionStore, SessionSummary};

use super::{ending, outcome, title_of};

/// Also said by a meta element, because a file has no headers: nothing runs, nothing is fetched.
const POLICY: &str = "default-src 'none'; img-src data:; style-src 'unsafe-inline'";

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--bad:#b3261e}\
@media(prefers-color-scheme:dark){:root{--bad:#ff8a80}}\
body{max-width:52rem;margin:2rem auto;padding:0 1rem;font:16px/1.55 system-ui,sans-serif}\
h1{font-size:1.4rem}h2{margin-top:2.5rem;border-top:1px solid var(--line);padding-top:1rem;font-size:1rem}\
h3{margin:1.2rem 0 .3rem;font-size:.85rem}\
pre{margin:0;padding:.6rem .8rem;overflow-x:auto;border-radius:6px;background:var(--soft);\
font:13px/1.5 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere}\
.said{white-space:pre-wrap;overflow-wrap:anywhere}.you{border-left:3px solid var(--line);padding-left:.8rem}\
details{margin:.6rem 0}summary{cursor:pointer}img{max-width:100%}.note{font-size:.9rem}.bad{color:var(--bad)}";

/// Media types that browsers show as pictures and never run.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

pub(super) fn begin(summary: &SessionSummary) -> String {
    let title = escaped(title_of(summary));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n<p class=\"note\">Session {}</p>\n",
        escaped(summary.id.as_str())
    )
}

pub(super) fn end(damage: Option<&str>) -> String {
    let note = damage.map_or_else(String::new, |damage| {
        format!(
            "<p class=\"note bad\">The log cannot be read further: {}</p>\n",
            escaped(damage)
        )
    });
    format!("{note}</main>\n</body>\n</html>\n")
}

pub(super) async fn turn(store: &SessionStore, turn: &Turn, goes_on: bool) -> String {
    let mut text = if goes_on {
        String::new()
    } else {
        format!("<h2>Turn {}</h2>\n", turn.head.turn)
    };
    for item in &turn.items {
        text.push_str(&one(store, item).await);
    }
    if let Some(why) = ending(turn) {
        text.push_str(&format!("<p class=\"note\">{}</p>\n", escaped(&why)));
    }
    text
}

async fn one(store: &SessionStore, item: &TurnItem) -> String {
    match item {
        TurnItem::System { text, .. } => folded("System prompt", text),
        TurnItem::User {
            source: UserSource::Context,
            content,
            ..
        } => folded("Context", &plain_text(content)),
        TurnItem::User { content, .. } => format!(
            "<h3>You</h3>\n<div class=\"said you\">{}</div>\n",
            parts(store, content).await
        ),
        TurnItem::Assistant(message) => {
            let mut text = String::new();
            for part in &message.parts {
                match part.kind {
                    ChunkKind::Text => text.push_str(&format!(
                        "<h3>Assistant</h3>\n<div class=\"said\">{}</div>\n",
                        escaped(&part.text)
                    )),
                    ChunkKind::Reasoning => text.push_str(&folded("Reasoning", &part.text)),
                    ChunkKind::ToolArgs => {}
                }
            }
            text
        }
        TurnItem::Tool(tool) => {
            let outcome = outcome(tool);
            format!(
                "<details><summary>Tool {} ({})</summary>\n<pre>{}</pre>\n\
                 <div class=\"said\">{}</div></details>\n",
                escaped(&tool.name),
                escaped(&outcome),
                escaped(&tool.arguments),
                parts(store, &tool.content).await
            )
        }
        TurnItem::Compaction {
            summary, replaces, ..
        } => format!(
            "<p class=\"note\">From here on a summary stands for events {} to {}.</p>\n{}",
            replaces.from_seq,
            replaces.to_seq,
            folded("Summary", &plain_text(summary))
        ),
        TurnItem::Head { to_seq, reason, .. } => {
            let word = match reason {
                HeadReason::Rewind => "Went back",
                HeadReason::Redo => "Went forward again",
            };
            format!("<p class=\"note\">{word} to event {to_seq}.</p>\n")
        }
        TurnItem::Notice { message, .. } => {
            format!("<p class=\"note\">Model: {}</p>\n", escaped(message))
        }
        TurnItem::Lost { events, reason, .. } => format!(
            "<p class=\"note bad\">Events {} to {} are lost for good: {}</p>\n",
            events.from_seq,
            events.to_seq,
            escaped(reason)
        ),
    }
}

fn folded(name: &str, text: &str) -> String {
    format!(
        "<details><summary>{name}</summary>\n<pre>{}</pre></details>\n",
        escaped(text)
    )
}

async fn parts(store: &SessionStore, content: &[ContentPart]) -> String {
    let mut text = String::new();
    for part in content {
        match part {
            ContentPart::Text { text: said } => text.push_str(&escaped(said)),
            ContentPart::Image { media_type, blob } => {
                text.push_str(&picture(store, media_type, blob).await);
            }
            ContentPart::Unknown => text.push_str("[content of an unknown kind]"),
        }
    }
    text
}

async fn picture(store: &SessionStore, media_type: &str, blob: &str) -> String {
    let missing = || format!("[image {}]", escaped(blob));
    if !PICTURES.contains(&media_type) {
        return missing();
    }
    let Ok(id) = BlobId::parse(blob) else {
        return missing();
    };
    match store.get_blob(&id).await {
        Ok(bytes) => format!(
            "<img alt=\"Image in the conversation\" src=\"data:{media_type};base64,{}\">",
            STANDARD.encode(bytes)
        ),
        Err(_) => missing(),
    }
}

/// Makes text inert: markup becomes characters, and what would reorder or hide text is shown.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => {
                out.push_str(&format!("&lt;U+{:04X}&gt;", u32::from(c)));
            }
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
