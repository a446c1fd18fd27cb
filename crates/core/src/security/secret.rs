//! Secrets: values that are never printed.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;

/// `Debug` is redacted, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value, to be sent only to its own service.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Replaces every occurrence of the value in `text`.
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
    fn hides_the_value_in_debug_output_and_text() {
        let secret = Secret::new("123:abc");
        assert_eq!(format!("{secret:?}"), "[redacted]");
        assert_eq!(secret.redact("GET /bot123:abc/getMe"), "GET /bot[redacted]/getMe");
        assert_eq!(Secret::new("").redact("abc"), "abc");
    }
}
