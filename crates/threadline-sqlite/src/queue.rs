//! The one thread of a backend that writes, and the queue before it.
//!
//! SQLite lets one writer in at a time. Many connections that write would wait for each other by
//! trying again, and who waits longest may come last; in a queue each comes when it is its turn.
//!
//! A batch that finds the queue empty and nobody at work is stored by its caller's thread: handing
//! it over and back costs about as much processor time as storing it.

use std::{
    cell::Cell,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rusqlite::{Connection, TransactionBehavior};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::oneshot,
};

use crate::{
    SqliteError,
    append::{Batch, append_all},
    error::Fail,
    leases,
    limits::{BATCHES, BEAT, BUSY_FOR, SWEEP_AT_END, VACUUM_PAGES},
    schema::{Target, wait_for_others},
};

/// What the thread is given to do.
enum Job {
    Work(Box<dyn FnOnce(&mut Hand) + Send>),
    /// Kept apart from other work, so that those who wait share a commit.
    Append(Batch, oneshot::Sender<Result<u64, Fail>>),
}

/// Hands work to the thread that writes. Dropping it waits until all is done.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Present until it is dropped.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    hand: Arc<Mutex<Hand>>,
    /// Jobs that were handed over and are not done.
    undone: Arc<AtomicUsize>,
}

impl Queue {
    pub(crate) fn start(target: Target, held: Arc<AtomicUsize>) -> Result<Self, SqliteError> {
        let path = target.path.clone();
        let hand = Hand {
            conn: Some(target.writing()?),
            target,
            synced: true,
            holder: Cell::new(None),
            held,
            beaten: Instant::now(),
            sweep: false,
        };
        let (jobs, todo) = channel();
        let hand = Arc::new(Mutex::new(hand));
        let undone = Arc::new(AtomicUsize::new(0));
        let (mine, done) = (Arc::clone(&hand), Arc::clone(&undone));
        let thread = std::thread::Builder::new()
            .name("threadline-sqlite".into())
            .spawn(move || work_off(&mine, &todo, &done))
            .map_err(|error| SqliteError::io(&path, error))?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
            hand,
            undone,
        })
    }

    /// Has some work done, behind everything that was handed over before. It is done even if the
    /// caller goes away.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Hand) -> Result<R, Fail> + Send + 'static,
    ) -> Result<R, Fail> {
        let (tell, told) = oneshot::channel();
        self.post(move |hand| {
            // Nobody may be listening any more.
            let _ = tell.send(work(hand));
        });
        told.await.unwrap_or(Err(Fail::Gone))
    }

    /// Has some work done without waiting for it.
    pub(crate) fn post(&self, work: impl FnOnce(&mut Hand) + Send + 'static) {
        self.send(Job::Work(Box::new(work)));
    }

    /// Has a batch stored. Returns where it begins.
    pub(crate) async fn append(&self, batch: Batch) -> Result<u64, Fail> {
        if let Some(stored) = self.append_here(&batch) {
            return stored;
        }
        let (tell, told) = oneshot::channel();
        self.send(Job::Append(batch, tell));
        told.await.unwrap_or(Err(Fail::Gone))
    }

    /// Stores a batch on this thread, if that may block and nobody else is at work or waits.
    fn append_here(&self, batch: &Batch) -> Option<Result<u64, Fail>> {
        let may_block = Handle::try_current()
            .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
        if !may_block || self.undone.load(Ordering::Acquire) > 0 {
            return None;
        }
        let mut hand = self.hand.try_lock().ok()?;
        // Whoever has handed over something meanwhile was first.
        if self.undone.load(Ordering::Acquire) > 0 {
            return None;
        }
        tokio::task::block_in_place(|| append_all(&mut hand, std::slice::from_ref(batch)).pop())
    }

    fn send(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            self.undone.fetch_add(1, Ordering::AcqRel);
            // Fails only if the thread is gone, which who waits for the work is told.
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::warn!("the thread that writes the database has panicked");
        }
    }
}

/// Takes the connection that writes. Who panics while holding it leaves no transaction open.
fn taken(hand: &Mutex<Hand>) -> MutexGuard<'_, Hand> {
    hand.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work_off(hand: &Mutex<Hand>, todo: &Receiver<Job>, undone: &AtomicUsize) {
    let (mut next, mut sweep) = (None, false);
    loop {
        let job = match next.take() {
            Some(job) => Some(job),
            None => match wait(todo, sweep) {
                Ok(job) => job,
                Err(Disconnected) => break,
            },
        };
        let mut hand = taken(hand);
        let done = match job {
            Some(Job::Work(work)) => {
                work(&mut hand);
                1
            }
            Some(Job::Append(batch, tell)) => {
                let (mut batches, mut waiting) = (vec![batch], vec![tell]);
                while next.is_none() && batches.len() < BATCHES {
                    match todo.try_recv() {
                        Ok(Job::Append(batch, tell)) => {
                            batches.push(batch);
                            waiting.push(tell);
                        }
                        Ok(other) => next = Some(other),
                        Err(_) => break,
                    }
                }
                let stored = append_all(&mut hand, &batches);
                let done = waiting.len();
                for (tell, stored) in waiting.into_iter().zip(stored) {
                    // Nobody may be listening any more.
                    let _ = tell.send(stored);
                }
                done
            }
            None if hand.sweep => {
                hand.sweep_some();
                0
            }
            None => 0,
        };
        hand.beat();
        sweep = hand.sweep;
        undone.fetch_sub(done, Ordering::AcqRel);
    }
    taken(hand).end();
}

/// Nobody can hand over anything any more.
struct Disconnected;

/// Waits for something to do; but not if there is something to do besides, nor for long.
fn wait(todo: &Receiver<Job>, is_busy: bool) -> Result<Option<Job>, Disconnected> {
    if is_busy {
        return match todo.try_recv() {
            Ok(job) => Ok(Some(job)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Disconnected),
        };
    }
    match todo.recv_timeout(BEAT) {
        Ok(job) => Ok(Some(job)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(Disconnected),
    }
}

/// The connection that writes, with what belongs to it.
#[derive(Debug)]
pub(crate) struct Hand {
    target: Target,
    /// Absent after an error that makes it doubtful; opened anew at the next need.
    conn: Option<Connection>,
    /// Whether commits are synced, as the connection is set now.
    synced: bool,
    /// This backend's row among the holders.
    holder: Cell<Option<i64>>,
    /// Leases of this backend.
    held: Arc<AtomicUsize>,
    beaten: Instant,
    /// Whether free pages may be given back.
    sweep: bool,
}

impl Hand {
    fn conn(&mut self) -> Result<&mut Connection, Fail> {
        match &mut self.conn {
            Some(conn) => Ok(conn),
            none => {
                let conn = self.target.writing().map_err(Fail::Open)?;
                self.synced = true;
                Ok(none.insert(conn))
            }
        }
    }

    /// Does some work in one transaction: all of it, or nothing. With `sync` it is on stable
    /// storage on return, together with everything committed before it; otherwise it has reached
    /// the operating system.
    pub(crate) fn transaction<R>(
        &mut self,
        sync: bool,
        work: impl FnOnce(&Connection, &Cell<Option<i64>>) -> Result<R, Fail>,
    ) -> Result<R, Fail> {
        let outcome = self.attempt(sync, work);
        if outcome.as_ref().is_err_and(Fail::spoils) {
            self.conn = None;
        }
        outcome
    }

    fn attempt<R>(
        &mut self,
        sync: bool,
        work: impl FnOnce(&Connection, &Cell<Option<i64>>) -> Result<R, Fail>,
    ) -> Result<R, Fail> {
        self.conn()?;
        let Some(conn) = &mut self.conn else {
            return Err(Fail::Gone);
        };
        if self.synced != sync {
            // In a write-ahead log a commit that is synced takes along those that were not.
            conn.pragma_update(None, "synchronous", if sync { "FULL" } else { "NORMAL" })?;
            self.synced = sync;
        }
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Rolls back when it is dropped on the way.
        let done = work(&tx, &self.holder)?;
        tx.commit().map_err(Fail::Commit)?;
        Ok(done)
    }

    /// Looks something up on the connection that writes.
    pub(crate) fn look<R>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<R>,
    ) -> Result<R, Fail> {
        let outcome = self.conn().and_then(|conn| work(conn).map_err(Fail::from));
        if outcome.as_ref().is_err_and(Fail::spoils) {
            self.conn = None;
        }
        outcome
    }

    /// Does some work in a transaction of its own whose freed bytes are overwritten: at once, or
    /// when there is nothing else to do.
    pub(crate) fn erase<R>(
        &mut self,
        at_once: bool,
        work: impl FnOnce(&Connection) -> Result<R, Fail>,
    ) -> Result<R, Fail> {
        self.look(|conn| secure_delete(conn, true))?;
        let outcome = self.transaction(true, |conn, _| work(conn));
        let off = self.look(|conn| secure_delete(conn, false));
        if outcome.is_ok() {
            off?;
            self.sweep = true;
            if at_once {
                // The file and the older pages of the log still hold what was deleted, until the
                // log is emptied into the file.
                self.empty_log();
            }
        }
        outcome
    }

    /// Gives some free pages back to the file system, and empties the write-ahead log at the end.
    /// Best effort: others who read may be in the way.
    fn sweep_some(&mut self) {
        let swept = self.look(|conn| {
            let free = |conn: &Connection| {
                conn.query_row("PRAGMA freelist_count", [], |row| row.get::<_, i64>(0))
            };
            if free(conn)? > 0 {
                // Each step of the statement frees one page.
                let mut vacuum =
                    conn.prepare(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
                let mut rows = vacuum.query([])?;
                while rows.next()?.is_some() {}
            }
            free(conn)
        });
        match swept {
            Ok(left) if left > 0 => {}
            Ok(_) => {
                self.sweep = false;
                self.empty_log();
            }
            Err(fail) => {
                tracing::debug!(?fail, "free pages could not be given back");
                self.sweep = false;
            }
        }
    }

    fn empty_log(&mut self) {
        let Ok(conn) = self.conn() else {
            return;
        };
        // Who reads for long must not hold up who writes.
        let emptied = wait_for_others(conn, Duration::from_millis(100))
            .and_then(|()| conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())))
            .and_then(|()| wait_for_others(conn, BUSY_FOR));
        if let Err(error) = emptied {
            tracing::debug!(%error, "the write-ahead log could not be emptied");
            self.conn = None;
        }
    }

    fn beat(&mut self) {
        if self.beaten.elapsed() < BEAT {
            return;
        }
        self.beaten = Instant::now();
        if self.held.load(Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(num) = self.holder.get() {
            let beaten = self.transaction(false, |conn, _| Ok(leases::beat(conn, num)?));
            if let Err(fail) = beaten {
                tracing::warn!(?fail, "could not renew the leases of this process");
            }
        }
    }

    fn end(&mut self) {
        let start = Instant::now();
        while self.sweep && start.elapsed() < SWEEP_AT_END {
            self.sweep_some();
        }
        if let Some(num) = self.holder.get()
            && let Err(fail) = self.transaction(false, |conn, _| Ok(leases::unregister(conn, num)?))
        {
            tracing::debug!(
                ?fail,
                "left a row among the holders; the next one removes it"
            );
        }
    }
}

fn secure_delete(conn: &Connection, on: bool) -> rusqlite::Result<()> {
    let sql = format!("PRAGMA secure_delete = {}", if on { "ON" } else { "OFF" });
    conn.query_row(&sql, [], |_| Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::Claim;

    fn queue(dir: &tempfile::TempDir) -> Queue {
        let target = Target {
            path: dir.path().join("sessions.sqlite"),
            max_bytes: None,
        };
        target.prepare(true).unwrap();
        Queue::start(target, Arc::default()).unwrap()
    }

    /// A batch of a session that is not there.
    fn batch() -> Batch {
        Batch {
            claim: Claim { num: 1, epoch: 1 },
            bytes: b"x\n".to_vec(),
            last_seq: 0,
            sync: false,
        }
    }

    #[test]
    fn a_batch_is_stored_by_its_caller_only_if_nobody_is_at_work() {
        let dir = tempfile::tempdir().unwrap();
        let queue = queue(&dir);
        let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        runtime.block_on(async {
            assert!(matches!(
                queue.append_here(&batch()),
                Some(Err(Fail::Write(_)))
            ));
            let (go, told) = channel();
            queue.post(move |_| told.recv().unwrap());
            assert!(queue.append_here(&batch()).is_none());
            go.send(()).unwrap();
            // Behind what was handed over before, it is done all the same.
            assert!(matches!(queue.append(batch()).await, Err(Fail::Write(_))));
        });
    }

    #[test]
    fn a_batch_is_handed_over_where_its_caller_must_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let queue = queue(&dir);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            assert!(queue.append_here(&batch()).is_none());
            assert!(matches!(queue.append(batch()).await, Err(Fail::Write(_))));
        });
    }
}
