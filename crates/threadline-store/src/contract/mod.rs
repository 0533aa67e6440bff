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
pub mod blobs;
pub mod branching;
pub mod checkpoints;
pub mod copying;
pub mod creation;
pub mod ending;
pub mod following;
pub mod listing;
pub mod reading;
pub mod repairing;
pub mod rewinding;
pub mod script;
pub mod taking_over;
pub mod windows;
mod wrapped;
pub mod writers;

pub use wrapped::Wrapped;

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

use async_trait::async_trait;
use threadline_session::{
    Event, Header, OsPath, Payload, Request, SessionId, Transcript, closers, codec::Line,
};

use crate::{
    AppendOptions, Backend, BackendError, Checkpoint, Clock, Entry, Loaded, ReadPos, SessionStore,
    SessionWriter, StoreOptions,
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

    /// Returns the fixture with checkpoints after so many bytes of log, so that small logs have
    /// some too.
    #[must_use]
    pub fn with_checkpoints_every(self, bytes: u64) -> Self {
        let reopen = self.reopen;
        Self {
            backend: Arc::new(Eager(self.backend, bytes)),
            reopen: Box::new(move || Arc::new(Eager(reopen(), bytes))),
        }
    }

    /// Returns a store over the same storage that keeps a checkpoint whenever one could be due.
    #[must_use]
    pub fn eager(&self, options: StoreOptions) -> SessionStore {
        SessionStore::new(Arc::new(Eager((self.reopen)(), 1)), options)
    }

    /// Returns a store over the same storage that neither uses checkpoints nor keeps any.
    #[must_use]
    pub fn blind(&self, options: StoreOptions) -> SessionStore {
        SessionStore::new(Arc::new(Blind((self.reopen)())), options)
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

struct Eager(Arc<dyn Backend>, u64);

impl Wrapped for Eager {
    fn inner(&self) -> &dyn Backend {
        &*self.0
    }

    fn checkpoint_every(&self) -> u64 {
        self.1
    }
}

struct Blind(Arc<dyn Backend>);

#[async_trait]
impl Wrapped for Blind {
    fn inner(&self) -> &dyn Backend {
        &*self.0
    }

    async fn checkpoint(&self, _: &SessionId, _: u64) -> Result<Option<Checkpoint>, BackendError> {
        Ok(None)
    }

    fn checkpoint_every(&self) -> u64 {
        u64::MAX
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
            reading::a_step_is_found_without_going_through_the_log,
            reading::the_state_of_the_next_opening_is_shown_without_opening,
            reading::a_check_says_how_far_it_is_and_ends_when_it_is_told_to,
            reading::the_request_of_a_step_is_rebuilt,
            windows::windows_of_any_size_join_to_the_whole_read_model,
            windows::a_window_is_found_around_every_event_and_at_every_turn,
            windows::following_from_any_event_tells_the_same_changes,
            following::every_event_after_any_point_comes_once,
            following::each_append_reaches_a_waiting_follower_elsewhere,
            following::a_follower_ahead_of_the_log_waits_for_its_place,
            following::events_appended_while_following_come_once,
            following::a_session_is_followed_before_its_first_event,
            following::a_follower_outlives_the_writer,
            following::a_dropped_wait_loses_no_event,
            following::a_follower_of_a_deleted_session_is_told,
            branching::a_fork_at_any_event_has_the_request_of_that_event,
            branching::a_fork_shares_its_events_and_names_its_parent,
            branching::a_fork_in_a_turn_is_closed_and_its_parent_is_not,
            branching::forks_of_forks_are_whole_at_every_part,
            branching::a_fork_is_not_moved_by_what_its_parent_does_next,
            branching::a_fork_that_cannot_be_leaves_nothing,
            branching::a_session_without_events_cannot_be_forked,
            branching::a_fork_goes_on_by_itself,
            branching::keys_of_the_shared_part_are_known_to_a_fork,
            branching::deleting_a_parent_leaves_its_forks_whole,
            branching::deleting_a_parent_while_it_is_forked_tears_nothing,
            branching::of_forks_under_one_id_one_is_made,
            rewinding::a_rewind_to_any_event_gives_the_history_of_that_event,
            rewinding::rewinds_are_redone_one_after_the_other,
            rewinding::a_rewind_that_was_built_upon_is_not_redone,
            rewinding::a_rewind_reaches_behind_a_compaction,
            rewinding::a_rewind_that_cannot_be_writes_nothing,
            rewinding::calls_that_a_rewind_opens_are_answered_as_unknown,
            rewinding::a_rewind_into_a_turn_is_redone,
            rewinding::a_rewind_survives_opening_again,
            rewinding::a_rewind_far_behind_a_checkpoint_is_the_same_without,
            checkpoints::opening_from_a_checkpoint_gives_the_state_of_the_whole_log,
            checkpoints::a_checkpoint_in_a_turn_gives_the_same_closers,
            checkpoints::what_follows_a_checkpoint_is_the_same_bytes,
            checkpoints::keys_are_known_behind_a_checkpoint,
            checkpoints::a_checkpoint_hides_no_unknown_type,
            checkpoints::a_fork_at_any_event_is_the_same_without_checkpoints,
            checkpoints::a_checkpoint_comes_back_as_it_was_put,
            checkpoints::a_garbled_checkpoint_is_passed_over,
            checkpoints::a_checkpoint_goes_with_its_session,
            checkpoints::a_take_over_behind_a_checkpoint_keeps_the_chain,
            taking_over::a_writer_that_was_taken_over_stores_nothing,
            taking_over::a_flush_after_a_take_over_is_fenced,
            taking_over::a_turn_that_is_taken_over_is_closed,
            taking_over::a_session_that_nobody_holds_is_taken_over,
            taking_over::taking_over_an_unknown_session_is_not_found,
            taking_over::a_session_taken_over_again_and_again_is_whole,
            taking_over::a_fenced_writer_that_goes_frees_nothing,
            taking_over::a_follower_sees_every_event_once_over_take_overs,
            taking_over::a_session_that_was_taken_over_is_forked,
            taking_over::stored_is_what_was_acknowledged_over_take_overs,
            taking_over::an_unknown_outcome_is_settled_by_its_key,
            blobs::a_blob_comes_back_byte_for_byte,
            blobs::a_blob_that_is_not_there_is_told,
            blobs::a_damaged_blob_is_told,
            blobs::a_blob_over_the_limit_is_refused,
            blobs::blobs_that_nothing_names_are_removed,
            blobs::blobs_that_a_log_names_are_kept,
            blobs::blobs_of_a_fork_outlive_its_parent,
            blobs::blobs_outlive_a_take_over,
            blobs::young_blobs_are_kept,
            blobs::a_blob_put_again_is_not_removed_by_an_older_look,
            blobs::clearing_away_takes_nothing_that_is_being_named,
            copying::a_copy_is_the_same_bytes,
            copying::a_copy_catches_up_with_what_has_grown,
            copying::sessions_that_differ_are_left_alone,
            copying::a_session_that_cannot_be_trusted_is_not_copied,
            copying::damage_is_not_caught_up_with,
            copying::a_copied_fork_keeps_its_parts,
            copying::titles_and_blobs_are_copied,
            copying::a_session_with_a_damaged_blob_is_not_copied,
            copying::a_copy_that_cannot_be_made_changes_nothing,
            repairing::a_damaged_log_is_repaired_under_its_numbers,
            repairing::the_log_before_a_repair_is_kept_aside,
            repairing::a_repair_forgets_the_checkpoints_of_the_old_log,
            repairing::lists_see_a_repair,
            repairing::a_session_being_written_is_not_repaired,
            repairing::a_repair_that_is_given_up_changes_nothing,
            repairing::a_repair_and_other_writers_fence_each_other,
            repairing::forks_of_a_repaired_session_stay_as_they_are,
            repairing::a_fork_of_a_damaged_session_is_repaired_alone,
            listing::lists_show_the_newest_activity_first,
            listing::pages_of_a_list_join_without_gap_or_repeat,
            listing::a_cursor_that_no_list_gave_is_refused,
            listing::filters_narrow_a_list,
            listing::words_are_found_in_tags,
            listing::a_filter_by_status_sees_who_writes_now,
            listing::a_filter_by_parent_gives_its_forks,
            listing::a_list_of_trees_shows_each_session_once,
            listing::a_filter_by_model_gives_those_that_used_it_last,
            listing::pins_counts_and_places_agree_with_the_whole_list,
            listing::pages_stay_in_order_while_sessions_change,
            listing::a_list_shows_what_others_have_done,
            listing::lists_agree_after_many_changes_at_once,
            listing::a_row_tells_what_the_log_says,
            listing::an_update_leaves_the_log_alone,
            listing::a_made_title_stands_behind_a_persons,
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
            // On the heap, and made in a frame of its own: the states of all cases together are
            // more than a stack.
            let case = Box::pin(async { Box::pin($module::$case($make().await)).await });
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

/// A clock that stands still.
#[derive(Debug)]
struct Still(u64);

impl Clock for Still {
    fn now_ms(&self) -> u64 {
        self.0
    }
}

/// Options under which the same work gives the same bytes.
pub(crate) fn still(now_ms: u64) -> StoreOptions {
    StoreOptions {
        clock: Arc::new(Still(now_ms)),
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
        Entry::Line(line, _) => line,
        Entry::Header(_) => panic!("a header among the events"),
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

/// Everything that the storage gives of a log, header lines of its parts included.
pub(crate) async fn raw(store: &SessionStore, id: &SessionId) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut pos = ReadPos::default();
    loop {
        let page = store.backend().page(id, pos, 1 << 16).await.unwrap();
        all.extend(page.entries.into_iter().map(|entry| match entry {
            Entry::Header(line) => line,
            entry => line(entry).raw,
        }));
        if page.end {
            return all;
        }
        pos = page.next;
    }
}

/// The request that the next step would send, as JSON; or why there is none.
pub(crate) fn request(state: &Transcript) -> String {
    match Request::build(state) {
        Ok((request, _)) => serde_json::to_string(&request).unwrap(),
        Err(error) => error.to_string(),
    }
}

/// The request of a session being written.
pub(crate) async fn request_of(writer: &SessionWriter) -> String {
    writer.with_transcript(request).await
}

/// Events, and what closes them.
pub(crate) fn closed(events: &[Event]) -> Vec<Event> {
    let state = Transcript::fold(events).unwrap();
    let mut all = events.to_vec();
    all.extend(closers(&state).unwrap());
    all
}

/// The request of a session that has these events and was then opened.
pub(crate) fn request_after(events: &[Event]) -> String {
    request(&Transcript::fold(&closed(events)).unwrap())
}

/// Records payloads, durably, and returns the last event's number.
pub(crate) async fn record(writer: &SessionWriter, payloads: Vec<Payload>) -> u64 {
    let recorded = writer.record(payloads, AppendOptions::barrier()).await;
    recorded.unwrap().last_seq
}

/// Where a [`busy`] session has something to look at.
pub(crate) struct Marks {
    /// End of the first turn, whose three calls ran at once.
    pub(crate) first: u64,
    /// In the first turn: `b` has its result, `a` has none, `c` has not begun.
    pub(crate) inside: u64,
    /// End of the second turn.
    pub(crate) second: u64,
    /// The compaction of the first turn.
    pub(crate) compaction: u64,
}

/// Makes a session of several turns with parallel calls, an approval, a compaction, rewinds behind
/// it and into a turn, and a redo. No turn is open.
pub(crate) async fn busy(store: &SessionStore, id: &SessionId) -> (SessionWriter, Marks) {
    let writer = store.create(header_of(id)).await.unwrap();
    let first = record(&writer, script::turn_with_calls(1, 1)).await;
    let second = script::turn_with_question(2, 3);
    let second = writer.record(second, keyed("second")).await.unwrap();
    let compaction = record(&writer, vec![script::compaction(0, first, &[2])]).await;
    let third = record(&writer, script::plain_turn(3, "third")).await;
    writer.rewind(first).await.unwrap();
    record(&writer, script::plain_turn(4, "fourth")).await;
    let inside = 8;
    writer.rewind(inside).await.unwrap();
    record(&writer, script::plain_turn(5, "fifth")).await;
    writer.rewind(third).await.unwrap();
    writer.redo().await.unwrap();
    let marks = Marks {
        first,
        inside,
        second: second.last_seq,
        compaction,
    };
    (writer, marks)
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
