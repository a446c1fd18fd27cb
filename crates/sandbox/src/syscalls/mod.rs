//! seccomp: refuses system calls by number and arguments.
//!
//! Two filters apply to every call and the stricter answer counts. The first knows numbers only: calls that are
//! newer than this program do not exist for the command, and neither does `clone3`, whose flags a filter cannot
//! read. The second refuses the calls of `table.rs` with EPERM and ends programs of a foreign architecture.

mod sockets;
mod table;

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use crate::{Error, Policy};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Restricts the calling thread.
pub(crate) fn restrict(policy: &Policy) -> Result<(), Error> {
    let namespaces = policy.layers.namespaces;
    let mut rules = table::rules(namespaces)?;
    rules.extend(sockets::rules(policy.network, namespaces)?);
    seccompiler::apply_filter(&unknown_calls())?;
    Ok(seccompiler::apply_filter(&program(rules)?)?)
}

/// Whether the kernel filters system calls; restricts nothing.
pub(crate) fn are_filtered() -> bool {
    let allow = u32::from(SeccompAction::Allow);
    TargetArch::try_from(std::env::consts::ARCH).is_ok()
        && seccompiler::apply_filter(&[instruction(RETURN, 0, 0, allow)]).is_ok()
}

fn program(rules: Rules) -> Result<BpfProgram, Error> {
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?.try_into()?)
}

const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_GREATER_OR_EQUAL: u16 = 0x35;
const RETURN: u16 = 0x06;

const fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// Answers ENOSYS, so that the C library falls back to older calls. This includes the numbers of the x32 ABI.
fn unknown_calls() -> [sock_filter; 5] {
    let missing = u32::from(SeccompAction::Errno(libc::ENOSYS.unsigned_abs()));
    [
        instruction(LOAD, 0, 0, 0),
        instruction(JUMP_IF_GREATER_OR_EQUAL, 1, 0, table::FIRST_UNKNOWN),
        instruction(JUMP_IF_EQUAL, 0, 1, table::CLONE3),
        instruction(RETURN, 0, 0, missing),
        instruction(RETURN, 0, 0, u32::from(SeccompAction::Allow)),
    ]
}

/// Refuses calls whose conditions all hold.
fn all(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, BackendError> {
    let conditions = conditions.iter().map(|(argument, comparison, value)| {
        // The kernel reads these arguments as 32 bits, too.
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, comparison.clone(), *value)
    });
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}
