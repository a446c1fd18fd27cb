//! Host rules: entries of allow and deny lists, and grants.

use std::fmt;
use std::str::FromStr;

use petasos_core::net::check_address;

use super::host_port::{HostName, HostPort, InvalidHostPort, parse_port};

/// Ports that a rule without a port covers. Every other port must be named, because a host that may be read from by HTTP need
/// not be one to log in to or to send mail through.
pub const WEB_PORTS: [u16; 2] = [80, 443];

/// `example.org`, `*.example.org` (subdomains only), `192.0.2.1`, each with an optional `:port`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostRule {
    pattern: Pattern,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Pattern {
    Exact(HostName),
    /// All subdomains of this name.
    Subdomains(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}; write example.org, *.example.org or 127.0.0.1:5432")]
pub struct InvalidRule(InvalidHostPort);

impl HostRule {
    /// The narrowest rule that an approval of this destination means: the host with its web ports, or exactly this port. For an
    /// address that is not public, always this port only.
    pub fn covering(destination: &HostPort) -> Self {
        let is_web = WEB_PORTS.contains(&destination.port);
        let is_public = match &destination.host {
            HostName::Name(_) => true,
            HostName::Address(ip) => check_address(*ip).is_ok(),
        };
        let port = (!is_web || !is_public).then_some(destination.port);
        Self { pattern: Pattern::Exact(destination.host.clone()), port }
    }

    /// Whether the rule, in an allow list, permits the destination.
    pub fn allows(&self, destination: &HostPort) -> bool {
        let port = destination.port;
        self.matches_host(&destination.host)
            && self.port.map_or_else(|| WEB_PORTS.contains(&port), |named| named == port)
    }

    /// Whether the rule, in a deny list, refuses the destination. Without a port it refuses every port.
    pub fn denies(&self, destination: &HostPort) -> bool {
        self.matches_host(&destination.host) && self.port.is_none_or(|port| port == destination.port)
    }

    /// Whether the rule names exactly this host and port. Only such a rule permits an address that is not public.
    pub fn names(&self, destination: &HostPort) -> bool {
        let host = match &self.pattern {
            Pattern::Exact(host) => *host == destination.host,
            Pattern::Subdomains(_) => false,
        };
        host && self.port == Some(destination.port)
    }

    /// The address, if the rule is for one.
    pub fn address(&self) -> Option<std::net::IpAddr> {
        match &self.pattern {
            Pattern::Exact(HostName::Address(ip)) => Some(*ip),
            Pattern::Exact(HostName::Name(_)) | Pattern::Subdomains(_) => None,
        }
    }

    pub fn port(&self) -> Option<u16> {
        self.port
    }

    fn matches_host(&self, host: &HostName) -> bool {
        match (&self.pattern, host) {
            (Pattern::Exact(own), host) => own == host,
            (Pattern::Subdomains(parent), HostName::Name(name)) => {
                name.strip_suffix(parent.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            (Pattern::Subdomains(_), HostName::Address(_)) => false,
        }
    }
}

impl FromStr for HostRule {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let (host, port) = split_port(text.trim()).map_err(InvalidRule)?;
        let Some(parent) = host.strip_prefix("*.") else {
            let pattern = Pattern::Exact(HostName::parse(host).map_err(InvalidRule)?);
            return Ok(Self { pattern, port });
        };
        match HostName::parse(parent).map_err(InvalidRule)? {
            HostName::Name(parent) => Ok(Self { pattern: Pattern::Subdomains(parent), port }),
            HostName::Address(_) => Err(InvalidRule(InvalidHostPort::Host)),
        }
    }
}

fn split_port(text: &str) -> Result<(&str, Option<u16>), InvalidHostPort> {
    let colons = text.matches(':').count();
    let has_port = if text.starts_with('[') { !text.ends_with(']') } else { colons == 1 };
    if !has_port {
        return Ok((text, None));
    }
    let (host, port) = text.rsplit_once(':').ok_or(InvalidHostPort::Port)?;
    Ok((host, Some(parse_port(port)?)))
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            Pattern::Exact(host) => write!(f, "{host}")?,
            Pattern::Subdomains(parent) => write!(f, "*.{parent}")?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(text: &str) -> HostRule {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn to(authority: &str) -> HostPort {
        HostPort::parse(authority).unwrap_or_else(|error| panic!("{authority}: {error}"))
    }

    #[track_caller]
    fn check(text: &str, allowed: &[&str], not_allowed: &[&str]) {
        for authority in allowed {
            assert!(rule(text).allows(&to(authority)), "{text} should allow {authority}");
        }
        for authority in not_allowed {
            assert!(!rule(text).allows(&to(authority)), "{text} should not allow {authority}");
        }
    }

    #[test]
    fn rules_match_hosts_and_ports() {
        check(
            "example.org",
            &["example.org:443", "EXAMPLE.ORG.:80"],
            &["example.org:22", "a.example.org:443", "badexample.org:443", "example.org.evil.com:443"],
        );
        check(
            "*.example.org",
            &["a.example.org:443", "a.b.example.org:80"],
            &["example.org:443", "badexample.org:443", "a.example.org:22", "1.2.3.4:443"],
        );
        check("example.org:22", &["example.org:22"], &["example.org:443"]);
        check("*.example.org:8443", &["a.example.org:8443"], &["a.example.org:443", "example.org:8443"]);
        check(
            "127.0.0.1:5432",
            &["localhost:5432", "[::ffff:127.0.0.1]:5432"],
            &["127.0.0.1:80", "127.0.0.2:5432"],
        );
        check("[::1]:80", &["[::1]:80"], &["[::1]:443", "127.0.0.1:80"]);
        check("2606:4700::1", &["[2606:4700::1]:443"], &["[2606:4700::2]:443"]);
    }

    #[test]
    fn deny_rules_without_a_port_cover_every_port() {
        assert!(rule("example.org").denies(&to("example.org:22")));
        assert!(rule("*.example.org").denies(&to("a.example.org:9")));
        assert!(!rule("example.org:22").denies(&to("example.org:443")));
    }

    #[test]
    fn only_rules_with_host_and_port_name_a_destination() {
        assert!(rule("nas.lan:445").names(&to("nas.lan:445")));
        for text in ["nas.lan", "*.lan:445", "nas.lan:80"] {
            assert!(!rule(text).names(&to("nas.lan:445")), "{text}");
        }
    }

    #[test]
    fn grants_are_as_narrow_as_the_question() {
        for (authority, want) in [
            ("example.org:443", "example.org"),
            ("example.org:80", "example.org"),
            ("example.org:22", "example.org:22"),
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("localhost:5432", "127.0.0.1:5432"),
            ("1.1.1.1:443", "1.1.1.1"),
            ("[2606:4700::1]:443", "[2606:4700::1]"),
            ("[2606:4700::1]:22", "[2606:4700::1]:22"),
        ] {
            let grant = HostRule::covering(&to(authority));
            assert_eq!(grant.to_string(), want);
            assert!(grant.allows(&to(authority)), "{authority}");
        }
    }

    #[test]
    fn invalid_rules_say_how_to_write_one() {
        for text in [
            "",
            "*",
            "*.",
            "*:22",
            "*.*.org",
            "a.*.org",
            "*.1.2.3.4",
            "example.org:",
            "example.org:0",
            "http://a.org",
            "a b",
        ] {
            let error = text.parse::<HostRule>().expect_err(text);
            assert!(error.to_string().contains("write example.org"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn rules_survive_being_written(text in "(\\*\\.)?[a-z0-9.\\[\\]:-]{0,40}") {
            if let Ok(parsed) = text.parse::<HostRule>() {
                prop_assert_eq!(parsed.to_string().parse::<HostRule>(), Ok(parsed));
            }
        }
    }
}
