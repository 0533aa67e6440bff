//! Where log lines go: to standard error, and while the screen is drawn on, into a buffer.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use tracing_subscriber::fmt::MakeWriter;

/// Most bytes that are held; later ones are counted, not kept.
const HELD_BYTES: usize = 256 << 10;

#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    lost: usize,
}

/// Standard error, or a buffer in its place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Logs {
    held: Arc<Mutex<Option<Held>>>,
}

impl Logs {
    /// Keeps what is logged from now on.
    pub(crate) fn hold(&self) {
        *self.lock() = Some(Held::default());
    }

    /// Returns what was kept, and lets lines through again.
    pub(crate) fn release(&self) -> Vec<u8> {
        let Some(mut held) = self.lock().take() else {
            return Vec::new();
        };
        if held.lost > 0 {
            let more = format!("[{} more bytes of log were not kept]\n", held.lost);
            held.bytes.extend(more.into_bytes());
        }
        held.bytes
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Logs {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut held = self.lock();
        let Some(held) = held.as_mut() else {
            return io::stderr().write(bytes);
        };
        if held.bytes.len() + bytes.len() <= HELD_BYTES {
            held.bytes.extend_from_slice(bytes);
        } else {
            held.lost += bytes.len();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl<'a> MakeWriter<'a> for Logs {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_given_back_once_and_has_a_limit() {
        let mut logs = Logs::default();
        assert!(logs.release().is_empty());
        logs.hold();
        logs.write_all(b"one\n").unwrap();
        logs.write_all(&vec![b'x'; HELD_BYTES]).unwrap();
        let held = String::from_utf8(logs.release()).unwrap();
        assert!(held.starts_with("one\n["), "{held}");
        assert!(held.contains("262144 more bytes"), "{held}");
        assert!(logs.release().is_empty());
    }
}
