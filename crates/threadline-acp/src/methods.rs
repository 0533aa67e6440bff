//! What a client asks of sessions, method by method.

use std::{future::Future, path::Path, pin::Pin, sync::Arc};

use agent_client_protocol_schema::{
    ProtocolVersion,
    v1::{
        AgentCapabilities, AvailableCommand, AvailableCommandsUpdate, CloseSessionRequest,
        CloseSessionResponse, ConfigOptionUpdate, CurrentModeUpdate, DeleteSessionRequest,
        DeleteSessionResponse, Error, ForkSessionRequest, ForkSessionResponse, Implementation,
        InitializeRequest, InitializeResponse, ListSessionsRequest, ListSessionsResponse,
        LoadSessionRequest, LoadSessionResponse, McpCapabilities, McpServer, NewSessionRequest,
        NewSessionResponse, PromptCapabilities, PromptRequest, ResumeSessionRequest,
        ResumeSessionResponse, SessionCapabilities, SessionCloseCapabilities,
        SessionDeleteCapabilities, SessionForkCapabilities, SessionInfo, SessionInfoUpdate,
        SessionListCapabilities, SessionResumeCapabilities, SessionTitleCapabilities,
        SessionUpdate, SetSessionConfigOptionRequest, SetSessionConfigOptionResponse,
        SetSessionModeRequest, SetSessionModeResponse, SetSessionTitleRequest,
        SetSessionTitleResponse, SystemPrompt,
    },
};
use serde::Deserialize;
use serde_json::{Map, json};
use threadline_agent::{COMPACT_COMMAND, new_run_id, read_code};
use threadline_session::{SessionId, payload::TurnContext};
use threadline_store::{
    DeleteError, ForkError, ListError, ListFilter, ReadError, SessionStatus, SessionSummary,
    SummaryPatch, UpdateError, error_chain,
};

use crate::{
    connection::{Connection, failed, not_found},
    lent::Offered,
    limits::{LIST_PAGE, SESSION_TITLE_CHARS, TITLE_TRIES},
    live, load, mcp, offer,
    options::{self, Settings},
    prompt,
    rpc::{Id, Params, invalid_params, invalid_request},
    sessions::Open,
    text,
};

/// The rest of a request, after what had to be done while its line was read.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Begins a request. The work it returns answers it.
///
/// # Errors
/// Answers it at once.
pub(crate) fn begin(
    connection: &Arc<Connection>,
    id: Id,
    method: &str,
    params: &Params,
) -> Result<Work, Error> {
    let c = connection.clone();
    match method {
        "initialize" => {
            let answer = initialize(&c, params.read()?);
            Ok(answered(c, id, answer))
        }
        // Nothing has to be proven to this agent, so it offers no way to do so.
        "authenticate" => Err(invalid_params("this agent offers no authentication method")),
        "session/new" => {
            let request = params.read()?;
            Ok(Box::pin(async move { new(&c, &id, request).await }))
        }
        "session/load" => {
            let request = params.read()?;
            Ok(Box::pin(async move { load(&c, &id, request).await }))
        }
        "session/resume" => {
            let request = params.read()?;
            Ok(Box::pin(async move { resume(&c, &id, request).await }))
        }
        "session/fork" => {
            let request = params.read()?;
            Ok(Box::pin(async move { fork(&c, &id, request).await }))
        }
        "session/list" => {
            let request = params.read()?;
            Ok(Box::pin(async move {
                let answer = list(&c, request).await;
                c.respond(&id, answer).await;
            }))
        }
        "session/close" => {
            let request: CloseSessionRequest = params.read()?;
            Ok(Box::pin(async move {
                let answer = close(&c, &request.session_id.0).await;
                c.respond(&id, answer.map(|()| CloseSessionResponse::default()))
                    .await;
            }))
        }
        "session/delete" => {
            let request: DeleteSessionRequest = params.read()?;
            Ok(Box::pin(async move {
                let answer = delete(&c, &request.session_id.0).await;
                c.respond(&id, answer.map(|()| DeleteSessionResponse::default()))
                    .await;
            }))
        }
        "session/prompt" => {
            let request: PromptRequest = params.read()?;
            let open = open(&c, &request.session_id.0)?;
            let said = prompt::read(request.prompt)?;
            let ticket = open.note(id)?;
            Ok(Box::pin(live::prompt(c, open, ticket, said)))
        }
        "session/set_mode" => {
            let request: SetSessionModeRequest = params.read()?;
            let (open, policy) = (open(&c, &request.session_id.0)?, &request.mode_id.0);
            set(&c, &open, |settings| {
                settings.set_named(&c.agents, options::APPROVAL, policy)
            })?;
            Ok(Box::pin(async move {
                c.respond(&id, Ok(SetSessionModeResponse::default())).await;
                tell_settings(&c, &open).await;
            }))
        }
        // An older name for one of the options.
        "session/set_model" => {
            let request: SetModel = params.read()?;
            let open = open(&c, &request.session_id)?;
            set(&c, &open, |settings| {
                settings.set_named(&c.agents, options::MODEL, &request.model_id)
            })?;
            Ok(Box::pin(async move {
                c.respond(&id, Ok(json!({}))).await;
                tell_settings(&c, &open).await;
            }))
        }
        "session/set_config_option" => {
            let request: SetSessionConfigOptionRequest = params.read()?;
            let open = open(&c, &request.session_id.0)?;
            let before = open.state().settings.mode();
            set(&c, &open, |settings| {
                settings.set(&c.agents, &request.config_id.0, &request.value)
            })?;
            Ok(Box::pin(async move {
                let settings = open.state().settings.clone();
                let options = settings.options(&c.agents);
                let answer = SetSessionConfigOptionResponse::new(options);
                c.respond(&id, Ok(answer)).await;
                if settings.mode() != before {
                    let update = CurrentModeUpdate::new(settings.mode());
                    let update = SessionUpdate::CurrentModeUpdate(update);
                    let _ = c.update(&open.id, update).await;
                }
            }))
        }
        "session/set_title" => {
            let request: SetSessionTitleRequest = params.read()?;
            Ok(Box::pin(async move { set_title(&c, &id, request).await }))
        }
        _ => Err(Error::method_not_found()),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetModel {
    session_id: String,
    model_id: String,
}

fn answered(c: Arc<Connection>, id: Id, answer: InitializeResponse) -> Work {
    Box::pin(async move { c.respond(&id, Ok(answer)).await })
}

fn initialize(c: &Connection, request: InitializeRequest) -> InitializeResponse {
    let offered = Offered {
        fs: request.client_capabilities.fs,
        terminal: request.client_capabilities.terminal,
    };
    *c.offered
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner) = offered;
    if let Some(info) = request.client_info {
        let name = text::one_line(&info.name, SESSION_TITLE_CHARS);
        let mut client = c
            .client
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *client = format!("acp:{name}");
    }
    let sessions = SessionCapabilities::default()
        .list(SessionListCapabilities::default())
        .delete(SessionDeleteCapabilities::default())
        .resume(SessionResumeCapabilities::default())
        .close(SessionCloseCapabilities::default())
        .fork(SessionForkCapabilities::default())
        .title(SessionTitleCapabilities::default());
    let capabilities = AgentCapabilities::default()
        .load_session(true)
        .prompt_capabilities(PromptCapabilities::new().image(true).embedded_context(true))
        .mcp_capabilities(McpCapabilities::default().http(c.pool.is_some()))
        .session_capabilities(sessions);
    let version = env!("CARGO_PKG_VERSION");
    // One version is spoken. A client that speaks another one ends the connection.
    InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(capabilities)
        .agent_info(Implementation::new("threadline", version).title("Threadline".to_owned()))
}

fn open(c: &Connection, id: &str) -> Result<Arc<Open>, Error> {
    c.sessions.get(id).ok_or_else(|| not_found(id))
}

fn set(
    c: &Connection,
    open: &Open,
    change: impl FnOnce(&mut Settings) -> Result<(), Error>,
) -> Result<(), Error> {
    if c.closing.is_cancelled() {
        return Err(invalid_request("the agent is ending"));
    }
    change(&mut open.state().settings)
}

async fn tell_settings(c: &Connection, open: &Open) {
    let settings = open.state().settings.clone();
    let options = ConfigOptionUpdate::new(settings.options(&c.agents));
    let _ = c
        .update(&open.id, SessionUpdate::ConfigOptionUpdate(options))
        .await;
}

/// What a client says whenever it opens a session.
struct Setup<'a> {
    cwd: &'a Path,
    more: &'a [std::path::PathBuf],
    servers: &'a [McpServer],
    system: Option<&'a SystemPrompt>,
}

impl Setup<'_> {
    fn check(&self) -> Result<(), Error> {
        if !self.cwd.is_absolute() {
            return Err(invalid_params("`cwd` must be an absolute path"));
        }
        if !self.more.is_empty() {
            return Err(invalid_params(
                "this agent works in one directory, so `additionalDirectories` must be empty",
            ));
        }
        if self.system.is_some() {
            return Err(invalid_params("this agent takes no `systemPrompt`"));
        }
        mcp::check(self.servers)
    }
}

/// Tells what a client should know of a session that it has just opened.
async fn greet(c: &Connection, id: &SessionId, told: Option<String>) {
    let name = COMPACT_COMMAND.trim_start_matches('/');
    let about = "Replace the older part of the conversation by a summary";
    let commands = AvailableCommandsUpdate::new(vec![AvailableCommand::new(name, about)]);
    let _ = c
        .update(id, SessionUpdate::AvailableCommandsUpdate(commands))
        .await;
    tell(c, id, told).await;
}

async fn tell(c: &Connection, id: &SessionId, told: Option<String>) {
    if let Some(told) = told {
        let _ = c.update(id, live::note(told)).await;
    }
}

async fn new(c: &Arc<Connection>, id: &Id, request: NewSessionRequest) {
    let setup = Setup {
        cwd: &request.cwd,
        more: &request.additional_directories,
        servers: &request.mcp_servers,
        system: request.system_prompt.as_ref(),
    };
    let opened = setup.check().and_then(|()| {
        if !request.cwd.is_dir() {
            return Err(invalid_params("`cwd` is no directory that can be used"));
        }
        let session = SessionId::from_first_run(&new_run_id());
        let settings = Settings::new(&c.agents, None);
        c.open(Open::new(session, request.cwd.clone(), false, settings))
    });
    let open = match opened {
        Ok(open) => open,
        Err(error) => return c.respond(id, Err::<(), _>(error)).await,
    };
    let told = mcp::connect(c.pool.as_ref(), &open.id, &request.mcp_servers).await;
    let settings = open.state().settings.clone();
    let response = NewSessionResponse::new(open.id.as_str().to_owned())
        .modes(settings.modes())
        .config_options(settings.options(&c.agents));
    c.respond(id, Ok(response)).await;
    greet(c, &open.id, told).await;
}

async fn load(c: &Arc<Connection>, id: &Id, request: LoadSessionRequest) {
    let setup = Setup {
        cwd: &request.cwd,
        more: &request.additional_directories,
        servers: &request.mcp_servers,
        system: request.system_prompt.as_ref(),
    };
    let named = &request.session_id.0;
    let opened = match setup.check() {
        Ok(()) => loaded(c, named, &request.cwd).await,
        Err(error) => Err(error),
    };
    let open = match opened {
        Ok(open) => open,
        Err(error) => return c.respond(id, Err::<(), _>(error)).await,
    };
    let told = mcp::connect(c.pool.as_ref(), &open.id, &request.mcp_servers).await;
    let settings = open.state().settings.clone();
    let response = LoadSessionResponse::default()
        .modes(settings.modes())
        .config_options(settings.options(&c.agents));
    c.respond(id, Ok(response)).await;
    greet(c, &open.id, told).await;
    offer::offer(c, &open).await;
}

/// Opens a session and replays it.
async fn loaded(c: &Arc<Connection>, named: &str, cwd: &Path) -> Result<Arc<Open>, Error> {
    let before = c.sessions.get(named);
    if let Some(open) = before.as_ref().filter(|open| !open.state().stored) {
        // Nothing was said in it yet.
        return Ok(open.clone());
    }
    // A prompt that begins in the middle of a replay would be told twice.
    let _beginning = match &before {
        Some(open) => Some(open.beginning.lock().await),
        None => None,
    };
    // It is put again behind the replay.
    before.iter().for_each(|open| open.take_offer_back());
    if before.as_ref().is_some_and(|open| open.state().followed) {
        return Err(invalid_request(
            "the session has a turn under way, and its updates are being sent; wait for its end or \
             cancel it before you load the session",
        ));
    }
    let id = SessionId::parse(named).map_err(|_| not_found(named))?;
    let store = c.agents.store();
    let context = load::replay(c, &id).await.map_err(|error| match error {
        load::ReplayError::Read(error) => read_failed(named, error),
        load::ReplayError::Gone(_) => invalid_request("nobody reads"),
    })?;
    if let Ok(summary) = store.summary(&id).await {
        let _ = c.update(&id, info(&summary)).await;
    }
    let settings = Settings::new(&c.agents, context.as_ref());
    c.open(Open::new(id, cwd.to_owned(), true, settings))
}

async fn resume(c: &Arc<Connection>, id: &Id, request: ResumeSessionRequest) {
    let setup = Setup {
        cwd: &request.cwd,
        more: &request.additional_directories,
        servers: &request.mcp_servers,
        system: request.system_prompt.as_ref(),
    };
    let named = &request.session_id.0;
    let opened = match setup.check() {
        Ok(()) => resumed(c, named, &request.cwd).await,
        Err(error) => Err(error),
    };
    let open = match opened {
        Ok(open) => open,
        Err(error) => return c.respond(id, Err::<(), _>(error)).await,
    };
    let told = mcp::connect(c.pool.as_ref(), &open.id, &request.mcp_servers).await;
    let settings = open.state().settings.clone();
    let response = ResumeSessionResponse::default()
        .modes(settings.modes())
        .config_options(settings.options(&c.agents));
    c.respond(id, Ok(response)).await;
    greet(c, &open.id, told).await;
    offer::offer(c, &open).await;
}

async fn resumed(c: &Connection, named: &str, cwd: &Path) -> Result<Arc<Open>, Error> {
    if let Some(open) = c.sessions.get(named).filter(|open| !open.state().stored) {
        return Ok(open);
    }
    let id = SessionId::parse(named).map_err(|_| not_found(named))?;
    let context = context(c, &id).await?;
    let settings = Settings::new(&c.agents, context.as_ref());
    c.open(Open::new(id, cwd.to_owned(), true, settings))
}

async fn context(c: &Connection, id: &SessionId) -> Result<Option<TurnContext>, Error> {
    let context = c.agents.store().context(id).await;
    context.map_err(|error| read_failed(id.as_str(), error))
}

/// Tells nothing but what is missing: what the fork holds, the client has seen.
async fn fork(c: &Connection, id: &Id, request: ForkSessionRequest) {
    let servers = request.mcp_servers.clone();
    let open = match forked(c, request).await {
        Ok(open) => open,
        Err(error) => return c.respond(id, Err::<(), _>(error)).await,
    };
    let told = mcp::connect(c.pool.as_ref(), &open.id, &servers).await;
    let settings = open.state().settings.clone();
    let response = ForkSessionResponse::new(open.id.as_str().to_owned())
        .modes(settings.modes())
        .config_options(settings.options(&c.agents));
    c.respond(id, Ok(response)).await;
    tell(c, &open.id, told).await;
}

async fn forked(c: &Connection, request: ForkSessionRequest) -> Result<Arc<Open>, Error> {
    let setup = Setup {
        cwd: &request.cwd,
        more: &request.additional_directories,
        servers: &request.mcp_servers,
        system: request.system_prompt.as_ref(),
    };
    setup.check()?;
    let named = &request.session_id.0;
    let child = SessionId::from_first_run(&new_run_id());
    let before = c.sessions.get(named).filter(|open| !open.state().stored);
    let open = match before {
        // A session in which nothing was said has nothing to be shared.
        Some(before) => {
            let settings = before.state().settings.clone();
            Open::new(child, request.cwd, false, settings)
        }
        None => {
            let parent = SessionId::parse(named.to_string()).map_err(|_| not_found(named))?;
            let forked = c.agents.store().fork(&parent, None, child).await;
            let child = forked.map_err(|error| fork_failed(named, error))?.id;
            let context = context(c, &child).await?;
            let settings = Settings::new(&c.agents, context.as_ref());
            Open::new(child, request.cwd, true, settings)
        }
    };
    c.open(open)
}

async fn list(c: &Connection, request: ListSessionsRequest) -> Result<ListSessionsResponse, Error> {
    let cwd = match request.cwd {
        Some(cwd) if !cwd.is_absolute() => {
            return Err(invalid_params("`cwd` must be an absolute path"));
        }
        cwd => cwd.map(|cwd| cwd.to_string_lossy().into_owned()),
    };
    let filter = ListFilter {
        cwd,
        ..ListFilter::default()
    };
    let store = c.agents.store();
    let page = store
        .list(&filter, request.cursor.as_deref(), LIST_PAGE)
        .await
        .map_err(|error| match error {
            ListError::Cursor => invalid_params(&format!("`cursor`: {error}")),
            ListError::Backend(error) => failed("storage_error", &error_chain(&error), None),
        })?;
    let sessions = page.sessions.iter().map(session_info).collect();
    Ok(ListSessionsResponse::new(sessions).next_cursor(page.next))
}

fn session_info(row: &SessionSummary) -> SessionInfo {
    // A session whose header cannot be read has no directory that anybody knows of.
    let cwd = if row.cwd.is_empty() { "/" } else { &row.cwd };
    let status = match row.status {
        SessionStatus::Idle => None,
        status => Some(Map::from_iter([(
            "threadline".to_owned(),
            json!({ "status": status }),
        )])),
    };
    SessionInfo::new(row.id.as_str().to_owned(), cwd)
        .title(title(row))
        .updated_at(time(row.updated_at))
        .meta(status)
}

/// The title that a person gave, else the first words of the session.
fn title(row: &SessionSummary) -> Option<String> {
    let prompt = row.first_prompt.as_deref();
    let made = || prompt.map(|prompt| text::one_line(prompt, SESSION_TITLE_CHARS));
    row.title
        .clone()
        .or_else(made)
        .filter(|title| !title.is_empty())
}

fn time(ms: u64) -> Option<String> {
    let ms = i64::try_from(ms).ok()?;
    let time = jiff::Timestamp::from_millisecond(ms).ok()?;
    Some(time.to_string())
}

/// Tells what a session is called and when something last happened in it.
pub(crate) fn info(row: &SessionSummary) -> SessionUpdate {
    let info = SessionInfoUpdate::new()
        .title(title(row))
        .updated_at(time(row.updated_at));
    SessionUpdate::SessionInfoUpdate(info)
}

/// Ends what is under way in a session, and waits until it is ended.
async fn close(c: &Connection, named: &str) -> Result<(), Error> {
    let open = c.sessions.close(named).ok_or_else(|| not_found(named))?;
    open.cancel(&c.agents, None);
    open.take_offer_back();
    c.take_back(&open);
    let _beginning = open.beginning.lock().await;
    if let Some(run) = c.agents.running(&open.id) {
        run.cancel();
        run.wait().await;
    }
    Ok(())
}

async fn delete(c: &Connection, named: &str) -> Result<(), Error> {
    if c.sessions.get(named).is_some() {
        close(c, named).await?;
    }
    let Ok(id) = SessionId::parse(named.to_owned()) else {
        return Ok(());
    };
    match c.agents.store().delete(&id).await {
        // What is not there is deleted.
        Ok(()) | Err(DeleteError::NotFound { .. }) => Ok(()),
        Err(error @ DeleteError::Locked { .. }) => Err(failed(
            "locked",
            &error.to_string(),
            Some("end the other process first".into()),
        )),
        Err(DeleteError::Backend(error)) => {
            Err(failed("storage_error", &error_chain(&error), None))
        }
    }
}

async fn set_title(c: &Arc<Connection>, id: &Id, request: SetSessionTitleRequest) {
    let named = &request.session_id.0;
    let wanted = request.title.trim().to_owned();
    if wanted.is_empty() {
        let error = invalid_params("`title` must say something");
        return c.respond(id, Err::<(), _>(error)).await;
    }
    let open = c.sessions.get(named);
    if let Some(open) = open.as_ref().filter(|open| !open.state().stored) {
        open.state().title = Some(wanted.clone());
        let update = SessionInfoUpdate::new().title(wanted.clone());
        c.respond(id, Ok(SetSessionTitleResponse::new(wanted)))
            .await;
        let _ = c
            .update(&open.id, SessionUpdate::SessionInfoUpdate(update))
            .await;
        return;
    }
    match store_title(c, named, wanted).await {
        Ok(row) => {
            let title = row.title.clone().unwrap_or_default();
            c.respond(id, Ok(SetSessionTitleResponse::new(title))).await;
            if let Some(open) = open {
                let _ = c.update(&open.id, info(&row)).await;
            }
        }
        Err(error) => c.respond(id, Err::<(), _>(error)).await,
    }
}

/// Sets the title of a stored session, whatever else is being changed in it at the same time.
pub(crate) async fn store_title(
    c: &Connection,
    named: &str,
    title: String,
) -> Result<SessionSummary, Error> {
    let id = SessionId::parse(named.to_owned()).map_err(|_| not_found(named))?;
    let store = c.agents.store();
    let mut tries = 0;
    loop {
        let row = store.summary(&id).await;
        let revision = row.map_err(|error| read_failed(named, error))?.revision;
        let patch = SummaryPatch {
            title: Some(Some(title.clone())),
            ..SummaryPatch::default()
        };
        tries += 1;
        match store.update(&id, patch, revision).await {
            Ok(row) => return Ok(row),
            Err(UpdateError::Conflict { .. }) if tries < TITLE_TRIES => {}
            Err(UpdateError::Invalid { field, reason }) => {
                return Err(invalid_params(&format!("`{field}`: {reason}")));
            }
            Err(UpdateError::Read(error)) => return Err(read_failed(named, error)),
            Err(error @ UpdateError::Conflict { .. }) => {
                return Err(failed("conflict", &error.to_string(), None));
            }
        }
    }
}

pub(crate) fn read_failed(named: &str, error: ReadError) -> Error {
    match error {
        ReadError::NotFound { .. } => not_found(named),
        error => failed(read_code(&error), &error_chain(&error), None),
    }
}

fn fork_failed(named: &str, error: ForkError) -> Error {
    match error {
        ForkError::Read(error) => read_failed(named, error),
        error => failed("fork_failed", &error_chain(&error), None),
    }
}
