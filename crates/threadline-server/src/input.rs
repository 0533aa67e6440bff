//! Strict reading of what clients send. Every error names the field.

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Query, Request},
    http::{HeaderMap, header, request::Parts},
};
use serde_json::{Map, Value};
use threadline_agent::{
    Allow, Answer, QueueInput, RunInput, limits::MAX_IMAGES, policy::CommandPrefix,
};
use threadline_model::Images;
use threadline_session::{
    SessionId,
    limits::MAX_KEY_BYTES,
    payload::{ApprovalPolicy, Delivery, SandboxMode},
};
use threadline_store::{SessionStatus, SummaryPatch};

use crate::{
    error::{Code, Problem},
    limits::{BODY_BYTES, IMAGE_BODY_BYTES, MAX_COMMENT_BYTES, MAX_MODEL_BYTES, MAX_TEMPERATURE},
};

pub(crate) mod limits;

/// The fields of a JSON object that are still to be read.
pub(crate) struct Fields(Map<String, Value>);

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn wrong(field: &str, wanted: &str, value: &Value) -> Problem {
    Problem::field(
        field,
        format!("`{field}` must be {wanted}, not {}", kind(value)),
    )
}

impl Fields {
    /// Reads a body and refuses keys that are not `known`.
    pub(crate) fn parse(body: &[u8], known: &[&str]) -> Result<Self, Problem> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|e| Problem::new(Code::InvalidInput, format!("the body is not JSON: {e}")))?;
        let Value::Object(map) = value else {
            let detail = format!("the body must be an object, not {}", kind(&value));
            return Err(Problem::new(Code::InvalidInput, detail));
        };
        if let Some(key) = map.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(
                Problem::field(key, format!("`{key}` is not a field of this body"))
                    .hint(format!("the fields are {}", known.join(", "))),
            );
        }
        Ok(Self(map))
    }

    /// Takes a field; a `null` counts as absent.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(name, "a string", &other)),
        }
    }

    fn short_text(&mut self, name: &str, most: usize) -> Result<Option<String>, Problem> {
        let text = self.text(name)?;
        match &text {
            Some(text) if text.trim().is_empty() => {
                Err(Problem::field(name, format!("`{name}` must not be empty")))
            }
            Some(text) if text.len() > most => Err(Problem::field(
                name,
                format!("`{name}` has {} bytes, and {most} are allowed", text.len()),
            )),
            _ => Ok(text),
        }
    }

    fn boolean(&mut self, name: &str) -> Result<Option<bool>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(other) => Err(wrong(name, "a boolean", &other)),
        }
    }

    /// Takes the number of an event.
    fn seq(&mut self, name: &str) -> Result<Option<u64>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(seq) => Ok(Some(seq)),
                None => Err(Problem::field(
                    name,
                    format!("`{name}` must be the number of an event"),
                )),
            },
        }
    }

    /// Takes one of a few words.
    fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        match choices.iter().find(|(word, _)| *word == text) {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
                let detail = format!("`{name}` must be one of {}", words.join(", "));
                Err(Problem::field(name, detail))
            }
        }
    }
}

fn too_large(most: usize) -> Problem {
    Problem::new(Code::TooLarge, format!("the body is over {most} bytes"))
}

/// Takes the images, and holds what is left of the body to the limit of all bodies.
fn images(fields: &mut Fields, body: usize) -> Result<Option<Vec<Vec<u8>>>, Problem> {
    let images = match fields.take("images") {
        None => None,
        Some(Value::Array(images)) => Some(images),
        Some(other) => return Err(wrong("images", "an array of objects", &other)),
    };
    let data = |image: &Value| image["data"].as_str().map_or(0, str::len);
    let held: usize = images.iter().flatten().map(data).sum();
    if body.saturating_sub(held) > BODY_BYTES {
        let detail = format!("the body is over {BODY_BYTES} bytes, the data of images not counted");
        return Err(Problem::new(Code::TooLarge, detail));
    }
    let Some(images) = images else {
        return Ok(None);
    };
    if images.len() > MAX_IMAGES {
        let detail = format!(
            "`images` has {}, and {MAX_IMAGES} are allowed",
            images.len()
        );
        return Err(Problem::new(Code::BadImage, detail).at("images"));
    }
    let read = images.into_iter().enumerate().map(|(at, value)| {
        let name = format!("images[{at}]");
        image(&name, value)
    });
    read.collect::<Result<_, _>>().map(Some)
}

fn image(name: &str, value: Value) -> Result<Vec<u8>, Problem> {
    let map = match value {
        Value::Object(map) => map,
        other => return Err(wrong(name, "an object", &other)),
    };
    let known = ["mediaType", "data"];
    if let Some(key) = map.keys().find(|key| !known.contains(&key.as_str())) {
        let field = format!("{name}.{key}");
        return Err(
            Problem::field(&field, format!("`{field}` is not a field of an image"))
                .hint("the fields are mediaType, data"),
        );
    }
    let text = |key: &str| {
        let field = format!("{name}.{key}");
        match map.get(key) {
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(other) => Err(wrong(&field, "a string", other)),
            None => Err(missing(&field)),
        }
    };
    Images::decode(text("mediaType")?, text("data")?).map_err(|error| {
        Problem::new(Code::BadImage, format!("`{name}` cannot be used: {error}"))
            .at(name)
            .hint("make it smaller, or save it as PNG or JPEG")
    })
}

fn missing(name: &str) -> Problem {
    Problem::field(name, format!("`{name}` is missing"))
}

/// The names of the approval policies.
pub(crate) const POLICIES: [(&str, ApprovalPolicy); 3] = [
    ("strict", ApprovalPolicy::Strict),
    ("on_request", ApprovalPolicy::OnRequest),
    ("never", ApprovalPolicy::Never),
];

/// The names of how a session stands.
pub(crate) const STATUSES: [(&str, SessionStatus); 7] = [
    ("idle", SessionStatus::Idle),
    ("running", SessionStatus::Running),
    ("waiting", SessionStatus::Waiting),
    ("interrupted", SessionStatus::Interrupted),
    ("damaged", SessionStatus::Damaged),
    ("unsupported", SessionStatus::Unsupported),
    ("missing", SessionStatus::Missing),
];

/// The names of the sandbox modes.
pub(crate) const SANDBOXES: [(&str, SandboxMode); 3] = [
    ("read_only", SandboxMode::ReadOnly),
    ("workspace_write", SandboxMode::WorkspaceWrite),
    ("danger_full_access", SandboxMode::DangerFullAccess),
];

const DELIVERIES: [(&str, Delivery); 2] = [
    ("after_turn", Delivery::AfterTurn),
    ("next_step", Delivery::NextStep),
];
const ANSWERS: [(&str, Answer); 3] = [
    ("approve", Answer::Approve),
    ("approve_for_session", Answer::ApproveForSession),
    ("deny", Answer::Deny),
];

/// What a turn is started with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AgentInput {
    pub(crate) session: Option<SessionId>,
    pub(crate) run: RunInput,
}

impl AgentInput {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Problem> {
        let mut fields = Fields::parse(
            body,
            &[
                "task",
                "goal",
                "context",
                "model",
                "temperature",
                "approvalPolicy",
                "sandboxMode",
                "sessionId",
                "idempotencyKey",
                "allowCommands",
                "images",
                "limits",
            ],
        )?;
        let images = images(&mut fields, body.len())?.unwrap_or_default();
        let limits = limits::read(&mut fields)?;
        let task = fields.text("task")?.ok_or_else(|| missing("task"))?;
        if task.trim().is_empty() {
            return Err(Problem::field("task", "`task` must say something"));
        }
        let session = match fields.text("sessionId")? {
            None => None,
            Some(id) => Some(SessionId::parse(id).map_err(|e| {
                Problem::field(
                    "sessionId",
                    format!("`sessionId` is not a session's id: {e}"),
                )
            })?),
        };
        let run = RunInput {
            images,
            task,
            goal: fields.text("goal")?,
            context: fields.text("context")?,
            model: fields.short_text("model", MAX_MODEL_BYTES)?,
            temperature: temperature(&mut fields)?,
            approval_policy: fields.choice("approvalPolicy", &POLICIES)?,
            sandbox_mode: fields.choice("sandboxMode", &SANDBOXES)?,
            idempotency_key: fields.short_text("idempotencyKey", MAX_KEY_BYTES)?,
            cwd: None,
            max_steps: limits.and_then(|limits| limits.steps),
            limits,
            allow: allowed(&mut fields)?,
            confined: false,
        };
        Ok(Self { session, run })
    }
}

/// Takes the commands that are approved beforehand. Who does is filled in by the route.
fn allowed(fields: &mut Fields) -> Result<Vec<Allow>, Problem> {
    let name = "allowCommands";
    let list = match fields.take(name) {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(wrong(name, "an array", &other)),
    };
    let allow = |value| {
        Ok(Allow {
            prefix: prefix(name, value)?,
            by: "api".into(),
        })
    };
    list.into_iter().map(allow).collect()
}

/// Reads the words that commands begin with: an array of them, or one text as `cargo test`.
fn prefix(name: &str, value: Value) -> Result<CommandPrefix, Problem> {
    let read = match value {
        Value::String(line) => CommandPrefix::parse(&line),
        Value::Array(words) => CommandPrefix::from_words(strings(name, words)?),
        other => return Err(wrong(name, "words, or an array of them", &other)),
    };
    read.map_err(|error| Problem::field(name, error.to_string()))
}

fn strings(name: &str, list: Vec<Value>) -> Result<Vec<String>, Problem> {
    let text = |value| match value {
        Value::String(text) => Ok(text),
        other => Err(wrong(name, "an array of strings", &other)),
    };
    list.into_iter().map(text).collect()
}

/// Reads what is granted to a session.
pub(crate) fn grant(body: &[u8]) -> Result<CommandPrefix, Problem> {
    let words = Fields::parse(body, &["prefix"])?.take("prefix");
    prefix("prefix", words.ok_or_else(|| missing("prefix"))?)
}

fn temperature(fields: &mut Fields) -> Result<Option<f64>, Problem> {
    let Some(value) = fields.take("temperature") else {
        return Ok(None);
    };
    let number = value
        .as_f64()
        .ok_or_else(|| wrong("temperature", "a number", &value))?;
    if !(0.0..=MAX_TEMPERATURE).contains(&number) {
        let detail = format!("`temperature` must be between 0 and {MAX_TEMPERATURE}");
        return Err(Problem::field("temperature", detail));
    }
    Ok(Some(number))
}

/// Reads what `PATCH` changes, and the revision it was based on.
pub(crate) fn summary_patch(body: &[u8]) -> Result<(SummaryPatch, u64), Problem> {
    let known = ["title", "archived", "pinned", "tags", "revision"];
    let mut fields = Fields::parse(body, &known)?;
    // Here `null` says something: it removes the title.
    let title = match fields.0.remove("title") {
        None => None,
        Some(Value::Null) => Some(None),
        Some(Value::String(title)) => Some(Some(title)),
        Some(other) => return Err(wrong("title", "a string or null", &other)),
    };
    let tags = match fields.take("tags") {
        None => None,
        Some(Value::Array(tags)) => Some(tags.into_iter().map(tag).collect::<Result<_, _>>()?),
        Some(other) => return Err(wrong("tags", "an array of strings", &other)),
    };
    let revision = fields.take("revision").ok_or_else(|| missing("revision"))?;
    let revision = revision
        .as_u64()
        .ok_or_else(|| wrong("revision", "a whole number", &revision))?;
    let patch = SummaryPatch {
        title,
        archived: fields.boolean("archived")?,
        pinned: fields.boolean("pinned")?,
        tags,
    };
    Ok((patch, revision))
}

/// Reads the event that a fork ends with; an absent body is an empty one.
pub(crate) fn fork_at(body: &[u8]) -> Result<Option<u64>, Problem> {
    let body = if body.is_empty() { b"{}" } else { body };
    Fields::parse(body, &["at"])?.seq("at")
}

/// Reads the event that a history is moved back to.
pub(crate) fn rewind_to(body: &[u8]) -> Result<u64, Problem> {
    let to = Fields::parse(body, &["to"])?.seq("to")?;
    to.ok_or_else(|| missing("to"))
}

/// Reads a message for the queue.
pub(crate) fn queue(body: &[u8]) -> Result<QueueInput, Problem> {
    let mut fields = Fields::parse(body, &["text", "images", "delivery", "messageId"])?;
    let images = images(&mut fields, body.len())?;
    let text = fields.text("text")?.ok_or_else(|| missing("text"))?;
    let delivery = fields.choice("delivery", &DELIVERIES)?.unwrap_or_default();
    Ok(QueueInput {
        text,
        images,
        delivery,
        message_id: fields.text("messageId")?,
    })
}

fn tag(value: Value) -> Result<String, Problem> {
    match value {
        Value::String(tag) => Ok(tag),
        other => Err(wrong("tags", "an array of strings", &other)),
    }
}

/// An answer to a question, as a client gives it.
#[derive(Debug)]
pub(crate) struct DecisionInput {
    pub(crate) answer: Answer,
    pub(crate) comment: Option<String>,
    pub(crate) prefix: Option<Vec<String>>,
}

/// Reads the answer to a question.
pub(crate) fn decision(body: &[u8]) -> Result<DecisionInput, Problem> {
    let mut fields = Fields::parse(body, &["decision", "comment", "prefix"])?;
    let answer = fields
        .choice("decision", &ANSWERS)?
        .ok_or_else(|| missing("decision"))?;
    let comment = fields
        .text("comment")?
        .filter(|comment| !comment.trim().is_empty());
    if comment
        .as_ref()
        .is_some_and(|comment| comment.len() > MAX_COMMENT_BYTES)
    {
        let detail = format!("`comment` is longer than {MAX_COMMENT_BYTES} bytes");
        return Err(Problem::field("comment", detail));
    }
    let prefix = match fields.take("prefix") {
        None => None,
        Some(Value::Array(words)) => Some(strings("prefix", words)?),
        Some(other) => return Err(wrong("prefix", "an array of strings", &other)),
    };
    if prefix.is_some() && answer != Answer::ApproveForSession {
        let detail = "`prefix` goes with the decision `approve_for_session` only";
        return Err(Problem::field("prefix", detail));
    }
    Ok(DecisionInput {
        answer,
        comment,
        prefix,
    })
}

/// Returns the event that a stream continues after; `None` starts at the beginning. What the
/// client received last wins over what its address says.
pub(crate) fn start_after(
    last_event_id: Option<&str>,
    after: Option<&str>,
) -> Result<Option<u64>, Problem> {
    let (field, text) = match (last_event_id, after) {
        // An empty id means that no event had one, as the event stream format defines it.
        (Some(id), _) if !id.is_empty() => ("Last-Event-ID", id),
        (_, Some(after)) => ("after", after),
        _ => return Ok(None),
    };
    if text == "-1" {
        return Ok(None);
    }
    whole(text).map(Some).ok_or_else(|| {
        Problem::new(
            Code::BadCursor,
            format!("`{field}` must be the number of an event, or -1"),
        )
        .at(field)
    })
}

/// Reads a whole number of digits alone.
pub(crate) fn whole(text: &str) -> Option<u64> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// The parameters after the question mark.
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Reads a number between two bounds.
    pub(crate) fn number(
        &self,
        name: &str,
        default: u64,
        bounds: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, Problem> {
        let Some(text) = self.get(name) else {
            return Ok(default);
        };
        whole(text)
            .filter(|number| bounds.contains(number))
            .ok_or_else(|| {
                let (low, high) = bounds.into_inner();
                let range = match high {
                    u64::MAX => format!("a whole number from {low}"),
                    high => format!("a whole number from {low} to {high}"),
                };
                Problem::field(name, format!("`{name}` must be {range}"))
            })
    }

    /// Reads one of a few words.
    pub(crate) fn choice<T: Copy>(
        &self,
        name: &str,
        default: T,
        choices: &[(&str, T)],
    ) -> Result<T, Problem> {
        let Some(text) = self.get(name) else {
            return Ok(default);
        };
        choices
            .iter()
            .find(|(word, _)| *word == text)
            .map(|(_, value)| *value)
            .ok_or_else(|| {
                let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
                Problem::field(
                    name,
                    format!("`{name}` must be one of {}", words.join(", ")),
                )
            })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Query::try_from_uri(&parts.uri)
            .map(|Query(pairs)| Self(pairs))
            .map_err(|e| Problem::new(Code::InvalidInput, format!("the query is malformed: {e}")))
    }
}

/// The session that a path names.
pub(crate) fn session_id(text: String) -> Result<SessionId, Problem> {
    id_in("id", &text)
}

/// The session that a part of the input names.
pub(crate) fn id_in(field: &str, text: &str) -> Result<SessionId, Problem> {
    SessionId::parse(text).map_err(|e| Problem::field(field, e.to_string()))
}

/// The parts of a path, percent-decoded.
pub(crate) struct Path<T>(pub(crate) T);

impl<T, S> FromRequestParts<S> for Path<T>
where
    T: serde::de::DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(path)) => Ok(Self(path)),
            Err(rejection) => Err(Problem::field("id", rejection.body_text())),
        }
    }
}

/// A whole body within a limit in bytes. A route whose limit is higher than that of all routes has
/// to lift that one too.
pub(crate) struct Body<const MOST: usize = BODY_BYTES>(pub(crate) Bytes);

/// A body that may hold images.
pub(crate) type ImageBody = Body<IMAGE_BODY_BYTES>;

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

impl<S: Send + Sync, const MOST: usize> FromRequest<S> for Body<MOST> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        // Said before the body is sent, when the client tells its length.
        if declared_length(request.headers()).is_some_and(|length| length > MOST as u64) {
            return Err(too_large(MOST));
        }
        match Bytes::from_request(request, state).await {
            Ok(bytes) => Ok(Self(bytes)),
            Err(rejection) if rejection.status() == Code::TooLarge.status() => Err(too_large(MOST)),
            Err(rejection) => Err(Problem::new(Code::InvalidInput, rejection.body_text())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_starts_after_what_was_received_last() {
        for (last_event_id, after, wanted) in [
            (None, None, None),
            (None, Some("-1"), None),
            (None, Some("0"), Some(0)),
            (None, Some("7"), Some(7)),
            (Some("9"), Some("7"), Some(9)),
            (Some("3"), Some("7"), Some(3)),
            (Some("9"), Some("nonsense"), Some(9)),
            (Some("-1"), Some("7"), None),
            (Some(""), Some("7"), Some(7)),
            (Some(""), None, None),
            (Some("18446744073709551615"), None, Some(u64::MAX)),
        ] {
            assert_eq!(start_after(last_event_id, after).unwrap(), wanted);
        }
    }

    #[test]
    fn malformed_positions_name_their_field() {
        for bad in [
            "x",
            "+1",
            " 1",
            "1 ",
            "-2",
            "1.0",
            "0x1",
            "18446744073709551616",
            "\u{661}",
        ] {
            let problem = start_after(Some(bad), Some("1")).unwrap_err();
            assert_eq!(problem.field.as_deref(), Some("Last-Event-ID"), "{bad}");
            let problem = start_after(None, Some(bad)).unwrap_err();
            assert_eq!(
                (problem.code, problem.field.as_deref()),
                (Code::BadCursor, Some("after"))
            );
        }
        assert!(start_after(None, Some("")).is_err());
    }

    #[test]
    fn agent_input_errors_name_their_field() {
        for (body, field) in [
            (r#"{"task":1}"#, Some("task")),
            (r#"{"task":null}"#, Some("task")),
            (r#"{"task":"  \n"}"#, Some("task")),
            ("{}", Some("task")),
            (r#"{"task":"x","tsk":1}"#, Some("tsk")),
            (r#"{"task":"x","goal":[]}"#, Some("goal")),
            (r#"{"task":"x","context":{}}"#, Some("context")),
            (r#"{"task":"x","model":""}"#, Some("model")),
            (r#"{"task":"x","model":true}"#, Some("model")),
            (r#"{"task":"x","temperature":"1"}"#, Some("temperature")),
            (r#"{"task":"x","temperature":-0.1}"#, Some("temperature")),
            (r#"{"task":"x","temperature":2.1}"#, Some("temperature")),
            (
                r#"{"task":"x","approvalPolicy":"always"}"#,
                Some("approvalPolicy"),
            ),
            (
                r#"{"task":"x","sandboxMode":"ReadOnly"}"#,
                Some("sandboxMode"),
            ),
            (r#"{"task":"x","sessionId":""}"#, Some("sessionId")),
            (r#"{"task":"x","sessionId":7}"#, Some("sessionId")),
            (
                r#"{"task":"x","idempotencyKey":""}"#,
                Some("idempotencyKey"),
            ),
            (
                r#"{"task":"x","allowCommands":"make"}"#,
                Some("allowCommands"),
            ),
            (r#"{"task":"x","allowCommands":[7]}"#, Some("allowCommands")),
            (
                r#"{"task":"x","allowCommands":["sh"]}"#,
                Some("allowCommands"),
            ),
            (
                r#"{"task":"x","allowCommands":[["a b"]]}"#,
                Some("allowCommands"),
            ),
            (r#"["task"]"#, None),
            (r#"{"task":"x""#, None),
            ("", None),
        ] {
            let problem = AgentInput::parse(body.as_bytes()).unwrap_err();
            assert_eq!(problem.code, Code::InvalidInput, "{body}");
            assert_eq!(problem.field.as_deref(), field, "{body}");
        }
        let long = format!(r#"{{"task":"x","idempotencyKey":"{}"}}"#, "k".repeat(201));
        assert!(AgentInput::parse(long.as_bytes()).is_err());
        let fits = format!(r#"{{"task":"x","idempotencyKey":"{}"}}"#, "k".repeat(200));
        assert!(AgentInput::parse(fits.as_bytes()).is_ok());
    }

    #[test]
    fn null_is_the_same_as_absent_except_for_the_title() {
        let input = AgentInput::parse(br#"{"task":"x","goal":null,"temperature":null}"#).unwrap();
        assert_eq!(
            input.run,
            RunInput {
                task: "x".into(),
                ..RunInput::default()
            }
        );
        let (patch, revision) = summary_patch(br#"{"title":null,"revision":3}"#).unwrap();
        assert_eq!((patch.title, revision), (Some(None), 3));
        assert_eq!(
            summary_patch(br#"{"revision":0}"#).unwrap().0,
            SummaryPatch::default()
        );
    }
}
