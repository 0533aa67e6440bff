//! The bytes of the images that a request names.

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use threadline_session::{HistoryItem, Request, payload::ContentPart};

use crate::limits;

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

    /// Returns the media type of an image that providers can be shown, as its first bytes tell;
    /// `None` for anything else, and for what is over the limit of [`MAX_IMAGE_BASE64_BYTES`].
    ///
    /// [`MAX_IMAGE_BASE64_BYTES`]: crate::limits::MAX_IMAGE_BASE64_BYTES
    #[must_use]
    pub fn media_type(bytes: &[u8]) -> Option<&'static str> {
        kind(bytes).filter(|_| fits(bytes))
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
    bytes.len().div_ceil(3) * 4 <= limits::MAX_IMAGE_BASE64_BYTES
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
    fn an_image_at_the_limit_is_shown_and_one_byte_more_is_not() {
        let largest = limits::MAX_IMAGE_BASE64_BYTES / 4 * 3;
        let mut bytes = b"GIF89a".to_vec();
        bytes.resize(largest, 0);
        assert_eq!(shown(bytes.clone()), "image/gif");
        bytes.push(0);
        assert!(shown(bytes).contains("too large"));
    }
}
