//! Opening connections, and bringing the schema up to date.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread::sleep,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, TransactionBehavior};

use crate::{
    SqliteError,
    catalogue::rows_failed,
    error::Fail,
    limits::{BUSY_FOR, BUSY_PAUSE, STATEMENTS, WAL_BYTES},
};

/// Marks a database as ours: "THLD".
const APPLICATION_ID: i64 = 0x5448_4c44;

/// Numbered from 1; what stands here never changes, and new ones are put behind.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_initial.sql"),
    include_str!("migrations/0002_kept_logs.sql"),
];

/// Magic numbers of `statfs(2)` of file systems that machines share.
const NETWORK: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9P"),
    (0x5346_414f, "AFS"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
];

/// The database file and how connections to it are made.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    /// Largest size of the file.
    pub(crate) max_bytes: Option<u64>,
}

impl Target {
    /// Opens a connection that may write.
    pub(crate) fn writing(&self) -> Result<Connection, SqliteError> {
        let conn = self.connect()?;
        self.set_up(&conn)
            .map_err(|error| SqliteError::of(&self.path, error))?;
        Ok(conn)
    }

    fn set_up(&self, conn: &Connection) -> rusqlite::Result<()> {
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.pragma_update(None, "foreign_keys", true)?;
        conn.query_row(
            &format!("PRAGMA journal_size_limit = {WAL_BYTES}"),
            [],
            |_| Ok(()),
        )?;
        if let Some(bytes) = self.max_bytes {
            let page: i64 = conn.query_row("PRAGMA page_size", [], |row| row.get(0))?;
            let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page.max(1);
            conn.query_row(
                &format!("PRAGMA max_page_count = {}", pages.max(1)),
                [],
                |_| Ok(()),
            )?;
        }
        Ok(())
    }

    /// Opens a connection that only reads.
    pub(crate) fn reading(&self) -> Result<Connection, SqliteError> {
        let conn = self.connect()?;
        conn.pragma_update(None, "query_only", true)
            .map_err(|error| SqliteError::of(&self.path, error))?;
        Ok(conn)
    }

    fn connect(&self) -> Result<Connection, SqliteError> {
        // The path is a path, never a URI; and the file is there.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(&self.path, flags);
        let mut conn = opened.map_err(|error| SqliteError::of(&self.path, error))?;
        wait_for_others(&mut conn, BUSY_FOR).map_err(|error| SqliteError::of(&self.path, error))?;
        conn.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(conn)
    }

    /// Refuses a file system on which a write-ahead log does not work.
    pub(crate) fn check_network(&self) -> Result<(), SqliteError> {
        for at in self.path.ancestors() {
            let found = match rustix::fs::statfs(at) {
                Ok(found) => found,
                // It is made later, on the file system of the folder above.
                Err(rustix::io::Errno::NOENT) => continue,
                Err(error) => return Err(SqliteError::io(&self.path, error.into())),
            };
            let magic = u64::try_from(found.f_type).unwrap_or_default() & 0xffff_ffff;
            let known = NETWORK.iter().find(|(known, _)| *known == magic);
            return known.map_or(Ok(()), |(_, kind)| {
                Err(SqliteError::Network {
                    path: self.path.clone(),
                    kind,
                })
            });
        }
        Ok(())
    }

    /// Makes the file unless there is one, and brings its schema up to date.
    pub(crate) fn prepare(&self, create: bool) -> Result<(), SqliteError> {
        self.make_file(create)?;
        let mut conn = self.connect()?;
        let wrong = |error| SqliteError::of(&self.path, error);
        let is_ready = |conn: &Connection| {
            Ok::<_, SqliteError>(
                self.known(conn)? == newest() && catalogue_fits(conn).map_err(wrong)?,
            )
        };
        if is_ready(&conn)? {
            return Ok(());
        }
        patiently(|| begin_file(&conn)).map_err(wrong)?;
        // Looked up again behind the lock: of many who come at once, one does the work.
        let tx = conn
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(wrong)?;
        let mut version = self.known(&tx)?;
        for step in MIGRATIONS
            .iter()
            .skip(usize::try_from(version).unwrap_or(0))
        {
            tx.execute_batch(step).map_err(wrong)?;
            version += 1;
        }
        if !catalogue_fits(&tx).map_err(wrong)? {
            make_catalogue(&tx).map_err(|fail| fail.into_sqlite(&self.path))?;
        }
        tx.pragma_update(None, "application_id", APPLICATION_ID)
            .and_then(|()| tx.pragma_update(None, "user_version", version))
            .map_err(wrong)?;
        tx.commit().map_err(wrong)
    }

    fn make_file(&self, create: bool) -> Result<(), SqliteError> {
        // Closing a file drops all locks that the process has on it, also those of SQLite. So it is
        // closed again before any connection to it can be opened.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = |error| SqliteError::io(&self.path, error);
        if self.path.try_exists().map_err(wrong)? {
            return Ok(());
        }
        if !create {
            return Err(SqliteError::Missing {
                path: self.path.clone(),
            });
        }
        match create_private(&self.path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            made => made.map_err(wrong),
        }
    }

    /// Returns the schema's number, 0 for an empty file.
    fn known(&self, conn: &Connection) -> Result<i64, SqliteError> {
        let seen = patiently(|| seen(conn));
        let (tables, ours, found) = seen.map_err(|error| SqliteError::of(&self.path, error))?;
        let path = self.path.clone();
        match (ours, found) {
            (APPLICATION_ID, found) if found > newest() => Err(SqliteError::Newer {
                path,
                found,
                known: newest(),
            }),
            (APPLICATION_ID, found) if found > 0 => Ok(found),
            (0, 0) if tables == 0 => Ok(0),
            _ => Err(SqliteError::Foreign { path }),
        }
    }
}

/// Returns how many tables and indexes there are, whose they are, and their schema's number, all of
/// one moment.
fn seen(conn: &Connection) -> rusqlite::Result<(i64, i64, i64)> {
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
    let look = || {
        Ok((
            number("SELECT count(*) FROM sqlite_schema")?,
            number("PRAGMA application_id")?,
            number("PRAGMA user_version")?,
        ))
    };
    if !conn.is_autocommit() {
        return look();
    }
    let _tx = conn.unchecked_transaction()?;
    look()
}

fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// Whether the tables that lists are made from are those of this version.
fn catalogue_fits(conn: &Connection) -> rusqlite::Result<bool> {
    for (name, sql) in threadline_catalogue::SCHEMA {
        let found: Option<String> = conn
            .query_row(
                "SELECT sql FROM sqlite_schema WHERE name = ?1",
                [name],
                |row| row.get(0),
            )
            .optional()?;
        if found.as_deref() != Some(sql) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes the tables that lists are made from anew. They are derived, so they need no migration.
fn make_catalogue(conn: &Connection) -> Result<(), Fail> {
    conn.execute_batch("DROP TABLE IF EXISTS catalogue_rows; UPDATE sessions SET listed = 0;")?;
    threadline_catalogue::install(conn).map_err(rows_failed)
}

/// Sets what can only be set while a file is empty or nobody else has it open.
fn begin_file(conn: &Connection) -> rusqlite::Result<()> {
    // Before the journal mode, which writes the first page.
    conn.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    conn.query_row("PRAGMA journal_mode = WAL", [], |row| {
        row.get::<_, String>(0)
    })?;
    Ok(())
}

/// Repeats what SQLite refuses at once, without asking the busy handler.
fn patiently<R>(mut work: impl FnMut() -> rusqlite::Result<R>) -> rusqlite::Result<R> {
    let until = Instant::now() + BUSY_FOR;
    loop {
        match work() {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < until =>
            {
                sleep(BUSY_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

/// Lets a connection wait for locks of others, with even pauses.
pub(crate) fn wait_for_others(conn: &mut Connection, longest: Duration) -> rusqlite::Result<()> {
    let mut until = Instant::now();
    conn.busy_handler(Some(move |tries: i32| {
        let now = Instant::now();
        if tries == 0 {
            until = now + longest;
        }
        sleep(if tries < 10 {
            BUSY_PAUSE / 10
        } else {
            BUSY_PAUSE
        });
        now < until
    }))
}

#[cfg(unix)]
fn create_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    if let Some(parent) = path.parent() {
        let mut dirs = std::fs::DirBuilder::new();
        dirs.recursive(true).mode(0o700).create(parent)?;
    }
    let mut options = std::fs::OpenOptions::new();
    // SQLite gives its other files the same mode.
    let made = options
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    made.sync_all()?;
    sync_parent(path)
}

#[cfg(unix)]
fn sync_parent(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(parent) => std::fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(not(unix))]
fn create_private(path: &Path) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::OpenOptions::new()
        .append(true)
        .create_new(true)
        .open(path)
        .map(drop)
}
