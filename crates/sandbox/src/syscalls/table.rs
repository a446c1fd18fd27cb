//! System calls that are refused whatever the network policy.

use libc::c_long;
use seccompiler::{BackendError, SeccompCmpOp};

use super::{Rules, all};

/// One more than the newest call this table was checked against (Linux 6.18).
pub(super) const FIRST_UNKNOWN: u32 = 470;
/// Calls since Linux 5.1 have the same number on every architecture.
pub(super) const CLONE3: u32 = 435;

/// Calls that ordinary programs do not need.
const ALWAYS: &[c_long] = &[
    // Other processes: their memory, descriptors and state.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    PIDFD_GETFD,
    PROCESS_MADVISE,
    PROCESS_MRELEASE,
    libc::SYS_perf_event_open,
    // Files without a path.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    // Work that the kernel does in the name of the caller, past the filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    // Keys of the user.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    OPEN_TREE,
    MOVE_MOUNT,
    FSOPEN,
    FSCONFIG,
    FSMOUNT,
    FSPICK,
    MOUNT_SETATTR,
    OPEN_TREE_ATTR,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    QUOTACTL_FD,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_syslog,
    libc::SYS_vhangup,
];

/// Calls that namespaces make harmless.
const WITHOUT_NAMESPACES: &[c_long] = &[
    // Shared memory, semaphores and queues of other programs of the user.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // Landlock does not restrict owner, mode and attributes of a path. Those of an open file can be changed.
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    SETXATTRAT,
    REMOVEXATTRAT,
    FILE_SETATTR,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
];

const OPEN_TREE: c_long = 428;
const MOVE_MOUNT: c_long = 429;
const FSOPEN: c_long = 430;
const FSCONFIG: c_long = 431;
const FSMOUNT: c_long = 432;
const FSPICK: c_long = 433;
const PIDFD_GETFD: c_long = 438;
const PROCESS_MADVISE: c_long = 440;
const MOUNT_SETATTR: c_long = 442;
const QUOTACTL_FD: c_long = 443;
const PROCESS_MRELEASE: c_long = 448;
const FCHMODAT2: c_long = 452;
const SETXATTRAT: c_long = 463;
const REMOVEXATTRAT: c_long = 466;
const OPEN_TREE_ATTR: c_long = 467;
const FILE_SETATTR: c_long = 469;

const NAMESPACES: [i32; 8] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
    0x80, // CLONE_NEWTIME
];
/// Input for the terminal of another program, and its paste buffer.
const TERMINAL_INPUT: [u64; 2] = [0x5412, 0x541c];

pub(super) fn rules(namespaces: bool) -> Result<Rules, BackendError> {
    let more = if namespaces { &[] } else { WITHOUT_NAMESPACES };
    let mut rules: Rules = ALWAYS.iter().chain(more).map(|call| (*call, vec![])).collect();
    let flags = NAMESPACES.map(|flag| u64::from(flag.unsigned_abs()));
    let namespaces = |flag: &u64| all(&[(0, SeccompCmpOp::MaskedEq(*flag), *flag)]);
    rules.insert(libc::SYS_unshare, flags.iter().map(namespaces).collect::<Result<_, _>>()?);
    // The lowest byte of clone's flags is a signal.
    let of_clone = flags.iter().filter(|flag| **flag > 0xff);
    rules.insert(libc::SYS_clone, of_clone.map(namespaces).collect::<Result<_, _>>()?);
    let input = TERMINAL_INPUT.map(|request| all(&[(1, SeccompCmpOp::Eq, request)]));
    rules.insert(libc::SYS_ioctl, input.into_iter().collect::<Result<_, _>>()?);
    // A limit on processor time would end another process.
    rules.insert(libc::SYS_prlimit64, vec![all(&[(0, SeccompCmpOp::Ne, 0)])?]);
    Ok(rules)
}
