//! Mounts of the command's own: everything is read-only but what may be written, and what is
//! closed is covered.
//!
//! They hold what Landlock cannot: modes, owners and times of files, and parts of a tree that is
//! otherwise open. Landlock in turn keeps the command from changing the mounts. A covered path
//! cannot be renamed or removed either, since it is a mount point.
//!
//! Rules: mount_namespaces(7), user_namespaces(7).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;
use threadline_session::payload::SandboxMode;

use crate::Error;
use crate::plan::Plan;

/// Memory that programs share by name; it gets the private folder for temporary files.
const SHARED_MEMORY: &str = "/dev/shm";

pub(super) fn apply(plan: &Plan) -> Result<(), Error> {
    separate()?;
    if let Some(temp) = &plan.temp {
        let before = mounted()?;
        let mut written = vec![temp.clone()];
        if plan.mode == SandboxMode::WorkspaceWrite {
            bind(&plan.workspace, &plan.workspace)?;
            written.push(plan.workspace.clone());
        }
        bind(temp, temp)?;
        if Path::new(SHARED_MEMORY).is_dir() {
            bind(temp, Path::new(SHARED_MEMORY))?;
            written.push(PathBuf::from(SHARED_MEMORY));
        }
        for mount in before {
            if !written.iter().any(|path| mount.at.starts_with(path)) {
                remount(&mount.at, mount.flags | MountFlags::RDONLY)?;
            }
        }
        if plan.mode == SandboxMode::WorkspaceWrite {
            // A mount point cannot be renamed.
            for path in plan.pinned() {
                bind(&path, &path)?;
            }
            for path in &plan.frozen {
                freeze(path)?;
            }
        }
    }
    for path in &plan.closed {
        cover(path)?;
    }
    Ok(())
}

/// Does what [`apply`] does first and is most likely refused.
pub(super) fn probe() -> Result<(), Error> {
    separate()?;
    for mount in mounted()? {
        remount(&mount.at, mount.flags | MountFlags::RDONLY)?;
    }
    Ok(())
}

/// Gives this process mounts of its own, as an administrator, or as one inside a namespace of
/// users that has nobody else in it.
fn separate() -> Result<(), Error> {
    let own = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    match unshare(own) {
        Ok(()) => {}
        Err(Errno::PERM) => {
            let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
            unshare(own | UnshareFlags::NEWUSER)
                .map_err(|error| Error::apply("making namespaces", error))?;
            let (user, group) = (user.as_raw(), group.as_raw());
            tell("setgroups", "deny")?;
            tell("uid_map", &format!("{user} {user} 1"))?;
            tell("gid_map", &format!("{group} {group} 1"))?;
        }
        Err(error) => return Err(Error::apply("making namespaces", error)),
    }
    rustix::mount::mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .map_err(|error| Error::apply("making mounts private", error))
}

fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    #[expect(
        unsafe_code,
        reason = "only UnshareFlags::FILES can take open files from a thread, and it is never given"
    )]
    // SAFETY: the reason above is the invariant.
    unsafe {
        rustix::thread::unshare_unsafe(flags)
    }
}

fn tell(file: &str, text: &str) -> Result<(), Error> {
    std::fs::write(Path::new("/proc/self").join(file), text)
        .map_err(|error| Error::apply(format!("writing {file}"), error))
}

fn failed<'a>(doing: &'a str, path: &'a Path) -> impl FnOnce(Errno) -> Error + 'a {
    move |error| Error::apply(format!("{doing} `{}`", path.display()), error)
}

fn bind(from: &Path, at: &Path) -> Result<(), Error> {
    rustix::mount::mount_bind_recursive(from, at).map_err(failed("mounting", at))
}

/// Changes the flags of one mount. A mount that cannot be reached needs no change.
fn remount(at: &Path, flags: MountFlags) -> Result<(), Error> {
    match rustix::mount::mount_remount(at, MountFlags::BIND | flags, c"") {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT | Errno::ACCESS | Errno::NOTDIR) => Ok(()),
        Err(error) => Err(failed("making read-only", at)(error)),
    }
}

fn freeze(path: &Path) -> Result<(), Error> {
    match rustix::mount::mount_bind_recursive(path, path) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(failed("protecting", path)(error)),
    }
    for mount in mounted()? {
        if mount.at.starts_with(path) {
            strictly(&mount.at, mount.flags | MountFlags::RDONLY)?;
        }
    }
    Ok(())
}

/// Covers a folder with an empty one, and anything else with a device that does not open.
fn cover(path: &Path) -> Result<(), Error> {
    let nothing = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
    let Ok(meta) = std::fs::symlink_metadata(path) else {
        // Gone, or out of reach for the command too.
        return Ok(());
    };
    if meta.is_dir() {
        let size = c"size=4k,mode=000";
        return rustix::mount::mount("threadline", path, "tmpfs", nothing, size)
            .map_err(failed("covering", path));
    }
    match rustix::mount::mount_bind("/dev/null", path) {
        Ok(()) => strictly(path, nothing),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(failed("covering", path)(error)),
    }
}

fn strictly(at: &Path, flags: MountFlags) -> Result<(), Error> {
    rustix::mount::mount_remount(at, MountFlags::BIND | flags, c"")
        .map_err(failed("protecting", at))
}

struct Mount {
    at: PathBuf,
    flags: MountFlags,
}

/// Returns the mounts of this process; see proc_pid_mountinfo(5).
fn mounted() -> Result<Vec<Mount>, Error> {
    let table = std::fs::read("/proc/self/mountinfo")
        .map_err(|error| Error::apply("reading the mounts", error))?;
    Ok(table
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect())
}

fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let at = unescape(fields.nth(4)?);
    let options = std::str::from_utf8(fields.next()?).ok()?;
    // Flags that are left out of a remount would be cleared, or are locked and refused.
    let flags = options
        .split(',')
        .fold(MountFlags::empty(), |flags, option| {
            flags
                | match option {
                    "ro" => MountFlags::RDONLY,
                    "nosuid" => MountFlags::NOSUID,
                    "nodev" => MountFlags::NODEV,
                    "noexec" => MountFlags::NOEXEC,
                    "noatime" => MountFlags::NOATIME,
                    "nodiratime" => MountFlags::NODIRATIME,
                    "relatime" => MountFlags::RELATIME,
                    "nosymfollow" => MountFlags::NOSYMFOLLOW,
                    _ => MountFlags::empty(),
                }
        });
    let no_time = options
        .split(',')
        .all(|option| option != "noatime" && option != "relatime");
    let flags = if no_time {
        flags | MountFlags::STRICTATIME
    } else {
        flags
    };
    Some(Mount {
        at: PathBuf::from(OsStr::from_bytes(&at)),
        flags,
    })
}

/// Spaces, tabs, line feeds and backslashes are written as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|_| *first == b'\\');
        let byte = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (byte, tail.get(3..)) {
            (Some(byte), Some(after)) => {
                out.push(byte);
                rest = after;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_mount_table_is_read() {
        let line = br"36 35 98:0 / /mnt/a\040b ro,nosuid,noatime master:1 - ext3 /dev/root rw";
        let mount = parse(line).unwrap();
        assert_eq!(mount.at, Path::new("/mnt/a b"));
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOATIME;
        assert_eq!(mount.flags, flags);
        assert!(parse(b"").is_none());
        assert_eq!(unescape(br"a\1"), br"a\1");
    }
}
