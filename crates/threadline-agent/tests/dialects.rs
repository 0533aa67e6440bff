//! One conversation in all three dialects, and on from each to each other and back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a test may fail so"
)]

use std::sync::Arc;

use serde_json::json;
use threadline_agent::{Agents, AgentsConfig, Models, RunInput, Started};
use threadline_model::{Provider, ProviderConfig, Secret, build};
use threadline_session::{
    Payload, SessionId,
    payload::{EndReason, RejectedPart},
};
use threadline_store::{MemoryBackend, SessionStore, StoreOptions};
use threadline_strict_model::{Reply, StrictModel};

const DIALECTS: [&str; 3] = ["openai-chat", "openai-responses", "anthropic"];
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

struct World {
    server: StrictModel,
    store: SessionStore,
    agents: Agents,
    dir: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let server = StrictModel::start([]).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let backend = Arc::new(MemoryBackend::new());
        let store = SessionStore::new(backend, StoreOptions::default());
        let provider = |name: &str| -> Arc<dyn Provider> {
            let mut config = ProviderConfig::new(name);
            config.base_url = Some(server.base_url());
            config.api_key = Some(Secret::new("test"));
            build(config).unwrap()
        };
        let models = Models::new(provider("openai-chat"), "m")
            .with(provider("openai-responses"))
            .with(provider("anthropic"));
        let config = AgentsConfig::new(Some(store.clone()), models, dir.path().to_owned());
        Self {
            agents: Agents::new(config),
            server,
            store,
            dir,
        }
    }

    async fn turn(&self, id: Option<&SessionId>, dialect: &str, input: RunInput) -> SessionId {
        let input = RunInput {
            model: Some(format!("{dialect}/m")),
            ..input
        };
        let Started::New(run) = self.agents.start(id.cloned(), input).await.unwrap() else {
            panic!("repeated");
        };
        let outcome = run.wait().await;
        assert_eq!(
            outcome.reason,
            EndReason::Completed,
            "{dialect}: {outcome:?}"
        );
        run.session_id().clone()
    }

    /// Text, reasoning, two calls at once of which one fails, an image, and an answer.
    async fn talk(&self, id: Option<&SessionId>, dialect: &str, number: usize) -> SessionId {
        let call = |n: usize| format!("call_{number}_{n}");
        self.server.push(
            Reply::steps([])
                .and_reasoning("both can be looked at")
                .and_text("Let me look.")
                .and_call(call(1), "ls", json!({"path": "."}))
                .and_call(call(2), "read", json!({"path": "missing.txt"})),
        );
        self.server.push(
            Reply::steps([])
                .and_reasoning("one is not there")
                .and_text("One file is missing."),
        );
        let input = RunInput {
            task: format!("look, number {number}"),
            images: vec![PNG.to_vec()],
            ..RunInput::default()
        };
        self.turn(id, dialect, input).await
    }

    async fn sound(&self, id: &SessionId) {
        self.server.assert_no_violations();
        assert_eq!(self.store.unequal_requests(id).await.unwrap(), Vec::new());
        assert!(self.store.verify(id).await.unwrap().ok);
    }
}

#[tokio::test]
async fn each_dialect_goes_on_with_what_each_other_began_and_back() {
    let world = World::new().await;
    assert!(world.dir.path().exists());
    let mut number = 0;
    for from in DIALECTS {
        for to in DIALECTS {
            let mut id = None;
            for dialect in [from, to, from] {
                number += 1;
                id = Some(world.talk(id.as_ref(), dialect, number).await);
            }
            world.sound(&id.unwrap()).await;
        }
    }
    // Each turn asked twice.
    assert_eq!(world.server.requests().len(), 2 * 3 * 9);
}

#[tokio::test]
async fn a_refused_image_is_left_out_and_the_session_goes_on() {
    for dialect in DIALECTS {
        let world = World::new().await;
        let refusal = Reply::status(400)
            .code("invalid_image")
            .message("Invalid image: could not process image");
        world.server.push(refusal);
        world.server.push(Reply::text("I see no image."));
        let input = RunInput {
            task: "what is this?".into(),
            images: vec![PNG.to_vec()],
            ..RunInput::default()
        };
        let id = world.turn(None, dialect, input).await;
        let next = RunInput {
            task: "and now?".into(),
            ..RunInput::default()
        };
        world.server.push(Reply::text("Still none."));
        world.turn(Some(&id), dialect, next).await;
        let mut rejected = Vec::new();
        world
            .store
            .each_event(&id, |line| {
                if let Payload::ItemRejected(event) = line.event.payload().unwrap() {
                    rejected.push(event);
                }
                true
            })
            .await
            .unwrap();
        assert_eq!(rejected.len(), 1, "{dialect}");
        assert_eq!(rejected[0].part, RejectedPart::Images);
        assert_eq!(rejected[0].blobs.len(), 1);
        world.sound(&id).await;
    }
}

#[tokio::test]
async fn what_is_no_image_is_refused_before_it_is_logged() {
    let world = World::new().await;
    let input = RunInput {
        task: "look".into(),
        images: vec![b"BM not one".to_vec()],
        ..RunInput::default()
    };
    let refused = world.agents.start(None, input).await.unwrap_err();
    assert_eq!(refused.code(), "bad_image");
    assert!(world.store.ids().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_image_that_is_read_is_shown_to_the_model_in_each_dialect() {
    for dialect in DIALECTS {
        let world = World::new().await;
        std::fs::write(world.dir.path().join("picture.png"), PNG).unwrap();
        let call = ("call_1", "read", json!({"path": "picture.png"}));
        world
            .server
            .push(Reply::steps([]).and_call(call.0, call.1, call.2));
        world.server.push(Reply::text("A picture."));
        let input = RunInput {
            task: "what is in picture.png?".into(),
            ..RunInput::default()
        };
        let id = world.turn(None, dialect, input).await;
        let sent = world.server.requests().pop().unwrap();
        let body = String::from_utf8_lossy(&sent.body).into_owned();
        assert!(
            body.contains("iVBORw0KGgoAAAANSUhEUg=="),
            "{dialect}: {body}"
        );
        world.sound(&id).await;
        let report = threadline_agent::replay(&world.store, &id, Default::default())
            .await
            .unwrap();
        assert!(report.identical, "{dialect}: {report:?}");
    }
}
