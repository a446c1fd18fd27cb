//! A value that can be used and never printed: a token, an API key.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;

/// `Debug` hides it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself. Say it only to whom it belongs.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// `text` without any occurrence of this value.
    pub fn redact(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(&self.0, "[redacted]") }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        let secret = Secret::new("123:abc");
        assert_eq!(format!("{secret:?}"), "[redacted]");
        assert_eq!(secret.redact("GET /bot123:abc/getMe"), "GET /bot[redacted]/getMe");
        assert_eq!(Secret::new("").redact("abc"), "abc");
    }
}
