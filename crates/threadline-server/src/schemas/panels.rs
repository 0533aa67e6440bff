//! What is said of a session as a whole.

use serde_json::json;

use super::{Named, boolean, is, list, object, one_of, or_null, text, whole};

/// Returns the schemas of checks, lineages and audits.
pub(super) fn panels() -> Named {
    let relatives = object(&[
        ("sessions", list(is("Relative"))),
        ("nextCursor", or_null(text())),
    ]);
    let entry = |kind: &str, fields: &[(&'static str, serde_json::Value)]| {
        let mut all = vec![
            ("kind", one_of(&[kind])),
            ("seq", whole()),
            ("time", whole()),
        ];
        all.extend_from_slice(fields);
        object(&all)
    };
    vec![
        (
            "Verified",
            object(&[
                ("ok", boolean()),
                ("events", whole()),
                ("chainedTurns", whole()),
                ("unverified", whole()),
                (
                    "findings",
                    list(object(&[("seq", or_null(whole())), ("message", text())])),
                ),
                ("found", whole()),
                ("hint", or_null(text())),
                (
                    "requests",
                    or_null(object(&[
                        ("ok", boolean()),
                        (
                            "unequal",
                            list(object(&[("seq", whole()), ("step", whole())])),
                        ),
                        ("found", whole()),
                    ])),
                ),
            ]),
        ),
        (
            "Sync",
            object(&[
                ("lastSeq", whole()),
                ("durableSeq", or_null(whole())),
                ("durability", one_of(&["step", "event", "os"])),
                ("epoch", or_null(whole())),
                ("bytes", whole()),
                (
                    "writer",
                    or_null(object(&[
                        ("pid", whole()),
                        ("host", text()),
                        ("since", whole()),
                    ])),
                ),
            ]),
        ),
        (
            "Relative",
            object(&[
                ("id", text()),
                ("kind", one_of(&["session", "fork", "subagent"])),
                ("atSeq", or_null(whole())),
                ("summary", or_null(is("Summary"))),
            ]),
        ),
        (
            "Lineage",
            object(&[
                ("session", is("Relative")),
                ("ancestors", list(is("Relative"))),
                ("older", boolean()),
                ("siblings", relatives.clone()),
                ("children", relatives),
            ]),
        ),
        (
            "Timeline",
            object(&[
                ("turn", whole()),
                ("startedAt", whole()),
                ("endedAt", or_null(whole())),
                ("cut", boolean()),
                ("spans", list(is("Span"))),
            ]),
        ),
        (
            "Span",
            object(&[
                ("kind", one_of(&["model", "tool", "approval"])),
                ("label", text()),
                ("step", whole()),
                ("seq", whole()),
                ("startedAt", whole()),
                ("endedAt", or_null(whole())),
                ("outcome", or_null(is("Outcome"))),
            ]),
        ),
        (
            "Audit",
            object(&[
                ("entries", list(is("AuditEntry"))),
                ("next", or_null(whole())),
            ]),
        ),
        (
            "AuditEntry",
            json!({"oneOf": [
                entry("asked", &[
                    ("approvalId", text()),
                    ("name", text()),
                    ("arguments", text()),
                    ("reason", text()),
                ]),
                entry("decided", &[
                    ("approvalId", text()),
                    ("decision", one_of(&[
                        "approved", "approved_for_session", "denied", "expired",
                    ])),
                    ("by", text()),
                    ("comment", or_null(text())),
                ]),
                entry("policy", &[
                    ("turn", whole()),
                    ("approvalPolicy", is("ApprovalPolicy")),
                    ("sandboxMode", is("SandboxMode")),
                ]),
                entry("granted", &[
                    ("grantId", text()),
                    ("prefix", list(text())),
                    ("by", text()),
                ]),
                entry("revoked", &[("grantId", text()), ("by", text())]),
                entry("other", &[("type", text())]),
            ]}),
        ),
    ]
}
