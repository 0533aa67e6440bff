//! From a provider's error answer to a typed error.

use std::{borrow::Cow, time::Duration};

use serde_json::Value;

use crate::{ModelError, Rejection, limits, reject};

/// Words by which OpenAI, vLLM, llama.cpp, DeepSeek and others say that a request is too long.
const CONTEXT_MARKS: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "context length exceeded",
    "context window",
    "available context size",
    "prompt is too long",
    "request_too_large",
    "request exceeds the maximum size",
    "input length and `max_tokens` exceed context limit",
];

/// Words by which OpenAI and compatible servers say that an account is empty.
const QUOTA_MARKS: &[&str] = &["insufficient_quota", "insufficient balance"];

/// Makes the error of an answer with an error status.
pub(crate) fn http_error(status: u16, body: &[u8], retry_after: Option<Duration>) -> ModelError {
    let text = String::from_utf8_lossy(body);
    let text = threadline_session::payload::replace_lone_surrogates(&text);
    match serde_json::from_str::<Value>(&text) {
        Ok(value) => from_json(status, &value, retry_after),
        Err(_) => typed(
            status,
            &Said {
                message: &text,
                ..Said::default()
            },
            retry_after,
        ),
    }
}

/// Makes the error of an `error` object that came inside an open stream.
pub(crate) fn stream_error(frame: &Value) -> ModelError {
    let error = frame.get("error").filter(|error| error.is_object());
    let error = error.unwrap_or(frame);
    let numeric = |code: &Value| {
        let code = code.as_u64().or_else(|| code.as_str()?.parse().ok())?;
        u16::try_from(code)
            .ok()
            .filter(|code| (400..600).contains(code))
    };
    let named = |key: &str| error.get(key).and_then(Value::as_str).and_then(status_of);
    let status = error
        .get("code")
        .and_then(numeric)
        .or_else(|| named("code"))
        .or_else(|| named("type"))
        .unwrap_or(200);
    from_json(status, frame, None)
}

/// Returns the HTTP status that an error would have had outside a stream.
///
/// Sources: Anthropic's table of error types, OpenAI's list of response error codes.
fn status_of(kind: &str) -> Option<u16> {
    Some(match kind {
        "invalid_request_error" | "invalid_prompt" => 400,
        "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" | "rate_limit_exceeded" | "insufficient_quota" => 429,
        "api_error" | "server_error" => 500,
        "server_is_overloaded" | "slow_down" => 503,
        "timeout_error" => 504,
        "overloaded_error" => 529,
        _ => return None,
    })
}

/// What a provider says of an error.
#[derive(Default)]
struct Said<'a> {
    kinds: &'a str,
    param: &'a str,
    message: &'a str,
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
    let said = Said {
        kinds: &kinds.join(" "),
        param: words("param").unwrap_or_default(),
        message: &message,
    };
    typed(status, &said, retry_after)
}

fn typed(status: u16, said: &Said<'_>, retry_after: Option<Duration>) -> ModelError {
    let searched = format!("{} {} {}", said.kinds, said.param, said.message).to_lowercase();
    let says = |marks: &[&str]| marks.iter().any(|mark| searched.contains(mark));
    let message = tidy(said.message, status);
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
        // A trouble of the server's own is none of an item, whatever words it uses.
        200 | 400 | 404 | 413 | 415 | 422 => match reject::rejected(&searched) {
            Some(kind) => ModelError::ItemRejected(Box::new(Rejection {
                kind,
                path: reject::path_in(said.param, said.message),
                item: None,
                part: None,
                status,
                message,
            })),
            None if status == 413 => ModelError::ContextLength { message },
            None => ModelError::Status { status, message },
        },
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
    use crate::RejectedKind::{
        self, EncryptedReasoning, ImageTooLarge, ImageUnsupported, Surrogate, ThinkingSignature,
    };

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
                Some(500),
            ),
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                Some(529),
            ),
            (
                r#"{"type":"error","code":"server_error","message":"a","param":null}"#,
                Some(500),
            ),
            (r#"{"error":{"message":"a","code":"other"}}"#, Some(200)),
        ] {
            let error = stream_error(&serde_json::from_str(frame).unwrap());
            assert_eq!(error.status(), status, "{frame}");
        }
    }

    type Case = (u16, &'static str, RejectedKind, Option<&'static str>);

    fn check_refused(cases: &[Case]) {
        for (status, body, kind, path) in cases {
            let error = http_error(*status, body.as_bytes(), None);
            let ModelError::ItemRejected(found) = &error else {
                panic!("{error:?}")
            };
            assert_eq!(
                (found.kind, found.path.as_deref()),
                (*kind, *path),
                "{body}"
            );
            assert_eq!(
                (error.code(), error.status()),
                ("item_rejected", Some(*status))
            );
            assert!(error.hint().is_some());
        }
    }

    #[test]
    fn refused_reasoning_is_named_where_the_provider_names_it() {
        check_refused(&[
            (
                400,
                r#"{"error":{"message":"The encrypted content gAAA... could not be verified.",
                    "type":"invalid_request_error","param":"input[3].encrypted_content",
                    "code":"invalid_encrypted_content"}}"#,
                EncryptedReasoning,
                Some("input[3].encrypted_content"),
            ),
            (
                404,
                r#"{"error":{"message":"Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."}}"#,
                EncryptedReasoning,
                None,
            ),
            (
                400,
                r#"{"error":{"message":"Item 'rs_1' of type 'reasoning' was provided without its required following item.","param":"input"}}"#,
                EncryptedReasoning,
                None,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid `signature` in `thinking` block"}}"#,
                ThinkingSignature,
                Some("messages.1.content.0"),
            ),
            (
                400,
                r#"{"type":"error","error":{"message":"messages.5.content.28: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified."}}"#,
                ThinkingSignature,
                Some("messages.5.content.28"),
            ),
        ]);
    }

    #[test]
    fn refused_images_and_texts_are_named_where_the_provider_names_them() {
        check_refused(&[
            (
                400,
                r#"{"error":{"message":"messages.3.content.1.image.source.base64: image exceeds 5 MB maximum: 6500712 bytes > 5242880 bytes"}}"#,
                ImageTooLarge,
                Some("messages.3.content.1.image.source.base64"),
            ),
            (
                400,
                r#"{"error":{"message":"Could not process image","type":"invalid_request_error"}}"#,
                ImageUnsupported,
                None,
            ),
            (
                400,
                r#"{"error":{"message":"Invalid content type. image_url is only supported by certain models.","param":"messages.[1].content.[1].type","code":null}}"#,
                ImageUnsupported,
                Some("messages.[1].content.[1].type"),
            ),
            (
                400,
                r#"{"error":{"message":"You uploaded an unsupported image.","param":"input[0].content[1].image_url","code":"invalid_image_format"}}"#,
                ImageUnsupported,
                Some("input[0].content[1].image_url"),
            ),
            (
                400,
                r#"{"error":{"message":"messages.0.content.1.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"}}"#,
                ImageUnsupported,
                Some("messages.0.content.1.image.source.base64.media_type"),
            ),
            (
                400,
                r#"{"error":{"message":"messages.7.content.0.image.source.base64.data: At least one of the image dimensions exceed max allowed size: 8000 pixels"}}"#,
                ImageTooLarge,
                Some("messages.7.content.0.image.source.base64.data"),
            ),
            (
                400,
                r#"{"error":{"message":"The request body is not valid JSON: no low surrogate in string: line 1 column 3"}}"#,
                Surrogate,
                None,
            ),
        ]);
    }

    #[test]
    fn other_errors_are_about_no_item() {
        for (status, body) in [
            (500, r#"{"error":{"message":"Could not process image"}}"#),
            (400, r#"{"error":{"message":"temperature: 7 is too much"}}"#),
        ] {
            let error = http_error(status, body.as_bytes(), None);
            assert_eq!(error.code(), "provider_status", "{body}");
        }
    }

    #[test]
    fn every_dialect_says_in_its_own_words_that_the_context_is_full() {
        for (status, body) in [
            (
                400,
                r#"{"error":{"message":"prompt is too long: 208310 tokens > 200000 maximum","type":"invalid_request_error"}}"#,
            ),
            (
                413,
                r#"{"error":{"message":"Request exceeds the maximum size","type":"request_too_large"}}"#,
            ),
            (
                400,
                r#"{"error":{"message":"input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"}}"#,
            ),
            (
                400,
                r#"{"error":{"message":"Your input exceeds the context window of this model.","code":"context_length_exceeded","param":"input"}}"#,
            ),
        ] {
            let error = http_error(status, body.as_bytes(), None);
            assert_eq!(error.code(), "context_length", "{body}");
        }
    }
}
