//! What the tables hold, and what is found when they do not hold it any more.

use std::collections::HashSet;

use threadline_session::Header;
use threadline_store::{
    Backend, BlobId, ClaimError, Entry, NewLog, ReadPos, WriteError, error_chain,
};

use crate::kit::{World, append, batch, begin, created, entries, header, holds, id, new_log};

/// Makes the next changes of a table fail as the server does, so many times.
pub(crate) async fn failing(world: &World, table: &str, state: &str, times: u32) {
    let sql = format!(
        "CREATE SEQUENCE fails; \
         CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF nextval('fails') <= {times} THEN RAISE EXCEPTION USING ERRCODE = '{state}'; END IF; \
             RETURN NEW; END $$; \
         CREATE TRIGGER fail BEFORE INSERT OR UPDATE ON {table} \
             FOR EACH ROW EXECUTE FUNCTION fail()"
    );
    world.sql.batch_execute(&sql).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_and_the_writer_goes_on_later() {
    let world = World::new().await;
    let mut writer = created(&world.backend, "s", 1).await;
    failing(&world, "events", "53100", 2).await;
    for _ in 0..2 {
        let outcome = append(&mut writer, 1, 2).await;
        assert!(matches!(outcome, Err(WriteError::StorageFull { .. })));
    }
    append(&mut writer, 1, 2).await.unwrap();
    holds(&world.backend, &id("s"), 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_whatever_is_written() {
    let world = World::new().await;
    let mut writer = created(&world.backend, "s", 1).await;
    writer.append(batch(1, 1), 1, false).await.unwrap();
    failing(&world, "sessions", "53100", 2).await;
    let outcome = writer.sync().await;
    assert!(matches!(outcome, Err(WriteError::StorageFull { .. })));
    let error = world
        .backend
        .put_summary(&id("s"), 0, &threadline_store::UserSummary::default())
        .await
        .unwrap_err();
    assert!(error.is_full(), "{error}");
    writer.sync().await.unwrap();
    append(&mut writer, 2, 1).await.unwrap();
    holds(&world.backend, &id("s"), 3).await;

    let world = World::new().await;
    failing(&world, "blobs", "53100", 1).await;
    let blob = BlobId::of(b"bytes");
    let error = world.backend.put_blob(&blob, b"bytes").await.unwrap_err();
    assert!(error.is_full(), "{error}");
    assert!(error_chain(&error).contains("blob"), "{error}");
    world.backend.put_blob(&blob, b"bytes").await.unwrap();
}

/// As many as a log has: one for each bit of its length, and the one before that.
#[tokio::test(flavor = "multi_thread")]
async fn old_checkpoints_grow_sparse_and_reach_back_to_the_first() {
    let world = World::new().await;
    let mut writer = created(&world.backend, "s", 1).await;
    for seq in 1..70 {
        writer.append(batch(seq, 1), seq, false).await.unwrap();
        writer.put_checkpoint(b"state").await.unwrap();
        let rows = world
            .sql
            .query("SELECT seq FROM checkpoints ORDER BY seq", &[]);
        let kept: Vec<i64> = rows.await.unwrap().iter().map(|row| row.get(0)).collect();
        let newest = i64::try_from(seq).unwrap() + 1;
        assert_eq!((kept.first(), kept.last()), (Some(&2), Some(&newest)));
        assert!(kept.len() <= 8, "{kept:?}");
        for pair in kept.windows(2) {
            let gap = pair[1] - pair[0];
            assert!(gap <= 2 * (newest - pair[0]).max(1), "{kept:?}");
        }
    }
    // Those of other sessions stay.
    let mut other = created(&world.backend, "t", 1).await;
    other.put_checkpoint(b"state").await.unwrap();
    writer.put_checkpoint(b"state").await.unwrap();
    let of_other = "SELECT count(*) FROM checkpoints WHERE session = 't'";
    assert_eq!(world.number(of_other).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_races_are_tried_again() {
    for state in ["40001", "40P01"] {
        let world = World::new().await;
        let mut writer = created(&world.backend, "s", 1).await;
        failing(&world, "events", state, 3).await;
        append(&mut writer, 1, 2).await.unwrap();
        drop(created(&world.backend, "t", 2).await);
        holds(&world.backend, &id("s"), 3).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_other_refusal_of_the_server_ends_the_writer() {
    let world = World::new().await;
    let mut writer = created(&world.backend, "s", 1).await;
    failing(&world, "events", "42501", 1).await;
    for _ in 0..2 {
        let outcome = append(&mut writer, 1, 2).await;
        assert!(matches!(outcome, Err(WriteError::Poisoned { .. })));
    }
    holds(&world.backend, &id("s"), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_found_where_it_is() {
    let world = World::new().await;
    drop(created(&world.backend, "s", 9).await);
    let session = id("s");
    let places: Vec<_> = entries(&world.backend, &session)
        .await
        .iter()
        .filter_map(|entry| match entry {
            Entry::Line(line, place) => Some((line.event.seq, *place)),
            _ => None,
        })
        .collect();
    for sql in [
        "UPDATE events SET body = replace(body, 'vendor', 'Vendor') WHERE seq = 1",
        "UPDATE events SET body = (SELECT body FROM events WHERE seq = 8) WHERE seq = 3",
        "DELETE FROM events WHERE seq IN (5, 6, 8)",
    ] {
        world.sql.execute(sql, &[]).await.unwrap();
    }
    for max_bytes in [1, 1 << 20] {
        let (mut found, mut pos) = (Vec::new(), ReadPos::default());
        loop {
            let page = world.backend.page(&session, pos, max_bytes).await.unwrap();
            found.extend(page.entries);
            pos = page.next;
            if page.end {
                break;
            }
        }
        let told: Vec<_> = found
            .iter()
            .map(|entry| match entry {
                Entry::Header(_) => ("header", 0),
                Entry::Line(line, _) => ("line", line.event.seq),
                Entry::Damage(damage) => ("damage", damage.seq),
            })
            .collect();
        let wanted = [
            ("header", 0),
            ("line", 0),
            ("damage", 1),
            ("line", 2),
            ("damage", 3),
            ("line", 4),
            ("damage", 5),
            ("line", 7),
            ("damage", 8),
        ];
        assert_eq!(told, wanted);
    }
    let single = world.backend.lines(&session, &places).await.unwrap();
    let good: Vec<_> = single.iter().map(Result::is_ok).collect();
    assert_eq!(
        good,
        [true, false, true, false, true, false, false, true, false]
    );
    let store = world.store();
    let opened = Box::pin(store.load(&session)).await;
    assert!(opened.is_err());
}

/// Forks a session, and returns the fork's name.
async fn fork(world: &World, parent: &str, last_seq: u64, name: &str, own: u64) -> String {
    let (parent, fork) = (id(parent), id(name));
    let base = world.backend.cut(&parent, last_seq).await.unwrap().unwrap();
    let header = Header {
        base: Some(base),
        ..header(&fork)
    };
    let new = NewLog {
        header_line: header.encode().unwrap(),
        batch: if own == 0 {
            Vec::new()
        } else {
            batch(last_seq + 1, own)
        },
        last_seq: (own > 0).then_some(last_seq + own),
        parent: Some(parent),
    };
    drop(world.backend.create(&fork, new).await.unwrap());
    name.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_share_rows_and_keep_them_when_others_go() {
    let world = World::new().await;
    let rows = "SELECT count(*) FROM events";
    drop(created(&world.backend, "a", 10).await);
    fork(&world, "a", 5, "b", 4).await;
    fork(&world, "b", 7, "c", 1).await;
    fork(&world, "b", 3, "d", 0).await;
    assert_eq!(world.number(rows).await, 15);
    for (name, count, headers) in [("a", 10, 1), ("b", 10, 2), ("c", 9, 3), ("d", 4, 2)] {
        holds(&world.backend, &id(name), count).await;
        let found = entries(&world.backend, &id(name)).await;
        let is_header = |entry: &&Entry| matches!(entry, Entry::Header(_));
        assert_eq!(found.iter().filter(is_header).count(), headers, "{name}");
        let stat = world.backend.stat(&id(name)).await.unwrap().unwrap();
        let last = world.backend.page(&id(name), ReadPos::at(0), 1 << 20).await;
        assert_eq!(last.unwrap().next.hint, Some(stat.bytes));
    }
    // A page that begins at a border brings the header that stands there.
    let page = world
        .backend
        .page(&id("b"), ReadPos::at(6), 1)
        .await
        .unwrap();
    assert!(matches!(page.entries.first(), Some(Entry::Header(_))));
    let page = world
        .backend
        .page(&id("d"), ReadPos::at(4), 1)
        .await
        .unwrap();
    assert!(page.end && matches!(page.entries[..], [Entry::Header(_)]));

    for (gone, left) in [("a", 11), ("b", 9), ("c", 4), ("d", 0)] {
        world.backend.delete(&id(gone)).await.unwrap();
        assert_eq!(world.number(rows).await, left, "without {gone}");
        for (name, count) in [("b", 10), ("c", 9), ("d", 4)] {
            if world.backend.stat(&id(name)).await.unwrap().is_some() {
                holds(&world.backend, &id(name), count).await;
            }
        }
    }
    for table in ["segments", "session_segments", "sessions", "checkpoints"] {
        let sql = format!("SELECT count(*) FROM {table}");
        assert_eq!(world.number(&sql).await, 0, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_and_deletions_at_the_same_time_leave_whole_logs_and_no_rows() {
    let world = World::new().await;
    for round in 0..10 {
        drop(created(&world.backend, "p", 6).await);
        fork(&world, "p", 4, "q", 0).await;
        let other = world.again().await;
        let base = world.backend.cut(&id("p"), 3).await.unwrap();
        let new = NewLog {
            header_line: Header {
                base,
                ..header(&id("r"))
            }
            .encode()
            .unwrap(),
            batch: Vec::new(),
            last_seq: None,
            parent: Some(id("p")),
        };
        let (p, q, r) = (id("p"), id("q"), id("r"));
        let (one, two, forked) = tokio::join!(
            world.backend.delete(&p),
            other.delete(&q),
            world.backend.create(&r, new)
        );
        one.unwrap();
        two.unwrap();
        match forked {
            Ok(writer) => {
                drop(writer);
                holds(&world.backend, &r, 4).await;
                world.backend.delete(&r).await.unwrap();
            }
            Err(ClaimError::NotFound) => {}
            Err(error) => panic!("{error}"),
        }
        let rows = world.number("SELECT count(*) FROM events").await;
        assert_eq!(rows, 0, "in round {round}");
        assert_eq!(world.number("SELECT count(*) FROM segments").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_is_seen_when_it_is_finished_and_leaves_nothing_when_it_is_not() {
    let world = World::new().await;
    let session = id("s");
    let line = header(&session).encode().unwrap();
    for finish in [false, true] {
        let mut import = world.backend.import(&session).await.unwrap();
        import
            .header(&header(&id("old")).encode().unwrap())
            .await
            .unwrap();
        import.lines(&batch(0, 3), 2).await.unwrap();
        import.header(&line).await.unwrap();
        import.lines(&batch(3, 2), 4).await.unwrap();
        assert!(world.backend.ids().await.unwrap().is_empty());
        assert_eq!(world.number("SELECT count(*) FROM events").await, 0);
        if finish {
            import.finish().await.unwrap();
        }
    }
    holds(&world.backend, &session, 5).await;
    let stored = world.backend.header(&session).await.unwrap().unwrap();
    assert_eq!(stored.line, line);
    assert!(matches!(
        world.backend.import(&session).await,
        Err(ClaimError::AlreadyExists)
    ));
    let mut writer = world.backend.claim(&session).await.unwrap();
    begin(&world.backend, &session, &mut writer).await;
    append(&mut writer, 5, 1).await.unwrap();

    let late = id("late");
    let mut import = world.backend.import(&late).await.unwrap();
    import
        .header(&header(&late).encode().unwrap())
        .await
        .unwrap();
    for bad in [&b"a\0b\n"[..], b"\xff\n"] {
        let refused = import.lines(bad, 0).await.unwrap_err();
        assert!(error_chain(&refused).contains("cannot keep"), "{refused}");
    }
    drop(
        world
            .backend
            .create(&late, new_log(&late, 1))
            .await
            .unwrap(),
    );
    assert!(matches!(
        import.finish().await,
        Err(ClaimError::AlreadyExists)
    ));
    holds(&world.backend, &late, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_come_back_whole_or_not_at_all() {
    let world = World::new().await;
    let session = id("s");
    let mut writer = created(&world.backend, "s", 2).await;
    writer.put_checkpoint(b"first").await.unwrap();
    append(&mut writer, 2, 2).await.unwrap();
    writer.put_checkpoint(b"second").await.unwrap();
    let newest = async |limit| world.backend.checkpoint(&session, limit).await.unwrap();
    let state = async |limit| newest(limit).await.map(|kept| kept.state);
    assert_eq!(state(1).await, None);
    assert_eq!(state(3).await.as_deref(), Some(&b"first"[..]));
    assert_eq!(state(4).await.as_deref(), Some(&b"second"[..]));
    let next = newest(4).await.unwrap().next;
    append(&mut writer, 4, 1).await.unwrap();
    let page = world.backend.page(&session, next, 1 << 20).await.unwrap();
    assert!(matches!(&page.entries[..], [Entry::Line(line, _)] if line.event.seq == 4));
    // A fork goes on from the newest that it shares.
    fork(&world, "s", 2, "f", 0).await;
    let shared = world.backend.checkpoint(&id("f"), 99).await.unwrap();
    assert_eq!(shared.unwrap().state, b"first");
    let garble = "UPDATE checkpoints SET state = 'other' WHERE seq = 4";
    world.sql.execute(garble, &[]).await.unwrap();
    assert_eq!(state(99).await.as_deref(), Some(&b"first"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_are_kept_and_deleted_only_when_nobody_put_them_again() {
    let world = World::new().await;
    let bytes = vec![0_u8; 1 << 20];
    let blob = BlobId::of(&bytes);
    world.backend.put_blob(&blob, &bytes).await.unwrap();
    let old = world.backend.blobs().await.unwrap().remove(0);
    assert_eq!((old.bytes, &old.id), (1 << 20, &blob));
    world.backend.put_blob(&blob, &bytes).await.unwrap();
    assert!(!world.backend.delete_blob(&old).await.unwrap());
    assert_eq!(world.backend.get_blob(&blob).await.unwrap(), Some(bytes));
    let new = world.backend.blobs().await.unwrap().remove(0);
    assert!(world.backend.delete_blob(&new).await.unwrap());
    assert_eq!(world.backend.get_blob(&blob).await.unwrap(), None);

    drop(created(&world.backend, "s", 1).await);
    let name = format!("UPDATE events SET body = 'broken {blob}'");
    world.sql.execute(&name, &[]).await.unwrap();
    let mut found = HashSet::new();
    world
        .backend
        .blob_names(&id("s"), &mut found)
        .await
        .unwrap();
    assert!(found.contains(&blob));
    assert!(lines_are_damaged(&world).await);
}

async fn lines_are_damaged(world: &World) -> bool {
    let found = entries(&world.backend, &id("s")).await;
    found.iter().any(|entry| matches!(entry, Entry::Damage(_)))
}
