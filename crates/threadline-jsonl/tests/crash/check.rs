//! The invariants, checked on an image after a crash.

use threadline_jsonl::{
    Files, layout,
    sim::{Kept, MemVfs},
    vfs::Vfs as _,
};
use threadline_session::Header;
use threadline_store::{ClaimError, LogEnd, UserSummary};

use crate::world::{Fallible, Log, Session, files, read, read_from, state_of, text};

/// How a session was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Not there, and never acknowledged, or deleted.
    Absent,
    /// All in order, or with a torn end.
    Fine,
    /// With damage: it opens read-only.
    Damaged,
    /// With the damage that it had before a repair was begun.
    Unrepaired,
}

fn check(fits: bool, what: impl FnOnce() -> String) -> Fallible<()> {
    if fits { Ok(()) } else { Err(what()) }
}

/// Reads a session as anybody may, and compares. Takes into the session what was found.
pub(crate) fn examine(vfs: &MemVfs, session: &mut Session, killed: bool) -> Fallible<Found> {
    let files = files(vfs)?;
    let before = vfs.ops();
    let found = look(vfs, &files, session, killed, true)?;
    check(vfs.ops() == before, || "reading has written".into())?;
    Ok(found)
}

fn look(
    vfs: &MemVfs,
    files: &Files,
    session: &mut Session,
    killed: bool,
    small_pages: bool,
) -> Fallible<Found> {
    let listed = files.ids().map_err(text)?.contains(&session.id);
    let Some(header) = files.header(&session.id).map_err(text)? else {
        check(!listed, || "listed, but not there".into())?;
        let may_lack = !session.created || session.deleting;
        check(may_lack, || "an acknowledged session is gone (I1)".into())?;
        session.forget();
        return Ok(Found::Absent);
    };
    check(listed, || "there, but not listed".into())?;
    check(!session.deleted, || "a deleted session is back".into())?;
    check(header.verified, || "the header has no checksum".into())?;
    is_header(session, &header.line)?;
    files
        .stat(&session.id)
        .map_err(text)?
        .ok_or("it has a header and no stat")?;
    summary(files, session)?;

    let log = read(files, &session.id, 1 << 20)?;
    if small_pages {
        let same = log == read(files, &session.id, 600)?;
        check(same, || "small pages read otherwise".into())?;
    }
    let attempted = session.lines();
    let synced = &attempted[..session.synced];
    if session.repair.is_some() && session.is_old(|path| vfs.content(path)) {
        return Ok(Found::Unrepaired);
    }
    if !log.damage.is_empty() {
        check(session.repair.is_none(), || {
            "a repair left neither the old log nor the new one".into()
        })?;
        for line in synced {
            let times = log.lines.iter().filter(|found| found == line).count();
            check(times == 1, || {
                format!("an acknowledged event is there {times} times (I1)")
            })?;
        }
        return Ok(Found::Damaged);
    }
    check(log.lines.len() <= attempted.len(), || {
        "more events than attempted (I2)".into()
    })?;
    for (found, tried) in log.lines.iter().zip(&attempted) {
        check(found == tried, || {
            "an event differs from what was attempted (I2)".into()
        })?;
    }
    let least = if killed {
        session.written
    } else {
        session.synced
    };
    check(log.lines.len() >= least, || {
        format!(
            "{} events of {least} acknowledged ones (I1)",
            log.lines.len()
        )
    })?;
    check(log.next.seq == log.lines.len() as u64, || {
        "the end is elsewhere".into()
    })?;
    checkpoint(files, session, &log)?;
    session.found(log.lines.len())?;
    Ok(Found::Fine)
}

/// A header is the one that was written, or after a take-over one that names one base more.
fn is_header(session: &mut Session, line: &[u8]) -> Fallible<()> {
    if line == session.header {
        return Ok(());
    }
    if let Some(repair) = &session.repair
        && repair
            .old
            .last()
            .is_some_and(|(_, old)| old.starts_with(line))
    {
        return Ok(());
    }
    let bare = |line: &[u8]| -> Fallible<Header> {
        let text_of = line.strip_suffix(b"\n").unwrap_or(line);
        let (mut header, _) = Header::decode(text_of).map_err(text)?;
        header.base = None;
        Ok(header)
    };
    let same = session.renewed && bare(line)? == bare(&session.header)?;
    check(same, || "the header differs".into())?;
    session.header = line.to_vec();
    Ok(())
}

/// A checkpoint tells what the log tells, or there is none (I6).
fn checkpoint(files: &Files, session: &Session, log: &Log) -> Fallible<()> {
    for limit in [u64::MAX, log.lines.len() as u64 / 2] {
        let found = files.checkpoint(&session.id, limit).map_err(text)?;
        let Some(found) = found else {
            continue;
        };
        let events = usize::try_from(found.next.seq).map_err(text)?;
        let fits =
            found.next.seq <= limit && log.lines.get(..events).map(state_of) == Some(found.state);
        check(fits, || "a checkpoint tells something else (I6)".into())?;
        let rest = read_from(files, &session.id, found.next, 1 << 20)?;
        check(log.lines.get(events..) == Some(&rest.lines[..]), || {
            "a log reads otherwise behind a checkpoint (I6)".into()
        })?;
    }
    Ok(())
}

fn summary(files: &Files, session: &mut Session) -> Fallible<()> {
    let mut found = files.summary(&session.id).map_err(text)?;
    // It says that the file cannot be read, and otherwise nothing was set.
    found.damaged = None;
    let at = match session.summaries.iter().position(|tried| *tried == found) {
        Some(at) => at + 1,
        None if found == UserSummary::default() => 0,
        None => return Err("a summary that nobody put".into()),
    };
    check(at >= session.summaries_kept, || {
        "an acknowledged summary is gone".into()
    })?;
    session.summaries.truncate(at);
    Ok(())
}

/// Recovers, appends, and recovers again. Errors are those of a process that dies, or failures of
/// an invariant; the caller knows which.
pub(crate) fn recover(vfs: &MemVfs, session: &mut Session) -> Fallible<()> {
    let files = files(vfs)?;
    if session.repair.is_some() {
        session.mend(&files).map_err(text)?;
    }
    if let Err(ClaimError::NotFound) = files.claim(&session.id).map(drop) {
        session.create(&files, 2).map(drop)?;
        return again(vfs, &files, session);
    }
    let log = read(&files, &session.id, 1 << 20)?;
    let before = vfs.content(&session.log()).unwrap_or_default();
    let mut writer = files.claim(&session.id).map_err(text)?;
    let torn = log.torn.clone();
    let recovered = writer
        .begin(LogEnd {
            next: log.next,
            torn: log.torn,
        })
        .map_err(text)?
        .recovered;
    check(recovered.is_some() == torn.is_some(), || {
        "torn and recovered differ".into()
    })?;
    if let (Some(torn), Some(recovered)) = (torn, recovered) {
        let (kept, cut) = before.split_at(usize::try_from(torn.offset).unwrap_or(0));
        let aside = vfs.content(recovered.moved_to.as_ref());
        check(aside.as_deref() == Some(cut), || {
            "torn bytes were lost (I10)".into()
        })?;
        let durable = vfs
            .power_cut(Kept::Nothing)
            .content(recovered.moved_to.as_ref());
        check(durable.as_deref() == Some(cut), || {
            "torn bytes are not on stable storage though they were cut (I10)".into()
        })?;
        let inside = recovered.moved_to.contains(layout::QUARANTINE);
        check(inside, || "torn bytes are not in quarantine (I10)".into())?;
        let now = vfs.content(&session.log()).unwrap_or_default();
        check(now == kept, || {
            "the log was not cut where it is torn".into()
        })?;
    }
    session.append(&mut writer, 3, true).map_err(text)?;
    drop(writer);
    again(vfs, &files, session)
}

/// Checks that everything is there, and that a further recovery writes nothing to the log.
fn again(vfs: &MemVfs, files: &Files, session: &mut Session) -> Fallible<()> {
    let mut expected = session.clone();
    let complete = look(vfs, files, &mut expected, true, false)?;
    check(complete == Found::Fine, || {
        "damaged after the recovery".into()
    })?;
    check(expected.tried == session.tried, || {
        "an event is gone after the recovery".into()
    })?;
    let path = session.log();
    let before = vfs.metadata(&path).map_err(text)?;
    session.resume(files).map(drop)?;
    let after = vfs.metadata(&path).map_err(text)?;
    check(before == after, || {
        "a second recovery has touched the log (I5)".into()
    })
}
