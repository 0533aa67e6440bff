//! Where things are, and whether they have changed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::LazyLock,
};

static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    // At run time first: the repository may have been moved since this was built.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map(Path::to_path_buf).unwrap_or(manifest)
});

/// Returns the root of the repository.
pub(crate) fn root() -> &'static Path {
    &ROOT
}

/// Returns the folder of the page's sources.
pub(crate) fn web() -> PathBuf {
    root().join("web")
}

/// Returns the folder of the ACP checks.
pub(crate) fn acp() -> PathBuf {
    root().join("tests/acp")
}

/// Returns cargo's build folder.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Returns where cargo puts the binary.
pub(crate) fn binary(dev: bool) -> PathBuf {
    let profile = if dev { "debug" } else { "release" };
    let name = format!("threadline{}", std::env::consts::EXE_SUFFIX);
    target().join(profile).join(name)
}

/// Returns where the figures of a benchmark are kept.
pub(crate) fn bench_report(name: &str) -> PathBuf {
    target().join(format!("bench/{name}.json"))
}

/// A hash over names and contents of files (FNV-1a, 64 bits): it notices changes, no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hash(u64);

impl Hash {
    /// Returns the hash of nothing.
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds some bytes and their length.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let len = (bytes.len() as u64).to_le_bytes();
        for byte in bytes.iter().chain(&len) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Adds all files below a folder in the order of their names, except those in the folders
    /// named in `skip`. A folder that is not there adds nothing.
    pub(crate) fn add_tree(&mut self, dir: &Path, skip: &[&str]) -> io::Result<()> {
        let entries = match fs::read_dir(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        let mut paths = entries
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap_or_default();
            if skip.iter().any(|s| name == *s) {
                continue;
            }
            self.add(name.as_encoded_bytes());
            if path.is_dir() {
                self.add_tree(&path, skip)?;
            } else {
                self.add(&fs::read(&path)?);
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
