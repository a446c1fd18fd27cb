//! The rules by which a destination is allowed, refused or asked about. No I/O.
//!
//! A destination is judged twice: `judge` before its name is resolved, so that the query itself tells no server anything, and
//! `check_resolved` for every address of the name. The connection must use a checked address, because a second resolution
//! may differ.

pub mod host_port;
pub mod rule;

use std::net::IpAddr;

use petasos_core::net::{BlockedAddress, ParsedHost, check_address, parse_host};

use self::host_port::{HostName, HostPort};
use self::rule::{HostRule, WEB_PORTS};
use crate::refusal::Refusal;

/// Destinations that no rule covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnlistedHosts {
    #[default]
    Ask,
    Deny,
    /// Public hosts are allowed on the web ports.
    Allow,
}

#[derive(Debug, Clone, Default)]
pub struct NetworkPolicy {
    pub unlisted: UnlistedHosts,
    pub allow: Vec<HostRule>,
    /// Overrides everything else, approvals included.
    pub deny: Vec<HostRule>,
    /// Ports of this machine on which the gateway listens.
    pub own_ports: Vec<u16>,
}

/// Addresses that a connection may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressScope {
    Public,
    /// A service of this machine, approved by its port.
    Loopback,
    /// Host and port are in the allow list: an address exactly as written; a name with public and private addresses.
    Listed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Allowed(AddressScope),
    NeedsApproval(AddressScope),
    Refused(Refusal),
}

/// Where an address leads; only the system knows its own addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressOwner {
    ThisMachine,
    Other,
}

impl NetworkPolicy {
    /// Judges a destination before its name is resolved.
    pub fn judge(&self, to: &HostPort) -> Verdict {
        if self.deny.iter().any(|rule| rule.denies(to)) {
            return Verdict::Refused(Refusal::DenyList);
        }
        if self.allow.iter().any(|rule| rule.names(to)) {
            return Verdict::Allowed(AddressScope::Listed);
        }
        match judge_host(&to.host) {
            Ok(()) => self.judge_public(to),
            Err(BlockedAddress::Loopback) => self.judge_loopback(to.port),
            Err(blocked) => Verdict::Refused(Refusal::Blocked(blocked)),
        }
    }

    /// Judges one address of an allowed destination.
    pub fn check_resolved(
        &self,
        to: &HostPort,
        scope: AddressScope,
        ip: IpAddr,
        owner: AddressOwner,
    ) -> Result<(), Refusal> {
        let at = HostPort { host: HostName::Address(ip.to_canonical()), port: to.port };
        if self.deny.iter().any(|rule| rule.denies(&at)) {
            return Err(Refusal::DenyList);
        }
        let is_literal = *to == at;
        if scope == AddressScope::Listed && is_literal {
            return Ok(());
        }
        if owner == AddressOwner::ThisMachine && self.own_ports.contains(&to.port) {
            return Err(Refusal::OwnListener);
        }
        let blocked = match (check_address(ip), owner) {
            // A public address of this machine: its services are as near as those on the loopback interface.
            (Ok(()), AddressOwner::ThisMachine) => BlockedAddress::Loopback,
            (Ok(()), AddressOwner::Other) => return Ok(()),
            (Err(blocked), _) => blocked,
        };
        let permitted = match scope {
            AddressScope::Public => false,
            AddressScope::Loopback => is_literal && blocked == BlockedAddress::Loopback,
            AddressScope::Listed => is_internal_network(blocked),
        };
        if permitted { Ok(()) } else { Err(Refusal::Blocked(blocked)) }
    }

    fn judge_public(&self, to: &HostPort) -> Verdict {
        if self.allow.iter().any(|rule| rule.allows(to)) {
            return Verdict::Allowed(AddressScope::Public);
        }
        match self.unlisted {
            UnlistedHosts::Ask => Verdict::NeedsApproval(AddressScope::Public),
            UnlistedHosts::Allow if WEB_PORTS.contains(&to.port) => Verdict::Allowed(AddressScope::Public),
            UnlistedHosts::Allow | UnlistedHosts::Deny => Verdict::Refused(Refusal::NotListed),
        }
    }

    fn judge_loopback(&self, port: u16) -> Verdict {
        if self.own_ports.contains(&port) {
            return Verdict::Refused(Refusal::OwnListener);
        }
        match self.unlisted {
            UnlistedHosts::Ask => Verdict::NeedsApproval(AddressScope::Loopback),
            UnlistedHosts::Deny | UnlistedHosts::Allow => {
                Verdict::Refused(Refusal::Blocked(BlockedAddress::Loopback))
            }
        }
    }
}

fn judge_host(host: &HostName) -> Result<(), BlockedAddress> {
    match host {
        HostName::Address(ip) => check_address(*ip),
        HostName::Name(name) => match parse_host(name)? {
            ParsedHost::Address(ip) => check_address(ip),
            ParsedHost::LocalName(_) => Err(BlockedAddress::LocalName),
            ParsedHost::Name(_) => Ok(()),
        },
    }
}

/// Whether a name that the owner listed with its port may resolve to such an address.
fn is_internal_network(blocked: BlockedAddress) -> bool {
    match blocked {
        BlockedAddress::Private | BlockedAddress::Shared => true,
        BlockedAddress::Malformed
        | BlockedAddress::LocalName
        | BlockedAddress::Unspecified
        | BlockedAddress::Loopback
        | BlockedAddress::LinkLocal
        | BlockedAddress::Metadata
        | BlockedAddress::Multicast
        | BlockedAddress::Reserved => false,
    }
}

#[cfg(test)]
mod tests;
