//! Titles that a model makes, after the first turn of a session that has completed.
//!
//! It happens beside the runs and is of no consequence for them: one question, bounded in what is
//! sent, in what comes back and in time. A process that ends in the middle loses a title, and the
//! first message is shown as before.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use threadline_model::{Completion, ModelEvent, Provider};
use threadline_session::{
    HistoryItem, Item, Origin, Request,
    payload::{AssistantPart, ContentPart, EndReason, ModelRef, Usage, UserSource, plain_text},
};
use threadline_store::MadeTitle;

use crate::{
    Agents,
    agents::Core,
    limits::{TITLE_CHARS, TITLE_INPUT_CHARS, TITLE_OUTPUT_BYTES, TITLE_TIME, TITLE_TOKENS},
};

const SYSTEM: &str = "You give titles to conversations. Answer with the title alone: at most eight \
    words, in the language of the conversation, no quotes, no full stop.";

/// Which model makes titles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TitleModel {
    /// The one that the session's turn ran on.
    Same,
    /// This one.
    Named(ModelRef),
}

impl Agents {
    /// Waits until the titles that are being made are kept, or the time is up.
    pub async fn settle(&self, time: Duration) {
        let titles = &self.shared.titles;
        titles.close();
        // What is not there by then is not missed.
        let _ = tokio::time::timeout(time, titles.wait()).await;
    }
}

/// Lets a title be made for a session whose turn has just completed, if it is its first one and
/// titles are wanted.
pub(crate) async fn begin(core: &Core, model: &ModelRef) {
    let shared = core.shared.clone();
    let Some(wanted) = &shared.config.titles else {
        return;
    };
    if matches!(core.writer.header().origin, Origin::Subagent { .. }) || shared.is_stopping() {
        return;
    }
    let model = match wanted {
        TitleModel::Same => model.clone(),
        TitleModel::Named(model) => model.clone(),
    };
    let provider = match shared.config.models.provider(&model.provider) {
        Ok(provider) => provider.clone(),
        Err(error) => {
            tracing::warn!(%error, "no title is made");
            return;
        }
    };
    let talk = core
        .writer
        .with_transcript(|transcript| {
            let facts = transcript.facts();
            let first = facts.completed == 1 && facts.last_reason == Some(EndReason::Completed);
            first.then(|| excerpt(transcript.surface().map(|(_, item)| item)))
        })
        .await;
    let Some(talk) = talk.filter(|talk| !talk.is_empty()) else {
        return;
    };
    let id = core.writer.id().clone();
    let shared = Arc::downgrade(&shared);
    let made = async move {
        let store = shared.upgrade()?.store.clone();
        if store.summary(&id).await.ok()?.title.is_some() {
            return None;
        }
        let (text, usage) = ask(provider, &model, talk).await?;
        shared.upgrade()?.config.counters.tokens(&usage);
        let made = MadeTitle { text, model, usage };
        match store.keep_made_title(&id, &made).await {
            Ok(kept) => tracing::debug!(%id, kept, "a title was made"),
            Err(error) => tracing::debug!(%id, %error, "a title could not be kept"),
        }
        Some(())
    };
    core.shared.titles.spawn(made);
}

/// Returns the beginning of a conversation, as far as a title needs it.
fn excerpt(items: impl Iterator<Item = Item>) -> String {
    let mut talk = String::new();
    for item in items {
        let (who, text) = match item {
            Item::User(message) if message.source != UserSource::Context => {
                ("User", plain_text(&message.content))
            }
            Item::Assistant(message) => ("Assistant", message.text()),
            Item::System(_) | Item::User(_) | Item::ToolResult(_) | Item::Summary(_) => continue,
        };
        let text: String = text.trim().chars().take(TITLE_INPUT_CHARS / 2).collect();
        if !text.is_empty() {
            talk.push_str(&format!("{who}: {text}\n\n"));
        }
        if talk.len() >= TITLE_INPUT_CHARS {
            break;
        }
    }
    talk.chars().take(TITLE_INPUT_CHARS).collect()
}

/// Asks once. `None` when no title came of it.
async fn ask(
    provider: Arc<dyn Provider>,
    model: &ModelRef,
    talk: String,
) -> Option<(String, Usage)> {
    let request = Request {
        provider: model.provider.clone(),
        model: model.name.clone(),
        system: SYSTEM.into(),
        tools: Vec::new(),
        items: vec![HistoryItem::User {
            content: vec![ContentPart::text(format!(
                "The conversation begins so:\n\n{talk}Its title:"
            ))],
        }],
        temperature: None,
    };
    let asked = async {
        let mut stream = provider.stream_short(request, TITLE_TOKENS);
        let mut bytes = 0;
        while let Some(event) = stream.next().await {
            match event {
                Ok(ModelEvent::Delta(part)) => bytes += part.delta.len(),
                Ok(ModelEvent::Done(completion)) => return Some(completion),
                // One try: a provider in trouble has better things to do.
                Ok(ModelEvent::Retry(_)) | Err(_) => return None,
            }
            if bytes > TITLE_OUTPUT_BYTES {
                return None;
            }
        }
        None
    };
    let completion: Completion = tokio::time::timeout(TITLE_TIME, asked).await.ok()??;
    let text: String = completion
        .content
        .iter()
        .filter_map(|part| match part {
            AssistantPart::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    Some((clean(&text)?, completion.usage.unwrap_or_default()))
}

/// Makes one short line of what a model said, without what could change how other text is shown.
fn clean(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let visible: String = line
        .chars()
        .filter(|c| !is_hidden(*c))
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .collect();
    let visible = visible
        .trim_start_matches("Title:")
        .trim_matches(|c: char| c.is_whitespace() || "\"'`*#_.\u{201c}\u{201d}".contains(c));
    let mut title = String::new();
    let mut chars = 0;
    for word in visible.split(' ').filter(|word| !word.is_empty()) {
        let more = word.chars().count() + usize::from(!title.is_empty());
        if chars + more > TITLE_CHARS {
            break;
        }
        if !title.is_empty() {
            title.push(' ');
        }
        title.push_str(word);
        chars += more;
    }
    if title.is_empty() {
        title = visible.chars().take(TITLE_CHARS).collect();
    }
    (!title.is_empty()).then_some(title)
}

/// Whether a character is not seen itself, and may change what is seen of others.
fn is_hidden(c: char) -> bool {
    (c.is_control() && !c.is_whitespace())
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_short_line_that_changes_nothing_around_it() {
        for (said, wanted) in [
            ("Fix the parser", Some("Fix the parser")),
            ("\n  \"Fix the parser.\"\nMore.", Some("Fix the parser")),
            ("# **Fix**\tthe  parser", Some("Fix** the parser")),
            ("Title: Fix it", Some("Fix it")),
            ("a\u{202e}b\u{2066}c\u{200b}d\u{7}", Some("abcd")),
            ("\u{202e}\u{feff}", None),
            ("", None),
            (" \n\n ", None),
        ] {
            assert_eq!(clean(said).as_deref(), wanted, "{said:?}");
        }
        let long = "word ".repeat(100);
        let title = clean(&long).unwrap();
        assert!(title.chars().count() <= TITLE_CHARS && title.ends_with("word"));
        let word = "\u{1f600}".repeat(TITLE_CHARS + 1);
        assert_eq!(clean(&word).unwrap().chars().count(), TITLE_CHARS);
    }
}
