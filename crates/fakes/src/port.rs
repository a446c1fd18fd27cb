//! Ports for servers that must know theirs before they listen.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below those the kernel gives to whoever connects: a port from there could be taken before it is listened on.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

static GIVEN: AtomicU16 = AtomicU16::new(0);

/// A port on loopback that nobody listens on, and that this process gives out once.
///
/// # Panics
/// When all are taken.
pub fn free() -> u16 {
    // Tests run beside each other in processes of their own: each begins elsewhere.
    let begin = std::process::id().wrapping_mul(37) % u32::from(COUNT);
    let begin = u16::try_from(begin).unwrap_or_default();
    (0..COUNT)
        .map(|_| FIRST + (begin + GIVEN.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .unwrap_or_else(|| panic!("no port is free"))
}
