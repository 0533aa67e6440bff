//! Arbitrary damage to the bytes of a small log: reading tells torn from damaged and never breaks.

#![allow(clippy::expect_used, reason = "a test")]

#[path = "crash/fixture.rs"]
mod fixture;
#[path = "crash/world.rs"]
mod world;

use fixture::{Fixture, names_crc, with_record};
use threadline_jsonl::{
    layout,
    limits::{MAX_LINE_BYTES, READ_BYTES},
    sim::{Kept, MemVfs},
};
use threadline_session::{Event, chain::Chain, codec::Encoder};
use threadline_store::ReadPos;
use world::{Session, batch, files, read, read_from};

#[test]
fn a_log_cut_at_any_byte_gives_the_whole_batches_before_it_and_the_rest_is_torn() {
    let fixture = Fixture::new();
    for cut in fixture.starts[0]..=fixture.bytes.len() {
        let log = fixture.read(&fixture.bytes[..cut]);
        let whole = fixture.whole_before(cut);
        assert_eq!(
            (log.lines.len(), log.damage.len()),
            (whole, 0),
            "cut at {cut}"
        );
        let torn = log
            .torn
            .map(|torn| (torn.offset as usize, torn.bytes as usize));
        let end = fixture.starts[whole];
        assert_eq!(
            torn,
            (cut > end).then_some((end, cut - end)),
            "cut at {cut}"
        );
    }
    for cut in 0..fixture.starts[0] {
        // The header is cut.
        let log = fixture.read(&fixture.bytes[..cut]);
        assert_eq!(log.lines.len(), 0);
        assert!(
            fixture.files().header(&fixture.session.id).is_err(),
            "cut at {cut}"
        );
    }
}

#[test]
fn a_changed_byte_costs_its_own_line_and_is_damage_unless_nothing_valid_follows() {
    let fixture = Fixture::new();
    let events = fixture.starts.len() - 1;
    for at in fixture.starts[0]..fixture.bytes.len() {
        for flip in [0x01, 0x80, b'\n' ^ fixture.bytes[at]] {
            let mut bytes = fixture.bytes.clone();
            bytes[at] ^= flip;
            if bytes == fixture.bytes {
                continue;
            }
            let log = fixture.read(&bytes);
            let event = fixture.event_at(at);
            if names_crc(fixture.starts[event + 1], at) && log.lines.len() == events {
                assert!(log.damage.is_empty() && log.torn.is_none());
                continue;
            }
            // A lost LF takes the next line along.
            let takes_next = fixture.bytes[at] == b'\n';
            let last_hit = event + usize::from(takes_next);
            if last_hit + 1 >= events {
                assert!(log.damage.is_empty(), "{at}: {:?}", log.damage);
                assert_eq!(log.lines.len(), event, "{at}");
                assert!(log.torn.is_some());
                continue;
            }
            assert!(!log.damage.is_empty(), "{at}");
            assert_eq!(log.damage[0].seq, event as u64, "{at}");
            assert_eq!(log.damage[0].offset, fixture.starts[event] as u64, "{at}");
            assert_eq!(
                log.damage[0].bytes as usize,
                fixture.starts[last_hit + 1] - fixture.starts[event]
            );
            let expected: Vec<_> = (0..events as u64)
                .filter(|seq| !(event..=last_hit).contains(&(*seq as usize)))
                .collect();
            assert_eq!(log.seqs, expected, "{at}");
        }
    }
}

#[test]
fn a_changed_byte_in_the_header_is_a_typed_error_and_never_another_header() {
    let fixture = Fixture::new();
    for at in 0..fixture.starts[0] {
        let mut bytes = fixture.bytes.clone();
        bytes[at] ^= 0x01;
        fixture.read(&bytes);
        let header = fixture.files().header(&fixture.session.id);
        match header {
            Ok(header) if names_crc(fixture.starts[0], at) => {
                assert!(!header.expect("a header").verified);
            }
            header => assert!(header.is_err(), "{at}: {header:?}"),
        }
    }
}

#[test]
fn a_missing_or_misplaced_line_is_damage_that_names_the_event() {
    let fixture = Fixture::new();
    let lines: Vec<_> = fixture
        .starts
        .windows(2)
        .map(|at| fixture.bytes[at[0]..at[1]].to_vec())
        .collect();
    let header = &fixture.bytes[..fixture.starts[0]];
    for gone in 0..lines.len() {
        let mut rest = lines.clone();
        rest.remove(gone);
        let log = fixture.read(&[header, &rest.concat()].concat());
        if gone + 1 == lines.len() {
            assert_eq!((log.lines.len(), log.damage.len()), (gone, 0));
        } else {
            assert_eq!(log.damage[0].seq, gone as u64);
            assert_eq!(log.damage[0].offset, fixture.starts[gone] as u64);
            assert_eq!(log.lines, rest);
        }
    }
    for first in 0..lines.len() {
        for second in first + 1..lines.len() {
            let mut swapped = lines.clone();
            swapped.swap(first, second);
            fixture
                .vfs
                .put(
                    &fixture.session.log(),
                    &[header, &swapped.concat()].concat(),
                )
                .unwrap();
            let log = read(&fixture.files(), &fixture.session.id, 1 << 20).expect("a log");
            assert!(!log.damage.is_empty(), "{first} and {second}");
            assert_eq!(log.damage[0].seq, first as u64);
        }
    }
}

#[test]
fn garbage_behind_the_last_event_is_torn_and_costs_nothing() {
    let fixture = Fixture::new();
    let events = fixture.starts.len() - 1;
    let half = &batch(6, 1, 0).concat()[..30];
    let incomplete = batch(6, 3, 0)[..2].concat();
    let nuls = vec![0; 5_000];
    let tails: [&[u8]; 9] = [
        b"x",
        b"\n",
        b"\n\n\n",
        b"{}\n",
        b"garbage\nmore garbage",
        &nuls,
        half,
        &incomplete,
        b"\xff\xfe\n",
    ];
    for tail in tails {
        let log = fixture.read_unchecked(&[&fixture.bytes, tail].concat());
        assert_eq!((log.lines.len(), log.damage.len()), (events, 0), "{tail:?}");
        let torn = log.torn.expect("a torn end");
        assert_eq!(
            (torn.offset, torn.bytes),
            (fixture.bytes.len() as u64, tail.len() as u64)
        );
    }
}

#[test]
fn nuls_between_valid_events_are_damage_that_spans_them() {
    let fixture = Fixture::new();
    for event in 0..fixture.starts.len() - 2 {
        // Over one event's line, its LF included or not.
        // Without an LF the NULs and the next line are one line, which is no record.
        let (line, next) = (
            fixture.starts[event + 1],
            fixture.starts.len() - 2 == event + 1,
        );
        for end in [line, line - 1] {
            let mut bytes = fixture.bytes.clone();
            bytes[fixture.starts[event]..end].fill(0);
            let log = fixture.read(&bytes);
            if end == line && next {
                assert_eq!((log.lines.len(), log.damage.len()), (event, 0));
                assert!(log.torn.is_some());
                continue;
            }
            let damage = &log.damage[0];
            assert_eq!(damage.offset, fixture.starts[event] as u64);
            assert_eq!(damage.seq, event as u64);
            assert!(!log.seqs.contains(&(event as u64)));
        }
        // Put in between.
        let (before, after) = fixture.bytes.split_at(fixture.starts[event]);
        let log = fixture.read(&[before, &[0; 700], b"\n", after].concat());
        assert_eq!(log.lines.len(), fixture.starts.len() - 1);
        assert_eq!(log.damage[0].offset, before.len() as u64);
        assert_eq!(log.damage[0].seq, event as u64);
    }
}

#[test]
fn a_hole_in_what_was_not_synced_is_torn_after_another_boot_and_damage_in_the_same_one() {
    let (vfs, session) = with_record();
    let second = session.header.len() + session.lines()[0].len();
    let end = second + session.lines()[1].len();
    for (image, rebooted) in [(vfs.fork(), false), (vfs.power_cut(Kept::All), true)] {
        let mut bytes = image.content(&session.log()).expect("a log");
        bytes[second..end].fill(0);
        image.put(&session.log(), &bytes).expect("a hole");
        let log = read(&files(&image).expect("a store"), &session.id, 1 << 20).expect("a log");
        assert_eq!(log.torn.is_some(), rebooted);
        assert_eq!(log.damage.len(), usize::from(!rebooted));
        // The line behind the hole is one with it.
        assert_eq!(log.lines.len(), if rebooted { 1 } else { 2 });
    }
}

#[test]
fn a_hole_in_what_was_acknowledged_is_damage_also_after_another_boot() {
    let (vfs, session) = with_record();
    let first = session.header.len()..session.header.len() + session.lines()[0].len();
    let image = vfs.power_cut(Kept::All);
    let mut bytes = image.content(&session.log()).expect("a log");
    bytes[first].fill(0);
    image.put(&session.log(), &bytes).expect("a hole");
    let log = read(&files(&image).expect("a store"), &session.id, 1 << 20).expect("a log");
    assert_eq!((log.damage.len(), log.lines.len()), (1, 2));
    assert!(log.torn.is_none());
}

#[test]
fn without_the_lock_file_or_with_a_garbled_one_a_sound_log_reads_the_same() {
    let (vfs, mut session) = with_record();
    let expected = read(&files(&vfs).expect("a store"), &session.id, 1 << 20).expect("a log");
    assert_eq!(expected.lines.len(), 4);
    let lock = session.dir().join(layout::LOCK);
    let record = vfs.content(&lock).expect("a record");
    for garbled in [&b""[..], b"x", &[0; 512], &record[..100], &[b'{'; 4_000]] {
        let image = vfs.fork();
        image.put(&lock, garbled).expect("a garbled record");
        let files = files(&image).expect("a store");
        assert_eq!(read(&files, &session.id, 1 << 20).as_ref(), Ok(&expected));
        session.clone().resume(&files).map(drop).expect("a claim");
    }
    let bare = MemVfs::new();
    bare.put(&session.log(), &vfs.content(&session.log()).expect("a log"))
        .expect("a copy");
    let files = files(&bare).expect("a store");
    assert_eq!(read(&files, &session.id, 1 << 20).as_ref(), Ok(&expected));
    session.resume(&files).map(drop).expect("a claim");
}

#[test]
fn a_line_over_the_limit_is_no_record_whatever_stands_in_it() {
    let fixture = Fixture::new();
    let long = vec![b'x'; MAX_LINE_BYTES + READ_BYTES + 1];
    let (before, after) = fixture.bytes.split_at(fixture.starts[1]);
    let log = fixture.read(&[before, &long, b"\n", after].concat());
    assert_eq!(
        (log.damage.len(), log.lines.len()),
        (1, fixture.starts.len() - 1)
    );
    assert_eq!(log.damage[0].bytes, long.len() as u64 + 1);
    let log = fixture.read(&[&fixture.bytes, &long[..]].concat());
    assert_eq!(log.damage.len(), 0);
    assert_eq!(log.torn.map(|torn| torn.bytes), Some(long.len() as u64));
}

#[test]
fn characters_of_many_bytes_survive_at_every_place_of_a_buffer_edge() {
    let session = Session::new(1);
    let frame = session.header.len() + 80;
    for shift in 0..12 {
        for buffers in [1, 2] {
            let filler = "x".repeat(buffers * READ_BYTES - frame + shift - 6);
            let data = format!(
                "{{\"t\":\"{filler}{}\"}}",
                "\u{1f600}\u{20ac}\u{e9}".repeat(12)
            );
            let event = |seq| Event::from_json(seq, 1, "test/event", &data, false).expect("one");
            let mut bytes = session.header.clone();
            let mut lines = Vec::new();
            for seq in 0..2 {
                let encoded = Encoder::new(Chain::new()).batch(seq, &[event(seq)], None);
                lines.push(encoded.expect("a line").bytes);
            }
            bytes.extend(lines.concat());
            let vfs = MemVfs::new();
            vfs.put(&session.log(), &bytes).expect("a log");
            let log = read(&files(&vfs).expect("a store"), &session.id, 1).expect("a log");
            assert!(
                log.lines == lines && log.torn.is_none(),
                "{buffers} buffers and {shift}"
            );
        }
    }
}

#[test]
fn reading_from_any_event_gives_what_reading_all_gives_from_there() {
    let fixture = Fixture::new();
    let mut variants = vec![fixture.bytes.clone()];
    for event in 0..fixture.starts.len() - 1 {
        // Damage in the number, in the data, and a cut in the middle.
        for at in [fixture.starts[event] + 8, fixture.starts[event] + 40] {
            let mut bytes = fixture.bytes.clone();
            bytes[at] ^= 0x01;
            variants.push(bytes);
        }
        variants.push(fixture.bytes[..fixture.starts[event] + 20].to_vec());
    }
    for (variant, bytes) in variants.iter().enumerate() {
        let all = fixture.read(bytes);
        for small in [1, 300, 900] {
            let paged = read(&fixture.files(), &fixture.session.id, small).expect("a log");
            assert_eq!(paged, all, "variant {variant} by {small} bytes");
        }
        for seq in 0..=all.next.seq {
            let rest = read_from(
                &fixture.files(),
                &fixture.session.id,
                ReadPos::at(seq),
                1 << 20,
            );
            let rest = rest.expect("a log");
            let from = all
                .seqs
                .iter()
                .position(|found| *found >= seq)
                .unwrap_or(all.seqs.len());
            assert_eq!(rest.seqs, all.seqs[from..], "variant {variant} from {seq}");
            assert_eq!(
                (&rest.torn, rest.next),
                (&all.torn, all.next),
                "variant {variant} from {seq}"
            );
        }
    }
}

#[test]
fn a_reader_that_starts_inside_an_incomplete_batch_sees_nothing_of_it() {
    let fixture = Fixture::new();
    // The batch is events 1 to 3; the last of them is missing, or cut.
    for cut in [fixture.starts[3], fixture.starts[3] + 20] {
        let all = fixture.read(&fixture.bytes[..cut]);
        assert_eq!(all.seqs, [0]);
        for seq in 2..=3 {
            let from = ReadPos::at(seq);
            let rest = read_from(&fixture.files(), &fixture.session.id, from, 1 << 20);
            let rest = rest.expect("a log");
            assert_eq!((rest.lines.len(), &rest.torn), (0, &all.torn), "from {seq}");
        }
    }
    let whole = fixture.read(&fixture.bytes);
    assert_eq!(whole.seqs, [0, 1, 2, 3, 4, 5]);
}
