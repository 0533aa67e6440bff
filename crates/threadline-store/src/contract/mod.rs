//! The suite that every backend must pass, so that all of them mean the same.
//!
//! A backend supplies a constructor of an empty store and gets one test per case:
//!
//! ```text
//! async fn make() -> threadline_store::contract::Fixture { /* ... */ }
//! threadline_store::contract_tests!(make);
//! ```
//! No case sleeps: each waits for what it wants to see. A case that hangs is stopped and fails.
// A suite of tests speaks by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod append;
pub mod creation;
pub mod ending;
pub mod following;
pub mod listing;
pub mod reading;
pub mod script;
pub mod writers;

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use threadline_session::{Event, Header, OsPath, SessionId, codec::Line};

use crate::{
    AppendOptions, Backend, Clock, Entry, Loaded, ReadPos, SessionStore, SessionWriter,
    StoreOptions,
};

/// An empty backend, and the way to open what it stored once more.
pub struct Fixture {
    /// The backend, empty.
    pub backend: Arc<dyn Backend>,
    /// Opens the same storage again, as another process would. May own what must live as long as
    /// the storage, such as a temporary directory.
    pub reopen: Box<dyn Fn() -> Arc<dyn Backend> + Send + Sync>,
}

impl Fixture {
    /// Makes a fixture from a function that opens the same storage each time.
    pub fn new(open: impl Fn() -> Arc<dyn Backend> + Send + Sync + 'static) -> Self {
        Self {
            backend: open(),
            reopen: Box::new(open),
        }
    }

    /// Returns a store over the backend.
    #[must_use]
    pub fn store(&self) -> SessionStore {
        self.store_with(options())
    }

    /// Returns a store over the backend with these options.
    #[must_use]
    pub fn store_with(&self, options: StoreOptions) -> SessionStore {
        SessionStore::new(self.backend.clone(), options)
    }

    /// Returns a store over the same storage opened once more.
    #[must_use]
    pub fn reopened(&self) -> SessionStore {
        self.reopened_with(options())
    }

    /// Returns a store with these options over the same storage opened once more.
    #[must_use]
    pub fn reopened_with(&self, options: StoreOptions) -> SessionStore {
        SessionStore::new((self.reopen)(), options)
    }
}

/// Runs every case, each on a fixture of its own.
pub async fn run_all(make: impl AsyncFn() -> Fixture) {
    crate::__contract_cases!(__contract_run; make);
}

/// The one list of cases. Hands it to a macro, behind that macro's own arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! __contract_cases {
    ($then:ident; $($given:tt)*) => {
        $crate::$then! {
            $($given)*;
            creation::a_log_comes_back_byte_for_byte,
            creation::a_session_without_events_is_nowhere,
            creation::a_writer_dropped_before_its_first_append_leaves_nothing,
            creation::a_taken_id_is_refused,
            creation::of_two_creators_the_second_to_append_is_refused,
            creation::a_refused_first_batch_creates_nothing,
            creation::ids_with_odd_characters_come_back_as_they_were,
            creation::a_deleted_session_is_gone_and_its_id_free,
            creation::deleting_an_unknown_session_is_not_found,
            creation::a_session_being_written_is_not_deleted,
            creation::deleting_one_session_leaves_the_others,
            creation::opening_without_appending_writes_nothing,
            creation::a_session_continues_over_many_openings,
            creation::the_live_state_is_the_stored_state,
            append::another_first_number_is_a_conflict,
            append::a_batch_numbered_from_elsewhere_is_refused,
            append::a_gap_in_a_batch_stores_nothing_of_it,
            append::batches_are_accepted_up_to_their_limit,
            append::data_that_is_no_object_on_one_line_is_refused,
            append::known_types_with_data_of_another_shape_are_refused,
            append::an_event_is_accepted_up_to_the_size_limit,
            append::unknown_types_are_refused_unless_ignorable,
            append::a_registered_type_is_needed_by_those_who_continue,
            append::a_repeated_key_stores_nothing_and_gives_the_first_result,
            append::a_refused_batch_leaves_its_key_free,
            append::a_repeat_with_a_barrier_is_durable,
            append::recorded_payloads_are_numbered_and_timed,
            append::a_barrier_moves_the_durable_mark,
            append::every_durability_level_keeps_its_promise,
            append::a_flush_makes_everything_durable,
            append::what_was_read_is_not_taken_for_durable,
            append::clocks_may_jump,
            ending::an_interrupted_turn_is_closed_once,
            ending::closers_are_durable_when_the_session_is_open,
            ending::a_run_killed_at_any_event_goes_on,
            ending::streamed_text_survives_its_run,
            ending::inspecting_an_interrupted_session_writes_nothing,
            ending::inspecting_a_session_being_written_shows_no_closers,
            ending::a_closed_session_goes_on,
            writers::a_second_writer_is_refused_by_name_until_the_first_is_gone,
            writers::a_session_being_written_can_be_read,
            writers::a_conflict_leaves_the_writer_usable,
            writers::of_appends_that_expect_the_same_number_one_is_stored,
            writers::records_of_many_tasks_make_one_gapless_log,
            writers::a_dropped_append_does_not_part_writer_and_storage,
            writers::a_session_is_free_after_its_writer_and_its_append_are_dropped,
            writers::many_sessions_are_written_at_once,
            reading::reading_from_any_event_gives_the_rest,
            reading::pages_of_any_size_join_to_the_whole_log,
            reading::a_log_of_many_pages_comes_whole,
            reading::reading_an_unknown_session_is_not_found,
            reading::a_stamp_changes_with_the_log_alone,
            reading::the_verified_head_moves_with_each_turn_alone,
            reading::the_request_of_a_step_is_rebuilt,
            following::every_event_after_any_point_comes_once,
            following::a_follower_ahead_of_the_log_waits_for_its_place,
            following::events_appended_while_following_come_once,
            following::a_session_is_followed_before_its_first_event,
            following::a_follower_outlives_the_writer,
            following::a_dropped_wait_loses_no_event,
            following::a_follower_of_a_deleted_session_is_told,
            listing::lists_show_the_newest_activity_first,
            listing::pages_of_a_list_join_without_gap_or_repeat,
            listing::a_cursor_that_no_list_gave_is_refused,
            listing::filters_narrow_a_list,
            listing::a_row_tells_what_the_log_says,
            listing::an_update_leaves_the_log_alone,
            listing::an_update_of_an_old_revision_is_a_conflict,
            listing::of_updates_made_at_once_one_is_kept,
            listing::titles_and_tags_are_accepted_up_to_their_limits,
            listing::updating_an_unknown_session_is_not_found,
            listing::a_session_made_again_under_an_old_id_has_no_title,
        }
    };
}

/// Expands to one test per case of the contract, given an async function that makes a
/// [`Fixture`](crate::contract::Fixture).
#[macro_export]
macro_rules! contract_tests {
    ($make:path) => {
        $crate::__contract_cases!(__contract_test; $make);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __contract_run {
    ($make:path; $($module:ident::$case:ident),* $(,)?) => {
        $(
            // On the heap: the states of all cases together are more than a stack.
            let case = Box::pin(async { $module::$case($make().await).await });
            within(stringify!($case), case).await;
        )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __contract_test {
    ($make:path; $($module:ident::$case:ident),* $(,)?) => {
        $(
            #[test]
            fn $case() {
                $crate::contract::run_case(stringify!($case), async {
                    $crate::contract::$module::$case($make().await).await;
                });
            }
        )*
    };
}

/// Runs one case to its end.
#[doc(hidden)]
pub fn run_case(name: &str, case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(within(name, case));
}

/// Nothing waits this long; a hang must fail instead of blocking every other test.
const HANGING: Duration = Duration::from_secs(120);

async fn within(name: &str, case: impl Future<Output = ()>) {
    tokio::time::timeout(HANGING, case)
        .await
        .unwrap_or_else(|_| panic!("{name} hangs"));
}

/// A clock that moves one millisecond at each look, so that times tell events apart.
#[derive(Debug)]
struct Ticks(AtomicU64);

impl Clock for Ticks {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

pub(crate) fn options() -> StoreOptions {
    StoreOptions {
        clock: Arc::new(Ticks(AtomicU64::new(1_700_000_000_000))),
        ..StoreOptions::default()
    }
}

pub(crate) fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

pub(crate) fn new_id() -> SessionId {
    SessionId::from_uuid(uuid::Uuid::now_v7())
}

pub(crate) fn header_of(id: &SessionId) -> Header {
    Header::new(id.clone(), 1_700_000_000_000, OsPath::from("/work"))
}

pub(crate) fn plain() -> AppendOptions {
    AppendOptions::default()
}

pub(crate) fn keyed(key: &str) -> AppendOptions {
    AppendOptions {
        key: Some(key.into()),
        barrier: false,
    }
}

/// Creates a session and stores these events.
pub(crate) async fn stored(
    store: &SessionStore,
    id: &SessionId,
    events: Vec<Event>,
) -> SessionWriter {
    let writer = store.create(header_of(id)).await.unwrap();
    writer
        .append(0, events, AppendOptions::barrier())
        .await
        .unwrap();
    writer
}

/// Opens a session for writing once its last writer has let go of it.
pub(crate) async fn load(store: &SessionStore, id: &SessionId) -> Loaded {
    store.load(id).await.unwrap()
}

/// Reads the whole log, which must be undamaged.
pub(crate) async fn lines(store: &SessionStore, id: &SessionId) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut pos = Some(ReadPos::default());
    while let Some(from) = pos {
        let page = store.read(id, from, 1000).await.unwrap();
        assert!(page.next != Some(from), "the pages go round in circles");
        pos = page.next;
        lines.extend(page.entries.into_iter().map(line));
    }
    lines
}

pub(crate) fn line(entry: Entry) -> Line {
    match entry {
        Entry::Line(line) => line,
        Entry::Damage(damage) => panic!("{damage}"),
    }
}

pub(crate) async fn events(store: &SessionStore, id: &SessionId) -> Vec<Event> {
    lines(store, id)
        .await
        .into_iter()
        .map(|line| line.event)
        .collect()
}

/// Header and log, byte for byte.
pub(crate) async fn bytes(store: &SessionStore, id: &SessionId) -> Vec<Vec<u8>> {
    let mut all = vec![store.header(id).await.unwrap().line];
    all.extend(lines(store, id).await.into_iter().map(|line| line.raw));
    all
}

/// Checks that a log is numbered from 0 without a gap and that `verify` agrees.
pub(crate) async fn sound(store: &SessionStore, id: &SessionId) {
    let seqs: Vec<u64> = events(store, id)
        .await
        .iter()
        .map(|event| event.seq)
        .collect();
    assert_eq!(seqs, (0..seqs.len() as u64).collect::<Vec<_>>());
    let report = store.verify(id).await.unwrap();
    assert!(report.ok, "{:?}", report.findings);
    assert_eq!(report.events, seqs.len() as u64);
}

/// Looks at a future once, as one that is about to be dropped.
pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

/// Checks that a result is an error of a certain shape, and returns what it binds.
macro_rules! refused {
    ($result:expr, $pattern:pat => $value:expr) => {
        match $result {
            Err($pattern) => $value,
            other => panic!("expected {}, got {other:?}", stringify!($pattern)),
        }
    };
    ($result:expr, $pattern:pat) => {
        $crate::contract::refused!($result, $pattern => ())
    };
}
pub(crate) use refused;
