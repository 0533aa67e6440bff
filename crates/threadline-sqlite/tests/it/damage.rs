//! Damage is told with its place, and never a panic.

use threadline_store::{Backend as _, Entry, ReadPos, contract::script::whole_turn, error_chain};

use crate::support::{Db, created, entries, id, store, stored};

#[tokio::test]
async fn a_changed_body_is_damage_and_the_rest_goes_on() {
    let db = Db::new();
    let store = db.store();
    drop(stored(&store, "s", whole_turn(0, 1, "hello")).await);
    db.raw()
        .execute(
            "UPDATE events SET body = replace(body, 'hello', 'hullo') WHERE body LIKE '%hello%'",
            [],
        )
        .unwrap();
    let all = entries(&*db.open(), "s").await;
    assert_eq!(all.len(), 8);
    let damage: Vec<_> = all
        .iter()
        .filter_map(|entry| match entry {
            Entry::Damage(damage) => Some(damage),
            _ => None,
        })
        .collect();
    assert_eq!(damage.len(), 1);
    assert!(damage[0].file.contains("sessions.sqlite") && damage[0].file.contains("session s"));
    assert!(damage[0].reason.contains("checksum"), "{}", damage[0]);
    assert!(Box::pin(store.load(&id("s"))).await.is_err());
    assert!(!store.verify(&id("s")).await.unwrap().ok);
}

#[tokio::test]
async fn missing_events_are_damage_wherever_they_are() {
    for (gone, first, bytes) in [
        ("seq = 0", 0, 1),
        ("seq IN (2, 3)", 2, 2),
        ("seq >= 4", 4, 2),
    ] {
        let db = Db::new();
        let backend = db.open();
        drop(created(&backend, "s", &["0", "1", "2", "3", "4", "5"]).await);
        db.raw()
            .execute(&format!("DELETE FROM events WHERE {gone}"), [])
            .unwrap();
        let all = entries(&*backend, "s").await;
        let len = crate::support::line(0, "0").len() as u64;
        let found = all.iter().find_map(|entry| match entry {
            Entry::Damage(damage) => Some(damage.clone()),
            _ => None,
        });
        let found = found.unwrap();
        assert_eq!((found.seq, found.bytes), (first, bytes * len), "{gone}");
        assert!(found.reason.contains("missing"), "{found}");
        let end = backend
            .page(&id("s"), ReadPos::default(), 1 << 20)
            .await
            .unwrap();
        assert_eq!((end.end, end.next.seq), (true, 6));
        // A bare number in the middle of a hole, and behind it.
        let page = backend
            .page(&id("s"), ReadPos::at(3), 1 << 20)
            .await
            .unwrap();
        assert!(page.end && page.next.seq == 6, "{gone}");
    }
}

#[tokio::test]
async fn an_event_at_another_events_place_is_damage() {
    let db = Db::new();
    let backend = db.open();
    drop(created(&backend, "s", &["0", "1"]).await);
    db.raw()
        .execute(
            "UPDATE events SET body = (SELECT body FROM events WHERE seq = 0)",
            [],
        )
        .unwrap();
    let all = entries(&*backend, "s").await;
    assert!(matches!(all[1], Entry::Line(..)));
    assert!(matches!(&all[2], Entry::Damage(damage) if damage.seq == 1));
}

#[tokio::test]
async fn single_lines_are_checked_too() {
    let db = Db::new();
    let backend = db.open();
    drop(created(&backend, "s", &["0", "1"]).await);
    let places: Vec<_> = entries(&*backend, "s")
        .await
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Line(line, place) => Some((line.event.seq, place)),
            _ => None,
        })
        .collect();
    let mut wanted = places.clone();
    wanted.reverse();
    let got = backend.lines(&id("s"), &wanted).await.unwrap();
    assert!(got[0].is_ok() && got[1].is_ok());
    let (_, place) = places[0];
    let got = backend
        .lines(&id("s"), &[(1, place), (7, place)])
        .await
        .unwrap();
    assert!(
        got.iter()
            .all(|line| line.as_ref().is_err_and(|damage| damage.offset == place.at))
    );
}

/// Overwrites each page of the file in turn.
#[tokio::test]
async fn no_damage_to_the_file_makes_it_panic() {
    let db = Db::new();
    {
        let store = db.store();
        let text = "some text ".repeat(200);
        for name in ["a", "b", "c"] {
            drop(stored(&store, name, whole_turn(0, 1, &text)).await);
        }
        store
            .list(&threadline_store::ListFilter::default(), None, 10)
            .await
            .unwrap();
    }
    let whole = std::fs::read(db.path()).unwrap();
    assert!(whole.len() > 20 * 4096);
    let (mut refused, mut told) = (0, 0);
    for page in 0..whole.len() / 4096 {
        let broken = Db::new();
        let mut bytes = whole.clone();
        bytes[page * 4096..][..4096].fill(0xa5);
        std::fs::write(broken.path(), &bytes).unwrap();
        let Ok(backend) = threadline_sqlite::SqliteBackend::open(broken.path(), Default::default())
        else {
            refused += 1;
            continue;
        };
        let store = store(std::sync::Arc::new(backend));
        for name in ["a", "b", "c"] {
            match store.verify(&id(name)).await {
                Ok(report) if report.ok => {}
                Ok(_) => told += 1,
                Err(error) => {
                    let text = error_chain(&error);
                    if !text.contains("there is no session") {
                        assert!(text.contains("sessions.sqlite"), "{text}");
                    }
                    told += 1;
                }
            }
            let _ = Box::pin(store.load(&id(name))).await;
            let _ = store.delete(&id(name)).await;
        }
        let _ = store
            .list(&threadline_store::ListFilter::default(), None, 10)
            .await;
    }
    assert!(refused > 0 && told > 0, "{refused} refused, {told} told");
}
