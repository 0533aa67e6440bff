//! Eight processes fight for one session, and its holder is killed again and again.

use std::{
    collections::BTreeSet,
    io::BufRead as _,
    path::Path,
    sync::mpsc::{Receiver, Sender, channel},
};

use super::{
    Ledger, check_epochs, check_log,
    process::{Other, word},
    store,
};
use crate::world::{Fallible, Session, text};

const FIGHTERS: usize = 8;

fn takeovers() -> usize {
    let wanted = std::env::var("THREADLINE_TAKEOVERS").ok();
    wanted.and_then(|it| it.parse().ok()).unwrap_or(200)
}

/// What a fighter says; `None` at its end.
type Said = (u32, Option<String>);

fn start(root: &Path, to: &Sender<Said>) -> Other {
    let mut other = Other::start(root, "fight");
    let (pid, output, to) = (other.pid(), other.output(), to.clone());
    std::thread::spawn(move || {
        for line in output.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line) + "\n";
            if let Some(word) = word(&line)
                && to.send((pid, Some(word))).is_err()
            {
                return;
            }
        }
        let _ = to.send((pid, None));
    });
    other
}

#[derive(Default)]
struct Ring {
    ledger: Ledger,
    epochs: BTreeSet<u64>,
    /// Who holds the session as far as is known, and how many events it has acknowledged.
    holding: Vec<(u32, u64)>,
    failures: Vec<String>,
}

impl Ring {
    fn take(&mut self, pid: u32, said: &str) {
        let (verb, rest) = said.split_once(' ').unwrap_or((said, ""));
        match verb {
            "holding" => {
                self.holding.push((pid, 0));
                let epoch = rest.parse().unwrap_or(0);
                if !self.epochs.insert(epoch) {
                    self.failures.push(format!("epoch {epoch} came twice"));
                }
            }
            "released" => self.holding.retain(|(other, _)| *other != pid),
            "ack" => {
                let (seq, line) = rest.split_once(' ').unwrap_or_default();
                let seq = seq.parse().unwrap_or(u64::MAX);
                if self.ledger.insert(seq, line.to_owned()).is_some() {
                    self.failures
                        .push(format!("event {seq} was acknowledged twice"));
                }
                let mut holding = self.holding.iter_mut();
                if let Some((_, acks)) = holding.find(|(other, _)| *other == pid) {
                    *acks += 1;
                }
            }
            _ => self.failures.push(format!("{pid}: {said}")),
        }
    }

    /// Hears out whoever was killed. Returns whether it held the session.
    fn bury(&mut self, pid: u32, from: &Receiver<Said>) -> bool {
        while let Ok((other, said)) = from.recv() {
            match said {
                Some(said) => self.take(other, &said),
                None if other == pid => break,
                None => self.failures.push(format!("{other} ended by itself")),
            }
        }
        let held = self.holding.iter().any(|(other, _)| *other == pid);
        self.holding.retain(|(other, _)| *other != pid);
        held
    }
}

fn fight(root: &Path, wanted: usize) -> Fallible<(usize, Ring)> {
    let (to, from) = channel();
    let mut fighters: Vec<_> = (0..FIGHTERS).map(|_| start(root, &to)).collect();
    let mut ring = Ring::default();
    let mut killed = 0;
    while killed < wanted && ring.failures.is_empty() {
        let (pid, said) = from.recv().map_err(text)?;
        let Some(said) = said else {
            ring.failures.push(format!("{pid} ended by itself"));
            break;
        };
        ring.take(pid, &said);
        let patience = (killed % 9) as u64;
        let due = ring.holding.iter().find(|(_, acks)| *acks > patience);
        let Some((pid, _)) = due.copied() else {
            continue;
        };
        let Some(fighter) = fighters.iter_mut().find(|it| it.pid() == pid) else {
            return Err(format!("{pid} is nobody"));
        };
        fighter.kill();
        killed += usize::from(ring.bury(pid, &from));
        *fighter = start(root, &to);
    }
    for fighter in &mut fighters {
        let pid = fighter.pid();
        fighter.kill();
        ring.bury(pid, &from);
    }
    Ok((killed, ring))
}

#[test]
#[ignore = "cargo xtask test contention"]
fn a_session_whose_holder_is_killed_again_and_again_has_all_that_was_acknowledged() {
    let root = tempfile::tempdir().expect("a folder");
    let mut session = Session::new(1);
    let created = session.create(&store(root.path()), 1);
    drop(created.expect("a session"));
    let started = std::time::Instant::now();
    let (killed, ring) = fight(root.path(), takeovers()).expect("a fight");
    assert!(ring.failures.is_empty(), "{:#?}", ring.failures);
    let lines = check_log(root.path(), &ring.ledger).expect("the log");
    assert_eq!(check_epochs(&lines), Ok(()));
    session.tried = vec![
        lines
            .iter()
            .map(|line| [line.as_slice(), b"\n"].concat())
            .collect(),
    ];
    drop(session.resume(&store(root.path())).expect("a claim"));
    let last = super::child::epoch(root.path(), threadline_jsonl::layout::LOCK);
    assert!(last.expect("an epoch") > ring.epochs.last().copied().unwrap_or(0));
    println!(
        "\ncontention: {killed} holders killed, {} claims, {} events acknowledged, {} stored, \
         lost: 0, in {:.1} s",
        ring.epochs.len(),
        ring.ledger.len(),
        lines.len(),
        started.elapsed().as_secs_f64()
    );
    assert!(killed >= takeovers());
}
