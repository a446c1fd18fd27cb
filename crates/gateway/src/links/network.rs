//! Detects network changes and suspends, and reconnects every link once.
//!
//! After such a change connections may be dead without an error. Owns the addresses and clocks seen last. The outbound
//! address comes from the kernel's routing table; no packet is sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use petasos_core::Millis;
use tokio::time::Instant;

use crate::clock;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::links::retry_all;
use crate::links::supervisor::LinkHandle;

const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// A larger drift between the clocks means that the machine was suspended or its clock was set.
const MAX_DRIFT: Duration = Duration::from_secs(30);
/// Documentation addresses (RFC 5737, RFC 3849), used only for a route lookup.
const PROBE_TARGETS: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), 9),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutboundAddresses {
    pub v4: Option<IpAddr>,
    pub v6: Option<IpAddr>,
}

/// Reads the kernel's routing table.
pub fn outbound_addresses() -> OutboundAddresses {
    let [v4, v6] = PROBE_TARGETS.map(local_address_for);
    OutboundAddresses { v4, v6 }
}

fn local_address_for(target: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(target).ok()?;
    socket.local_addr().ok().map(|local| local.ip())
}

/// Reconnects every link after a change of the network or a jump of the clock, until shutdown.
pub async fn watch(
    links: Vec<LinkHandle>,
    read_addresses: fn() -> OutboundAddresses,
    shutdown: ShutdownHandle,
) {
    let mut seen = read_addresses();
    let mut clocks = ClockPair::now();
    loop {
        petasos_runtime::select! {
            () = shutdown.stopped() => return,
            () = clock::sleep(CHECK_INTERVAL) => {}
        }
        let now = read_addresses();
        let moved = has_moved(seen, now);
        seen = now;
        if moved {
            tracing::warn!("the network has changed; reconnecting every link");
            retry_all(&links).await;
        } else if clocks.jumped() {
            tracing::warn!("the clock jumped; reconnecting every link");
            retry_all(&links).await;
        }
    }
}

/// Whether there is a new outbound address. A lost address is no reason to reconnect.
fn has_moved(before: OutboundAddresses, now: OutboundAddresses) -> bool {
    let another = |before: Option<IpAddr>, now: Option<IpAddr>| now.is_some() && now != before;
    another(before.v4, now.v4) || another(before.v6, now.v6)
}

/// The wall clock continues during suspend; the monotonic clock does not.
struct ClockPair {
    wall: Millis,
    monotonic: Instant,
}

impl ClockPair {
    fn now() -> Self {
        Self { wall: clock::now(), monotonic: clock::monotonic() }
    }

    fn jumped(&mut self) -> bool {
        let now = Self::now();
        let monotonic = now.monotonic.duration_since(self.monotonic);
        // Also covers a wall clock that was set back.
        let apart = now.wall.since(self.wall).abs_diff(monotonic) + self.wall.since(now.wall);
        *self = now;
        apart > MAX_DRIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(v4: &str, v6: &str) -> OutboundAddresses {
        OutboundAddresses { v4: v4.parse().ok(), v6: v6.parse().ok() }
    }

    #[test]
    fn new_or_returned_address_counts_as_change() {
        for (before, now, want) in [
            (at("10.0.0.5", ""), at("10.0.0.5", ""), false),
            (at("10.0.0.5", ""), at("192.168.7.2", ""), true),
            (at("10.0.0.5", ""), at("", ""), false),
            (at("", ""), at("10.0.0.5", ""), true),
            (at("10.0.0.5", ""), at("10.0.0.5", "fd00::1"), true),
            (at("10.0.0.5", "fd00::1"), at("10.0.0.5", ""), false),
            (at("10.0.0.5", "fd00::1"), at("10.0.0.5", "fd00::2"), true),
            (at("", ""), at("", ""), false),
        ] {
            assert_eq!(has_moved(before, now), want, "{before:?} -> {now:?}");
        }
    }

    #[test]
    fn reads_outbound_address_from_routing_table() {
        // The result depends on the machine, but must be stable.
        assert_eq!(outbound_addresses(), outbound_addresses());
        assert_eq!(local_address_for("127.0.0.1:9".parse().unwrap()), Some(Ipv4Addr::LOCALHOST.into()));
    }

    #[test]
    fn detects_clock_jumps_in_both_directions() {
        let mut clocks = ClockPair::now();
        assert!(!clocks.jumped());
        let minute = Duration::from_secs(60);
        for wall in [clock::now().before(minute), clock::now().after(minute)] {
            clocks.wall = wall;
            assert!(clocks.jumped() && !clocks.jumped());
        }
    }
}
