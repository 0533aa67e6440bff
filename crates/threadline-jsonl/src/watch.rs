//! Waking followers when another process appends: session folders are watched for changes.
//!
//! What the system tells is a hint and no more. It may tell of nothing at all (a network file
//! system, a limit that is reached) or too often; whoever waits looks again after a while anyway,
//! and what stands in the log is the truth.
//!
//! One thread per backend hears for all waiters. It begins with the first wait and ends with the
//! backend. A folder is watched exactly as long as somebody waits for it.

use std::path::Path;

use tokio::sync::watch::Receiver;

/// The folders that are watched for a backend.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    #[cfg(target_os = "linux")]
    ear: std::sync::OnceLock<Option<linux::Ear>>,
}

impl Watches {
    /// Begins to watch a folder; `None` when that is not to be had.
    pub(crate) fn watch(&self, folder: &Path) -> Option<Watch> {
        #[cfg(target_os = "linux")]
        {
            self.ear
                .get_or_init(linux::Ear::new)
                .as_ref()?
                .watch(folder)
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = folder;
            None
        }
    }
}

/// One waiter's share of a watch, which ends with its last share.
#[derive(Debug)]
pub(crate) struct Watch {
    told: Receiver<()>,
    #[cfg(target_os = "linux")]
    _held: linux::Held,
}

impl Watch {
    /// Waits until something has happened in the folder since the watch began.
    pub(crate) async fn changed(&mut self) {
        // The sender is gone when the folder is, which is a change as well.
        let _ = self.told.changed().await;
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        collections::HashMap,
        ffi::CStr,
        io::{PipeReader, PipeWriter},
        mem::MaybeUninit,
        os::fd::OwnedFd,
        path::Path,
        sync::{Arc, Mutex, MutexGuard, PoisonError},
        thread,
    };

    use rustix::{
        event::{PollFd, PollFlags, poll},
        fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
        io::Errno,
    };
    use tokio::sync::watch::Sender;

    use super::Watch;
    use crate::{
        layout::LOG,
        limits::{MAX_WATCHES, WATCH_BYTES},
    };

    /// Hears of changes for all waiters of a backend.
    #[derive(Debug)]
    pub(super) struct Ear {
        inside: Arc<Inside>,
        /// Its end is what the thread takes for the end of the backend.
        _alive: PipeWriter,
    }

    #[derive(Debug)]
    struct Inside {
        queue: OwnedFd,
        /// Locked while a watch is made or removed, so that no event is told before its entry
        /// stands here and no watch is removed that somebody has just joined.
        entries: Mutex<HashMap<i32, Entry>>,
    }

    #[derive(Debug)]
    struct Entry {
        tell: Sender<()>,
        waiters: usize,
    }

    /// Keeps a watch.
    #[derive(Debug)]
    pub(super) struct Held {
        inside: Arc<Inside>,
        number: i32,
    }

    impl Ear {
        pub(super) fn new() -> Option<Self> {
            match Self::start() {
                Ok(ear) => Some(ear),
                Err(error) => {
                    tracing::debug!(%error, "folders cannot be watched; they are polled instead");
                    None
                }
            }
        }

        fn start() -> std::io::Result<Self> {
            let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            let inside = Arc::new(Inside {
                queue,
                entries: Mutex::default(),
            });
            let (end, alive) = std::io::pipe()?;
            let heard = Arc::clone(&inside);
            thread::Builder::new()
                .name("session-watch".into())
                .spawn(move || heard.listen(&end))?;
            Ok(Self {
                inside,
                _alive: alive,
            })
        }

        pub(super) fn watch(&self, folder: &Path) -> Option<Watch> {
            let mut entries = self.inside.entries();
            let most = entries.len() >= MAX_WATCHES;
            // A folder that is watched already gives its own number again.
            let wanted = WatchFlags::MODIFY
                | WatchFlags::MOVED_TO
                | WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF
                | WatchFlags::ONLYDIR;
            let number = match inotify::add_watch(&self.inside.queue, folder, wanted) {
                Ok(number) => number,
                Err(error) => {
                    tracing::debug!(%error, folder = %folder.display(), "not watched");
                    return None;
                }
            };
            if most && !entries.contains_key(&number) {
                let _ = inotify::remove_watch(&self.inside.queue, number);
                return None;
            }
            let entry = entries.entry(number).or_insert_with(|| Entry {
                tell: Sender::new(()),
                waiters: 0,
            });
            entry.waiters += 1;
            let told = entry.tell.subscribe();
            drop(entries);
            let inside = Arc::clone(&self.inside);
            Some(Watch {
                told,
                _held: Held { inside, number },
            })
        }

        #[cfg(test)]
        pub(super) fn inside(&self) -> std::sync::Weak<impl Sized + use<>> {
            Arc::downgrade(&self.inside)
        }

        #[cfg(test)]
        pub(super) fn watched(&self) -> usize {
            self.inside.entries().len()
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let mut entries = self.inside.entries();
            let Some(entry) = entries.get_mut(&self.number) else {
                return;
            };
            entry.waiters -= 1;
            if entry.waiters == 0 {
                entries.remove(&self.number);
                // It fails when the folder is gone, and the watch with it.
                let _ = inotify::remove_watch(&self.inside.queue, self.number);
            }
        }
    }

    impl Inside {
        fn entries(&self) -> MutexGuard<'_, HashMap<i32, Entry>> {
            self.entries.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Tells of changes until the backend is gone.
        fn listen(&self, end: &PipeReader) {
            let mut buffer = vec![MaybeUninit::uninit(); WATCH_BYTES];
            loop {
                let mut waits = [
                    PollFd::new(&self.queue, PollFlags::IN),
                    PollFd::new(end, PollFlags::IN),
                ];
                match poll(&mut waits, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return self.deaf(error),
                }
                if !waits[1].revents().is_empty() {
                    return;
                }
                match self.tell_all(&mut buffer) {
                    Ok(()) | Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                    Err(error) => return self.deaf(error),
                }
            }
        }

        fn tell_all(&self, buffer: &mut [MaybeUninit<u8>]) -> Result<(), Errno> {
            let mut events = Reader::new(&self.queue, buffer);
            loop {
                let event = events.next()?;
                let (number, what) = (event.wd(), event.events());
                let entries = self.entries();
                if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                    // It is not known whose events were lost.
                    for entry in entries.values() {
                        entry.tell.send_replace(());
                    }
                } else if event.file_name().is_none_or(is_log)
                    && let Some(entry) = entries.get(&number)
                {
                    entry.tell.send_replace(());
                }
            }
        }

        /// Nobody is told any more; the waiters look now and then all the same.
        fn deaf(&self, error: Errno) {
            tracing::warn!(%error, "changes of session folders are not heard of any more");
        }
    }

    /// Other files of a session say nothing to who follows its log.
    fn is_log(name: &CStr) -> bool {
        name.to_bytes() == LOG.as_bytes()
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
#[expect(
    clippy::disallowed_methods,
    reason = "what is watched are folders of the operating system"
)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn file(folder: &Path, name: &str) -> std::fs::File {
        std::fs::File::options()
            .create(true)
            .append(true)
            .open(folder.join(name))
            .unwrap()
    }

    async fn is_told(watch: &mut Watch) -> bool {
        let mut changed = std::pin::pin!(watch.changed());
        std::future::poll_fn(|cx| std::task::Poll::Ready(changed.as_mut().poll(cx).is_ready()))
            .await
    }

    fn watched(watches: &Watches) -> usize {
        watches.ear.get().unwrap().as_ref().unwrap().watched()
    }

    #[tokio::test]
    async fn an_append_wakes_every_waiter_of_its_folder_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let folders = [dir.path().join("a"), dir.path().join("b")];
        for folder in &folders {
            std::fs::create_dir(folder).unwrap();
        }
        let watches = Watches::default();
        let [mut one, mut two] = [0, 1].map(|_| watches.watch(&folders[0]).unwrap());
        let mut other = watches.watch(&folders[1]).unwrap();
        let mut log = file(&folders[0], "log.jsonl");
        for _ in 0..3 {
            log.write_all(b"line\n").unwrap();
            one.changed().await;
            two.changed().await;
        }
        // What the kernel tells comes in order: the other one would have been told before.
        assert!(!is_told(&mut other).await);
        // A file beside the log wakes nobody: the change of the log behind it is the first told.
        file(&folders[1], "index").write_all(b"x").unwrap();
        log.write_all(b"line\n").unwrap();
        one.changed().await;
        assert!(!is_told(&mut other).await);
    }

    #[tokio::test]
    async fn a_folder_is_watched_as_long_as_somebody_waits() {
        let dir = tempfile::tempdir().unwrap();
        let watches = Watches::default();
        let first = watches.watch(dir.path()).unwrap();
        let second = watches.watch(dir.path()).unwrap();
        assert_eq!(watched(&watches), 1);
        drop(first);
        assert_eq!(watched(&watches), 1);
        drop(second);
        assert_eq!(watched(&watches), 0);
        let mut again = watches.watch(dir.path()).unwrap();
        file(dir.path(), "log.jsonl").write_all(b"x").unwrap();
        again.changed().await;
    }

    #[tokio::test]
    async fn moving_or_removing_the_folder_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let watches = Watches::default();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::create_dir(&a).unwrap();
        let mut watch = watches.watch(&a).unwrap();
        std::fs::rename(&a, &b).unwrap();
        watch.changed().await;
        assert!(watches.watch(&a).is_none());
        std::fs::remove_dir(&b).unwrap();
        watch.changed().await;
    }

    #[test]
    fn over_the_limit_there_is_no_watch_and_a_shared_one_still_counts() {
        let dir = tempfile::tempdir().unwrap();
        let watches = Watches::default();
        let mut held = Vec::new();
        for n in 0..=crate::limits::MAX_WATCHES {
            let folder = dir.path().join(n.to_string());
            std::fs::create_dir(&folder).unwrap();
            held.push(watches.watch(&folder));
        }
        assert!(held.pop().unwrap().is_none());
        assert!(held.iter().all(Option::is_some));
        assert!(watches.watch(&dir.path().join("0")).is_some());
        drop(held);
        assert_eq!(watched(&watches), 0);
    }

    #[test]
    fn the_thread_ends_with_the_backend() {
        let dir = tempfile::tempdir().unwrap();
        let watches = Watches::default();
        drop(watches.watch(dir.path()).unwrap());
        let inside = watches.ear.get().unwrap().as_ref().unwrap().inside();
        assert!(inside.upgrade().is_some());
        drop(watches);
        while inside.strong_count() > 0 {
            std::thread::yield_now();
        }
    }
}
