//! Images, mounts, and what ends them whatever happens.

use std::{
    ffi::OsStr,
    fmt, fs,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::fs::FallocateFlags;

use super::{Fallible, check, tell, text};

const PREFIX: &str = "threadline-disks-";
/// Where root's programs are; the path of a test runner may lack them.
const SBIN: &str = "/usr/sbin:/sbin:/usr/bin:/bin";
/// Another thread that starts a program holds copies of all open files for an instant.
const BUSY_TRIES: u32 = 200;

/// A kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fs {
    Ext4,
    Xfs,
    Tmpfs,
}

impl fmt::Display for Fs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Tmpfs => "tmpfs",
        })
    }
}

impl Fs {
    /// The smallest handy size in bytes; `mkfs.xfs` makes nothing under 300 MB.
    fn bytes(self) -> u64 {
        match self {
            Self::Ext4 => 24 << 20,
            Self::Xfs => 300 << 20,
            Self::Tmpfs => 2 << 20,
        }
    }
}

fn path_variable() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:{SBIN}")
}

/// Runs a program to its end; what it prints is told only when it fails.
fn run<A: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = A>) -> Fallible<()> {
    let mut command = Command::new(program);
    command.args(args).env("PATH", path_variable());
    let output = command.output().map_err(|e| format!("{program}: {e}"))?;
    check(output.status.success(), || {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("{program}: {}: {}", output.status, said.trim())
    })
}

fn has_program(name: &str) -> bool {
    std::env::split_paths(&path_variable()).any(|dir| dir.join(name).is_file())
}

/// Says why file systems cannot be mounted here at all.
pub(crate) fn unable(programs: &[&str]) -> Fallible<()> {
    check(rustix::process::geteuid().is_root(), || "needs root".into())?;
    let base = ["mount", "umount"];
    let missing: Vec<_> = base
        .iter()
        .chain(programs)
        .filter(|name| !has_program(name))
        .copied()
        .collect();
    check(missing.is_empty(), || {
        format!("needs the programs {}", missing.join(", "))
    })
}

/// Says why a kind of file system cannot be used here, after trying it.
pub(crate) fn try_out(fs: Fs, cut: bool) -> Fallible<()> {
    let mut volume = Volume::new(fs)?;
    volume.mount()?;
    if cut {
        volume.cut(false)?;
        let written = fs::write(volume.point().join("after"), b"x");
        check(written.is_err(), || "the shutdown does nothing".into())?;
    }
    volume.unmount()
}

/// A mounted folder. It is unmounted when this goes, if need be by force.
#[derive(Debug)]
struct Mount {
    point: PathBuf,
    live: bool,
}

impl Mount {
    fn unmount(&mut self) -> Fallible<()> {
        let mut last = Ok(());
        for _ in 0..BUSY_TRIES {
            last = run("umount", [&self.point]);
            if last.is_ok() {
                self.live = false;
                break;
            }
        }
        last
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.live && self.unmount().is_err() {
            let lazy = run("umount", [OsStr::new("-l"), self.point.as_os_str()]);
            if let Err(error) = lazy {
                tell(&format!("{} stays mounted: {error}", self.point.display()));
            }
        }
    }
}

/// A file system of its own. Fields are dropped in this order: what is mounted goes first.
#[derive(Debug)]
pub(crate) struct Volume {
    mount: Option<Mount>,
    fs: Fs,
    image: PathBuf,
    point: PathBuf,
    /// Whether the loop device may store a request only as a whole.
    whole_writes: bool,
    /// The tmpfs under the image, when the image is to outgrow it.
    base: Option<Mount>,
    _dir: tempfile::TempDir,
}

impl Volume {
    /// Makes an empty file system in an image file (or in memory), not mounted yet.
    pub(crate) fn new(fs: Fs) -> Fallible<Self> {
        let volume = Self::bare(fs)?;
        volume.format(fs.bytes())?;
        Ok(volume)
    }

    /// Makes an ext4 of `bytes` on a tmpfs that holds only `room`: what it is given to write does
    /// not fit, and it learns so when it syncs. Its first `kept` bytes have their room in any case.
    pub(crate) fn on_too_small_a_disk(bytes: u64, room: u64, kept: Option<u64>) -> Fallible<Self> {
        let mut volume = Self::bare(Fs::Ext4)?;
        let base = volume.point.with_file_name("base");
        fs::create_dir(&base).map_err(|e| format!("{}: {e}", base.display()))?;
        volume.image = base.join("image");
        volume.base = Some(mount_tmpfs(&base, room)?);
        volume.whole_writes = true;
        volume.format(bytes)?;
        if let Some(kept) = kept {
            let image = fs::OpenOptions::new().write(true).open(&volume.image);
            let image = image.map_err(|e| format!("{}: {e}", volume.image.display()))?;
            rustix::fs::fallocate(&image, FallocateFlags::empty(), 0, kept)
                .map_err(|e| format!("{}: {e}", volume.image.display()))?;
        }
        Ok(volume)
    }

    fn bare(fs: Fs) -> Fallible<Self> {
        sweep();
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let dir = tempfile::Builder::new().prefix(&prefix).tempdir();
        let dir = dir.map_err(|e| format!("a temporary folder: {e}"))?;
        let point = dir.path().join("mnt");
        fs::create_dir(&point).map_err(|e| format!("{}: {e}", point.display()))?;
        Ok(Self {
            mount: None,
            fs,
            image: dir.path().join("image"),
            point,
            whole_writes: false,
            base: None,
            _dir: dir,
        })
    }

    fn format(&self, bytes: u64) -> Fallible<()> {
        let program = match self.fs {
            Fs::Tmpfs => return Ok(()),
            Fs::Ext4 => "mkfs.ext4",
            Fs::Xfs => "mkfs.xfs",
        };
        let sized = fs::File::create(&self.image).and_then(|file| file.set_len(bytes));
        sized.map_err(|e| format!("{}: {e}", self.image.display()))?;
        let image = self.image.as_os_str();
        let flags: &[&str] = match self.fs {
            // Without blocks that only root may fill.
            Fs::Ext4 if self.whole_writes => &["-q", "-F", "-m", "0", "-b", "4096"],
            Fs::Ext4 => &["-q", "-F", "-m", "0"],
            _ => &["-q", "-f"],
        };
        run(program, flags.iter().map(OsStr::new).chain([image]))
    }

    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    /// The folder that the store is in.
    pub(crate) fn root(&self) -> PathBuf {
        self.point.join("store")
    }

    /// The folder under the image of a disk that is too small.
    pub(crate) fn below(&self) -> &Path {
        self.image.parent().expect("an image is in a folder")
    }

    pub(crate) fn mount(&mut self) -> Fallible<()> {
        if self.fs == Fs::Tmpfs {
            self.mount = Some(mount_tmpfs(&self.point, self.fs.bytes())?);
            return Ok(());
        }
        let (loop_, image) = (["-o", "loop"].map(OsStr::new), self.image.as_os_str());
        let args = loop_.into_iter().chain([image, self.point.as_os_str()]);
        run("mount", args)?;
        self.mount = Some(Mount {
            point: self.point.clone(),
            live: true,
        });
        if self.whole_writes {
            self.shorten_requests()?;
        }
        Ok(())
    }

    /// Linux's loop device calls a write a success when its file takes only a part of it, so that
    /// a full disk below would lose what a sync has acknowledged (a bare append-and-fdatasync loop
    /// shows it). A request of one page is stored as a whole or refused.
    fn shorten_requests(&self) -> Fallible<()> {
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(text)?;
        let device = mounts.lines().find_map(|line| {
            let (device, rest) = line.split_once(' ')?;
            let (point, _) = rest.split_once(' ')?;
            (Path::new(point) == self.point).then(|| device.strip_prefix("/dev/"))?
        });
        let device = device.ok_or("the mount has no device")?;
        let limit = format!("/sys/block/{device}/queue/max_sectors_kb");
        fs::write(&limit, "4").map_err(|e| format!("{limit}: {e}"))
    }

    pub(crate) fn unmount(&mut self) -> Fallible<()> {
        match self.mount.take() {
            Some(mut mount) => mount.unmount(),
            None => Ok(()),
        }
    }

    /// Lets `fsck` mend what can be mended, as the system does when it starts.
    pub(crate) fn repair(&self) {
        // Its exit code tells what it found, which is no failure.
        let _ = run("e2fsck", [OsStr::new("-fy"), self.image.as_os_str()]);
    }

    pub(crate) fn cut(&self, flush_log: bool) -> Fallible<()> {
        cut(&self.point, flush_log)
    }
}

/// Cuts the power of a mounted file system: from now on nothing reaches its disk. With `flush_log`
/// what its journal holds still does.
pub(crate) fn cut(point: &Path, flush_log: bool) -> Fallible<()> {
    let verb = if flush_log { "shutdown -f" } else { "shutdown" };
    let args = ["-x", "-c", verb].map(OsStr::new);
    run("xfs_io", args.into_iter().chain([point.as_os_str()]))
}

fn mount_tmpfs(point: &Path, bytes: u64) -> Fallible<Mount> {
    let size = format!("size={bytes}");
    let flags = ["-t", "tmpfs", "-o", &size, "tmpfs"].map(OsStr::new);
    run("mount", flags.into_iter().chain([point.as_os_str()]))?;
    Ok(Mount {
        point: point.to_owned(),
        live: true,
    })
}

/// Unmounts what a test process that was killed has left mounted.
fn sweep() {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let top = std::env::temp_dir();
    let left = mounts.lines().rev().filter_map(|line| {
        let point = Path::new(line.split(' ').nth(1)?);
        let below = point.strip_prefix(&top).ok()?;
        let dir = below.iter().next()?.to_str()?;
        let (pid, _) = dir.strip_prefix(PREFIX)?.split_once('-')?;
        let gone = !Path::new("/proc").join(pid).exists();
        gone.then(|| (point, top.join(dir)))
    });
    for (point, dir) in left {
        let _ = run("umount", [OsStr::new("-l"), point.as_os_str()]);
        let _ = fs::remove_dir_all(dir);
    }
}

/// A file that takes up the room of a disk.
#[derive(Debug)]
pub(crate) struct Filler {
    file: fs::File,
    path: PathBuf,
    len: u64,
}

impl Filler {
    /// Takes all the room there is in a folder's file system.
    pub(crate) fn new(dir: &Path) -> Fallible<Self> {
        let path = dir.join("filler");
        let mut options = fs::OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let file = options.open(&path);
        let file = file.map_err(|e| format!("{}: {e}", path.display()))?;
        let mut filler = Self { file, path, len: 0 };
        filler.fill()?;
        Ok(filler)
    }

    /// Takes what room there is.
    pub(crate) fn fill(&mut self) -> Fallible<()> {
        for step in [8 << 20, 1 << 20, 64 << 10, 4 << 10] {
            loop {
                let taken =
                    rustix::fs::fallocate(&self.file, FallocateFlags::empty(), self.len, step);
                match taken {
                    Ok(()) => self.len += step,
                    Err(rustix::io::Errno::NOSPC) => break,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(format!("{}: {error}", self.path.display())),
                }
            }
        }
        // What is deferred (inode and extent blocks) is taken too.
        self.file
            .flush()
            .and_then(|()| self.file.sync_all())
            .map_err(|e| format!("{}: {e}", self.path.display()))
    }

    /// Gives some of the room back.
    pub(crate) fn give(&mut self, bytes: u64) -> Fallible<()> {
        self.len = self.len.saturating_sub(bytes);
        let cut = self
            .file
            .set_len(self.len)
            .and_then(|()| self.file.sync_all());
        cut.map_err(|e| format!("{}: {e}", self.path.display()))
    }

    /// Gives all of it back.
    pub(crate) fn free(self) -> Fallible<()> {
        let cut = self.file.set_len(0).and_then(|()| self.file.sync_all());
        cut.and_then(|()| fs::remove_file(&self.path))
            .map_err(|e| format!("{}: {e}", self.path.display()))
    }
}
