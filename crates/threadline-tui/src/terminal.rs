//! The terminal: taken and given back whatever happens, suspended and continued, read and drawn.

use std::{
    io::{self, Stdout, Write as _},
    panic,
    sync::{
        Mutex, Once, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crossterm::{
    cursor::Show,
    event::{DisableBracketedPaste, EnableBracketedPaste, Event, EventStream},
    execute,
    terminal::{
        EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
    },
};
use futures_util::StreamExt as _;
use ratatui::{Terminal, backend::CrosstermBackend, layout::Rect};
use rustix::process::{Signal, kill_current_process_group};
use threadline_agent::Agents;
use threadline_session::SessionId;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::Instant,
};

use crate::{
    app::{App, Begin, Effect, Msg},
    draw,
    engine::{Engine, Exporter},
    limits::{FRAME_MS, MESSAGES, TICK_MS},
    theme::{Theme, Tone},
};

/// Whether the terminal is taken.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Whether a task of the program broke.
static BROKEN: AtomicBool = AtomicBool::new(false);
/// The session that is open, for the panic hook.
static SESSION: Mutex<Option<String>> = Mutex::new(None);
/// How the program is called.
static PROGRAM: OnceLock<String> = OnceLock::new();
static HOOK: Once = Once::new();

/// How long a suspension may take to begin. Where nobody could continue the process, the kernel
/// does not suspend it.
const SUSPEND: Duration = Duration::from_millis(300);
/// How often is looked for what tells nobody.
const LOOK: Duration = Duration::from_secs(1);

/// What the interface is started with.
pub struct Options {
    /// Everything that runs.
    pub agents: Agents,
    /// What to show first.
    pub begin: Begin,
    /// The folder the program was started in, as lists name it.
    pub cwd: String,
    /// The model that a flag names.
    pub model: Option<String>,
    /// Whether colours are used.
    pub colour: bool,
    /// Something to tell at the beginning.
    pub notice: Option<String>,
    /// What `/export` does.
    pub export: Exporter,
    /// How the program is called, for the command that comes back.
    pub program: String,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("agents", &self.agents)
            .field("begin", &self.begin)
            .finish_non_exhaustive()
    }
}

/// How the interface was left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The session that was open.
    pub session: Option<SessionId>,
    /// Whether a signal, or the loss of the terminal, ended it.
    pub stopped: bool,
}

/// Says why the interface cannot go on. The terminal is as it was before.
#[derive(Debug, thiserror::Error)]
pub enum TuiError {
    /// The terminal does not do what is asked of it.
    #[error("the terminal cannot be used ({what}): {source}")]
    Terminal {
        /// What was asked.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// A task broke.
    #[error("a part of the program broke; this is a defect. What was said and done is stored")]
    Broken,
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> TuiError {
    move |source| TuiError::Terminal { what, source }
}

/// Gives the terminal back. Does nothing when it is not taken.
fn give_back() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    // Each as far as it goes: the terminal may be gone.
    let mut out = io::stdout();
    let _ = execute!(out, DisableBracketedPaste, LeaveAlternateScreen, Show);
    let _ = out.flush();
    let _ = disable_raw_mode();
}

fn install_hook() {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            BROKEN.store(true, Ordering::SeqCst);
            give_back();
            before(info);
            if let Ok(session) = SESSION.try_lock()
                && let Some(id) = session.as_ref()
            {
                let program = PROGRAM.get().map_or("threadline", String::as_str);
                let _ = writeln!(
                    io::stderr(),
                    "Session {id}\nGo on with: {program} resume {id}"
                );
            }
        }));
    });
}

/// The terminal while it is taken.
struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    fn take() -> Result<Self, TuiError> {
        install_hook();
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()));
        let mut screen = Self {
            terminal: terminal.map_err(failed("its size"))?,
        };
        screen.enter()?;
        Ok(screen)
    }

    fn enter(&mut self) -> Result<(), TuiError> {
        TAKEN.store(true, Ordering::SeqCst);
        enable_raw_mode().map_err(failed("raw mode"))?;
        execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste)
            .map_err(failed("the alternate screen"))?;
        self.clear()
    }

    /// Has everything drawn anew. (`Terminal::clear` would ask the terminal where its cursor is, and
    /// the answer would be read as keys.)
    fn clear(&mut self) -> Result<(), TuiError> {
        let (columns, rows) = size().map_err(failed("its size"))?;
        self.terminal
            .resize(Rect::new(0, 0, columns, rows))
            .map_err(failed("clearing it"))
    }

    fn draw(&mut self, app: &mut App) -> Result<(), TuiError> {
        self.terminal
            .draw(|frame| draw::draw(frame, app))
            .map(drop)
            .map_err(failed("drawing"))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// What ends or disturbs the program from outside.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
    go_on: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Self, TuiError> {
        let listen = |kind| signal(kind).map_err(failed("signals"));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
            // SIGCONT has the same number on every Linux architecture.
            go_on: listen(SignalKind::from_raw(Signal::CONT.as_raw()))?,
        })
    }

    /// Waits for the next one.
    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.interrupt.recv() => Told::End,
            _ = self.terminate.recv() => Told::End,
            _ = self.hangup.recv() => Told::End,
            _ = self.go_on.recv() => Told::GoOn,
        }
    }

    /// Waits for one that ends the program.
    async fn end(&mut self) {
        while self.next().await != Told::End {}
    }
}

/// What a signal tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    End,
    GoOn,
}

/// Why the loop ended.
enum End {
    Left,
    Stopped,
}

struct Loop {
    app: App,
    engine: Engine,
    screen: Screen,
    signals: Signals,
    keys: EventStream,
    told: mpsc::Receiver<Msg>,
    agents: Agents,
    dirty: bool,
    drawn: Instant,
}

/// Shows the interface until it is left. Runs that are under way then are cancelled, and their ends
/// stored.
///
/// # Errors
/// [`TuiError`]; the terminal is given back and runs have ended then too.
pub async fn run(options: Options) -> Result<Left, TuiError> {
    let _ = PROGRAM.set(options.program);
    let agents = options.agents.clone();
    let (tell, told) = mpsc::channel(MESSAGES);
    let theme = Theme {
        colour: options.colour,
    };
    let now = agents.store().clock().now_ms();
    let (mut app, effects) = App::new(
        options.begin,
        options.cwd,
        options.model,
        theme,
        size().map_err(failed("its size"))?,
        now,
    );
    if let Some(notice) = options.notice {
        app.note(Tone::Warning, notice);
    }
    let signals = Signals::new()?;
    let mut looped = Loop {
        app,
        engine: Engine::new(agents.clone(), options.export, tell),
        screen: Screen::take()?,
        signals,
        keys: EventStream::new(),
        told,
        agents: agents.clone(),
        dirty: true,
        drawn: Instant::now(),
    };
    let end = looped.go(effects).await;
    let Loop {
        app,
        mut engine,
        screen,
        mut signals,
        keys,
        told,
        ..
    } = looped;
    drop((keys, told));
    engine.hush();
    // Given back before anything is waited for, so that what is said next is seen.
    drop(screen);
    if !agents.runs().is_empty() {
        let _ = writeln!(io::stderr(), "Stopping what runs; again to end at once.");
    }
    tokio::select! {
        () = agents.shutdown() => {}
        () = signals.end() => {}
    }
    let stopped = matches!(end?, End::Stopped);
    Ok(Left {
        session: app.session().cloned(),
        stopped,
    })
}

impl Loop {
    async fn go(&mut self, effects: Vec<Effect>) -> Result<End, TuiError> {
        if let Some(end) = self.perform(effects).await? {
            return Ok(end);
        }
        loop {
            if BROKEN.load(Ordering::SeqCst) {
                return Err(TuiError::Broken);
            }
            let pause = self.pause();
            let msg = tokio::select! {
                biased;
                told = self.signals.next() => {
                    if told == Told::End {
                        return Ok(End::Stopped);
                    }
                    self.screen.enter()?;
                    self.dirty = true;
                    continue;
                }
                event = self.keys.next() => match event {
                    Some(Ok(event)) => read(event),
                    // The terminal is gone.
                    Some(Err(_)) | None => return Ok(End::Stopped),
                },
                () = tokio::time::sleep_until(self.drawn + Duration::from_millis(FRAME_MS)),
                    if self.dirty => {
                    self.draw()?;
                    continue;
                }
                msg = self.told.recv() => msg,
                () = tokio::time::sleep(pause) => Some(Msg::Tick),
            };
            let Some(msg) = msg else {
                continue;
            };
            let now = self.agents.store().clock().now_ms();
            let effects = self.app.update(msg, now);
            self.dirty = true;
            if let Ok(mut session) = SESSION.lock() {
                *session = self.app.session().map(ToString::to_string);
            }
            if let Some(end) = self.perform(effects).await? {
                return Ok(end);
            }
        }
    }

    fn pause(&self) -> Duration {
        if self.app.waits() {
            Duration::from_millis(TICK_MS)
        } else {
            LOOK
        }
    }

    fn draw(&mut self) -> Result<(), TuiError> {
        self.screen.draw(&mut self.app)?;
        self.dirty = false;
        self.drawn = Instant::now();
        Ok(())
    }

    async fn perform(&mut self, effects: Vec<Effect>) -> Result<Option<End>, TuiError> {
        let leaves = effects.contains(&Effect::Quit);
        for effect in effects {
            match effect {
                Effect::Quit => return Ok(Some(End::Left)),
                Effect::Delete { id } if leaves => self.engine.delete(id).await,
                Effect::Suspend => self.suspend().await?,
                Effect::Redraw => self.screen.clear()?,
                effect => self.engine.perform(effect),
            }
        }
        Ok(None)
    }

    /// Stops the process as the shell's job control does, and takes the terminal again once it is
    /// continued.
    async fn suspend(&mut self) -> Result<(), TuiError> {
        give_back();
        // It must not read on while another program has the terminal.
        self.keys = EventStream::new();
        kill_current_process_group(Signal::TSTP)
            .map_err(|error| failed("suspending")(error.into()))?;
        let _ = tokio::time::timeout(SUSPEND, self.signals.go_on.recv()).await;
        self.screen.enter()?;
        self.dirty = true;
        Ok(())
    }
}

fn read(event: Event) -> Option<Msg> {
    match event {
        Event::Key(key) => Some(Msg::Key(key)),
        Event::Paste(text) => Some(Msg::Paste(text)),
        Event::Resize(columns, rows) => Some(Msg::Resize(columns, rows)),
        Event::Mouse(_) | Event::FocusGained | Event::FocusLost => None,
    }
}
