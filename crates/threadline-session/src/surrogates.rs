//! Half characters in JSON text.

use std::borrow::Cow;

/// Replaces `\uD800`..`\uDFFF` escapes that are not part of a pair by `\ufffd` in JSON text.
#[must_use]
pub fn replace_lone_surrogates(text: &str) -> Cow<'_, str> {
    let unit = |at: usize| -> Option<u16> {
        let hex = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(hex, 16).ok()
    };
    let mut out: Option<String> = None;
    let mut copied = 0;
    let mut at = 0;
    let bytes = text.as_bytes();
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        let escape = at + found;
        match unit(escape) {
            Some(0xD800..=0xDBFF) if matches!(unit(escape + 6), Some(0xDC00..=0xDFFF)) => {
                at = escape + 12;
            }
            Some(0xD800..=0xDFFF) => {
                let out = out.get_or_insert_with(|| String::with_capacity(text.len()));
                out.push_str(&text[copied..escape]);
                out.push_str("\\ufffd");
                at = escape + 6;
                copied = at;
            }
            _ => at = escape + 2,
        }
    }
    match out {
        None => Cow::Borrowed(text),
        Some(mut out) => {
            out.push_str(&text[copied..]);
            Cow::Owned(out)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_are_replaced_and_pairs_kept() {
        for (given, wanted) in [
            (r#"{"a":"\ud83d\ude00"}"#, r#"{"a":"\ud83d\ude00"}"#),
            (r#"{"a":"\ud83d"}"#, r#"{"a":"\ufffd"}"#),
            (
                r#"{"a":"\ude00x\ud83d\ud83d\ude00"}"#,
                r#"{"a":"\ufffdx\ufffd\ud83d\ude00"}"#,
            ),
            (r#"{"a":"\\ud83d"}"#, r#"{"a":"\\ud83d"}"#),
        ] {
            assert_eq!(replace_lone_surrogates(given), wanted);
        }
    }
}
