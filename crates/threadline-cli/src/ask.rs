//! Asking a person at the terminal whether a tool may run.

use std::{collections::HashMap, io::BufRead as _, sync::Arc};

use threadline_agent::{Answer, Answered, ApprovalBoard, ApprovalInfo};
use threadline_session::RunId;
use tokio::{
    sync::{Mutex, mpsc, watch},
    task::JoinHandle,
};

use crate::{
    text,
    ui::{Tone, Ui},
};

/// Lines that the person types. Read by a thread of its own, because reading a terminal cannot be
/// given up; it ends with the process.
struct Lines {
    wanted: mpsc::Sender<()>,
    typed: mpsc::Receiver<Option<String>>,
    /// A read is on its way whose question is gone; the next question takes its line.
    pending: bool,
}

impl Lines {
    fn new() -> Self {
        let (wanted, mut asked) = mpsc::channel::<()>(1);
        let (sender, typed) = mpsc::channel(1);
        std::thread::spawn(move || {
            while asked.blocking_recv().is_some() {
                let mut line = String::new();
                let read = std::io::stdin().lock().read_line(&mut line);
                let line = read.ok().filter(|bytes| *bytes > 0).map(|_| line);
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            wanted,
            typed,
            pending: false,
        }
    }

    /// Waits for the next line; `None` at the end of the input.
    async fn next(&mut self) -> Option<String> {
        if !self.pending {
            self.wanted.send(()).await.ok()?;
            self.pending = true;
        }
        let line = self.typed.recv().await.flatten();
        self.pending = false;
        line
    }
}

/// Asks one question at a time.
pub(crate) struct Asker {
    ui: Ui,
    board: ApprovalBoard,
    lines: Arc<Mutex<Lines>>,
    /// Questions that were put, by their ids. One is read at a time, in the order they came.
    asking: HashMap<String, JoinHandle<()>>,
}

impl Asker {
    pub(crate) fn new(ui: Ui, board: ApprovalBoard) -> Self {
        Self {
            ui,
            board,
            lines: Arc::new(Mutex::new(Lines::new())),
            asking: HashMap::new(),
        }
    }

    /// Puts a question to the person, and their answer to the board, while the run's events go on.
    pub(crate) fn ask(&mut self, info: ApprovalInfo) {
        if self.asking.contains_key(&info.approval_id) {
            return;
        }
        let (ui, board, lines) = (self.ui, self.board.clone(), self.lines.clone());
        let id = info.approval_id.clone();
        let asking = tokio::spawn(async move {
            let answered = question(ui, &info, &mut *lines.lock().await).await;
            // Somebody else may have been faster, or the run may be over; both are shown anyway.
            let _ = board.answer(&info.run_id, &info.tool_call_id, answered);
        });
        self.asking.insert(id, asking);
    }

    /// Puts what subagents of a run ask, and takes back what needs no answer any more.
    pub(crate) fn look(&mut self, run: &RunId) {
        let waiting = self.board.waiting(None);
        self.asking.retain(|id, asking| {
            let waits = waiting.iter().any(|info| info.approval_id == *id);
            if !waits {
                asking.abort();
            }
            waits
        });
        // The run's own questions come with its events.
        for mut info in waiting.into_iter().filter(|info| info.run_id != *run) {
            info.reason = format!("asked by the subagent {}: {}", info.session_id, info.reason);
            self.ask(info);
        }
    }

    /// Returns the board's watch.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.board.watch()
    }
}

async fn question(ui: Ui, info: &ApprovalInfo, lines: &mut Lines) -> Answered {
    let answered = |answer, comment, prefix| Answered {
        answer,
        by: "terminal".to_owned(),
        comment,
        prefix,
    };
    let what = match info.outside_sandbox {
        true => "Approval needed, WITHOUT the sandbox:",
        false => "Approval needed:",
    };
    ui.note(&format!(
        "{} {} {}\n  {}",
        ui.err(Tone::Warning, what),
        ui.err(Tone::Strong, &info.name),
        text::line(&info.arguments, 2_000),
        text::line(&info.reason, 1_000),
    ));
    loop {
        ui.ask(&choices(info));
        let Some(line) = lines.next().await else {
            ui.note("");
            return answered(Answer::Deny, None, None);
        };
        match read_answer(&line) {
            // For the session nobody leaves the sandbox.
            Some((Word::Session | Word::All, _)) if info.outside_sandbox => {}
            Some((Word::All, comment)) if info.prefix.is_some() => {
                return answered(Answer::ApproveForSession, comment, info.prefix.clone());
            }
            Some((Word::All, _)) | None => {}
            Some((Word::Yes, comment)) => return answered(Answer::Approve, comment, None),
            Some((Word::No, comment)) => return answered(Answer::Deny, comment, None),
            Some((Word::Session, comment)) => {
                return answered(Answer::ApproveForSession, comment, None);
            }
        }
    }
}

/// The line that asks.
fn choices(info: &ApprovalInfo) -> String {
    if info.outside_sandbox {
        return "  Run it without the sandbox, this once? [y]es, [n]o; a comment may follow: "
            .into();
    }
    let words = info.prefix.as_ref().map(|words| words.join(" "));
    let all = words.map_or(String::new(), |words| {
        format!(", [a]ll that begin with `{}`", text::line(&words, 100))
    });
    format!("  Run it? [y]es, [n]o, for the [s]ession{all}; a comment may follow: ")
}

/// What a person may type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Yes,
    No,
    /// The identical call, for the session.
    Session,
    /// All commands that begin with the words offered, for the session.
    All,
}

/// Returns the answer and what the person added.
fn read_answer(line: &str) -> Option<(Word, Option<String>)> {
    let line = line.trim();
    let (word, rest) = line
        .split_once(|c: char| c.is_whitespace() || c == ',')
        .unwrap_or((line, ""));
    let word = match word.to_lowercase().as_str() {
        "y" | "yes" => Word::Yes,
        "n" | "no" => Word::No,
        "s" | "session" => Word::Session,
        "a" | "all" => Word::All,
        _ => return None,
    };
    let comment = Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty());
    Some((word, comment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_a_word_and_may_carry_a_comment() {
        assert_eq!(read_answer("y\n"), Some((Word::Yes, None)));
        assert_eq!(read_answer("Session"), Some((Word::Session, None)));
        let no = Some((Word::No, Some("use make instead".to_owned())));
        assert_eq!(read_answer("no, use make instead\n"), no);
        for unclear in ["", "maybe", "yess", "ye s"] {
            assert_eq!(read_answer(unclear), None, "{unclear}");
        }
    }
}
