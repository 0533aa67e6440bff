//! Blobs.

use threadline_store::{BlobId, BlobStat};

use crate::{
    db::{Db, count, int},
    error::Trouble,
};

/// Later than before, so that a blob put twice within a millisecond is not taken for one put once.
/// Bytes that are not those of before are damaged, and written anew.
const AGAIN: &str = "\
    UPDATE blobs SET put_at = greatest(put_at + 1, $3) \
    WHERE id = $1 AND bytes = $2 RETURNING put_at";

const PUT: &str = "\
    INSERT INTO blobs (id, bytes, put_at) VALUES ($1, $2, $3) ON CONFLICT (id) \
    DO UPDATE SET bytes = excluded.bytes, put_at = greatest(blobs.put_at + 1, excluded.put_at)";

const ALL: &str = "SELECT id, octet_length(bytes)::bigint, put_at FROM blobs";

pub(crate) async fn put(db: &Db, id: &BlobId, bytes: &[u8], now: u64) -> Result<(), Trouble> {
    let again = db.row(AGAIN, &[&id.as_str(), &bytes, &int(now)]).await?;
    if again.is_none() {
        db.query(PUT, &[&id.as_str(), &bytes, &int(now)]).await?;
    }
    Ok(())
}

pub(crate) async fn get(db: &Db, id: &BlobId) -> Result<Option<Vec<u8>>, Trouble> {
    let sql = "SELECT bytes FROM blobs WHERE id = $1";
    let row = db.row(sql, &[&id.as_str()]).await?;
    row.map(|row| Ok(row.try_get(0)?)).transpose()
}

pub(crate) async fn all(db: &Db) -> Result<Vec<BlobStat>, Trouble> {
    let mut stats = Vec::new();
    for row in db.query(ALL, &[]).await? {
        let name: String = row.try_get(0)?;
        let Ok(id) = BlobId::parse(&name) else {
            continue;
        };
        stats.push(BlobStat {
            id,
            bytes: count(row.try_get(1)?),
            put_at: count(row.try_get(2)?),
        });
    }
    Ok(stats)
}

pub(crate) async fn delete(db: &Db, stat: &BlobStat) -> Result<bool, Trouble> {
    let sql = "DELETE FROM blobs WHERE id = $1 AND put_at = $2 RETURNING id";
    let gone = db.row(sql, &[&stat.id.as_str(), &int(stat.put_at)]).await?;
    Ok(gone.is_some())
}
