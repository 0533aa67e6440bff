//! Waking followers. A notification is a hint; whoever waits looks again after a while anyway.
//!
//! NOTIFY takes a lock over the whole database at commit, so that appends which carried it would
//! commit one after the other. It is sent behind them, on its own, for many sessions at once.

use std::{collections::HashSet, future::poll_fn, time::Duration};

use threadline_session::SessionId;
use tokio::{
    sync::{broadcast, mpsc},
    task::JoinHandle,
};
use tokio_postgres::AsyncMessage;

use crate::db::{Db, quoted};

/// Notifications that a slow waiter may lag behind before it just looks.
const KEPT: usize = 1024;
/// Pause before listening is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Tells others of changes, and is told of theirs.
#[derive(Debug)]
pub(crate) struct Bell {
    changed: mpsc::UnboundedSender<String>,
    heard: broadcast::Sender<String>,
    listening: JoinHandle<()>,
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Bell {
    pub(crate) fn new(db: &Db, schema: &str) -> Self {
        let channel = channel(schema);
        let (changed, changes) = mpsc::unbounded_channel();
        let (heard, _) = broadcast::channel(KEPT);
        tokio::spawn(tell(db.clone(), channel.clone(), changes));
        let listening = tokio::spawn(listen(db.clone(), channel, heard.clone()));
        Self {
            changed,
            heard,
            listening,
        }
    }

    /// Tells of a change, without waiting.
    pub(crate) fn ring(&self, id: &SessionId) {
        let _ = self.heard.send(id.to_string());
        let _ = self.changed.send(id.to_string());
    }

    /// Waits until a session has changed.
    pub(crate) async fn wait(&self, id: &SessionId) {
        let mut heard = self.heard.subscribe();
        loop {
            match heard.recv().await {
                Ok(changed) if changed != id.as_str() => {}
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// Returns the channel of a schema; its name is no longer than the server takes.
fn channel(schema: &str) -> String {
    let name: String = schema.chars().take(12).collect();
    format!("threadline_{name}")
}

async fn tell(db: Db, channel: String, mut changes: mpsc::UnboundedReceiver<String>) {
    while let Some(first) = changes.recv().await {
        let mut ids = HashSet::from([first]);
        while let Ok(more) = changes.try_recv() {
            ids.insert(more);
        }
        let ids: Vec<String> = ids.into_iter().collect();
        let sql = "SELECT pg_notify($1, id) FROM unnest($2::text[]) AS u (id)";
        if let Err(error) = db.query(sql, &[&channel, &ids]).await {
            tracing::debug!(%error, "changes were not told");
        }
    }
}

async fn listen(db: Db, channel: String, heard: broadcast::Sender<String>) {
    loop {
        if let Err(error) = listen_once(&db, &channel, &heard).await {
            tracing::debug!(%error, "changes are not heard of");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn listen_once(
    db: &Db,
    channel: &str,
    heard: &broadcast::Sender<String>,
) -> Result<(), crate::error::Trouble> {
    let (client, mut connection) = db.alone().await?;
    let sql = format!("LISTEN {}", quoted(channel));
    let messages = async {
        while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(note) = message? {
                let _ = heard.send(note.payload().to_owned());
            }
        }
        Ok::<(), tokio_postgres::Error>(())
    };
    let begun = async {
        client.batch_execute(&sql).await?;
        // Holds the client, whose going would end the connection.
        std::future::pending::<()>().await;
        Ok::<(), tokio_postgres::Error>(())
    };
    tokio::select! {
        ended = messages => ended?,
        failed = begun => failed?,
    }
    Ok(())
}
