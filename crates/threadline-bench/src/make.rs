//! `cargo xtask make`: stores of a size that takes years of work to get, made through the store's
//! own door. The same arguments make the same sessions.

use std::{
    error::Error,
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use serde::{Deserialize, Serialize};
use threadline_jsonl::layout;
use threadline_session::{
    Header, OsPath, Payload, SessionId,
    payload::{ModelRef, Usage},
};
use threadline_store::{AppendOptions, MadeTitle, SessionStore, SessionWriter, SummaryPatch};

use crate::{
    Outcome,
    agent::Agent,
    data::{self, Steps},
    lively,
};

/// The first argument that asks for a store.
pub(crate) const ARGUMENT: &str = "make";

const HELP: &str = "\
Usage: cargo xtask make session DIR [--events N]
       cargo xtask make sessions DIR [--count N]

Makes a store in DIR/store with one session of N events (1000000), or with N sessions (100000). What
was made is written to DIR/made.json and to standard output. A store of the same size that is there
already is kept; nothing else in DIR is touched.";

/// Raised when stores are made differently. Those of another kind are made anew.
const FORMAT: u32 = 1;

/// Events of one batch.
const BATCH: usize = 2_000;

/// Items that fill a context, so that the history is compacted.
const FULL: usize = 400;

/// Very long turns in a session, each with the [`SHARE`]th part of its events.
const LONG_TURNS: u64 = 3;
const SHARE: u64 = 50;

/// Fewest steps of a very long turn: more than the page shows at once.
const LONG_STEPS: u64 = 60;

/// Events of a step, about.
const STEP_EVENTS: u64 = 43;

/// Sessions that are made at the same time.
const WORKERS: u64 = 32;

/// Folders that sessions work in.
const FOLDERS: u64 = 12;

/// What is wanted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    kind: Kind,
    dir: PathBuf,
    size: u64,
}

/// Which store is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// One long session.
    Session,
    /// Many short ones.
    Sessions,
}

/// Arguments that cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused(String);

impl Error for Refused {}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n\n{HELP}", self.0)
    }
}

impl Wanted {
    /// Reads what stands behind [`ARGUMENT`].
    pub(crate) fn read(args: &[String]) -> Result<Self, Refused> {
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let (kind, dir, rest) = match words.as_slice() {
            ["session", dir, rest @ ..] => (Kind::Session, dir, rest),
            ["sessions", dir, rest @ ..] => (Kind::Sessions, dir, rest),
            _ => return Err(Refused("what is to be made, and where?".into())),
        };
        let (option, usual) = match kind {
            Kind::Session => ("--events", 1_000_000),
            Kind::Sessions => ("--count", 100_000),
        };
        let size = match rest {
            [] => usual,
            [name, number] if *name == option => number
                .parse()
                .ok()
                .filter(|size| *size > 0)
                .ok_or_else(|| Refused(format!("`{number}` is not a number above 0")))?,
            [other, ..] => return Err(Refused(format!("`{other}` cannot be used here"))),
        };
        Ok(Self {
            kind,
            dir: PathBuf::from(dir),
            size,
        })
    }
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    format: u32,
    kind: Kind,
    /// What was asked for.
    size: u64,
    /// The folder of the store.
    root: PathBuf,
    /// The session, or the newest of them.
    id: SessionId,
    /// The log of that session.
    log: PathBuf,
    /// Events and turns that were recorded in the store.
    events: u64,
    turns: u64,
    /// Turns with the most steps.
    long_turns: Vec<u64>,
    /// The turn with a call that nobody knows the end of.
    unknown_turn: Option<u64>,
    /// Sessions of the store, and those of them that a list shows: the others are archived.
    sessions: u64,
    listed: u64,
}

/// Makes a store unless it is there, and says on standard output what it has.
pub(crate) async fn make(wanted: Wanted) -> Outcome<()> {
    fs::create_dir_all(&wanted.dir)?;
    let dir = wanted.dir.canonicalize()?;
    let (marker, root) = (dir.join("made.json"), dir.join("store"));
    let made = match kept(&marker, &wanted) {
        Some(made) => made,
        None => {
            if root.exists() && !marker.exists() {
                let place = root.display();
                return Err(
                    format!("{place} is there, and not known to be made: remove it first").into(),
                );
            }
            if root.exists() {
                fs::remove_dir_all(&root)?;
            }
            // While it stands alone the store is known to be ours, and not to be whole.
            fs::write(&marker, "{}\n")?;
            let begun = Instant::now();
            let made = match wanted.kind {
                Kind::Session => session(&root, wanted.size).await?,
                Kind::Sessions => sessions(&root, wanted.size).await?,
            };
            fs::write(&marker, format!("{}\n", serde_json::to_string(&made)?))?;
            eprintln!("made in {:.1} s", begun.elapsed().as_secs_f64());
            made
        }
    };
    println!("{}", serde_json::to_string(&made)?);
    Ok(())
}

/// Returns what a marker says of a store that is as wanted.
fn kept(marker: &Path, wanted: &Wanted) -> Option<Made> {
    let made: Made = serde_json::from_slice(&fs::read(marker).ok()?).ok()?;
    let same = made.format == FORMAT && made.kind == wanted.kind && made.size == wanted.size;
    (same && made.log.is_file()).then_some(made)
}

/// Makes a session of about so many events, as an agent leaves them.
async fn session(root: &Path, size: u64) -> Outcome<Made> {
    let store = data::maker(root, Arc::new(Steps::at(data::THEN)))?;
    let (id, time) = data::numbered(1)?;
    let mut writer = store
        .create(Header::new(id.clone(), time, OsPath::from("/work")))
        .await?;
    let mut agent = Agent::new(size);
    let mut batch = Vec::new();
    let mut long_turns = Vec::new();
    let mut unknown_turn = None;
    while agent.events() < size {
        let part = agent.events() * (LONG_TURNS + 1) / size;
        let steps = if part > long_turns.len() as u64 {
            long_turns.push(agent.turns() + 1);
            (size / SHARE / STEP_EVENTS).max(LONG_STEPS)
        } else {
            agent.pool().dice().between(2, 6)
        };
        agent.lively_turn(&mut batch, steps, FULL)?;
        if unknown_turn.is_none() && agent.events() > size / 10 * 9 {
            record(&writer, &mut batch).await?;
            writer = die(&store, writer, &mut agent).await?;
            unknown_turn = Some(agent.turns());
        }
        if batch.len() >= BATCH {
            record(&writer, &mut batch).await?;
        }
    }
    record(&writer, &mut batch).await?;
    writer.flush().await?;
    Ok(Made {
        format: FORMAT,
        kind: Kind::Session,
        size,
        log: layout::session_dir(root, &id).join(layout::LOG),
        root: root.to_owned(),
        id,
        events: agent.events(),
        turns: agent.turns(),
        long_turns,
        unknown_turn,
        sessions: 1,
        listed: 1,
    })
}

async fn record(writer: &SessionWriter, batch: &mut Vec<Payload>) -> Outcome<()> {
    let mut rest = batch.drain(..).peekable();
    while rest.peek().is_some() {
        let some = rest.by_ref().take(BATCH).collect();
        writer.record(some, AppendOptions::default()).await?;
    }
    Ok(())
}

/// Lets an agent go away in the middle of a call, and another one go on.
async fn die(
    store: &SessionStore,
    writer: SessionWriter,
    agent: &mut Agent,
) -> Outcome<SessionWriter> {
    let mut batch = Vec::new();
    agent.dying_turn(&mut batch)?;
    record(&writer, &mut batch).await?;
    let id = writer.id().clone();
    drop(writer);
    let writer = store.load(&id).await?.writer;
    agent.revived(writer.next_seq().await);
    Ok(writer)
}

/// Makes so many sessions of one to three turns: of each hundred about four are archived, a third
/// has a title of its own, a few end in the middle of a turn, are forks, or are pinned.
async fn sessions(root: &Path, count: u64) -> Outcome<Made> {
    // Making one waits for the disk some ten times; many that wait at once share its syncs.
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| tokio::spawn(some(root.to_owned(), worker, count)))
        .collect();
    let mut sum = Sum::default();
    for worker in workers {
        let made = worker.await??;
        sum.events += made.events;
        sum.turns += made.turns;
        sum.listed += made.listed;
    }
    data::store(root)?.catch_up().await?;
    let (id, _) = data::numbered(count - 1)?;
    Ok(Made {
        format: FORMAT,
        kind: Kind::Sessions,
        size: count,
        log: layout::session_dir(root, &id).join(layout::LOG),
        root: root.to_owned(),
        id,
        events: sum.events,
        turns: sum.turns,
        long_turns: Vec::new(),
        unknown_turn: None,
        sessions: count,
        listed: sum.listed,
    })
}

/// What a worker has made.
#[derive(Debug, Default)]
struct Sum {
    events: u64,
    turns: u64,
    listed: u64,
}

/// Makes each [`WORKERS`]th session, beginning with that of a number.
async fn some(root: PathBuf, first: u64, count: u64) -> Outcome<Sum> {
    let clock = Arc::new(Steps::at(data::THEN));
    let store = data::maker(&root, clock.clone())?;
    let mut agent = Agent::new(0);
    let mut sum = Sum::default();
    let step = usize::try_from(WORKERS)?;
    for number in (first..count).step_by(step) {
        let (id, time) = data::numbered(number)?;
        clock.set(time);
        agent = agent.numbered(number);
        if number % 200 == 199 && number >= WORKERS {
            // Its parent is the one that this worker made before.
            let (parent, _) = data::numbered(number - WORKERS)?;
            store.fork(&parent, None, id.clone()).await?;
        } else {
            one(&store, &id, time, number, &mut agent).await?;
        }
        sum.events += agent.events();
        sum.turns += agent.turns();
        sum.listed += u64::from(!set(&store, &id, number, count, &mut agent).await?);
    }
    Ok(sum)
}

async fn one(
    store: &SessionStore,
    id: &SessionId,
    time: u64,
    number: u64,
    agent: &mut Agent,
) -> Outcome<()> {
    let folder = OsPath::from(format!("/work/project-{}", number % FOLDERS));
    let writer = store.create(Header::new(id.clone(), time, folder)).await?;
    let mut batch = Vec::new();
    for _ in 0..agent.pool().dice().between(1, 3) {
        agent.chat_turn(&mut batch)?;
    }
    if number % 50 == 49 {
        agent.dying_turn(&mut batch)?;
    }
    record(&writer, &mut batch).await
}

/// Sets what people and models set of a session. Returns whether it is archived.
async fn set(
    store: &SessionStore,
    id: &SessionId,
    number: u64,
    count: u64,
    agent: &mut Agent,
) -> Outcome<bool> {
    let mut patch = SummaryPatch::default();
    let archived = number % 25 == 24;
    if archived {
        patch.archived = Some(true);
    }
    // Six of them, wherever they are.
    if number.is_multiple_of((count / 6).max(1)) {
        patch.pinned = Some(true);
    }
    match number % 20 {
        3 => patch.title = Some(Some(format!("{}, again", lively::task(agent.pool())))),
        7 | 13 => patch.tags = Some(vec!["later".into(), format!("release-{}", number % 9)]),
        at if at % 3 == 0 => {
            let made = MadeTitle {
                text: lively::task(agent.pool()),
                model: ModelRef {
                    provider: "openai-chat".into(),
                    name: "bench".into(),
                },
                usage: Usage::default(),
            };
            store.keep_made_title(id, &made).await?;
        }
        _ => {}
    }
    if patch != SummaryPatch::default() {
        store.update(id, patch, 0).await?;
    }
    Ok(archived)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &str) -> Result<Wanted, Refused> {
        let args: Vec<_> = args.split_whitespace().map(str::to_owned).collect();
        Wanted::read(&args)
    }

    #[test]
    fn what_is_made_is_read_and_anything_else_is_refused_by_name() {
        let usual = read("session here").unwrap();
        assert_eq!((usual.kind, usual.size), (Kind::Session, 1_000_000));
        let few = read("sessions here --count 20").unwrap();
        assert_eq!((few.kind, few.size), (Kind::Sessions, 20));
        for refused in [
            "",
            "session",
            "session here --count 3",
            "session here --events 0",
        ] {
            let said = read(refused).unwrap_err().to_string();
            assert!(said.contains("cargo xtask make session DIR"), "{said}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_made_session_is_whole_and_has_one_unknown_call() {
        let dir = tempfile::tempdir().unwrap();
        let made = session(&dir.path().join("store"), 9_000).await.unwrap();
        let store = data::store(&made.root).unwrap();
        let report = store.verify(&made.id).await.unwrap();
        assert!(report.ok, "{report:?}");
        let (mut unknown, mut compactions) = (0, 0);
        store
            .each_event(&made.id, |line| {
                match line.event.payload() {
                    Ok(Payload::ToolResult(result)) => {
                        let is = result.outcome == threadline_session::payload::Outcome::Unknown;
                        unknown += u64::from(is);
                    }
                    Ok(Payload::CompactionSummary(_)) => compactions += 1,
                    _ => {}
                }
                true
            })
            .await
            .unwrap();
        assert_eq!(unknown, 1);
        assert!(compactions > 0);
        assert_eq!(made.long_turns.len(), 3);
        assert_eq!(report.events, made.events);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn made_sessions_are_listed_as_told() {
        let dir = tempfile::tempdir().unwrap();
        let made = sessions(&dir.path().join("store"), 210).await.unwrap();
        let store = data::store(&made.root).unwrap();
        let filter = threadline_store::ListFilter::default();
        assert_eq!(store.count(&filter).await.unwrap(), made.listed);
        assert!(made.listed < made.sessions);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_store_of_the_same_size_is_kept_and_what_is_not_ours_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = |count: u64| {
            let path = dir.path().display();
            read(&format!("sessions {path} --count {count}")).unwrap()
        };
        make(wanted(3)).await.unwrap();
        let mine = dir.path().join("store/mine");
        fs::write(&mine, "").unwrap();
        make(wanted(3)).await.unwrap();
        assert!(mine.exists());
        make(wanted(4)).await.unwrap();
        assert!(!mine.exists());
        fs::remove_file(dir.path().join("made.json")).unwrap();
        let refused = make(wanted(4)).await.unwrap_err().to_string();
        assert!(refused.contains("remove it first"), "{refused}");
    }
}
