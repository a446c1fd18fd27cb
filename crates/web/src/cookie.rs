//! The cookie that a redeemed link leaves in the browser.

/// Cookies of one host are shared by all its ports, and two gateways may live there: the name says which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name(String);

impl Name {
    /// By the port the browser asked for.
    pub(crate) fn at(authority: &str) -> Self {
        let port = authority.rsplit_once(':').map(|(_, port)| port);
        match port.filter(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())) {
            Some(port) => Self(format!("petasos_{port}")),
            None => Self("petasos".to_owned()),
        }
    }

    /// Every value that a `Cookie` header holds under this name.
    pub(crate) fn values<'a>(&self, header: &'a str) -> impl Iterator<Item = &'a str> {
        header.split(';').filter_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let value = value.trim();
            (name.trim() == self.0 && !value.is_empty()).then_some(value)
        })
    }

    pub(crate) fn set(&self, value: &str, wire: Wire) -> String {
        self.cookie(value, MAX_AGE_SECONDS, wire)
    }

    pub(crate) fn clear(&self, wire: Wire) -> String {
        self.cookie("", 0, wire)
    }

    fn cookie(&self, value: &str, max_age: u32, wire: Wire) -> String {
        let secure = match wire {
            Wire::Loopback => "",
            Wire::Network => "; Secure",
        };
        format!("{}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}", self.0)
    }
}

const MAX_AGE_SECONDS: u32 = 30 * 24 * 60 * 60;

/// Whether the browser may send the cookie over plain HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// This machine only: nothing to listen in on.
    Loopback,
    Network,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, want: &[&str]) {
        let name = Name::at("127.0.0.1:8642");
        assert_eq!(name.values(header).collect::<Vec<_>>(), want, "{header:?}");
    }

    #[test]
    fn only_our_own_cookie_is_read() {
        check("petasos_8642=abc", &["abc"]);
        check("a=1; petasos_8642=abc; petasos_8643=2; petasos=3", &["abc"]);
        check(" petasos_8642 = abc ;petasos_8642=def", &["abc", "def"]);
        check("xpetasos_8642=abc; petasos_8642x=1", &[]);
        check("petasos_8642=; petasos_8642", &[]);
        check("", &[]);
        check("petasos_8642=a=b", &["a=b"]);
    }

    #[test]
    fn gateways_on_two_ports_have_two_cookies() {
        let name = |authority: &str| Name::at(authority).0;
        assert_eq!(name("localhost:8642"), "petasos_8642");
        assert_eq!(name("[::1]:9000"), "petasos_9000");
        assert_eq!(name("hat.example"), "petasos");
        assert_eq!(name("[::1]"), "petasos");
    }

    #[test]
    fn the_cookie_is_secure_off_this_machine_only() {
        let name = Name::at("localhost:1");
        let set = name.set("v", Wire::Loopback);
        assert_eq!(set, "petasos_1=v; Path=/; Max-Age=2592000; HttpOnly; SameSite=Strict");
        assert!(name.set("v", Wire::Network).ends_with("; Secure"));
        assert!(name.clear(Wire::Loopback).contains("Max-Age=0"));
    }
}
