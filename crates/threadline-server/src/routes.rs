//! The table of all routes: what the router serves and what the OpenAPI document says.

use axum::{
    extract::DefaultBodyLimit,
    routing::{MethodRouter, delete, get, patch, post},
};

use crate::{
    audit, branches, changes, check, error::Code, events, export, grants, limits::IMAGE_BODY_BYTES,
    lineage, meta, metrics, openapi, queue, runs, sessions, state::Shared, timeline, turns,
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

    /// The same for a body that may hold images, and therefore be longer than others.
    fn body_with_images(mut self, schema: &'static str) -> Self {
        self.handler = self.handler.layer(DefaultBodyLimit::max(IMAGE_BODY_BYTES));
        self.errors.push(Code::BadImage);
        self.body(schema)
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
    table.extend(granting());
    table.extend(reading());
    table.extend(debugging());
    table.extend(looking_after());
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
        .body_with_images("AgentInput")
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
        .body_with_images("AgentInput")
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
        .errors(&[
            Code::ApprovalNotFound,
            Code::AlreadyDecided,
            Code::PolicyCeiling,
        ]),
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
            "Words, each of them in title, first prompt or a tag, or what the id begins with.",
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
            "model",
            Kind::Text,
            "Only sessions that used this model last: PROVIDER/MODEL.",
        )
        .query(
            "tree",
            Kind::OneOf(&["0", "1"]),
            "1: without `parent`, only sessions whose parent the list does not show; each says how \
             many `children` it shows below. Not with `status`.",
        )
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
            ("getSession", "Shows a session: its header and its summary."),
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
        .body_with_images("QueueInput")
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

fn granting() -> Vec<Route> {
    let opening = [
        Code::SessionNotFound,
        Code::SessionBusy,
        Code::Locked,
        Code::Fenced,
        Code::Damaged,
        Code::Unsupported,
        Code::StorageFull,
    ];
    vec![
        Route::new(
            ("get", "/api/agent/sessions/{id}/grants"),
            get(grants::show),
            (
                "listGrants",
                "Lists what is approved for the rest of the session, oldest first.",
            ),
            (200, Content::Json("Grants")),
        )
        .errors(&[Code::SessionNotFound, Code::Damaged, Code::Unsupported]),
        Route::new(
            ("post", "/api/agent/sessions/{id}/grants"),
            post(grants::add),
            (
                "grantCommands",
                "Approves commands that begin with some words, from the session's next call on. \
                 What is granted already is given again. A session without a run is opened for \
                 it, which closes an interrupted turn.",
            ),
            (201, Content::Json("Grant")),
        )
        .body("GrantInput")
        .errors(&[Code::PolicyCeiling, Code::GrantsFull, Code::ShuttingDown])
        .errors(&opening),
        Route::new(
            ("delete", "/api/agent/sessions/{id}/grants/{grantId}"),
            delete(grants::revoke),
            (
                "revokeGrant",
                "Ends a grant, from the session's next call on.",
            ),
            (204, Content::Empty),
        )
        .errors(&[Code::GrantNotFound])
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
            get(turns::turns),
            (
                "getTurns",
                "Shows a page of the read model by turn, the newest one when no place is named. \
                 Pages end where a turn or a step begins: the first turn of a page may have begun \
                 in the page before, the last one may go on in the page behind.",
            ),
            (200, Content::Json("Turns")),
        )
        .query(
            "before",
            Kind::Whole,
            "The page that ends before this event: `from` of the page that is there.",
        )
        .query(
            "from",
            Kind::Whole,
            "The page that begins at this event: `to` of the page that is there.",
        )
        .query("around", Kind::Whole, "A page that this event is in.")
        .query("turn", Kind::Whole, "The page that begins with this turn.")
        .query(
            "limit",
            Kind::Whole,
            "About how many items a page has: 1 to 500, 100 by default. A step is never split.",
        )
        .errors(&[Code::InvalidInput, Code::SessionNotFound, Code::Unsupported]),
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
                "Lists the requests that the session's steps sent, the newest page by default.",
            ),
            (200, Content::Json("Requests")),
        )
        .query("before", Kind::Whole, "`next` of the page behind.")
        .query(
            "limit",
            Kind::Whole,
            "Most requests: 1 to 500, 200 by default.",
        )
        .errors(&[Code::InvalidInput, Code::SessionNotFound, Code::Damaged]),
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
        .query(
            "seq",
            Kind::Whole,
            "The step's event, as in the list; without it the step is looked for.",
        )
        .errors(&[
            Code::InvalidInput,
            Code::SessionNotFound,
            Code::StepNotFound,
            Code::Damaged,
        ]),
        Route::new(
            ("get", "/api/agent/sessions/{id}/timeline"),
            get(timeline::show),
            (
                "getTimeline",
                "Shows when the model calls, tools and questions of a turn began and ended.",
            ),
            (200, Content::Json("Timeline")),
        )
        .query("turn", Kind::Whole, "Its number; the newest by default.")
        .errors(&[Code::InvalidInput, Code::SessionNotFound, Code::Damaged]),
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

fn looking_after() -> Vec<Route> {
    let reading = [Code::SessionNotFound, Code::Damaged, Code::InvalidInput];
    let checking = [
        Code::SessionNotFound,
        Code::Damaged,
        Code::InvalidInput,
        Code::ShuttingDown,
    ];
    vec![
        Route::new(
            ("post", "/api/agent/sessions/{id}/verify"),
            post(check::verify),
            (
                "verifySession",
                "Checks every record of the log, and every link of its chain. Nothing is changed.",
            ),
            (200, Content::Json("Verified")),
        )
        .query(
            "requests",
            Kind::OneOf(&["0", "1"]),
            "1: the request of every step is rebuilt and compared too.",
        )
        .errors(&checking),
        Route::new(
            ("post", "/api/agent/sessions/{id}/verify/stream"),
            post(check::verify_stream),
            (
                "verifySessionStream",
                "The same, saying meanwhile how far it is. It ends when the client goes.",
            ),
            (200, Content::Events),
        )
        .query(
            "requests",
            Kind::OneOf(&["0", "1"]),
            "1: the request of every step is rebuilt and compared too.",
        )
        .errors(&checking),
        Route::new(
            ("get", "/api/agent/sessions/{id}/sync"),
            get(check::sync),
            (
                "getSync",
                "Says how far the log is known to be durable, and who writes it.",
            ),
            (200, Content::Json("Sync")),
        )
        .errors(&reading),
        Route::new(
            ("get", "/api/agent/sessions/{id}/lineage"),
            get(lineage::show),
            (
                "getLineage",
                "Shows what a session was forked or begun from, what else was, and what came of it.",
            ),
            (200, Content::Json("Lineage")),
        )
        .query("children", Kind::Text, "`children.nextCursor` of the page before.")
        .query("siblings", Kind::Text, "`siblings.nextCursor` of the page before.")
        .errors(&reading),
        Route::new(
            ("get", "/api/agent/sessions/{id}/audit"),
            get(audit::show),
            (
                "getAudit",
                "Lists questions, decisions and changes of policy, newest first.",
            ),
            (200, Content::Json("Audit")),
        )
        .query("before", Kind::Whole, "`next` of the page before.")
        .query(
            "limit",
            Kind::Whole,
            "Most entries: 1 to 500, 100 by default. A page may have fewer, and others behind it.",
        )
        .errors(&reading),
        Route::new(
            ("get", "/api/agent/sessions/{id}/export"),
            get(export::download),
            (
                "exportSession",
                "Gives the session as a file: its log as it is stored, Markdown, or one page of HTML.",
            ),
            (200, Content::Bytes),
        )
        .query(
            "format",
            Kind::OneOf(&["jsonl", "markdown", "html"]),
            "`jsonl` by default.",
        )
        .errors(&reading),
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
