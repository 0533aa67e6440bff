//! What a turn costs on disk, counted at the file system's seam: syncs, bytes, and no growth.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::{path::Path, sync::Arc};

use threadline_agent::{Agents, AgentsConfig, Models, RunInput, Started};
use threadline_jsonl::{CountingVfs, Counts, JsonlBackend, JsonlOptions, RealVfs};
use threadline_model::{ProviderConfig, build};
use threadline_session::{
    SessionId,
    payload::{ApprovalPolicy, EndReason},
};
use threadline_store::{SessionStore, StoreOptions};

struct World {
    dir: tempfile::TempDir,
    vfs: CountingVfs,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            dir,
            vfs: CountingVfs::new(Arc::new(RealVfs)),
        }
    }

    fn agents(&self) -> Agents {
        let root = self.dir.path().join("home");
        let vfs = Arc::new(self.vfs.clone());
        let backend = JsonlBackend::with_vfs(vfs, root, JsonlOptions::default()).unwrap();
        let store = SessionStore::new(Arc::new(backend), StoreOptions::default());
        let offline = build(ProviderConfig::new("offline")).unwrap();
        let models = Models::new(offline, "demonstration");
        let work = self.dir.path().join("work");
        std::fs::create_dir_all(&work).unwrap();
        Agents::new(AgentsConfig::new(Some(store), models, work))
    }

    /// Runs a turn in a fresh process's place. Returns what it cost.
    async fn turn(&self, session: Option<SessionId>, task: &str) -> (SessionId, Counts) {
        let before = self.vfs.counts();
        let input = RunInput {
            task: task.into(),
            approval_policy: Some(ApprovalPolicy::Never),
            ..RunInput::default()
        };
        let Started::New(run) = self.agents().start(session, input).await.unwrap() else {
            panic!("repeated")
        };
        let outcome = run.wait().await;
        assert_eq!(outcome.reason, EndReason::Completed);
        assert_eq!(outcome.durable_seq, Some(outcome.last_seq));
        (run.session_id().clone(), minus(self.vfs.counts(), before))
    }

    fn log_bytes(&self, id: &SessionId) -> u64 {
        let home = self.dir.path().join("home");
        let log = threadline_jsonl::layout::session_dir(&home, id).join("log.jsonl");
        std::fs::metadata(log).unwrap().len()
    }
}

fn minus(after: Counts, before: Counts) -> Counts {
    Counts {
        log_reads: after.log_reads - before.log_reads,
        log_read_bytes: after.log_read_bytes - before.log_read_bytes,
        log_writes: after.log_writes - before.log_writes,
        log_written_bytes: after.log_written_bytes - before.log_written_bytes,
        log_syncs: after.log_syncs - before.log_syncs,
        other_writes: after.other_writes - before.other_writes,
        other_syncs: after.other_syncs - before.other_syncs,
    }
}

#[tokio::test]
async fn a_turn_syncs_once_per_barrier_and_its_bytes_do_not_grow_with_the_turns_before() {
    let world = World::new();
    let (id, first) = world.turn(None, "turn 000").await;
    // Creating the session is a barrier of its own, and the prompt's lies right behind it.
    assert_eq!(first.log_syncs, 3);
    let mut text = Vec::new();
    let mut tool = Vec::new();
    for n in 1..=20 {
        let (_, cost) = world.turn(Some(id.clone()), &format!("turn {n:03}")).await;
        assert_eq!(cost.log_syncs, 2, "the prompt, and the turn's end");
        assert_eq!(cost.other_syncs, 0);
        text.push(cost.log_written_bytes);
        let (_, cost) = world
            .turn(Some(id.clone()), &format!("turn {n:03}\n$ echo hi"))
            .await;
        assert_eq!(
            cost.log_syncs, 4,
            "the prompt, the call, its result, and the turn's end"
        );
        assert_eq!(cost.other_syncs, 0);
        tool.push(cost.log_written_bytes);
    }
    println!("bytes per text turn: {} .. {}", text[0], text[19]);
    println!("bytes per tool turn: {} .. {}", tool[0], tool[19]);
    // Numbers get longer by a digit here and there; nothing else may.
    assert!(text[19] <= text[0] + 64, "{text:?}");
    assert!(tool[19] <= tool[0] + 128, "{tool:?}");
    assert_eq!(
        world.log_bytes(&id),
        first.log_written_bytes + text.iter().sum::<u64>() + tool.iter().sum::<u64>(),
        "the log holds what was written and nothing was rewritten"
    );
}

#[tokio::test]
async fn reading_listing_and_verifying_write_nothing() {
    let world = World::new();
    let (id, _) = world.turn(None, "x\n$ echo hi").await;
    let before = snapshot(world.dir.path());
    let agents = world.agents();
    let store = agents.store();
    store.inspect(&id).await.unwrap();
    store.verify(&id).await.unwrap();
    store.summary(&id).await.unwrap();
    store
        .list(&threadline_store::ListFilter::default(), None, 10)
        .await
        .unwrap();
    store.request_of_step(&id, 1).await.unwrap();
    assert_eq!(snapshot(world.dir.path()), before);
}

fn snapshot(dir: &Path) -> Vec<(String, Vec<u8>, std::time::SystemTime)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(snapshot(&entry.path()));
        } else {
            let time = entry.metadata().unwrap().modified().unwrap();
            let name = entry.path().display().to_string();
            found.push((name, std::fs::read(entry.path()).unwrap(), time));
        }
    }
    found.sort();
    found
}
