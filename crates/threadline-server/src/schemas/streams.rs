//! What event streams say besides the lines of the log.

use serde_json::json;

use super::{Named, any_object, boolean, is, list, object, one_of, or_null, text, whole};

/// Returns the schemas of the messages in event streams.
pub(super) fn streams() -> Named {
    let append = object(&[
        ("op", one_of(&["append"])),
        ("turn", whole()),
        ("id", text()),
        ("part", whole()),
        (
            "kind",
            one_of(&["text", "reasoning", "tool_args", "output"]),
        ),
        ("text", text()),
    ]);
    vec![
        (
            "ViewMessage",
            object(&[("seq", whole()), ("patches", list(is("Patch")))]),
        ),
        (
            "Patch",
            json!({"oneOf": [
                object(&[("op", one_of(&["turn"])), ("turn", is("TurnHead"))]),
                object(&[("op", one_of(&["item"])), ("turn", whole()), ("item", is("Item"))]),
                append,
                object(&[
                    ("op", one_of(&["status"])),
                    ("status", is("Status")),
                    ("running", boolean()),
                ]),
            ]}),
        ),
        (
            "CaughtUp",
            object(&[("type", one_of(&["caught_up"])), ("seq", whole())]),
        ),
        (
            "RunStarted",
            object(&[
                ("type", one_of(&["run_started"])),
                ("runId", text()),
                ("sessionId", text()),
                ("resumed", boolean()),
                ("policy", is("RunPolicy")),
                (
                    "recovered?",
                    any_object("Torn bytes that opening moved aside."),
                ),
            ]),
        ),
        (
            "RunPolicy",
            object(&[
                ("provider", text()),
                ("model", text()),
                ("approvalPolicy", is("ApprovalPolicy")),
                ("sandboxMode", is("SandboxMode")),
                ("cwd", text()),
            ]),
        ),
        (
            "RunFinished",
            object(&[
                ("type", one_of(&["run_finished"])),
                ("runId", text()),
                ("sessionId", text()),
                ("reason", is("Reason")),
                ("answer", text()),
                ("usage", is("Usage")),
                ("durableSeq", or_null(whole())),
            ]),
        ),
        (
            "CheckProgress",
            object(&[
                ("type", one_of(&["progress"])),
                ("stage", one_of(&["waiting", "records", "requests"])),
                ("bytes", whole()),
                ("of", whole()),
            ]),
        ),
        (
            "CheckDone",
            object(&[("type", one_of(&["verified"])), ("report", is("Verified"))]),
        ),
    ]
}

/// Returns the names of the messages that streams send, with their schemas.
pub(crate) fn messages() -> serde_json::Value {
    json!({
        "view": is("ViewMessage"),
        "caught_up": is("CaughtUp"),
        "run_started": is("RunStarted"),
        "run_finished": is("RunFinished"),
        "progress": is("CheckProgress"),
        "verified": is("CheckDone"),
    })
}
