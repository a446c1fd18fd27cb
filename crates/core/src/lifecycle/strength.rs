//! Whether the secret that opens the drain route is worth its name.
//!
//! It must be long, use many different characters, and use them evenly: the Shannon entropy of its characters times
//! its length. This finds passwords, words and repetitions, not secrets that were published somewhere.

use alloc::collections::BTreeMap;
use core::fmt;

use crate::secret::Secret;

/// As many characters as 32 random bytes have in base64.
pub const MIN_CHARS: usize = 43;
const MIN_DISTINCT: usize = 16;
const MIN_BITS: u64 = 128;

/// Why a secret is too weak. Says nothing about what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weak {
    Short { chars: usize, wanted: usize },
    FewCharacters { distinct: usize },
    Predictable { bits: u64 },
}

impl fmt::Display for Weak {
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

impl core::error::Error for Weak {}

/// The first thing that is wrong with it.
pub fn check(secret: &Secret, min_chars: usize) -> Result<(), Weak> {
    let mut counts = BTreeMap::<char, u64>::new();
    for char in secret.expose().chars() {
        *counts.entry(char).or_default() += 1;
    }
    let chars = secret.expose().chars().count();
    if chars < min_chars {
        return Err(Weak::Short { chars, wanted: min_chars });
    }
    if counts.len() < MIN_DISTINCT {
        return Err(Weak::FewCharacters { distinct: counts.len() });
    }
    let bits = entropy(counts.values().copied());
    if bits < MIN_BITS {
        return Err(Weak::Predictable { bits });
    }
    Ok(())
}

/// Whole bits in a text with these counts of characters: the sum of `count * log2(length / count)`.
fn entropy(counts: impl Iterator<Item = u64> + Clone) -> u64 {
    let weighed = |count: u64| u128::from(count) * u128::from(log2(count));
    let parts: u128 = counts.clone().map(weighed).sum();
    let bits = weighed(counts.sum()).saturating_sub(parts) >> FRACTION;
    u64::try_from(bits).unwrap_or(u64::MAX)
}

/// Binary digits behind the point of a logarithm.
const FRACTION: u32 = 32;

/// `log2(n)` with `FRACTION` binary digits; zero for zero. Floating point has no logarithm without `std`.
fn log2(n: u64) -> u64 {
    let Some(whole) = n.checked_ilog2() else { return 0 };
    const ONE: u128 = 1 << 63;
    // Between one and two. Squaring doubles the logarithm and so brings its next digit before the point.
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
    fn judge(secret: &str, want: Result<(), Weak>) {
        assert_eq!(check(&Secret::new(secret), MIN_CHARS), want, "{secret}");
    }

    #[test]
    fn random_secrets_are_strong() {
        judge("Zk3vQ9xW1bT7mN5pL8rS2dF4gH6jK0yUcVeAoIiEuYt", Ok(()));
        judge("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", Ok(()));
    }

    #[test]
    fn a_weak_secret_is_told_what_it_lacks() {
        let of_few = "abcdefghijklmno".repeat(4);
        let uneven = String::from("abcdefghijklmnop") + &"a".repeat(40);
        judge("", Err(Weak::Short { chars: 0, wanted: 43 }));
        judge("Zk3vQ9xW1bT7mN5pL8rS2dF4gH6jK0yUcVeAoIiEuY", Err(Weak::Short { chars: 42, wanted: 43 }));
        judge(&"a".repeat(43), Err(Weak::FewCharacters { distinct: 1 }));
        judge(&of_few, Err(Weak::FewCharacters { distinct: 15 }));
        judge(&uneven, Err(Weak::Predictable { bits: 105 }));
    }

    #[test]
    fn letters_are_counted_and_not_bytes() {
        judge(&"äöüß".repeat(10), Err(Weak::Short { chars: 40, wanted: 43 }));
    }

    #[test]
    fn exactly_enough_is_enough() {
        let sixteen_twice = "0123456789abcdef".repeat(2);
        assert_eq!(check(&Secret::new(sixteen_twice.as_str()), 32), Ok(()));
        assert_eq!(check(&Secret::new(&sixteen_twice[1..]), 0), Err(Weak::Predictable { bits: 123 }));
    }

    #[test]
    fn the_reason_can_be_logged() {
        let told = check(&Secret::new("hunter2"), MIN_CHARS).unwrap_err().to_string();
        assert_eq!(told, "7 characters instead of at least 43");
    }

    proptest! {
        #[test]
        fn the_logarithm_is_the_one_of_the_standard_library(n in 1..u64::MAX) {
            let ours = log2(n) as f64 / f64::from(2).powi(32);
            prop_assert!((ours - (n as f64).log2()).abs() < 1e-8, "{n}: {ours}");
        }
    }
}
