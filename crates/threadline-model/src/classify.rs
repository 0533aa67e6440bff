//! From a provider's error answer to a typed error.

use std::{borrow::Cow, time::Duration};

use serde_json::Value;

use crate::{ModelError, limits};

/// Words by which OpenAI, vLLM, llama.cpp, DeepSeek and others say that a request is too long.
const CONTEXT_MARKS: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "context length exceeded",
    "context window",
    "available context size",
    "prompt is too long",
];

/// Words by which OpenAI and compatible servers say that an account is empty.
const QUOTA_MARKS: &[&str] = &["insufficient_quota", "insufficient balance"];

/// Makes the error of an answer with an error status.
pub(crate) fn http_error(status: u16, body: &[u8], retry_after: Option<Duration>) -> ModelError {
    let text = String::from_utf8_lossy(body);
    let text = threadline_session::payload::replace_lone_surrogates(&text);
    match serde_json::from_str::<Value>(&text) {
        Ok(value) => from_json(status, &value, retry_after),
        Err(_) => typed(status, "", &text, retry_after),
    }
}

/// Makes the error of an `error` object that came inside an open stream.
pub(crate) fn stream_error(frame: &Value) -> ModelError {
    let code = frame.pointer("/error/code");
    let status = code
        .and_then(|code| code.as_u64().or_else(|| code.as_str()?.parse().ok()))
        .and_then(|code| u16::try_from(code).ok())
        .filter(|code| (400..600).contains(code))
        .unwrap_or(200);
    from_json(status, frame, None)
}

fn from_json(status: u16, value: &Value, retry_after: Option<Duration>) -> ModelError {
    let error = value.get("error").filter(|error| !error.is_null());
    let error = error.unwrap_or(value);
    let words = |key: &str| error.get(key).and_then(Value::as_str);
    let message: Cow<'_, str> = match error {
        Value::String(text) => text.into(),
        _ => words("message")
            .or_else(|| words("detail"))
            .map_or_else(|| error.to_string().into(), Into::into),
    };
    let kinds = [words("code"), words("type")];
    let kinds: Vec<&str> = kinds.into_iter().flatten().collect();
    typed(status, &kinds.join(" "), &message, retry_after)
}

fn typed(status: u16, kinds: &str, message: &str, retry_after: Option<Duration>) -> ModelError {
    let searched = format!("{kinds} {message}").to_lowercase();
    let says = |marks: &[&str]| marks.iter().any(|mark| searched.contains(mark));
    let message = tidy(message, status);
    match status {
        401 | 403 => ModelError::Auth { status, message },
        402 => ModelError::Quota { message },
        429 if says(QUOTA_MARKS) => ModelError::Quota { message },
        429 => ModelError::RateLimited {
            retry_after,
            message,
        },
        _ if status < 500 && says(CONTEXT_MARKS) => ModelError::ContextLength { message },
        500 if says(&["exceed_context_size", "context_length_exceeded"]) => {
            ModelError::ContextLength { message }
        }
        _ => ModelError::Status { status, message },
    }
}

/// One line of bounded length: a proxy may answer with a whole page.
fn tidy(message: &str, status: u16) -> String {
    let words: Vec<&str> = message.split_whitespace().collect();
    let line: String = words
        .join(" ")
        .chars()
        .filter(|c| !c.is_control())
        .take(limits::MAX_ERROR_CHARS)
        .collect();
    if !line.is_empty() {
        return line;
    }
    reqwest::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("no message")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_typed_errors() {
        for (status, body, code, shown) in [
            (401, r#"{"error":{"message":"bad key"}}"#, "auth", "bad key"),
            (403, "", "auth", "Forbidden"),
            (
                404,
                r#"{"error":"model 'x' not found"}"#,
                "provider_status",
                "model 'x' not found",
            ),
            (422, r#"{"detail":"no"}"#, "provider_status", "no"),
            (
                429,
                r#"{"error":{"message":"slow down"}}"#,
                "rate_limited",
                "slow down",
            ),
            (
                429,
                r#"{"error":{"message":"pay","code":"insufficient_quota"}}"#,
                "insufficient_quota",
                "pay",
            ),
            (
                400,
                r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#,
                "context_length",
                "too long",
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 8 tokens."}"#,
                "context_length",
                "maximum context length",
            ),
            (
                502,
                "<html>\n<b>Bad\u{1b}[31m gateway</b>",
                "provider_status",
                "<html> <b>Bad[31m",
            ),
            (
                500,
                r#"{"error":{"message":"\ud800"}}"#,
                "provider_status",
                "\u{fffd}",
            ),
            (500, r#"{"error":null}"#, "provider_status", "null"),
        ] {
            let error = http_error(status, body.as_bytes(), None);
            assert_eq!(error.code(), code, "{body}");
            assert!(error.to_string().contains(shown), "{error}");
        }
        let long = http_error(500, "x".repeat(10_000).as_bytes(), None).to_string();
        assert!(long.len() < limits::MAX_ERROR_CHARS + 100);
    }

    #[test]
    fn errors_inside_a_stream_keep_their_status() {
        for (frame, status) in [
            (r#"{"error":{"message":"a","code":502}}"#, Some(502)),
            (r#"{"error":{"message":"a","code":"429"}}"#, Some(429)),
            (
                r#"{"error":{"message":"a","code":"server_error"}}"#,
                Some(200),
            ),
        ] {
            let error = stream_error(&serde_json::from_str(frame).unwrap());
            assert_eq!(error.status(), status, "{frame}");
        }
    }
}
