//! The file: opening it, finding it garbled, beginning anew.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _};
use threadline_catalogue::{self as rows, RowsError};

use super::folders::place_of;
use crate::{
    files::{Files, failed},
    layout::CATALOGUE,
    vfs::{At as _, FileError, Mode, Vfs},
};

/// Changes with every change of what rows are made of, not only of the tables: rows of another
/// version are not read.
const VERSION: i64 = 3;
/// What is wrong with one of another version; every upgrade may meet it.
const OTHER_VERSION: &str = "it is of another version";
/// "thrd", so that `file` can tell what it is.
const APPLICATION: i64 = 0x7468_7264;

const FOLDERS: (&str, &str) = (
    "catalogue_folders",
    "CREATE TABLE catalogue_folders(place TEXT PRIMARY KEY NOT NULL, mtime INTEGER NOT NULL) \
     WITHOUT ROWID",
);

/// How long a list waits for another process that writes the catalogue.
const BUSY: Duration = Duration::from_millis(250);
/// How long it is done without a file that could not be had.
const RETRY: Duration = Duration::from_secs(10);
/// Up to this size a file is checked in full when it is opened, which takes milliseconds.
const CHECK_BYTES: u64 = 1 << 19;
/// Larger ones are checked behind, by programs that live so long.
const CHECK_AFTER: Duration = Duration::from_secs(5);

/// The catalogue's file, as far as it can be had.
#[derive(Debug)]
pub(super) struct Database {
    vfs: Arc<dyn Vfs>,
    root: PathBuf,
    path: PathBuf,
    open: Option<Open>,
    generation: u64,
    /// When it is tried next to have the file, after it could not be had.
    retry: Option<Instant>,
    told: bool,
}

#[derive(Debug)]
struct Open {
    connection: Connection,
    inode: u64,
    /// Set by the check that runs behind.
    garbled: Arc<AtomicBool>,
}

#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error(transparent)]
    Rows(#[from] RowsError),
    #[error(transparent)]
    Files(#[from] FileError),
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Rows(error.into())
    }
}

fn garbled(what: impl Into<String>) -> RowsError {
    RowsError::Garbled { what: what.into() }
}

fn is_busy(error: &RowsError) -> bool {
    match error {
        RowsError::Sqlite(error) => matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
        ),
        RowsError::Garbled { .. } | RowsError::Json(_) => false,
    }
}

impl Database {
    pub(super) fn new(files: &Files) -> Self {
        Self {
            vfs: Arc::clone(&files.vfs),
            root: files.root.clone(),
            path: files.root.join(CATALOGUE),
            open: None,
            generation: 0,
            retry: None,
            told: false,
        }
    }

    /// Changes whenever another file is used.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Does something with the database; `None` when it cannot be done now. A garbled one is
    /// thrown away, and the work done once more on a new one.
    pub(super) fn with<R>(
        &mut self,
        mut work: impl FnMut(&mut Connection) -> Result<R, RowsError>,
    ) -> Option<R> {
        for _ in 0..2 {
            let open = self.opened()?;
            match work(&mut open.connection) {
                Ok(done) => return Some(done),
                Err(error) if error.is_garbled() => self.throw_away(&error),
                Err(error) => {
                    self.tell(&error, is_busy(&error));
                    return None;
                }
            }
        }
        None
    }

    fn opened(&mut self) -> Option<&mut Open> {
        let there = self.vfs.metadata(&self.path).ok().flatten();
        let inode = there.map(|meta| meta.inode);
        if let Some(open) = self.open.take() {
            if open.garbled.load(Ordering::Relaxed) {
                drop(open);
                self.throw_away(&garbled("the check found it"));
            } else if inode == Some(open.inode) {
                return Some(self.open.insert(open));
            }
            // Somebody has deleted or replaced it.
        }
        if self.retry.is_some_and(|retry| Instant::now() < retry) {
            return None;
        }
        for _ in 0..2 {
            match self.begin() {
                Ok(None) => return None,
                Ok(Some(open)) => {
                    self.generation += 1;
                    self.retry = None;
                    self.told = false;
                    return Some(self.open.insert(open));
                }
                Err(OpenError::Rows(error)) if error.is_garbled() => self.throw_away(&error),
                Err(error) => {
                    let busy = matches!(&error, OpenError::Rows(error) if is_busy(error));
                    if !busy {
                        self.retry = Some(Instant::now() + RETRY);
                    }
                    self.tell(&error, busy);
                    return None;
                }
            }
        }
        self.retry = Some(Instant::now() + RETRY);
        None
    }

    /// Opens the file, or makes it when there is a folder for it.
    fn begin(&self) -> Result<Option<Open>, OpenError> {
        let path = &self.path;
        let mut there = self.vfs.metadata(path).at("looking at", path)?;
        if there.is_none() {
            let root = self.vfs.metadata(&self.root).at("looking at", &self.root)?;
            if root.is_none() {
                return Ok(None);
            }
            // SQLite would make it readable by everyone. Another process may be as fast.
            match self.vfs.open(path, Mode::CreateNew) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(error).at("creating", path)?;
                }
                Ok(_) | Err(_) => {}
            }
            there = self.vfs.metadata(path).at("looking at", path)?;
        }
        let Some(meta) = there else { return Ok(None) };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.set_prepared_statement_cache_capacity(64);
        install(&mut connection)?;
        let found = Arc::new(AtomicBool::new(false));
        if meta.len <= CHECK_BYTES {
            check(&connection)?;
        } else {
            check_behind(path.clone(), Arc::downgrade(&found));
        }
        Ok(Some(Open {
            connection,
            inode: meta.inode,
            garbled: found,
        }))
    }

    /// Removes a garbled file. Everybody who has it open sees that it is gone.
    fn throw_away(&mut self, error: &RowsError) {
        let path = self.path.display();
        if matches!(error, RowsError::Garbled { what } if what == OTHER_VERSION) {
            tracing::info!(%path, "the catalogue is made anew for this version of threadline");
        } else {
            tracing::warn!(%path, %error, "the catalogue is made anew");
        }
        self.open = None;
        // The file itself last: a write-ahead log must not meet a new one.
        for suffix in ["-wal", "-shm", ""] {
            let mut path = self.path.clone().into_os_string();
            path.push(suffix);
            let path = PathBuf::from(path);
            match self.vfs.remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    let error = failed(FileError {
                        deed: "removing",
                        path,
                        source: error,
                    });
                    tracing::warn!(%error, "the catalogue cannot be made anew");
                    self.retry = Some(Instant::now() + RETRY);
                }
                Ok(()) | Err(_) => {}
            }
        }
    }

    fn tell(&mut self, error: &dyn std::error::Error, busy: bool) {
        let path = self.path.display();
        if busy || self.told {
            tracing::debug!(%path, %error, "the catalogue is done without");
        } else {
            tracing::warn!(%path, %error, "the catalogue is done without, so lists may be slow");
            self.told = true;
        }
    }
}

fn install(connection: &mut Connection) -> Result<(), RowsError> {
    let number = |connection: &Connection, name: &str| -> rusqlite::Result<i64> {
        connection.pragma_query_value(None, name, |row| row.get(0))
    };
    let is_ours = |connection: &Connection| -> Result<bool, RowsError> {
        let version = number(connection, "user_version")?;
        let application = number(connection, "application_id")?;
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        match (version, application, tables) {
            (VERSION, APPLICATION, 1..) => Ok(true),
            (0, 0, 0) => Ok(false),
            _ => Err(garbled(OTHER_VERSION)),
        }
    };
    if is_ours(connection)? {
        return Ok(());
    }
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Another process may have been first.
    if !is_ours(&transaction)? {
        rows::install(&transaction)?;
        transaction.execute(FOLDERS.1, [])?;
        transaction.pragma_update(None, "user_version", VERSION)?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
    }
    Ok(transaction.commit()?)
}

fn check(connection: &Connection) -> Result<(), RowsError> {
    let sql: Option<String> = connection
        .query_row(
            "SELECT sql FROM sqlite_schema WHERE name = ?",
            [FOLDERS.0],
            |row| row.get(0),
        )
        .optional()?;
    if sql.as_deref() != Some(FOLDERS.1) {
        return Err(garbled(format!("{} has another shape", FOLDERS.0)));
    }
    rows::check(connection, place_of)
}

/// Checks a large file with a connection of its own, for as long as somebody has it open.
fn check_behind(path: PathBuf, found: Weak<AtomicBool>) {
    let run = move || {
        std::thread::sleep(CHECK_AFTER);
        let Some(found) = found.upgrade() else { return };
        match check_file(&path) {
            Err(error) if error.is_garbled() => found.store(true, Ordering::Relaxed),
            Ok(()) | Err(_) => {}
        }
    };
    let thread = std::thread::Builder::new().name("catalogue-check".into());
    if let Err(error) = thread.spawn(run) {
        tracing::debug!(%error, "the catalogue is not checked");
    }
}

fn check_file(path: &Path) -> Result<(), RowsError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    check(&connection)
}

/// Returns the places of all rows, with the time of the folder's last change if it was looked at
/// in full since.
pub(super) fn saved_folders(connection: &Connection) -> Result<Vec<(String, u64)>, RowsError> {
    // One step for each place, not for each row.
    let mut statement = connection.prepare_cached(
        "WITH RECURSIVE places(place) AS (
            SELECT min(place) FROM catalogue_rows
            UNION ALL
            SELECT (SELECT min(place) FROM catalogue_rows WHERE place > places.place)
            FROM places WHERE places.place IS NOT NULL)
         SELECT place, 0 FROM places WHERE place IS NOT NULL
         UNION ALL SELECT place, mtime FROM catalogue_folders",
    )?;
    let folders = statement.query_map([], |row| {
        let mtime: i64 = row.get(1)?;
        Ok((row.get(0)?, mtime.cast_unsigned()))
    })?;
    Ok(folders.collect::<rusqlite::Result<_>>()?)
}

/// Remembers folders that were looked at in full.
pub(super) fn save_folders(
    connection: &Connection,
    folders: &[(String, u64)],
) -> Result<(), RowsError> {
    for (place, mtime) in folders {
        connection
            .prepare_cached("REPLACE INTO catalogue_folders(place, mtime) VALUES (?, ?)")?
            .execute((place, mtime.cast_signed()))?;
    }
    Ok(())
}
