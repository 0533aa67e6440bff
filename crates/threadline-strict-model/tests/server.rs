//! The server over its sockets, in process and as a program.

#[cfg(test)]
mod server {
    use std::{net::SocketAddr, process::Stdio};

    use serde_json::{Value, json};
    use threadline_strict_model::{Dialect, Reply, Step, StrictModel};
    use tokio::{
        io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
        net::TcpStream,
        process::Command,
    };

    /// Sends one request on its own connection and returns status and body as they came.
    async fn send(to: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(to).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             content-type: application/json\r\nanthropic-version: 2023-06-01\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.write_all(body.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        (status, body.to_owned())
    }

    fn ask(said: &str, stream: bool) -> String {
        let messages = json!([{"role": "user", "content": said}]);
        json!({"model": "m", "messages": messages, "stream": stream}).to_string()
    }

    async fn chat(to: SocketAddr, said: &str) -> (u16, String) {
        send(to, "POST", "/v1/chat/completions", &ask(said, true)).await
    }

    async fn state(of: SocketAddr) -> Value {
        let (status, body) = send(of, "GET", "/_strict/state", "").await;
        assert_eq!(status, 200);
        let json = &body[body.find('{').unwrap()..=body.rfind('}').unwrap()];
        serde_json::from_str(json).unwrap()
    }

    #[tokio::test]
    async fn replies_are_chosen_by_order_and_content() {
        let model = StrictModel::start([
            Reply::text("special").when_user("magic"),
            Reply::text("always").when_last("again").repeat(),
            Reply::text("first"),
            Reply::from_fn(|json| {
                Reply::text(format!(
                    "{} messages",
                    json["messages"].as_array().map_or(0, Vec::len)
                ))
            }),
        ])
        .await
        .unwrap();
        for (said, wanted) in [
            ("hi", "first"),
            ("again", "always"),
            ("magic", "special"),
            ("again", "always"),
            ("hi", "1 "),
            ("magic", "echo: "),
        ] {
            let (status, body) = chat(model.address(), said).await;
            assert_eq!(status, 200);
            assert!(
                body.contains(&format!("\"content\":\"{wanted}\"")),
                "{said}: {body}"
            );
            assert!(body.contains("data: [DONE]"));
        }
        assert_eq!((model.queued(), model.requests().len()), (1, 6));
        model.assert_no_violations();
        model.stop().await;
    }

    #[tokio::test]
    async fn a_violation_is_answered_in_the_providers_shape() {
        let model = StrictModel::start([]).await.unwrap();
        let (status, body) = send(model.address(), "POST", "/v1/chat/completions", "{}").await;
        assert_eq!(status, 400);
        assert!(
            body.contains("\"type\":\"invalid_request_error\""),
            "{body}"
        );
        let violations = model.violations();
        assert_eq!((violations.len(), violations[0].request), (1, 0));
        assert!(!model.requests()[0].accepted);
        assert_eq!(model.requests()[0].body, "{}");
    }

    #[tokio::test]
    async fn a_request_that_does_not_stream_gets_one_object() {
        let reply = Reply::text("hi").and_call("a", "shell", json!({"x": 1}));
        let model = StrictModel::start([reply]).await.unwrap();
        let body = ask("x", false);
        let (_, answer) = send(model.address(), "POST", "/v1/chat/completions", &body).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
        assert_eq!(answer["choices"][0]["message"]["content"], "hi");
    }

    #[tokio::test]
    async fn dropping_the_server_ends_waiting_replies() {
        let model = StrictModel::start([Reply::text("a").gate("g"), Reply::text("b").stall()])
            .await
            .unwrap();
        let address = model.address();
        let gated = tokio::spawn(async move { TcpChat::open(address).await.rest().await });
        let gate = model.gate("g");
        gate.wait_reached().await;
        let stalled = tokio::spawn(async move { TcpChat::open(address).await.rest().await });
        model.wait_requests(2).await;
        drop(model);
        assert!(!gated.await.unwrap().contains("[DONE]"));
        assert!(!stalled.await.unwrap().contains("[DONE]"));
    }

    struct TcpChat(TcpStream);

    impl TcpChat {
        async fn open(to: SocketAddr) -> Self {
            let mut socket = TcpStream::connect(to).await.unwrap();
            let body = ask("x", true);
            let head = format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            socket
                .write_all(format!("{head}{body}").as_bytes())
                .await
                .unwrap();
            Self(socket)
        }

        async fn rest(mut self) -> String {
            let mut answer = Vec::new();
            // A broken connection is one of the ends that are asked for.
            let _ = self.0.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer).into_owned()
        }
    }

    #[tokio::test]
    async fn the_documented_script_is_read() {
        let docs = include_str!("../src/lib.rs");
        let json: String = docs
            .lines()
            .skip_while(|line| *line != "//! ```json")
            .skip(1)
            .take_while(|line| *line != "//! ```")
            .map(|line| line.trim_start_matches("//! "))
            .collect();
        assert_eq!(Reply::from_json(&json).unwrap().len(), 8);
        for bad in ["", "[{\"txt\":\"a\"}]", "{\"steps\":[{\"dance\":1}]}", "3"] {
            assert!(Reply::from_json(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn the_program_is_driven_from_outside() {
        let mut child = Command::new(env!("CARGO_BIN_EXE_strict-model"))
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines.next_line().await.unwrap().unwrap();
        let host = url
            .strip_prefix("http://")
            .unwrap()
            .strip_suffix("/v1")
            .unwrap();
        let address: SocketAddr = host.parse().unwrap();
        let script = json!([{"steps": [{"text": "a"}, {"gate": "g/1 ü"}, {"text": "b"}]}]);
        let pushed = send(address, "POST", "/_strict/script", &script.to_string()).await;
        assert_eq!(pushed.0, 204);
        assert_eq!(
            send(address, "POST", "/_strict/script", "[{\"x\":1}]")
                .await
                .0,
            400
        );
        assert_eq!(state(address).await["queued"], 1);
        let reply = tokio::spawn(async move { chat(address, "hi").await });
        let gate = "/_strict/gate/g%2F1%20%C3%BC";
        assert_eq!(send(address, "GET", gate, "").await.0, 204);
        let waiting = state(address).await;
        assert_eq!(waiting["waitingGates"], json!(["g/1 ü"]));
        assert_eq!(waiting["requests"][0]["json"]["model"], "m");
        assert_eq!(waiting["violations"], json!([]));
        assert_eq!(send(address, "POST", gate, "").await.0, 204);
        let (_, body) = reply.await.unwrap();
        assert!(body.contains("\"content\":\"b\"") && body.contains("[DONE]"));
        child.kill().await.unwrap();
    }

    /// The two other dialects: their route, a request, where the answer's text is.
    fn others(said: &str, stream: bool) -> [(&'static str, Value, &'static str); 2] {
        let messages = json!([{"role": "user", "content": said}]);
        [
            (
                "/v1/responses",
                json!({"model": "m", "store": false, "input": messages, "stream": stream}),
                "/output/0/content/0/text",
            ),
            (
                "/v1/messages",
                json!({"model": "m", "max_tokens": 9, "messages": messages, "stream": stream}),
                "/content/0/text",
            ),
        ]
    }

    #[tokio::test]
    async fn one_script_answers_in_every_dialect() {
        let model = StrictModel::start([Reply::default()
            .and_reasoning("hm")
            .step(Step::Redacted("x".into()))
            .and_text("special words")
            .and_call("a", "shell", json!({"x": 1}))
            .when_user("magic")
            .repeat()])
        .await
        .unwrap();
        for (route, body, _) in others("magic", true) {
            let (status, answer) = send(model.address(), "POST", route, &body.to_string()).await;
            assert_eq!(status, 200, "{answer}");
            let frames: Vec<Value> = answer
                .lines()
                .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
                .collect();
            let last = frames.last().unwrap()["type"].as_str().unwrap();
            assert!(matches!(last, "response.completed" | "message_stop"));
            for wanted in ["special ", "words", "hm", "shell"] {
                assert!(answer.contains(wanted), "{answer}");
            }
        }
        for (route, body, pointer) in others("plain", false) {
            let (_, answer) = send(model.address(), "POST", route, &body.to_string()).await;
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(answer.pointer(pointer), Some(&json!("echo: plain")));
        }
        for (route, mut body, _) in others("x", false) {
            body["nonsense"] = json!(1);
            let (status, answer) = send(model.address(), "POST", route, &body.to_string()).await;
            assert_eq!(status, 400);
            assert!(answer.contains("nonsense") && answer.contains("invalid_request_error"));
        }
        assert_eq!(model.violations().len(), 2);
        let dialects: Vec<_> = model.requests().iter().map(|r| r.dialect).collect();
        assert_eq!(dialects[..2], [Dialect::Responses, Dialect::Anthropic]);
    }

    #[tokio::test]
    async fn errors_have_the_dialects_shape() {
        for (route, body, _) in others("x", true) {
            let reply = Reply::status(529).code("overloaded_error").message("busy");
            let model = StrictModel::start([reply]).await.unwrap();
            let (status, answer) = send(model.address(), "POST", route, &body.to_string()).await;
            assert_eq!(status, 529);
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(answer["error"]["message"], "busy");
            assert_eq!(answer["type"] == "error", route == "/v1/messages");
        }
    }

    #[tokio::test]
    async fn a_pushed_reply_is_used() {
        let model = StrictModel::start([]).await.unwrap();
        model.push(Reply::steps([Step::Raw("{\"choices\":[]}".into())]));
        let (_, body) = chat(model.address(), "hi").await;
        assert!(body.contains("data: {\"choices\":[]}\n\n"));
    }
}
