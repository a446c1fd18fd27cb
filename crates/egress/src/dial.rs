//! Opens the connection to an authorised destination: resolve, check every address, connect to a checked one.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::network::Network;
use crate::policy::host_port::{HostName, HostPort};
use crate::policy::{AddressScope, NetworkPolicy};
use crate::refusal::Refusal;

/// Addresses of a name that are tried.
const MAX_ADDRESSES: usize = 6;

#[derive(Debug, Clone, Copy)]
pub(crate) struct DialTimeouts {
    pub(crate) resolve: Duration,
    /// For one address.
    pub(crate) connect: Duration,
}

/// Refuses a name if any of its addresses is not permitted: such a name is misconfigured or an attack.
pub(crate) async fn dial(
    network: &dyn Network,
    policy: &NetworkPolicy,
    timeouts: DialTimeouts,
    to: &HostPort,
    scope: AddressScope,
) -> Result<TcpStream, Refusal> {
    let addresses = resolve(network, timeouts.resolve, to).await?;
    for ip in &addresses {
        policy.check_resolved(to, scope, *ip, network.owner(*ip))?;
    }
    let mut failure = Refusal::UnknownName;
    for ip in addresses.into_iter().take(MAX_ADDRESSES) {
        match timeout(timeouts.connect, network.connect(SocketAddr::new(ip, to.port))).await {
            Ok(Ok(stream)) => {
                // A slower connection is no reason to fail.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => failure = Refusal::ConnectFailed(error.kind()),
            Err(_elapsed) => failure = Refusal::ConnectTimeout,
        }
    }
    Err(failure)
}

async fn resolve(network: &dyn Network, limit: Duration, to: &HostPort) -> Result<Vec<IpAddr>, Refusal> {
    let name = match &to.host {
        HostName::Address(ip) => return Ok(vec![*ip]),
        HostName::Name(name) => name,
    };
    match timeout(limit, network.resolve(name)).await {
        Ok(Ok(found)) if !found.is_empty() => {
            let mut found: Vec<IpAddr> = found.into_iter().map(|ip| ip.to_canonical()).collect();
            found.dedup();
            Ok(found)
        }
        Ok(Ok(_) | Err(_)) => Err(Refusal::UnknownName),
        Err(_elapsed) => Err(Refusal::ResolverTimeout),
    }
}
