//! The cookie that a redeemed link leaves in the browser.

/// Its name.
pub(crate) const NAME: &str = "petasos";

const MAX_AGE_SECONDS: u32 = 30 * 24 * 60 * 60;

/// Whether the browser may send the cookie over plain HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// This machine only: nothing to listen in on.
    Loopback,
    Network,
}

/// Every value that a `Cookie` header holds under our name. A browser may hold several: cookies of one
/// host are shared by all its ports.
pub(crate) fn values(header: &str) -> impl Iterator<Item = &str> {
    header.split(';').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let value = value.trim();
        (name.trim() == NAME && !value.is_empty()).then_some(value)
    })
}

pub(crate) fn set(value: &str, wire: Wire) -> String {
    cookie(value, MAX_AGE_SECONDS, wire)
}

pub(crate) fn clear(wire: Wire) -> String {
    cookie("", 0, wire)
}

fn cookie(value: &str, max_age: u32, wire: Wire) -> String {
    let secure = match wire {
        Wire::Loopback => "",
        Wire::Network => "; Secure",
    };
    format!("{NAME}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, want: &[&str]) {
        assert_eq!(values(header).collect::<Vec<_>>(), want, "{header:?}");
    }

    #[test]
    fn only_our_own_cookie_is_read() {
        check("petasos=abc", &["abc"]);
        check("a=1; petasos=abc; b=2", &["abc"]);
        check(" petasos = abc ;petasos=def", &["abc", "def"]);
        check("xpetasos=abc; petasosx=1", &[]);
        check("petasos=; petasos", &[]);
        check("", &[]);
        check("petasos=a=b", &["a=b"]);
    }

    #[test]
    fn the_cookie_is_secure_off_this_machine_only() {
        assert_eq!(set("v", Wire::Loopback), "petasos=v; Path=/; Max-Age=2592000; HttpOnly; SameSite=Strict");
        assert!(set("v", Wire::Network).ends_with("; Secure"));
        assert!(clear(Wire::Loopback).contains("Max-Age=0"));
    }
}
