//! Crashes under the store: turns with a checkpoint after each, forks in the middle of them,
//! take-overs. With its index and without it, a session says the same and writes the same next.

use std::{path::PathBuf, sync::Arc};

use threadline_jsonl::{
    JsonlBackend, JsonlOptions, layout,
    sim::{Fault, FaultVfs, Kept, MemVfs, Op, Plan},
    vfs::Vfs,
};
use threadline_session::{Event, Header, Payload, Request, SessionId};
use threadline_store::{
    AppendOptions, Clock, SessionStore, SessionWriter, StoreOptions, contract::script,
};

use crate::world::{Fallible, ROOT, Session, files, read, text};

#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now_ms(&self) -> u64 {
        1_764_460_900_000
    }
}

fn store(vfs: &(impl Vfs + Clone)) -> Fallible<SessionStore> {
    let options = JsonlOptions {
        checkpoint_every: Some(0),
        ..JsonlOptions::default()
    };
    let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let backend = JsonlBackend::with_vfs(vfs, ROOT, options).map_err(text)?;
    let options = StoreOptions {
        clock: Arc::new(Still),
        ..StoreOptions::default()
    };
    Ok(SessionStore::new(Arc::new(backend), options))
}

/// Blocking work is done in place, so that nothing runs beside the test.
fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

fn id(number: u32) -> SessionId {
    Session::new(number).id
}

/// Lines of each session that were acknowledged, as the store gave them.
type Acked = Vec<(u32, Vec<Vec<u8>>)>;

fn note(vfs: &MemVfs, acked: &mut Acked, number: u32) -> Fallible<()> {
    let lines = read(&files(vfs)?, &id(number), 1 << 20)?.lines;
    acked.retain(|(other, _)| *other != number);
    acked.push((number, lines));
    Ok(())
}

async fn turn(writer: &SessionWriter, payloads: Vec<Payload>) -> Fallible<()> {
    let recorded = writer.record(payloads, AppendOptions::barrier()).await;
    recorded.map(drop).map_err(text)
}

/// What is done before the crash; it dies somewhere in between.
async fn work(vfs: &MemVfs, acked: &mut Acked) -> Fallible<()> {
    let store = store(vfs)?;
    let header = Header::new(id(1), 1_764_460_800_000, std::path::Path::new("/w").into());
    let writer = store.create(header).await.map_err(text)?;
    turn(&writer, script::plain_turn(1, "first")).await?;
    note(vfs, acked, 1)?;
    turn(&writer, script::turn_with_question(2, 2)).await?;
    note(vfs, acked, 1)?;
    // In the middle of a turn, so that closers are stored with it.
    store.fork(&id(1), Some(11), id(2)).await.map_err(text)?;
    note(vfs, acked, 2)?;
    turn(&writer, script::cut_turn(3, 3)).await?;
    note(vfs, acked, 1)?;
    let taken = store.take_over(&id(1)).await.map_err(text)?;
    note(vfs, acked, 1)?;
    if turn(&writer, script::plain_turn(4, "late")).await.is_ok() {
        return Err("a fenced writer acknowledged (I8)".into());
    }
    turn(&taken.writer, script::plain_turn(4, "fourth")).await?;
    note(vfs, acked, 1)?;
    store.fork(&id(1), None, id(3)).await.map_err(text)?;
    note(vfs, acked, 3)?;
    let fork = store.load(&id(2)).await.map_err(text)?;
    turn(&fork.writer, script::plain_turn(3, "in the fork")).await?;
    note(vfs, acked, 2)
}

/// What a store says of a session, and what it writes next.
async fn ask(vfs: &MemVfs, id: &SessionId) -> Fallible<(String, bool, Vec<u8>)> {
    let store = store(vfs)?;
    let report = store.verify(id).await.map_err(text)?;
    let loaded = store.load(id).await.map_err(text)?;
    let request = loaded.writer.with_transcript(Request::build).await;
    let request = match request {
        Ok((request, _)) => serde_json::to_string(&request).map_err(text)?,
        Err(error) => error.to_string(),
    };
    turn(&loaded.writer, script::plain_turn(9, "next")).await?;
    let log = layout::session_dir(ROOT.as_ref(), id).join(layout::LOG);
    Ok((request, report.ok, vfs.content(&log).unwrap_or_default()))
}

async fn check(vfs: &MemVfs, acked: &Acked) -> Fallible<()> {
    for number in 1..=3 {
        let id = id(number);
        let known = acked.iter().find(|(other, _)| *other == number);
        if files(vfs)?.header(&id).map_err(text)?.is_none() {
            match known {
                Some(_) => return Err("an acknowledged session is gone (I1)".into()),
                None => continue,
            }
        }
        let log = read(&files(vfs)?, &id, 1 << 20)?;
        if let Some(damage) = log.damage.first() {
            return Err(damage.reason.clone());
        }
        let least = known.map_or(&[][..], |(_, lines)| lines);
        if log.lines.get(..least.len()) != Some(least) {
            return Err("an acknowledged event is gone (I1)".into());
        }
        let bare = vfs.fork();
        for path in bare.files() {
            let index = path.extension().is_some_and(|it| it == "index");
            if index || path.file_name().is_some_and(|it| it == layout::INDEX) {
                bare.remove_file(&path).map_err(text)?;
            }
        }
        let with = ask(&vfs.fork(), &id).await?;
        if with != ask(&bare, &id).await? {
            return Err("without its index a session says something else (I6)".into());
        }
        if !with.1 {
            return Err("verify finds something after a crash".into());
        }
    }
    Ok(())
}

/// Crashes everywhere. Returns how many images there were, and what is wrong with the first.
pub(crate) fn crash_stores() -> (u64, Vec<String>) {
    let (runtime, mut states, mut wrong) = (runtime(), 0, Vec::new());
    for n in 1.. {
        let vfs = MemVfs::new();
        vfs.freeze_at(n);
        let mut acked = Acked::new();
        let worked = runtime.block_on(work(&vfs, &mut acked));
        // Most fates of one file differ in bytes that no one reads; the plain ones say most.
        for (at, (fate, image)) in vfs.crash_states().enumerate() {
            if at > 8 && at % 7 != 0 {
                continue;
            }
            states += 1;
            if let Err(what) = runtime.block_on(check(&image, &acked)) {
                wrong.push(format!("{what}: at {n}, {fate}"));
            }
        }
        if !vfs.is_frozen() {
            wrong.extend(worked.err());
            return (states, wrong);
        }
    }
    (states, wrong)
}

#[test]
fn turns_forks_and_take_overs_of_a_store_survive_a_crash_at_any_operation() {
    let (states, wrong) = crash_stores();
    say!("store: {states} crash states");
    assert!(
        wrong.is_empty(),
        "{} wrong: {:#?}",
        wrong.len(),
        wrong.first()
    );
    assert!(states >= 1_000, "{states}");
}

async fn parent(vfs: &MemVfs) -> Fallible<()> {
    let store = store(vfs)?;
    let header = Header::new(id(1), 1_764_460_800_000, std::path::Path::new("/w").into());
    let writer = store.create(header).await.map_err(text)?;
    turn(&writer, script::plain_turn(1, "first")).await
}

fn log_of(number: u32) -> PathBuf {
    layout::session_dir(ROOT.as_ref(), &id(number)).join(layout::LOG)
}

/// After all of that, the fork has what it was given, or it was refused.
async fn forked(
    vfs: &MemVfs,
    at: u64,
    then: impl AsyncFnOnce(&MemVfs) -> Fallible<()>,
) -> Fallible<()> {
    if store(vfs)?.fork(&id(1), Some(at), id(2)).await.is_err() {
        return Ok(());
    }
    let before = read(&files(vfs)?, &id(2), 1 << 20)?.lines;
    then(vfs).await?;
    for image in [vfs.fork(), vfs.power_cut(Kept::Nothing)] {
        let log = read(&files(&image)?, &id(2), 1 << 20)?;
        if let Some(damage) = log.damage.first() {
            return Err(format!("the fork is damaged: {}", damage.reason));
        }
        if log.lines != before {
            return Err("the fork has changed".into());
        }
    }
    Ok(())
}

#[test]
fn a_fork_at_an_event_that_is_torn_is_refused_or_whole_whatever_becomes_of_the_parent() {
    let outcome = runtime().block_on(async {
        let vfs = MemVfs::new();
        parent(&vfs).await?;
        // Two events of a batch of three, as a killed process leaves it.
        let events: Vec<Event> = script::events_from(7, &script::plain_turn(2, "second"));
        let mut encoder =
            threadline_session::codec::Encoder::new(threadline_session::chain::Chain::new());
        let torn = encoder.batch(7, &events, None).map_err(text)?;
        let mut log = vfs.content(&log_of(1)).unwrap_or_default();
        log.extend_from_slice(&torn.bytes[..torn.ends[1]]);
        vfs.put(&log_of(1), &log).map_err(text)?;
        forked(&vfs, 8, async |vfs| {
            // Recovery moves the torn bytes aside.
            store(vfs)?.load(&id(1)).await.map(drop).map_err(text)
        })
        .await
    });
    assert_eq!(outcome, Ok(()));
}

#[test]
fn a_fork_at_an_event_behind_a_failed_sync_is_refused_or_durable() {
    let outcome = runtime().block_on(async {
        let vfs = MemVfs::new();
        parent(&vfs).await?;
        let plan = Plan {
            op: Some(Op::SyncData),
            nth: 1,
            fault: Fault::SyncForgotten,
            sticky: false,
        };
        let faulty = FaultVfs::new(vfs.clone(), plan);
        let loaded = store(&faulty)?.load(&id(1)).await.map_err(text)?;
        let failed = turn(&loaded.writer, script::plain_turn(2, "second")).await;
        if failed.is_ok() {
            return Err("a failed sync was acknowledged".into());
        }
        drop(loaded);
        forked(&vfs, 9, async |_| Ok(())).await
    });
    assert_eq!(outcome, Ok(()));
}
