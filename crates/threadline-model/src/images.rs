//! The bytes of the images that a request names.

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use threadline_session::{HistoryItem, Request, payload::ContentPart};

use crate::limits;

/// Says why bytes cannot be shown to models as an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// They are no image of a kind that all providers accept.
    #[error("it is no PNG, JPEG, GIF or WebP")]
    Kind,
    /// There are too many of them.
    #[error(
        "it has {bytes} bytes, and an image may have {}",
        limits::MAX_IMAGE_BYTES
    )]
    TooLarge {
        /// How many there are.
        bytes: usize,
    },
    /// The text that they come in is not base64.
    #[error("its data is not base64: {reason}")]
    Base64 {
        /// What is wrong, and where.
        reason: String,
    },
    /// They are an image of another kind than they are said to be.
    #[error("it is said to be {named}, and its bytes are {found}")]
    MediaType {
        /// What was said.
        named: String,
        /// What they are.
        found: &'static str,
    },
}

/// Bytes of images by the BLAKE3 of the blob that holds them.
///
/// A request names its images by hash, because the log does. Who calls a provider looks the bytes
/// up and hands them over beside the request. An image whose bytes are not here is shown to the
/// model as a line of text, so that a lost blob never ends a session.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Images {
    bytes: BTreeMap<String, Bytes>,
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.bytes.keys()).finish()
    }
}

impl Images {
    /// What providers can be shown.
    pub const MEDIA_TYPES: [&'static str; 4] =
        ["image/png", "image/jpeg", "image/gif", "image/webp"];

    /// Returns the hashes of all images that a request names, each once, in order.
    #[must_use]
    pub fn wanted(request: &Request) -> Vec<&str> {
        let mut wanted: Vec<&str> = Vec::new();
        for item in &request.items {
            let (HistoryItem::User { content } | HistoryItem::Tool { content, .. }) = item else {
                continue;
            };
            for part in content {
                if let ContentPart::Image { blob, .. } = part
                    && !wanted.contains(&blob.as_str())
                {
                    wanted.push(blob);
                }
            }
        }
        wanted
    }

    /// Returns the media type of an image that providers can be shown, as its first bytes tell.
    ///
    /// # Errors
    /// [`ImageError::Kind`] and [`ImageError::TooLarge`].
    pub fn check(bytes: &[u8]) -> Result<&'static str, ImageError> {
        let kind = kind(bytes).ok_or(ImageError::Kind)?;
        if !fits(bytes) {
            return Err(ImageError::TooLarge { bytes: bytes.len() });
        }
        Ok(kind)
    }

    /// Returns whether bytes begin like an image of a kind that providers can be shown.
    #[must_use]
    pub fn is_image(start: &[u8]) -> bool {
        kind(start).is_some()
    }

    /// Reads an image that somebody sends as text: checks that it can be shown, and that it is of
    /// the kind that it is said to be.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn decode(media_type: &str, base64: &str) -> Result<Vec<u8>, ImageError> {
        // Told before it is decoded: nobody can make this side hold more than what was sent.
        if base64.len() > limits::MAX_IMAGE_BASE64_BYTES {
            let bytes = base64.len() / 4 * 3;
            return Err(ImageError::TooLarge { bytes });
        }
        let bytes = STANDARD
            .decode(base64)
            .map_err(|error| ImageError::Base64 {
                reason: error.to_string(),
            })?;
        let found = Self::check(&bytes)?;
        if media_type != found {
            let named = media_type.chars().take(limits::MAX_PATH_CHARS).collect();
            return Err(ImageError::MediaType { named, found });
        }
        Ok(bytes)
    }

    /// Adds an image.
    pub fn insert(&mut self, blob: impl Into<String>, bytes: impl Into<Bytes>) {
        self.bytes.insert(blob.into(), bytes.into());
    }

    /// Returns an image as a provider is sent it, or the text that stands for it.
    pub(crate) fn show(&self, media_type: &str, blob: &str) -> Shown {
        let Some(bytes) = self.bytes.get(blob) else {
            return Shown::Text(format!("[image {media_type}]"));
        };
        // The bytes decide: providers refuse a wrong name for them, and refuse it on every turn.
        let Some(media_type) = kind(bytes) else {
            return Shown::Text(format!(
                "[image {media_type}, which models cannot be shown: PNG, JPEG, GIF and WebP can]"
            ));
        };
        if !fits(bytes) {
            return Shown::Text(format!("[image {media_type}, too large to be shown]"));
        }
        Shown::Image {
            media_type,
            base64: STANDARD.encode(bytes),
        }
    }
}

/// How an image is shown.
pub(crate) enum Shown {
    Text(String),
    Image {
        media_type: &'static str,
        base64: String,
    },
}

fn fits(bytes: &[u8]) -> bool {
    bytes.len() <= limits::MAX_IMAGE_BYTES
}

/// Tells the four kinds that all providers accept by their first bytes.
fn kind(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some("image/png"),
        [0xFF, 0xD8, 0xFF, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: Vec<u8>) -> String {
        let mut images = Images::default();
        images.insert("ab", bytes);
        match images.show("image/bmp", "ab") {
            Shown::Text(text) => text,
            Shown::Image { media_type, .. } => media_type.into(),
        }
    }

    #[test]
    fn the_bytes_decide_what_an_image_is() {
        for (bytes, wanted) in [
            (&b"\x89PNG\r\n\x1a\n123"[..], "image/png"),
            (b"\xff\xd8\xff\xe0", "image/jpeg"),
            (b"GIF89a", "image/gif"),
            (b"RIFF1234WEBPVP8 ", "image/webp"),
        ] {
            assert_eq!(shown(bytes.to_vec()), wanted);
        }
        for bytes in [&b""[..], b"BM", b"\x89PNG", b"RIFF1234WAVE"] {
            assert!(shown(bytes.to_vec()).contains("image/bmp, which models cannot"));
        }
        assert!(matches!(
            Images::default().show("image/png", "ab"),
            Shown::Text(text) if text == "[image image/png]"
        ));
    }

    #[test]
    fn an_image_sent_as_text_is_base64_of_the_kind_that_it_is_said_to_be() {
        let png = b"\x89PNG\r\n\x1a\n123";
        let text = STANDARD.encode(png);
        assert_eq!(Images::decode("image/png", &text).unwrap(), png);
        for (named, text, wanted) in [
            ("image/jpeg", text.as_str(), "said to be image/jpeg"),
            ("image/png", "QUJD", "no PNG"),
            ("image/png", "iVBOR?==", "not base64"),
            ("image/png", &text[..text.len() - 1], "not base64"),
            ("image/png", "", "no PNG"),
        ] {
            let error = Images::decode(named, text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
        let mut largest = b"GIF89a".to_vec();
        largest.resize(limits::MAX_IMAGE_BYTES, 0);
        assert!(Images::decode("image/gif", &STANDARD.encode(&largest)).is_ok());
        largest.push(0);
        assert!(matches!(
            Images::decode("image/gif", &STANDARD.encode(&largest)),
            Err(ImageError::TooLarge { .. })
        ));
        assert_eq!(
            Images::check(&largest),
            Err(ImageError::TooLarge {
                bytes: largest.len()
            })
        );
    }

    #[test]
    fn an_image_at_the_limit_is_shown_and_one_byte_more_is_not() {
        let largest = limits::MAX_IMAGE_BYTES;
        let mut bytes = b"GIF89a".to_vec();
        bytes.resize(largest, 0);
        assert_eq!(shown(bytes.clone()), "image/gif");
        bytes.push(0);
        assert!(shown(bytes).contains("too large"));
    }
}
