//! Connections.

use std::time::Duration;

use deadpool_postgres::{
    Client, GenericClient, Hook, HookError, Manager, ManagerConfig, Pool, PoolConfig,
    RecyclingMethod, Runtime, Timeouts,
};
use threadline_store::BackendError;
use tokio_postgres::{Config, Row, Socket, tls::MakeTlsConnect, types::ToSql};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{
    error::Trouble,
    options::{Address, PostgresOptions},
    tls,
};

type Connection =
    tokio_postgres::Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// How long a caller waits for one of the connections.
const POOL_WAIT: Duration = Duration::from_secs(30);

/// The database, through a bounded number of connections.
#[derive(Clone)]
pub(crate) struct Db {
    pool: Pool,
    config: Config,
    tls: MakeRustlsConnect,
    pub(crate) shown: String,
    pub(crate) place: String,
}

impl Db {
    pub(crate) fn new(url: &str, options: &PostgresOptions) -> Result<Self, BackendError> {
        let address = Address::parse(url)?;
        let tls = tls::connector(&address.trust)?;
        let manager = Manager::from_config(
            address.config.clone(),
            tls.clone(),
            ManagerConfig {
                recycling_method: RecyclingMethod::Fast,
            },
        );
        // A server may be set up not to wait for the disk; we promise that it does.
        let told = format!(
            "SET search_path TO {}; SELECT set_config('synchronous_commit', 'on', false) \
             WHERE current_setting('synchronous_commit') = 'off'",
            quoted(&options.schema)
        );
        let pool = Pool::builder(manager)
            .config(PoolConfig {
                timeouts: Timeouts {
                    wait: Some(POOL_WAIT),
                    ..Timeouts::default()
                },
                // One is in use for the whole of an import or a repair, which reads through others.
                ..PoolConfig::new(options.connections.max(2))
            })
            .runtime(Runtime::Tokio1)
            .post_create(Hook::async_fn(move |client, _| {
                let told = told.clone();
                Box::pin(async move {
                    let done = client.batch_execute(&told).await;
                    done.map_err(HookError::Backend)
                })
            }))
            .build()
            .map_err(|error| BackendError::new(format!("preparing {}", address.place), error))?;
        Ok(Self {
            pool,
            config: address.config,
            tls,
            shown: address.shown,
            place: address.place,
        })
    }

    /// Takes one of the connections.
    pub(crate) async fn client(&self) -> Result<Client, Trouble> {
        Ok(self.pool.get().await?)
    }

    /// Opens a connection of the caller's own.
    pub(crate) async fn alone(&self) -> Result<(tokio_postgres::Client, Connection), Trouble> {
        Ok(self.config.connect(self.tls.clone()).await?)
    }

    /// Runs a statement, prepared once for each connection.
    pub(crate) async fn query(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Trouble> {
        let client = self.client().await?;
        let statement = client.prepare_cached(sql).await?;
        Ok(client.query(&statement, params).await?)
    }

    /// As [`Self::query`], for at most one row.
    pub(crate) async fn row(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, Trouble> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }
}

/// Runs a statement on a connection or in its transaction, prepared once for each connection.
pub(crate) async fn within(
    on: &impl GenericClient,
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Trouble> {
    let statement = on.prepare_cached(sql).await?;
    Ok(on.query(&statement, params).await?)
}

/// Quotes a name.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns a number as the database keeps it.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a number that the database kept.
pub(crate) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
