//! Lines of the log: what is written is read, and what was changed is noticed.

use threadline_session::{
    Base, Event, EventError, FORMAT_VERSION, Header, HeaderError, Origin, OsPath, Parent,
    SessionId,
    chain::{Chain, ChainValue},
    codec::{Crc, EncodeError, Encoder, Line, LineError, check_crc, crc32c},
    limits::{MAX_BATCH_EVENTS, MAX_EVENT_BYTES, MAX_ID_BYTES, MAX_KEY_BYTES, MAX_TYPE_BYTES},
    types,
};

use crate::support::Log;

fn header() -> Header {
    let mut header = Header::new(
        SessionId::parse("s-1").unwrap(),
        7,
        OsPath::from("/w\u{e9}"),
    );
    header.parent = Some(Parent {
        id: SessionId::parse("p").unwrap(),
        seq: 4,
    });
    header.origin = Origin::Import {
        agent: Some("codex".into()),
    };
    header.base = Some(Base {
        file: "base-1.jsonl".into(),
        bytes: 10,
        last_seq: 4,
    });
    header
}

fn encode(events: &[Event]) -> Vec<Vec<u8>> {
    let first = events.first().map_or(0, |event| event.seq);
    let encoded = Encoder::new(Chain::new())
        .batch(first, events, None)
        .unwrap();
    encoded
        .bytes
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

fn one(event: &Event) -> Vec<u8> {
    encode(std::slice::from_ref(event)).remove(0)
}

fn note(seq: u64, said: &str) -> Event {
    let data = serde_json::json!({ "text": said }).to_string();
    Event::from_json(seq, 5, "vendor/note", &data, true).unwrap()
}

/// An event whose encoded line, LF included, has exactly this many bytes.
fn note_of(bytes: usize) -> Event {
    let bare = one(&note(0, "")).len() + 1;
    note(0, &"x".repeat(bytes - bare))
}

/// The lines of three turns with the header's, as a file would hold them.
fn file() -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(Chain::new());
    let mut first = header().encode().unwrap();
    encoder.header(&first);
    first.pop();
    let mut lines = vec![first];
    for event in &Log::three_turns().events {
        let mut line = encoder
            .batch(event.seq, std::slice::from_ref(event), None)
            .unwrap()
            .bytes;
        line.pop();
        lines.push(line);
    }
    lines
}

/// Returns the turn ends whose chain value is wrong, and the last value.
fn chain_faults(lines: &[Vec<u8>]) -> (Vec<u64>, Option<ChainValue>) {
    let mut chain = Chain::new();
    chain.line(&[lines[0].as_slice(), b"\n"].concat());
    let mut faults = Vec::new();
    for line in &lines[1..] {
        let line = Line::decode(line).unwrap();
        if !chain.check(&line) {
            faults.push(line.event.seq);
        }
    }
    (faults, chain.last())
}

/// Gives a changed line a right checksum again, as a careful forger would.
fn forged(line: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = std::str::from_utf8(line).unwrap();
    assert!(text.contains(from), "{text}");
    let text = text.replace(from, to);
    let body = &text[..text.rfind(",\"crc\"").unwrap()];
    format!("{body},\"crc\":\"{:08x}\"}}", crc32c(body.as_bytes())).into_bytes()
}

#[test]
fn a_line_is_read_back_as_it_was_written() {
    for event in &Log::three_turns().events {
        let raw = one(event);
        let line = Line::decode(&raw).unwrap();
        assert_eq!(&line.event, event);
        assert_eq!(line.raw, raw);
        assert!(line.verified);
        assert_eq!(line.chain.is_some(), event.kind == types::TURN_END);
    }
}

#[test]
fn a_line_has_its_keys_in_the_promised_order() {
    let text = String::from_utf8(one(&note(3, "hi"))).unwrap();
    let wanted =
        r#"{"seq":3,"time":5,"type":"vendor/note","data":{"text":"hi"},"ignorable":true,"crc":""#;
    assert!(text.starts_with(wanted), "{text}");
}

#[test]
fn every_change_of_a_single_byte_is_noticed() {
    let log = Log::three_turns();
    let turn_end = log
        .events
        .iter()
        .find(|e| e.kind == types::TURN_END)
        .unwrap();
    for event in [turn_end, &log.events[2], &note(9, "\u{e9}")] {
        let raw = one(event);
        for at in 0..raw.len() {
            for byte in 0..=u8::MAX {
                if byte == raw[at] {
                    continue;
                }
                let mut changed = raw.clone();
                changed[at] = byte;
                if let Ok(line) = Line::decode(&changed) {
                    assert!(!line.verified, "byte {at} as {byte} in {:?}", line.event);
                }
            }
        }
    }
}

#[test]
fn a_line_that_lost_any_of_its_bytes_at_the_end_is_noticed() {
    let raw = one(&note(9, "text"));
    for end in 0..raw.len() {
        assert!(Line::decode(&raw[..end]).is_err(), "{end}");
    }
}

#[test]
fn a_line_without_a_checksum_is_read_and_said_to_be_unverified() {
    let line = Line::decode(br#"{"type":"user/message","data":{},"seq":1,"time":2}"#).unwrap();
    assert!(!line.verified);
    assert_eq!(check_crc(&line.raw), Crc::Absent);
    let moved = br#"{"crc":"00000000","seq":1,"time":2,"type":"a/b","data":{}}"#;
    assert!(matches!(
        Line::decode(moved),
        Err(LineError::Malformed { .. })
    ));
}

#[test]
fn fields_that_this_version_does_not_know_stay_as_they_are() {
    let data = r#"{ "content":[],"source":"user", "later" : {"b":1,"a":[ ]},"n":1.0e+2 }"#;
    let event = Event::from_json(0, 1, types::USER_MESSAGE, data, false).unwrap();
    let line = Line::decode(&one(&event)).unwrap();
    assert_eq!(line.event.data.get(), data);
    assert!(line.event.payload().is_ok());
    let body = br#"{"seq":0,"time":1,"type":"a/b","data":{},"future":[1, 2]"#;
    let raw = [
        &body[..],
        format!(",\"crc\":\"{:08x}\"}}", crc32c(body)).as_bytes(),
    ]
    .concat();
    let line = Line::decode(&raw).unwrap();
    assert!(line.verified);
    assert_eq!(line.raw, raw);
}

#[test]
fn a_batch_marks_its_size_on_the_first_line_and_its_key_on_the_last() {
    let events = [note(4, "a"), note(5, "b"), note(6, "c")];
    let mut encoder = Encoder::new(Chain::new());
    let encoded = encoder.batch(4, &events, Some("k\"\u{e9}")).unwrap();
    let mut start = 0;
    let lines: Vec<_> = encoded
        .ends
        .iter()
        .map(|end| Line::decode(&encoded.bytes[std::mem::replace(&mut start, *end)..end - 1]))
        .map(Result::unwrap)
        .collect();
    let batches: Vec<_> = lines.iter().map(|l| l.batch).collect();
    let keys: Vec<_> = lines.iter().map(|l| l.key.as_deref()).collect();
    assert_eq!(batches, [Some(3), None, None]);
    assert_eq!(keys, [None, None, Some("k\"\u{e9}")]);
    let single = encoder.batch(7, &[note(7, "d")], Some("k")).unwrap();
    let line = Line::decode(&single.bytes[..single.bytes.len() - 1]).unwrap();
    assert_eq!((line.batch, line.key.as_deref()), (None, Some("k")));
}

#[test]
fn an_event_is_accepted_at_the_size_limit_and_refused_one_byte_over_it() {
    let mut encoder = Encoder::new(Chain::new());
    assert!(encoder.batch(0, &[note_of(MAX_EVENT_BYTES)], None).is_ok());
    let refused = encoder
        .batch(0, &[note_of(MAX_EVENT_BYTES + 1)], None)
        .unwrap_err();
    let EncodeError::TooLarge { kind, bytes, limit } = refused else {
        panic!("{refused}")
    };
    assert_eq!(
        (kind.as_str(), bytes, limit),
        ("vendor/note", MAX_EVENT_BYTES + 1, MAX_EVENT_BYTES)
    );
    let mut small = Encoder::new(Chain::new()).with_max_event_bytes(200);
    assert!(small.batch(0, &[note_of(200)], None).is_ok());
    assert!(small.batch(0, &[note_of(201)], None).is_err());
}

#[test]
fn batches_keys_types_and_ids_are_accepted_at_their_limit_and_refused_over_it() {
    let events: Vec<_> = (0..=MAX_BATCH_EVENTS as u64)
        .map(|seq| note(seq, ""))
        .collect();
    let encode = |events: &[Event], key: Option<&str>| {
        Encoder::new(Chain::new()).batch(0, events, key).map(|_| ())
    };
    assert_eq!(encode(&events[..MAX_BATCH_EVENTS], None), Ok(()));
    let len = MAX_BATCH_EVENTS + 1;
    assert_eq!(encode(&events, None), Err(EncodeError::TooMany { len }));
    assert_eq!(encode(&[], None), Err(EncodeError::Empty));
    let key = "k".repeat(MAX_KEY_BYTES);
    assert_eq!(encode(&events[..1], Some(&key)), Ok(()));
    for key in [format!("{key}k"), String::new(), "a\nb".into()] {
        assert_eq!(
            encode(&events[..1], Some(&key)),
            Err(EncodeError::Key),
            "{key:?}"
        );
    }
    let kind =
        |bytes: usize| Event::from_json(0, 0, &format!("v/{}", "x".repeat(bytes - 2)), "{}", true);
    assert!(kind(MAX_TYPE_BYTES).is_ok());
    assert!(matches!(
        kind(MAX_TYPE_BYTES + 1),
        Err(EventError::Type { .. })
    ));
    assert!(SessionId::parse("i".repeat(MAX_ID_BYTES)).is_ok());
    for id in ["i".repeat(MAX_ID_BYTES + 1), String::new(), "a\u{0}".into()] {
        assert!(SessionId::parse(id).is_err());
    }
}

#[test]
fn a_gap_inside_a_batch_is_refused_with_what_belongs_there() {
    let mut encoder = Encoder::new(Chain::new());
    let refused = encoder.batch(0, &[note(0, ""), note(2, "")], None);
    assert_eq!(
        refused,
        Err(EncodeError::Gap {
            expected: 1,
            found: 2
        })
    );
}

#[test]
fn only_objects_on_one_line_under_a_proper_name_are_events() {
    for data in [
        "[]",
        "7",
        "\"x\"",
        "null",
        "{",
        "",
        "{}{}",
        "{\n}",
        "{\"a\":1,\r\"b\":2}",
    ] {
        let refused = Event::from_json(0, 0, "a/b", data, true);
        assert!(
            matches!(refused, Err(EventError::Data { .. })),
            "{data:?}: {refused:?}"
        );
    }
    for kind in [
        "", "a", "/", "a/", "/b", "A/b", "a b/c", "a/\u{e9}", "a//b", "a\"/b",
    ] {
        let refused = Event::from_json(0, 0, kind, "{}", true);
        assert!(
            matches!(refused, Err(EventError::Type { .. })),
            "{kind:?}: {refused:?}"
        );
    }
}

#[test]
fn a_header_is_read_back_as_it_was_written() {
    let mut line = header().encode().unwrap();
    assert_eq!(line.pop(), Some(b'\n'));
    assert_eq!(Header::decode(&line), Ok((header(), true)));
    let bare = br#"{"format":"threadline","version":1,"id":"x","createdAt":1,"cwd":"/","app":"hand","new":1}"#;
    let (read, verified) = Header::decode(bare).unwrap();
    assert!(!verified);
    assert_eq!((read.id.as_str(), read.origin), ("x", Origin::User));
    let mut later: serde_json::Value = serde_json::from_slice(bare).unwrap();
    later["origin"] = serde_json::json!({"kind": "teleport", "from": [1]});
    let (read, _) = Header::decode(later.to_string().as_bytes()).unwrap();
    assert_eq!(read.origin, Origin::Unknown);
}

#[test]
fn every_change_of_a_single_byte_of_a_header_is_noticed() {
    let mut line = header().encode().unwrap();
    line.pop();
    for at in 0..line.len() {
        for byte in (0..=u8::MAX).step_by(3).filter(|byte| *byte != line[at]) {
            let mut changed = line.clone();
            changed[at] = byte;
            assert!(
                !matches!(Header::decode(&changed), Ok((_, true))),
                "byte {at} as {byte}"
            );
        }
    }
}

#[test]
fn a_header_of_another_version_says_in_which_direction() {
    let of = |version: &str| {
        let line = format!(r#"{{"format":"threadline","version":{version},"strange":true}}"#);
        Header::decode(line.as_bytes()).unwrap_err()
    };
    let newer = u64::from(FORMAT_VERSION) + 1;
    assert_eq!(of(&newer.to_string()), HeaderError::Newer { found: newer });
    assert!(of("99").to_string().contains("upgrade"));
    assert_eq!(of("0"), HeaderError::NeverReleased { found: 0 });
    assert!(matches!(of("-1"), HeaderError::Invalid { .. }));
    assert!(matches!(of("\"1\""), HeaderError::Invalid { .. }));
    let other = br#"{"format":"diary","version":1}"#;
    assert!(matches!(
        Header::decode(other),
        Err(HeaderError::Invalid { .. })
    ));
}

#[test]
fn an_untouched_log_has_no_chain_fault_and_a_stable_head() {
    let (faults, head) = chain_faults(&file());
    assert!(faults.is_empty(), "{faults:?}");
    assert!(head.is_some());
    assert_eq!(chain_faults(&file()).1, head);
}

#[test]
fn the_chain_notices_a_line_that_was_edited_deleted_or_swapped() {
    let whole = file();
    let ends: Vec<_> = (1..whole.len())
        .filter(|at| Line::decode(&whole[*at]).unwrap().chain.is_some())
        .collect();
    for at in 1..whole.len() {
        let wanted = *ends.iter().find(|end| **end >= at).unwrap();
        let wanted = Line::decode(&whole[wanted]).unwrap().event.seq;
        let mut edited = whole.clone();
        edited[at] = forged(&edited[at], "\"time\":1", "\"time\":2");
        assert_eq!(chain_faults(&edited).0, [wanted], "line {at} edited");
        let mut shorter = whole.clone();
        shorter.remove(at);
        if ends.contains(&at) {
            // The turn ends with the next one now, unless there is none: then the head tells.
            let (faults, head) = chain_faults(&shorter);
            assert!(
                !faults.is_empty() || head != chain_faults(&whole).1,
                "line {at} deleted"
            );
        } else {
            assert_eq!(chain_faults(&shorter).0, [wanted], "line {at} deleted");
        }
        if at + 1 < whole.len() {
            let mut swapped = whole.clone();
            swapped.swap(at, at + 1);
            assert!(
                !chain_faults(&swapped).0.is_empty(),
                "lines {at} and {} swapped",
                at + 1
            );
        }
    }
    let mut other_header = whole;
    other_header[0] = forged(&other_header[0], "codex", "other");
    assert_eq!(chain_faults(&other_header).0.len(), 1);
}

#[test]
fn a_chain_continues_from_a_known_value() {
    let whole = file();
    let mut all = Chain::new();
    all.line(&[whole[0].as_slice(), b"\n"].concat());
    let mut resumed = None;
    for line in whole[1..].iter().map(|line| Line::decode(line).unwrap()) {
        all.follow(&line);
        match (&mut resumed, line.chain) {
            (None, Some(value)) => resumed = Some(Chain::after(value)),
            (Some(chain), _) => assert!(chain.check(&line)),
            (None, None) => {}
        }
    }
    assert_eq!(all.last(), resumed.unwrap().last());
}
