//! What the other processes do.

use std::{io::BufRead as _, path::Path};

use threadline_jsonl::{Files, LogWriter, layout};
use threadline_session::{chain::Chain, codec::Encoder};
use threadline_store::{ClaimError, LogEnd, WriteError};

use super::{
    Writer, event,
    process::{ROLE, ROOT, say},
    store, two,
};
use crate::world::{Fallible, Session, read, text};

#[test]
#[ignore = "started by the others"]
fn child() {
    let (Some(root), Ok(role)) = (std::env::var_os(ROOT), std::env::var(ROLE)) else {
        return;
    };
    let root = Path::new(&root);
    let outcome = match role.as_str() {
        "fight" => fight(root),
        "hold" => hold(root, false),
        "hold busily" => hold(root, true),
        "two" => two::child(root),
        role => Err(format!("no role {role}")),
    };
    if let Err(what) = outcome {
        say(&format!("failed {what}"));
    }
}

/// Claims the session and goes on behind its end; `None` when somebody else has it.
fn open(files: &Files, session: &Session) -> Fallible<Option<(LogWriter, u64)>> {
    let mut writer = match files.claim(&session.id) {
        Ok(writer) => writer,
        Err(ClaimError::Locked { .. }) => return Ok(None),
        Err(other) => return Err(text(other)),
    };
    let log = read(files, &session.id, 1 << 20)?;
    if let Some(damage) = log.damage.first() {
        return Err(text(damage));
    }
    let next = log.next.seq;
    let end = LogEnd {
        next: log.next,
        torn: log.torn,
    };
    writer.begin(end).map_err(text)?;
    Ok(Some((writer, next)))
}

/// Reads the epoch of the lock's record, as anybody may.
pub(super) fn epoch(root: &Path, name: &str) -> Fallible<u64> {
    let path = layout::session_dir(root, &Session::new(1).id).join(name);
    let record = std::fs::read(path).map_err(text)?;
    let record: serde_json::Value = serde_json::from_slice(&record).map_err(text)?;
    let epoch = record.get("epoch").and_then(serde_json::Value::as_u64);
    epoch.ok_or_else(|| "the record has no epoch".into())
}

/// Appends a batch, and says which lines were acknowledged.
pub(super) fn append(
    writer: &mut LogWriter,
    who: Writer,
    next: &mut u64,
    n: u64,
) -> Result<(), WriteError> {
    let events: Vec<_> = (*next..*next + 1 + n % 3)
        .map(|seq| event(seq, who, n))
        .collect();
    let encoded = Encoder::new(Chain::new()).batch(*next, &events, None);
    let encoded = encoded.expect("a batch");
    let last = *next + events.len() as u64 - 1;
    writer.append(&encoded.bytes, last, true)?;
    let lines = String::from_utf8(encoded.bytes).expect("text");
    // All of the batch in one write: it was acknowledged at once.
    let acks: Vec<_> = lines
        .lines()
        .zip(*next..)
        .map(|(line, seq)| format!("ack {seq} {line}"))
        .collect();
    say(&acks.join("\n> "));
    *next = last + 1;
    Ok(())
}

fn this(epoch: u64) -> Writer {
    Writer {
        pid: u64::from(std::process::id()),
        epoch,
    }
}

/// Claims, appends a few batches and lets go, over and over; every second time it does not let go.
fn fight(root: &Path) -> Fallible<()> {
    let files = store(root);
    let session = Session::new(1);
    let mut n = 0;
    for round in 1_u64.. {
        let Some((mut writer, mut next)) = open(&files, &session)? else {
            continue;
        };
        let who = this(epoch(root, layout::LOCK)?);
        say(&format!("holding {}", who.epoch));
        let batches = if round % 2 == 0 { u64::MAX } else { 3 };
        for _ in 0..batches {
            append(&mut writer, who, &mut next, n).map_err(text)?;
            n += 1;
        }
        say("released");
    }
    Ok(())
}

/// Claims, and appends a batch for every word it hears, or all the time; until it is fenced.
fn hold(root: &Path, busily: bool) -> Fallible<()> {
    let files = store(root);
    let session = Session::new(1);
    let Some((mut writer, mut next)) = open(&files, &session)? else {
        return Err("it is held".into());
    };
    let who = this(0);
    say("holding");
    let mut words = std::io::stdin().lock().lines();
    for n in 0.. {
        if !busily && words.next().is_none() {
            return Ok(());
        }
        match append(&mut writer, who, &mut next, n) {
            Ok(()) => {}
            Err(WriteError::Fenced { .. } | WriteError::UnknownOutcome { .. }) => {
                // Of a batch that was on its way the outcome may be unknown; of the next it is not.
                let again = append(&mut writer, who, &mut next, n);
                let fenced = matches!(again, Err(WriteError::Fenced { .. }));
                say(if fenced {
                    "fenced"
                } else {
                    "not fenced for long"
                });
                return Ok(());
            }
            Err(other) => return Err(text(other)),
        }
    }
    Ok(())
}
