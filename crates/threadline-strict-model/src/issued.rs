//! What the server has issued and wants back as it was.

use std::collections::BTreeMap;

use serde_json::Value;

/// Reasoning and thinking that the server has issued.
#[derive(Debug, Default)]
pub(crate) struct Issued {
    /// Reasoning items by their id.
    pub(crate) reasoning: BTreeMap<String, Reasoning>,
    /// The reasoning that an item followed, by the item's id.
    pub(crate) after: BTreeMap<String, String>,
    /// The blocks of the answers that called tools.
    pub(crate) answers: Vec<Vec<Value>>,
    /// Thinking blocks, with the model that issued each.
    pub(crate) thinking: Vec<(String, Value)>,
}

/// A reasoning item.
#[derive(Debug)]
pub(crate) struct Reasoning {
    pub(crate) model: String,
    pub(crate) item: Value,
    /// The item that came after it.
    pub(crate) next: Option<Value>,
}

impl Issued {
    /// Remembers the output of a response.
    pub(crate) fn output(&mut self, model: &str, output: &[Value]) {
        for (at, item) in output.iter().enumerate() {
            let id = item["id"].as_str().unwrap_or_default();
            if item["type"] != "reasoning" {
                continue;
            }
            let next = output.get(at + 1);
            if let Some(next) = next.and_then(|next| next["id"].as_str()) {
                self.after.insert(next.to_owned(), id.to_owned());
            }
            let reasoning = Reasoning {
                model: model.to_owned(),
                item: item.clone(),
                next: next.cloned(),
            };
            self.reasoning.insert(id.to_owned(), reasoning);
        }
    }

    /// Remembers the content of a message.
    pub(crate) fn content(&mut self, model: &str, content: &[Value]) {
        let thinking = content.iter().filter(|block| is_thinking(block)).cloned();
        self.thinking
            .extend(thinking.map(|block| (model.to_owned(), block)));
        if content.iter().any(|block| block["type"] == "tool_use") {
            self.answers.push(content.to_vec());
        }
    }
}

pub(crate) fn is_thinking(block: &Value) -> bool {
    block["type"] == "thinking" || block["type"] == "redacted_thinking"
}

/// Returns what only this server can have made of a text.
pub(crate) fn seal(model: &str, id: &str, text: &str) -> String {
    let hash = blake3::hash(format!("strict-model\0{model}\0{id}\0{text}").as_bytes());
    format!("gAAAAAB{}", hash.to_hex())
}
