//! What holds for any sequence of events, plausible or not.
//!
//! `PROPTEST_CASES` is the number of cases over all properties; each has its share of it.

use std::sync::Arc;

use proptest::{prelude::*, test_runner::FileFailurePersistence};
use threadline_session::{
    ApplyError, Event, Header, Place, Skimmed, Transcript, View,
    chain::Chain,
    closers,
    codec::{Encoder, Line, line_end},
    normalise,
    payload::replace_lone_surrogates,
    types,
};

use crate::{
    sequences::{Choice, Page, Style, check_history, choices, interpret, relog},
    support::{items_json, model, request_json, surface},
};

const DEFAULT_CASES: u32 = 10_000;

fn percent(share: u32) -> ProptestConfig {
    let total = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    ProptestConfig {
        cases: (total.unwrap_or(DEFAULT_CASES) * share / 100).max(1),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/proptest-regressions/properties.txt"
        )))),
        ..ProptestConfig::default()
    }
}

/// Supplies the content of every item that is missing, as a store does from the log.
fn supply(state: &mut Transcript, events: &[Event]) {
    for (seq, _) in state.missing() {
        let event = &events[usize::try_from(seq).unwrap()];
        let line = Encoder::new(Chain::new())
            .batch(seq, std::slice::from_ref(event), None)
            .unwrap();
        state.supply(seq, line.bytes.trim_ascii_end());
    }
}

proptest! {
    #![proptest_config(percent(18))]

    #[test]
    fn any_history_is_normalised_to_a_valid_one_that_needs_no_more_changes(choices in choices()) {
        let log = interpret(&choices, Style::Wild);
        let (items, _) = normalise(&log.state, &model());
        check_history(&items).map_err(TestCaseError::fail)?;
        prop_assert_eq!(&normalise(&log.state, &model()).0, &items);
        let again = relog(&items);
        let (same, report) = normalise(&again.state, &model());
        prop_assert_eq!(same, items);
        prop_assert!(report.is_clean(), "{report:?}");
    }

    #[test]
    fn closers_leave_nothing_open_and_close_once(choices in choices()) {
        let mut log = interpret(&choices, Style::Wild);
        let time = log.state.last_time();
        for event in log.recover() {
            prop_assert_eq!(event.time, time);
        }
        prop_assert!(log.state.open_turn().is_none());
        prop_assert!(log.state.open_step().is_none());
        prop_assert!(log.state.open_calls().is_empty());
        prop_assert!(log.state.pending_approvals().is_empty());
        prop_assert!(closers(&log.state).unwrap().is_empty());
        let (items, report) = normalise(&log.state, &model());
        check_history(&items).map_err(TestCaseError::fail)?;
        prop_assert_eq!(report.missing_results, 0);
    }
}

proptest! {
    #![proptest_config(percent(8))]

    #[test]
    fn a_log_folded_in_two_pieces_gives_the_state_of_the_whole(
        choices in choices(),
        cut in any::<prop::sample::Index>(),
    ) {
        let log = interpret(&choices, Style::Wild);
        let at = cut.index(log.events.len() + 1);
        let mut state = Transcript::fold(&log.events[..at]).unwrap();
        for event in &log.events[at..] {
            state.apply(event).unwrap();
        }
        let whole = Transcript::fold(&log.events).unwrap();
        prop_assert_eq!(request_json(&state), request_json(&whole));
        prop_assert_eq!(request_json(&whole), request_json(&log.state));
        prop_assert_eq!(closers(&state).unwrap(), closers(&whole).unwrap());
        prop_assert_eq!(state.facts(), whole.facts());
    }

    #[test]
    fn a_state_frozen_anywhere_goes_on_as_the_whole(
        choices in choices(),
        cut in any::<prop::sample::Index>(),
    ) {
        let log = interpret(&choices, Style::Wild);
        let at = cut.index(log.events.len() + 1);
        let frozen = Transcript::fold(&log.events[..at]).unwrap().freeze();
        let mut state = Transcript::thaw(&frozen, Arc::default()).unwrap();
        supply(&mut state, &log.events);
        for event in &log.events[at..] {
            if let Err(error) = state.apply(event) {
                let ApplyError::Past { target, .. } = error else {
                    return Err(TestCaseError::fail(error.to_string()));
                };
                let past = usize::try_from(target + 1).unwrap().min(log.events.len());
                let past = Transcript::fold(&log.events[..past]).unwrap();
                state.supply_past(past.into_surface_at());
                state.apply(event).unwrap();
                supply(&mut state, &log.events);
            }
        }
        let whole = Transcript::fold(&log.events).unwrap();
        prop_assert_eq!(request_json(&state), request_json(&whole));
        prop_assert_eq!(closers(&state).unwrap(), closers(&whole).unwrap());
        prop_assert_eq!(state.facts(), whole.facts());
        prop_assert_eq!(state.freeze(), whole.freeze());
    }

    #[test]
    fn a_log_that_is_only_skimmed_gives_the_state_of_one_that_is_parsed(choices in choices()) {
        let log = interpret(&choices, Style::Wild);
        let mut encoder = Encoder::new(Chain::new());
        let mut state = Transcript::new().bare();
        let mut step = 0;
        for (at, event) in log.events.iter().enumerate() {
            let line = encoder.batch(event.seq, std::slice::from_ref(event), None).unwrap();
            let place = Place { at: at as u64, len: 1 };
            let skimmed = Skimmed::of(line.bytes.trim_ascii_end()).unwrap();
            prop_assert!(!skimmed.has_more());
            prop_assert_eq!(skimmed.chain_value().is_some(), event.kind == types::TURN_END);
            if !state.skim(&skimmed, place)
                && let Err(ApplyError::Past { target, .. }) = state.apply_at(event, place)
            {
                return Err(TestCaseError::fail(format!("no way back to {target}")));
            }
            if event.kind == types::STEP_START {
                step = at;
            }
        }
        if state.open_step().is_some() {
            log.events[step..].iter().for_each(|event| state.stream(event));
        }
        let mut whole = Transcript::new().bare();
        for (at, event) in log.events.iter().enumerate() {
            whole.apply_at(event, Place { at: at as u64, len: 1 }).unwrap();
        }
        prop_assert_eq!(state.freeze(), whole.freeze());
    }

    #[test]
    fn a_page_that_applies_the_patches_shows_what_a_fresh_read_shows(
        choices in choices(),
        wild in any::<bool>(),
    ) {
        let style = if wild { Style::Wild } else { Style::Plausible };
        let mut view = View::new();
        let mut page = Page::default();
        for event in &interpret(&choices, style).events {
            for patch in view.apply(event).unwrap() {
                page.apply(&patch);
            }
            let shown = serde_json::to_value(view.turns()).unwrap();
            let shown = shown.as_array().unwrap();
            prop_assert_eq!(shown, &page.turns, "after {}", event.seq);
            if !page.status.is_null() {
                let status = serde_json::to_value(view.transcript().status()).unwrap();
                prop_assert_eq!(&status, &page.status);
                prop_assert_eq!(view.transcript().open_turn().is_some(), page.running == true);
            }
        }
    }

    #[test]
    fn each_request_of_an_agent_begins_with_the_one_before(choices in choices()) {
        let log = interpret(&choices, Style::Straight);
        let mut before = Vec::new();
        let mut state = Transcript::new();
        for event in &log.events {
            if event.kind == types::STEP_START {
                let items = items_json(&state);
                prop_assert_eq!(items.get(..before.len()), Some(&before[..]), "at {}", event.seq);
                before = items;
            }
            state.apply(event).unwrap();
        }
    }

    #[test]
    fn the_head_gives_the_history_of_any_earlier_moment(
        choices in choices(),
        back in any::<prop::sample::Index>(),
    ) {
        let mut log = interpret(&choices, Style::Wild);
        prop_assume!(!log.events.is_empty());
        let at = back.index(log.events.len());
        let last = log.state.next_seq() - 1;
        let now = surface(&log.state);
        log.head(at as u64, threadline_session::payload::HeadReason::Rewind);
        let then = Transcript::fold(&log.events[..=at]).unwrap();
        prop_assert_eq!(surface(&log.state), surface(&then));
        prop_assert_eq!(log.state.system(), then.system());
        log.head(last, threadline_session::payload::HeadReason::Redo);
        prop_assert_eq!(surface(&log.state), now);
    }

    #[test]
    fn an_event_that_is_refused_changes_nothing(choices in choices(), at in any::<u64>()) {
        let mut log = interpret(&choices, Style::Wild);
        let (next, before) = (log.state.next_seq(), request_json(&log.state));
        let refused = [
            Event::from_json(at, 1, types::USER_MESSAGE, r#"{"content":[],"source":"user"}"#, false),
            Event::from_json(next, 1, types::USER_MESSAGE, r#"{"content":7}"#, false),
            Event::from_json(next, 1, "vendor/needed", "{}", false),
        ];
        for event in refused.into_iter().map(Result::unwrap) {
            prop_assume!(event.seq != next || event.data.get().len() < 20);
            prop_assert!(log.state.apply(&event).is_err());
            prop_assert_eq!(log.state.next_seq(), next);
            prop_assert_eq!(request_json(&log.state), before.clone());
        }
    }

    #[test]
    fn lines_of_any_events_decode_to_those_events(
        choices in choices(),
        size in 1..9usize,
        key in prop::option::of("[^\\p{Cc}]{1,30}"),
    ) {
        let log = interpret(&choices, Style::Wild);
        let mut encoder = Encoder::new(Chain::new());
        let mut check = Chain::new();
        for batch in log.events.chunks(size) {
            let encoded = encoder.batch(batch[0].seq, batch, key.as_deref()).unwrap();
            let mut at = 0;
            for (index, event) in batch.iter().enumerate() {
                let end = line_end(&encoded.bytes, at).unwrap();
                prop_assert_eq!(end, encoded.ends[index]);
                let line = Line::decode(&encoded.bytes[at..end - 1]).unwrap();
                prop_assert_eq!(&line.event, event);
                prop_assert_eq!(line.batch, (index == 0 && batch.len() > 1).then_some(batch.len()));
                let last = index + 1 == batch.len();
                prop_assert_eq!(line.key.as_deref(), key.as_deref().filter(|_| last));
                prop_assert!(line.verified && check.check(&line));
                at = end;
            }
            prop_assert_eq!(at, encoded.bytes.len());
        }
    }

    #[test]
    fn decoding_any_bytes_gives_an_answer(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        choices in prop::collection::vec(any::<Choice>(), 1..4),
        place in any::<prop::sample::Index>(),
        mend in any::<bool>(),
    ) {
        let _ = Line::decode(&bytes);
        let _ = Header::decode(&bytes);
        // Also close to what is valid: a real line with the bytes pasted over a part of it.
        let log = interpret(&choices, Style::Wild);
        if let Some(event) = log.events.first() {
            let event = std::slice::from_ref(event);
            let mut line = Encoder::new(Chain::new()).batch(0, event, None).unwrap().bytes;
            line.pop();
            let at = place.index(line.len());
            bytes.truncate(line.len() - at);
            line[at..at + bytes.len()].copy_from_slice(&bytes);
            if mend {
                // Without its checksum the line is not stopped at the door.
                line.truncate(line.len().saturating_sub(18));
                line.push(b'}');
            }
            if let Ok(line) = Line::decode(&line) {
                let _ = (line.chained_part(), line.event.payload());
            }
            let _ = Header::decode(&line);
        }
    }

    #[test]
    fn any_json_text_can_have_its_lone_surrogates_replaced(
        pieces in prop::collection::vec(
            prop_oneof![
                Just("\\ud83d".to_owned()),
                Just("\\uDE00".to_owned()),
                Just("\\\\".to_owned()),
                Just("\\u00e9".to_owned()),
                Just("\\u+123".to_owned()),
                Just("\\".to_owned()),
                ".{0,6}",
            ],
            0..12,
        ),
    ) {
        let text = pieces.concat();
        let mended = replace_lone_surrogates(&text).into_owned();
        prop_assert_eq!(replace_lone_surrogates(&mended), mended.as_str());
        let json = format!("\"{text}\"");
        if serde_json::from_str::<&serde_json::value::RawValue>(&json).is_ok() {
            let mended = replace_lone_surrogates(&json);
            let read = serde_json::from_str::<String>(&mended);
            prop_assert!(read.is_ok(), "{json} became {mended}");
        }
    }
}
