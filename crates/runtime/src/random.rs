//! Random numbers from the kernel.

/// A number from 0 to 1000, for jitter.
pub fn roll() -> u64 {
    u64::from(u16::from_le_bytes(bytes())) % 1001
}

pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    #[cfg(feature = "simulation")]
    if let Some(simulation) = crate::simulation::current() {
        simulation.fill(&mut bytes);
        return bytes;
    }
    if getrandom::fill(&mut bytes).is_err() {
        // Without randomness, secrets would be guessable.
        std::process::abort();
    }
    bytes
}

/// `N` random bytes in hex, for ids.
pub fn hex<const N: usize>() -> String {
    petasos_core::text::hex(&bytes::<N>())
}

/// For links and cookies.
pub fn secret() -> String {
    hex::<32>()
}
