//! Name resolution and connections, replaceable in tests.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::policy::AddressOwner;

pub type NetworkFuture<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

pub trait Network: Debug + Send + Sync + 'static {
    fn resolve<'a>(&'a self, name: &'a str) -> NetworkFuture<'a, Vec<IpAddr>>;

    fn connect(&self, at: SocketAddr) -> NetworkFuture<'_, TcpStream>;

    fn owner(&self, ip: IpAddr) -> AddressOwner;
}

/// Threads that resolve names. Resolvers block, and a slow one must not take all threads of the runtime.
const MAX_LOOKUPS: usize = 16;

/// The network of this machine, with its resolver.
#[derive(Debug)]
pub struct SystemNetwork {
    lookups: Arc<Semaphore>,
}

impl Default for SystemNetwork {
    fn default() -> Self {
        Self { lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }
}

impl Network for SystemNetwork {
    fn resolve<'a>(&'a self, name: &'a str) -> NetworkFuture<'a, Vec<IpAddr>> {
        Box::pin(async move {
            let slot = self.lookups.clone().acquire_owned().await.map_err(io::Error::other)?;
            let name = name.to_owned();
            // The slot belongs to the thread: the caller may give up earlier.
            let found = petasos_runtime::blocking(move || {
                let _slot = slot;
                (name.as_str(), 0).to_socket_addrs().map(|found| found.map(|at| at.ip()).collect())
            });
            found.await.map_err(io::Error::other)?
        })
    }

    fn connect(&self, at: SocketAddr) -> NetworkFuture<'_, TcpStream> {
        Box::pin(TcpStream::connect(at))
    }

    /// An address is this machine's if a socket can be bound to it.
    fn owner(&self, ip: IpAddr) -> AddressOwner {
        if ip.is_loopback() || ip.is_unspecified() || UdpSocket::bind((ip, 0)).is_ok() {
            return AddressOwner::ThisMachine;
        }
        AddressOwner::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn resolves_names_and_knows_own_addresses() {
        let network = SystemNetwork::default();
        let found = network.resolve("localhost").await.unwrap();
        assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty(), "{found:?}");
        assert!(network.resolve("name.invalid").await.is_err());
        for own in ["127.0.0.1", "127.9.9.9", "0.0.0.0", "::ffff:127.0.0.1"] {
            assert_eq!(network.owner(own.parse().unwrap()), AddressOwner::ThisMachine, "{own}");
        }
        assert_eq!(network.owner("192.0.2.1".parse().unwrap()), AddressOwner::Other);
    }
}
