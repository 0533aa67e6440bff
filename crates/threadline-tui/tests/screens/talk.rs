//! The conversation.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use threadline_agent::{Answer, COMPACT_COMMAND};
use threadline_session::{
    Patch, Queued, TurnItem,
    payload::{ContentPart, Delivery, EndReason, Outcome},
};
use threadline_tui::{
    Begin,
    app::{Effect, Facts, Msg, Screen, Trouble},
    talk::Overlay,
};

use crate::support::{NOW, Stage, assistant, call, id, open_turn, question, turn, user};

const DIFF: &str = "replaced 1 time in `src/main.rs`\n--- src/main.rs\n+++ src/main.rs\n@@ -1,3 +1,3 @@\n \
                    fn main() {\n-    old();\n+    new();\n }";

fn conversation() -> Vec<threadline_session::Turn> {
    let mut cut = turn(
        3,
        vec![
            user(30, "Go on."),
            TurnItem::Tool(call(
                31,
                "shell",
                r#"{"command":"make install"}"#,
                Some(Outcome::Unknown),
                "The process ended.",
            )),
            TurnItem::Tool(call(
                32,
                "write",
                r#"{"path":"a.txt","content":"x"}"#,
                Some(Outcome::NotStarted),
                "It was not started.",
            )),
        ],
    );
    cut.head.reason = Some(EndReason::Interrupted);
    vec![
        turn(
            1,
            vec![user(10, "Hello"), assistant(1, "## Hi\nSome `code` here.")],
        ),
        turn(
            2,
            vec![
                user(20, "Change it."),
                TurnItem::Tool(call(
                    21,
                    "edit",
                    r#"{"path":"src/main.rs","old_string":"old","new_string":"new"}"#,
                    Some(Outcome::Ok),
                    DIFF,
                )),
                assistant(2, "Done."),
            ],
        ),
        cut,
    ]
}

#[test]
fn a_conversation_shows_its_end_with_calls_and_their_outcomes() {
    Stage::talking(80, 24, conversation()).is("talk-80x24");
    Stage::talking(40, 10, conversation()).is("talk-40x10");
    Stage::talking(100, 60, conversation()).is("talk-100x60");
}

#[test]
fn without_colour_nothing_has_one_and_with_it_the_words_are_the_same() {
    let mut plain = Stage::talking(80, 24, conversation());
    assert!(!plain.has_colour());
    let (mut coloured, _) = Stage::new(Begin::Session(id(1)), 80, 24, true);
    coloured.opened(conversation(), 0);
    assert!(coloured.has_colour());
    assert_eq!(plain.screen(), coloured.screen());
}

#[test]
fn no_size_of_the_terminal_breaks_anything() {
    let mut stage = Stage::talking(80, 24, conversation());
    stage.send(open_turn());
    stage.send(Msg::Questions(vec![question(1)]));
    stage.types("some words that are longer than the smallest terminals");
    for overlay in [None, Some(Overlay::Help), Some(Overlay::Queue(0))] {
        stage.app.talk.overlay = overlay;
        for columns in [1, 2, 3, 5, 8, 20, 200] {
            for rows in [1, 2, 3, 4, 5, 9, 60] {
                stage.resize(columns, rows);
                stage.press(KeyCode::PageUp);
                stage.press(KeyCode::PageDown);
            }
        }
    }
    stage.app.screen = Screen::Picker;
    for columns in [1, 4, 9, 200] {
        for rows in [1, 2, 3, 5, 17, 60] {
            stage.resize(columns, rows);
        }
    }
}

#[test]
fn a_message_starts_a_turn_and_one_during_a_run_is_queued() {
    let mut stage = Stage::talking(80, 24, Vec::new());
    let effects = stage.says("first");
    let [Effect::Start { id: session, input }] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!((session, input.task.as_str()), (&Some(id(1)), "first"));
    // Also before the run's first event is there.
    let effects = stage.says("second");
    let [Effect::Queue { input, .. }] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(input.text, "second");
    let queued = Queued {
        message_id: "m1".into(),
        content: vec![ContentPart::text("second")],
        delivery: Delivery::AfterTurn,
    };
    let facts = Facts {
        open: true,
        queue: vec![queued],
        ..Facts::default()
    };
    stage.send(Msg::Patched(id(1), Vec::new(), Some(Box::new(facts))));
    assert!(stage.screen().contains("queued: second"));
}

fn with_queue() -> Stage {
    let mut stage = Stage::talking(80, 24, Vec::new());
    let queued = |name: &str| Queued {
        message_id: name.into(),
        content: vec![ContentPart::text(format!("words of {name}"))],
        delivery: Delivery::AfterTurn,
    };
    let facts = Facts {
        open: true,
        queue: ["m1", "m2"].map(queued).to_vec(),
        ..Facts::default()
    };
    stage.send(Msg::Patched(id(1), Vec::new(), Some(Box::new(facts))));
    stage
}

#[test]
fn a_queued_message_can_be_changed_in_its_place() {
    let mut stage = with_queue();
    stage.says("/queue");
    stage.press(KeyCode::Down);
    stage.press(KeyCode::Char('e'));
    let effects = stage.says(", and more");
    let [Effect::Queue { input, .. }] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(input.message_id.as_deref(), Some("m2"));
    assert_eq!(input.text, "words of m2, and more");
}

#[test]
fn a_queued_message_can_be_dropped() {
    let mut stage = with_queue();
    stage.says("/queue");
    assert_eq!(
        stage.press(KeyCode::Char('d')),
        [Effect::Withdraw {
            id: id(1),
            message_id: "m1".into()
        }]
    );
}

#[test]
fn escape_stops_the_run_and_nothing_else() {
    let mut stage = Stage::talking(80, 24, Vec::new());
    assert!(stage.press(KeyCode::Esc).is_empty());
    stage.send(open_turn());
    stage.types("half a message");
    assert_eq!(stage.press(KeyCode::Esc), [Effect::Cancel { id: id(1) }]);
    assert_eq!(stage.app.talk.composer.text(), "half a message");
}

#[test]
fn a_question_is_answered_with_a_word_and_a_comment() {
    let mut stage = Stage::talking(80, 24, conversation());
    stage.send(open_turn());
    stage.send(Msg::Questions(vec![question(1)]));
    stage.is("question");
    assert!(stage.says("stop it").is_empty());
    assert!(stage.screen().contains("Answer y"));
    stage.control('u');
    let effects = stage.says("n use make instead");
    let [
        Effect::Answer {
            answered, question, ..
        },
    ] = effects.as_slice()
    else {
        panic!("{effects:?}");
    };
    assert_eq!(answered.answer, Answer::Deny);
    assert_eq!(answered.comment.as_deref(), Some("use make instead"));
    assert_eq!(question.info.approval_id, "a1");
    stage.send(Msg::Questions(Vec::new()));
    assert!(!stage.screen().contains("Approval needed"));
}

#[test]
fn a_question_takes_only_the_answers_that_it_offers() {
    let mut stage = Stage::talking(80, 24, Vec::new());
    let mut asked = question(1);
    asked.info.prefix = Some(vec!["cargo".into(), "test".into()]);
    stage.send(Msg::Questions(vec![asked.clone()]));
    assert!(
        stage
            .screen()
            .contains("a (all that begin with `cargo test`)")
    );
    let effects = stage.says("a");
    let [Effect::Answer { answered, .. }] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(answered.answer, Answer::ApproveForSession);
    assert_eq!(answered.prefix, asked.info.prefix);
    asked.info.outside_sandbox = true;
    stage.send(Msg::Questions(vec![asked]));
    assert!(stage.screen().contains("WITHOUT the sandbox"));
    for refused in ["a", "s"] {
        assert!(stage.says(refused).is_empty());
        stage.control('u');
    }
    assert_eq!(stage.says("y").len(), 1);
}

#[test]
fn a_question_that_is_not_shown_whole_says_so() {
    let mut stage = Stage::talking(80, 24, Vec::new());
    let mut asked = question(1);
    asked.info.arguments = serde_json::json!({"command": "echo x\n".repeat(40)}).to_string();
    stage.send(Msg::Questions(vec![asked.clone()]));
    assert!(stage.screen().contains("not all is shown"));
    stage.resize(80, 120);
    assert!(!stage.screen().contains("not all is shown"));
    asked.info.arguments = serde_json::json!({"command": "x".repeat(9_000)}).to_string();
    stage.send(Msg::Questions(vec![asked]));
    assert!(stage.screen().contains("7000 more bytes"));
}

#[test]
fn a_question_does_not_take_what_is_being_typed() {
    let mut stage = Stage::talking(80, 24, Vec::new());
    stage.send(open_turn());
    stage.types("yes");
    stage.send(Msg::Questions(vec![question(1)]));
    let effects = stage.press(KeyCode::Enter);
    assert!(
        matches!(effects.as_slice(), [Effect::Queue { .. }]),
        "{effects:?}"
    );
    stage.press(KeyCode::Tab);
    let effects = stage.says("s");
    let [Effect::Answer { answered, .. }] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(answered.answer, Answer::ApproveForSession);
}

#[test]
fn commands_complete_and_unknown_ones_are_not_sent() {
    let mut stage = Stage::talking(80, 24, Vec::new());
    stage.types("/re");
    stage.is("completion");
    stage.press(KeyCode::Tab);
    assert_eq!(stage.app.talk.composer.text(), "/re");
    stage.types("d");
    stage.press(KeyCode::Tab);
    assert_eq!(stage.app.talk.composer.text(), "/redo");
    assert_eq!(stage.press(KeyCode::Enter), [Effect::Redo { id: id(1) }]);
    assert!(stage.says("/nonsense").is_empty());
    assert!(stage.screen().contains("There is no command /nonsense"));
    assert_eq!(stage.app.talk.composer.text(), "/nonsense");
}

#[test]
fn each_command_does_its_thing() {
    let mut stage = Stage::talking(80, 24, Vec::new());
    let effects = stage.says("/compact");
    let [Effect::Start { input, .. }] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(input.task, COMPACT_COMMAND);
    stage.send(Msg::NotSent(COMPACT_COMMAND.into(), Trouble::new("no")));
    stage.control('c');
    let title = "a name".to_owned();
    assert_eq!(
        stage.says("/name a name"),
        [Effect::Rename { id: id(1), title }]
    );
    let path = Some("out.md".to_owned());
    assert_eq!(
        stage.says("/export out.md"),
        [Effect::Export { id: id(1), path }]
    );
    stage.says("/model other/m");
    let effects = stage.says("hello");
    let [Effect::Start { input, .. }] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(input.model.as_deref(), Some("other/m"));
}

#[test]
fn rewinding_asks_for_the_turn_and_waits_for_no_run() {
    let mut stage = Stage::talking(80, 24, conversation());
    assert_eq!(stage.says("/rewind"), [Effect::Choose { id: id(1) }]);
    stage.send(Msg::Choices(id(1), Ok(conversation())));
    stage.press(KeyCode::Down);
    assert_eq!(
        stage.press(KeyCode::Enter),
        [Effect::Rewind { id: id(1), to: 299 }]
    );
    stage.send(open_turn());
    assert!(stage.says("/rewind").is_empty());
    assert!(stage.screen().contains("Esc stops it"));
    // It can be sent again as soon as the turn is over.
    assert_eq!(stage.app.talk.composer.text(), "/rewind");
}

#[test]
fn a_message_has_several_lines_and_pasted_text_is_not_sent() {
    let mut stage = Stage::talking(80, 24, Vec::new());
    stage.types("one");
    stage.send(Msg::Key(KeyEvent::new(KeyCode::Enter, KeyModifiers::ALT)));
    assert!(stage.send(Msg::Paste("two\nthree\n".into())).is_empty());
    stage.control('j');
    assert_eq!(stage.app.talk.composer.text(), "one\ntwo\nthree\n\n");
    let effects = stage.press(KeyCode::Enter);
    let [Effect::Start { input, .. }] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(input.task, "one\ntwo\nthree");
}

#[test]
fn what_could_not_be_sent_is_typed_again() {
    let mut stage = Stage::talking(80, 24, Vec::new());
    stage.says("precious words");
    let trouble = Trouble {
        message: "the disk is full".into(),
        hint: Some("make space".into()),
    };
    stage.send(Msg::NotSent("precious words".into(), trouble));
    assert_eq!(stage.app.talk.composer.text(), "precious words");
    let screen = stage.screen();
    assert!(screen.contains("the disk is full") && screen.contains("make space"));
}

#[test]
fn a_new_session_is_read_and_followed_once_it_is_begun() {
    let (mut stage, _) = Stage::new(Begin::Picker, 80, 24, false);
    stage.control('o');
    let effects = stage.says("hello");
    assert!(matches!(
        effects.as_slice(),
        [Effect::Start { id: None, .. }]
    ));
    // The session is not there yet, so there is no queue to put anything in.
    assert!(stage.says("more").is_empty());
    assert_eq!(stage.app.talk.composer.text(), "more");
    assert_eq!(
        stage.send(Msg::Started(id(5))),
        [Effect::Open { id: id(5) }]
    );
    assert_eq!(stage.app.session(), Some(&id(5)));
}

#[test]
fn leaving_while_a_run_goes_on_must_be_said_twice() {
    let mut stage = Stage::talking(80, 24, Vec::new());
    stage.send(open_turn());
    assert!(stage.says("/quit").is_empty());
    assert!(stage.screen().contains("Leave again"));
    assert_eq!(stage.control('d'), [Effect::Quit]);
}

#[test]
fn patches_make_what_reading_again_would_show() {
    let mut stage = Stage::talking(80, 40, Vec::new());
    let whole = conversation();
    let patches = whole.iter().flat_map(|turn| {
        let number = turn.head.turn;
        let head = Patch::Turn {
            turn: turn.head.clone(),
        };
        let items = turn.items.iter().cloned();
        let items = items.map(move |item| Patch::Item { turn: number, item });
        std::iter::once(head).chain(items).collect::<Vec<_>>()
    });
    stage.send(Msg::Patched(id(1), patches.collect(), None));
    let shown = stage.screen();
    assert_eq!(shown, Stage::talking(80, 40, whole).screen());
}

#[test]
fn streamed_text_is_appended_where_it_belongs() {
    let mut stage = Stage::talking(80, 24, vec![turn(1, vec![assistant(1, "One")])]);
    let more = Patch::Append {
        turn: 1,
        id: "step:1".into(),
        part: 0,
        kind: "text",
        text: " and two".into(),
    };
    stage.send(Msg::Patched(id(1), vec![more], None));
    assert!(stage.screen().contains("One and two"));
}

fn long(turns: u64) -> Vec<threadline_session::Turn> {
    let one = |n| {
        turn(
            n,
            vec![user(n, &format!("message {n}")), assistant(n, "ok")],
        )
    };
    (1..=turns).map(one).collect()
}

#[test]
fn scrolling_back_asks_for_earlier_turns_once_and_stays_where_it_is() {
    let (mut stage, _) = Stage::new(Begin::Session(id(1)), 80, 24, false);
    stage.opened(long(20).split_off(10), 1_100);
    let mut asked = Vec::new();
    for _ in 0..20 {
        asked.extend(stage.press(KeyCode::PageUp));
    }
    assert_eq!(
        asked,
        [Effect::Earlier {
            id: id(1),
            before: 1_100
        }]
    );
    let before = stage.screen();
    let mut earlier = long(20);
    earlier.truncate(10);
    stage.send(Msg::Earlier(id(1), Ok((earlier, 0))));
    let seen = |screen: &str| {
        screen
            .lines()
            .skip(2)
            .take(15)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(seen(&before), seen(&stage.screen()));
    // What comes in at the end does not move it either.
    let more = Patch::Turn {
        turn: turn(21, Vec::new()).head,
    };
    stage.send(Msg::Patched(id(1), vec![more], None));
    assert_eq!(seen(&before), seen(&stage.screen()));
    assert!(stage.screen().contains("more below"));
    stage.press(KeyCode::PageUp);
    assert!(stage.screen().contains("message 9"));
    stage.send(Msg::Key(KeyEvent::new(KeyCode::End, KeyModifiers::CONTROL)));
    assert!(stage.app.talk.turns.at_end());
}

#[test]
fn a_turn_that_was_cut_is_put_together_again() {
    let mut rest = turn(1, vec![assistant(2, "the rest")]);
    rest.head.start_seq = 100;
    let (mut stage, _) = Stage::new(Begin::Session(id(1)), 80, 24, false);
    stage.opened(vec![rest], 150);
    stage.press(KeyCode::PageUp);
    let begun = turn(1, vec![user(1, "the beginning")]);
    stage.send(Msg::Earlier(id(1), Ok((vec![begun], 0))));
    assert_eq!(stage.app.talk.turns.iter().count(), 1);
    let items: Vec<_> = stage
        .app
        .talk
        .turns
        .iter()
        .next()
        .unwrap()
        .items()
        .collect();
    assert_eq!(items.len(), 2);
    assert!(matches!(items[0], TurnItem::User { .. }));
}

#[test]
fn memory_is_bounded_however_far_back_is_scrolled() {
    use threadline_tui::limits::MAX_EARLIER_ITEMS;
    let (mut stage, _) = Stage::new(Begin::Session(id(1)), 80, 24, false);
    stage.opened(long(20), 1_000_000);
    for page in 0..80u64 {
        for _ in 0..10 {
            stage.press(KeyCode::PageUp);
        }
        let turns = (0..20).map(|n| {
            let number = 1_000_000 - page * 20 - 20 + n;
            turn(number, vec![user(number, "old"), assistant(number, "ok")])
        });
        let first = 1_000_000 - page * 2_000;
        stage.send(Msg::Earlier(id(1), Ok((turns.collect(), first))));
    }
    let held: usize = stage
        .app
        .talk
        .turns
        .iter()
        .map(|turn| turn.items().count())
        .sum();
    assert!(held <= MAX_EARLIER_ITEMS, "{held} items");
    // The end is read again when it is wanted.
    let key = KeyEvent::new(KeyCode::End, KeyModifiers::CONTROL);
    assert_eq!(stage.send(Msg::Key(key)), [Effect::Open { id: id(1) }]);
}

#[test]
fn long_outputs_are_folded_until_they_are_wanted() {
    let output: String = (1..=50).map(|n| format!("line {n}\n")).collect();
    let item = TurnItem::Tool(call(
        1,
        "shell",
        r#"{"command":"seq 50"}"#,
        Some(Outcome::Ok),
        &output,
    ));
    let mut stage = Stage::talking(80, 60, vec![turn(1, vec![item])]);
    let screen = stage.screen();
    assert!(screen.contains("38 lines more") && !screen.contains("line 20\n"));
    stage.control('o');
    assert!(stage.screen().contains("line 20\n"));
}

#[test]
fn a_session_that_cannot_be_read_says_why_and_where_to_go() {
    let (mut stage, _) = Stage::new(Begin::Session(id(1)), 80, 24, false);
    assert!(stage.screen().contains("Reading the last turns"));
    let trouble = Trouble {
        message: "the header is damaged".into(),
        hint: Some("see threadline doctor".into()),
    };
    stage.send(Msg::Opened(id(1), Err(trouble)));
    let screen = stage.screen();
    assert!(screen.contains("the header is damaged") && screen.contains("threadline doctor"));
    stage.says("hello");
    assert!(stage.screen().contains("not there to go on with"));
}

#[test]
fn what_was_said_is_in_the_history_of_the_input() {
    let mut stage = Stage::talking(80, 24, Vec::new());
    stage.says("one");
    stage.send(Msg::NotSent("one".into(), Trouble::new("x")));
    stage.control('c');
    stage.press(KeyCode::Up);
    assert_eq!(stage.app.talk.composer.text(), "one");
    stage.press(KeyCode::Down);
    assert!(stage.app.talk.composer.is_empty());
    assert_eq!(stage.now, NOW);
}
