//! Spans as a collector gets them.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind},
};
use prost::Message as _;
use serde_json::json;
use threadline_strict_model::Reply;

use crate::support::{Strict, World};

/// A collector on this machine that keeps what it is sent.
struct Collector {
    address: String,
    sent: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

impl Collector {
    fn start(status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let sent = Arc::new(Mutex::new(Vec::new()));
        let kept = sent.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = kept.clone();
                std::thread::spawn(move || serve(stream, status, &kept));
            }
        });
        Self { address, sent }
    }

    fn spans(&self) -> Vec<Span> {
        let sent = self.sent.lock().unwrap();
        let resources = sent.iter().flat_map(|request| &request.resource_spans);
        let scopes = resources.flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }
}

fn serve(stream: TcpStream, status: &str, kept: &Mutex<Vec<ExportTraceServiceRequest>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    loop {
        let mut length = 0;
        let mut head = String::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
            head.push_str(&line);
            head.push('\n');
        }
        assert!(head.starts_with("post /v1/traces http/1.1\n"), "{head}");
        assert!(
            head.contains("content-type: application/x-protobuf\n"),
            "{head}"
        );
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        kept.lock().unwrap().push(request);
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn attributes(list: &[KeyValue]) -> BTreeMap<String, serde_json::Value> {
    let read = |pair: &KeyValue| {
        let value = match pair.value.as_ref().and_then(|value| value.value.as_ref()) {
            Some(Value::StringValue(text)) => json!(text),
            Some(Value::IntValue(number)) => json!(number),
            other => json!(format!("{other:?}")),
        };
        (pair.key.clone(), value)
    };
    list.iter().map(read).collect()
}

/// A parent that gives a task to a child, which answers.
fn replies() -> [Reply; 3] {
    [
        Reply::steps([]).and_call("call_1", "agent", json!({"task": "the child's part"})),
        Reply::text("the child's answer"),
        Reply::text("the parent's answer"),
    ]
}

#[test]
fn a_collector_gets_runs_calls_and_tools_with_their_parents_and_no_word_of_what_was_said() {
    let strict = Strict::new(replies());
    let world = World::new().with_model(&strict);
    let collector = Collector::start("200 OK");
    let called = world.call(&["run", "--otlp", &collector.address, "the secret task"]);
    called.ok();
    // All of them were sent before the program ended.
    let spans = collector.spans();
    let named =
        |name: &str| -> Vec<&Span> { spans.iter().filter(|span| span.name == name).collect() };
    let runs = named("invoke_agent threadline");
    let [tool] = named("execute_tool agent")[..] else {
        panic!("{spans:?}");
    };
    let chats = named("chat m");
    assert_eq!(
        (runs.len(), chats.len(), spans.len()),
        (2, 3, 6),
        "{spans:?}"
    );
    let root = runs
        .iter()
        .find(|run| run.parent_span_id.is_empty())
        .unwrap();
    let child = runs
        .iter()
        .find(|run| run.parent_span_id == tool.span_id)
        .unwrap();
    assert_eq!(tool.parent_span_id, root.span_id);
    let below = |run: &Span| {
        let of = |chat: &&&Span| chat.parent_span_id == run.span_id;
        chats.iter().filter(of).count()
    };
    assert_eq!((below(root), below(child)), (2, 1));
    assert!(spans.iter().all(|span| span.trace_id == root.trace_id));

    let found = attributes(&root.attributes);
    assert_eq!(found["gen_ai.operation.name"], "invoke_agent");
    assert_eq!(found["gen_ai.provider.name"], "openai-chat");
    assert_eq!(found["threadline.end.reason"], "completed");
    assert!(found["gen_ai.conversation.id"].is_string());
    let found = attributes(&chats[0].attributes);
    assert_eq!(chats[0].kind, SpanKind::Client as i32);
    assert_eq!(found["gen_ai.operation.name"], "chat");
    assert_eq!(found["gen_ai.request.model"], "m");
    assert!(
        found["gen_ai.usage.input_tokens"].as_i64().unwrap() > 0,
        "{found:?}"
    );
    assert!(
        found["gen_ai.usage.output_tokens"].as_i64().unwrap() > 0,
        "{found:?}"
    );
    assert!(found.contains_key("gen_ai.response.finish_reasons"));
    let found = attributes(&tool.attributes);
    assert_eq!(found["gen_ai.operation.name"], "execute_tool");
    assert_eq!(found["gen_ai.tool.name"], "agent");
    assert_eq!(found["gen_ai.tool.call.id"], "call_1");
    assert_eq!(found["threadline.tool.outcome"], "ok");
    let sent = collector.sent.lock().unwrap();
    let resource = sent[0].resource_spans[0].resource.as_ref().unwrap();
    assert_eq!(
        attributes(&resource.attributes)["service.name"],
        "threadline"
    );
    let all = format!("{sent:?}");
    for word in ["secret", "child's part", "answer"] {
        assert!(!all.contains(word), "{word} in {all}");
    }
}

#[test]
fn what_was_said_is_sent_only_when_the_settings_say_so() {
    let strict = Strict::new(replies());
    let world = World::new().with_model(&strict);
    let collector = Collector::start("200 OK");
    let path = world.home().join(".config/threadline/config.toml");
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str(&format!(
        "[telemetry]\notlp = \"{}\"\ncontent = true\n",
        collector.address
    ));
    fs::write(&path, text).unwrap();
    world.call(&["run", "the secret task"]).ok();
    let spans = collector.spans();
    let said = |name: &str, field: &str| -> String {
        let of = spans.iter().filter(|span| span.name == name);
        let texts = of.filter_map(|span| attributes(&span.attributes).get(field).cloned());
        texts.map(|text| text.to_string()).collect()
    };
    let asked = said("chat m", "gen_ai.input.messages");
    assert!(
        asked.contains("the secret task") && asked.contains("the child's answer"),
        "{asked}"
    );
    let answered = said("chat m", "gen_ai.output.messages");
    assert!(answered.contains("the parent's answer"), "{answered}");
    let tool = "execute_tool agent";
    assert!(said(tool, "gen_ai.tool.call.arguments").contains("the child's part"));
    assert!(said(tool, "gen_ai.tool.call.result").contains("the child's answer"));
}

#[test]
fn a_collector_that_is_down_or_refuses_costs_a_run_one_warning() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let refusing = Collector::start("503 Service Unavailable");
    for (address, reason) in [(&address, "error sending"), (&refusing.address, "503")] {
        let strict = Strict::new(replies());
        let world = World::new().with_model(&strict);
        let called = world.call(&["run", "--otlp", address, "go"]);
        called.ok();
        assert!(
            called.stdout.contains("the parent's answer"),
            "{}",
            called.stdout
        );
        let warned: Vec<_> = called
            .stderr
            .lines()
            .filter(|line| line.contains("spans are not taken"))
            .collect();
        assert_eq!(warned.len(), 1, "{}", called.stderr);
        assert!(warned[0].contains(reason), "{}", warned[0]);
    }
    let called = World::new().call(&["run", "--otlp", "https://h", "go"]);
    called.exits(2);
    assert!(
        called.stderr.contains("only http:// is spoken"),
        "{}",
        called.stderr
    );
}
