//! One random kill: start, kill, check what is on disk, resume, check again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    time::Duration,
};

use serde_json::{Value, json};
use threadline_strict_model::{Reply, Step};

use crate::{
    random::{Rng, Tally},
    run_args, strs,
    support::{Called, Running, Strict, World, alive, until},
    world,
};

/// Sessions that one worker goes on with.
const SESSIONS: usize = 4;
/// Kills after which a session is left alone.
const OLDEST: u64 = 12;

/// What the killed run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Text,
    Tools,
    Hang,
    Ask,
    Rename,
    Fork,
}

/// When it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// A time after its start: while it starts, claims the session, stores the prompt.
    Start,
    /// After so many lines of output.
    Line(u64),
    /// Once the server has its request.
    Request,
    /// In the middle of the stream.
    Stream,
    /// Once a tool has left its mark.
    Tool,
    /// Once a person is asked.
    Asked,
    /// Once the person has said yes.
    Answered,
    /// Once the end of the turn is told.
    End,
}

impl Moment {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Line(_) => "after a line",
            Self::Request => "request",
            Self::Stream => "stream",
            Self::Tool => "inside a tool",
            Self::Asked => "approval asked",
            Self::Answered => "approval answered",
            Self::End => "turn end",
        }
    }
}

/// Kills runs in a world and against a server of its own.
pub(crate) struct Worker {
    world: World,
    strict: Strict,
    rng: Rng,
    number: u64,
    trials: u64,
    /// Sessions to go on with, and how often each was.
    sessions: Vec<(String, u64)>,
    /// All sessions that there ever were.
    known: BTreeSet<String>,
    pub(crate) tally: Tally,
}

/// What a killed run is known by.
struct Killed {
    tag: String,
    id: String,
    /// Log before the run; empty for a new session.
    before: Vec<u8>,
    /// Log lines that it printed.
    acknowledged: Vec<String>,
    /// Requests that the server saw of it.
    requests: usize,
    marks: Vec<PathBuf>,
}

impl Worker {
    pub(crate) fn new(number: u64, seed: u64) -> Self {
        Self {
            world: world(),
            strict: Strict::new([]),
            rng: Rng::new(seed.wrapping_mul(31).wrapping_add(number)),
            number,
            trials: 0,
            sessions: Vec::new(),
            known: BTreeSet::new(),
            tally: Tally::default(),
        }
    }

    /// Runs, kills and resumes once. A run that was faster than its kill does not count.
    pub(crate) fn trial(&mut self) {
        self.trials += 1;
        assert!(self.trials < 100_000, "the kills come too late");
        let tag = format!("w{}t{}.", self.number, self.trials);
        // A server of its own: a request that a killed run had on its way reaches no other trial.
        self.strict = Strict::new([]);
        let session = self.choose_session();
        let works = [
            Work::Text,
            Work::Text,
            Work::Tools,
            Work::Tools,
            Work::Hang,
            Work::Ask,
        ];
        let work = match &session {
            Some(_) => match self.rng.below(12) {
                0 => Work::Rename,
                1 | 2 => Work::Fork,
                _ => self.rng.pick(&works),
            },
            None => self.rng.pick(&works),
        };
        match (work, session.clone()) {
            (Work::Rename, Some(id)) => return self.rename(&id, &tag),
            (Work::Fork, Some(id)) => return self.fork(&id, &tag),
            _ => {}
        }
        // Half of the runs keep a checkpoint of every few events, so that kills meet the index too.
        let bytes = self.rng.pick(&["1", "1048576"]);
        let variable = "THREADLINE_CHECKPOINT_BYTES".to_owned();
        self.world.env.insert(variable, bytes.to_owned());
        let moment = self.choose_moment(work);
        let before = session
            .as_ref()
            .map(|id| self.world.log(id))
            .unwrap_or_default();
        self.script(work, &tag);
        let mut running = self.start(work, session.as_deref(), &tag);
        self.wait(&mut running, moment, &tag);
        // No wait for anything: it only spreads the kills between two moments that can be seen.
        std::thread::sleep(Duration::from_micros(self.rng.below(800)));
        let counted = running.kill();
        if counted {
            self.tally.kills += 1;
            *self
                .tally
                .moments
                .entry(format!("{work:?}, {}", moment.name()))
                .or_default() += 1;
        }
        let acknowledged: Vec<String> = running
            .seen
            .iter()
            .filter(|line| line.starts_with("{\"seq\":"))
            .cloned()
            .collect();
        let Some(id) = session.or_else(|| self.new_session()) else {
            // Killed before the prompt was stored: nobody was told anything.
            assert!(running.seen.is_empty(), "{tag} {:?}", running.seen);
            return;
        };
        let work_dir = self.world.work();
        let marks = ["1", "2"]
            .map(|name| work_dir.join(format!("{tag}{name}")))
            .to_vec();
        let requests = self.strict.model.requests().len();
        self.check(&Killed {
            tag,
            id,
            before,
            acknowledged,
            requests,
            marks,
        });
    }

    fn choose_session(&mut self) -> Option<String> {
        self.sessions.retain(|(_, kills)| *kills < OLDEST);
        let open = self.sessions.len();
        if open == 0 || (open < SESSIONS && self.rng.below(3) == 0) {
            return None;
        }
        let at = usize::try_from(self.rng.below(open as u64)).unwrap();
        self.sessions[at].1 += 1;
        Some(self.sessions[at].0.clone())
    }

    fn choose_moment(&mut self, work: Work) -> Moment {
        let lines = 1 + self.rng.below(14);
        let moments: &[Moment] = match work {
            Work::Text | Work::Rename | Work::Fork => &[
                Moment::Start,
                Moment::Line(0),
                Moment::Request,
                Moment::Stream,
                Moment::End,
            ],
            Work::Tools => &[Moment::Start, Moment::Line(0), Moment::Tool, Moment::End],
            Work::Hang => &[Moment::Tool, Moment::Line(0)],
            Work::Ask => &[Moment::Asked, Moment::Answered, Moment::Line(0)],
        };
        match self.rng.pick(moments) {
            // A run that hangs or asks prints only so many lines.
            Moment::Line(_) if matches!(work, Work::Hang | Work::Ask) => {
                Moment::Line(1 + lines % 7)
            }
            Moment::Line(_) => Moment::Line(lines),
            moment => moment,
        }
    }

    fn script(&mut self, work: Work, tag: &str) {
        let shell = |reply: Reply, id: &str, command: String| {
            reply.and_call(id, "shell", json!({"command": command}))
        };
        let mark = |name: &str| format!("echo {name} > {tag}{name}; echo said-{name}");
        let replies = match work {
            Work::Rename | Work::Fork => Vec::new(),
            Work::Text => {
                let mut steps = Vec::new();
                for word in 0..6 {
                    steps.push(Step::Text(format!("word {word} of {tag} ")));
                    // Longer than pieces are gathered, so that some are logged on the way.
                    steps.push(Step::Pause(15));
                }
                vec![Reply::steps(steps)]
            }
            Work::Tools => vec![
                shell(
                    shell(Reply::text("Two calls."), "c1", mark("1")),
                    "c2",
                    mark("2"),
                ),
                Reply::text("Both are done."),
            ],
            Work::Hang => {
                let wait = format!(
                    "echo $$ > {tag}pids; echo 2 > {tag}2; mkfifo {tag}pipe; cat {tag}pipe"
                );
                let reply = shell(shell(Reply::default(), "c1", mark("1")), "c2", wait);
                vec![shell(reply, "c3", "echo never".into())]
            }
            Work::Ask => vec![
                shell(Reply::text("May I?"), "c1", mark("1")),
                Reply::text("Thank you."),
            ],
        };
        for reply in replies {
            self.strict.model.push(reply.when_user(format!("do {tag}")));
        }
    }

    fn start(&mut self, work: Work, session: Option<&str>, tag: &str) -> Running {
        let task = format!("do {tag}");
        let policy = if work == Work::Ask {
            "on_request"
        } else {
            "never"
        };
        let mut more = vec!["--approval", policy];
        if let Some(id) = session {
            more.extend(["--session", id]);
        }
        more.push(&task);
        let args = run_args(&self.strict, &more);
        match work {
            Work::Ask => self.world.start_at_terminal(&strs(&args)),
            _ => self.world.start(&strs(&args)),
        }
    }

    /// Waits for the moment, or for the end of the run if that comes first.
    fn wait(&mut self, running: &mut Running, moment: Moment, tag: &str) {
        let kind = |line: &str| -> String {
            let value: Value = serde_json::from_str(line).unwrap();
            value["type"].as_str().unwrap_or_default().to_owned()
        };
        let mut line_of = |kinds: &[&str]| {
            while let Some(line) = running.next_line() {
                if kinds.contains(&kind(&line).as_str()) {
                    return true;
                }
            }
            false
        };
        match moment {
            Moment::Start => {
                let micros = self.rng.below(40_000);
                std::thread::sleep(Duration::from_micros(micros));
            }
            Moment::Line(count) => {
                for _ in 0..count {
                    if running.next_line().is_none() {
                        break;
                    }
                }
            }
            Moment::Stream => {
                line_of(&["assistant/chunk"]);
            }
            Moment::End => {
                line_of(&["turn/end", "run_finished"]);
            }
            Moment::Asked => {
                line_of(&["approval_required"]);
            }
            Moment::Answered => {
                if line_of(&["approval_required"]) {
                    running.type_line("y");
                    let micros = self.rng.below(30_000);
                    std::thread::sleep(Duration::from_micros(micros));
                }
            }
            Moment::Request => {
                let model = &self.strict.model;
                until("a request", || {
                    !model.requests().is_empty() || running.child.try_wait().unwrap().is_some()
                });
            }
            Moment::Tool => {
                let mark = self
                    .world
                    .work()
                    .join(format!("{tag}{}", self.rng.pick(&["1", "2"])));
                until("a mark", || {
                    mark.exists() || running.child.try_wait().unwrap().is_some()
                });
            }
        }
    }

    /// Finds the session that the killed run began, if it came that far.
    fn new_session(&mut self) -> Option<String> {
        let logs = self
            .world
            .files()
            .into_iter()
            .filter(|path| path.ends_with("log.jsonl"));
        let id = logs
            .map(|path| {
                path.parent()
                    .unwrap()
                    .file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned()
            })
            .find(|id| !self.known.contains(id))?;
        self.known.insert(id.clone());
        self.sessions.push((id.clone(), 0));
        Some(id)
    }

    fn check(&mut self, killed: &Killed) {
        let Killed { tag, id, .. } = killed;
        let log = self.world.log(id);
        assert!(
            log.starts_with(&killed.before),
            "{tag} the log before the run has changed"
        );
        self.tally.acknowledged += killed.acknowledged.len() as u64;
        self.tally.lost += lost(&log, &killed.acknowledged, tag);
        self.check_order(killed, &log);
        self.look(id, tag);
        self.check_processes(tag);
        // Left as it is, so that the session's next kill may meet its recovery.
        if self.rng.below(3) == 0 {
            return;
        }
        let resumed = self.resume(id, tag);
        let after = self.world.log(id);
        let kept = match resumed.lines()[0]["recovered"]["torn"]["offset"].as_u64() {
            Some(offset) => usize::try_from(offset).unwrap(),
            None => log.len(),
        };
        assert!(
            after.starts_with(&log[..kept]),
            "{tag} resuming changed the log before it"
        );
        self.tally.lost += lost(&after, &killed.acknowledged, tag);
        self.look(id, tag);
        self.tally.resumed += 1;
    }

    /// What the outside has seen must be in the log: a request after its step and prompt, a tool's
    /// mark after its start.
    fn check_order(&mut self, killed: &Killed, log: &[u8]) {
        let tag = &killed.tag;
        let new = String::from_utf8_lossy(&log[killed.before.len()..]);
        let events: Vec<Value> = new
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
        if killed.requests > 0 {
            let prompt = |event: &&Value| {
                event["type"] == "user/message" && event["data"].to_string().contains(tag.as_str())
            };
            assert!(
                events.iter().any(|event| prompt(&event)),
                "{tag} sent without its prompt"
            );
        }
        assert!(
            of("step/start") >= killed.requests,
            "{tag} sent before its step was stored"
        );
        let marks = killed.marks.iter().filter(|mark| mark.exists()).count();
        assert!(
            of("tool/start") >= marks,
            "{tag} a tool ran before its start was stored"
        );
    }

    /// Verifies, replays and shows, twice, and holds that nothing is written by it.
    fn look(&self, id: &str, tag: &str) {
        let before = self.world.snapshot();
        for args in [
            &["verify", id, "--requests"][..],
            &["replay", id],
            &["show", id],
        ] {
            let called = self.world.call(args);
            assert_eq!(called.code(), Some(0), "{tag} {called:#?}");
        }
        assert!(
            self.world.snapshot() == before,
            "{tag} looking wrote something"
        );
    }

    fn check_processes(&self, tag: &str) {
        let file = self.world.work().join(format!("{tag}pids"));
        let text = fs::read_to_string(file).unwrap_or_default();
        let ids: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        until("the tool's processes are gone", || {
            ids.iter().all(|pid| !alive(*pid))
        });
    }

    fn resume(&mut self, id: &str, tag: &str) -> Called {
        let task = format!("resume {tag}");
        let before = self.strict.model.violations().len();
        self.strict
            .model
            .push(Reply::text(format!("Resumed {tag}")).when_user(&task));
        let args = run_args(&self.strict, &["--session", id, &task]);
        let called = self.world.call(&strs(&args));
        let refused = self.strict.model.violations().len() - before;
        self.tally.refused += refused as u64;
        assert_eq!(
            called.code(),
            Some(0),
            "{tag} {called:#?} {:#?}",
            self.strict.model.violations()
        );
        called
    }

    /// Kills a fork: it is there as a whole or not at all, and there if its id was told. Its parent
    /// is untouched, and it is gone on with like any other session.
    fn fork(&mut self, id: &str, tag: &str) {
        let log = self.world.log(id);
        let at = self.rng.below(6).to_string();
        let mut args = vec!["fork", id];
        if self.rng.below(2) == 0 {
            // Often in the middle of a turn, so that the fork has to close it.
            args.extend(["--at", &at]);
        }
        let mut running = self.world.start(&args);
        let told = self.rng.below(4) == 0 && running.next_line().is_some();
        if !told {
            std::thread::sleep(Duration::from_micros(self.rng.below(30_000)));
        }
        if running.kill() {
            self.tally.kills += 1;
            let moment = if told { "Fork, told" } else { "Fork, start" };
            *self.tally.moments.entry(moment.into()).or_default() += 1;
        }
        assert!(self.world.log(id) == log, "{tag} the parent has changed");
        let child = self.new_session();
        match (running.seen.first(), &child) {
            (Some(told), child) => assert_eq!(child.as_ref(), Some(told), "{tag}"),
            (None, None) => return,
            (None, Some(_)) => {}
        }
        let child = child.unwrap();
        self.look(&child, tag);
        // A new server, because the last one may have been asked by another trial's run.
        self.strict = Strict::new([]);
        self.resume(&child, tag).ok();
        self.look(&child, tag);
        self.tally.resumed += 1;
    }

    /// Kills a change of the title: it is the old one or the new one, and the log is untouched.
    fn rename(&mut self, id: &str, tag: &str) {
        let title = |world: &World| -> Option<String> {
            let shown = world.call(&["show", id, "--json"]);
            assert_eq!(shown.code(), Some(0), "{tag} {shown:#?}");
            shown.json()["summary"]["title"].as_str().map(str::to_owned)
        };
        let (old, log) = (title(&self.world), self.world.log(id));
        let new = format!("title {tag}");
        let mut running = self.world.start(&["rename", id, &new]);
        std::thread::sleep(Duration::from_micros(self.rng.below(30_000)));
        if running.kill() {
            self.tally.kills += 1;
            *self
                .tally
                .moments
                .entry("Rename, start".into())
                .or_default() += 1;
        }
        let now = title(&self.world);
        assert!(now == old || now.as_deref() == Some(&new), "{tag} {now:?}");
        assert!(
            self.world.log(id) == log,
            "{tag} a title is no part of the log"
        );
        self.look(id, tag);
    }
}

/// Counts the acknowledged lines that are not in a log, byte for byte and once.
fn lost(log: &[u8], acknowledged: &[String], tag: &str) -> u64 {
    let text = String::from_utf8_lossy(log);
    let mut stored: BTreeMap<&str, u64> = BTreeMap::new();
    for line in text.lines() {
        *stored.entry(line).or_default() += 1;
    }
    let missing: Vec<&String> = acknowledged
        .iter()
        .filter(|line| stored.get(line.as_str()) != Some(&1))
        .collect();
    if !missing.is_empty() {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "{tag} lost: {missing:#?}");
    }
    missing.len() as u64
}

#[test]
fn a_missing_a_changed_and_a_doubled_line_count_as_lost() {
    let told = ["a", "b", "c", "d"].map(str::to_owned);
    assert_eq!(lost(b"header\na\nb\nc\nd\n", &told, "self-test"), 0);
    assert_eq!(lost(b"header\na\nb \nc\nc\n", &told, "self-test"), 3);
}
