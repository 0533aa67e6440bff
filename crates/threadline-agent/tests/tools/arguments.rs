use std::sync::Arc;

use serde_json::json;
use threadline_agent::limits::ARGUMENT_BYTES;
use threadline_agent::tools::{Effect, Read, Toolbox, parse_arguments};
use threadline_session::payload::Outcome;

use crate::support::Place;

#[test]
fn text_becomes_an_object_or_an_error_that_says_why() {
    assert_eq!(parse_arguments("").unwrap(), json!({}));
    assert_eq!(parse_arguments(" \n").unwrap(), json!({}));
    assert_eq!(parse_arguments(r#"{"a":1}"#).unwrap(), json!({"a": 1}));
    assert_eq!(
        parse_arguments(r#"{"a":"\ud83d"}"#).unwrap(),
        json!({"a": "\u{fffd}"})
    );
    for (given, wanted) in [
        ("[1]", "must be one JSON object, not an array"),
        ("\"x\"", "must be one JSON object, not a string"),
        ("null", "must be one JSON object, not null"),
        (r#"{"a":"#, "are not valid JSON: EOF while parsing"),
        (r#"{"a":1} x"#, "trailing characters"),
    ] {
        let error = parse_arguments(given).unwrap_err().to_string();
        assert!(error.contains(wanted), "{given}: {error}");
    }
    let long = "{}".to_owned() + &" ".repeat(ARGUMENT_BYTES - 2);
    assert!(parse_arguments(&long).is_ok());
    assert!(parse_arguments(&format!("{long} ")).is_err());
}

#[tokio::test]
async fn errors_name_the_field() {
    let place = Place::writable();
    for (tool, arguments, wanted) in [
        ("read", json!({}), "argument `path` is missing"),
        ("read", json!({"path": null}), "argument `path` is missing"),
        (
            "read",
            json!({"path": 7}),
            "argument `path` must be a string, not a number",
        ),
        ("read", json!({"path": ""}), "argument `path` is empty"),
        (
            "read",
            json!({"path": "a\0b"}),
            "argument `path` contains a NUL",
        ),
        (
            "read",
            json!({"path": "a", "offset": 0}),
            "argument `offset` must be a whole number",
        ),
        (
            "read",
            json!({"path": "a", "offset": 1.5}),
            "argument `offset` must be a whole number",
        ),
        (
            "read",
            json!({"path": "a", "limit": 2001}),
            "from 1 to 2000, not 2001",
        ),
        (
            "read",
            json!({"path": "a", "limit": "5"}),
            "argument `limit` must be a whole number",
        ),
        (
            "read",
            json!({"path": "a", "lines": 5}),
            "argument `lines` is not known; the arguments of read are: path, offset, limit",
        ),
        (
            "edit",
            json!({"path": "a", "old_string": "x"}),
            "argument `new_string` is missing",
        ),
        (
            "edit",
            json!({"path": "a", "old_string": "x", "new_string": "y", "replace_all": "yes"}),
            "argument `replace_all` must be true or false, not a string",
        ),
        (
            "edit",
            json!({"path": "a", "old_string": "", "new_string": "y"}),
            "is empty",
        ),
        (
            "edit",
            json!({"path": "a", "old_string": "x", "new_string": "x"}),
            "is the same",
        ),
        (
            "grep",
            json!({"pattern": "("}),
            "argument `pattern` is no usable regular expression",
        ),
        (
            "grep",
            json!({"pattern": "a\nb"}),
            "argument `pattern` is no usable",
        ),
        (
            "grep",
            json!({"pattern": "x{1000}{1000}{1000}"}),
            "argument `pattern` is no usable",
        ),
        (
            "find",
            json!({"pattern": "{a"}),
            "argument `pattern` is no glob",
        ),
        (
            "find",
            json!({"pattern": "/etc/*"}),
            "argument `pattern` must be relative",
        ),
        (
            "shell",
            json!({"command": " "}),
            "argument `command` is empty",
        ),
        (
            "shell",
            json!({"command": "a\0"}),
            "argument `command` contains a NUL",
        ),
        (
            "shell",
            json!({"command": "x".repeat(65_537)}),
            "argument `command` has 65537 bytes",
        ),
        (
            "shell",
            json!({"command": "true", "timeout_ms": 600_001}),
            "argument `timeout_ms` must be a whole number from 1 to 600000",
        ),
        ("write", json!("x"), "must be one JSON object, not a string"),
    ] {
        let text = place.not_ok(tool, arguments.clone(), Outcome::Error).await;
        assert!(text.contains(wanted), "{tool} {arguments}: {text}");
    }
}

#[test]
fn the_box_is_ordered_and_refuses_twins() {
    let mut tools = Toolbox::standard();
    let wanted = [
        "agent",
        "apply_patch",
        "edit",
        "find",
        "grep",
        "job_kill",
        "job_start",
        "job_status",
        "ls",
        "read",
        "read_output",
        "shell",
        "todo",
        "write",
    ];
    assert_eq!(tools.names().collect::<Vec<_>>(), wanted);
    let definitions = tools.definitions();
    assert_eq!(definitions, Toolbox::standard().definitions());
    for definition in &definitions {
        assert_eq!(definition.parameters["additionalProperties"], json!(false));
        assert!(!definition.description.is_empty());
    }
    let error = tools.register(Arc::new(Read)).unwrap_err();
    assert_eq!(error.name, "read");
    let text = tools.unknown("reed\n").text();
    let known = wanted.join(", ");
    assert_eq!(
        text,
        format!("there is no tool `reed\\x0a`; the tools are: {known}")
    );
}

#[test]
fn effects_are_told() {
    let tools = Toolbox::standard();
    for (name, effect) in [
        ("read", Effect::ReadOnly),
        ("ls", Effect::ReadOnly),
        ("find", Effect::ReadOnly),
        ("grep", Effect::ReadOnly),
        ("read_output", Effect::ReadOnly),
        ("todo", Effect::ReadOnly),
        ("agent", Effect::ReadOnly),
        ("job_status", Effect::ReadOnly),
        ("job_kill", Effect::ReadOnly),
        ("job_start", Effect::Executes),
        ("write", Effect::Writes),
        ("edit", Effect::Writes),
        ("apply_patch", Effect::Writes),
        ("shell", Effect::Executes),
    ] {
        assert_eq!(tools.get(name).unwrap().effect(&json!({})), effect);
    }
}
