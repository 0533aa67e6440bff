//! An interface on a terminal in memory.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::{fmt::Write as _, path::PathBuf};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::{Terminal, backend::TestBackend, style::Modifier};
use threadline_agent::ApprovalInfo;
use threadline_session::{
    AssistantItem, RunId, SessionId, ToolItem, Turn, TurnHead, TurnItem, ViewPart,
    payload::{ChunkKind, ContentPart, EndReason, ModelRef, Outcome, Usage, UserSource},
};
use threadline_store::{Durability, SessionStatus, SessionSummary};
use threadline_tui::{
    app::{App, Begin, Effect, Facts, Msg, Opened, Question},
    draw,
    theme::Theme,
};

pub(crate) const NOW: u64 = 1_800_000_000_000;

/// The interface, and where it is shown.
pub(crate) struct Stage {
    pub(crate) app: App,
    terminal: Terminal<TestBackend>,
    pub(crate) now: u64,
}

impl Stage {
    pub(crate) fn new(begin: Begin, columns: u16, rows: u16, colour: bool) -> (Self, Vec<Effect>) {
        let size = (columns, rows);
        let theme = Theme { colour };
        let (app, effects) = App::new(begin, "/work".into(), None, theme, size, NOW);
        let terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        let stage = Self {
            app,
            terminal,
            now: NOW,
        };
        (stage, effects)
    }

    /// A conversation with these turns.
    pub(crate) fn talking(columns: u16, rows: u16, turns: Vec<Turn>) -> Self {
        let (mut stage, _) = Self::new(Begin::Session(id(1)), columns, rows, false);
        stage.opened(turns, 0);
        stage
    }

    pub(crate) fn opened(&mut self, turns: Vec<Turn>, first_seq: u64) {
        let opened = Opened {
            about: "a title".into(),
            turns,
            first_seq,
            ..Opened::default()
        };
        self.send(Msg::Opened(id(1), Ok(Box::new(opened))));
    }

    pub(crate) fn send(&mut self, msg: Msg) -> Vec<Effect> {
        let effects = self.app.update(msg, self.now);
        // Whatever happens can be shown.
        self.draw();
        effects
    }

    pub(crate) fn press(&mut self, code: KeyCode) -> Vec<Effect> {
        self.send(Msg::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    pub(crate) fn control(&mut self, c: char) -> Vec<Effect> {
        let key = KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        self.send(Msg::Key(key))
    }

    pub(crate) fn types(&mut self, text: &str) -> Vec<Effect> {
        let keys = text.chars().map(KeyCode::Char);
        keys.flat_map(|key| self.press(key)).collect()
    }

    /// Types a line and sends it.
    pub(crate) fn says(&mut self, text: &str) -> Vec<Effect> {
        self.types(text);
        self.press(KeyCode::Enter)
    }

    pub(crate) fn draw(&mut self) {
        let app = &mut self.app;
        self.terminal.draw(|frame| draw::draw(frame, app)).unwrap();
    }

    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        self.terminal.backend_mut().resize(columns, rows);
        self.send(Msg::Resize(columns, rows));
    }

    /// Returns what is on the screen, without spaces at the ends of lines.
    pub(crate) fn screen(&mut self) -> String {
        self.draw();
        let buffer = self.terminal.backend().buffer();
        let mut screen = String::new();
        for y in 0..buffer.area.height {
            let mut line = String::new();
            let mut x = 0;
            while x < buffer.area.width {
                let symbol = buffer[(x, y)].symbol();
                line.push_str(symbol);
                x += u16::try_from(threadline_tui::text::width(symbol).max(1)).unwrap();
            }
            let _ = writeln!(screen, "{}", line.trim_end());
        }
        screen
    }

    /// Returns whether anything on the screen has a colour.
    pub(crate) fn has_colour(&mut self) -> bool {
        use ratatui::style::Color::Reset;
        self.draw();
        let buffer = self.terminal.backend().buffer();
        let coloured = |cell: &ratatui::buffer::Cell| cell.fg != Reset || cell.bg != Reset;
        buffer.content().iter().any(coloured)
    }

    /// Returns the lines whose first cell is shown reversed.
    pub(crate) fn reversed(&mut self) -> Vec<u16> {
        self.draw();
        let buffer = self.terminal.backend().buffer();
        let is = |y: &u16| buffer[(0, *y)].modifier.contains(Modifier::REVERSED);
        (0..buffer.area.height).filter(is).collect()
    }

    /// Compares the screen with the one that was looked at.
    #[track_caller]
    pub(crate) fn is(&mut self, name: &str) {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("tests/screens")
            .join(format!("{name}.txt"));
        let screen = self.screen();
        if std::env::var_os("THREADLINE_ACCEPT").is_some() {
            std::fs::write(&path, &screen).unwrap();
            return;
        }
        let wanted = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            screen == wanted,
            "{} differs (THREADLINE_ACCEPT=1 accepts it); shown is\n{screen}\nwanted was\n{wanted}",
            path.display()
        );
    }
}

pub(crate) fn id(number: u64) -> SessionId {
    SessionId::parse(format!("0199f3aa-1b2c-7000-8000-{number:012}")).unwrap()
}

pub(crate) fn run_id() -> RunId {
    RunId::parse("0199f3aa-1b2c-7000-8000-00000000aaaa").unwrap()
}

pub(crate) fn row(number: u64, title: &str) -> SessionSummary {
    SessionSummary {
        id: id(number),
        title: Some(title.into()),
        made_title: None,
        first_prompt: None,
        created_at: NOW - 10_000_000,
        updated_at: NOW - 60_000 * number,
        turns: number,
        events: 10,
        status: SessionStatus::Idle,
        cwd: "/work".into(),
        model: Some(ModelRef {
            provider: "offline".into(),
            name: "demonstration".into(),
        }),
        usage: Usage::default(),
        subagent_usage: Usage::default(),
        bytes: 1000,
        archived: false,
        pinned: false,
        tags: Vec::new(),
        revision: 0,
        parent: None,
        durability: Durability::Step,
        error: None,
        people_damaged: None,
    }
}

pub(crate) fn turn(number: u64, items: Vec<TurnItem>) -> Turn {
    Turn {
        head: TurnHead {
            turn: number,
            run_id: run_id(),
            start_seq: number * 100,
            end_seq: Some(number * 100 + 99),
            started_at: NOW,
            ended_at: Some(NOW + 1_500),
            context: None,
            reason: Some(EndReason::Completed),
            usage: Usage {
                input_tokens: 120,
                output_tokens: 7,
                ..Usage::default()
            },
            subagent_usage: Usage::default(),
        },
        items,
    }
}

pub(crate) fn user(seq: u64, text: &str) -> TurnItem {
    TurnItem::User {
        id: format!("seq:{seq}"),
        seq,
        source: UserSource::User,
        content: vec![ContentPart::text(text)],
    }
}

pub(crate) fn assistant(step: u64, text: &str) -> TurnItem {
    TurnItem::Assistant(AssistantItem {
        id: format!("step:{step}"),
        seq: step,
        step,
        streaming: false,
        interrupted: false,
        stop_reason: None,
        model: None,
        usage: None,
        parts: vec![ViewPart {
            kind: ChunkKind::Text,
            text: text.into(),
        }],
    })
}

pub(crate) fn call(
    seq: u64,
    name: &str,
    arguments: &str,
    outcome: Option<Outcome>,
    result: &str,
) -> ToolItem {
    ToolItem {
        id: format!("call:{seq}:0"),
        seq,
        step: 1,
        call_id: format!("c{seq}"),
        name: name.into(),
        arguments: arguments.into(),
        start_seq: Some(seq),
        result_seq: None,
        started_at: Some(NOW),
        ended_at: outcome.map(|_| NOW + 1_200),
        outcome,
        is_error: outcome.is_some_and(|outcome| outcome != Outcome::Ok),
        content: vec![ContentPart::text(result)],
        full: None,
        output: String::new(),
        synthetic: matches!(outcome, Some(Outcome::Unknown | Outcome::NotStarted)),
        approval: None,
        outside_sandbox: false,
        grant_id: None,
    }
}

pub(crate) fn question(session: u64) -> Question {
    Question {
        info: ApprovalInfo {
            approval_id: format!("a{session}"),
            run_id: run_id(),
            session_id: id(session),
            tool_call_id: "c1".into(),
            name: "shell".into(),
            arguments: r#"{"command":"rm -rf build\nmake all"}"#.into(),
            reason: "the command may change files".into(),
            prefix: None,
            outside_sandbox: false,
            asked_at: NOW,
        },
        offered: false,
    }
}

pub(crate) fn open_turn() -> Msg {
    let facts = Facts {
        open: true,
        ..Facts::default()
    };
    Msg::Patched(id(1), Vec::new(), Some(Box::new(facts)))
}
