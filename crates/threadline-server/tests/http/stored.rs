//! Logs as they are found: cut short, damaged, written elsewhere.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use serde_json::json;
use threadline_session::{
    Header, OsPath, Payload, RunId, SessionId,
    payload::{
        ApprovalPolicy, AssistantChunk, AssistantMessage, AssistantPart, ChunkKind, ChunkPart,
        ContentPart, ModelRef, RequestMark, SandboxMode, StepStart, StopReason, ToolStart,
        TurnContext, TurnStart, UserMessage, UserSource,
    },
};
use threadline_store::{
    AppendOptions, Backend, BackendError, ClaimError, Damage, Entry, HeaderReadError, Holder,
    MemoryBackend, Page, ReadPos, SessionStore, SessionWriter, Stat, StoreOptions, StoredHeader,
    Writer, contract::Wrapped,
};

use crate::{follow::Copy, support::Server};

/// A storage that can show another process as the writer, and damage.
#[derive(Default)]
struct Odd {
    memory: MemoryBackend,
    foreign: AtomicBool,
    damaged: Mutex<Option<u64>>,
    header_damaged: AtomicBool,
}

fn damage(seq: u64) -> Damage {
    Damage {
        file: "log.jsonl".into(),
        offset: 7,
        bytes: 9,
        seq,
        reason: "a flipped bit".into(),
    }
}

#[async_trait]
impl Wrapped for Odd {
    fn inner(&self) -> &dyn Backend {
        &self.memory
    }

    async fn header(&self, id: &SessionId) -> Result<Option<StoredHeader>, HeaderReadError> {
        if self.header_damaged.load(Ordering::SeqCst) {
            return Err(HeaderReadError::Header {
                file: "log.jsonl".into(),
                source: threadline_session::HeaderError::Checksum,
            });
        }
        self.memory.header(id).await
    }

    async fn page(
        &self,
        id: &SessionId,
        from: ReadPos,
        max_bytes: usize,
    ) -> Result<Page, BackendError> {
        let mut page = self.memory.page(id, from, max_bytes).await?;
        let damaged = *self.damaged.lock().unwrap();
        for entry in &mut page.entries {
            if let Entry::Line(line, _) = entry
                && Some(line.event.seq) == damaged
            {
                *entry = Entry::Damage(damage(line.event.seq));
            }
        }
        Ok(page)
    }

    async fn stat(&self, id: &SessionId) -> Result<Option<Stat>, BackendError> {
        let mut stat = self.memory.stat(id).await?;
        if let Some(stat) = &mut stat
            && self.foreign.load(Ordering::SeqCst)
        {
            stat.writer = Some(Holder {
                pid: 1,
                host: "elsewhere".into(),
                since: 0,
            });
        }
        Ok(stat)
    }

    async fn claim(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        if self.foreign.load(Ordering::SeqCst) {
            let holder = Holder {
                pid: 1,
                host: "elsewhere".into(),
                since: 0,
            };
            return Err(ClaimError::Locked { holder });
        }
        self.memory.claim(id).await
    }

    async fn delete(&self, id: &SessionId) -> Result<(), ClaimError> {
        if self.foreign.load(Ordering::SeqCst) {
            let holder = Holder {
                pid: 1,
                host: "elsewhere".into(),
                since: 0,
            };
            return Err(ClaimError::Locked { holder });
        }
        self.memory.delete(id).await
    }
}

const ID: &str = "0193b3a0-0000-7000-8000-000000000001";

async fn server(odd: &Arc<Odd>) -> Server {
    let store = SessionStore::new(odd.clone(), StoreOptions::default());
    Server::over(store, |_| {}, |_| {}).await
}

/// Writes a turn as another process would, and leaves it in the middle of a tool call.
async fn cut_short(odd: &Arc<Odd>, server: &Server) -> SessionWriter {
    let cwd = OsPath::from(server.dir.path().to_path_buf());
    let store = SessionStore::new(odd.clone(), StoreOptions::default());
    let id = SessionId::parse(ID).unwrap();
    let writer = store.create(Header::new(id, 1, cwd.clone())).await.unwrap();
    let model = ModelRef {
        provider: "offline".into(),
        name: "demonstration".into(),
    };
    let call = AssistantPart::ToolCall {
        call_id: "c1".into(),
        name: "shell".into(),
        arguments: "{\"command\":\"make\"}".into(),
    };
    let payloads = vec![
        Payload::TurnStart(TurnStart {
            turn: 1,
            run_id: RunId::parse(ID).unwrap(),
            context: TurnContext {
                confined: false,
                provider: model.provider.clone(),
                model: model.name.clone(),
                approval_policy: ApprovalPolicy::Never,
                sandbox_mode: SandboxMode::WorkspaceWrite,
                cwd: cwd.clone(),
                temperature: None,
                max_steps: None,
            },
        }),
        Payload::UserMessage(UserMessage {
            content: vec![ContentPart::text("build it")],
            source: UserSource::User,
        }),
        Payload::StepStart(StepStart {
            turn: 1,
            step: 1,
            request: RequestMark {
                fingerprint: "none".into(),
                items: 1,
                bytes: 1,
            },
        }),
        Payload::AssistantChunk(AssistantChunk {
            turn: 1,
            step: 1,
            parts: vec![ChunkPart {
                index: 0,
                kind: ChunkKind::Text,
                delta: "on it".into(),
            }],
        }),
        Payload::AssistantMessage(AssistantMessage {
            turn: 1,
            step: 1,
            content: vec![
                AssistantPart::Text {
                    text: "on it".into(),
                },
                call,
            ],
            model,
            stop_reason: StopReason::ToolCalls,
            usage: None,
            opaque: Vec::new(),
            interrupted: false,
        }),
        Payload::ToolStart(ToolStart {
            call_id: "c1".into(),
            name: "shell".into(),
            cwd,
            outside_sandbox: false,
            grant_id: None,
        }),
    ];
    let options = AppendOptions {
        key: Some("first".into()),
        barrier: true,
    };
    writer.record(payloads, options).await.unwrap();
    writer
}

/// Takes messages until the copy's session counts as interrupted.
async fn until_interrupted(copy: &mut Copy, events: &mut crate::support::Events) {
    while copy.status != "interrupted" {
        copy.take(&events.next().await.unwrap());
    }
}

#[tokio::test]
async fn a_turn_whose_process_died_is_shown_as_interrupted_everywhere() {
    let odd = Arc::new(Odd::default());
    let server = server(&odd).await;
    let writer = cut_short(&odd, &server).await;
    let path = format!("/api/agent/sessions/{ID}");

    // While it lives it is running, also for who looks from another process.
    let mut watching = server.follow(ID, "view=1", None).await;
    let mut watched = Copy::default();
    loop {
        let message = watching.next().await.unwrap();
        watched.take(&message);
        if message.event == "caught_up" {
            break;
        }
    }
    watched.assert_current(&server, ID).await;
    assert_eq!(
        (watched.status.as_str(), watched.running),
        ("running", true)
    );

    drop(writer);
    // Who has been watching is told, without any event in the log.
    until_interrupted(&mut watched, &mut watching).await;
    watched.assert_current(&server, ID).await;
    let turns = server.get(&format!("{path}/turns")).await.json();
    assert_eq!(
        (&turns["lastSeq"], &turns["running"]),
        (&json!(5), &json!(false))
    );
    assert_eq!(turns["status"], "interrupted");
    let tool = &turns["turns"][0]["items"][2];
    assert_eq!(
        (&tool["outcome"], &tool["synthetic"]),
        (&json!("unknown"), &json!(true))
    );

    // So is who comes without anything, with the turns, or back after a cut.
    let mut fresh = Copy::default();
    until_interrupted(&mut fresh, &mut server.follow(ID, "view=1", None).await).await;
    fresh.assert_current(&server, ID).await;
    let mut page = Copy::from_turns(&turns);
    let mut events = server.follow(ID, "view=1", Some("5")).await;
    loop {
        let message = events.next().await.unwrap();
        page.take(&message);
        if message.event == "view" {
            break;
        }
    }
    page.assert_current(&server, ID).await;

    // The next run stores the closers under the same numbers, and all copies agree again.
    let ran = server.run(&json!({"task": "again", "sessionId": ID})).await;
    assert_eq!(ran.started()["resumed"], true);
    for (copy, events) in [(&mut watched, &mut watching), (&mut page, &mut events)] {
        loop {
            let message = events.next().await.unwrap();
            copy.take(&message);
            if message.event == "run_finished" && copy.turns.len() == 2 {
                break;
            }
        }
        copy.assert_current(&server, ID).await;
        let first = copy.seqs.first().copied().unwrap();
        assert_eq!(
            copy.seqs,
            (first..=copy.last_seq.unwrap()).collect::<Vec<_>>()
        );
    }
}

#[tokio::test]
async fn a_repeat_of_a_run_that_died_ends_as_interrupted() {
    let odd = Arc::new(Odd::default());
    let server = server(&odd).await;
    drop(cut_short(&odd, &server).await);
    // Opening closes the turn, so the repeat shows its stored end.
    let ran = server
        .run(&json!({"task": "build it", "sessionId": ID, "idempotencyKey": "first"}))
        .await;
    assert_eq!(ran.end().event, "run_finished");
    assert_eq!(ran.end().json()["reason"]["kind"], "interrupted");
    assert_eq!(ran.end().json()["answer"], "on it");
    assert_eq!(ran.log()[0].id, Some(0));
    assert_eq!(ran.log().last().unwrap().event, "turn/end");
}

#[tokio::test]
async fn a_repeat_of_a_run_elsewhere_follows_it_until_its_process_dies() {
    let odd = Arc::new(Odd::default());
    let server = server(&odd).await;
    let writer = cut_short(&odd, &server).await;
    odd.foreign.store(true, Ordering::SeqCst);
    let input = json!({"task": "build it", "sessionId": ID, "idempotencyKey": "first"});
    let mut events = server.stream(&input).await;
    events.until("run_started").await;
    assert_eq!(events.until("tool/start").await.id, Some(5));
    drop(writer);
    odd.foreign.store(false, Ordering::SeqCst);
    let end = events.until("run_finished").await.json();
    assert_eq!(end["reason"]["kind"], "interrupted");
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn a_session_of_another_process_is_locked() {
    let odd = Arc::new(Odd::default());
    let server = server(&odd).await;
    let _writer = cut_short(&odd, &server).await;
    odd.foreign.store(true, Ordering::SeqCst);
    let path = format!("/api/agent/sessions/{ID}");
    let ran = server.run(&json!({"task": "x", "sessionId": ID})).await;
    assert_eq!(ran.end().json()["code"], "locked");
    assert!(
        ran.end().json()["hint"]
            .as_str()
            .unwrap()
            .contains("process 1 on elsewhere")
    );
    server
        .post(&format!("{path}/cancel"), &json!({}))
        .await
        .problem(409, "locked");
    for deed in ["rewind", "redo"] {
        let body = match deed {
            "rewind" => json!({"to": 0}),
            _ => json!({}),
        };
        server
            .post(&format!("{path}/{deed}"), &body)
            .await
            .problem(409, "locked");
    }
    server
        .request("DELETE", &path, "")
        .await
        .problem(409, "locked");
    let turns = server.get(&format!("{path}/turns")).await.json();
    assert_eq!(
        (&turns["status"], &turns["running"]),
        (&json!("running"), &json!(true))
    );
}

#[tokio::test]
async fn a_damaged_session_is_listed_and_shown_as_far_as_it_goes() {
    let odd = Arc::new(Odd::default());
    let server = server(&odd).await;
    let ran = server.run(&json!({"task": "hello"})).await;
    server
        .run(&json!({"task": "again", "sessionId": ran.session()}))
        .await;
    let healthy = server.run(&json!({"task": "healthy"})).await;
    let path = format!("/api/agent/sessions/{}", ran.session());
    let at = ran.log().len() as u64 + 2;
    *odd.damaged.lock().unwrap() = Some(at);
    // The other session is shorter than that.
    assert!((healthy.log().len() as u64) < at);
    let fresh = Server::over(
        SessionStore::new(odd.clone(), StoreOptions::default()),
        |_| {},
        |_| {},
    )
    .await;
    let list = fresh.get("/api/agent/sessions").await.json();
    let rows = list["sessions"].as_array().unwrap();
    let row = rows.iter().find(|row| row["id"] == ran.session()).unwrap();
    assert_eq!(
        (&row["status"], &row["error"]["seq"]),
        (&json!("damaged"), &json!(at))
    );
    let row = rows
        .iter()
        .find(|row| row["id"] == healthy.session())
        .unwrap();
    assert_eq!(row["status"], "idle");

    let turns = fresh.get(&format!("{path}/turns")).await.json();
    assert_eq!(
        (&turns["status"], &turns["lastSeq"]),
        (&json!("damaged"), &json!(at - 1))
    );
    assert_eq!(
        (&turns["damage"]["seq"], &turns["damage"]["offset"]),
        (&json!(at), &json!(7))
    );
    assert_eq!(turns["turns"][0]["reason"]["kind"], "completed");
    assert_eq!(turns["running"], false);
    let requests = fresh.get(&format!("{path}/requests")).await.json();
    assert_eq!(requests["requests"].as_array().unwrap().len(), 1);
    assert_eq!(requests["damage"]["seq"], at);
    let log = fresh.get(&format!("{path}/log")).await.json();
    assert_eq!(log["damage"][0]["seq"], at);
    assert_eq!(fresh.get(&format!("{path}/history")).await.status, 200);
    assert_eq!(
        fresh.get(&path).await.json()["summary"]["status"],
        "damaged"
    );

    let mut events = fresh.follow(&ran.session(), "view=1", None).await;
    let mut copy = Copy::default();
    let error = loop {
        let message = events.next().await.unwrap();
        if message.event == "error" {
            break message.json();
        }
        copy.take(&message);
    };
    assert_eq!(
        (&error["code"], copy.last_seq),
        (&json!("damaged"), Some(at - 1))
    );
    assert_eq!(json!(copy.turns), turns["turns"]);
    assert!(events.next().await.is_none());
    let ran = fresh
        .run(&json!({"task": "x", "sessionId": ran.session()}))
        .await;
    assert_eq!(ran.end().json()["code"], "damaged");
}

#[tokio::test]
async fn a_session_with_an_unreadable_header_still_answers() {
    let odd = Arc::new(Odd::default());
    let server = server(&odd).await;
    let ran = server.run(&json!({"task": "hello"})).await;
    odd.header_damaged.store(true, Ordering::SeqCst);
    let path = format!("/api/agent/sessions/{}", ran.session());
    let turns = server.get(&format!("{path}/turns")).await.json();
    assert_eq!(
        (&turns["turns"], &turns["lastSeq"]),
        (&json!([]), &json!(-1))
    );
    assert_eq!(
        (&turns["status"], &turns["damage"]["seq"]),
        (&json!("damaged"), &json!(0))
    );
    server.get(&path).await.problem(422, "damaged");
    server
        .get(&format!("{path}/history"))
        .await
        .problem(422, "damaged");
}
