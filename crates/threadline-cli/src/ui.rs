//! Where words go: data to standard output, everything else to standard error.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde::Serialize;
use tokio::task::JoinSet;

use crate::failure::{Failure, Outcome};

/// What a piece of text means; colour follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Strong,
    Faint,
    Good,
    Warning,
    Bad,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Warning => "33",
            Self::Bad => "31",
        }
    }
}

/// The two outputs and what they can show.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ui {
    out_colour: bool,
    err_colour: bool,
    out_terminal: bool,
    err_terminal: bool,
    /// Whether a person can be asked: both what they type and what they see is a terminal.
    pub(crate) can_ask: bool,
}

impl Ui {
    pub(crate) fn new() -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let out_terminal = io::stdout().is_terminal();
        let err_terminal = io::stderr().is_terminal();
        Self {
            out_colour: out_terminal && !plain,
            err_colour: err_terminal && !plain,
            out_terminal,
            err_terminal,
            can_ask: err_terminal && io::stdin().is_terminal(),
        }
    }

    /// Paints text for standard output.
    pub(crate) fn out(&self, tone: Tone, text: &str) -> String {
        paint(self.out_colour, tone, text)
    }

    /// Paints text for standard error.
    pub(crate) fn err(&self, tone: Tone, text: &str) -> String {
        paint(self.err_colour, tone, text)
    }

    pub(crate) fn out_colour(&self) -> bool {
        self.out_colour
    }

    pub(crate) fn err_colour(&self) -> bool {
        self.err_colour
    }

    /// Returns text from a model or a file as standard output may show it: a terminal must not
    /// obey it, a file gets it as it is.
    pub(crate) fn foreign(&self, text: &str) -> String {
        if self.out_terminal {
            crate::text::harmless(text)
        } else {
            text.to_owned()
        }
    }

    /// Returns a size as people read it at a terminal, and as programs read it elsewhere.
    pub(crate) fn size(&self, bytes: u64) -> String {
        if self.out_terminal {
            crate::text::bytes(bytes)
        } else {
            bytes.to_string()
        }
    }

    /// Prints data.
    pub(crate) fn print(&self, text: &str) -> Outcome<()> {
        write_out(text.as_bytes()).map_err(|error| Failure::stdout(&error))
    }

    /// Prints a line of data.
    pub(crate) fn line(&self, text: &str) -> Outcome<()> {
        self.print(&format!("{text}\n"))
    }

    /// Prints data as one line of JSON.
    pub(crate) fn json(&self, data: &impl Serialize) -> Outcome<()> {
        let text = serde_json::to_string(data)
            .map_err(|error| Failure::new("internal", error.to_string()))?;
        self.line(&text)
    }

    /// Tells something that is not data.
    pub(crate) fn note(&self, text: &str) {
        // Nobody is left to be told when standard error is gone.
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Tells something that is not data, without ending the line.
    pub(crate) fn ask(&self, text: &str) {
        let mut err = io::stderr();
        let _ = write!(err, "{text}");
        let _ = err.flush();
    }

    /// Tells of a failure, and returns nothing.
    pub(crate) fn failure(&self, failure: &Failure) {
        self.note(&format!(
            "{} {}",
            self.err(Tone::Bad, "error:"),
            failure.message
        ));
        if let Some(hint) = &failure.hint {
            self.note(&format!("{} {hint}", self.err(Tone::Strong, "next:")));
        }
    }

    pub(crate) fn warning(&self, text: &str) {
        self.note(&format!("{} {text}", self.err(Tone::Warning, "note:")));
    }
}

/// How long something takes before its progress is shown.
const PROGRESS_AFTER: Duration = Duration::from_millis(500);
/// Time between two changes of what is shown of one long step.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Characters of the bar.
const BAR: usize = 20;

/// A line on the terminal that says how far something is, if it takes longer than a moment.
pub(crate) struct Progress {
    ui: Ui,
    at: Position,
    part: Part,
    shown: bool,
}

/// How much of one long step is done, in thousandths; nothing is known of it before the first word.
#[derive(Debug, Clone)]
pub(crate) struct Part(Arc<AtomicU64>);

impl Part {
    const UNKNOWN: u64 = u64::MAX;

    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(Self::UNKNOWN)))
    }

    pub(crate) fn set(&self, done: u64, of: u64) {
        let thousandths = (u128::from(done) * 1000)
            .checked_div(u128::from(of))
            .unwrap_or(0);
        let thousandths = u64::try_from(thousandths).unwrap_or(1000).min(1000);
        self.0.store(thousandths, Ordering::Relaxed);
    }

    fn forget(&self) {
        self.0.store(Self::UNKNOWN, Ordering::Relaxed);
    }

    fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|part| *part != Self::UNKNOWN)
    }
}

/// How far something is.
#[derive(Debug, Clone, Copy)]
struct Position {
    what: &'static str,
    at: usize,
    of: usize,
    since: Instant,
}

impl Position {
    fn line(self, part: Option<u64>, elapsed: Duration) -> String {
        let Self { what, at, of, .. } = self;
        // The one that is under way is done in part.
        let part_of = usize::try_from(part.unwrap_or(0)).unwrap_or(0);
        let done = (at.saturating_sub(1) * 1000 + part_of).saturating_mul(BAR);
        let done = done.checked_div(of * 1000).unwrap_or(0).min(BAR);
        let bar = format!("{}{}", "#".repeat(done), "-".repeat(BAR - done));
        let percent = part.map_or_else(String::new, |part| format!("{} %, ", part / 10));
        format!(
            "{what} [{bar}] session {at} of {of}, {percent}{} s ",
            elapsed.as_secs()
        )
    }

    fn draw(self, ui: Ui, part: &Part) {
        let line = self.line(part.get(), self.since.elapsed());
        ui.ask(&format!("\r{line}\u{1b}[K"));
    }
}

impl Progress {
    pub(crate) fn new(ui: Ui, what: &'static str, of: usize) -> Self {
        let at = Position {
            what,
            at: 0,
            of,
            since: Instant::now(),
        };
        Self {
            ui,
            at,
            part: Part::new(),
            shown: false,
        }
    }

    /// Returns what the step that is under way tells how far it is.
    pub(crate) fn part(&self) -> Part {
        self.part.clone()
    }

    /// Says that the next one is begun.
    pub(crate) fn step(&mut self) {
        self.at.at += 1;
        self.part.forget();
        if self.ui.err_terminal && self.at.since.elapsed() >= PROGRESS_AFTER {
            self.at.draw(self.ui, &self.part);
            self.shown = true;
        }
    }

    /// Does what may take long within one step, and shows that it goes on.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        if !self.ui.err_terminal {
            return work.await;
        }
        let (ui, at, part) = (self.ui, self.at, self.part.clone());
        let drawn = Arc::new(AtomicBool::new(self.shown));
        let draws = Arc::clone(&drawn);
        // On a thread of its own: the work may not pause for a long time. It ends with this call,
        // also when the call is given up.
        let mut ticker = JoinSet::new();
        ticker.spawn(async move {
            tokio::time::sleep(PROGRESS_AFTER).await;
            let mut ticks = tokio::time::interval(PROGRESS_EVERY);
            loop {
                ticks.tick().await;
                draws.store(true, Ordering::Relaxed);
                at.draw(ui, &part);
            }
        });
        let outcome = work.await;
        // What it draws last comes before anything else that is shown.
        ticker.shutdown().await;
        self.shown = drawn.load(Ordering::Relaxed);
        outcome
    }

    /// Makes room for another line.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            self.ui.ask("\r\u{1b}[K");
        }
    }

    pub(crate) fn done(mut self) {
        self.clear();
    }
}

/// Writes to standard output at once, so that a reader sees whole lines as they come.
pub(crate) fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

fn paint(colour: bool, tone: Tone, text: &str) -> String {
    if colour {
        format!("\u{1b}[{}m{text}\u{1b}[0m", tone.code())
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_what_is_done_and_never_more() {
        let line = |at, of, part| {
            let position = Position {
                what: "Checking",
                at,
                of,
                since: Instant::now(),
            };
            position.line(part, Duration::from_secs(7))
        };
        let bar = |done: usize| format!("[{}{}]", "#".repeat(done), "-".repeat(BAR - done));
        assert_eq!(
            line(1, 2, None),
            format!("Checking {} session 1 of 2, 7 s ", bar(0))
        );
        assert_eq!(
            line(1, 1, Some(437)),
            format!("Checking {} session 1 of 1, 43 %, 7 s ", bar(8))
        );
        for (at, of, done) in [(2, 2, 10), (20, 20, 19), (1, 1, 0), (0, 0, 0), (9, 2, BAR)] {
            assert!(line(at, of, None).contains(&bar(done)), "{at} of {of}");
        }
        assert!(line(2, 2, Some(1000)).contains(&bar(BAR)));
    }

    #[test]
    fn a_part_is_never_more_than_the_whole() {
        let part = Part::new();
        assert_eq!(part.get(), None);
        for (done, of, wanted) in [
            (0, 10, 0),
            (5, 10, 500),
            (20, 10, 1000),
            (3, 0, 0),
            (u64::MAX, u64::MAX, 1000),
        ] {
            part.set(done, of);
            assert_eq!(part.get(), Some(wanted), "{done} of {of}");
        }
    }
}
