//! Hostile text on the screen.

use threadline_session::{TurnItem, payload::Outcome};

use crate::support::{Stage, assistant, call, turn, user};

const HOSTILE: &str =
    "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m \u{202e}evil\u{202c} \u{9b}1A\r\u{8}";

#[test]
fn nothing_that_a_model_or_a_tool_says_reaches_the_terminal_as_an_escape() {
    let items = vec![
        user(1, HOSTILE),
        assistant(1, HOSTILE),
        TurnItem::Tool(call(2, HOSTILE, HOSTILE, Some(Outcome::Ok), HOSTILE)),
    ];
    let mut stage = Stage::talking(80, 40, vec![turn(1, items)]);
    let screen = stage.screen();
    let obeyed = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!screen.contains(obeyed), "{screen:?}");
    assert!(
        screen.contains("␛]0;owned␇") && screen.contains("<U+202E>evil"),
        "{screen}"
    );
}

#[test]
fn a_line_of_ten_megabytes_is_cut_and_said_to_be() {
    let item = TurnItem::Tool(call(
        1,
        "shell",
        "{}",
        Some(Outcome::Ok),
        &"x".repeat(10 << 20),
    ));
    let mut stage = Stage::talking(80, 24, vec![turn(1, vec![item])]);
    assert!(stage.screen().contains("10485760 bytes in all"));
}

#[test]
fn wide_characters_keep_the_columns() {
    let text = "日本語のテキスト ".repeat(20);
    let mut stage = Stage::talking(40, 24, vec![turn(1, vec![assistant(1, &text)])]);
    let screen = stage.screen();
    let wide = |line: &str| threadline_tui::text::width(line);
    assert!(screen.lines().all(|line| wide(line) <= 40), "{screen}");
}
