//! Egress proxy: the only way from a sandboxed program to the network.
//!
//! A sandbox has no network of its own. In its network namespace a bridge ([`bridge`]) listens on the loopback interface and passes
//! connections to the gateway's Unix socket; without a namespace, programs connect to a loopback port of the gateway with the
//! credentials of their sandbox. The proxy ([`EgressServer`]) speaks HTTP CONNECT, plain HTTP and SOCKS5, decides by host and port
//! ([`NetworkPolicy`]), asks a person about the rest ([`Approver`]), and connects only to addresses that it has checked.
//!
//! Logs contain host names, ports and byte counts; never paths, headers or credentials.

mod approver;
mod authorisation;
pub mod bridge;
mod credentials;
mod dial;
pub mod environment;
mod network;
pub mod policy;
mod preamble;
mod refusal;
mod server;
mod traffic;

pub use approver::{Approver, DecisionFuture, HostDecision};
pub use credentials::{CredentialIssuer, InvalidSandboxId, KEY_BYTES, ProxyCredential, SandboxId};
pub use network::{Network, NetworkFuture, SystemNetwork};
pub use policy::host_port::{HostName, HostPort, InvalidHostPort};
pub use policy::rule::{HostRule, InvalidRule, WEB_PORTS};
pub use policy::{AddressOwner, AddressScope, NetworkPolicy, UnlistedHosts, Verdict};
pub use refusal::Refusal;
pub use server::{EgressConfig, EgressLimits, EgressServer};
