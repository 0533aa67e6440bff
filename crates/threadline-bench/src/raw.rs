//! What the machine itself can do, without any of the store's code.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::FileExt as _,
    path::Path,
};

use threadline_session::{Place, codec::crc32c};

use crate::Outcome;

const BUFFER: usize = 256 << 10;
/// Gap between two lines that is read rather than skipped.
const GAP: u64 = 32 << 10;

/// Counts the lines of a file.
pub(crate) fn newlines(path: &Path) -> Outcome<u64> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; BUFFER];
    let mut lines = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(lines);
        }
        let bytes = buffer.get(..read).unwrap_or_default();
        lines += memchr::memchr_iter(b'\n', bytes).count() as u64;
    }
}

/// Finds the lines of a file and makes a checksum of each.
pub(crate) fn checksums(path: &Path) -> Outcome<u64> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; BUFFER];
    let (mut held, mut sum) = (0, 0_u64);
    loop {
        let read = file.read(buffer.get_mut(held..).unwrap_or_default())?;
        if read == 0 {
            return Ok(sum);
        }
        let filled = buffer.get(..held + read).unwrap_or_default();
        let mut begin = 0;
        for end in memchr::memchr_iter(b'\n', filled) {
            let line = filled.get(begin..end).unwrap_or_default();
            sum = sum.wrapping_add(u64::from(crc32c(line)));
            begin = end + 1;
        }
        held = filled.len() - begin;
        let len = buffer.len();
        buffer.copy_within(begin..begin + held, 0);
        if held == len {
            buffer.resize(len * 2, 0);
        }
    }
}

/// Reads lines by their places, one by one, and keeps them.
pub(crate) fn lines(path: &Path, places: &[(u64, Place)]) -> Outcome<Vec<Box<[u8]>>> {
    let file = File::open(path)?;
    let mut kept = Vec::with_capacity(places.len());
    for (_, place) in places {
        let mut line = vec![0; usize::try_from(place.len)?];
        file.read_exact_at(&mut line, place.at)?;
        kept.push(line.into_boxed_slice());
    }
    Ok(kept)
}

/// Reads lines by their places, neighbours together, and keeps them.
pub(crate) fn lines_together(path: &Path, places: &[(u64, Place)]) -> Outcome<Vec<Box<[u8]>>> {
    let file = File::open(path)?;
    let mut sorted: Vec<Place> = places.iter().map(|(_, place)| *place).collect();
    sorted.sort_unstable_by_key(|place| place.at);
    let mut kept = Vec::with_capacity(sorted.len());
    let mut buffer = Vec::new();
    let mut rest = sorted.as_slice();
    while let Some(first) = rest.first() {
        let mut end = first.at;
        let together = rest.iter().take_while(|place| {
            let fits = place.at <= end + GAP && place.at - first.at < BUFFER as u64;
            if fits {
                end = place.at + u64::from(place.len);
            }
            fits
        });
        let count = together.count();
        buffer.resize(usize::try_from(end - first.at)?, 0);
        file.read_exact_at(&mut buffer, first.at)?;
        for place in rest.iter().take(count) {
            let from = usize::try_from(place.at - first.at)?;
            let line = buffer.get(from..from + usize::try_from(place.len)?);
            kept.push(line.unwrap_or_default().into());
        }
        rest = rest.get(count..).unwrap_or_default();
    }
    Ok(kept)
}

/// Reads as many bytes from the end of a file.
pub(crate) fn tail(path: &Path, bytes: u64) -> Outcome<u64> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut at = len.saturating_sub(bytes);
    let mut buffer = vec![0; BUFFER];
    while at < len {
        let read = file.read_at(&mut buffer, at)?;
        if read == 0 {
            break;
        }
        at += read as u64;
    }
    Ok(at)
}

/// Opens a file that lines are appended to.
pub(crate) fn appending(path: &Path) -> Outcome<File> {
    Ok(OpenOptions::new().create(true).append(true).open(path)?)
}

/// Appends bytes and waits for the disk.
pub(crate) fn append(file: &mut File, bytes: &[u8]) -> Outcome<()> {
    file.write_all(bytes)?;
    Ok(file.sync_data()?)
}
