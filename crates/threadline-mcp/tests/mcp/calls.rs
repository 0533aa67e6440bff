//! Single calls of tools of a process.

use std::time::Duration;

use serde_json::json;
use threadline_agent::tools::Effect;
use threadline_session::payload::Outcome;
use tokio::sync::mpsc;

use crate::support::*;

#[tokio::test]
async fn a_call_reaches_the_server_and_its_answer_comes_back() {
    let alone = Alone::new("plain").await;
    let output = alone.call("echo", json!({ "text": "hello" })).await;
    assert_eq!(
        (output.outcome, output.text()),
        (Outcome::Ok, "you said hello".into())
    );
    let output = alone.call("structured", json!({})).await;
    assert_eq!(output.text(), "{\"n\":1}");
    let output = alone.call("long", json!({})).await;
    assert_eq!(output.text().len(), 100_000);
}

#[tokio::test]
async fn a_failure_of_the_tool_and_one_of_the_protocol_are_errors() {
    let alone = Alone::new("plain").await;
    let output = alone.call("fail", json!({})).await;
    assert_eq!(
        (output.outcome, output.text()),
        (Outcome::Error, "no such thing".into())
    );
    let output = alone.call("wrong", json!({})).await;
    assert_eq!(output.outcome, Outcome::Error);
    assert!(
        output.text().contains("error -32602: bad arguments"),
        "{}",
        output.text()
    );
}

#[tokio::test]
async fn progress_is_shown_while_the_call_runs() {
    let alone = Alone::new("plain").await;
    let (sender, mut shown) = mpsc::channel(64);
    let mut context = alone.context();
    context.output = Some(sender);
    let output = find(&alone.ready, "progress")
        .run(&json!({}), &context)
        .await;
    assert_eq!(output.text(), "all parts");
    drop(context);
    let mut notes = String::new();
    while let Some((_, note)) = shown.recv().await {
        notes.push_str(&note);
    }
    assert!(
        notes.contains("[1/2] part 1\n") && notes.contains("[2/2] part 2\n"),
        "{notes}"
    );
}

#[tokio::test]
async fn a_cancelled_call_ends_at_once_and_the_server_is_told() {
    let alone = Alone::new("plain").await;
    let context = alone.context();
    let cancel = context.cancel.clone();
    let slow = find(&alone.ready, "slow");
    let call = tokio::spawn(async move { slow.run(&json!({}), &context).await });
    alone.place.has_read("s", r#""name":"slow""#).await;
    cancel.cancel();
    assert_eq!(call.await.unwrap().outcome, Outcome::Cancelled);
    alone.place.has_read("s", "notifications/cancelled").await;
    // The connection is as good as before.
    assert_eq!(
        alone.call("echo", json!({ "text": "a" })).await.text(),
        "you said a"
    );
}

#[tokio::test]
async fn a_call_whose_time_is_over_is_a_timeout_and_the_server_is_told() {
    let place = Place::new();
    let mut config = place.server("s", "plain");
    config.timeout = Duration::from_millis(50);
    let alone = Alone::with(place, config).await;
    let output = alone.call("slow", json!({})).await;
    assert_eq!(output.outcome, Outcome::Timeout);
    assert!(output.text().contains("within 0.05 s"), "{}", output.text());
    alone.place.has_read("s", "notifications/cancelled").await;
}

#[tokio::test]
async fn death_in_the_middle_of_a_call_is_an_unknown_outcome_and_the_next_call_connects_again() {
    let alone = Alone::new("plain").await;
    let output = alone.call("die", json!({})).await;
    assert_eq!(output.outcome, Outcome::Unknown);
    assert!(
        output
            .text()
            .contains("check what it did before you repeat it")
    );
    let pids = alone.place.pids("s");
    eventually(|| !is_alive(pids[0])).await;
    assert_eq!(
        alone.call("echo", json!({ "text": "b" })).await.text(),
        "you said b"
    );
    assert_eq!(alone.place.pids("s").len(), 2);
}

#[tokio::test]
async fn a_server_that_cannot_be_connected_to_again_is_sent_nothing() {
    let mut config = Place::new().server("s", "plain");
    let place = Place::new();
    let gone = place.cwd().join("gone.sh");
    std::fs::write(&gone, include_str!("server.sh")).unwrap();
    if let threadline_mcp::Transport::Stdio { args, .. } = &mut config.transport {
        args[0] = gone.to_str().unwrap().into();
    }
    let alone = Alone::with(place, config).await;
    std::fs::remove_file(gone).unwrap();
    assert_eq!(alone.call("die", json!({})).await.outcome, Outcome::Unknown);
    let output = alone.call("echo", json!({})).await;
    assert_eq!(output.outcome, Outcome::Error);
    assert!(
        output.text().contains("was not sent to it"),
        "{}",
        output.text()
    );
}

#[tokio::test]
async fn an_endless_answer_ends_the_connection_and_not_the_process() {
    let alone = Alone::new("plain").await;
    let output = alone.call("flood", json!({})).await;
    assert_eq!(output.outcome, Outcome::Unknown);
    assert!(
        output.text().contains("a message that is too long"),
        "{}",
        output.text()
    );
    assert_eq!(
        alone.call("echo", json!({ "text": "c" })).await.text(),
        "you said c"
    );
}

#[tokio::test]
async fn a_server_may_ask_where_it_works() {
    let alone = Alone::new("plain").await;
    let cwd = alone.place.cwd().display();
    let said = alone.call("where", json!({})).await.text();
    assert_eq!(said, format!("file://{cwd} {cwd}"));
}

#[tokio::test]
async fn a_server_sees_a_few_variables_and_those_that_were_given_to_it() {
    let place = Place::new();
    let mut config = place.server("s", "plain");
    if let threadline_mcp::Transport::Stdio { env, .. } = &mut config.transport {
        env.insert("GIVEN".into(), "a token".into());
        env.insert("API_KEY".into(), "${HOME}".into());
    }
    let alone = Alone::with(place, config).await;
    let said = alone.call("env", json!({})).await.text();
    assert!(
        said.ends_with("a token") && said.contains("API_KEY "),
        "{said}"
    );
    // What cargo sets for this test is none of its business.
    assert!(!said.contains("CARGO"), "{said}");
}

#[tokio::test]
async fn only_a_trusted_server_is_believed_that_a_tool_reads() {
    for trust in [false, true] {
        let place = Place::new();
        let mut config = place.server("s", "plain");
        config.trust = trust;
        let alone = Alone::with(place, config).await;
        let effect = |name: &str| find(&alone.ready, name).effect(&json!({}));
        assert_eq!(effect("echo"), Effect::Executes);
        assert_eq!(effect("look") == Effect::ReadOnly, trust);
    }
}
