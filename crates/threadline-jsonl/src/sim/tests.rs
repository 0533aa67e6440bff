//! What the file system in memory does with names, copies and times, also in a crash.

use std::{collections::BTreeSet, io, path::Path};

use super::{Fault, FaultVfs, Kept, MemVfs, Op, Plan};
use crate::vfs::{Meta, Mode, Vfs, append_all};

fn p(path: &str) -> &Path {
    Path::new(path)
}

fn meta(vfs: &MemVfs, path: &str) -> Meta {
    vfs.metadata(p(path)).unwrap().unwrap()
}

fn content(vfs: &MemVfs, path: &str) -> Option<Vec<u8>> {
    vfs.content(p(path))
}

fn append(vfs: &MemVfs, path: &str, bytes: &[u8], sync: bool) {
    let file = vfs.open(p(path), Mode::Append).unwrap();
    append_all(&*file, bytes).unwrap();
    if sync {
        file.sync_data().unwrap();
    }
}

/// A folder with a file `a`, and another folder, all on stable storage.
fn start() -> MemVfs {
    let vfs = MemVfs::new();
    vfs.put(p("/d/a"), b"one\n").unwrap();
    vfs.put(p("/e/keep"), b"").unwrap();
    vfs
}

fn linked() -> MemVfs {
    let vfs = start();
    vfs.hard_link(p("/d/a"), p("/e/b")).unwrap();
    vfs
}

#[test]
fn a_link_shares_the_content_and_outlives_the_first_name() {
    let vfs = linked();
    assert_eq!(meta(&vfs, "/d/a"), meta(&vfs, "/e/b"));
    assert_eq!(meta(&vfs, "/e/b").links, 2);
    append(&vfs, "/d/a", b"two\n", true);
    append(&vfs, "/e/b", b"three\n", false);
    let all = Some(b"one\ntwo\nthree\n".to_vec());
    assert_eq!(content(&vfs, "/d/a"), all);
    vfs.sync_dir(p("/e")).unwrap();
    vfs.remove_file(p("/d/a")).unwrap();
    assert_eq!((content(&vfs, "/e/b"), meta(&vfs, "/e/b").links), (all, 1));
    // A sync through one name is one for both.
    let cut = vfs.power_cut(Kept::Names);
    assert_eq!(content(&cut, "/d/a"), None);
    assert_eq!(content(&cut, "/e/b"), Some(b"one\ntwo\n".to_vec()));
    vfs.remove_file(p("/e/b")).unwrap();
    assert_eq!(vfs.metadata(p("/e/b")).unwrap(), None);
}

#[test]
fn a_link_needs_a_free_name_and_a_file() {
    let vfs = linked();
    let fails = |from: &str, to: &str| vfs.hard_link(p(from), p(to)).unwrap_err().kind();
    assert_eq!(fails("/d/a", "/e/keep"), io::ErrorKind::AlreadyExists);
    assert_eq!(fails("/d/a", "/e/b"), io::ErrorKind::AlreadyExists);
    assert_eq!(fails("/d/none", "/d/b"), io::ErrorKind::NotFound);
    assert_eq!(fails("/d/a", "/f/b"), io::ErrorKind::NotFound);
    assert_eq!(fails("/d", "/f"), io::ErrorKind::PermissionDenied);
}

#[test]
fn a_rename_over_a_name_drops_only_that_name() {
    let vfs = linked();
    vfs.put(p("/d/new"), b"new").unwrap();
    vfs.rename(p("/d/new"), p("/d/a")).unwrap();
    assert_eq!(content(&vfs, "/d/a"), Some(b"new".to_vec()));
    assert_eq!(content(&vfs, "/e/b"), Some(b"one\n".to_vec()));
    assert_eq!(meta(&vfs, "/e/b").links, 1);
    assert_ne!(meta(&vfs, "/e/b").inode, meta(&vfs, "/d/a").inode);
    // Between two names of one file it does nothing.
    vfs.hard_link(p("/e/b"), p("/e/c")).unwrap();
    vfs.rename(p("/e/b"), p("/e/c")).unwrap();
    assert_eq!(meta(&vfs, "/e/b").links, 2);
}

#[test]
fn without_a_sync_of_its_folder_a_link_may_be_lost_and_the_file_is_not() {
    let vfs = linked();
    let there = |vfs: &MemVfs| {
        assert_eq!(content(vfs, "/d/a"), Some(b"one\n".to_vec()));
        let links = meta(vfs, "/d/a").links;
        assert_eq!(links == 2, content(vfs, "/e/b").is_some());
        links
    };
    let links: BTreeSet<_> = vfs.crash_states().map(|(_, image)| there(&image)).collect();
    assert_eq!(links, BTreeSet::from([1, 2]));
    assert_eq!(there(&vfs.power_cut(Kept::Nothing)), 1);
    assert_eq!(there(&vfs.power_cut(Kept::Names)), 2);
    // Another folder's sync is of no help.
    vfs.sync_dir(p("/d")).unwrap();
    assert_eq!(there(&vfs.power_cut(Kept::Data)), 1);
    vfs.sync_dir(p("/e")).unwrap();
    assert!(vfs.crash_states().all(|(_, image)| there(&image) == 2));
}

#[test]
fn a_link_that_replaces_the_first_name_may_lose_the_file_unless_its_folder_is_synced_first() {
    let vfs = linked();
    vfs.remove_file(p("/d/a")).unwrap();
    vfs.sync_dir(p("/d")).unwrap();
    assert_eq!(vfs.power_cut(Kept::Nothing).files(), [p("/e/keep")]);
    let vfs = linked();
    vfs.sync_dir(p("/e")).unwrap();
    vfs.remove_file(p("/d/a")).unwrap();
    for (fate, image) in vfs.crash_states() {
        assert_eq!(content(&image, "/e/b"), Some(b"one\n".to_vec()), "{fate}");
    }
}

#[test]
fn after_every_crash_two_names_have_one_content() {
    let vfs = linked();
    append(&vfs, "/e/b", b"two\nthree\n", false);
    let mut torn = 0;
    for (fate, image) in vfs.crash_states() {
        let bytes = content(&image, "/d/a");
        if let Some(shared) = content(&image, "/e/b") {
            torn += u32::from(shared == b"one\ntw");
            assert_eq!(Some(shared), bytes, "{fate}");
        }
    }
    assert!(torn > 0);
}

#[test]
fn a_copy_has_the_first_bytes_and_goes_its_own_way() {
    let vfs = start();
    append(&vfs, "/d/a", b"two\n", false);
    vfs.copy_prefix(p("/d/a"), p("/e/b"), 6).unwrap();
    append(&vfs, "/d/a", b"three\n", false);
    assert_eq!(content(&vfs, "/e/b"), Some(b"one\ntw".to_vec()));
    assert_eq!(meta(&vfs, "/e/b").links, 1);
    let fails = |to: &str, bytes| vfs.copy_prefix(p("/d/a"), p(to), bytes).unwrap_err().kind();
    assert_eq!(fails("/e/b", 1), io::ErrorKind::AlreadyExists);
    assert_eq!(fails("/e/c", 15), io::ErrorKind::UnexpectedEof);
    assert_eq!(content(&vfs, "/e/c"), None);
    vfs.copy_prefix(p("/d/a"), p("/e/c"), 0).unwrap();
    assert_eq!(content(&vfs, "/e/c"), Some(Vec::new()));
    let big = vec![b'x'; 200_000];
    vfs.put(p("/d/big"), &big).unwrap();
    vfs.copy_prefix(p("/d/big"), p("/e/big"), 150_000).unwrap();
    assert_eq!(content(&vfs, "/e/big"), Some(big[..150_000].to_vec()));
}

#[test]
fn a_copy_may_be_lost_or_torn_until_it_and_its_folder_are_synced() {
    let vfs = start();
    vfs.copy_prefix(p("/d/a"), p("/e/b"), 4).unwrap();
    let copies = |vfs: &MemVfs| -> BTreeSet<_> {
        vfs.crash_states()
            .map(|(_, image)| {
                assert_eq!(content(&image, "/d/a"), Some(b"one\n".to_vec()));
                content(&image, "/e/b")
            })
            .collect()
    };
    let found = copies(&vfs);
    for content in [
        None,
        Some(&b""[..]),
        Some(b"one"),
        Some(b"one\n"),
        Some(&[0; 4]),
    ] {
        assert!(found.contains(&content.map(<[u8]>::to_vec)), "{found:?}");
    }
    let file = vfs.open(p("/e/b"), Mode::Append).unwrap();
    file.sync_data().unwrap();
    let whole = Some(b"one\n".to_vec());
    assert_eq!(copies(&vfs), BTreeSet::from([None, whole.clone()]));
    vfs.sync_dir(p("/e")).unwrap();
    assert_eq!(copies(&vfs), BTreeSet::from([whole]));
}

#[test]
fn a_process_that_dies_while_copying_leaves_nothing_or_a_beginning() {
    let lens = |at| -> BTreeSet<_> {
        let vfs = start();
        vfs.freeze_at(at);
        assert!(vfs.copy_prefix(p("/d/a"), p("/e/b"), 4).is_err());
        let killed = vfs.crash_states().filter(|(fate, _)| !fate.is_power_cut());
        killed
            .map(|(_, image)| content(&image, "/e/b").map(|bytes| bytes.len()))
            .collect()
    };
    assert_eq!(lens(1), BTreeSet::from([None]));
    assert_eq!(lens(2), (0..=4).map(Some).collect());
}

#[test]
fn times_are_unix_times_that_never_repeat_and_a_power_cut_may_undo_a_touch() {
    let vfs = linked();
    let mut seen = BTreeSet::new();
    let mut changed = |vfs: &MemVfs| {
        let (time, now) = (meta(vfs, "/d/a").mtime_ns, vfs.now_ms());
        assert!(seen.insert(time), "{time}");
        let age = now - time / 1_000_000;
        assert!(age < 100, "{age}");
        time
    };
    changed(&vfs);
    append(&vfs, "/d/a", b"two\n", false);
    changed(&vfs);
    append(&vfs, "/d/a", b"three\n", true);
    let synced = changed(&vfs);
    vfs.advance_ms(1_000_000);
    assert!(vfs.now_ms() - synced / 1_000_000 > 1_000_000);
    vfs.touch(p("/e/b")).unwrap();
    let touched = changed(&vfs);
    let file = vfs.open(p("/d/a"), Mode::Append).unwrap();
    file.sync_data().unwrap();
    let times = vfs.crash_states().map(|(_, it)| meta(&it, "/d/a").mtime_ns);
    assert_eq!(
        times.collect::<BTreeSet<_>>(),
        BTreeSet::from([synced, touched])
    );
    let cut = vfs.power_cut(Kept::All).power_cut(Kept::Nothing);
    assert_eq!(meta(&cut, "/d/a").mtime_ns, touched);
    assert!(vfs.touch(p("/d/none")).is_err());
}

#[test]
fn links_copies_and_touches_fail_on_command() {
    let failed = |op, fault| {
        let vfs = start();
        let plan = Plan {
            op: Some(op),
            nth: 1,
            fault,
            sticky: false,
        };
        let faulty = FaultVfs::new(vfs.clone(), plan);
        let outcome = match op {
            Op::Link => faulty.hard_link(p("/d/a"), p("/e/b")),
            Op::Copy => faulty.copy_prefix(p("/d/a"), p("/e/b"), 4),
            _ => faulty.touch(p("/d/a")),
        };
        assert_eq!(faulty.hits(), 1);
        (outcome.unwrap_err().kind(), content(&vfs, "/e/b"))
    };
    for (fault, kind) in [
        (Fault::LinkEperm, io::ErrorKind::PermissionDenied),
        (Fault::LinkEmlink, io::ErrorKind::TooManyLinks),
        (Fault::LinkExdev, io::ErrorKind::CrossesDevices),
        (Fault::Enospc, io::ErrorKind::StorageFull),
    ] {
        assert_eq!(failed(Op::Link, fault), (kind, None));
    }
    let full = io::ErrorKind::StorageFull;
    assert_eq!(failed(Op::Copy, Fault::Enospc), (full, None));
    let half = Some(b"on".to_vec());
    assert_eq!(failed(Op::Copy, Fault::HalfThenEnospc), (full, half));
    let interrupted = io::ErrorKind::Interrupted;
    assert_eq!(failed(Op::Touch, Fault::Eintr), (interrupted, None));
    assert!(!Fault::Enospc.befalls(Op::Touch));
    assert!(!Fault::LinkExdev.befalls(Op::Copy));
}
