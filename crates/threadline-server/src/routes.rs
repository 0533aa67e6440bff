//! The table of all routes: what the router serves and what the OpenAPI document says.

use axum::routing::{MethodRouter, delete, get, patch, post};

use crate::{
    branches, changes, error::Code, events, meta, metrics, openapi, queue, runs, sessions,
    state::Shared,
};

/// What an answer's body is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content {
    /// JSON of a schema.
    Json(&'static str),
    /// A stream of events.
    Events,
    /// Bytes of any kind.
    Bytes,
    /// Text.
    Text,
    /// Nothing.
    Empty,
}

/// A parameter of the query or a header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Param {
    pub(crate) place: &'static str,
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) about: &'static str,
}

/// What a parameter looks like.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Text,
    Whole,
    OneOf(&'static [&'static str]),
    Schema(&'static str),
}

/// One route.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) handler: MethodRouter<Shared>,
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) params: Vec<Param>,
    pub(crate) body: Option<&'static str>,
    pub(crate) status: u16,
    pub(crate) content: Content,
    pub(crate) errors: Vec<Code>,
    pub(crate) open: bool,
}

impl Route {
    fn new(
        (method, path): (&'static str, &'static str),
        handler: MethodRouter<Shared>,
        (name, about): (&'static str, &'static str),
        (status, content): (u16, Content),
    ) -> Self {
        Self {
            method,
            path,
            handler,
            name,
            about,
            params: Vec::new(),
            body: None,
            status,
            content,
            errors: Vec::new(),
            open: false,
        }
    }

    fn query(mut self, name: &'static str, kind: Kind, about: &'static str) -> Self {
        self.params.push(Param {
            place: "query",
            name,
            kind,
            about,
        });
        self
    }

    fn header(mut self, name: &'static str, kind: Kind, about: &'static str) -> Self {
        self.params.push(Param {
            place: "header",
            name,
            kind,
            about,
        });
        self
    }

    fn body(mut self, schema: &'static str) -> Self {
        self.body = Some(schema);
        self.errors.extend([Code::InvalidInput, Code::TooLarge]);
        self
    }

    fn errors(mut self, codes: &[Code]) -> Self {
        self.errors.extend_from_slice(codes);
        self
    }

    fn open(mut self) -> Self {
        self.open = true;
        self
    }
}

const SESSION: &str = "/api/agent/sessions/{id}";

/// Returns all routes.
pub(crate) fn table() -> Vec<Route> {
    let mut table = running();
    table.extend(listing());
    table.extend(branching());
    table.extend(queueing());
    table.extend(reading());
    table.extend(debugging());
    table.extend(other());
    table
}

fn running() -> Vec<Route> {
    vec![
        Route::new(
            ("post", "/api/agent/stream"),
            post(runs::stream),
            (
                "startRun",
                "Starts a turn and streams it, from `run_started` to one `run_finished` or \
             `error`. A client that goes away does not cancel the run.",
            ),
            (200, Content::Events),
        )
        .body("AgentInput")
        .errors(&[Code::PolicyCeiling]),
        Route::new(
            ("post", "/api/agent"),
            post(runs::once),
            (
                "runOnce",
                "Runs one turn on a fresh prompt and answers when it has ended. Nothing is \
             kept, nobody is asked for approvals, and the run ends when the client goes.",
            ),
            (200, Content::Json("RunResult")),
        )
        .body("AgentInput")
        .errors(&[
            Code::PolicyCeiling,
            Code::UnknownProvider,
            Code::MissingFolder,
            Code::InvalidEvent,
            Code::ShuttingDown,
        ]),
        Route::new(
            ("post", "/api/agent/sessions/{id}/cancel"),
            post(sessions::cancel),
            (
                "cancelRun",
                "Cancels the session's run. Its end is logged as `cancelled`.",
            ),
            (202, Content::Json("Cancelled")),
        )
        .errors(&[Code::SessionNotFound, Code::NotRunning, Code::Locked]),
        Route::new(
            ("get", "/api/agent/approvals"),
            get(meta::approvals),
            (
                "listApprovals",
                "Lists the questions that wait for a person, oldest first.",
            ),
            (200, Content::Json("Approvals")),
        )
        .query("runId", Kind::Text, "Only those of one run.")
        .errors(&[Code::InvalidInput]),
        Route::new(
            ("post", "/api/agent/approvals/{runId}/{toolCallId}"),
            post(meta::decide),
            (
                "decideApproval",
                "Answers a question. Any client may, once.",
            ),
            (200, Content::Json("Decided")),
        )
        .body("DecisionInput")
        .errors(&[Code::ApprovalNotFound, Code::AlreadyDecided]),
    ]
}

fn listing() -> Vec<Route> {
    vec![
        Route::new(
            ("get", "/api/agent/sessions"),
            get(sessions::list),
            ("listSessions", "Lists sessions, newest activity first."),
            (200, Content::Json("SessionPage")),
        )
        .query("cursor", Kind::Text, "`nextCursor` of the page before.")
        .query(
            "limit",
            Kind::Whole,
            "Sessions in a page: 1 to 500, 50 by default.",
        )
        .query(
            "query",
            Kind::Text,
            "Words that title, first prompt or id must contain.",
        )
        .query(
            "archived",
            Kind::OneOf(&["false", "true", "all"]),
            "`false` by default.",
        )
        .query(
            "status",
            Kind::Schema("Status"),
            "Only sessions that stand so.",
        )
        .query(
            "parent",
            Kind::Text,
            "Only the forks of this session: its whole id.",
        )
        .query("cwd", Kind::Text, "Only sessions of this folder.")
        .query(
            "pinned",
            Kind::OneOf(&["true", "false"]),
            "Only pinned sessions, or only others; both by default.",
        )
        .query(
            "skip",
            Kind::Whole,
            "Sessions before the page, instead of `cursor`: to jump to any place.",
        )
        .query(
            "count",
            Kind::OneOf(&["0", "1"]),
            "1: `counts` comes along, of all pages and of the whole store.",
        )
        .errors(&[Code::InvalidInput]),
        Route::new(
            ("get", "/api/agent/changes"),
            get(changes::follow),
            (
                "followChanges",
                "Says `changed` at once, and whenever a run begins or ends, a question is asked \
                 or answered, or a client changes a session here; what lists show may differ then.",
            ),
            (200, Content::Events),
        ),
        Route::new(
            ("get", SESSION),
            get(sessions::show),
            (
                "getSession",
                "Shows a session: header, summary and the heads of its turns.",
            ),
            (200, Content::Json("SessionDetail")),
        )
        .errors(&[Code::SessionNotFound, Code::Damaged, Code::Unsupported]),
        Route::new(
            ("patch", SESSION),
            patch(sessions::update),
            (
                "updateSession",
                "Changes title, archived, pinned or tags, if `revision` is still \
             the one in force. The log is not touched.",
            ),
            (200, Content::Json("Summary")),
        )
        .body("SummaryPatch")
        .errors(&[Code::SessionNotFound, Code::Conflict]),
        Route::new(
            ("delete", SESSION),
            delete(sessions::delete),
            ("deleteSession", "Deletes a session for good."),
            (204, Content::Empty),
        )
        .errors(&[Code::SessionNotFound, Code::SessionBusy, Code::Locked]),
    ]
}

fn branching() -> Vec<Route> {
    let moving = [
        Code::SessionNotFound,
        Code::TurnOpen,
        Code::SessionBusy,
        Code::Locked,
        Code::Fenced,
        Code::Damaged,
        Code::Unsupported,
        Code::StorageFull,
    ];
    vec![
        Route::new(
            ("post", "/api/agent/sessions/{id}/fork"),
            post(branches::fork),
            (
                "forkSession",
                "Makes a session that has the events of this one up to `at`, and goes its own \
                 way from there. This one is not touched and may be running.",
            ),
            (201, Content::Json("Forked")),
        )
        .body("ForkInput")
        .errors(&[
            Code::SessionNotFound,
            Code::NoSuchEvent,
            Code::ForkEmpty,
            Code::AlreadyExists,
            Code::Locked,
            Code::Damaged,
            Code::Unsupported,
            Code::StorageFull,
        ]),
        Route::new(
            ("post", "/api/agent/sessions/{id}/rewind"),
            post(branches::rewind),
            (
                "rewindSession",
                "Moves the history back to right after the event `to`. Nothing is removed from \
                 the log, and what tools have done is not undone.",
            ),
            (200, Content::Json("Moved")),
        )
        .body("RewindInput")
        .errors(&[Code::NoSuchEvent])
        .errors(&moving),
        Route::new(
            ("post", "/api/agent/sessions/{id}/redo"),
            post(branches::redo),
            ("redoSession", "Takes the last rewind back."),
            (200, Content::Json("Moved")),
        )
        .errors(&[Code::NothingToRedo])
        .errors(&moving),
        Route::new(
            ("get", "/api/agent/sessions/{id}/blobs/{blob}"),
            get(branches::blob),
            (
                "getBlob",
                "Gives a blob that the session's log names, such as the full output of a tool.",
            ),
            (200, Content::Bytes),
        )
        .errors(&[Code::SessionNotFound, Code::BlobNotFound, Code::Damaged]),
    ]
}

fn queueing() -> Vec<Route> {
    let opening = [
        Code::SessionNotFound,
        Code::Locked,
        Code::Fenced,
        Code::Damaged,
        Code::Unsupported,
        Code::StorageFull,
    ];
    let beginning = [
        Code::UnknownProvider,
        Code::MissingFolder,
        Code::ShuttingDown,
    ];
    vec![
        Route::new(
            ("get", "/api/agent/sessions/{id}/queue"),
            get(queue::show),
            (
                "listQueue",
                "Lists the messages that wait for their turn, in order.",
            ),
            (200, Content::Json("Queue")),
        )
        .errors(&[Code::SessionNotFound, Code::Damaged, Code::Unsupported]),
        Route::new(
            ("post", "/api/agent/sessions/{id}/queue"),
            post(queue::add),
            (
                "queueMessage",
                "Queues a message, durably: it is delivered once, after the turn or at its next \
                 step, also when this server dies meanwhile. With the `messageId` of one that \
                 still waits it takes its place. A session without a run begins to work on it.",
            ),
            (202, Content::Json("Queued")),
        )
        .body("QueueInput")
        .errors(&[
            Code::EmptyTask,
            Code::TooLarge,
            Code::QueueFull,
            Code::NotWaiting,
        ])
        .errors(&opening)
        .errors(&beginning),
        Route::new(
            ("post", "/api/agent/sessions/{id}/queue/deliver"),
            post(queue::deliver),
            (
                "deliverQueue",
                "Begins to work on what waits, as after a restart of the server.",
            ),
            (202, Content::Json("Delivered")),
        )
        .errors(&opening)
        .errors(&beginning),
        Route::new(
            ("delete", "/api/agent/sessions/{id}/queue/{messageId}"),
            delete(queue::drop),
            ("withdrawMessage", "Withdraws a message that still waits."),
            (204, Content::Empty),
        )
        .errors(&[Code::NotWaiting])
        .errors(&opening),
    ]
}

fn reading() -> Vec<Route> {
    vec![
        Route::new(
            ("get", "/api/agent/sessions/{id}/events"),
            get(events::follow),
            (
                "followSession",
                "Streams every event after a position, then every new one, without \
             end.",
            ),
            (200, Content::Events),
        )
        .query(
            "after",
            Kind::Text,
            "The last event that the client has; -1 or absent for none.",
        )
        .query(
            "view",
            Kind::OneOf(&["0", "1"]),
            "1: changes of the read model come along.",
        )
        .header("Last-Event-ID", Kind::Text, "Wins over `after`.")
        .errors(&[Code::BadCursor, Code::SessionNotFound, Code::InvalidInput]),
        Route::new(
            ("get", "/api/agent/sessions/{id}/turns"),
            get(sessions::turns),
            (
                "getTurns",
                "Shows the read model by turn, as far as the log can be read.",
            ),
            (200, Content::Json("Turns")),
        )
        .errors(&[Code::SessionNotFound, Code::Unsupported]),
        Route::new(
            ("get", "/api/agent/sessions/{id}/history"),
            get(sessions::history),
            (
                "getHistory",
                "Shows the model-visible items, and what normalising changes.",
            ),
            (200, Content::Json("History")),
        )
        .errors(&[Code::SessionNotFound, Code::Damaged, Code::Unsupported]),
    ]
}

fn debugging() -> Vec<Route> {
    vec![
        Route::new(
            ("get", "/api/agent/sessions/{id}/requests"),
            get(sessions::requests),
            (
                "listRequests",
                "Lists the requests that the session's steps sent.",
            ),
            (200, Content::Json("Requests")),
        )
        .errors(&[Code::SessionNotFound]),
        Route::new(
            ("get", "/api/agent/sessions/{id}/requests/{step}"),
            get(sessions::request),
            (
                "getRequest",
                "Rebuilds the request of a step from the log and checks its \
             fingerprint.",
            ),
            (200, Content::Json("RequestDetail")),
        )
        .errors(&[
            Code::InvalidInput,
            Code::SessionNotFound,
            Code::StepNotFound,
            Code::Damaged,
        ]),
        Route::new(
            ("get", "/api/agent/sessions/{id}/log"),
            get(sessions::log),
            ("getLog", "Shows the log's lines as they are stored."),
            (200, Content::Json("LogPage")),
        )
        .query("from", Kind::Whole, "First event wanted; 0 by default.")
        .query(
            "limit",
            Kind::Whole,
            "Most lines: 1 to 1000, 200 by default.",
        )
        .errors(&[Code::InvalidInput, Code::SessionNotFound]),
    ]
}

fn other() -> Vec<Route> {
    vec![
        Route::new(
            ("get", "/api/agent/config"),
            get(meta::config),
            (
                "getConfig",
                "Shows what new sessions run under and what may be asked for.",
            ),
            (200, Content::Json("Config")),
        ),
        Route::new(
            ("get", "/api/openapi.json"),
            get(openapi::show),
            ("getOpenApi", "Shows this document."),
            (200, Content::Json("OpenApi")),
        ),
        Route::new(
            ("get", "/healthz"),
            get(meta::health),
            ("getHealth", "Says that the server is up. Needs no token."),
            (200, Content::Json("Health")),
        )
        .open(),
        Route::new(
            ("get", "/metrics"),
            get(metrics::show),
            (
                "getMetrics",
                "Shows counters in the text format of Prometheus.",
            ),
            (200, Content::Text),
        ),
    ]
}
