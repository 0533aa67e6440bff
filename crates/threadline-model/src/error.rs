//! Why a model call failed.

use std::time::Duration;

use threadline_session::payload::ModelTrouble;

use crate::{RejectedKind, Rejection, reject::Places};

/// A model call failed for good. No variant ever holds the API key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The provider needs a key and was given none.
    #[error("the provider needs an API key and none is set")]
    MissingKey {
        /// Environment variable that holds it by convention.
        variable: &'static str,
    },
    /// The provider refused the key.
    #[error("the provider refused the API key (HTTP {status}): {message}")]
    Auth {
        /// HTTP status.
        status: u16,
        /// What the provider said.
        message: String,
    },
    /// The provider answered with an error.
    #[error("the provider answered with an error (HTTP {status}): {message}")]
    Status {
        /// HTTP status.
        status: u16,
        /// What the provider said.
        message: String,
    },
    /// Too many requests, also after the retries.
    #[error("the provider limits the request rate: {message}")]
    RateLimited {
        /// Wait that the provider asked for.
        retry_after: Option<Duration>,
        /// What the provider said.
        message: String,
    },
    /// The account has no credit left.
    #[error("the provider's account has no quota left: {message}")]
    Quota {
        /// What the provider said.
        message: String,
    },
    /// The request is longer than the model's context.
    #[error("the conversation is longer than the model's context: {message}")]
    ContextLength {
        /// What the provider said.
        message: String,
    },
    /// The provider refuses one item of the history, and would refuse it on every turn.
    #[error("{0}")]
    ItemRejected(Box<Rejection>),
    /// No connection, or it broke before the answer began.
    #[error("cannot reach the provider at {url}")]
    Connect {
        /// Address without credentials.
        url: String,
        /// What the network said.
        #[source]
        source: reqwest::Error,
    },
    /// The provider accepted the request and did not begin to answer.
    #[error("the provider did not begin to answer within {} s", after.as_secs_f64())]
    FirstByte {
        /// How long it was waited for.
        after: Duration,
    },
    /// The answer's stream went silent.
    #[error("the provider's answer stalled for {} s", after.as_secs_f64())]
    Idle {
        /// How long it was silent.
        after: Duration,
    },
    /// The answer's stream ended before the model did.
    #[error("the provider's answer was cut off before its end")]
    CutStream,
    /// The answer cannot be understood.
    #[error("the provider's answer cannot be read: {reason}")]
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
    /// The answer is larger than this side accepts.
    #[error("the provider's answer is too large: {what} over {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The limit, in `what`'s unit.
        limit: u64,
    },
}

impl ModelError {
    /// Returns the stable code that logs and interfaces show.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::MissingKey { .. } => "missing_key",
            Self::Auth { .. } => "auth",
            Self::Status { .. } => "provider_status",
            Self::RateLimited { .. } => "rate_limited",
            Self::Quota { .. } => "insufficient_quota",
            Self::ContextLength { .. } => "context_length",
            Self::ItemRejected(_) => "item_rejected",
            Self::Connect { .. } => "connect",
            Self::FirstByte { .. } => "first_byte_timeout",
            Self::Idle { .. } => "idle_timeout",
            Self::CutStream => "cut_stream",
            Self::Malformed { .. } => "malformed_response",
            Self::TooLarge { .. } => "response_too_large",
        }
    }

    /// Returns what a person can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::MissingKey { variable } => {
                format!("set {variable} to your key, or try `--provider offline`, which needs none")
            }
            Self::Auth { .. } => {
                "check that the key belongs to this provider and base URL and may use the model"
                    .into()
            }
            Self::Status { status: 404, .. } => {
                "check the model's name and the base URL; it usually ends in `/v1`".into()
            }
            Self::Status {
                status: 500..=599, ..
            } => "the provider has trouble; send the message again in a while".into(),
            Self::Status { .. } => return None,
            Self::RateLimited {
                retry_after: Some(after),
                ..
            } => format!("send the message again in {} s", after.as_secs().max(1)),
            Self::RateLimited { .. } => "send the message again in a while".into(),
            Self::Quota { .. } => {
                "add credit to the provider's account, or use another model".into()
            }
            Self::ContextLength { .. } => {
                "compact the session, or use a model with a longer context".into()
            }
            Self::ItemRejected(rejection) => match rejection.kind {
                RejectedKind::ImageTooLarge => "send the image again in a smaller size".into(),
                RejectedKind::ImageUnsupported => {
                    "use a model that takes images, or send PNG, JPEG, GIF or WebP".into()
                }
                RejectedKind::EncryptedReasoning
                | RejectedKind::ThinkingSignature
                | RejectedKind::Surrogate => {
                    "send the message again without the refused item; the rest is unharmed".into()
                }
            },
            Self::Connect { url, .. } => {
                format!("check that a server answers at {url} and that the network is up")
            }
            Self::FirstByte { .. } | Self::Idle { .. } => {
                "send the message again; raise the timeout if the model is just slow".into()
            }
            Self::CutStream => "send the message again".into(),
            Self::Malformed { .. } => {
                "check that the base URL is one of a compatible server".into()
            }
            Self::TooLarge { .. } => "ask for a shorter answer".into(),
        };
        Some(hint)
    }

    /// Returns the HTTP status, when there was one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Auth { status, .. } | Self::Status { status, .. } => Some(*status),
            Self::RateLimited { .. } | Self::Quota { .. } => Some(429),
            Self::ItemRejected(rejection) => Some(rejection.status),
            Self::MissingKey { .. }
            | Self::ContextLength { .. }
            | Self::Connect { .. }
            | Self::FirstByte { .. }
            | Self::Idle { .. }
            | Self::CutStream
            | Self::Malformed { .. }
            | Self::TooLarge { .. } => None,
        }
    }

    /// Returns the error with the network's own words, for a log or a screen line.
    #[must_use]
    pub fn message(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            let next = error.to_string();
            if !text.ends_with(&next) {
                text.push_str(": ");
                text.push_str(&next);
            }
            source = error.source();
        }
        text
    }

    /// Returns the record that the session's log keeps of this failure.
    #[must_use]
    pub fn trouble(&self, attempt: u32, delay: Option<Duration>) -> ModelTrouble {
        ModelTrouble {
            attempt,
            status: self.status(),
            message: self.message(),
            delay_ms: delay.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    /// Returns the refused item, when it is one that the call failed for.
    #[must_use]
    pub fn rejection(&self) -> Option<&Rejection> {
        match self {
            Self::ItemRejected(rejection) => Some(rejection),
            _ => None,
        }
    }

    /// Fills in which item of the history was refused.
    pub(crate) fn located(mut self, places: &Places) -> Self {
        if let Self::ItemRejected(rejection) = &mut self {
            places.locate(rejection);
        }
        self
    }

    /// Rewrites the provider's own words.
    pub(crate) fn map_message(mut self, rewrite: impl FnOnce(String) -> String) -> Self {
        match &mut self {
            Self::Auth { message, .. }
            | Self::Status { message, .. }
            | Self::RateLimited { message, .. }
            | Self::Quota { message }
            | Self::ContextLength { message }
            | Self::Malformed { reason: message } => *message = rewrite(std::mem::take(message)),
            Self::ItemRejected(rejection) => {
                rejection.message = rewrite(std::mem::take(&mut rejection.message));
            }
            Self::MissingKey { .. }
            | Self::Connect { .. }
            | Self::FirstByte { .. }
            | Self::Idle { .. }
            | Self::CutStream
            | Self::TooLarge { .. } => {}
        }
        self
    }
}
