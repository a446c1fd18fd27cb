//! Gateways as a connector sees them, by the public contract, and the endpoint that wakes one.

mod fleet;
mod peer;
mod wake;

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

pub use fleet::{Fleet, ReceivedText};
pub use peer::{Acks, Peer, Received};
pub use wake::{WakeCall, WakeServer};

/// The bearer token of a gateway. `exp` is in Unix seconds.
pub fn token(gateway: &str, secret: &str, exp: u64) -> String {
    let signed = format!("{gateway}:{exp}");
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature: String =
        hmac::sign(&key, signed.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    URL_SAFE_NO_PAD.encode(format!("{signed}:{signature}"))
}

/// A token that is valid for five minutes.
pub fn fresh_token(gateway: &str, secret: &str) -> String {
    token(gateway, secret, now() + 300)
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
