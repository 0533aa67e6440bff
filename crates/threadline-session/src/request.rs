//! What a step sends, rebuilt from the log alone, and its fingerprint.

use serde::Serialize;

use crate::{
    HistoryItem, NormaliseReport, Transcript, normalise,
    payload::{ModelRef, RequestMark, ToolDefinition},
};

/// A model request before any provider's dialect. Everything in it comes from the log.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Provider name.
    pub provider: String,
    /// Model name.
    pub model: String,
    /// System prompt.
    pub system: String,
    /// Tools offered.
    pub tools: Vec<ToolDefinition>,
    /// Normalised history.
    pub items: Vec<HistoryItem>,
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
}

/// BLAKE3 of a request's canonical JSON, with its size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// The hash, hex.
    pub hash: String,
    /// History items in the request.
    pub items: u64,
    /// Bytes of the canonical JSON.
    pub bytes: u64,
}

impl From<Fingerprint> for RequestMark {
    fn from(print: Fingerprint) -> Self {
        Self {
            fingerprint: print.hash,
            items: print.items,
            bytes: print.bytes,
        }
    }
}

/// Says why no request can be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No turn has begun, so there is no model to ask.
    #[error("the session has no turn, so it has no request")]
    NoTurn,
    /// Content that the request needs is not in memory, or is of a shape this version cannot read.
    #[error(
        "the content of event {seq} cannot be read, and the model must not miss it: verify the session"
    )]
    Unheld {
        /// The event.
        seq: u64,
    },
    /// The request does not serialize.
    #[error("the request cannot be serialized: {reason}")]
    Serialize {
        /// What is wrong.
        reason: String,
    },
}

impl Request {
    /// Builds the request that the transcript's next step sends.
    ///
    /// # Errors
    /// [`RequestError::NoTurn`] before the first turn; [`RequestError::Unheld`] when an item's
    /// content is missing.
    pub fn build(transcript: &Transcript) -> Result<(Self, NormaliseReport), RequestError> {
        let context = transcript.context().ok_or(RequestError::NoTurn)?;
        if let Some(seq) = transcript.unheld() {
            return Err(RequestError::Unheld { seq });
        }
        let target = ModelRef {
            provider: context.provider.clone(),
            name: context.model.clone(),
        };
        let (items, report) = normalise(transcript, &target);
        let (system, tools) = transcript
            .system()
            .map(|prompt| (prompt.text.clone(), prompt.tools.clone()))
            .unwrap_or_default();
        let temperature = context.temperature;
        let request = Self {
            provider: target.provider,
            model: target.name,
            system,
            tools,
            items,
            temperature,
        };
        Ok((request, report))
    }

    /// Returns the fingerprint.
    ///
    /// # Errors
    /// [`RequestError::Serialize`].
    pub fn fingerprint(&self) -> Result<Fingerprint, RequestError> {
        let json = serde_json::to_vec(self).map_err(|e| RequestError::Serialize {
            reason: e.to_string(),
        })?;
        Ok(Fingerprint {
            hash: blake3::hash(&json).to_hex().to_string(),
            items: self.items.len() as u64,
            bytes: json.len() as u64,
        })
    }
}
