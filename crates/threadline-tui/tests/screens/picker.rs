//! The picker.

use crossterm::event::KeyCode;
use threadline_session::{Parent, SessionId};
use threadline_store::{Archived, ListPage, SessionStatus, SessionSummary};
use threadline_tui::{
    Begin,
    app::{Effect, Msg, Screen, Trouble},
    limits::{PAGE_ROWS, PREVIEW_REST_MS, UNDO_MS},
    picker::Asking,
};

use crate::support::{NOW, Stage, assistant, id, question, row, turn, user};

fn page(sessions: Vec<SessionSummary>, next: Option<&str>) -> Result<ListPage, Trouble> {
    Ok(ListPage {
        sessions,
        next: next.map(str::to_owned),
        rebuilding: None,
    })
}

fn listed(effects: &[Effect]) -> u64 {
    effects
        .iter()
        .find_map(|effect| match effect {
            Effect::List { generation, .. } => Some(*generation),
            _ => None,
        })
        .unwrap_or_else(|| panic!("no list in {effects:?}"))
}

fn picking(columns: u16, rows: u16, sessions: Vec<SessionSummary>, next: Option<&str>) -> Stage {
    let (mut stage, effects) = Stage::new(Begin::Picker, columns, rows, false);
    answer(&mut stage, &effects, page(sessions, next));
    stage
}

fn answer(stage: &mut Stage, effects: &[Effect], page: Result<ListPage, Trouble>) {
    stage.send(Msg::Listed {
        generation: listed(effects),
        first: true,
        page,
    });
}

fn family() -> Vec<SessionSummary> {
    let mut fork = row(1, "a fork that was active last");
    fork.parent = Some(Parent { id: id(3), seq: 41 });
    let mut other = row(2, "another");
    other.status = SessionStatus::Interrupted;
    let mut twig = row(4, "fork of the fork");
    twig.parent = Some(Parent { id: id(1), seq: 4 });
    let mut orphan = row(5, "its parent is not loaded");
    orphan.parent = Some(Parent { id: id(9), seq: 4 });
    vec![fork, other, row(3, "the parent"), twig, orphan]
}

#[test]
fn forks_stand_below_their_parent_where_the_most_active_of_them_is() {
    let mut stage = picking(80, 24, family(), None);
    stage.is("picker-80x24");
    let branches = stage.app.picker.branches.iter();
    let order: Vec<_> = branches.map(|branch| (branch.row, branch.depth)).collect();
    assert_eq!(order, [(2, 0), (0, 1), (3, 2), (1, 0), (4, 0)]);
}

#[test]
fn sessions_that_claim_to_be_each_others_parents_are_all_listed() {
    let mut a = row(1, "a");
    a.parent = Some(Parent { id: id(2), seq: 1 });
    let mut b = row(2, "b");
    b.parent = Some(Parent { id: id(1), seq: 1 });
    let stage = picking(80, 24, vec![a, b], None);
    assert_eq!(stage.app.picker.branches.len(), 2);
}

#[test]
fn a_small_screen_has_the_list_alone() {
    picking(40, 10, family(), None).is("picker-40x10");
}

#[test]
fn the_preview_is_read_once_the_selection_rests() {
    let mut stage = picking(110, 20, family(), None);
    assert!(stage.send(Msg::Tick).is_empty());
    stage.press(KeyCode::Down);
    stage.now += PREVIEW_REST_MS;
    let selected = stage.app.picker.selected.clone().unwrap();
    assert_eq!(
        stage.send(Msg::Tick),
        [Effect::Preview {
            id: selected.clone()
        }]
    );
    let turns = vec![turn(1, vec![user(1, "Why?"), assistant(1, "Because.")])];
    // That of a session that is not selected any more is dropped.
    stage.send(Msg::Previewed(id(77), Ok(Vec::new())));
    stage.send(Msg::Previewed(selected, Ok(turns)));
    stage.is("picker-preview");
}

#[test]
fn the_first_page_is_shown_and_more_is_asked_for_only_near_its_end() {
    let rows = (1..=PAGE_ROWS as u64).map(|n| row(n, "x")).collect();
    let mut stage = picking(80, 24, rows, Some("next"));
    assert!(stage.press(KeyCode::Down).is_empty());
    let mut asked = Vec::new();
    for _ in 0..PAGE_ROWS {
        asked.extend(stage.press(KeyCode::Down));
    }
    // Once: while it is on its way it is not asked for again.
    let [Effect::List { cursor, .. }] = asked.as_slice() else {
        panic!("{asked:?}");
    };
    assert_eq!(cursor.as_deref(), Some("next"));
    assert!(stage.screen().contains("loading"));
}

#[test]
fn what_is_typed_is_searched_and_an_older_answer_is_dropped() {
    let mut stage = picking(80, 24, family(), None);
    let first = stage.types("f");
    let second = stage.types("o");
    let Effect::List { filter, .. } = &second[0] else {
        panic!("{second:?}");
    };
    assert_eq!(filter.query.as_deref(), Some("fo"));
    assert_eq!(filter.cwd.as_deref(), Some("/work"));
    answer(&mut stage, &second, page(vec![row(7, "found")], None));
    answer(&mut stage, &first, page(family(), None));
    assert_eq!(stage.app.picker.rows.len(), 1);
    let cleared = stage.press(KeyCode::Esc);
    listed(&cleared);
}

#[test]
fn enter_waits_for_what_was_searched_and_is_dropped_when_more_is_typed_or_nothing_found() {
    let mut stage = picking(80, 24, family(), None);
    let asked = stage.types("f");
    assert!(stage.press(KeyCode::Enter).is_empty());
    let done = stage.send(Msg::Listed {
        generation: listed(&asked),
        first: true,
        page: page(vec![row(7, "found")], None),
    });
    assert!(
        done.iter()
            .any(|effect| matches!(effect, Effect::Open { id: opened, .. } if *opened == id(7))),
        "{done:?}"
    );

    let mut stage = picking(80, 24, family(), None);
    stage.types("f");
    stage.press(KeyCode::Enter);
    let asked = stage.types("o");
    answer(&mut stage, &asked, page(vec![row(7, "found")], None));
    assert_eq!(stage.app.screen, Screen::Picker);

    let asked = stage.types("x");
    stage.press(KeyCode::Enter);
    answer(&mut stage, &asked, page(Vec::new(), None));
    assert_eq!(stage.app.screen, Screen::Picker);
    assert!(stage.press(KeyCode::Enter).is_empty());
}

#[test]
fn tab_looks_everywhere_and_archived_sessions_can_be_shown() {
    let mut stage = picking(80, 24, Vec::new(), None);
    assert!(stage.screen().contains("No session in this folder"));
    let effects = stage.press(KeyCode::Tab);
    let Effect::List { filter, .. } = &effects[0] else {
        panic!("{effects:?}");
    };
    assert_eq!((filter.cwd.clone(), filter.archived), (None, Archived::No));
    let effects = stage.control('a');
    let Effect::List { filter, .. } = &effects[0] else {
        panic!("{effects:?}");
    };
    assert_eq!(filter.archived, Archived::All);
}

#[test]
fn a_list_that_cannot_be_read_says_why() {
    let (mut stage, effects) = Stage::new(Begin::Picker, 80, 24, false);
    assert!(stage.screen().contains("Looking"));
    answer(&mut stage, &effects, Err(Trouble::new("the disk is gone")));
    assert!(stage.screen().contains("the disk is gone"));
}

#[test]
fn a_deletion_can_be_undone_until_its_time_is_over() {
    let mut stage = picking(80, 24, family(), None);
    let chosen: SessionId = stage.app.picker.selected.clone().unwrap();
    assert!(stage.control('x').is_empty());
    assert_eq!(stage.app.picker.branches.len(), 4);
    assert!(stage.screen().contains("Ctrl-B"));
    stage.control('b');
    assert_eq!(stage.app.picker.branches.len(), 5);
    stage.now += UNDO_MS * 2;
    assert!(!stage.send(Msg::Tick).iter().any(is_delete));
    let selected = stage.app.picker.selected.clone().unwrap();
    stage.control('x');
    stage.now += UNDO_MS;
    let effects = stage.send(Msg::Tick);
    assert!(effects.contains(&Effect::Delete {
        id: selected.clone()
    }));
    stage.send(Msg::Deleted(selected, Err(Trouble::new("it is locked"))));
    assert!(stage.screen().contains("it is locked"));
    assert_eq!(stage.app.picker.branches.len(), 5);
    stage.send(Msg::Deleted(chosen, Ok(())));
    assert_eq!(stage.app.picker.rows.len(), 4);
}

fn is_delete(effect: &Effect) -> bool {
    matches!(effect, Effect::Delete { .. })
}

#[test]
fn leaving_deletes_what_was_to_be_deleted() {
    let mut stage = picking(80, 24, family(), None);
    stage.control('x');
    let effects = stage.press(KeyCode::Esc);
    assert!(is_delete(&effects[0]));
    assert_eq!(effects[1], Effect::Quit);
}

#[test]
fn a_title_is_typed_in_place_and_shown_when_it_is_stored() {
    let mut stage = picking(80, 24, vec![row(1, "old")], None);
    stage.control('r');
    assert!(matches!(stage.app.picker.asking, Asking::Title(..)));
    for _ in 0..3 {
        stage.press(KeyCode::Backspace);
    }
    let effects = stage.says("new");
    assert_eq!(
        effects,
        [Effect::Rename {
            id: id(1),
            title: "new".into()
        }]
    );
    assert!(stage.screen().contains("old"));
    stage.send(Msg::Changed(Box::new(row(1, "new"))));
    assert!(stage.screen().contains("new"));
}

#[test]
fn what_is_put_away_leaves_the_list() {
    let mut stage = picking(80, 24, vec![row(1, "one"), row(2, "two")], None);
    let effects = stage.control('t');
    assert_eq!(
        effects,
        [Effect::Archive {
            id: id(1),
            archived: true
        }]
    );
    let mut away = row(1, "one");
    away.archived = true;
    stage.send(Msg::Changed(Box::new(away)));
    assert_eq!(stage.app.picker.rows.len(), 1);
    assert_eq!(stage.app.picker.selected, Some(id(2)));
}

#[test]
fn enter_opens_and_control_f_chooses_a_turn_to_fork_from() {
    let mut stage = picking(80, 24, vec![row(1, "one")], None);
    let effects = stage.control('f');
    assert_eq!(
        effects,
        [Effect::Open { id: id(1) }, Effect::Choose { id: id(1) }]
    );
    stage.opened(Vec::new(), 0);
    let turns = vec![
        turn(1, vec![user(1, "first")]),
        turn(2, vec![user(2, "second")]),
    ];
    stage.send(Msg::Choices(id(1), Ok(turns)));
    stage.is("fork-choice");
    stage.press(KeyCode::Down);
    assert_eq!(
        stage.press(KeyCode::Enter),
        [Effect::Fork {
            id: id(1),
            at: Some(199)
        }]
    );
    let effects = stage.send(Msg::Forked(id(8), "Forked.".into()));
    assert_eq!(effects, [Effect::Open { id: id(8) }]);
    assert_eq!(stage.app.screen, Screen::Talk);
}

#[test]
fn a_run_that_waits_for_an_answer_is_told_of_in_the_picker_too() {
    let mut stage = picking(80, 24, vec![row(1, "one")], None);
    stage.send(Msg::Questions(vec![question(1)]));
    assert!(stage.screen().contains("A run waits for your answer"));
}

#[test]
fn ages_are_those_of_the_moment() {
    let mut stage = picking(80, 24, vec![row(1, "one")], None);
    assert_eq!(stage.now, NOW);
    assert!(stage.screen().contains("1m"));
    stage.now += 3_600_000;
    stage.send(Msg::Tick);
    assert!(stage.screen().contains("1h"));
}
