//! Who holds a session for writing, and whether they still live.
//!
//! A lease names a writer: the process by pid and start, and the writer inside it by a number. The
//! process itself tells whether it lives wherever it can be looked at; elsewhere (a container with
//! pids of its own) its last sign of life does. In every case the epoch of the session is what
//! keeps an old writer from storing anything.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use rusqlite::{Connection, OptionalExtension as _, params};
use threadline_store::Holder;

use crate::limits::LEASE;

/// Numbers of the writers of this process that exist.
static LIVE: Mutex<Option<HashSet<i64>>> = Mutex::new(None);

fn live<R>(work: impl FnOnce(&mut HashSet<i64>) -> R) -> R {
    let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    work(live.get_or_insert_with(HashSet::new))
}

/// A writer's place among the living. Dropping it frees what it holds, for this process at once.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) number: i64,
    held: Arc<AtomicUsize>,
}

impl Lease {
    /// Makes one, counted in `held`.
    pub(crate) fn new(held: &Arc<AtomicUsize>) -> Self {
        static NEXT: AtomicI64 = AtomicI64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        live(|live| live.insert(number));
        held.fetch_add(1, Ordering::Relaxed);
        Self {
            number,
            held: Arc::clone(held),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        live(|live| live.remove(&self.number));
        self.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A process, told from every other one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// Start of the process in ticks since the machine began; 0 where that cannot be known.
    pub(crate) started: i64,
    pub(crate) host: String,
    pub(crate) boot: String,
    pub(crate) space: String,
}

impl Process {
    /// Returns this process.
    pub(crate) fn this() -> &'static Self {
        static THIS: OnceLock<Process> = OnceLock::new();
        THIS.get_or_init(|| {
            let pid = std::process::id();
            let line = |path: &str| {
                let text = std::fs::read_to_string(path).unwrap_or_default();
                text.trim().to_owned()
            };
            let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
            Self {
                pid,
                started: start_of(pid).unwrap_or_default(),
                host: rustix::system::uname()
                    .nodename()
                    .to_string_lossy()
                    .into_owned(),
                boot: line("/proc/sys/kernel/random/boot_id"),
                space: space.to_string_lossy().into_owned(),
            }
        })
    }
}

/// Returns when a process began, if it is there and not dead.
fn start_of(pid: u32) -> Option<i64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything, brackets too.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    // Field 22 of the line; the state is the third.
    fields.nth(18)?.parse().ok()
}

fn answers(pid: u32) -> bool {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| {
        // Not being allowed to is an answer too.
        rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
    })
}

/// A lease as it stands in the database.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    process: Process,
    beat: u64,
    lease: i64,
    since: u64,
}

impl Held {
    /// Columns of `holders` (as `h`), the lease and its begin, in the order that [`Self::read`]
    /// takes them.
    pub(crate) const COLUMNS: &str = "h.pid, h.started, h.host, h.boot, h.space, h.beat";

    /// Reads a lease whose holder's columns begin at `at`; `None` when there is no holder.
    pub(crate) fn read(
        row: &rusqlite::Row<'_>,
        at: usize,
        lease: i64,
        since: u64,
    ) -> rusqlite::Result<Option<Self>> {
        let Some(pid) = row.get::<_, Option<i64>>(at)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            process: Process {
                pid: u32::try_from(pid).unwrap_or(0),
                started: row.get(at + 1)?,
                host: row.get(at + 2)?,
                boot: row.get(at + 3)?,
                space: row.get(at + 4)?,
            },
            beat: crate::number::unsigned(row.get(at + 5)?),
            lease,
            since,
        }))
    }

    /// Whether the writer still exists.
    pub(crate) fn is_alive(&self) -> bool {
        let this = Process::this();
        if self.process == *this {
            return live(|live| live.contains(&self.lease));
        }
        is_alive(&self.process, self.beat)
    }

    /// Returns what people are told.
    pub(crate) fn holder(&self) -> Holder {
        Holder {
            pid: self.process.pid,
            host: self.process.host.clone(),
            since: self.since,
        }
    }
}

fn is_alive(process: &Process, beat: u64) -> bool {
    let this = Process::this();
    let beats = || now_ms().saturating_sub(beat) < u64::try_from(LEASE.as_millis()).unwrap_or(0);
    if process.boot != this.boot {
        // The same machine was started anew, or it is another one.
        return process.host != this.host && beats();
    }
    if process.space != this.space {
        return beats();
    }
    if this.started == 0 || process.started == 0 {
        // Without /proc a boot is not known either.
        return if process.host == this.host {
            answers(process.pid)
        } else {
            beats()
        };
    }
    start_of(process.pid) == Some(process.started)
}

/// Returns the row of this process's backend, which it makes unless `known` is still there.
/// Rows of the dead are removed on the way.
pub(crate) fn register(conn: &Connection, known: Option<i64>) -> rusqlite::Result<i64> {
    if let Some(num) = known
        && beat(conn, num)?
    {
        return Ok(num);
    }
    let mut dead = Vec::new();
    {
        let sql = format!("SELECT {}, h.num FROM holders h", Held::COLUMNS);
        let mut rows = conn.prepare(&sql)?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let held = Held::read(row, 0, 0, 0)?;
            if held.is_some_and(|h| h.process != *Process::this() && !is_alive(&h.process, h.beat))
            {
                dead.push(row.get::<_, i64>(6)?);
            }
        }
    }
    for num in dead {
        // A turn that was open is now interrupted, so the row of the catalogue is stale.
        conn.execute("UPDATE sessions SET listed = 0 WHERE holder = ?1", [num])?;
        conn.execute("DELETE FROM holders WHERE num = ?1", [num])?;
    }
    let this = Process::this();
    conn.query_row(
        "INSERT INTO holders (pid, started, host, boot, space, beat)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) RETURNING num",
        params![
            this.pid,
            this.started,
            this.host,
            this.boot,
            this.space,
            crate::number::signed(now_ms())
        ],
        |row| row.get(0),
    )
}

/// Shows that a holder is alive. Returns whether it is still known.
pub(crate) fn beat(conn: &Connection, num: i64) -> rusqlite::Result<bool> {
    let mut beat = conn.prepare_cached("UPDATE holders SET beat = ?2 WHERE num = ?1")?;
    Ok(beat.execute(params![num, crate::number::signed(now_ms())])? == 1)
}

/// Removes a backend's row, when it ends.
pub(crate) fn unregister(conn: &Connection, num: i64) -> rusqlite::Result<()> {
    conn.execute("UPDATE sessions SET listed = 0 WHERE holder = ?1", [num])?;
    conn.execute("DELETE FROM holders WHERE num = ?1", [num])?;
    Ok(())
}

/// Returns the lease that a session is under, whether it is alive or not.
pub(crate) fn of_session(conn: &Connection, session: i64) -> rusqlite::Result<Option<Held>> {
    let sql = format!(
        "SELECT s.lease, s.since, {} FROM sessions s LEFT JOIN holders h ON h.num = s.holder
         WHERE s.num = ?1",
        Held::COLUMNS
    );
    let mut query = conn.prepare_cached(&sql)?;
    let held = query
        .query_row([session], |row| {
            let (lease, since) = (row.get(0)?, crate::number::unsigned(row.get(1)?));
            Held::read(row, 2, lease, since)
        })
        .optional()?;
    Ok(held.flatten())
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
