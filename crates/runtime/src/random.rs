//! Randomness of the kernel.

/// A number from 0 to 1000, for jitter.
pub fn roll() -> u64 {
    u64::from(u16::from_le_bytes(bytes())) % 1001
}

/// Unpredictable bytes.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    #[cfg(feature = "simulation")]
    if let Some(simulation) = crate::simulation::current() {
        simulation.fill(&mut bytes);
        return bytes;
    }
    if getrandom::fill(&mut bytes).is_err() {
        // The operating system has no randomness to give: going on would make guessable secrets.
        std::process::abort();
    }
    bytes
}

/// A secret for a link or a cookie: 32 random bytes in hex.
pub fn secret() -> String {
    bytes::<32>().iter().map(|byte| format!("{byte:02x}")).collect()
}
