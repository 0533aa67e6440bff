//! The schemas of the OpenAPI document. A test holds every real answer against them.

use serde_json::{Map, Value, json};

use crate::{error::Code, input::STATUSES};

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
        .chain(rest())
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect()
}

type Named = Vec<(&'static str, Value)>;

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
            ]),
        ),
        ("SummaryPatch", patch),
        ("ForkInput", object(&[("at?", or_null(whole()))])),
        ("RewindInput", object(&[("to", whole())])),
        (
            "QueueInput",
            object(&[
                ("text", text()),
                ("delivery?", is("Delivery")),
                ("messageId?", text()),
            ]),
        ),
        ("Delivery", one_of(&["after_turn", "next_step"])),
        (
            "DecisionInput",
            object(&[("decision", is("Decision")), ("comment?", or_null(text()))]),
        ),
        (
            "Decision",
            one_of(&["approve", "approve_for_session", "deny"]),
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
                ("counts?", object(&[("shown", whole()), ("all", whole())])),
            ]),
        ),
        (
            "Summary",
            object(&[
                ("id", text()),
                ("title", or_null(text())),
                ("firstPrompt", or_null(text())),
                ("createdAt", whole()),
                ("updatedAt", whole()),
                ("turns", whole()),
                ("events", whole()),
                ("status", is("Status")),
                ("cwd", text()),
                ("model", or_null(is("Model"))),
                ("usage", is("Usage")),
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
                ("turns", list(is("TurnHead"))),
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
        (
            "context",
            or_null(any_object("What the turn ran under; see docs/format.md.")),
        ),
        ("reason", or_null(is("Reason"))),
        ("usage", is("Usage")),
    ]
}

fn read_model() -> Named {
    let mut turn = head_fields();
    turn.push(("items", list(is("Item"))));
    vec![
        ("TurnHead", object(&head_fields())),
        ("Turn", object(&turn)),
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
                        "interrupted",
                    ]),
                ),
                ("code?", text()),
                ("message?", text()),
            ]),
        ),
        (
            "Turns",
            object(&[
                ("turns", list(is("Turn"))),
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
    ];
    vec![
        ("Item", json!({"oneOf": names.map(is)})),
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
            "NoticeItem",
            item(
                "notice",
                &[
                    ("type", one_of(&["model/retry", "model/error"])),
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
            (
                "parts",
                list(object(&[
                    ("kind", one_of(&["text", "reasoning", "tool_args"])),
                    ("text", text()),
                ])),
            ),
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
            (
                "outcome",
                or_null(one_of(&[
                    "ok",
                    "error",
                    "denied",
                    "timeout",
                    "cancelled",
                    "not_started",
                    "unknown",
                ])),
            ),
            ("isError", boolean()),
            ("content", content()),
            ("output", text()),
            ("synthetic", boolean()),
            (
                "approval",
                or_null(object(&[
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
                ])),
            ),
        ],
    )
}

fn content() -> Value {
    list(any_object("A part: text, or an image by its blob."))
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
        (
            "Requests",
            object(&[
                ("requests", list(object(&head))),
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
        (
            "LogPage",
            object(&[
                (
                    "lines",
                    list(any_object("A line of the log, as it is stored.")),
                ),
                ("next", or_null(whole())),
                ("damage", list(is("Damage"))),
            ]),
        ),
    ]
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
        (
            "Queue",
            object(&[(
                "messages",
                list(object(&[
                    ("messageId", text()),
                    ("text", text()),
                    ("delivery", is("Delivery")),
                ])),
            )]),
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
        (
            "Approvals",
            object(&[(
                "approvals",
                list(object(&[
                    ("approvalId", text()),
                    ("runId", text()),
                    ("sessionId", text()),
                    ("toolCallId", text()),
                    ("name", text()),
                    ("arguments", text()),
                    ("reason", text()),
                    ("askedAt", whole()),
                ])),
            )]),
        ),
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
            ]),
        ),
        ("Health", object(&[("status", text()), ("version", text())])),
        ("OpenApi", any_object("An OpenAPI 3.1 document.")),
    ]
}
