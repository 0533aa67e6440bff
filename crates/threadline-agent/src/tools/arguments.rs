//! Arguments of a call: from the model's text to checked fields.

use serde_json::{Map, Value, json};
use threadline_session::payload::{ToolDefinition, replace_lone_surrogates};

use super::text::{printable, shorten};
use crate::limits::{ARGUMENT_BYTES, PATH_BYTES};

/// The arguments of a call cannot be used; the text tells the model what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// The text is no JSON.
    #[error("the arguments are not valid JSON: {reason}; send one JSON object")]
    NotJson {
        /// What the parser said.
        reason: String,
    },
    /// The text is JSON, but no object.
    #[error("the arguments must be one JSON object, not {found}")]
    NotObject {
        /// What it is instead.
        found: &'static str,
    },
    /// The text is too long.
    #[error("the arguments have {bytes} bytes; at most {most} are taken")]
    TooLarge {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        most: usize,
    },
    /// A required field is not there.
    #[error("argument `{field}` is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A field is of the wrong type.
    #[error("argument `{field}` must be {wanted}, not {found}")]
    WrongType {
        /// The field.
        field: &'static str,
        /// What it must be.
        wanted: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// A field has a value that makes no sense.
    #[error("argument `{field}` {problem}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A field is not known.
    #[error("argument `{field}` is not known; the arguments of {tool} are: {known}")]
    Unknown {
        /// The tool.
        tool: &'static str,
        /// The field.
        field: String,
        /// What is known.
        known: String,
    },
}

/// Parses the JSON text of a call's arguments; nothing at all counts as an empty object.
///
/// # Errors
/// When it is no JSON object; the error tells the model what was wrong.
pub fn parse_arguments(text: &str) -> Result<Value, ArgumentError> {
    if text.len() > ARGUMENT_BYTES {
        return Err(ArgumentError::TooLarge {
            bytes: text.len(),
            most: ARGUMENT_BYTES,
        });
    }
    if text.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    // Models cut characters outside the BMP in half now and then (field report 74).
    match serde_json::from_str(&replace_lone_surrogates(text)) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(other) => Err(ArgumentError::NotObject {
            found: kind(&other),
        }),
        Err(error) => Err(ArgumentError::NotJson {
            reason: error.to_string(),
        }),
    }
}

pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A field of a tool's arguments, as schema and as check.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) required: bool,
    pub(crate) about: &'static str,
}

impl Field {
    pub(crate) const fn required(
        name: &'static str,
        kind: &'static str,
        about: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            required: true,
            about,
        }
    }

    pub(crate) const fn optional(
        name: &'static str,
        kind: &'static str,
        about: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            required: false,
            about,
        }
    }
}

/// Makes the definition whose schema says exactly what [`Arguments::new`] accepts.
pub(crate) fn definition(name: &str, description: &str, fields: &[Field]) -> ToolDefinition {
    let properties: Map<String, Value> = fields
        .iter()
        .map(|field| {
            let schema = json!({ "type": field.kind, "description": field.about });
            (field.name.to_owned(), schema)
        })
        .collect();
    let required: Vec<&str> = fields
        .iter()
        .filter(|field| field.required)
        .map(|field| field.name)
        .collect();
    ToolDefinition {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        }),
    }
}

/// The arguments of one call, with unknown fields refused already.
pub(crate) struct Arguments<'a>(&'a Map<String, Value>);

impl<'a> Arguments<'a> {
    pub(crate) fn new(
        tool: &'static str,
        value: &'a Value,
        fields: &[Field],
    ) -> Result<Self, ArgumentError> {
        let Value::Object(map) = value else {
            return Err(ArgumentError::NotObject { found: kind(value) });
        };
        for key in map.keys() {
            if !fields.iter().any(|field| field.name == key) {
                let known: Vec<&str> = fields.iter().map(|field| field.name).collect();
                return Err(ArgumentError::Unknown {
                    tool,
                    field: shorten(&printable(key), 100),
                    known: known.join(", "),
                });
            }
        }
        Ok(Self(map))
    }

    /// Models write null for "not given", so null is absence.
    fn value(&self, field: &'static str) -> Option<&'a Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    pub(crate) fn optional_string(
        &self,
        field: &'static str,
    ) -> Result<Option<&'a str>, ArgumentError> {
        match self.value(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(ArgumentError::WrongType {
                field,
                wanted: "a string",
                found: kind(other),
            }),
        }
    }

    pub(crate) fn string(&self, field: &'static str) -> Result<&'a str, ArgumentError> {
        self.optional_string(field)?
            .ok_or(ArgumentError::Missing { field })
    }

    pub(crate) fn path(&self, field: &'static str) -> Result<&'a str, ArgumentError> {
        check_path(field, self.string(field)?)
    }

    pub(crate) fn optional_path(
        &self,
        field: &'static str,
    ) -> Result<Option<&'a str>, ArgumentError> {
        self.optional_string(field)?
            .map(|path| check_path(field, path))
            .transpose()
    }

    pub(crate) fn flag(&self, field: &'static str) -> Result<bool, ArgumentError> {
        match self.value(field) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(ArgumentError::WrongType {
                field,
                wanted: "true or false",
                found: kind(other),
            }),
        }
    }

    pub(crate) fn list(&self, field: &'static str) -> Result<Option<&'a [Value]>, ArgumentError> {
        match self.value(field) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(other) => Err(ArgumentError::WrongType {
                field,
                wanted: "an array",
                found: kind(other),
            }),
        }
    }

    /// Returns a whole number between 1 and `most`.
    pub(crate) fn count(
        &self,
        field: &'static str,
        most: u64,
    ) -> Result<Option<u64>, ArgumentError> {
        let Some(value) = self.value(field) else {
            return Ok(None);
        };
        let Value::Number(number) = value else {
            return Err(ArgumentError::WrongType {
                field,
                wanted: "a whole number",
                found: kind(value),
            });
        };
        match number.as_u64() {
            Some(count) if (1..=most).contains(&count) => Ok(Some(count)),
            _ => Err(ArgumentError::Invalid {
                field,
                problem: format!("must be a whole number from 1 to {most}, not {number}"),
            }),
        }
    }
}

pub(super) fn check_path<'a>(field: &'static str, path: &'a str) -> Result<&'a str, ArgumentError> {
    let problem = if path.is_empty() {
        "is empty".to_owned()
    } else if path.len() > PATH_BYTES {
        format!("has {} bytes; at most {PATH_BYTES} are taken", path.len())
    } else if path.contains('\0') {
        "contains a NUL character".to_owned()
    } else {
        return Ok(path);
    };
    Err(ArgumentError::Invalid { field, problem })
}
