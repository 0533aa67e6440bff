//! The file system of the operating system.

#![expect(
    clippy::disallowed_methods,
    reason = "the one place that touches the file system; everything else goes through the seam"
)]

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    sync::OnceLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::vfs::{DirEntry, Meta, Mode, Vfs, VfsFile};

/// The operating system's files.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealVfs;

struct RealFile(File);

impl VfsFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        (&self.0).write(bytes)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn try_lock(&self, exclusive: bool) -> io::Result<bool> {
        let taken = if exclusive {
            self.0.try_lock()
        } else {
            self.0.try_lock_shared()
        };
        match taken {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Magic numbers of `statfs(2)` whose locks or appends do not hold between machines.
const NETWORK: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9P"),
    (0x5346_414f, "AFS"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
];

impl Vfs for RealVfs {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn VfsFile>> {
        let mut options = OpenOptions::new();
        options.read(true).mode(0o600);
        match mode {
            Mode::Read => &mut options,
            Mode::Append => options.append(true),
            Mode::CreateNew => options.append(true).create_new(true),
            Mode::ReadWrite => options.write(true).create(true).truncate(false),
        };
        Ok(Box::new(RealFile(options.open(path)?)))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::DirBuilder::new().mode(0o700).create(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        std::fs::read_dir(path)?
            .map(|entry| {
                let entry = entry?;
                Ok(DirEntry {
                    name: entry.file_name(),
                    is_dir: entry.file_type()?.is_dir(),
                })
            })
            .collect()
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Meta>> {
        match std::fs::symlink_metadata(path) {
            Ok(meta) => {
                let ns = meta
                    .mtime()
                    .wrapping_mul(1_000_000_000)
                    .wrapping_add(meta.mtime_nsec());
                Ok(Some(Meta {
                    len: meta.len(),
                    mtime_ns: ns.cast_unsigned(),
                    is_dir: meta.is_dir(),
                }))
            }
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
                _ => Err(error),
            },
        }
    }

    fn network_kind(&self, path: &Path) -> io::Result<Option<String>> {
        let mut at = path;
        let found = loop {
            match rustix::fs::statfs(at) {
                Ok(found) => break found,
                Err(rustix::io::Errno::NOENT) => match at.parent() {
                    Some(parent) if !parent.as_os_str().is_empty() => at = parent,
                    _ => return Ok(None),
                },
                Err(error) => return Err(error.into()),
            }
        };
        let magic = u64::try_from(found.f_type).unwrap_or_default() & 0xffff_ffff;
        Ok(NETWORK
            .iter()
            .find(|(known, _)| *known == magic)
            .map(|(_, name)| (*name).into()))
    }

    fn boot_id(&self) -> String {
        static BOOT: OnceLock<String> = OnceLock::new();
        BOOT.get_or_init(|| {
            let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
            read.map(|id| id.trim().to_owned()).unwrap_or_default()
        })
        .clone()
    }

    fn host(&self) -> String {
        rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned()
    }

    fn now_ms(&self) -> u64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn pause(&self) {
        std::thread::sleep(Duration::from_millis(10));
    }
}
