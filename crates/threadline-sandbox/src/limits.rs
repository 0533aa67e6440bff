//! Every bound of the sandbox, in one place.

/// Most bytes of a policy in JSON; the kernel takes 128 KiB for one argument.
pub const POLICY_BYTES: usize = 64 * 1024;
/// Most entries of the workspace that are looked at for protected names, those of folders like
/// `target` and `node_modules` not counted. In a larger one no command is run: entries that a
/// command has made must not hide a name from the next one.
pub const SEARCHED_ENTRIES: usize = 500_000;
/// Longest name of a variable that is passed to commands, in bytes.
pub const VARIABLE_BYTES: usize = 255;
/// Most Landlock rules of one command.
pub const RULES: usize = 50_000;
/// Most symbolic links followed while one path is resolved, as in the kernel.
pub const SYMLINKS: usize = 40;
