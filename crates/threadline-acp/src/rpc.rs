//! JSON-RPC: what a line means, and how it is answered.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use agent_client_protocol_schema::v1::Error;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};
use tokio::sync::oneshot;

use crate::transport::{Gone, Outbox};

/// The id of a request: a number, a text or null, given back as it came.
pub(crate) type Id = Value;

/// What a line says.
#[derive(Debug)]
pub(crate) enum Incoming {
    Request {
        id: Id,
        method: String,
        params: Params,
    },
    Notification {
        method: String,
        params: Params,
    },
    /// The answer to a request of ours.
    Response {
        id: Id,
        answer: Result<Box<RawValue>, Error>,
    },
}

/// Why a line says nothing, and the id it is answered under.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) id: Id,
    pub(crate) error: Box<Error>,
}

#[derive(Deserialize)]
struct Raw {
    jsonrpc: Option<String>,
    #[serde(default, deserialize_with = "present")]
    id: Option<Value>,
    method: Option<String>,
    params: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Box<RawValue>>,
    error: Option<Error>,
}

/// Tells a null apart from nothing.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Option<T>, D::Error> {
    T::deserialize(d).map(Some)
}

/// Returns the error of a line that is no JSON. What the line holds is not repeated.
pub(crate) fn unreadable(reason: &str) -> Refused {
    Refused {
        id: Value::Null,
        error: Box::new(Error::parse_error().data(json!({ "reason": reason }))),
    }
}

/// Reads a line.
pub(crate) fn parse(line: &str) -> Result<Incoming, Refused> {
    let raw: Raw = match serde_json::from_str(line) {
        Ok(raw) => raw,
        Err(error) if error.is_data() => return Err(invalid(Value::Null, "it is no message")),
        Err(_) => return Err(unreadable("the line is no JSON")),
    };
    let id = match raw.id {
        Some(Value::Number(number)) if number.is_f64() => {
            return Err(invalid(
                Value::Null,
                "`id` must be a whole number or a text",
            ));
        }
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
            return Err(invalid(
                Value::Null,
                "`id` must be a whole number or a text",
            ));
        }
        id => id,
    };
    if raw.jsonrpc.as_deref() != Some("2.0") {
        return Err(invalid(id.unwrap_or_default(), "`jsonrpc` must be \"2.0\""));
    }
    let params = Params(raw.params);
    match (raw.method, id, raw.result, raw.error) {
        (Some(method), Some(id), None, None) => Ok(Incoming::Request { id, method, params }),
        (Some(method), None, None, None) => Ok(Incoming::Notification { method, params }),
        (None, Some(id), Some(result), None) => Ok(Incoming::Response {
            id,
            answer: Ok(result),
        }),
        (None, Some(id), None, Some(error)) => Ok(Incoming::Response {
            id,
            answer: Err(error),
        }),
        (_, id, ..) => Err(invalid(
            id.unwrap_or_default(),
            "it is neither a request, a notification nor a response",
        )),
    }
}

fn invalid(id: Id, reason: &str) -> Refused {
    Refused {
        id,
        error: Box::new(Error::invalid_request().data(json!({ "reason": reason }))),
    }
}

/// The parameters of a message.
#[derive(Debug)]
pub(crate) struct Params(Option<Box<RawValue>>);

impl Params {
    /// Reads them.
    ///
    /// # Errors
    /// Says which field is wrong. A value is never repeated: it may be a key.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let text = self.0.as_ref().map_or("{}", |raw| raw.get());
        let mut json = serde_json::Deserializer::from_str(text);
        serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = error.path().to_string();
            invalid_params(&format!("`{path}` is missing or of a wrong shape"))
                .data(json!({ "field": path }))
        })
    }
}

/// Returns an error about parameters.
pub(crate) fn invalid_params(message: &str) -> Error {
    Error::new(-32602, format!("Invalid params: {message}"))
}

/// Returns an error about the moment of a request.
pub(crate) fn invalid_request(message: &str) -> Error {
    Error::new(-32600, format!("Invalid request: {message}"))
}

#[derive(Serialize)]
struct Response<'a, T> {
    jsonrpc: &'static str,
    id: &'a Id,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Error>,
}

#[derive(Serialize)]
struct Call<'a, T> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    params: T,
}

type Answer = Result<Box<RawValue>, Error>;

/// The client, as the agent talks to it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Peer {
    outbox: Outbox,
    next: Arc<AtomicU64>,
    waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>,
}

impl Peer {
    pub(crate) fn new(outbox: Outbox) -> Self {
        Self {
            outbox,
            next: Arc::default(),
            waiting: Arc::default(),
        }
    }

    /// Waits until the client reads no more.
    pub(crate) async fn closed(&self) {
        self.outbox.closed().await;
    }

    /// Answers a request.
    ///
    /// # Errors
    /// [`Gone`].
    pub(crate) async fn respond(
        &self,
        id: &Id,
        answer: Result<impl Serialize, Error>,
    ) -> Result<(), Gone> {
        let (result, error) = match answer {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        let response = Response {
            jsonrpc: "2.0",
            id,
            result,
            error: error.as_ref(),
        };
        self.outbox.send(&response).await
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// [`Gone`].
    pub(crate) async fn notify(&self, method: &str, params: impl Serialize) -> Result<(), Gone> {
        let call = Call {
            jsonrpc: "2.0",
            id: None,
            method,
            params,
        };
        self.outbox.send(&call).await
    }

    /// Sends a request. Never to be awaited where lines are read.
    ///
    /// # Errors
    /// [`Gone`].
    pub(crate) async fn request(
        &self,
        method: &str,
        params: impl Serialize,
    ) -> Result<Asked, Gone> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting().insert(id, sender);
        // From here on dropping it takes the request out again.
        let asked = Asked {
            id,
            answer,
            peer: self.clone(),
        };
        let call = Call {
            jsonrpc: "2.0",
            id: Some(id),
            method,
            params,
        };
        self.outbox.send(&call).await?;
        Ok(asked)
    }

    /// Hands the answer to whoever has asked. One that nobody waits for is passed over.
    pub(crate) fn answered(&self, id: &Id, answer: Answer) {
        let sender = id.as_u64().and_then(|id| self.waiting().remove(&id));
        if let Some(sender) = sender {
            // Who asked may have gone on meanwhile.
            let _ = sender.send(answer);
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request of ours that the client has not answered yet.
pub(crate) struct Asked {
    pub(crate) id: u64,
    answer: oneshot::Receiver<Answer>,
    peer: Peer,
}

impl Asked {
    /// Waits for the answer; `None` when there will be none.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.peer.waiting().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(line: &str) -> (i32, Value) {
        let refused = parse(line).unwrap_err();
        (refused.error.code.into(), refused.id)
    }

    #[test]
    fn requests_notifications_and_responses_are_told_apart() {
        let request = parse(r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#);
        assert!(matches!(
            request,
            Ok(Incoming::Request {
                id: Value::Null,
                ..
            })
        ));
        let notification = parse(r#"{"jsonrpc":"2.0","method":"m","params":{}}"#);
        assert!(matches!(notification, Ok(Incoming::Notification { .. })));
        let response = parse(r#"{"jsonrpc":"2.0","id":4,"result":null}"#);
        assert!(matches!(
            response,
            Ok(Incoming::Response { answer: Ok(_), .. })
        ));
    }

    #[test]
    fn what_is_no_message_is_refused_with_the_code_of_json_rpc() {
        assert_eq!(code("{"), (-32700, Value::Null));
        assert_eq!(code("[1]"), (-32600, Value::Null));
        assert_eq!(code("7"), (-32600, Value::Null));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":7}"#), (-32600, json!(7)));
        assert_eq!(code(r#"{"id":"a","method":"m"}"#), (-32600, json!("a")));
        let fraction = r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#;
        assert_eq!(code(fraction), (-32600, Value::Null));
    }

    #[test]
    fn an_error_about_parameters_names_the_field_and_repeats_no_value() {
        use agent_client_protocol_schema::v1::NewSessionRequest;
        let params = json!({
            "cwd": "/",
            "mcpServers": [{"name": "a", "command": "/c", "args": [],
                "env": [{"name": "TOKEN", "value": ["s3cret"]}]}],
        });
        let params = Params(Some(serde_json::value::to_raw_value(&params).unwrap()));
        let error = params.read::<NewSessionRequest>().unwrap_err();
        let told = serde_json::to_string(&error).unwrap();
        assert_eq!(i32::from(error.code), -32602);
        assert!(told.contains("mcpServers"), "{told}");
        assert!(!told.contains("s3cret"), "{told}");
    }
}
