//! What a prompt says: one text and its images.

use agent_client_protocol_schema::v1::{ContentBlock, EmbeddedResourceResource, Error};
use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::rpc::invalid_params;

/// A prompt as the agent takes it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) text: String,
    pub(crate) images: Vec<Vec<u8>>,
}

/// Reads the blocks of a prompt. Texts and links make one text in their order, as a person has
/// typed it; the content of embedded files follows behind.
///
/// # Errors
/// Says which block cannot be taken.
pub(crate) fn read(blocks: Vec<ContentBlock>) -> Result<Prompt, Error> {
    let mut prompt = Prompt::default();
    let mut embedded = String::new();
    for (block, number) in blocks.into_iter().zip(1..) {
        match block {
            ContentBlock::Text(text) => prompt.text.push_str(&text.text),
            ContentBlock::Image(image) => prompt.images.push(bytes(&image.data, number)?),
            ContentBlock::ResourceLink(link) => {
                prompt.text.push_str(&mention(&link.name, &link.uri));
            }
            ContentBlock::Resource(resource) => match resource.resource {
                EmbeddedResourceResource::TextResourceContents(file) => {
                    prompt
                        .text
                        .push_str(&mention(name_of(&file.uri), &file.uri));
                    embedded.push_str(&format!(
                        "\n\n<file uri=\"{}\">\n{}\n</file>",
                        file.uri,
                        file.text.trim_end_matches('\n')
                    ));
                }
                EmbeddedResourceResource::BlobResourceContents(file) => {
                    let image = file.mime_type.as_deref().unwrap_or_default();
                    if !image.starts_with("image/") {
                        return Err(refused(number, "a binary file that is no image"));
                    }
                    prompt
                        .text
                        .push_str(&mention(name_of(&file.uri), &file.uri));
                    prompt.images.push(bytes(&file.blob, number)?);
                }
                _ => return Err(refused(number, "a resource of an unknown kind")),
            },
            ContentBlock::Audio(_) => return Err(refused(number, "audio")),
            _ => return Err(refused(number, "of an unknown kind")),
        }
    }
    prompt.text.push_str(&embedded);
    if prompt.text.trim().is_empty() {
        return Err(invalid_params(
            "the prompt says nothing; add a text that says what is to be done",
        ));
    }
    Ok(prompt)
}

fn mention(name: &str, uri: &str) -> String {
    format!("[@{name}]({uri})")
}

fn name_of(uri: &str) -> &str {
    uri.rsplit('/').find(|part| !part.is_empty()).unwrap_or(uri)
}

fn bytes(data: &str, number: usize) -> Result<Vec<u8>, Error> {
    STANDARD
        .decode(data)
        .map_err(|_| refused(number, "an image whose data is no base64"))
}

fn refused(number: usize, what: &str) -> Error {
    invalid_params(&format!(
        "block {number} of the prompt is {what}; this agent takes text, files as text, links and \
         images"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(blocks: Value) -> Result<Prompt, Error> {
        read(serde_json::from_value(blocks).unwrap())
    }

    #[test]
    fn links_stand_where_they_were_typed_and_files_follow() {
        let prompt = of(json!([
            {"type": "text", "text": "compare "},
            {"type": "resource_link", "name": "a.rs", "uri": "file:///w/a.rs"},
            {"type": "text", "text": " with "},
            {"type": "resource", "resource": {"uri": "file:///w/b.rs", "text": "fn b() {}\n"}},
        ]));
        let text = "compare [@a.rs](file:///w/a.rs) with [@b.rs](file:///w/b.rs)\n\n\
                    <file uri=\"file:///w/b.rs\">\nfn b() {}\n</file>";
        assert_eq!(prompt.unwrap().text, text);
    }

    #[test]
    fn images_are_taken_and_sound_is_refused() {
        let image = json!({"type": "image", "mimeType": "image/png", "data": "AQI="});
        let prompt = of(json!([{"type": "text", "text": "see"}, image])).unwrap();
        assert_eq!(prompt.images, [vec![1, 2]]);
        let sound = json!([{"type": "audio", "mimeType": "audio/wav", "data": "AQI="}]);
        assert_eq!(i32::from(of(sound).unwrap_err().code), -32602);
        let broken = json!([{"type": "image", "mimeType": "image/png", "data": "?"}]);
        assert_eq!(i32::from(of(broken).unwrap_err().code), -32602);
    }

    #[test]
    fn a_prompt_without_words_is_refused() {
        assert!(of(json!([])).is_err());
        assert!(of(json!([{"type": "text", "text": " \n"}])).is_err());
    }
}
