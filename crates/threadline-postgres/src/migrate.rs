//! Numbered migrations, each applied once however many processes connect at the same time.

use tokio_postgres::error::SqlState;

use crate::{
    db::{Db, quoted},
    error::{Trouble, pause},
};

/// All migrations, in order: number, name, statements.
const MIGRATIONS: &[(i32, &str, &str)] = &[
    (1, "tables", include_str!("migrations/0001_tables.sql")),
    (
        2,
        "kept_logs",
        include_str!("migrations/0002_kept_logs.sql"),
    ),
];

/// How often a process that loses the race to another one looks again.
const MOST_TRIES: u32 = 50;

/// What another process's creating the same thing looks like.
const RACED: [SqlState; 6] = [
    SqlState::UNIQUE_VIOLATION,
    SqlState::DUPLICATE_SCHEMA,
    SqlState::DUPLICATE_TABLE,
    SqlState::DUPLICATE_OBJECT,
    SqlState::T_R_SERIALIZATION_FAILURE,
    SqlState::T_R_DEADLOCK_DETECTED,
];

/// Brings the schema to the version of this program.
pub(crate) async fn migrate(db: &Db, schema: &str) -> Result<(), Trouble> {
    let mut tries = 0;
    loop {
        match once(db, schema).await {
            Err(trouble) if trouble.is(&RACED) && tries < MOST_TRIES => {
                tries += 1;
                tokio::time::sleep(pause(tries)).await;
            }
            outcome => return outcome,
        }
    }
}

async fn once(db: &Db, schema: &str) -> Result<(), Trouble> {
    let newest = MIGRATIONS.last().map_or(0, |(version, ..)| *version);
    let found = version(db).await?;
    if found == Some(newest) {
        return Ok(());
    }
    if let Some(found) = found.filter(|found| *found > newest) {
        return Err(Trouble::Other(format!(
            "the schema {schema} was made by a newer threadline (version {found}, this one knows \
             {newest}): upgrade threadline to use it"
        )));
    }
    let mut client = db.client().await?;
    if found.is_none() {
        let name = quoted(schema);
        client
            .batch_execute(&format!(
                "CREATE SCHEMA IF NOT EXISTS {name}; \
                 CREATE TABLE IF NOT EXISTS {name}.migrations \
                 (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL)"
            ))
            .await?;
    }
    for (version, name, statements) in MIGRATIONS {
        if found.is_some_and(|found| found >= *version) {
            continue;
        }
        // Of those who insert the row at the same time, one goes on, and the others wait for its
        // end and then fail here.
        let transaction = client.transaction().await?;
        transaction
            .execute(
                "INSERT INTO migrations (version, name, applied_at) VALUES ($1, $2, now())",
                &[version, name],
            )
            .await?;
        transaction.batch_execute(statements).await?;
        transaction.commit().await?;
    }
    Ok(())
}

/// Returns the version of the schema; `None` when there is none yet.
async fn version(db: &Db) -> Result<Option<i32>, Trouble> {
    let client = db.client().await?;
    let found = client
        .query_one("SELECT coalesce(max(version), 0) FROM migrations", &[])
        .await
        .map_err(Trouble::from);
    match found {
        Ok(row) => Ok(Some(row.try_get(0)?)),
        Err(trouble) if trouble.is(&[SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME]) => {
            Ok(None)
        }
        Err(trouble) => Err(trouble),
    }
}
