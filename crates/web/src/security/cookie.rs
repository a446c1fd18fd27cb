//! The session cookie of a signed-in browser.

/// Name of the cookie. Browsers share the cookies of a host between its ports, so the name contains the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CookieName(String);

impl CookieName {
    pub(crate) fn for_authority(authority: &str) -> Self {
        let port = authority.rsplit_once(':').map(|(_, port)| port);
        match port.filter(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())) {
            Some(port) => Self(format!("petasos_{port}")),
            None => Self("petasos".to_owned()),
        }
    }

    /// All values of this cookie in a `Cookie` header.
    pub(crate) fn values<'a>(&self, header: &'a str) -> impl Iterator<Item = &'a str> {
        header.split(';').filter_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let value = value.trim();
            (name.trim() == self.0 && !value.is_empty()).then_some(value)
        })
    }

    pub(crate) fn set(&self, value: &str, scope: NetworkScope) -> String {
        self.cookie(value, MAX_AGE_SECONDS, scope)
    }

    pub(crate) fn clear(&self, scope: NetworkScope) -> String {
        self.cookie("", 0, scope)
    }

    fn cookie(&self, value: &str, max_age: u32, scope: NetworkScope) -> String {
        let secure = match scope {
            NetworkScope::Loopback => "",
            NetworkScope::Network => "; Secure",
        };
        format!("{}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}", self.0)
    }
}

const MAX_AGE_SECONDS: u32 = 30 * 24 * 60 * 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetworkScope {
    Loopback,
    Network,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, want: &[&str]) {
        let name = CookieName::for_authority("127.0.0.1:8642");
        assert_eq!(name.values(header).collect::<Vec<_>>(), want, "{header:?}");
    }

    #[test]
    fn reads_own_cookie_only() {
        check("petasos_8642=abc", &["abc"]);
        check("a=1; petasos_8642=abc; petasos_8643=2; petasos=3", &["abc"]);
        check(" petasos_8642 = abc ;petasos_8642=def", &["abc", "def"]);
        check("xpetasos_8642=abc; petasos_8642x=1", &[]);
        check("petasos_8642=; petasos_8642", &[]);
        check("", &[]);
        check("petasos_8642=a=b", &["a=b"]);
    }

    #[test]
    fn cookie_name_contains_port() {
        let name = |authority: &str| CookieName::for_authority(authority).0;
        assert_eq!(name("localhost:8642"), "petasos_8642");
        assert_eq!(name("[::1]:9000"), "petasos_9000");
        assert_eq!(name("hat.example"), "petasos");
        assert_eq!(name("[::1]"), "petasos");
    }

    #[test]
    fn cookie_is_secure_except_on_loopback() {
        let name = CookieName::for_authority("localhost:1");
        let set = name.set("v", NetworkScope::Loopback);
        assert_eq!(set, "petasos_1=v; Path=/; Max-Age=2592000; HttpOnly; SameSite=Strict");
        assert!(name.set("v", NetworkScope::Network).ends_with("; Secure"));
        assert!(name.clear(NetworkScope::Loopback).contains("Max-Age=0"));
    }
}
