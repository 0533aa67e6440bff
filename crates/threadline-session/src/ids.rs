//! Session and run identities.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::limits::MAX_ID_BYTES;

/// Says why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is empty.
    #[error("an id must not be empty")]
    Empty,
    /// The text is longer than [`MAX_ID_BYTES`].
    #[error("an id of {len} bytes is longer than {MAX_ID_BYTES}")]
    TooLong {
        /// Length in bytes.
        len: usize,
    },
    /// The text holds a control character.
    #[error("an id must not hold control characters")]
    Control,
}

fn check(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > MAX_ID_BYTES {
        return Err(IdError::TooLong { len: text.len() });
    }
    if text.chars().any(char::is_control) {
        return Err(IdError::Control);
    }
    Ok(())
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Checks and takes a text as an id.
            ///
            /// # Errors
            /// [`IdError`] when it is empty, too long or holds control characters.
            pub fn parse(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                check(&text)?;
                Ok(Self(text))
            }

            /// Takes a UUID (version 7 for ids that Threadline itself makes).
            #[must_use]
            pub fn from_uuid(id: uuid::Uuid) -> Self {
                Self(id.to_string())
            }

            /// Returns the id's text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the id as a UUID when it is one in its canonical spelling.
            #[must_use]
            pub fn as_uuid(&self) -> Option<uuid::Uuid> {
                let id = uuid::Uuid::try_parse(&self.0).ok()?;
                (id.to_string() == self.0).then_some(id)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                Self::parse(String::deserialize(d)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

id! {
    /// Identifies one conversation; equals the run id of its first turn and never changes.
    SessionId
}
id! {
    /// Identifies one turn of a conversation.
    RunId
}

impl SessionId {
    /// Returns the first eight characters, as pages and lists show them.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0
            .char_indices()
            .nth(8)
            .map_or(&self.0, |(at, _)| &self.0[..at])
    }

    /// Returns the session id of a conversation that begins with this run.
    #[must_use]
    pub fn from_first_run(run: &RunId) -> Self {
        Self(run.0.clone())
    }
}
