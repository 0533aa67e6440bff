//! A holder is stopped, taken over, and wakes up again.

use std::path::Path;

use super::{Ledger, check_log, process::Other, store, writer_of};
use crate::world::{Fallible, Session, text};

const ROUNDS: u64 = 20;

/// Hears a child out; all that it says was acknowledged is noted.
fn hear_out(other: &mut Other, ledger: &mut Ledger) -> Fallible<()> {
    while let Some(said) = other.next() {
        match said.split_once(' ') {
            Some(("ack", rest)) => {
                let (seq, line) = rest.split_once(' ').unwrap_or_default();
                let seq = seq.parse().map_err(text)?;
                if ledger.insert(seq, line.to_owned()).is_some() {
                    return Err(format!("event {seq} was acknowledged twice"));
                }
            }
            None if said == "fenced" => return Ok(()),
            _ => return Err(said),
        }
    }
    Err("it ended before it was fenced".into())
}

fn round(root: &Path, number: u64, ledger: &mut Ledger) -> Fallible<()> {
    let busily = number % 2 == 1;
    let role = if busily { "hold busily" } else { "hold" };
    let mut other = Other::start(root, role);
    if other.next().as_deref() != Some("holding") {
        return Err("it does not hold the session".into());
    }
    if busily {
        // In the middle of whatever it does then.
        for _ in 0..number {
            other.next();
        }
    }
    other.stop();
    let files = store(root);
    let mut session = Session::new(1);
    session.renewed = true;
    let mut writer = files.take_over(&session.id).map_err(text)?;
    let log = crate::world::read(&files, &session.id, 1 << 20)?;
    session.tried = vec![log.lines];
    session.attempt = u32::try_from(number).map_err(text)?;
    let end = threadline_store::LogEnd {
        next: log.next,
        torn: log.torn,
    };
    writer.begin(end).map_err(text)?;
    let own = session.next_seq();
    session.append(&mut writer, 2, true).map_err(text)?;
    // It hears this as soon as it wakes up, and tries.
    other.tell("go");
    other.go_on();
    session.append(&mut writer, 1, true).map_err(text)?;
    let heard = hear_out(&mut other, ledger);
    session.append(&mut writer, 1, true).map_err(text)?;
    heard?;
    for (line, seq) in session.owned().iter().zip(0_u64..).skip(own) {
        let line = String::from_utf8_lossy(line);
        ledger.insert(seq, line.trim_end().to_owned());
    }
    other.kill();
    let lines = check_log(root, ledger)?;
    let pid = u64::from(other.pid());
    let late = lines.iter().skip(own);
    if late.into_iter().any(|line| writer_of(line).pid == pid) {
        return Err("something of the fenced writer is in the log".into());
    }
    if lines.len() != session.next_seq() {
        return Err("the log has other events than its writer's".into());
    }
    Ok(())
}

#[test]
#[ignore = "cargo xtask test contention"]
fn a_holder_that_wakes_up_after_it_was_taken_over_is_fenced_and_writes_nothing() {
    let root = tempfile::tempdir().expect("a folder");
    let mut session = Session::new(1);
    let created = session.create(&store(root.path()), 1);
    drop(created.expect("a session"));
    let started = std::time::Instant::now();
    let mut ledger = Ledger::new();
    for number in 0..ROUNDS {
        let outcome = round(root.path(), number, &mut ledger);
        assert_eq!(outcome, Ok(()), "round {number}");
    }
    println!(
        "\ncontention: {ROUNDS} take-overs from a stopped holder, {} events acknowledged, lost: 0, \
         in {:.1} s",
        ledger.len(),
        started.elapsed().as_secs_f64()
    );
}
