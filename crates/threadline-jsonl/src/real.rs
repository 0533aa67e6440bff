//! The file system of the operating system.

#![expect(
    clippy::disallowed_methods,
    reason = "the one place that touches the file system; everything else goes through the seam"
)]

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
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

/// Folds a device into the number of a file on it. No two files of one device come out equal.
fn identity(device: u64, inode: u64) -> u64 {
    device.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ inode
}

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

    fn hard_link(&self, original: &Path, link: &Path) -> io::Result<()> {
        std::fs::hard_link(original, link)
    }

    fn copy_prefix(&self, from: &Path, to: &Path, bytes: u64) -> io::Result<()> {
        let from = File::open(from)?;
        if from.metadata()?.len() < bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // `copy_file_range(2)`, which the standard library uses for two plain files, refuses a
        // target that is opened for appending.
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut to = options.open(to)?;
        let copied = io::copy(&mut from.take(bytes), &mut to)?;
        if copied < bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.set_modified(SystemTime::now())
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
                    .saturating_mul(1_000_000_000)
                    .saturating_add(meta.mtime_nsec());
                Ok(Some(Meta {
                    len: meta.len(),
                    mtime_ns: u64::try_from(ns).unwrap_or_default(),
                    is_dir: meta.is_dir(),
                    links: meta.nlink(),
                    inode: identity(meta.dev(), meta.ino()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{append_all, read_full};

    fn content(path: &Path) -> Vec<u8> {
        let file = RealVfs.open(path, Mode::Read).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        assert_eq!(read_full(&*file, &mut bytes, 0).unwrap(), bytes.len());
        bytes
    }

    fn meta(path: &Path) -> Meta {
        RealVfs.metadata(path).unwrap().unwrap()
    }

    #[test]
    fn a_link_is_the_same_file_until_its_last_name_goes() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        let file = RealVfs.open(&a, Mode::CreateNew).unwrap();
        assert_eq!(meta(&a).links, 1);
        RealVfs.hard_link(&a, &b).unwrap();
        append_all(&*file, b"shared").unwrap();
        assert_eq!((meta(&a).links, meta(&b)), (2, meta(&a)));
        let taken = RealVfs.hard_link(&a, &b).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        RealVfs.remove_file(&a).unwrap();
        assert_eq!((content(&b), meta(&b).links), (b"shared".to_vec(), 1));
        drop(RealVfs.open(&a, Mode::CreateNew).unwrap());
        assert_ne!(meta(&a).inode, meta(&b).inode);
    }

    #[test]
    fn a_copy_has_the_first_bytes_and_its_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;

        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        let bytes: Vec<_> = (0..=u8::MAX).cycle().take(300_000).collect();
        append_all(&*RealVfs.open(&a, Mode::CreateNew).unwrap(), &bytes).unwrap();
        let short = RealVfs.copy_prefix(&a, &b, 300_001).unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(RealVfs.metadata(&b).unwrap(), None);
        RealVfs.copy_prefix(&a, &b, 200_001).unwrap();
        assert_eq!(content(&b), bytes[..200_001]);
        let mode = std::fs::metadata(&b).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let taken = RealVfs.copy_prefix(&a, &b, 1).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_touch_makes_the_time_now() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        drop(RealVfs.open(&path, Mode::CreateNew).unwrap());
        let old = UNIX_EPOCH + Duration::from_secs(1_000);
        File::open(&path).unwrap().set_modified(old).unwrap();
        assert_eq!(meta(&path).mtime_ns, 1_000_000_000_000);
        let before = RealVfs.now_ms();
        RealVfs.touch(&path).unwrap();
        let (now, after) = (meta(&path).mtime_ns / 1_000_000, RealVfs.now_ms());
        assert!((before..=after).contains(&now), "{before} {now} {after}");
    }
}
