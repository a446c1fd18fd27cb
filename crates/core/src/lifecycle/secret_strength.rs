//! Strength check for the secret of the drain route.
//!
//! A secret must be long and use many characters evenly: the measure is the Shannon entropy of its characters times its
//! length. This detects passwords, words and repetitions, not leaked secrets.

use alloc::collections::BTreeMap;
use core::fmt;

use crate::secret::Secret;

/// The length of 32 random bytes in base64.
pub const MIN_CHARS: usize = 43;
const MIN_DISTINCT: usize = 16;
const MIN_BITS: u64 = 128;

/// Why a secret is too weak. Reveals nothing about its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeakSecret {
    Short { chars: usize, wanted: usize },
    FewCharacters { distinct: usize },
    Predictable { bits: u64 },
}

impl fmt::Display for WeakSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { chars, wanted } => write!(f, "{chars} characters instead of at least {wanted}"),
            Self::FewCharacters { distinct } => {
                write!(f, "{distinct} different characters instead of at least {MIN_DISTINCT}")
            }
            Self::Predictable { bits } => write!(f, "{bits} bits of entropy instead of at least {MIN_BITS}"),
        }
    }
}

impl core::error::Error for WeakSecret {}

/// Returns the first problem.
pub fn check(secret: &Secret, min_chars: usize) -> Result<(), WeakSecret> {
    let mut counts = BTreeMap::<char, u64>::new();
    for char in secret.expose().chars() {
        *counts.entry(char).or_default() += 1;
    }
    let chars = secret.expose().chars().count();
    if chars < min_chars {
        return Err(WeakSecret::Short { chars, wanted: min_chars });
    }
    if counts.len() < MIN_DISTINCT {
        return Err(WeakSecret::FewCharacters { distinct: counts.len() });
    }
    let bits = entropy(counts.values().copied());
    if bits < MIN_BITS {
        return Err(WeakSecret::Predictable { bits });
    }
    Ok(())
}

/// Entropy in bits of a text with these character counts: the sum of `count * log2(length / count)`.
fn entropy(counts: impl Iterator<Item = u64> + Clone) -> u64 {
    let weighed = |count: u64| u128::from(count) * u128::from(log2(count));
    let parts: u128 = counts.clone().map(weighed).sum();
    let bits = weighed(counts.sum()).saturating_sub(parts) >> FRACTION;
    u64::try_from(bits).unwrap_or(u64::MAX)
}

/// Binary digits after the point of a logarithm.
const FRACTION: u32 = 32;

/// `log2(n)` with `FRACTION` binary digits; zero for zero. Floating point has no logarithm without `std`.
fn log2(n: u64) -> u64 {
    let Some(whole) = n.checked_ilog2() else { return 0 };
    const ONE: u128 = 1 << 63;
    // In [1, 2). Squaring doubles the logarithm, which moves its next digit before the point.
    let mut rest = (u128::from(n) << 63) >> whole;
    let mut log = u64::from(whole);
    for _ in 0..FRACTION {
        rest = (rest * rest) >> 63;
        let digit = u64::from(rest >= 2 * ONE);
        rest >>= digit;
        log = 2 * log + digit;
    }
    log
}

#[cfg(test)]
mod tests {
    extern crate std;

    use alloc::string::{String, ToString};

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check_secret(secret: &str, want: Result<(), WeakSecret>) {
        assert_eq!(check(&Secret::new(secret), MIN_CHARS), want, "{secret}");
    }

    #[test]
    fn accepts_random_secrets() {
        check_secret("Zk3vQ9xW1bT7mN5pL8rS2dF4gH6jK0yUcVeAoIiEuYt", Ok(()));
        check_secret("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", Ok(()));
    }

    #[test]
    fn explains_why_a_secret_is_weak() {
        let of_few = "abcdefghijklmno".repeat(4);
        let uneven = String::from("abcdefghijklmnop") + &"a".repeat(40);
        check_secret("", Err(WeakSecret::Short { chars: 0, wanted: 43 }));
        check_secret(
            "Zk3vQ9xW1bT7mN5pL8rS2dF4gH6jK0yUcVeAoIiEuY",
            Err(WeakSecret::Short { chars: 42, wanted: 43 }),
        );
        check_secret(&"a".repeat(43), Err(WeakSecret::FewCharacters { distinct: 1 }));
        check_secret(&of_few, Err(WeakSecret::FewCharacters { distinct: 15 }));
        check_secret(&uneven, Err(WeakSecret::Predictable { bits: 105 }));
    }

    #[test]
    fn counts_characters_not_bytes() {
        check_secret(&"äöüß".repeat(10), Err(WeakSecret::Short { chars: 40, wanted: 43 }));
    }

    #[test]
    fn accepts_exactly_the_minimum() {
        let sixteen_twice = "0123456789abcdef".repeat(2);
        assert_eq!(check(&Secret::new(sixteen_twice.as_str()), 32), Ok(()));
        assert_eq!(check(&Secret::new(&sixteen_twice[1..]), 0), Err(WeakSecret::Predictable { bits: 123 }));
    }

    #[test]
    fn describes_the_problem_without_the_secret() {
        let reason = check(&Secret::new("hunter2"), MIN_CHARS).unwrap_err().to_string();
        assert_eq!(reason, "7 characters instead of at least 43");
    }

    proptest! {
        #[test]
        fn logarithm_matches_the_standard_library(n in 1..u64::MAX) {
            let ours = log2(n) as f64 / f64::from(2).powi(32);
            prop_assert!((ours - (n as f64).log2()).abs() < 1e-8, "{n}: {ours}");
        }
    }
}
