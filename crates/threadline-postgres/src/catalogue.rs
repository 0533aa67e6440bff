//! The catalogue: what lists show, one row for each session.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use threadline_session::{SessionId, payload::Usage};
use threadline_store::{
    Archived, BackendError, Catalogue, CatalogueRow, Durability, ListFilter, ListKey,
    SessionStatus, SessionSummary, Stamp, search_text,
};
use tokio_postgres::{Row, types::ToSql};

use crate::{
    backend::Inner,
    db::{Db, count, int},
    error::{Trouble, retrying},
};

const SUSPECTS: &str = "\
    SELECT h.id FROM sessions h LEFT JOIN catalogue c ON c.id = h.id WHERE h.suspect \
    ORDER BY c.updated_at DESC NULLS FIRST, h.id DESC";

/// Looks at all: the table may have been emptied or restored while nobody watched.
const ALL_SUSPECTS: &str = "\
    SELECT coalesce(h.id, c.id) FROM sessions h FULL JOIN catalogue c ON c.id = h.id \
    WHERE (h.id IS NULL AND c.status <> 'missing') OR c.id IS NULL OR h.suspect \
        OR (h.id IS NOT NULL AND (c.bytes, c.segment, c.people) \
            IS DISTINCT FROM (h.next_at, h.segment, h.people)) \
    ORDER BY c.updated_at DESC NULLS FIRST, 1 DESC";

/// Many rows in one statement.
///
/// The lock keeps whoever deletes a session from looking for its row before that is there. It
/// comes before the update, because a row that the same statement has changed is not locked. All
/// take the rows in the order of their ids, so that few who do so at once wait for each other in a
/// circle; who does is told by the server, and tries again.
const PUT: &str = "\
    WITH given AS (\
        SELECT * FROM unnest($1::text[], $2::bigint[], $3::boolean[], $4::boolean[], $5::text[], \
            $6::text[], $7::text[], $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], \
            $12::text[], $13::boolean[]) AS u (id, updated_at, archived, pinned, cwd, parent, \
            status, search, bytes, segment, people, row_json, written)\
    ), there AS (\
        SELECT id FROM sessions WHERE id = ANY($1::text[]) ORDER BY id COLLATE \"C\" FOR KEY SHARE\
    ), put AS (\
        INSERT INTO catalogue (id, updated_at, archived, pinned, cwd, parent, status, search, \
            bytes, segment, people, written, row_json) \
        SELECT id, updated_at, archived, pinned, cwd, parent, status, search, bytes, segment, \
            people, written, row_json \
        FROM given WHERE id IN (SELECT id FROM there) ORDER BY id COLLATE \"C\" \
        ON CONFLICT (id) DO UPDATE SET updated_at = excluded.updated_at, \
            archived = excluded.archived, pinned = excluded.pinned, cwd = excluded.cwd, \
            parent = excluded.parent, status = excluded.status, search = excluded.search, \
            bytes = excluded.bytes, segment = excluded.segment, people = excluded.people, \
            written = excluded.written, row_json = excluded.row_json \
        RETURNING id\
    ), settled AS (\
        UPDATE sessions h SET suspect = false FROM given g \
        WHERE h.id = g.id AND g.id IN (SELECT id FROM put) AND h.suspect AND NOT g.written \
            AND h.lease_until IS NULL \
            AND h.next_at = g.bytes AND h.segment = g.segment AND h.people = g.people\
    ) SELECT set_config('synchronous_commit', 'off', true)";

const PUT_MISSING: &str = "\
    UPDATE catalogue c SET status = g.status, row_json = g.row_json, bytes = 0, segment = 0, \
        people = 0, written = false \
    FROM unnest($1::text[], $2::text[], $3::text[]) AS g (id, status, row_json) \
    WHERE c.id = g.id AND NOT EXISTS (SELECT 1 FROM sessions WHERE id = g.id)";

/// What a row of a table must fulfil that a filter admits.
macro_rules! admitted {
    ($row:literal) => {
        concat!(
            "($1::boolean IS NULL OR ",
            $row,
            ".archived = $1) \
             AND ($2::text IS NULL OR ",
            $row,
            ".cwd = $2) \
             AND (cardinality($3::text[]) = 0 OR ",
            $row,
            ".status = ANY($3)) \
             AND ($4::text IS NULL OR ",
            $row,
            ".parent = $4) \
             AND ($5::boolean IS NULL OR ",
            $row,
            ".pinned = $5) \
             AND NOT EXISTS (SELECT 1 FROM unnest($6::text[]) AS word \
                 WHERE strpos(",
            $row,
            ".search, word) = 0 AND strpos(lower(",
            $row,
            ".id), word) <> 1) \
             AND ($7::text IS NULL OR ",
            $row,
            ".row_json::json #>> '{model,provider}' = $7) \
             AND ($8::text IS NULL OR ",
            $row,
            ".row_json::json #>> '{model,name}' = $8)"
        )
    };
}

/// What a row must fulfil that a filter shows.
macro_rules! wanted {
    () => {
        concat!(
            admitted!("c"),
            " AND NOT ($9::boolean AND EXISTS (SELECT 1 FROM catalogue p WHERE p.id = c.parent AND ",
            admitted!("p"),
            "))"
        )
    };
}

const PAGE: &str = concat!(
    "SELECT row_json, bytes, segment, people, written, id, updated_at FROM catalogue c WHERE ",
    wanted!(),
    " AND ($10::bigint IS NULL OR (updated_at, id) < ($10, $11::text COLLATE \"C\")) \
     ORDER BY updated_at DESC, id DESC LIMIT $12"
);

const COUNT: &str = concat!("SELECT count(*) FROM catalogue c WHERE ", wanted!());

const KEY_AT: &str = concat!(
    "SELECT id, updated_at FROM catalogue c WHERE ",
    wanted!(),
    " ORDER BY updated_at DESC, id DESC LIMIT 1 OFFSET $10"
);

const GET: &str = "\
    SELECT row_json, bytes, segment, people, written, id, updated_at FROM catalogue WHERE id = $1";

/// Most rows in one statement, which locks as many sessions for its time.
const ROWS_AT_ONCE: usize = 256;

/// The catalogue in the same schema.
pub(crate) struct PgCatalogue {
    inner: Arc<Inner>,
    /// Whether everything was looked at once.
    looked: AtomicBool,
}

impl PgCatalogue {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        let looked = AtomicBool::new(false);
        Self { inner, looked }
    }

    fn failed(&self, trouble: Trouble) -> BackendError {
        trouble.backend(format!("the catalogue in {}", self.inner.db.place))
    }

    async fn suspects_once(&self) -> Result<Vec<SessionId>, Trouble> {
        let sql = if self.looked.load(Ordering::Relaxed) {
            SUSPECTS
        } else {
            ALL_SUSPECTS
        };
        let rows = self.inner.db.query(sql, &[]).await?;
        let ids = ids(&rows)?;
        self.looked.store(true, Ordering::Relaxed);
        Ok(ids)
    }

    async fn put_once(&self, rows: &[&CatalogueRow]) -> Result<(), Trouble> {
        let (mut here, mut missing) = (Columns::default(), Columns::default());
        for row in rows {
            let columns = if row.is_missing() {
                &mut missing
            } else {
                &mut here
            };
            columns.push(row)?;
        }
        if !missing.ids.is_empty() {
            missing.put_missing(&self.inner.db).await?;
        }
        if !here.ids.is_empty() {
            here.put(&self.inner.db).await?;
        }
        Ok(())
    }

    async fn page_once(
        &self,
        filter: &ListFilter,
        after: Option<&ListKey>,
        limit: i64,
    ) -> Result<Vec<CatalogueRow>, Trouble> {
        let wanted = Wanted::new(filter);
        let time = after.map(|(updated_at, _)| int(*updated_at));
        let id = after.map(|(_, id)| id.as_str());
        let values = wanted.with([&time, &id, &limit]);
        let rows = self.inner.db.query(PAGE, &values).await?;
        rows.iter().map(read).collect()
    }

    async fn count_once(&self, filter: &ListFilter) -> Result<u64, Trouble> {
        let wanted = Wanted::new(filter);
        let row = self.inner.db.row(COUNT, &wanted.with([])).await?;
        Ok(row.and_then(|row| row.try_get(0).ok()).map_or(0, count))
    }

    async fn key_at_once(&self, filter: &ListFilter, at: i64) -> Result<Option<ListKey>, Trouble> {
        let wanted = Wanted::new(filter);
        let row = self.inner.db.row(KEY_AT, &wanted.with([&at])).await?;
        let Some(row) = row else { return Ok(None) };
        let id: String = row.try_get(0)?;
        let id = SessionId::parse(id).map_err(|error| Trouble::Other(error.to_string()))?;
        Ok(Some((count(row.try_get(1)?), id)))
    }

    async fn get_once(&self, id: &SessionId) -> Result<Option<CatalogueRow>, Trouble> {
        let Some(row) = self.inner.db.row(GET, &[&id.as_str()]).await? else {
            return Ok(None);
        };
        read(&row).map(Some)
    }
}

/// The values of [`wanted!`].
struct Wanted<'a> {
    archived: Option<bool>,
    cwd: Option<String>,
    statuses: Vec<String>,
    parent: Option<&'a str>,
    pinned: Option<bool>,
    words: Vec<String>,
    provider: Option<String>,
    model: Option<String>,
    roots: bool,
}

impl<'a> Wanted<'a> {
    fn new(filter: &'a ListFilter) -> Self {
        let statuses = filter.stored_statuses().iter();
        Self {
            archived: match filter.archived {
                Archived::No => Some(false),
                Archived::Only => Some(true),
                Archived::All => None,
            },
            cwd: filter.cwd.as_deref().map(text),
            statuses: statuses.map(|wanted| status(*wanted)).collect(),
            parent: filter.parent.as_ref().map(SessionId::as_str),
            pinned: filter.pinned,
            words: filter.words().iter().map(|word| text(word)).collect(),
            provider: filter.model.as_ref().map(|model| text(&model.provider)),
            model: filter.model.as_ref().map(|model| text(&model.name)),
            roots: filter.roots,
        }
    }

    fn with<'b, const N: usize>(
        &'b self,
        more: [&'b (dyn ToSql + Sync); N],
    ) -> Vec<&'b (dyn ToSql + Sync)> {
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![
            &self.archived,
            &self.cwd,
            &self.statuses,
            &self.parent,
            &self.pinned,
            &self.words,
            &self.provider,
            &self.model,
            &self.roots,
        ];
        values.extend(more);
        values
    }
}

/// Rows as the columns of their table.
#[derive(Debug, Default)]
struct Columns<'a> {
    ids: Vec<&'a str>,
    updated_at: Vec<i64>,
    archived: Vec<bool>,
    pinned: Vec<bool>,
    cwds: Vec<String>,
    parents: Vec<Option<&'a str>>,
    statuses: Vec<String>,
    searches: Vec<String>,
    bytes: Vec<i64>,
    segments: Vec<i64>,
    people: Vec<i64>,
    json: Vec<String>,
    written: Vec<bool>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, row: &'a CatalogueRow) -> Result<(), Trouble> {
        let summary = &row.summary;
        let json = serde_json::to_string(summary).map_err(|e| Trouble::Other(e.to_string()))?;
        let parent = summary.parent.as_ref();
        self.ids.push(summary.id.as_str());
        self.updated_at.push(int(summary.updated_at));
        self.archived.push(summary.archived);
        self.pinned.push(summary.pinned);
        self.cwds.push(text(&summary.cwd));
        self.parents.push(parent.map(|parent| parent.id.as_str()));
        self.statuses.push(status(summary.status));
        self.searches.push(text(&search_text(summary)));
        self.bytes.push(int(row.stamp.0));
        self.segments.push(int(row.stamp.1));
        self.people.push(int(row.people.0));
        self.json.push(json);
        self.written.push(row.written);
        Ok(())
    }

    async fn put(&self, db: &Db) -> Result<(), Trouble> {
        db.query(
            PUT,
            &[
                &self.ids,
                &self.updated_at,
                &self.archived,
                &self.pinned,
                &self.cwds,
                &self.parents,
                &self.statuses,
                &self.searches,
                &self.bytes,
                &self.segments,
                &self.people,
                &self.json,
                &self.written,
            ],
        )
        .await
        .map(drop)
    }

    async fn put_missing(&self, db: &Db) -> Result<(), Trouble> {
        db.query(PUT_MISSING, &[&self.ids, &self.statuses, &self.json])
            .await
            .map(drop)
    }
}

fn ids(rows: &[Row]) -> Result<Vec<SessionId>, Trouble> {
    let mut ids = Vec::with_capacity(rows.len());
    for row in rows {
        let id: String = row.try_get(0)?;
        ids.extend(SessionId::parse(id).ok());
    }
    Ok(ids)
}

fn read(row: &Row) -> Result<CatalogueRow, Trouble> {
    let (json, id): (String, String) = (row.try_get(0)?, row.try_get(5)?);
    let segment = count(row.try_get(2)?);
    let read: Result<SessionSummary, _> = serde_json::from_str(&json);
    if let Ok(summary) = read
        && summary.id.as_str() == id
    {
        return Ok(CatalogueRow {
            summary,
            stamp: Stamp(count(row.try_get(1)?), segment),
            people: Stamp(count(row.try_get(3)?), segment),
            written: row.try_get(4)?,
        });
    }
    tracing::warn!(id, "a row of the catalogue is garbled");
    let id = SessionId::parse(id).map_err(|error| Trouble::Other(error.to_string()))?;
    let updated_at = count(row.try_get(6)?);
    Ok(garbled(id, updated_at))
}

/// Returns a row that is stale whatever the session is, so that it is made anew.
fn garbled(id: SessionId, updated_at: u64) -> CatalogueRow {
    CatalogueRow {
        summary: SessionSummary {
            id,
            title: None,
            made_title: None,
            first_prompt: None,
            created_at: 0,
            updated_at,
            turns: 0,
            events: 0,
            status: SessionStatus::Idle,
            cwd: String::new(),
            model: None,
            usage: Usage::default(),
            subagent_usage: Usage::default(),
            bytes: 0,
            archived: false,
            pinned: false,
            tags: Vec::new(),
            revision: 0,
            parent: None,
            durability: Durability::default(),
            error: None,
            people_damaged: None,
        },
        stamp: Stamp::default(),
        people: Stamp::default(),
        written: false,
    }
}

/// Returns a text without what the database cannot keep.
fn text(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn status(status: SessionStatus) -> String {
    let json = serde_json::to_value(status).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

#[async_trait]
impl Catalogue for PgCatalogue {
    async fn suspects(&self) -> Result<Vec<SessionId>, BackendError> {
        retrying!(self.suspects_once()).map_err(|trouble| self.failed(trouble))
    }

    async fn suspect(&self, id: &SessionId) -> Result<(), BackendError> {
        let sql = "UPDATE sessions SET suspect = true WHERE id = $1 AND NOT suspect";
        let noted: Result<_, Trouble> = retrying!(self.inner.db.query(sql, &[&id.as_str()]));
        noted.map(drop).map_err(|trouble| self.failed(trouble))
    }

    async fn put(&self, rows: Vec<CatalogueRow>) -> Result<(), BackendError> {
        // A statement changes a row once: the last of several for a session counts.
        let last: BTreeMap<&str, &CatalogueRow> = rows
            .iter()
            .map(|row| (row.summary.id.as_str(), row))
            .collect();
        let rows: Vec<&CatalogueRow> = last.into_values().collect();
        for some in rows.chunks(ROWS_AT_ONCE) {
            let put: Result<(), Trouble> = retrying!(self.put_once(some));
            put.map_err(|trouble| self.failed(trouble))?;
        }
        Ok(())
    }

    async fn forget(&self, id: &SessionId) -> Result<(), BackendError> {
        let sql = "DELETE FROM catalogue WHERE id = $1";
        let gone: Result<_, Trouble> = retrying!(self.inner.db.query(sql, &[&id.as_str()]));
        gone.map(drop).map_err(|trouble| self.failed(trouble))
    }

    async fn get(&self, id: &SessionId) -> Result<Option<CatalogueRow>, BackendError> {
        retrying!(self.get_once(id)).map_err(|trouble| self.failed(trouble))
    }

    async fn page(
        &self,
        filter: &ListFilter,
        after: Option<&ListKey>,
        limit: usize,
    ) -> Result<Vec<CatalogueRow>, BackendError> {
        let limit = int(limit as u64);
        retrying!(self.page_once(filter, after, limit)).map_err(|trouble| self.failed(trouble))
    }

    async fn count(&self, filter: &ListFilter) -> Result<u64, BackendError> {
        retrying!(self.count_once(filter)).map_err(|trouble| self.failed(trouble))
    }

    async fn key_at(&self, filter: &ListFilter, at: u64) -> Result<Option<ListKey>, BackendError> {
        retrying!(self.key_at_once(filter, int(at))).map_err(|trouble| self.failed(trouble))
    }

    async fn len(&self) -> Result<u64, BackendError> {
        let sql = "SELECT count(*) FROM catalogue";
        let row: Result<_, Trouble> = retrying!(self.inner.db.row(sql, &[]));
        let row = row.map_err(|trouble| self.failed(trouble))?;
        Ok(row.and_then(|row| row.try_get(0).ok()).map_or(0, count))
    }
}
