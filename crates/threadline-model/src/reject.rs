//! One item of the history that the provider will not take.
//!
//! Such an item is sent again on every turn, so a session that cannot get rid of it is over. The
//! error therefore says which one it is, and [`Rejection::mend`] does without it.

use std::fmt;

use threadline_session::{
    HistoryItem, Request,
    payload::{AssistantPart, ContentPart, replace_lone_surrogates},
};

use crate::limits;

/// What about an item was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectedKind {
    /// An image: the model takes none, or none of its kind, or it cannot be decoded.
    ImageUnsupported,
    /// An image: too many bytes or pixels.
    ImageTooLarge,
    /// Encrypted reasoning that the provider cannot, or will not, decrypt.
    EncryptedReasoning,
    /// Thinking whose signature does not fit, or that is missing or changed.
    ThinkingSignature,
    /// Text with half a character in it.
    Surrogate,
}

impl RejectedKind {
    /// Returns the stable name that logs and interfaces show.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ImageUnsupported => "image_unsupported",
            Self::ImageTooLarge => "image_too_large",
            Self::EncryptedReasoning => "encrypted_reasoning",
            Self::ThinkingSignature => "thinking_signature",
            Self::Surrogate => "surrogate",
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::ImageUnsupported => "an image",
            Self::ImageTooLarge => "an image as too large",
            Self::EncryptedReasoning => "encrypted reasoning",
            Self::ThinkingSignature => "thinking or its signature",
            Self::Surrogate => "a text with half a character",
        }
    }
}

/// An item of the history that the provider refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejection {
    /// What was refused.
    pub kind: RejectedKind,
    /// The provider's own name of the place, e.g. `input[3].content[1]` or
    /// `messages.3.content.1`, where it says one.
    pub path: Option<String>,
    /// Position in [`Request::items`], where the path leads to one.
    pub item: Option<usize>,
    /// Position in the item's content, where the path leads to one.
    pub part: Option<usize>,
    /// HTTP status.
    pub status: u16,
    /// What the provider said.
    pub message: String,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the provider refused {}", self.kind.what())?;
        if let Some(path) = &self.path {
            write!(f, " at `{path}`")?;
        }
        write!(f, " (HTTP {}): {}", self.status, self.message)
    }
}

impl Rejection {
    /// Takes what was refused out of the request and returns whether anything was there.
    ///
    /// Pure: the same rejection and request give the same result. Of images only the refused one
    /// goes, or all where the provider does not say which; a line of text stands for it. Reasoning
    /// goes as a whole: a provider names only the first piece that it cannot read.
    pub fn mend(&self, request: &mut Request) -> bool {
        let before = request.items.clone();
        for (at, item) in request.items.iter_mut().enumerate() {
            match self.kind {
                RejectedKind::ImageUnsupported | RejectedKind::ImageTooLarge => {
                    if self.item.is_none_or(|refused| refused == at) {
                        self.drop_images(item);
                    }
                }
                RejectedKind::EncryptedReasoning | RejectedKind::ThinkingSignature => {
                    drop_opaque(item);
                }
                RejectedKind::Surrogate => {
                    drop_opaque(item);
                    replace_surrogates(item);
                }
            }
        }
        request.items != before
    }

    fn drop_images(&self, item: &mut HistoryItem) {
        let (HistoryItem::User { content } | HistoryItem::Tool { content, .. }) = item else {
            return;
        };
        for (at, part) in content.iter_mut().enumerate() {
            if let ContentPart::Image { media_type, .. } = part
                && self.part.is_none_or(|refused| refused == at)
            {
                let why = match self.kind {
                    RejectedKind::ImageTooLarge => "too large for the provider",
                    _ => "refused by the provider",
                };
                *part = ContentPart::text(format!("[image {media_type}, {why}]"));
            }
        }
    }
}

fn drop_opaque(item: &mut HistoryItem) {
    if let HistoryItem::Assistant { opaque, .. } = item {
        opaque.clear();
    }
}

fn replace_surrogates(item: &mut HistoryItem) {
    let HistoryItem::Assistant { content, .. } = item else {
        return;
    };
    for part in content {
        if let AssistantPart::ToolCall { arguments, .. } = part {
            *arguments = replace_lone_surrogates(arguments).into_owned();
        }
    }
}

/// Where a part of the history stands in a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The positions that lead to it, outermost first.
    pub(crate) path: Vec<usize>,
    pub(crate) item: usize,
    pub(crate) part: Option<usize>,
}

/// Which place in a body came from which part of the history.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places(pub(crate) Vec<Place>);

impl Places {
    /// Fills in which item of the history a rejection is about.
    pub(crate) fn locate(&self, rejection: &mut Rejection) {
        let Some(path) = &rejection.path else {
            return;
        };
        let numbers: Vec<usize> = path
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter_map(|word| word.parse().ok())
            .collect();
        let found = self
            .0
            .iter()
            .filter(|place| numbers.starts_with(&place.path))
            .max_by_key(|place| place.path.len());
        if let Some(place) = found {
            rejection.item = Some(place.item);
            rejection.part = place.part;
        }
    }
}

/// Finds the path of an item in a provider's `param` or in its words.
pub(crate) fn path_in(param: &str, message: &str) -> Option<String> {
    [param, message].into_iter().find_map(|text| {
        // Two forms: `input[3].content[1]`, and `messages.3.content.1` in front of the words.
        ["input[", "messages[", "messages.[", "messages."]
            .into_iter()
            .find_map(|head| {
                let from = text.find(head)?;
                let path: String = text
                    .get(from..)?
                    .chars()
                    .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '[' | ']' | '_'))
                    .take(limits::MAX_PATH_CHARS)
                    .collect();
                let path = path.trim_end_matches('.');
                path.contains(|c: char| c.is_ascii_digit())
                    .then(|| path.to_owned())
            })
    })
}

/// Words by which providers say what they refuse, with what that is. The first that fits counts.
///
/// Sources: OpenAI's and Anthropic's API references on errors and vision, and the answers that
/// the field reports quote.
const MARKS: &[(RejectedKind, &[&str])] = &[
    (
        RejectedKind::Surrogate,
        &[
            "no low surrogate in string",
            "lone surrogate",
            "unpaired surrogate",
            "lone leading surrogate",
            "surrogates not allowed",
            "invalid surrogate",
        ],
    ),
    (
        RejectedKind::EncryptedReasoning,
        &[
            "invalid_encrypted_content",
            "encrypted content could not be",
            "encrypted_content",
            "items are not persisted when `store` is set to false",
            "of type 'reasoning' was provided without its required",
            "without its required 'reasoning' item",
        ],
    ),
    (
        RejectedKind::ThinkingSignature,
        &[
            "invalid `signature` in `thinking`",
            "invalid signature in thinking",
            "thinking.signature",
            "`thinking` or `redacted_thinking`",
            "`thinking` blocks",
            "thinking block must",
        ],
    ),
    (
        RejectedKind::ImageTooLarge,
        &[
            "image exceeds",
            "image_too_large",
            "image_file_too_large",
            "image dimensions exceed",
            "image is too large",
            "image too large",
        ],
    ),
    (
        RejectedKind::ImageUnsupported,
        &[
            "invalid_image",
            "image_parse_error",
            "unsupported_image",
            "unsupported image",
            "empty_image",
            "invalid_base64_image",
            "image_content_policy_violation",
            "could not process image",
            "does not match the provided media type",
            "image_url is only supported by certain models",
            "unknown variant `image_url`",
            "does not support image",
            "image input is not supported",
            "image inputs are not supported",
            "no endpoints found that support image input",
            "required for image input",
            "media_type: input should be",
        ],
    ),
];

/// Recognises a refused item. `searched` is all that the provider said, in lower case.
pub(crate) fn rejected(searched: &str) -> Option<RejectedKind> {
    MARKS
        .iter()
        .find(|(_, marks)| marks.iter().any(|mark| searched.contains(mark)))
        .map(|(kind, _)| *kind)
}

#[cfg(test)]
mod tests {
    use threadline_session::payload::{ModelRef, Opaque};

    use super::*;

    #[test]
    fn paths_are_found_in_all_their_forms() {
        for (param, message, wanted) in [
            (
                "input[3].content[1].image_url",
                "Bad.",
                Some("input[3].content[1].image_url"),
            ),
            ("input", "Item 'rs_1' of type 'reasoning' was ...", None),
            (
                "",
                "messages.3.content.1.image.source.base64: image exceeds 5 MB maximum",
                Some("messages.3.content.1.image.source.base64"),
            ),
            (
                "messages.[2].content.[0].type",
                "x",
                Some("messages.[2].content.[0].type"),
            ),
            ("", "see messages. It failed", None),
            ("tools[0].name", "x", None),
        ] {
            assert_eq!(
                path_in(param, message).as_deref(),
                wanted,
                "{param} {message}"
            );
        }
    }

    fn rejection(kind: RejectedKind, path: Option<&str>) -> Rejection {
        Rejection {
            kind,
            path: path.map(Into::into),
            item: None,
            part: None,
            status: 400,
            message: "no".into(),
        }
    }

    #[test]
    fn the_longest_place_that_fits_is_meant() {
        let place = |path: &[usize], item, part| Place {
            path: path.to_vec(),
            item,
            part,
        };
        let places = Places(vec![
            place(&[1], 4, None),
            place(&[1, 1], 5, Some(0)),
            place(&[1, 1, 2], 5, Some(3)),
        ]);
        for (path, wanted) in [
            (
                "messages.1.content.1.tool_result.content.2.image",
                (Some(5), Some(3)),
            ),
            ("messages.1.content.1.tool_result", (Some(5), Some(0))),
            ("messages[1]", (Some(4), None)),
            ("messages[7].content", (None, None)),
        ] {
            let mut found = rejection(RejectedKind::ImageTooLarge, Some(path));
            places.locate(&mut found);
            assert_eq!((found.item, found.part), wanted, "{path}");
        }
    }

    #[test]
    fn mending_takes_out_what_was_refused_and_nothing_else() {
        let image = || ContentPart::Image {
            media_type: "image/png".into(),
            blob: "ab".into(),
        };
        let asked = || HistoryItem::User {
            content: vec![image(), ContentPart::text("x"), image()],
        };
        let answer = HistoryItem::Assistant {
            content: vec![AssistantPart::Text { text: "y".into() }],
            opaque: vec![Opaque {
                issuer: ModelRef {
                    provider: "p".into(),
                    name: "m".into(),
                },
                kind: "reasoning".into(),
                data: "{}".into(),
            }],
        };
        let request = Request {
            provider: "p".into(),
            model: "m".into(),
            system: String::new(),
            tools: Vec::new(),
            items: vec![asked(), answer, asked()],
            temperature: None,
        };
        let images = |request: &Request| {
            request
                .items
                .iter()
                .fold(String::new(), |all, item| match item {
                    HistoryItem::User { content } => content.iter().fold(all, |all, part| {
                        all + if matches!(part, ContentPart::Image { .. }) {
                            "i"
                        } else {
                            "t"
                        }
                    }),
                    HistoryItem::Assistant { opaque, .. } => format!("{all}{}", opaque.len()),
                    HistoryItem::Tool { .. } => all,
                })
        };
        for (kind, item, part, wanted) in [
            (RejectedKind::ImageTooLarge, Some(2), Some(0), "iti1tti"),
            (RejectedKind::ImageUnsupported, Some(2), None, "iti1ttt"),
            (RejectedKind::ImageUnsupported, None, None, "ttt1ttt"),
            (RejectedKind::EncryptedReasoning, None, None, "iti0iti"),
            (RejectedKind::ThinkingSignature, Some(0), None, "iti0iti"),
            (RejectedKind::Surrogate, None, None, "iti0iti"),
        ] {
            let mut mended = request.clone();
            let mut rejection = rejection(kind, None);
            (rejection.item, rejection.part) = (item, part);
            assert!(rejection.mend(&mut mended));
            assert_eq!(images(&mended), wanted, "{kind:?}");
            assert!(!rejection.mend(&mut mended), "nothing is left to take out");
        }
    }
}
