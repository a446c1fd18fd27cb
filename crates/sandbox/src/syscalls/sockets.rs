//! Which sockets can be made.

use libc::{AF_INET, AF_INET6, AF_UNIX, IPPROTO_TCP, SOCK_SEQPACKET, SOCK_STREAM};
use seccompiler::SeccompCmpOp::{MaskedEq, Ne};
use seccompiler::{BackendError, SeccompRule};

use super::{Rules, all};
use crate::Network;

/// Bits of a socket's type that are not flags.
const TYPE: u64 = 0xf;

pub(super) fn rules(network: Network, namespaces: bool) -> Result<Rules, BackendError> {
    let sockets = match (network, namespaces) {
        (Network::None, false) => vec![],
        // The network without other machines has only the loopback interface.
        (Network::None, true) | (Network::Full, _) => vec![other_families()?],
        (Network::Port(_), _) => tcp()?,
    };
    let mut rules = Rules::from([(libc::SYS_socketpair, pairs()?), (libc::SYS_socket, sockets)]);
    if let Network::Port(_) = network {
        // Sends with the connection's first packet, which Landlock does not see.
        let fast_open = u64::from(libc::MSG_FASTOPEN.unsigned_abs());
        for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
            rules.insert(call, vec![all(&[(flags, MaskedEq(fast_open), fast_open)])?]);
        }
    }
    Ok(rules)
}

/// Connected pairs only. A datagram socket of a pair could be connected to another socket later.
fn pairs() -> Result<Vec<SeccompRule>, BackendError> {
    let mut rules = types_except(&[SOCK_STREAM, SOCK_SEQPACKET])?;
    rules.push(all(&[(0, Ne, number(AF_UNIX))])?);
    Ok(rules)
}

/// Landlock restricts the ports of TCP only.
fn tcp() -> Result<Vec<SeccompRule>, BackendError> {
    let mut rules = types_except(&[SOCK_STREAM])?;
    rules.push(all(&[(2, Ne, 0), (2, Ne, number(IPPROTO_TCP))])?);
    rules.push(other_families()?);
    Ok(rules)
}

fn other_families() -> Result<SeccompRule, BackendError> {
    all(&[(0, Ne, number(AF_INET)), (0, Ne, number(AF_INET6))])
}

fn types_except(allowed: &[i32]) -> Result<Vec<SeccompRule>, BackendError> {
    let refused = (0..=TYPE).filter(|kind| !allowed.iter().any(|it| number(*it) == *kind));
    refused.map(|kind| all(&[(1, MaskedEq(TYPE), kind)])).collect()
}

fn number(constant: i32) -> u64 {
    u64::from(constant.unsigned_abs())
}
