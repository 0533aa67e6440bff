//! Lines in and lines out, both bounded.
//!
//! - [`Lines`] gives what the client sends, one line at a time, and never holds more than one.
//! - [`Outbox`] takes what the client is to read. Who sends more than it reads waits.

use std::{io, sync::Arc};

use serde::Serialize;
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};

use crate::limits::{MAX_LINE_BYTES, OUTGOING_BYTES, OUTGOING_LINES};

/// What a client has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line, without its end.
    Text(String),
    /// A line over [`MAX_LINE_BYTES`]; it was passed over.
    TooLong,
    /// A line that is no UTF-8; it was passed over.
    NotUtf8,
    /// Nothing comes any more.
    End,
}

/// The lines of a client.
pub(crate) struct Lines<R> {
    reader: R,
    held: Vec<u8>,
    /// Whether the line is over the limit and its rest is passed over.
    too_long: bool,
    limit: usize,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            reader,
            held: Vec::new(),
            too_long: false,
            limit: MAX_LINE_BYTES,
        }
    }

    /// Waits for the next line that is not empty. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The reader's.
    pub(crate) async fn next(&mut self) -> io::Result<Line> {
        loop {
            let chunk = self.reader.fill_buf().await?;
            if chunk.is_empty() {
                let last = self.take();
                return Ok(last.unwrap_or(Line::End));
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = end.map_or(chunk, |end| &chunk[..end]);
            if self.held.len() + part.len() > self.limit {
                self.too_long = true;
                self.held = Vec::new();
            }
            if !self.too_long {
                self.held.extend_from_slice(part);
            }
            let used = end.map_or(chunk.len(), |end| end + 1);
            self.reader.consume(used);
            if end.is_some()
                && let Some(line) = self.take()
            {
                return Ok(line);
            }
        }
    }

    /// Takes what was gathered; `None` when that is an empty line.
    fn take(&mut self) -> Option<Line> {
        let bytes = std::mem::take(&mut self.held);
        if std::mem::take(&mut self.too_long) {
            return Some(Line::TooLong);
        }
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return None;
        }
        Some(String::from_utf8(bytes).map_or(Line::NotUtf8, Line::Text))
    }
}

/// The client reads no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client has closed the connection")]
pub(crate) struct Gone;

struct Queued {
    line: Vec<u8>,
    /// Given back once the line is written.
    _room: OwnedSemaphorePermit,
}

/// Takes messages for the client, in order. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Outbox {
    sender: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
}

/// The other end of an [`Outbox`].
pub(crate) struct Outgoing {
    receiver: mpsc::Receiver<Queued>,
}

/// Makes a queue that holds [`OUTGOING_LINES`] lines and [`OUTGOING_BYTES`] bytes.
pub(crate) fn outbox() -> (Outbox, Outgoing) {
    let (sender, receiver) = mpsc::channel(OUTGOING_LINES);
    let room = Arc::new(Semaphore::new(OUTGOING_BYTES));
    (Outbox { sender, room }, Outgoing { receiver })
}

impl Outbox {
    /// Queues a message, once there is room for it.
    ///
    /// # Errors
    /// [`Gone`] when the client reads no more.
    pub(crate) async fn send(&self, message: &impl Serialize) -> Result<(), Gone> {
        let mut line = match serde_json::to_vec(message) {
            Ok(line) => line,
            Err(error) => {
                // None of the types that are sent can cause it.
                tracing::error!(%error, "a message to the client does not serialize");
                return Ok(());
            }
        };
        line.push(b'\n');
        let bytes = u32::try_from(line.len().min(OUTGOING_BYTES)).unwrap_or(u32::MAX);
        let room = self.room.clone().acquire_many_owned(bytes).await;
        let queued = Queued {
            line,
            _room: room.map_err(|_| Gone)?,
        };
        self.sender.send(queued).await.map_err(|_| Gone)
    }

    /// Waits until the client reads no more.
    pub(crate) async fn closed(&self) {
        self.sender.closed().await;
    }
}

impl Outgoing {
    /// Writes what is queued until all senders are gone.
    ///
    /// # Errors
    /// The writer's. Whoever sends then is told that the client is gone.
    pub(crate) async fn write_to(mut self, mut writer: impl AsyncWrite + Unpin) -> io::Result<()> {
        while let Some(queued) = self.receiver.recv().await {
            writer.write_all(&queued.line).await?;
            drop(queued);
            if self.receiver.is_empty() {
                writer.flush().await?;
            }
        }
        writer.flush().await
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::BufReader;

    use super::*;

    async fn all(bytes: &[u8], limit: usize) -> Vec<Line> {
        let mut lines = Lines::new(BufReader::with_capacity(3, bytes));
        lines.limit = limit;
        let mut found = Vec::new();
        loop {
            let line = lines.next().await.unwrap();
            if line == Line::End {
                return found;
            }
            found.push(line);
        }
    }

    fn text(text: &str) -> Line {
        Line::Text(text.into())
    }

    #[tokio::test]
    async fn a_line_at_the_limit_is_taken_and_one_past_it_is_passed_over() {
        let found = all(b"12345\n123456\nab\n", 5).await;
        assert_eq!(found, [text("12345"), Line::TooLong, text("ab")]);
    }

    #[tokio::test]
    async fn invalid_utf8_costs_one_line() {
        let found = all(b"a\n\xff\xfe\nb\n", 100).await;
        assert_eq!(found, [text("a"), Line::NotUtf8, text("b")]);
    }

    #[tokio::test]
    async fn empty_lines_are_no_messages_and_the_last_needs_no_end() {
        let found = all(b"\n \r\n{}\r\nrest", 100).await;
        assert_eq!(found, [text("{}\r"), text("rest")]);
    }

    #[tokio::test]
    async fn an_endless_line_is_held_no_longer_than_the_limit() {
        let mut lines = Lines::new(BufReader::new(tokio::io::repeat(b'x')));
        lines.limit = 1000;
        let waited = tokio::time::timeout(std::time::Duration::from_millis(20), lines.next()).await;
        assert!(waited.is_err(), "a line without an end is no line");
        assert!(lines.held.capacity() <= 64 << 10);
    }

    #[tokio::test]
    async fn whoever_sends_more_than_the_client_reads_waits() {
        let (outbox, outgoing) = outbox();
        let big = "x".repeat(OUTGOING_BYTES);
        outbox.send(&big).await.unwrap();
        let waits = {
            let outbox = outbox.clone();
            tokio::spawn(async move { outbox.send(&"small").await })
        };
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        let (mut client, server) = tokio::io::duplex(1024);
        let writes = tokio::spawn(outgoing.write_to(server));
        drop(outbox);
        let mut read = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut client, &mut read)
            .await
            .unwrap();
        assert_eq!(read.len(), OUTGOING_BYTES + 3 + "\"small\"\n".len());
        waits.await.unwrap().unwrap();
        writes.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_client_that_reads_no_more_is_told_of() {
        let (outbox, outgoing) = outbox();
        drop(outgoing);
        assert_eq!(outbox.send(&1).await, Err(Gone));
        outbox.closed().await;
    }
}
