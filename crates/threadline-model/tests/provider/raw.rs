//! Byte-level faults from a raw socket.

use std::time::Duration;

use threadline_model::{build, detect_ollama};
use threadline_session::payload::{StopReason, Usage};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::support::{Outcome, call, config, provider, request, text, tool_call, user};

const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// A stream as servers send it: comments, CRLF, characters of many bytes, escapes, a final usage.
const RECORDED: &str = concat!(
    ": keep-alive\r\n\r\n",
    "data: {\"model\":\"m-2\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Grüße 😀\"}}]}\r\n\r\n",
    ": keep-alive\n\n",
    "event: x\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" \\ud83d\\ude00\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"shell\",\"arguments\":\"\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"command\\\":\\\"ü\\\"}\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}],\"usage\":null}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7}}\n\n",
    "data: [DONE]\n\n",
);

async fn read_request(socket: &mut TcpStream) {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = socket.read(&mut buffer).await.unwrap();
        seen.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&seen);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            assert_ne!(count, 0, "the request was cut");
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| {
                line.to_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse()
                    .ok()
            })
            .unwrap_or(0);
        if body.len() >= length {
            return;
        }
    }
}

/// Serves each answer to one connection: pieces are flushed one by one.
async fn serve(answers: Vec<Vec<Vec<u8>>>) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        for pieces in answers {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.set_nodelay(true).unwrap();
            read_request(&mut socket).await;
            for piece in pieces {
                // The client may have gone once it knows enough.
                if socket.write_all(&piece).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    });
    (url, task)
}

async fn answer(pieces: &[&[u8]]) -> Outcome {
    let mut all = vec![HEAD.as_bytes().to_vec()];
    all.extend(pieces.iter().map(|piece| piece.to_vec()));
    let (url, task) = serve(vec![all]).await;
    let outcome = call(&*provider(&url), request(vec![user("a")])).await;
    task.await.unwrap();
    outcome
}

fn check_recorded(outcome: Outcome, at: usize) {
    let done = outcome.end.unwrap_or_else(|e| panic!("cut at {at}: {e}"));
    assert_eq!(
        done.content,
        [text("Grüße 😀 😀"), tool_call("a", "{\"command\":\"ü\"}")],
        "cut at {at}"
    );
    assert_eq!(
        (done.stop_reason, done.model.as_str()),
        (StopReason::ToolCalls, "m-2")
    );
    let usage = Usage {
        input_tokens: 5,
        output_tokens: 7,
        ..Usage::default()
    };
    assert_eq!(done.usage, Some(usage));
}

#[tokio::test]
async fn every_chunk_boundary_gives_the_same_answer() {
    let bytes = RECORDED.as_bytes();
    let mut pieces: Vec<Vec<Vec<u8>>> = Vec::new();
    for at in 0..=bytes.len() {
        let (a, b) = bytes.split_at(at);
        pieces.push(vec![HEAD.as_bytes().to_vec(), a.to_vec(), b.to_vec()]);
    }
    let (url, task) = serve(pieces).await;
    let provider = provider(&url);
    for at in 0..=bytes.len() {
        check_recorded(call(&*provider, request(vec![user("a")])).await, at);
    }
    task.await.unwrap();
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    check_recorded(answer(&single).await, usize::MAX);
}

#[tokio::test]
async fn a_stream_that_ends_early_is_a_cut_or_the_whole_answer() {
    let bytes = RECORDED.as_bytes();
    let last_brace = |mark: &str| RECORDED.find(mark).unwrap() + mark.len();
    let finished = last_brace("\"finish_reason\":\"tool_calls\"}],\"usage\":null}");
    let counted = last_brace("\"completion_tokens\":7}}");
    for at in 0..=bytes.len() {
        let outcome = answer(&[&bytes[..at]]).await;
        if at < finished {
            assert_eq!(outcome.code(), "cut_stream", "ended at {at}");
        } else {
            let done = outcome.end.unwrap_or_else(|e| panic!("ended at {at}: {e}"));
            assert_eq!(done.content.len(), 2);
            assert_eq!(done.usage.is_some(), at >= counted, "ended at {at}");
        }
    }
}

#[tokio::test]
async fn bad_characters_never_fail_the_run() {
    let outcome = answer(&[
        b"data: {\"choices\":[{\"delta\":{\"content\":\"a\xff\xc3\"}}]}\n\n",
        b"data: {\"choices\":[{\"delta\":{\"content\":\"b\\ud83d\"}}]}\n\n",
        b"data: {\"choices\":[{\"delta\":{\"content\":\"c\\u0000\"}, \"finish_reason\":\"stop\"}]}\n\n",
    ])
    .await;
    let done = outcome.end.unwrap();
    assert_eq!(done.content, [text("a\u{fffd}\u{fffd}b\u{fffd}c\0")]);
}

#[tokio::test]
async fn a_broken_connection_before_the_answer_is_retried() {
    let good = vec![HEAD.as_bytes().to_vec(), RECORDED.as_bytes().to_vec()];
    let (url, task) = serve(vec![Vec::new(), vec![b"HTTP/1.1 2".to_vec()], good]).await;
    let outcome = call(&*provider(&url), request(vec![user("a")])).await;
    assert_eq!(outcome.retries.len(), 2);
    assert_eq!(outcome.retries[0].status, None);
    check_recorded(outcome, 0);
    task.await.unwrap();
}

#[tokio::test]
async fn nobody_listening_is_a_connect_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let outcome = call(&*provider(&url), request(vec![user("a")])).await;
    assert_eq!((outcome.code(), outcome.retries.len()), ("connect", 4));
    let error = outcome.end.unwrap_err();
    assert!(error.hint().unwrap().contains(&url));
    assert!(
        error.message().to_lowercase().contains("refused"),
        "{}",
        error.message()
    );
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = config(&format!("http://{}/v1", listener.local_addr().unwrap()));
    config.first_byte_timeout = Duration::from_millis(30);
    let outcome = call(&*build(config).unwrap(), request(vec![user("a")])).await;
    assert_eq!(outcome.code(), "first_byte_timeout");
}

#[tokio::test]
async fn an_answer_that_is_no_stream_is_told() {
    for (kind, body, code, shown) in [
        (
            "application/json",
            r#"{"error":{"message":"no model"}}"#,
            "provider_status",
            "no model",
        ),
        (
            "application/json",
            "{}",
            "malformed_response",
            "application/json",
        ),
        (
            "text/html; charset=utf-8",
            "<p>",
            "malformed_response",
            "text/html",
        ),
    ] {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n");
        let (url, task) = serve(vec![vec![head.into_bytes(), body.into()]]).await;
        let outcome = call(&*provider(&url), request(vec![user("a")])).await;
        assert_eq!(outcome.code(), code);
        assert!(outcome.end.unwrap_err().to_string().contains(shown));
        task.await.unwrap();
    }
}

#[tokio::test]
async fn https_begins_with_a_tls_handshake() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = config(&format!("https://{}/v1", listener.local_addr().unwrap()));
    config.max_attempts = 1;
    let provider = build(config).unwrap();
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.read_u8().await.unwrap()
    });
    let outcome = call(&*provider, request(vec![user("a")])).await;
    assert_eq!(outcome.code(), "connect");
    let handshake = 0x16;
    assert_eq!(server.await.unwrap(), handshake);
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        for _ in 0..3 {
            read_request(&mut socket).await;
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                 transfer-encoding: chunked\r\n\r\n{:x}\r\n{RECORDED}\r\n0\r\n\r\n",
                RECORDED.len()
            );
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let provider = provider(&url);
    for _ in 0..3 {
        check_recorded(call(&*provider, request(vec![user("a")])).await, 0);
    }
    server.await.unwrap();
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let head = "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\n\
                content-length: 0\r\nconnection: close\r\n\r\n";
    let (url, task) = serve(vec![vec![head.into()]]).await;
    let outcome = call(&*provider(&url), request(vec![user("a")])).await;
    assert_eq!(outcome.end.unwrap_err().status(), Some(307));
    task.await.unwrap();
}

#[tokio::test]
async fn an_error_inside_the_stream_is_typed() {
    let outcome = answer(&[
        b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
        b"data: {\"error\":{\"message\":\"overloaded\",\"code\":503}}\n\n",
    ])
    .await;
    assert_eq!(
        (outcome.code(), outcome.chunks.len()),
        ("provider_status", 1)
    );
    assert_eq!(outcome.end.unwrap_err().status(), Some(503));
}

#[tokio::test]
async fn a_line_without_end_is_refused() {
    let mut pieces = vec![HEAD.as_bytes().to_vec(), b"data: ".to_vec()];
    pieces.extend(std::iter::repeat_n(vec![b'x'; 1 << 20], 9));
    let (url, task) = serve(vec![pieces]).await;
    let outcome = call(&*provider(&url), request(vec![user("a")])).await;
    assert_eq!(outcome.code(), "response_too_large");
    task.await.unwrap();
}

#[tokio::test]
async fn ollama_is_found_only_with_a_model() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
    let within = Duration::from_secs(20);
    for (body, model) in [
        (
            r#"{"models":[{"name":"qwen3:4b","size":1},{"name":"x"}]}"#,
            Some("qwen3:4b"),
        ),
        (r#"{"models":[]}"#, None),
        ("nonsense", None),
    ] {
        let (url, task) = serve(vec![vec![head.into(), body.into()]]).await;
        let found = detect_ollama(url.trim_end_matches("/v1"), within).await;
        let told = found.as_ref().and_then(|config| config.model.as_deref());
        assert_eq!(told, model);
        if let Some(config) = found {
            assert_eq!(config.base_url.as_deref(), Some(url.as_str()));
            build(config).unwrap();
        }
        task.await.unwrap();
    }
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    assert!(
        detect_ollama(&url, Duration::from_millis(20))
            .await
            .is_none()
    );
}
