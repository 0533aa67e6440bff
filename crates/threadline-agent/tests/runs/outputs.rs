use std::{io, sync::Arc};

use async_trait::async_trait;
use serde_json::{Value, json};
use threadline_agent::{
    Agents, AgentsConfig, ResumeOptions, RunInput, StartError, Started,
    limits::{OUTPUT_LOG_BYTES, RESULT_BYTES},
};
use threadline_session::{
    HistoryItem, Payload, SessionId,
    payload::{ApprovalPolicy, ContentPart, EndReason, Outcome, ToolResult, plain_text},
};
use threadline_store::{
    Backend, BackendError, BlobId, MemoryBackend, SessionStore, StoreOptions, contract::Wrapped,
};
use tokio::sync::Notify;

use crate::support::*;

/// Prints 227 KB in 36,000 lines.
const COMMAND: &str = "seq 1000 40000";

fn printed() -> String {
    (1000..=40_000).map(|n| format!("{n}\n")).collect()
}

fn shell(command: &str) -> Reply {
    Reply::Calls(vec![("c1", "shell", json!({ "command": command }))])
}

fn unasked(text: &str) -> RunInput {
    RunInput {
        approval_policy: Some(ApprovalPolicy::Never),
        ..task(text)
    }
}

async fn result(world: &World, id: &SessionId) -> Option<ToolResult> {
    let payloads = world.payloads(id).await;
    payloads.into_iter().find_map(|payload| match payload {
        Payload::ToolResult(result) => Some(result),
        _ => None,
    })
}

#[tokio::test]
async fn a_big_output_is_kept_whole_and_shown_cut() {
    let world = World::new([shell(COMMAND), Reply::Text("seen"), Reply::Text("more")]);
    let run = start(&world.agents(), None, unasked("count")).await;
    assert_eq!(run.wait().await.reason, EndReason::Completed);

    let result = result(&world, run.session_id()).await.unwrap();
    assert_eq!(result.outcome, Outcome::Ok);
    let blob = BlobId::parse(&result.full.unwrap().blob).unwrap();
    let store = world.store();
    let full = store.get_blob(&blob).await.unwrap();
    assert_eq!(full, (printed() + "[exit code 0]").into_bytes());
    let shown = plain_text(&result.content);
    assert!(shown.len() <= RESULT_BYTES, "{}", shown.len());
    assert!(shown.starts_with("1000\n1001\n"), "{shown}");
    let (above, note) = shown.rsplit_once("\n[").unwrap();
    assert!(above.ends_with("\n40000\n[exit code 0]"), "{shown}");
    let name = &blob.as_str()[..12];
    assert!(
        note.contains(&format!(
            "the full output is kept as blob {name}; read more of it with `read_output`"
        )),
        "{note}"
    );

    // The model is sent what is logged, now and after a restart.
    let agents = world.agents();
    let again = start(&agents, Some(run.session_id()), unasked("go on")).await;
    again.wait().await;
    let requests = world.script.requests();
    let is_shown = |item: &&HistoryItem| matches!(item, HistoryItem::Tool { content, .. } if plain_text(content) == shown);
    assert_eq!(requests[1].items.iter().filter(is_shown).count(), 1);
    assert_eq!(
        requests[2].items[..requests[1].items.len()],
        requests[1].items[..]
    );
    for step in 1..=3 {
        let rebuilt = store.request_of_step(run.session_id(), step).await.unwrap();
        let rebuilt = rebuilt.unwrap().unwrap();
        let print = rebuilt.request.fingerprint().unwrap();
        assert_eq!(print.hash, rebuilt.start.request.fingerprint);
    }

    let bytes = store.stat(run.session_id()).await.unwrap().bytes;
    println!("{} bytes of output, {bytes} bytes of log", full.len());
    assert!(bytes < 100_000, "{bytes}");
    let report = store.gc(true).await.unwrap();
    assert_eq!((report.kept, report.young), (1, 0));
}

#[tokio::test]
async fn live_output_is_logged_up_to_its_limit_and_ends_with_one_note() {
    let world = World::new([shell(COMMAND), shell("seq 1000 2000"), Reply::Text("seen")]);
    let run = start(&world.agents(), None, unasked("count")).await;
    run.wait().await;
    let mut live = [String::new(), String::new()];
    let mut call = 0;
    for payload in world.payloads(run.session_id()).await {
        match payload {
            Payload::ToolOutput(piece) => live[call].push_str(&piece.delta),
            Payload::ToolResult(_) => call += 1,
            _ => {}
        }
    }
    let note = "\n[the rest of the output is in the result]\n";
    let shown = live[0].strip_suffix(note).unwrap();
    assert_eq!(shown, &printed()[..OUTPUT_LOG_BYTES]);
    let short: String = (1000..=2000).map(|n| format!("{n}\n")).collect();
    assert_eq!(live[1], short);
}

/// What becomes of blobs.
#[derive(Clone, Copy)]
enum Blobs {
    /// The disk has no space for them.
    Full,
    /// The storage breaks.
    Broken,
    /// Each is stored, and then the process is as good as dead.
    Last,
}

struct Odd {
    below: MemoryBackend,
    blobs: Blobs,
    put: Arc<Notify>,
}

#[async_trait]
impl Wrapped for Odd {
    fn inner(&self) -> &dyn Backend {
        &self.below
    }

    async fn put_blob(&self, id: &BlobId, bytes: &[u8]) -> Result<(), BackendError> {
        let failed = |error| Err(BackendError::new("writing a blob", error));
        match self.blobs {
            Blobs::Full => failed(io::Error::from(io::ErrorKind::StorageFull)),
            Blobs::Broken => failed(io::Error::other("bad sector")),
            Blobs::Last => {
                self.below.put_blob(id, bytes).await?;
                self.put.notify_one();
                std::future::pending().await
            }
        }
    }
}

fn odd(world: &World, blobs: Blobs) -> (AgentsConfig, Arc<Notify>) {
    let put = Arc::new(Notify::new());
    let backend = Odd {
        below: world.backend.clone(),
        blobs,
        put: put.clone(),
    };
    let mut config = world.config();
    config.store = Some(SessionStore::new(
        Arc::new(backend),
        StoreOptions::default(),
    ));
    (config, put)
}

#[tokio::test]
async fn an_output_that_cannot_be_stored_ends_the_run_and_no_result_names_it() {
    for (blobs, code) in [
        (Blobs::Full, "storage_full"),
        (Blobs::Broken, "storage_error"),
    ] {
        let world = World::new([shell(COMMAND), Reply::Text("after")]);
        let run = start(&Agents::new(odd(&world, blobs).0), None, unasked("count")).await;
        let failure = run.wait().await.failure.unwrap();
        assert_eq!(failure.code, code, "{failure:?}");
        assert!(failure.hint.is_some());
        assert!(result(&world, run.session_id()).await.is_none());
        // The session goes on, and the model is told that the call's outcome is not known.
        let next = start(&world.agents(), Some(run.session_id()), unasked("again")).await;
        assert_eq!(next.wait().await.reason, EndReason::Completed);
        let result = result(&world, run.session_id()).await.unwrap();
        assert_eq!((result.outcome, result.full), (Outcome::Unknown, None));
    }
}

#[tokio::test]
async fn a_death_between_the_blob_and_its_event_leaves_a_blob_that_nothing_names() {
    let world = World::new([shell(COMMAND), Reply::Text("after")]);
    let (config, put) = odd(&world, Blobs::Last);
    let run = start(&Agents::new(config), None, unasked("count")).await;
    put.notified().await;
    let store = world.store();
    assert!(result(&world, run.session_id()).await.is_none());
    let report = store.gc(true).await.unwrap();
    assert_eq!((report.kept, report.young), (0, 1));
    // Whoever goes on closes the call; the blob is still named by nothing.
    store.take_over(run.session_id()).await.unwrap();
    let result = result(&world, run.session_id()).await.unwrap();
    assert!(result.synthetic && result.full.is_none());
    assert_eq!(store.gc(true).await.unwrap().kept, 0);
}

#[tokio::test]
async fn a_result_of_any_tool_is_cut() {
    struct Big;

    #[async_trait]
    impl threadline_agent::tools::Tool for Big {
        fn definition(&self) -> threadline_session::payload::ToolDefinition {
            threadline_session::payload::ToolDefinition {
                name: "big".into(),
                description: "says much".into(),
                parameters: json!({ "type": "object" }),
            }
        }

        fn effect(&self, _: &Value) -> threadline_agent::tools::Effect {
            threadline_agent::tools::Effect::ReadOnly
        }

        async fn run(
            &self,
            _: &Value,
            _: &threadline_agent::tools::ToolContext,
        ) -> threadline_agent::tools::ToolOutput {
            // Longer than any event may be.
            threadline_agent::tools::ToolOutput::error("\u{1f600}".repeat(1 << 19))
        }
    }

    let world = World::new([
        Reply::Calls(vec![("c1", "big", json!({}))]),
        Reply::Text("x"),
    ]);
    let mut config = world.config();
    config.toolbox.register(Arc::new(Big)).unwrap();
    let (run, outcome) = finish(&Agents::new(config), None, "much").await;
    assert_eq!(outcome.reason, EndReason::Completed);
    let result = result(&world, run.session_id()).await.unwrap();
    assert!(result.is_error && result.full.is_some());
    let [ContentPart::Text { text }] = result.content.as_slice() else {
        panic!("{:?}", result.content);
    };
    assert!(text.len() <= RESULT_BYTES && text.starts_with("\u{1f600}"));
}

#[tokio::test]
async fn a_session_is_taken_over_only_when_that_is_asked_for() {
    let world = World::new([Reply::Text("one"), Reply::Text("two"), Reply::Text("three")]);
    let (run, _) = finish(&world.agents(), None, "hello").await;
    let id = run.session_id();
    let first = world
        .agents()
        .resume(ResumeOptions::new(id.clone()))
        .await
        .unwrap();
    let elsewhere = world.agents();
    let refused = elsewhere.resume(ResumeOptions::new(id.clone())).await;
    assert_eq!(refused.unwrap_err().code(), "session_busy");
    let options = ResumeOptions {
        take_over: true,
        ..ResumeOptions::new(id.clone())
    };
    let second = elsewhere.resume(options.clone()).await.unwrap();
    assert_eq!(
        first.start(task("late")).await.unwrap_err().code(),
        "fenced"
    );
    let Started::New(run) = second.start(task("again")).await.unwrap() else {
        panic!("repeated");
    };
    // A run of the same process is cancelled, not taken over.
    let busy = elsewhere.resume(options).await;
    assert!(matches!(busy, Err(StartError::Busy { .. })), "{busy:?}");
    assert_eq!(run.wait().await.answer, "two");
}
