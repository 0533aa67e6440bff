//! Outputs that are too long for the model: kept whole as a blob, shown with the middle left out.
//!
//! The blob is on stable storage before the event that names it is written. What the model is
//! shown depends on the output alone, so that it is the same whenever a request is rebuilt.

use threadline_session::payload::{BlobRef, ContentPart, plain_text};
use threadline_store::{BlobError, BlobId, SessionStore};

use crate::{
    limits::{NOTE_BYTES, OUTPUT_BYTES, RESULT_BYTES},
    tools::text::{HeadTail, head, tail},
};

/// Digits of a blob's name that the model is told.
pub(crate) const NAME_DIGITS: usize = 12;

/// Stands where something was left out.
const GAP: &str = "[...]\n";

/// What the model is shown of an output, and the blob that holds all of it if that is more.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) content: Vec<ContentPart>,
    pub(crate) full: Option<BlobRef>,
}

/// Makes of an output what a result may hold. Its text is stored first if it is too long.
///
/// # Errors
/// [`BlobError`] when the text is too long and cannot be stored.
pub(crate) async fn keep(
    store: &SessionStore,
    content: Vec<ContentPart>,
) -> Result<Kept, BlobError> {
    let bytes: usize = content.iter().map(text_bytes).sum();
    if bytes <= RESULT_BYTES {
        return Ok(Kept {
            content,
            full: None,
        });
    }
    let (text, others) = split(content);
    let text = bounded(text);
    let blob = store.put_blob(text.as_bytes()).await?;
    let mut content = vec![ContentPart::text(shown(&text, &blob))];
    content.extend(others);
    Ok(Kept {
        content,
        full: Some(BlobRef {
            blob: blob.to_string(),
        }),
    })
}

fn text_bytes(part: &ContentPart) -> usize {
    match part {
        ContentPart::Text { text } => text.len(),
        ContentPart::Image { .. } | ContentPart::Unknown => 0,
    }
}

/// Takes the text out. The one text that most outputs consist of is not copied.
fn split(mut content: Vec<ContentPart>) -> (String, Vec<ContentPart>) {
    if let [ContentPart::Text { text }] = content.as_mut_slice() {
        return (std::mem::take(text), Vec::new());
    }
    let text = plain_text(&content);
    content.retain(|part| !matches!(part, ContentPart::Text { .. }));
    (text, content)
}

/// No blob is longer, whatever a tool gives back.
fn bounded(text: String) -> String {
    if text.len() <= OUTPUT_BYTES {
        return text;
    }
    let mut kept = HeadTail::new(OUTPUT_BYTES, NOTE_BYTES / 2);
    kept.push(&text);
    kept.finish()
}

/// Returns the start and the end of a text, and what is between them in words.
fn shown(full: &str, blob: &BlobId) -> String {
    let half = (RESULT_BYTES - NOTE_BYTES) / 2;
    let start = whole_lines_at_start(head(full, half));
    let end = whole_lines_at_end(tail(full, half));
    let left = full
        .get(start.len()..full.len() - end.len())
        .unwrap_or_default();
    let mut out = String::with_capacity(RESULT_BYTES);
    for (piece, after) in [(start, GAP), (end, "")] {
        out.push_str(piece);
        if !piece.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(after);
    }
    let name = blob.as_str().get(..NAME_DIGITS).unwrap_or_default();
    out.push_str(&format!(
        "[{} of {} bytes and {} of {} lines are left out above; the full output is kept as blob \
         {name}; read more of it with `read_output`]",
        left.len(),
        full.len(),
        left.lines().count(),
        full.lines().count(),
    ));
    out
}

/// Cuts a part line off the end, unless that would be more than half of all.
fn whole_lines_at_start(text: &str) -> &str {
    match text.rfind('\n') {
        Some(at) if at >= text.len() / 2 => text.get(..=at).unwrap_or(text),
        _ => text,
    }
}

/// Cuts a part line off the start, unless that would be more than half of all.
fn whole_lines_at_end(text: &str) -> &str {
    match text.find('\n') {
        Some(at) if at < text.len() / 2 => text.get(at + 1..).unwrap_or(text),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use threadline_store::{MemoryBackend, StoreOptions};

    use super::*;

    fn store() -> SessionStore {
        SessionStore::new(Arc::new(MemoryBackend::new()), StoreOptions::default())
    }

    fn show(full: &str) -> String {
        shown(full, &BlobId::of(full.as_bytes()))
    }

    #[tokio::test]
    async fn what_fits_is_shown_whole_and_one_byte_more_is_kept_as_a_blob() {
        let store = store();
        let fits = vec![ContentPart::text("x".repeat(RESULT_BYTES))];
        let kept = keep(&store, fits.clone()).await.unwrap();
        assert_eq!((kept.content, kept.full), (fits, None));

        let full = "x".repeat(RESULT_BYTES + 1);
        let kept = keep(&store, vec![ContentPart::text(full.clone())])
            .await
            .unwrap();
        let blob = BlobId::parse(&kept.full.unwrap().blob).unwrap();
        assert_eq!(store.get_blob(&blob).await.unwrap(), full.as_bytes());
        assert_eq!(kept.content, [ContentPart::text(show(&full))]);
    }

    #[tokio::test]
    async fn other_parts_stay_and_texts_count_together() {
        let image = ContentPart::Image {
            media_type: "image/png".into(),
            blob: "0".repeat(64),
        };
        let text = "y".repeat(RESULT_BYTES / 2 + 1);
        let parts = [
            ContentPart::text(&text),
            image.clone(),
            ContentPart::text(&text),
        ];
        let kept = keep(&store(), parts.to_vec()).await.unwrap();
        let full = format!("{text}\n{text}");
        assert_eq!(kept.content, [ContentPart::text(show(&full)), image]);
        assert_eq!(
            kept.full.unwrap().blob,
            BlobId::of(full.as_bytes()).as_str()
        );
    }

    #[test]
    fn lines_are_shown_whole_and_the_rest_is_counted() {
        let full: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
        let text = show(&full);
        assert!(text.len() <= RESULT_BYTES, "{}", text.len());
        let (start, rest) = text.split_once(GAP).unwrap();
        let (end, note) = rest.rsplit_once('[').unwrap();
        assert!(full.starts_with(start) && start.ends_with('\n'));
        assert!(full.ends_with(end) && end.starts_with("line "));
        assert!(start.len() + end.len() > RESULT_BYTES - NOTE_BYTES - 100);
        let (bytes, shown_lines) = (
            start.len() + end.len(),
            (start.to_owned() + end).lines().count(),
        );
        let blob = BlobId::of(full.as_bytes());
        assert_eq!(
            note,
            format!(
                "{} of {} bytes and {} of 20000 lines are left out above; the full output is \
                 kept as blob {}; read more of it with `read_output`]",
                full.len() - bytes,
                full.len(),
                20_000 - shown_lines,
                &blob.as_str()[..12],
            )
        );
    }

    #[test]
    fn a_long_line_is_cut_between_characters_and_nothing_is_lost_to_a_short_one() {
        for pad in 0..4 {
            let wide = "x".repeat(pad) + &"\u{1f600}".repeat(RESULT_BYTES);
            for full in [wide.clone(), format!("first\n{wide}\nlast")] {
                let text = show(&full);
                assert!(text.len() <= RESULT_BYTES);
                let (start, rest) = text.split_once(&format!("\n{GAP}")).unwrap();
                let (end, _) = rest.rsplit_once("\n[").unwrap();
                assert!(full.starts_with(start) && full.ends_with(end));
                assert!(start.len() + end.len() > RESULT_BYTES - NOTE_BYTES - 16);
            }
        }
    }

    #[test]
    fn no_blob_is_over_the_limit() {
        let full = "z".repeat(OUTPUT_BYTES + 1);
        let text = bounded(full);
        assert!(text.len() <= OUTPUT_BYTES);
        assert!(text.contains("bytes of output left out here"));
    }
}
