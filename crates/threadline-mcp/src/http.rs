//! Servers that are reached over HTTP.

use std::{collections::HashMap, error::Error};

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::transport::{
    StreamableHttpClientTransport,
    streamable_http_client::{
        AuthRequiredError, HttpStatusError, InsufficientScopeError,
        StreamableHttpClientTransportConfig, StreamableHttpError,
    },
};

use crate::{
    config::{expand, own_variable},
    limits::{CONNECT_TIME, MESSAGE_BYTES},
    problem::Problem,
};

pub(crate) type HttpTransport = StreamableHttpClientTransport<reqwest::Client>;

/// Makes the way to a server. Nothing is sent yet.
pub(crate) fn transport<'a>(
    url: &str,
    headers: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Result<HttpTransport, Problem> {
    let url = expand(url, &own_variable)?;
    // What is wrong with it is not said with the address itself, which may hold a secret.
    let parsed = reqwest::Url::parse(&url).map_err(|_| Problem::new("its `url` is no address"))?;
    let mut held = HashMap::new();
    for (name, value) in headers {
        let value = expand(value, &own_variable)?;
        let wrong = || Problem::new(format!("its header `{name}` cannot be sent"));
        let mut value = HeaderValue::from_str(&value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        held.insert(
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?,
            value,
        );
    }
    let client = threadline_model::http_client(&parsed, CONNECT_TIME)
        .map_err(|_| Problem::new("no certificates can be used to check who it is"))?;
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(held)
        .max_sse_event_size(MESSAGE_BYTES)
        .max_json_response_size(MESSAGE_BYTES);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// What is known of a request that failed on its way.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It never left.
    NotSent,
    /// The server refused it.
    Refused(String),
    /// The connection broke, and it may have arrived.
    Broken,
    /// It may have arrived, and the answer cannot be read.
    Unknown,
}

/// Looks at why a request failed. What is told names no address and no body.
pub(crate) fn way(error: &(dyn Error + 'static)) -> Way {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<AuthRequiredError>() {
            return Way::Refused("it wants to know who you are (HTTP 401)".into());
        }
        if error.is::<InsufficientScopeError>() {
            return Way::Refused("it does not let you (HTTP 403)".into());
        }
        if let Some(status) = error.downcast_ref::<HttpStatusError>() {
            // What a server in between answers says nothing of the one behind it.
            return match status.status {
                400..=499 => Way::Refused(format!("HTTP {}", status.status)),
                _ => Way::Unknown,
            };
        }
        match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            Some(StreamableHttpError::SessionExpired) => {
                return Way::Refused("it no longer knows the connection (HTTP 404)".into());
            }
            // It does not name the error as its source.
            Some(StreamableHttpError::Client(error)) => return way_of_request(error),
            // The status comes first, and what the server adds to it is left out.
            Some(StreamableHttpError::UnexpectedServerResponse(text)) => {
                let status = text.strip_prefix("HTTP ").and_then(|rest| rest.get(..3));
                if let Some(status) = status.filter(|code| code.starts_with(['3', '4'])) {
                    return Way::Refused(format!("HTTP {status}"));
                }
            }
            _ => {}
        }
        next = error.source();
    }
    Way::Unknown
}

fn way_of_request(error: &reqwest::Error) -> Way {
    if error.is_connect() || error.is_builder() {
        return Way::NotSent;
    }
    match error.status().filter(reqwest::StatusCode::is_client_error) {
        Some(status) => Way::Refused(format!("HTTP {status}")),
        None => Way::Broken,
    }
}
