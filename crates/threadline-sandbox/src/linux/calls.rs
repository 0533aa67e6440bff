//! seccomp: which system calls are there at all.
//!
//! Everything is allowed but what reaches around the other rules or out of the machine. Calls are
//! refused with EPERM, so that programs can say so and go on.
//!
//! Rules: seccomp(2), <https://docs.kernel.org/userspace-api/seccomp_filter.html>.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use crate::plan::Plan;
use crate::{Error, Layers};

/// Refused in every mode: opening files by number goes past names and mounts.
const ALWAYS: [i64; 1] = [libc::SYS_open_by_handle_at];

/// Refused in the sandbox, with any arguments.
const SANDBOX: [i64; 47] = [
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Sockets, of every family: the network, and services of this machine that act for others.
    // Pairs of connected sockets stay.
    libc::SYS_socket,
    // Calls that are made without being seen by a filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Parts of the kernel that only few programs need.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_fanotify_init,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    // The machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_acct,
    libc::SYS_quotactl,
];

/// Refused where no mounts hold them: Landlock does not look at modes, owners, times and
/// attributes of files.
const METADATA: [i64; 14] = [
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    // fchmodat2, which the crate has no name for on every architecture.
    452,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    // setxattrat and removexattrat.
    463,
    466,
];

#[cfg(target_arch = "x86_64")]
const SANDBOX_OLD: [i64; 4] = [
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_kexec_file_load,
];
#[cfg(not(target_arch = "x86_64"))]
const SANDBOX_OLD: [i64; 0] = [];

/// Calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const METADATA_OLD: [i64; 6] = [
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const METADATA_OLD: [i64; 0] = [];

/// The other table of calls that some x86-64 kernels have: the same numbers with this bit.
const X32: i64 = 0x4000_0000;
/// Calls whose numbers differ there: ptrace, process_vm_readv and process_vm_writev.
const X32_OWN: [i64; 3] = [521, 539, 540];

/// `ioctl` requests that put words into a terminal, as if its person had typed them.
const TERMINAL: [u64; 2] = [0x5412, 0x541c];
/// `ioctl` requests that change attributes of files: FS_IOC_SETFLAGS and FS_IOC_FSSETXATTR.
const ATTRIBUTES: [u64; 2] = [0x4008_6602, 0x401c_5820];

/// Flags of `clone` that make namespaces: cgroup, uts, ipc, user, pid, net and mounts.
const NAMESPACES: [u64; 7] = [
    0x0200_0000,
    0x0400_0000,
    0x0800_0000,
    0x1000_0000,
    0x2000_0000,
    0x4000_0000,
    0x0002_0000,
];

type Table = BTreeMap<i64, Vec<SeccompRule>>;

pub(super) fn apply(plan: &Plan, layers: Layers) -> Result<(), Error> {
    let sandboxed = plan.temp.is_some();
    let mut table = Table::new();
    refuse(&mut table, &ALWAYS);
    if sandboxed {
        refuse(&mut table, &SANDBOX);
        refuse(&mut table, &SANDBOX_OLD);
        let mut requests = TERMINAL.to_vec();
        if layers == Layers::LandlockOnly {
            refuse(&mut table, &METADATA);
            refuse(&mut table, &METADATA_OLD);
            requests.extend(ATTRIBUTES);
        }
        let requests = requests
            .into_iter()
            .map(|request| condition(1, SeccompCmpOp::Eq, request));
        refuse_when(&mut table, libc::SYS_ioctl, requests)?;
        // Limits of other processes; one's own has the number zero.
        let others = [condition(0, SeccompCmpOp::Ne, 0)];
        refuse_when(&mut table, libc::SYS_prlimit64, others)?;
        let flags = NAMESPACES
            .into_iter()
            .map(|flag| condition(0, SeccompCmpOp::MaskedEq(flag), flag));
        refuse_when(&mut table, libc::SYS_clone, flags)?;
        // Its flags are in memory, where no filter can look. Programs take `clone` instead when
        // it is not there.
        let newer = Table::from([(libc::SYS_clone3, Vec::new())]);
        install(newer, libc::ENOSYS)?;
    }
    install(table, libc::EPERM)
}

/// Tries a filter that changes nothing.
pub(super) fn probe() -> Result<(), Error> {
    let missing = |error: &dyn ToString| Error::Unsupported {
        missing: format!("seccomp is not there ({})", error.to_string()),
    };
    rustix::thread::set_no_new_privs(true).map_err(|error| missing(&error))?;
    install(Table::from([(libc::SYS_acct, Vec::new())]), libc::EPERM)
        .map_err(|error| missing(&error))
}

fn refuse(table: &mut Table, calls: &[i64]) {
    for call in calls {
        table.insert(*call, Vec::new());
        if cfg!(target_arch = "x86_64") {
            table.insert(call | X32, Vec::new());
        }
    }
    if cfg!(target_arch = "x86_64") && calls.contains(&libc::SYS_ptrace) {
        for call in X32_OWN {
            table.insert(call | X32, Vec::new());
        }
    }
}

fn condition(
    argument: u8,
    operation: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)
}

/// Refuses a call when any of the conditions holds.
fn refuse_when(
    table: &mut Table,
    call: i64,
    conditions: impl IntoIterator<Item = Result<SeccompCondition, seccompiler::BackendError>>,
) -> Result<(), Error> {
    let rules: Result<Vec<SeccompRule>, _> = conditions
        .into_iter()
        .map(|condition| SeccompRule::new(vec![condition?]))
        .collect();
    let rules = rules.map_err(|error| Error::apply("making the filter of calls", error))?;
    if cfg!(target_arch = "x86_64") {
        table.insert(call | X32, rules.clone());
    }
    table.insert(call, rules);
    Ok(())
}

fn install(table: Table, errno: i32) -> Result<(), Error> {
    let fail = |error: &dyn ToString| Error::apply("filtering system calls", error.to_string());
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| fail(&error))?;
    let refusal = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(table, SeccompAction::Allow, refusal, arch)
        .map_err(|error| fail(&error))?;
    let program = BpfProgram::try_from(filter).map_err(|error| fail(&error))?;
    seccompiler::apply_filter(&program).map_err(|error| fail(&error))
}
