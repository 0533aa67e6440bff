//! The images of an item, as the client is sent them.

use std::collections::HashMap;

use agent_client_protocol_schema::v1::{ContentBlock, ImageContent};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use threadline_session::{TurnItem, payload::ContentPart};
use threadline_store::{BlobId, SessionStore};

/// The bytes of images by their blobs, in base64.
#[derive(Debug, Default)]
pub(crate) struct Images(HashMap<String, String>);

impl Images {
    /// Reads the images of an item. One that is lost is told of in words instead.
    pub(crate) async fn of(store: &SessionStore, item: &TurnItem) -> Self {
        let content = match item {
            TurnItem::User { content, .. } => content,
            TurnItem::Tool(tool) => &tool.content,
            _ => return Self::default(),
        };
        let mut images = Self::default();
        for part in content {
            let ContentPart::Image { blob, .. } = part else {
                continue;
            };
            let Ok(id) = BlobId::parse(blob) else {
                continue;
            };
            match store.get_blob(&id).await {
                Ok(bytes) => {
                    images.0.insert(blob.clone(), STANDARD.encode(bytes));
                }
                Err(error) => tracing::warn!(%error, blob, "an image cannot be shown"),
            }
        }
        images
    }

    /// Returns a part as the client is sent it.
    pub(crate) fn block(&self, part: &ContentPart) -> ContentBlock {
        match part {
            ContentPart::Text { text } => text.clone().into(),
            ContentPart::Image { media_type, blob } => match self.0.get(blob) {
                Some(data) => {
                    ContentBlock::Image(ImageContent::new(data.clone(), media_type.clone()))
                }
                None => "[an image that is lost]".into(),
            },
            ContentPart::Unknown => "[a part that this version cannot show]".into(),
        }
    }
}
