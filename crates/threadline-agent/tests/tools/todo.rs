use serde_json::{Value, json};
use threadline_agent::limits::{TODO_STEP_BYTES, TODO_STEPS};
use threadline_session::payload::Outcome;

use crate::support::Place;

fn list(steps: &[(&str, &str)]) -> Value {
    let steps: Vec<Value> = steps
        .iter()
        .map(|(step, status)| json!({ "step": step, "status": status }))
        .collect();
    json!({ "todos": steps })
}

#[tokio::test]
async fn the_whole_list_is_shown() {
    let place = Place::writable();
    let steps = [
        ("look", "done"),
        (" change\nit ", "in_progress"),
        ("test", "pending"),
    ];
    assert_eq!(
        place.ok("todo", list(&steps)).await,
        "1 of 3 steps done\n[x] 1. look\n[>] 2. change\\x0ait\n[ ] 3. test"
    );
    assert_eq!(place.ok("todo", list(&[])).await, "the list is empty");
}

#[tokio::test]
async fn what_is_no_list_is_refused_with_the_place() {
    let place = Place::writable();
    let long = "x".repeat(TODO_STEP_BYTES + 1);
    let fits = "x".repeat(TODO_STEP_BYTES);
    let many = vec![("a", "done"); TODO_STEPS + 1];
    place.ok("todo", list(&many[1..])).await;
    place.ok("todo", list(&[(&fits, "done")])).await;
    for (arguments, wanted) in [
        (json!({}), "`todos` is missing"),
        (json!({"todos": "a"}), "must be an array, not a string"),
        (json!({"todos": ["a"]}), "has a string as step 1"),
        (
            json!({"todos": [{"step": "a"}]}),
            "`status` of step 1, not null",
        ),
        (
            json!({"todos": [{"step": "a", "status": "done", "id": 1}]}),
            "unknown field `id` in step 1",
        ),
        (
            list(&[("a", "doing")]),
            "one of: pending, in_progress, done",
        ),
        (list(&[("a", "done"), (" ", "done")]), "no text in step 2"),
        (list(&[(&long, "done")]), "has 501 bytes of text in step 1"),
        (list(&many), "has 51 steps"),
        (
            list(&[("a", "in_progress"), ("b", "done"), ("c", "in_progress")]),
            "more than one step in progress (steps 1, 3)",
        ),
    ] {
        let text = place.not_ok("todo", arguments, Outcome::Error).await;
        assert!(text.contains(wanted), "{text}");
    }
}
