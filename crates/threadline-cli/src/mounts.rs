//! What kind of file system a path is on.

use std::path::{Path, PathBuf};

/// A mounted file system, as far as it is known.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Name of its kind, e.g. `ext4`.
    pub(crate) kind: Option<String>,
    /// Bytes that may still be written.
    pub(crate) free_bytes: Option<u64>,
}

/// Returns the mount of a path, or of the nearest directory above it that exists.
pub(crate) fn of(path: &Path) -> Mount {
    let Some(existing) = path.ancestors().find(|path| path.exists()) else {
        return Mount::default();
    };
    let existing = existing
        .canonicalize()
        .unwrap_or_else(|_| existing.to_owned());
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let free_bytes = rustix::fs::statvfs(&existing)
        .ok()
        .map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    Mount {
        kind: kind(&table, &existing),
        free_bytes,
    }
}

/// Finds the deepest mount point above a path; of several at one point the last one counts.
fn kind(table: &str, path: &Path) -> Option<String> {
    let mut best: Option<(usize, &str)> = None;
    for line in table.lines() {
        // "36 35 98:0 /root /mount/point rw,noatime - ext4 /dev/root rw"
        let (mount, source) = line.split_once(" - ")?;
        let point = PathBuf::from(unescape(mount.split(' ').nth(4)?));
        let kind = source.split(' ').next()?;
        let depth = point.components().count();
        if path.starts_with(&point) && best.is_none_or(|(deepest, _)| depth >= deepest) {
            best = Some((depth, kind));
        }
    }
    best.map(|(_, kind)| kind.to_owned())
}

/// White space and backslashes stand in the table as three octal digits.
fn unescape(text: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .into_iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(text.to_owned(), |text, (escape, character)| {
            text.replace(escape, character)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_point_counts() {
        let table = "1 0 8:1 / / rw - ext4 /dev/a rw\n\
                     2 1 0:5 / /data\\040x rw shared:1 - xfs /dev/b rw\n\
                     3 1 0:6 / /data\\040x/tmp rw - tmpfs tmpfs rw\n";
        let kind = |path: &str| kind(table, Path::new(path)).unwrap();
        assert_eq!(kind("/data x/home"), "xfs");
        assert_eq!(kind("/data x/tmp/y"), "tmpfs");
        assert_eq!(kind("/data"), "ext4");
    }
}
