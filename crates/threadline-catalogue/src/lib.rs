//! Rows of a catalogue in SQLite tables, for whoever has a connection.
//!
//! The summary is one JSON text; what lists sort and filter by stands beside it in columns. A
//! checksum covers the text and the stamps, because a row is shown without reading its session:
//! [`page`] and [`get`] refuse a row whose bytes have changed on the disk, and [`check`] finds
//! columns and indexes that have.

use std::{collections::HashMap, fmt::Write as _};

use rusqlite::{Connection, OptionalExtension as _, Row, params_from_iter, types::Value};
use threadline_session::{SessionId, codec::crc32c};
use threadline_store::{
    Archived, CatalogueRow, ListFilter, ListKey, SessionStatus, SessionSummary, Stamp, search_text,
};

/// Says why rows cannot be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// SQLite says no.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// A row is not what was stored.
    #[error("the catalogue is garbled: {what}")]
    Garbled {
        /// What is wrong.
        what: String,
    },
    /// A summary does not serialize.
    #[error("a row cannot be stored: {0}")]
    Json(#[from] serde_json::Error),
}

impl RowsError {
    /// Returns whether the table should be thrown away: what it holds is wrong, not in use or out
    /// of reach.
    #[must_use]
    pub fn is_garbled(&self) -> bool {
        use rusqlite::ErrorCode::{
            CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, FileLockingProtocolFailed,
            OperationInterrupted, OutOfMemory, PermissionDenied, ReadOnly, SystemIoFailure,
        };
        match self {
            Self::Garbled { .. } => true,
            Self::Json(_) => false,
            Self::Sqlite(error) => !matches!(
                error.sqlite_error_code(),
                Some(
                    CannotOpen
                        | DatabaseBusy
                        | DatabaseLocked
                        | DiskFull
                        | FileLockingProtocolFailed
                        | OperationInterrupted
                        | OutOfMemory
                        | PermissionDenied
                        | ReadOnly
                        | SystemIoFailure
                )
            ),
        }
    }
}

type Result<T, E = RowsError> = std::result::Result<T, E>;

/// The tables, as they stand in the schema of a database.
pub const SCHEMA: [(&str, &str); 7] = [
    (
        "catalogue_rows",
        "CREATE TABLE catalogue_rows(id TEXT PRIMARY KEY NOT NULL, place TEXT NOT NULL, \
         updated_at INTEGER NOT NULL, archived INTEGER NOT NULL, pinned INTEGER NOT NULL, \
         status TEXT NOT NULL, parent TEXT, written INTEGER NOT NULL, log_a INTEGER NOT NULL, \
         log_b INTEGER NOT NULL, people_a INTEGER NOT NULL, people_b INTEGER NOT NULL, \
         crc INTEGER NOT NULL, cwd TEXT NOT NULL, searched TEXT NOT NULL, summary TEXT NOT NULL)",
    ),
    (
        "catalogue_by_cwd",
        "CREATE INDEX catalogue_by_cwd ON catalogue_rows(cwd, updated_at, id)",
    ),
    (
        "catalogue_by_parent",
        "CREATE INDEX catalogue_by_parent ON catalogue_rows(parent, updated_at, id) \
         WHERE parent IS NOT NULL",
    ),
    (
        "catalogue_by_place",
        "CREATE INDEX catalogue_by_place ON catalogue_rows(place)",
    ),
    (
        "catalogue_by_status",
        "CREATE INDEX catalogue_by_status ON catalogue_rows(status, updated_at, id)",
    ),
    (
        "catalogue_by_time",
        "CREATE INDEX catalogue_by_time ON catalogue_rows(updated_at, id, archived, pinned)",
    ),
    (
        "catalogue_written",
        "CREATE INDEX catalogue_written ON catalogue_rows(updated_at, id) WHERE written",
    ),
];

const COLUMNS: &str = "id, place, updated_at, archived, pinned, status, parent, written, \
                       log_a, log_b, people_a, people_b, crc, cwd, searched, summary";
/// What [`parse`] reads.
const KEPT: &str = "id, written, log_a, log_b, people_a, people_b, crc, summary";

/// Makes the tables if they are missing.
///
/// # Errors
/// [`RowsError`].
pub fn install(connection: &Connection) -> Result<()> {
    for (_, sql) in SCHEMA {
        let sql = sql
            .replacen("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1)
            .replacen("CREATE INDEX ", "CREATE INDEX IF NOT EXISTS ", 1);
        connection.execute(&sql, [])?;
    }
    Ok(())
}

/// Stores rows in one transaction, replacing those of the same sessions.
///
/// # Errors
/// [`RowsError`].
pub fn put(connection: &mut Connection, rows: &[CatalogueRow]) -> Result<()> {
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    for row in rows {
        put_at(&transaction, row, "")?;
    }
    Ok(transaction.commit()?)
}

/// Stores a row within the caller's transaction. The place is the caller's own, for
/// [`known_at`].
///
/// # Errors
/// [`RowsError`].
pub fn put_at(connection: &Connection, row: &CatalogueRow, place: &str) -> Result<()> {
    let sql =
        format!("REPLACE INTO catalogue_rows({COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
    let mut statement = connection.prepare_cached(&sql)?;
    statement.execute(params_from_iter(columns(row, place)?))?;
    Ok(())
}

fn columns(row: &CatalogueRow, place: &str) -> Result<Vec<Value>> {
    let summary = &row.summary;
    let json = serde_json::to_string(summary)?;
    let numbers = numbers(row);
    let crc = checksum(&json, &numbers);
    let [log_a, log_b, people_a, people_b] = numbers.map(Value::from);
    Ok(vec![
        text(summary.id.as_str()),
        text(place),
        Value::from(sortable(summary.updated_at)),
        Value::from(summary.archived),
        Value::from(summary.pinned),
        text(status_name(summary.status)),
        summary
            .parent
            .as_ref()
            .map_or(Value::Null, |parent| text(parent.id.as_str())),
        Value::from(row.written),
        log_a,
        log_b,
        people_a,
        people_b,
        Value::from(crc),
        text(&summary.cwd),
        text(&search_text(summary)),
        Value::from(json),
    ])
}

fn text(text: &str) -> Value {
    Value::from(text.to_owned())
}

/// SQLite has no unsigned numbers; the stamps are only compared for being equal.
fn numbers(row: &CatalogueRow) -> [i64; 4] {
    [row.stamp.0, row.stamp.1, row.people.0, row.people.1].map(u64::cast_signed)
}

/// Keeps the order of all unsigned numbers.
fn sortable(number: u64) -> i64 {
    (number ^ (1 << 63)).cast_signed()
}

fn unsortable(number: i64) -> u64 {
    number.cast_unsigned() ^ (1 << 63)
}

fn checksum(json: &str, numbers: &[i64; 4]) -> u32 {
    let mut bytes = json.as_bytes().to_vec();
    for number in numbers {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    crc32c(&bytes)
}

fn status_name(status: SessionStatus) -> &'static str {
    match status {
        SessionStatus::Idle => "idle",
        SessionStatus::Running => "running",
        SessionStatus::Waiting => "waiting",
        SessionStatus::Interrupted => "interrupted",
        SessionStatus::Damaged => "damaged",
        SessionStatus::Unsupported => "unsupported",
        SessionStatus::Missing => "missing",
    }
}

/// Reads a row of the columns [`KEPT`].
fn parse(row: &Row<'_>) -> Result<CatalogueRow> {
    let id: String = row.get(0)?;
    let written: bool = row.get(1)?;
    let numbers: [i64; 4] = [row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?];
    let crc: i64 = row.get(6)?;
    let json = row
        .get_ref(7)?
        .as_str()
        .map_err(|error| garbled(&id, &error.to_string()))?;
    if i64::from(checksum(json, &numbers)) != crc {
        return Err(garbled(&id, "its checksum does not match"));
    }
    let summary: SessionSummary =
        serde_json::from_str(json).map_err(|error| garbled(&id, &error.to_string()))?;
    if summary.id.as_str() != id {
        return Err(garbled(&id, "it is about another session"));
    }
    let [log_a, log_b, people_a, people_b] = numbers.map(i64::cast_unsigned);
    Ok(CatalogueRow {
        summary,
        stamp: Stamp(log_a, log_b),
        people: Stamp(people_a, people_b),
        written,
    })
}

fn garbled(id: &str, what: &str) -> RowsError {
    RowsError::Garbled {
        what: format!("the row of {}: {what}", id.escape_debug()),
    }
}

/// Removes a session's row. Returns whether there was one.
///
/// # Errors
/// [`RowsError`].
pub fn forget(connection: &Connection, id: &SessionId) -> Result<bool> {
    let mut statement = connection.prepare_cached("DELETE FROM catalogue_rows WHERE id = ?")?;
    Ok(statement.execute([id.as_str()])? > 0)
}

/// Notes in a session's row that somebody writes it. Without a row there is nothing to note.
///
/// # Errors
/// [`RowsError`].
pub fn mark(connection: &Connection, id: &SessionId) -> Result<()> {
    let mut statement = connection
        .prepare_cached("UPDATE catalogue_rows SET written = 1 WHERE id = ? AND NOT written")?;
    statement.execute([id.as_str()])?;
    Ok(())
}

/// Returns whether a session's row says that somebody writes it.
///
/// # Errors
/// [`RowsError`].
pub fn is_marked(connection: &Connection, id: &SessionId) -> Result<bool> {
    let mut statement =
        connection.prepare_cached("SELECT 1 FROM catalogue_rows WHERE id = ? AND written")?;
    Ok(statement.exists([id.as_str()])?)
}

/// Returns the sessions whose rows say that somebody writes them, and their times.
///
/// # Errors
/// [`RowsError`].
pub fn marked(connection: &Connection) -> Result<Vec<ListKey>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, updated_at FROM catalogue_rows WHERE written ORDER BY updated_at DESC, id DESC",
    )?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((unsortable(row.get(1)?), parse_id(row.get(0)?)?));
    }
    Ok(found)
}

fn parse_id(id: String) -> Result<SessionId> {
    SessionId::parse(id.clone()).map_err(|error| garbled(&id, &error.to_string()))
}

/// Returns a session's row.
///
/// # Errors
/// [`RowsError`].
pub fn get(connection: &Connection, id: &SessionId) -> Result<Option<CatalogueRow>> {
    let sql = format!("SELECT {KEPT} FROM catalogue_rows WHERE id = ?");
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement
        .query_row([id.as_str()], |row| Ok(parse(row)))
        .optional()?;
    found.transpose()
}

/// Returns up to `limit` rows that a filter admits after a key, in the order of lists.
///
/// # Errors
/// [`RowsError`].
pub fn page(
    connection: &Connection,
    filter: &ListFilter,
    after: Option<&ListKey>,
    limit: usize,
) -> Result<Vec<CatalogueRow>> {
    let Conditions { sql, mut values } = Conditions::shown(filter, after);
    let sql = format!(
        "SELECT {KEPT} FROM catalogue_rows r WHERE {sql} ORDER BY updated_at DESC, id DESC LIMIT ?"
    );
    values.push(Value::from(i64::try_from(limit).unwrap_or(i64::MAX)));
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(parse(row)?);
    }
    Ok(found)
}

/// Returns how many rows a filter admits.
///
/// # Errors
/// [`RowsError`].
pub fn count(connection: &Connection, filter: &ListFilter) -> Result<u64> {
    let mut admitted = Conditions::new();
    admitted.admit(filter, "r");
    let all = counted(connection, &admitted)?;
    if !filter.roots {
        return Ok(all);
    }
    // Rows with a parent are few, and have an index; the others need not be looked at.
    admitted.sql.push_str(" AND r.parent IS NOT NULL AND ");
    admitted.parent(filter);
    Ok(all.saturating_sub(counted(connection, &admitted)?))
}

fn counted(connection: &Connection, wanted: &Conditions) -> Result<u64> {
    let sql = format!("SELECT count(*) FROM catalogue_rows r WHERE {}", wanted.sql);
    let mut statement = connection.prepare_cached(&sql)?;
    let rows: i64 = statement.query_row(params_from_iter(&wanted.values), |row| row.get(0))?;
    Ok(rows.cast_unsigned())
}

/// Returns the key of the row at a place among those that a filter admits, from 0.
///
/// # Errors
/// [`RowsError`].
pub fn key_at(connection: &Connection, filter: &ListFilter, at: u64) -> Result<Option<ListKey>> {
    let Conditions { sql, mut values } = Conditions::shown(filter, None);
    let sql = format!(
        "SELECT id, updated_at FROM catalogue_rows r WHERE {sql} \
         ORDER BY updated_at DESC, id DESC LIMIT 1 OFFSET ?"
    );
    values.push(Value::from(i64::try_from(at).unwrap_or(i64::MAX)));
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    Ok(Some((unsortable(row.get(1)?), parse_id(row.get(0)?)?)))
}

/// What a row must fulfil, as SQL with its values.
struct Conditions {
    sql: String,
    values: Vec<Value>,
}

impl Conditions {
    fn new() -> Self {
        Self {
            sql: String::from("1"),
            values: Vec::new(),
        }
    }

    /// That a filter shows the row `r` behind a key.
    fn shown(filter: &ListFilter, after: Option<&ListKey>) -> Self {
        let mut wanted = Self::new();
        if let Some((time, id)) = after {
            wanted.sql.push_str(" AND (r.updated_at, r.id) < (?, ?)");
            wanted.values.push(Value::from(sortable(*time)));
            wanted.values.push(text(id.as_str()));
        }
        wanted.admit(filter, "r");
        if filter.roots {
            wanted.sql.push_str(" AND NOT ");
            wanted.parent(filter);
        }
        wanted
    }

    /// That a filter admits the parent of the row `r`.
    fn parent(&mut self, filter: &ListFilter) {
        self.sql
            .push_str("EXISTS (SELECT 1 FROM catalogue_rows p WHERE p.id = r.parent");
        self.admit(filter, "p");
        self.sql.push(')');
    }

    /// That a filter admits a row.
    fn admit(&mut self, filter: &ListFilter, row: &str) {
        let Self { sql, values } = self;
        if let Some(pinned) = filter.pinned {
            let _ = write!(sql, " AND {row}.pinned = {}", u8::from(pinned));
        }
        match filter.archived {
            Archived::All => {}
            Archived::No => {
                let _ = write!(sql, " AND {row}.archived = 0");
            }
            Archived::Only => {
                let _ = write!(sql, " AND {row}.archived = 1");
            }
        }
        if let Some(cwd) = &filter.cwd {
            let _ = write!(sql, " AND {row}.cwd = ?");
            values.push(text(cwd));
        }
        if let Some(parent) = &filter.parent {
            let _ = write!(sql, " AND {row}.parent = ?");
            values.push(text(parent.as_str()));
        }
        let statuses = filter.stored_statuses();
        if let Some((_, more)) = statuses.split_first() {
            let _ = write!(sql, " AND {row}.status IN (?{})", ",?".repeat(more.len()));
            values.extend(statuses.iter().map(|status| text(status_name(*status))));
        }
        if let Some(model) = &filter.model {
            let _ = write!(
                sql,
                " AND json_extract({row}.summary, '$.model.provider') = ? \
                 AND json_extract({row}.summary, '$.model.name') = ?"
            );
            values.extend([text(&model.provider), text(&model.name)]);
        }
        for word in filter.words() {
            let _ = write!(
                sql,
                " AND (instr({row}.searched, ?) > 0 OR instr(lower({row}.id), ?) = 1)"
            );
            values.extend([text(&word), Value::from(word)]);
        }
    }
}

/// Returns how many rows there are.
///
/// # Errors
/// [`RowsError`].
pub fn len(connection: &Connection) -> Result<u64> {
    let mut statement = connection.prepare_cached("SELECT count(*) FROM catalogue_rows")?;
    let rows: i64 = statement.query_row([], |row| row.get(0))?;
    Ok(rows.cast_unsigned())
}

/// What is known of a session without reading its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The log as it was.
    pub stamp: Stamp,
    /// What people had set as it was.
    pub people: Stamp,
    /// Whether its files were gone.
    pub missing: bool,
}

/// Returns what is known of the sessions at a place.
///
/// # Errors
/// [`RowsError`].
pub fn known_at(connection: &Connection, place: &str) -> Result<HashMap<SessionId, Known>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, log_a, log_b, people_a, people_b, status = 'missing' \
         FROM catalogue_rows WHERE place = ?",
    )?;
    let mut rows = statement.query([place])?;
    let mut known = HashMap::new();
    while let Some(row) = rows.next()? {
        let id = parse_id(row.get(0)?)?;
        let number = |at| row.get::<_, i64>(at).map(i64::cast_unsigned);
        let found = Known {
            stamp: Stamp(number(1)?, number(2)?),
            people: Stamp(number(3)?, number(4)?),
            missing: row.get(5)?,
        };
        known.insert(id, found);
    }
    Ok(known)
}

/// Checks all rows, columns and indexes, with the place that each row should have. It reads
/// everything.
///
/// # Errors
/// [`RowsError`]; what is wrong is [`RowsError::Garbled`].
pub fn check(connection: &Connection, place: impl Fn(&SessionId) -> String) -> Result<()> {
    for (name, sql) in SCHEMA {
        let found: Option<String> = connection
            .query_row(
                "SELECT sql FROM sqlite_schema WHERE name = ?",
                [name],
                |row| row.get(0),
            )
            .optional()?;
        if found.as_deref() != Some(sql) {
            return Err(RowsError::Garbled {
                what: format!("{name} has another shape"),
            });
        }
    }
    let mut told = String::new();
    connection.pragma_query(None, "integrity_check", |row| {
        told = row.get(0)?;
        Ok(())
    })?;
    if told != "ok" {
        return Err(RowsError::Garbled { what: told });
    }
    let sql = format!("SELECT {KEPT}, {COLUMNS} FROM catalogue_rows");
    let mut statement = connection.prepare(&sql)?;
    let kept = KEPT.split(',').count();
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let parsed = parse(row)?;
        let wanted = columns(&parsed, &place(&parsed.summary.id))?;
        for (at, wanted) in wanted.iter().enumerate() {
            if row.get_ref(kept + at)? != wanted.into() {
                return Err(garbled(parsed.summary.id.as_str(), "a column differs"));
            }
        }
    }
    Ok(())
}
