//! The rows that lists are made from, kept in the same database.
//!
//! Each session's row says whether its row here is that of the session as it is now: an append, a
//! change of what people set and the end of a writer take that back in their own transactions. So
//! what is suspect is one look into an index.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, params};
use threadline_catalogue::{self as rows, RowsError};
use threadline_session::SessionId;
use threadline_store::{BackendError, Catalogue, CatalogueRow, ListFilter, ListKey, Stamp};

use crate::{
    backend::Shared,
    error::Fail,
    leases::{self, Held},
    number::unsigned,
    queue::Hand,
};

const WHAT: &str = "reading the list of sessions";

/// The catalogue of a database.
pub(crate) struct SqliteCatalogue {
    shared: Arc<Shared>,
}

impl SqliteCatalogue {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Reads rows. If they are garbled, all are thrown away, and it is read again.
    async fn read<R: Send + 'static>(
        &self,
        work: impl Fn(&Connection) -> Result<R, RowsError> + Send + Sync + 'static,
    ) -> Result<R, BackendError> {
        let work = Arc::new(work);
        let mut anew = false;
        loop {
            let job = Arc::clone(&work);
            let done = self.shared.read(move |conn, _| Ok(job(conn))).await;
            let fail = match done {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(RowsError::Garbled { what })) if !anew => {
                    tracing::warn!(what, "the rows of lists are made anew");
                    let begun = self.shared.queue.run(begin_anew).await;
                    if let Err(fail) = begun {
                        return Err(fail.into_backend(self.shared.path(), WHAT.into()));
                    }
                    anew = true;
                    continue;
                }
                Ok(Err(error)) => rows_failed(error),
                Err(fail) => fail,
            };
            return Err(fail.into_backend(self.shared.path(), WHAT.into()));
        }
    }

    async fn write(
        &self,
        work: impl FnOnce(&mut Hand) -> Result<(), Fail> + Send + 'static,
    ) -> Result<(), BackendError> {
        let done = self.shared.queue.run(work).await;
        done.map_err(|fail| {
            fail.into_backend(self.shared.path(), "keeping the list of sessions".into())
        })
    }
}

pub(crate) fn rows_failed(error: RowsError) -> Fail {
    match error {
        RowsError::Sqlite(error) => Fail::Sql(error),
        other => Fail::Refused(other.to_string()),
    }
}

fn begin_anew(hand: &mut Hand) -> Result<(), Fail> {
    hand.transaction(false, |conn, _| {
        conn.execute("DELETE FROM catalogue_rows", [])?;
        conn.execute("UPDATE sessions SET listed = 0", [])?;
        Ok(())
    })
}

fn put(hand: &mut Hand, new: &[CatalogueRow]) -> Result<(), Fail> {
    hand.transaction(false, |conn, _| {
        for row in new {
            put_one(conn, row)?;
        }
        Ok(())
    })
}

fn put_one(conn: &Connection, row: &CatalogueRow) -> Result<(), Fail> {
    // A session goes together with its row, so none is ever missing.
    if row.is_missing() {
        return Ok(());
    }
    let Some(session) = crate::log::session(conn, &row.summary.id)? else {
        return Ok(());
    };
    rows::put_at(conn, row, "").map_err(rows_failed)?;
    // What was held by somebody who is dead would be suspect for ever.
    let held = leases::of_session(conn, session.num)?;
    let freed = held.is_some_and(|held| !Held::is_alive(&held));
    let people: i64 = conn
        .prepare_cached("SELECT people FROM sessions WHERE num = ?1")?
        .query_row([session.num], |row| row.get(0))?;
    let is_current = row.stamp == Stamp(session.bytes, unsigned(session.segment))
        && row.people == Stamp(unsigned(people), unsigned(session.num))
        && !(freed && row.written);
    conn.prepare_cached(
        "UPDATE sessions SET listed = ?2, holder = iif(?3, NULL, holder) WHERE num = ?1",
    )?
    .execute(params![session.num, is_current, freed])?;
    Ok(())
}

#[async_trait]
impl Catalogue for SqliteCatalogue {
    async fn suspects(&self) -> Result<Vec<SessionId>, BackendError> {
        let found = self.shared.read(|conn, _| {
            let mut query = conn.prepare_cached(
                "SELECT id FROM sessions WHERE listed = 0 OR holder IS NOT NULL
                 ORDER BY touched DESC",
            )?;
            let mut rows = query.query([])?;
            let mut ids = Vec::new();
            while let Some(row) = rows.next()? {
                ids.extend(SessionId::parse(row.get::<_, String>(0)?));
            }
            Ok(ids)
        });
        let found = found.await;
        found.map_err(|fail| fail.into_backend(self.shared.path(), WHAT.into()))
    }

    async fn suspect(&self, _id: &SessionId) -> Result<(), BackendError> {
        // Whoever changes a session notes it in the same transaction.
        Ok(())
    }

    async fn put(&self, new: Vec<CatalogueRow>) -> Result<(), BackendError> {
        self.write(move |hand| put(hand, &new)).await
    }

    async fn forget(&self, id: &SessionId) -> Result<(), BackendError> {
        let id = id.clone();
        self.write(move |hand| {
            hand.transaction(false, |conn, _| {
                rows::forget(conn, &id).map_err(rows_failed)?;
                conn.prepare_cached("UPDATE sessions SET listed = 0 WHERE id = ?1")?
                    .execute([id.as_str()])?;
                Ok(())
            })
        })
        .await
    }

    async fn get(&self, id: &SessionId) -> Result<Option<CatalogueRow>, BackendError> {
        let id = id.clone();
        self.read(move |conn| rows::get(conn, &id)).await
    }

    async fn page(
        &self,
        filter: &ListFilter,
        after: Option<&ListKey>,
        limit: usize,
    ) -> Result<Vec<CatalogueRow>, BackendError> {
        let (filter, after) = (filter.clone(), after.cloned());
        self.read(move |conn| rows::page(conn, &filter, after.as_ref(), limit))
            .await
    }

    async fn count(&self, filter: &ListFilter) -> Result<u64, BackendError> {
        let filter = filter.clone();
        self.read(move |conn| rows::count(conn, &filter)).await
    }

    async fn key_at(&self, filter: &ListFilter, at: u64) -> Result<Option<ListKey>, BackendError> {
        let filter = filter.clone();
        self.read(move |conn| rows::key_at(conn, &filter, at)).await
    }

    async fn len(&self) -> Result<u64, BackendError> {
        self.read(rows::len).await
    }
}
