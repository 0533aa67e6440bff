//! Errors that the provider itself answers with, and retries.

use std::time::Duration;

use futures_util::StreamExt as _;
use threadline_model::{ModelError, ModelEvent, ProviderConfig, build};
use threadline_strict_model::{Reply, Step, StrictModel};

use crate::support::{KEY, call, config, provider, request, text, user};

#[tokio::test]
async fn transient_statuses_are_retried_and_reported() {
    for status in [408, 409, 429, 500, 502, 503, 504, 529] {
        let model = StrictModel::start([
            Reply::status(status).retry_after("0").message("busy"),
            Reply::status(status),
            Reply::text("fine"),
        ])
        .await
        .unwrap();
        let outcome = call(&*provider(&model.base_url()), request(vec![user("a")])).await;
        assert_eq!(outcome.end.unwrap().content, [text("fine")]);
        let told: Vec<_> = outcome
            .retries
            .iter()
            .map(|retry| (retry.attempt, retry.status, retry.delay_ms))
            .collect();
        assert_eq!(
            told,
            [(1, Some(status), Some(0)), (2, Some(status), Some(0))]
        );
        assert!(outcome.retries[0].message.contains("busy"));
        let requests = model.requests();
        assert!(
            requests.iter().all(|r| r.body == requests[0].body),
            "every attempt is the same"
        );
    }
}

#[tokio::test]
async fn retry_after_is_honoured_over_the_own_backoff() {
    let model = StrictModel::start([Reply::status(429).retry_after("30")])
        .await
        .unwrap();
    let mut stream = provider(&model.base_url()).stream(request(vec![user("a")]));
    let Some(Ok(ModelEvent::Retry(trouble))) = stream.next().await else {
        panic!("no retry")
    };
    assert_eq!(trouble.delay_ms, Some(30_000));
}

#[tokio::test]
async fn a_wait_that_is_too_long_fails_at_once() {
    let model = StrictModel::start([Reply::status(429).retry_after("3600")])
        .await
        .unwrap();
    let outcome = call(&*provider(&model.base_url()), request(vec![user("a")])).await;
    assert!(outcome.retries.is_empty());
    let Err(ModelError::RateLimited { retry_after, .. }) = &outcome.end else {
        panic!("{outcome:?}")
    };
    assert_eq!(*retry_after, Some(Duration::from_secs(3600)));
    assert!(outcome.end.unwrap_err().hint().unwrap().contains("3600 s"));
}

#[tokio::test]
async fn attempts_end_after_five() {
    let model = StrictModel::start([Reply::status(500).repeat()])
        .await
        .unwrap();
    let outcome = call(&*provider(&model.base_url()), request(vec![user("a")])).await;
    assert_eq!(outcome.retries.len(), 4);
    assert_eq!(outcome.code(), "provider_status");
    assert_eq!(outcome.end.unwrap_err().status(), Some(500));
    assert_eq!(model.requests().len(), 5);
}

#[tokio::test]
async fn lasting_errors_are_not_retried_and_never_show_the_key() {
    for (status, code, error) in [
        (401, None, "auth"),
        (403, None, "auth"),
        (400, None, "provider_status"),
        (400, Some("context_length_exceeded"), "context_length"),
        (404, None, "provider_status"),
        (429, Some("insufficient_quota"), "insufficient_quota"),
    ] {
        let mut reply = Reply::status(status).message(format!("Incorrect key: {KEY}."));
        if let Some(code) = code {
            reply = reply.code(code);
        }
        let model = StrictModel::start([reply]).await.unwrap();
        let outcome = call(&*provider(&model.base_url()), request(vec![user("a")])).await;
        assert_eq!((outcome.code(), model.requests().len()), (error, 1));
        let error = outcome.end.unwrap_err();
        let everything = format!("{error} {error:?} {:?} {}", error.hint(), error.message());
        assert!(!everything.contains("hunter2"), "{everything}");
        assert!(everything.contains("[API key]"));
    }
}

#[tokio::test]
async fn after_the_first_delta_nothing_is_retried() {
    for (reply, code) in [
        (Reply::text("a b c d").cut_after(2), "cut_stream"),
        (Reply::text("a b ").malformed(), "malformed_response"),
    ] {
        let model = StrictModel::start([reply]).await.unwrap();
        let outcome = call(&*provider(&model.base_url()), request(vec![user("a")])).await;
        assert_eq!(outcome.code(), code);
        let said: String = outcome
            .chunks
            .iter()
            .map(|chunk| chunk.delta.as_str())
            .collect();
        assert_eq!(said, "a b ", "what came before the fault is shown");
        assert!(outcome.retries.is_empty());
        assert_eq!(model.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_stalled_stream_ends_with_an_idle_error() {
    let model = StrictModel::start([Reply::text("a ").stall()])
        .await
        .unwrap();
    let mut config = config(&model.base_url());
    config.idle_timeout = Duration::from_millis(30);
    let outcome = call(&*build(config).unwrap(), request(vec![user("a")])).await;
    assert_eq!(outcome.code(), "idle_timeout");
    assert_eq!(outcome.chunks.len(), 1);
}

#[tokio::test]
async fn a_finished_answer_does_not_wait_for_ever_for_its_usage() {
    let finish = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let reply = Reply::text("a").step(Step::Raw(finish.into())).stall();
    let model = StrictModel::start([reply]).await.unwrap();
    let mut config = config(&model.base_url());
    config.idle_timeout = Duration::from_millis(30);
    let outcome = call(&*build(config).unwrap(), request(vec![user("a")])).await;
    assert_eq!(outcome.end.unwrap().content, [text("a")]);
}

#[tokio::test]
async fn an_invalid_request_is_refused_and_recorded() {
    let model = StrictModel::start([]).await.unwrap();
    let orphan = crate::support::tool_result("nobody", "x");
    let outcome = call(
        &*provider(&model.base_url()),
        request(vec![user("a"), orphan]),
    )
    .await;
    assert_eq!(outcome.code(), "provider_status");
    assert_eq!(model.violations().len(), 1);
}

#[tokio::test]
async fn a_missing_key_is_told_before_anything_is_sent() {
    let mut config = ProviderConfig::new("openai-chat");
    config.base_url = Some("https://model.invalid/v1".into());
    // Also shows that an https client can be made here.
    let provider = build(config).unwrap();
    assert_eq!(provider.body(&request(vec![user("a")]))["model"], "m");
    let outcome = call(&*provider, request(vec![user("a")])).await;
    assert_eq!(outcome.code(), "missing_key");
    let error = outcome.end.unwrap_err();
    assert!(error.hint().unwrap().contains("OPENAI_API_KEY"));
}

#[tokio::test]
async fn a_local_server_needs_no_key() {
    let model = StrictModel::start([]).await.unwrap();
    let mut config = config(&model.base_url());
    config.api_key = None;
    call(&*build(config).unwrap(), request(vec![user("a")]))
        .await
        .end
        .unwrap();
    assert_eq!(model.requests()[0].authorization, None);
}
