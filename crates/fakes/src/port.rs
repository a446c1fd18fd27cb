//! Ports for servers that need a fixed port in advance.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the kernel's ephemeral ports, which a client could get before the server listens.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A free port on loopback, returned once per process.
///
/// # Panics
/// When no port is free.
pub fn free() -> u16 {
    // Tests run in parallel processes, so each starts at a different port.
    let begin = std::process::id().wrapping_mul(37) % u32::from(COUNT);
    let begin = u16::try_from(begin).unwrap_or_default();
    (0..COUNT)
        .map(|_| FIRST + (begin + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .unwrap_or_else(|| panic!("no port is free"))
}
