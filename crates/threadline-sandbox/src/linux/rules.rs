//! Landlock: which files may be reached at all.
//!
//! A Landlock rule opens a whole tree, and nothing closes a part of it again. So a tree that has
//! something closed inside is opened entry by entry on every level that leads there: the rest is
//! reached, what is closed is not, and neither is what comes to such a level later. With
//! [`Layers::Namespaces`] the closed parts are covered by mounts instead, and only `/` and `/dev`
//! are opened this way.
//!
//! Rules: <https://docs.kernel.org/userspace-api/landlock.html>.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use threadline_session::payload::SandboxMode;

use crate::limits::RULES;
use crate::plan::{Plan, has_closed, is_closed};
use crate::{Error, Layers};

/// Below this, truncating a file is not held.
const NEEDED: ABI = ABI::V3;
/// What is held where the kernel can: devices, signals and abstract sockets.
const WANTED: ABI = ABI::V7;

/// Devices that are no way to anybody's data.
const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

pub(super) fn apply(plan: &Plan, layers: Layers) -> Result<(), Error> {
    let sandboxed = plan.temp.is_some();
    let mut rules = Rules::new(sandboxed)?;
    let mut closed = match layers {
        Layers::Namespaces => BTreeSet::new(),
        Layers::LandlockOnly => plan.closed.clone(),
    };
    let Some(temp) = &plan.temp else {
        rules.open(Path::new("/"), &closed, AccessFs::from_all(WANTED))?;
        return rules.enforce();
    };
    // Devices lead to disks and to other people's terminals.
    closed.insert(PathBuf::from("/dev"));
    rules.open(Path::new("/"), &closed, AccessFs::from_read(WANTED))?;
    closed.remove(Path::new("/dev"));
    for device in DEVICES.map(Path::new) {
        rules.one(device, AccessFs::from_file(WANTED))?;
    }
    let written = AccessFs::from_all(WANTED) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    if plan.mode == SandboxMode::WorkspaceWrite {
        if layers == Layers::LandlockOnly {
            closed.extend(plan.frozen.iter().cloned());
        }
        rules.open(&plan.workspace, &closed, written)?;
    }
    rules.one(temp, written)?;
    rules.enforce()
}

/// Restricts this process to nothing, to see whether it works.
pub(super) fn probe() -> Result<(), Error> {
    Rules::new(true)?.enforce()
}

struct Rules {
    made: RulesetCreated,
    count: usize,
}

fn unsupported(error: &RulesetError) -> Error {
    Error::Unsupported {
        missing: format!("Landlock, at least its version 3, is not there ({error})"),
    }
}

impl Rules {
    fn new(sandboxed: bool) -> Result<Self, Error> {
        let make = || {
            let mut ruleset = Ruleset::default()
                .set_compatibility(CompatLevel::HardRequirement)
                .handle_access(AccessFs::from_all(NEEDED))?
                .set_compatibility(CompatLevel::BestEffort)
                .handle_access(AccessFs::from_all(WANTED))?;
            if sandboxed {
                ruleset = ruleset.scope(Scope::from_all(WANTED))?;
            }
            ruleset.create()
        };
        Ok(Self {
            made: make().map_err(|error| unsupported(&error))?,
            count: 0,
        })
    }

    /// Opens a tree except for what is closed in it.
    fn open(
        &mut self,
        path: &Path,
        closed: &BTreeSet<PathBuf>,
        access: BitFlags<AccessFs>,
    ) -> Result<(), Error> {
        if is_closed(closed, path) {
            return Ok(());
        }
        let mut levels = vec![path.to_path_buf()];
        while let Some(path) = levels.pop() {
            if closed.contains(&path) {
                continue;
            }
            if !has_closed(closed, &path) {
                self.one(&path, access)?;
                continue;
            }
            // Names below it can be listed, those of what is closed included.
            self.one(&path, access & AccessFs::ReadDir)?;
            // What cannot be listed, or is gone, cannot be used by the command either.
            if let Ok(entries) = std::fs::read_dir(&path) {
                levels.extend(entries.flatten().map(|entry| entry.path()));
            }
        }
        Ok(())
    }

    fn one(&mut self, path: &Path, access: BitFlags<AccessFs>) -> Result<(), Error> {
        let Some((fd, kind)) = handle(path)? else {
            return Ok(());
        };
        let access = match kind {
            FileType::Directory => access,
            // A rule would be for the link itself, which is no way to anything.
            FileType::Symlink => return Ok(()),
            _ => access & AccessFs::from_file(WANTED),
        };
        if access.is_empty() {
            return Ok(());
        }
        self.count += 1;
        if self.count > RULES {
            let problem = format!("it has more than {RULES} entries beside protected names");
            return Err(Error::Path {
                path: path.into(),
                problem,
            });
        }
        (&mut self.made)
            .add_rule(PathBeneath::new(fd, access))
            .map_err(|error| Error::apply(format!("opening `{}`", path.display()), error))?;
        Ok(())
    }

    fn enforce(self) -> Result<(), Error> {
        let status = self
            .made
            .restrict_self()
            .map_err(|error| unsupported(&error))?;
        if status.ruleset == RulesetStatus::NotEnforced || !status.no_new_privs {
            return Err(Error::Unsupported {
                missing: "Landlock is there but was not enforced".into(),
            });
        }
        Ok(())
    }
}

/// Returns a handle on what a path is, without opening it; none when it is gone or out of reach.
fn handle(path: &Path) -> Result<Option<(OwnedFd, FileType)>, Error> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty())
        .and_then(|fd| rustix::fs::fstat(&fd).map(|stat| (fd, stat)));
    match opened {
        Ok((fd, stat)) => Ok(Some((fd, FileType::from_raw_mode(stat.st_mode)))),
        Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR | Errno::NXIO | Errno::NODEV) => Ok(None),
        Err(error) => Err(Error::path(path, &error.into())),
    }
}
