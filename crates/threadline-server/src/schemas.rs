//! The schemas of the OpenAPI document. A test holds every real answer against them.

use serde_json::{Map, Value, json};

use crate::{error::Code, input::STATUSES};

mod panels;
mod streams;

pub(crate) use streams::messages;

/// An object: its fields with their schemas. A name that ends in `?` may be absent.
fn object(fields: &[(&str, Value)]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, schema) in fields {
        let bare = name.trim_end_matches('?');
        if bare == *name {
            required.push(bare);
        }
        properties.insert(bare.into(), schema.clone());
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn is(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn or_null(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn list(schema: Value) -> Value {
    json!({"type": "array", "items": schema})
}

fn one_of(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn whole() -> Value {
    json!({"type": "integer"})
}

fn boolean() -> Value {
    json!({"type": "boolean"})
}

fn number() -> Value {
    json!({"type": "number"})
}

/// An object with names that only the server knows.
fn by_name(about: &str, schema: Value) -> Value {
    json!({"type": "object", "description": about, "additionalProperties": schema})
}

/// An object whose fields are described elsewhere.
fn any_object(about: &str) -> Value {
    json!({"type": "object", "description": about})
}

/// Returns all schemas by name.
pub(crate) fn all() -> Map<String, Value> {
    inputs()
        .into_iter()
        .chain(summaries())
        .chain(read_model())
        .chain(items())
        .chain(debugging())
        .chain(streams::streams())
        .chain(panels::panels())
        .chain(rest())
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect()
}

const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

type Named = Vec<(&'static str, Value)>;

/// The limits of a run; `null` is none.
fn limits(mark: &str) -> Value {
    let count = || json!({"type": "integer", "minimum": 1});
    let amount = || json!({"type": "number", "minimum": 0});
    let fields = [
        ("maxSteps", count()),
        (
            "maxSeconds",
            if mark.is_empty() { amount() } else { count() },
        ),
        ("maxTokens", if mark.is_empty() { whole() } else { count() }),
        ("maxCost", amount()),
        ("maxSessionSteps", count()),
        (
            "maxSessionSeconds",
            if mark.is_empty() { amount() } else { count() },
        ),
        (
            "maxSessionTokens",
            if mark.is_empty() { whole() } else { count() },
        ),
        ("maxSessionCost", amount()),
    ];
    let named = fields.map(|(name, schema)| (format!("{name}{mark}"), or_null(schema)));
    let named: Vec<_> = named.iter().map(|(n, s)| (n.as_str(), s.clone())).collect();
    object(&named)
}

fn inputs() -> Named {
    let mut patch = object(&[
        ("title?", or_null(text())),
        ("archived?", boolean()),
        ("pinned?", boolean()),
        ("tags?", list(text())),
        ("revision", whole()),
    ]);
    patch["description"] = json!("Fields that are absent stay; a null title removes it.");
    vec![
        (
            "AgentInput",
            object(&[
                ("task", json!({"type": "string", "minLength": 1})),
                ("goal?", or_null(text())),
                ("context?", or_null(text())),
                ("model?", or_null(text())),
                (
                    "temperature?",
                    or_null(json!({"type": "number", "minimum": 0, "maximum": 2})),
                ),
                ("approvalPolicy?", or_null(is("ApprovalPolicy"))),
                ("sandboxMode?", or_null(is("SandboxMode"))),
                ("sessionId?", or_null(text())),
                ("idempotencyKey?", or_null(text())),
                ("allowCommands?", or_null(list(is("Prefix")))),
                ("images?", or_null(list(is("ImageInput")))),
                ("limits?", or_null(is("LimitsInput"))),
            ]),
        ),
        ("SummaryPatch", patch),
        ("ForkInput", object(&[("at?", or_null(whole()))])),
        ("RewindInput", object(&[("to", whole())])),
        (
            "QueueInput",
            object(&[
                ("text", text()),
                ("images?", or_null(list(is("ImageInput")))),
                ("delivery?", is("Delivery")),
                ("messageId?", text()),
            ]),
        ),
        ("LimitsInput", limits("?")),
        (
            "ImageInput",
            object(&[
                ("mediaType", one_of(&IMAGE_TYPES)),
                (
                    "data",
                    json!({"type": "string", "contentEncoding": "base64"}),
                ),
            ]),
        ),
        ("Delivery", one_of(&["after_turn", "next_step"])),
        (
            "DecisionInput",
            object(&[
                ("decision", is("Decision")),
                ("comment?", or_null(text())),
                ("prefix?", or_null(list(text()))),
            ]),
        ),
        (
            "Decision",
            one_of(&["approve", "approve_for_session", "deny"]),
        ),
        ("GrantInput", object(&[("prefix", is("Prefix"))])),
        (
            "Prefix",
            json!({
                "description": "Words that commands begin with: one by one, or as a text.",
                "anyOf": [list(text()), text()],
            }),
        ),
        ("ApprovalPolicy", one_of(&["strict", "on_request", "never"])),
        (
            "SandboxMode",
            one_of(&["read_only", "workspace_write", "danger_full_access"]),
        ),
    ]
}

fn summaries() -> Named {
    vec![
        (
            "SessionPage",
            object(&[
                ("sessions", list(is("Summary"))),
                ("nextCursor", or_null(text())),
                ("rebuilding", boolean()),
                (
                    "counts?",
                    object(&[("shown", whole()), ("inTrees?", whole()), ("all", whole())]),
                ),
            ]),
        ),
        (
            "Summary",
            object(&[
                ("id", text()),
                ("children?", whole()),
                ("title", or_null(text())),
                (
                    "madeTitle?",
                    object(&[
                        ("text", text()),
                        ("model", is("Model")),
                        ("usage", is("Usage")),
                    ]),
                ),
                ("firstPrompt", or_null(text())),
                ("createdAt", whole()),
                ("updatedAt", whole()),
                ("turns", whole()),
                ("events", whole()),
                ("status", is("Status")),
                ("cwd", text()),
                ("model", or_null(is("Model"))),
                ("usage", is("Usage")),
                ("subagentUsage?", is("Usage")),
                ("bytes", whole()),
                ("archived", boolean()),
                ("pinned", boolean()),
                ("tags", list(text())),
                ("revision", whole()),
                (
                    "parent",
                    or_null(object(&[("id", text()), ("seq", whole())])),
                ),
                ("durability", one_of(&["step", "event", "os"])),
                (
                    "error",
                    or_null(object(&[
                        ("code", text()),
                        ("message", text()),
                        ("file?", text()),
                        ("offset?", whole()),
                        ("seq?", whole()),
                    ])),
                ),
                ("peopleDamaged?", text()),
            ]),
        ),
        ("Status", one_of(&STATUSES.map(|(word, _)| word))),
        ("Model", object(&[("provider", text()), ("name", text())])),
        (
            "Usage",
            object(&[
                ("inputTokens", whole()),
                ("outputTokens", whole()),
                ("cachedInputTokens?", whole()),
                ("reasoningTokens?", whole()),
            ]),
        ),
        (
            "SessionDetail",
            object(&[
                (
                    "header",
                    any_object("The first line of the log; see docs/format.md."),
                ),
                ("summary", is("Summary")),
            ]),
        ),
    ]
}

fn head_fields() -> Vec<(&'static str, Value)> {
    vec![
        ("turn", whole()),
        ("runId", text()),
        ("startSeq", whole()),
        ("endSeq", or_null(whole())),
        ("startedAt", whole()),
        ("endedAt", or_null(whole())),
        ("context", or_null(is("TurnContext"))),
        ("reason", or_null(is("Reason"))),
        ("usage", is("Usage")),
        ("subagentUsage?", is("Usage")),
    ]
}

fn read_model() -> Named {
    let mut turn = head_fields();
    turn.push(("items", list(is("Item"))));
    vec![
        ("TurnHead", object(&head_fields())),
        ("Turn", object(&turn)),
        (
            "TurnContext",
            object(&[
                ("provider", text()),
                ("model", text()),
                ("approvalPolicy", is("ApprovalPolicy")),
                ("sandboxMode", is("SandboxMode")),
                (
                    "cwd",
                    json!({"anyOf": [text(), object(&[("bytes", text())])]}),
                ),
                ("temperature?", number()),
                ("maxSteps?", whole()),
                ("confined?", boolean()),
            ]),
        ),
        (
            "Reason",
            object(&[
                (
                    "kind",
                    one_of(&[
                        "completed",
                        "cancelled",
                        "blocked",
                        "error",
                        "max_steps",
                        "max_tokens",
                        "limit",
                        "interrupted",
                    ]),
                ),
                ("code?", text()),
                ("limit?", text()),
                ("message?", text()),
            ]),
        ),
        (
            "Turns",
            object(&[
                ("turns", list(is("Turn"))),
                ("from", whole()),
                ("to", whole()),
                ("atEnd", boolean()),
                ("cut", boolean()),
                ("lastSeq", whole()),
                ("running", boolean()),
                ("status", is("Status")),
                ("damage", or_null(is("Damage"))),
            ]),
        ),
        (
            "Damage",
            object(&[
                ("file", text()),
                ("offset", whole()),
                ("bytes", whole()),
                ("seq", whole()),
                ("reason", text()),
            ]),
        ),
    ]
}

/// An item of a turn: what all have, then its own fields.
fn item(kind: &str, fields: &[(&'static str, Value)]) -> Value {
    let mut all = vec![("kind", one_of(&[kind])), ("id", text()), ("seq", whole())];
    all.extend_from_slice(fields);
    object(&all)
}

fn items() -> Named {
    let names = [
        "SystemItem",
        "UserItem",
        "AssistantItem",
        "ToolItem",
        "CompactionItem",
        "HeadItem",
        "NoticeItem",
        "LostItem",
    ];
    vec![
        ("Item", json!({"oneOf": names.map(is)})),
        (
            "ContentPart",
            object(&[
                ("type", one_of(&["text", "image", "unknown"])),
                ("text?", text()),
                ("mediaType?", text()),
                ("blob?", text()),
            ]),
        ),
        (
            "SystemItem",
            item(
                "system",
                &[
                    ("reason", one_of(&["initial", "changed"])),
                    ("text", text()),
                    ("tools", list(text())),
                ],
            ),
        ),
        (
            "UserItem",
            item(
                "user",
                &[
                    ("source", one_of(&["user", "queued", "steer", "context"])),
                    ("content", content()),
                ],
            ),
        ),
        ("AssistantItem", assistant_item()),
        ("ToolItem", tool_item()),
        (
            "Outcome",
            one_of(&[
                "ok",
                "error",
                "denied",
                "timeout",
                "cancelled",
                "not_started",
                "unknown",
            ]),
        ),
        (
            "ViewApproval",
            object(&[
                ("approvalId", text()),
                ("reason", text()),
                (
                    "decision",
                    or_null(one_of(&[
                        "approved",
                        "approved_for_session",
                        "denied",
                        "expired",
                    ])),
                ),
                ("by", or_null(text())),
                ("prefix?", list(text())),
                ("outsideSandbox?", boolean()),
            ]),
        ),
        (
            "ViewPart",
            object(&[
                ("kind", one_of(&["text", "reasoning", "tool_args"])),
                ("text", text()),
            ]),
        ),
        (
            "CompactionItem",
            item(
                "compaction",
                &[
                    ("summary", content()),
                    (
                        "replaces",
                        object(&[("fromSeq", whole()), ("toSeq", whole())]),
                    ),
                    ("tokensBefore", whole()),
                    ("tokensAfter", or_null(whole())),
                ],
            ),
        ),
        (
            "HeadItem",
            item(
                "head",
                &[("toSeq", whole()), ("reason", one_of(&["rewind", "redo"]))],
            ),
        ),
        (
            "LostItem",
            item(
                "lost",
                &[
                    (
                        "events",
                        object(&[("fromSeq", whole()), ("toSeq", whole())]),
                    ),
                    ("bytes", whole()),
                    ("reason", text()),
                ],
            ),
        ),
        (
            "NoticeItem",
            item(
                "notice",
                &[
                    (
                        "type",
                        one_of(&["model/retry", "model/error", "item/rejected"]),
                    ),
                    ("message", text()),
                    ("attempt", whole()),
                    ("status", or_null(whole())),
                    ("delayMs", or_null(whole())),
                ],
            ),
        ),
    ]
}

fn assistant_item() -> Value {
    item(
        "assistant",
        &[
            ("step", whole()),
            ("streaming", boolean()),
            ("interrupted", boolean()),
            ("stopReason", or_null(text())),
            ("model", or_null(is("Model"))),
            ("usage", or_null(is("Usage"))),
            ("parts", list(is("ViewPart"))),
        ],
    )
}

fn tool_item() -> Value {
    item(
        "tool",
        &[
            ("step", whole()),
            ("callId", text()),
            ("name", text()),
            ("arguments", text()),
            ("startSeq", or_null(whole())),
            ("resultSeq", or_null(whole())),
            ("startedAt", or_null(whole())),
            ("endedAt", or_null(whole())),
            ("outcome", or_null(is("Outcome"))),
            ("isError", boolean()),
            ("content", content()),
            ("full", or_null(object(&[("blob", text())]))),
            ("output", text()),
            ("synthetic", boolean()),
            ("approval", or_null(is("ViewApproval"))),
            ("outsideSandbox?", boolean()),
            ("grantId?", text()),
        ],
    )
}

fn content() -> Value {
    list(is("ContentPart"))
}

fn debugging() -> Named {
    let head = [
        ("step", whole()),
        ("turn", whole()),
        ("seq", whole()),
        ("fingerprint", text()),
        ("items", whole()),
        ("bytes", whole()),
    ];
    vec![
        (
            "History",
            object(&[
                (
                    "items",
                    list(any_object("A model-visible item with `seq` and `role`.")),
                ),
                ("report", any_object("How often normalising changed what.")),
            ]),
        ),
        ("RequestHead", object(&head)),
        (
            "Requests",
            object(&[
                ("requests", list(is("RequestHead"))),
                ("next", or_null(whole())),
                ("damage", or_null(is("Damage"))),
            ]),
        ),
        (
            "RequestDetail",
            object(&[
                ("step", whole()),
                ("turn", whole()),
                ("seq", whole()),
                (
                    "request",
                    object(&[
                        ("provider", text()),
                        ("model", text()),
                        ("system", text()),
                        (
                            "tools",
                            list(any_object("A tool as the model is told of it.")),
                        ),
                        ("items", list(any_object("An item of the history."))),
                        ("temperature?", number()),
                    ]),
                ),
                ("body", or_null(any_object("What the provider is sent."))),
                (
                    "fingerprint",
                    object(&[
                        ("recorded", text()),
                        ("rebuilt", text()),
                        ("match", boolean()),
                    ]),
                ),
                ("items", whole()),
                ("bytes", whole()),
            ]),
        ),
        ("LogEvent", log_event()),
        (
            "LogPage",
            object(&[
                ("lines", list(is("LogEvent"))),
                ("next", or_null(whole())),
                ("damage", list(is("Damage"))),
            ]),
        ),
    ]
}

fn grant() -> Value {
    let of = |kind: &str, fields: &[(&'static str, Value)]| {
        let mut all = vec![
            ("grantId", text()),
            ("kind", one_of(&[kind])),
            ("by", text()),
            ("grantedAt", whole()),
            ("seq", whole()),
        ];
        all.extend_from_slice(fields);
        object(&all)
    };
    json!({"oneOf": [
        of("commands", &[("prefix", list(text()))]),
        of("call", &[("name", text()), ("arguments", text())]),
    ]})
}

fn log_event() -> Value {
    let mut event = object(&[("seq", whole()), ("time", whole()), ("type", text())]);
    event["description"] = json!("A line of the log, as it is stored.");
    event["additionalProperties"] = json!(true);
    event
}

fn rest() -> Named {
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    let bounds = || {
        object(&[
            ("approvalPolicy", is("ApprovalPolicy")),
            ("sandboxMode", is("SandboxMode")),
        ])
    };
    vec![
        (
            "Problem",
            object(&[
                ("type", text()),
                ("title", text()),
                ("status", whole()),
                ("detail", text()),
                ("code", one_of(&codes)),
                ("field?", text()),
                ("hint?", text()),
            ]),
        ),
        (
            "RunResult",
            object(&[
                ("runId", text()),
                ("answer", text()),
                ("reason", is("Reason")),
                ("usage", is("Usage")),
                ("subagentUsage?", is("Usage")),
            ]),
        ),
        ("Cancelled", object(&[("runId", text())])),
        (
            "Forked",
            object(&[
                ("id", text()),
                ("parent", text()),
                ("atSeq", whole()),
                ("closed", whole()),
            ]),
        ),
        ("Queue", object(&[("messages", list(is("QueuedMessage")))])),
        (
            "QueuedMessage",
            object(&[
                ("messageId", text()),
                ("text", text()),
                (
                    "images",
                    list(object(&[("mediaType", text()), ("blob", text())])),
                ),
                ("delivery", is("Delivery")),
            ]),
        ),
        (
            "Queued",
            object(&[
                ("messageId", text()),
                ("seq", whole()),
                ("runId", or_null(text())),
            ]),
        ),
        ("Delivered", object(&[("runId", or_null(text()))])),
        ("Moved", object(&[("toSeq", whole()), ("seq", whole())])),
        ("Approvals", object(&[("approvals", list(is("Question")))])),
        (
            "Question",
            object(&[
                ("approvalId", text()),
                ("runId", text()),
                ("sessionId", text()),
                ("toolCallId", text()),
                ("name", text()),
                ("arguments", text()),
                ("reason", text()),
                ("prefix?", list(text())),
                ("outsideSandbox?", boolean()),
                ("askedAt", whole()),
            ]),
        ),
        ("Grants", object(&[("grants", list(is("Grant")))])),
        ("Grant", grant()),
        ("Decided", object(&[("decision", is("Decision"))])),
        (
            "Config",
            object(&[
                ("version", text()),
                ("cwd", text()),
                ("store", text()),
                ("provider", text()),
                ("model", text()),
                ("providers", list(text())),
                ("demonstration", boolean()),
                ("defaults", bounds()),
                ("ceiling", bounds()),
                ("limits", limits("")),
                (
                    "prices",
                    by_name(
                        "What a million tokens cost, by provider/model or provider.",
                        is("Price"),
                    ),
                ),
                ("images", is("ImageLimits")),
            ]),
        ),
        (
            "Price",
            object(&[
                ("input", number()),
                ("cachedInput", number()),
                ("output", number()),
            ]),
        ),
        (
            "ImageLimits",
            object(&[
                ("count", whole()),
                ("bytes", whole()),
                ("mediaTypes", list(text())),
            ]),
        ),
        ("Health", object(&[("status", text()), ("version", text())])),
        ("OpenApi", any_object("An OpenAPI 3.1 document.")),
    ]
}
