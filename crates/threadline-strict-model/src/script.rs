//! What the server answers.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A script's JSON cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the script cannot be read: {source}; its format is in the crate's documentation")]
pub struct ScriptError {
    /// What is wrong.
    #[from]
    source: serde_json::Error,
}

type Answer = Arc<dyn Fn(&Value) -> Reply + Send + Sync>;

/// One scripted answer.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Reply {
    pub(crate) when: Option<When>,
    pub(crate) repeat: bool,
    text: Option<String>,
    steps: Vec<Step>,
    pub(crate) finish: Option<String>,
    pub(crate) usage: Option<Tokens>,
    pub(crate) status: Option<u16>,
    pub(crate) retry_after: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) code: Option<String>,
    #[serde(skip)]
    pub(crate) answer: Option<Answer>,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("when", &self.when)
            .field("status", &self.status)
            .field("steps", &self.steps)
            .field("from_fn", &self.answer.is_some())
            .finish_non_exhaustive()
    }
}

/// Which requests a reply is for; everything given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct When {
    /// Text that the last user message holds.
    pub user: Option<String>,
    /// Text that the last message holds.
    pub last: Option<String>,
    /// Text that the body's bytes hold.
    pub body: Option<String>,
}

/// Tokens that a reply reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Tokens {
    pub(crate) input: u64,
    pub(crate) output: u64,
    /// Part of the input that was cached.
    #[serde(default)]
    pub(crate) cached: u64,
    /// Part of the input that is cached from now on, where the dialect tells it.
    #[serde(default)]
    pub(crate) created: u64,
    #[serde(default)]
    pub(crate) reasoning: u64,
}

/// One thing that a reply does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Streams a piece of text.
    Text(String),
    /// Streams a piece of reasoning.
    Reasoning(String),
    /// Reasoning that nobody may read: a redacted block, or an encrypted item without a summary.
    Redacted(String),
    /// Streams a whole tool call, its arguments in pieces.
    ToolCall {
        /// Call id.
        id: String,
        /// Tool name.
        name: String,
        /// An object, or a text that is sent as it is.
        arguments: Value,
    },
    /// Begins a tool call.
    ToolStart {
        /// Position among the calls.
        index: u32,
        /// Call id.
        id: String,
        /// Tool name.
        name: String,
    },
    /// Streams a piece of a tool call's arguments.
    ToolArgs {
        /// Position among the calls.
        index: u32,
        /// The piece.
        delta: String,
    },
    /// Waits until the gate is opened.
    Gate(String),
    /// Waits this many milliseconds; for demonstrations by hand.
    Pause(u64),
    /// Sends one frame with this data.
    Raw(String),
    /// Sends a frame that is not JSON.
    Malformed,
    /// Breaks the connection.
    Cut,
    /// Sends nothing more and keeps the connection open.
    Stall,
}

impl Reply {
    /// Answers with text, streamed word by word.
    #[must_use]
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::default().and_text(text)
    }

    /// Answers with a tool call.
    #[must_use]
    pub fn call(id: impl Into<String>, name: impl Into<String>, arguments: Value) -> Self {
        Self::default().and_call(id, name, arguments)
    }

    /// Answers with these steps.
    #[must_use]
    pub fn steps(steps: impl IntoIterator<Item = Step>) -> Self {
        Self {
            steps: steps.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Answers with an HTTP error.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self {
            status: Some(status),
            ..Self::default()
        }
    }

    /// Answers with what a function makes of the request's JSON.
    #[must_use]
    pub fn from_fn(answer: impl Fn(&Value) -> Self + Send + Sync + 'static) -> Self {
        Self {
            answer: Some(Arc::new(answer)),
            ..Self::default()
        }
    }

    /// Reads a reply or a list of replies from JSON.
    ///
    /// # Errors
    /// [`ScriptError`] says where the JSON is wrong.
    pub fn from_json(json: &str) -> Result<Vec<Self>, ScriptError> {
        let value: Value = serde_json::from_str(json)?;
        Ok(match value {
            Value::Array(_) => serde_json::from_value(value)?,
            _ => vec![serde_json::from_value(value)?],
        })
    }

    /// Adds a step.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Adds text, one step a word.
    #[must_use]
    pub fn and_text(mut self, text: impl AsRef<str>) -> Self {
        self.steps.extend(words(text.as_ref()));
        self
    }

    /// Adds a piece of reasoning.
    #[must_use]
    pub fn and_reasoning(self, text: impl Into<String>) -> Self {
        self.step(Step::Reasoning(text.into()))
    }

    /// Adds a tool call.
    #[must_use]
    pub fn and_call(
        self,
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: Value,
    ) -> Self {
        self.step(Step::ToolCall {
            id: id.into(),
            name: name.into(),
            arguments,
        })
    }

    /// Waits at a gate here.
    #[must_use]
    pub fn gate(self, name: impl Into<String>) -> Self {
        self.step(Step::Gate(name.into()))
    }

    /// Breaks the connection here.
    #[must_use]
    pub fn cut(self) -> Self {
        self.step(Step::Cut)
    }

    /// Breaks the connection after so many steps.
    #[must_use]
    pub fn cut_after(mut self, steps: usize) -> Self {
        self.steps.truncate(steps);
        self.cut()
    }

    /// Falls silent here.
    #[must_use]
    pub fn stall(self) -> Self {
        self.step(Step::Stall)
    }

    /// Sends a frame that is not JSON here.
    #[must_use]
    pub fn malformed(self) -> Self {
        self.step(Step::Malformed)
    }

    /// Ends with this finish reason.
    #[must_use]
    pub fn finish(mut self, reason: impl Into<String>) -> Self {
        self.finish = Some(reason.into());
        self
    }

    /// Reports these tokens.
    #[must_use]
    pub fn usage(mut self, input: u64, output: u64, cached: u64) -> Self {
        self.usage = Some(Tokens {
            input,
            output,
            cached,
            created: 0,
            reasoning: 0,
        });
        self
    }

    /// Sends this `Retry-After` header with an error.
    #[must_use]
    pub fn retry_after(mut self, value: impl Into<String>) -> Self {
        self.retry_after = Some(value.into());
        self
    }

    /// Says this in an error.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Gives an error this code.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Is only for requests whose last user message holds this text.
    #[must_use]
    pub fn when_user(mut self, text: impl Into<String>) -> Self {
        self.when.get_or_insert_default().user = Some(text.into());
        self
    }

    /// Is only for requests whose last message holds this text.
    #[must_use]
    pub fn when_last(mut self, text: impl Into<String>) -> Self {
        self.when.get_or_insert_default().last = Some(text.into());
        self
    }

    /// Stays in the script after it was used.
    #[must_use]
    pub fn repeat(mut self) -> Self {
        self.repeat = true;
        self
    }

    /// Returns all steps, the text short form included.
    pub(crate) fn into_steps(self) -> Vec<Step> {
        let mut steps: Vec<Step> = self.text.as_deref().map(words).unwrap_or_default();
        steps.extend(self.steps);
        steps
    }

    /// Returns the names of the tools that the reply calls.
    pub(crate) fn called_tools(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| match step {
            Step::ToolCall { name, .. } | Step::ToolStart { name, .. } => Some(name.as_str()),
            _ => None,
        })
    }
}

fn words(text: &str) -> Vec<Step> {
    let pieces = text.split_inclusive(' ');
    pieces.map(|piece| Step::Text(piece.to_owned())).collect()
}
