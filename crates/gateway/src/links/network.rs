//! Notices that the machine has moved: another network, a cable pulled and put back, a long sleep.
//!
//! Then every connection may be dead without knowing it, and every wait may be in vain: each link is tried once. Owns
//! what was seen last. Which address we have towards the world is asked of the kernel's routes; nothing is sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use petasos_core::Millis;
use tokio::time::Instant;

use crate::clock;
use crate::lifecycle::shutdown::Stopper;
use crate::links::retry_all;
use crate::links::supervisor::LinkHandle;

/// How often we look.
const EVERY: Duration = Duration::from_secs(5);
/// Two clocks never drift apart by this much on their own: the machine slept, or its clock was set.
const JUMP: Duration = Duration::from_secs(30);
/// Addresses that belong to nobody (RFC 5737, RFC 3849): only the way towards them matters.
const SOMEWHERE: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), 9),
];

/// The addresses that our packets to the world would carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outward {
    pub v4: Option<IpAddr>,
    pub v6: Option<IpAddr>,
}

/// As the kernel's routes are now.
pub fn outward() -> Outward {
    let [v4, v6] = SOMEWHERE.map(towards);
    Outward { v4, v6 }
}

/// No route, no address.
fn towards(somewhere: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if somewhere.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(somewhere).ok()?;
    socket.local_addr().ok().map(|local| local.ip())
}

/// Tries every link when the machine has moved or its clock was set, until the process stops.
pub async fn watch(links: Vec<LinkHandle>, outward: fn() -> Outward, stopper: Stopper) {
    let (mut seen, mut clocks) = (outward(), Clocks::now());
    loop {
        petasos_runtime::select! {
            () = stopper.stopped() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        let now = outward();
        let moved = has_moved(seen, now);
        seen = now;
        if moved {
            tracing::warn!("the network has changed; every link is tried anew");
            retry_all(&links).await;
        } else if clocks.jumped() {
            tracing::warn!("the clock jumped; every link is tried anew");
            retry_all(&links).await;
        }
    }
}

/// Whether a try is worth it: another way out. A way that is only gone leads nowhere; its return is a change.
fn has_moved(before: Outward, now: Outward) -> bool {
    let another = |before: Option<IpAddr>, now: Option<IpAddr>| now.is_some() && now != before;
    another(before.v4, now.v4) || another(before.v6, now.v6)
}

/// The wall clock goes on while the machine sleeps; the other one does not.
struct Clocks {
    wall: Millis,
    steady: Instant,
}

impl Clocks {
    fn now() -> Self {
        Self { wall: clock::now(), steady: Instant::now() }
    }

    /// Since the last question.
    fn jumped(&mut self) -> bool {
        let now = Self::now();
        let steady = now.steady.duration_since(self.steady);
        // Set back, it is behind by what has passed since, too.
        let apart = now.wall.since(self.wall).abs_diff(steady) + self.wall.since(now.wall);
        *self = now;
        apart > JUMP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(v4: &str, v6: &str) -> Outward {
        Outward { v4: v4.parse().ok(), v6: v6.parse().ok() }
    }

    #[test]
    fn another_address_or_the_return_of_one_is_worth_a_try() {
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
    fn the_kernel_answers_without_a_packet() {
        // Whatever this machine's routes are, asking twice gives the same answer.
        assert_eq!(outward(), outward());
        assert_eq!(towards("127.0.0.1:9".parse().unwrap()), Some(Ipv4Addr::LOCALHOST.into()));
    }

    #[test]
    fn clocks_that_go_on_together_have_not_jumped_and_others_have() {
        let mut clocks = Clocks::now();
        assert!(!clocks.jumped());
        let minute = Duration::from_secs(60);
        for wall in [clock::now().before(minute), clock::now().after(minute)] {
            clocks.wall = wall;
            assert!(clocks.jumped() && !clocks.jumped());
        }
    }
}
