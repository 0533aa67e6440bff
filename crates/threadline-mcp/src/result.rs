//! What a server answers to a call, as the result of a tool.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use threadline_agent::tools::{CallSession, ToolOutput};
use threadline_session::payload::{ContentPart, Outcome};

use crate::limits::IMAGES;

/// Makes the result of an answer. Images are stored first.
pub(crate) async fn output(answer: Value, session: Option<&CallSession>) -> ToolOutput {
    if let Some(kind @ ("input_required" | "task")) =
        answer.get("resultType").and_then(Value::as_str)
    {
        return ToolOutput::error(format!(
            "the server answered with `{kind}`, which was not offered to it; the call may have done \
             a part of its work"
        ));
    }
    let structured = answer.get("structuredContent");
    let mut reader = Reader {
        session,
        structured,
        repeated: false,
        images: 0,
        parts: Vec::new(),
    };
    let blocks = answer.get("content").and_then(Value::as_array);
    for block in blocks.into_iter().flatten() {
        reader.block(block).await;
    }
    if let Some(structured) = structured
        && !reader.repeated
    {
        reader.text(structured.to_string());
    }
    let failed = answer.get("isError").and_then(Value::as_bool) == Some(true);
    let known = blocks.is_some() || structured.is_some() || failed;
    if !known && answer.as_object().is_some_and(|fields| !fields.is_empty()) {
        reader.text(answer.to_string());
    }
    if reader.parts.is_empty() {
        reader.text("[no output]");
    }
    let outcome = if failed { Outcome::Error } else { Outcome::Ok };
    ToolOutput {
        content: reader.parts,
        outcome,
        blobs: Vec::new(),
    }
}

struct Reader<'a> {
    session: Option<&'a CallSession>,
    structured: Option<&'a Value>,
    /// Whether a text is the structured content, as servers are asked to say it twice.
    repeated: bool,
    images: usize,
    parts: Vec<ContentPart>,
}

impl Reader<'_> {
    /// Adds a text to the one before, so that a great many of them are no great many parts.
    fn text(&mut self, text: impl AsRef<str>) {
        if let Some(ContentPart::Text { text: before }) = self.parts.last_mut() {
            before.push('\n');
            before.push_str(text.as_ref());
        } else {
            self.parts.push(ContentPart::text(text.as_ref()));
        }
    }

    fn said(&mut self, said: &str) {
        self.repeated = self.repeated
            || self.structured.is_some_and(|structured| {
                serde_json::from_str::<Value>(said).is_ok_and(|said| said == *structured)
            });
        self.text(said);
    }

    async fn block(&mut self, block: &Value) {
        let text = |field: &str| block.get(field).and_then(Value::as_str);
        match (text("type"), text("text"), text("data")) {
            (Some("text"), Some(said), _) => self.said(said),
            (Some("image"), _, Some(data)) => self.image(data).await,
            (Some("audio"), _, Some(data)) => {
                let kind = text("mimeType").unwrap_or("audio");
                self.text(format!(
                    "[{kind}, {} bytes, which cannot be shown]",
                    size(data)
                ));
            }
            (Some("resource_link"), ..) => {
                let mut said = format!("[resource {}", text("uri").unwrap_or_default());
                for field in ["name", "mimeType", "description"] {
                    if let Some(more) = text(field) {
                        said.push_str(&format!("; {more}"));
                    }
                }
                said.push(']');
                self.text(said);
            }
            (Some("resource"), ..) => {
                self.resource(block.get("resource").unwrap_or(&Value::Null))
                    .await;
            }
            _ => self.text(block.to_string()),
        }
    }

    async fn resource(&mut self, resource: &Value) {
        let text = |field: &str| resource.get(field).and_then(Value::as_str);
        let uri = text("uri").unwrap_or_default();
        let kind = text("mimeType").unwrap_or("data");
        match (text("text"), text("blob")) {
            (Some(said), _) => self.text(format!("[resource {uri}]\n{said}")),
            (None, Some(data)) if kind.starts_with("image/") => {
                self.text(format!("[resource {uri}]"));
                self.image(data).await;
            }
            (None, Some(data)) => {
                let size = size(data);
                self.text(format!(
                    "[resource {uri}: {kind}, {size} bytes, which cannot be shown]"
                ));
            }
            (None, None) => self.text(resource.to_string()),
        }
    }

    async fn image(&mut self, data: &str) {
        let Some(session) = self.session else {
            return self.text("[an image]");
        };
        if self.images == IMAGES {
            return self.text(format!(
                "[one more image; {IMAGES} in a result are the most]"
            ));
        }
        let Ok(bytes) = STANDARD.decode(data) else {
            return self.text("[an image that cannot be read: it is no base64]");
        };
        match session.keep_image(&bytes).await {
            Ok(part) => {
                self.images += 1;
                self.parts.push(part);
            }
            Err(error) => {
                tracing::debug!(%error, "an image is left out");
                self.text(format!("[{error}]"));
            }
        }
    }
}

/// Bytes of what is written as base64.
fn size(data: &str) -> usize {
    data.trim_end_matches('=').len() * 3 / 4
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn text(answer: Value) -> String {
        output(answer, None).await.text()
    }

    #[tokio::test]
    async fn every_kind_of_content_has_its_words() {
        let answer = json!({ "content": [
            { "type": "text", "text": "hello" },
            { "type": "audio", "mimeType": "audio/wav", "data": "AAAA" },
            { "type": "resource_link", "uri": "file:///a", "name": "a" },
            { "type": "resource", "resource": { "uri": "b:1", "text": "inside" } },
            { "type": "resource", "resource": { "uri": "b:2", "blob": "AAA=" } },
            { "type": "new", "x": 1 },
        ] });
        let said = text(answer).await;
        assert_eq!(
            said,
            "hello\n[audio/wav, 3 bytes, which cannot be shown]\n[resource file:///a; a]\n\
             [resource b:1]\ninside\n[resource b:2: data, 2 bytes, which cannot be shown]\n\
             {\"type\":\"new\",\"x\":1}"
        );
    }

    #[tokio::test]
    async fn many_texts_are_one_part() {
        let blocks = vec![json!({ "type": "text", "text": "" }); 10_000];
        let output = output(json!({ "content": blocks }), None).await;
        assert_eq!((output.content.len(), output.text().len()), (1, 9_999));
    }

    #[tokio::test]
    async fn structured_content_is_said_once() {
        let structured = json!({ "a": [1, 2] });
        let twice = json!({
            "content": [{ "type": "text", "text": "{\"a\": [1,2]}" }],
            "structuredContent": structured,
        });
        assert_eq!(text(twice).await, "{\"a\": [1,2]}");
        let once = json!({ "content": [], "structuredContent": structured });
        assert_eq!(text(once).await, "{\"a\":[1,2]}");
    }

    #[tokio::test]
    async fn an_error_is_one_and_nothing_is_said_so() {
        let failed = output(json!({ "content": [], "isError": true }), None).await;
        assert_eq!(
            (failed.outcome, failed.text()),
            (Outcome::Error, "[no output]".into())
        );
        assert_eq!(output(json!({}), None).await.outcome, Outcome::Ok);
        let asks = output(json!({ "resultType": "input_required" }), None).await;
        assert_eq!(asks.outcome, Outcome::Error);
    }
}
