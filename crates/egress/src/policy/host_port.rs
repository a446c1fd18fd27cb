//! Destinations of connections, in canonical form.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use petasos_core::net::{ParsedHost, parse_host};

/// Host and port of a connection. Equal destinations are written in one way only: names in lower case without the final
/// dot, addresses as numbers, `localhost` as `127.0.0.1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    pub host: HostName,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostName {
    Address(IpAddr),
    Name(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHostPort {
    #[error("the host is neither a name nor an address")]
    Host,
    #[error("the port is missing, or is not a number from 1 to 65535")]
    Port,
}

impl HostName {
    pub fn parse(host: &str) -> Result<Self, InvalidHostPort> {
        match parse_host(host).map_err(|_malformed| InvalidHostPort::Host)? {
            ParsedHost::Address(ip) => Ok(Self::Address(ip.to_canonical())),
            ParsedHost::LocalName(name) if is_localhost(name) => {
                Ok(Self::Address(IpAddr::V4(Ipv4Addr::LOCALHOST)))
            }
            ParsedHost::LocalName(name) | ParsedHost::Name(name) => Ok(Self::Name(name.to_ascii_lowercase())),
        }
    }
}

impl HostPort {
    pub fn new(host: &str, port: u16) -> Result<Self, InvalidHostPort> {
        if port == 0 {
            return Err(InvalidHostPort::Port);
        }
        Ok(Self { host: HostName::parse(host)?, port })
    }

    /// `host:port`; IPv6 addresses are in brackets.
    pub fn parse(authority: &str) -> Result<Self, InvalidHostPort> {
        let (host, port) = authority.rsplit_once(':').ok_or(InvalidHostPort::Port)?;
        // Without brackets, the last group of an IPv6 address would be the port.
        if host.contains(':') && !host.starts_with('[') {
            return Err(InvalidHostPort::Host);
        }
        Self::new(host, parse_port(port)?)
    }
}

/// Digits only: `u16::from_str` accepts a sign.
pub(crate) fn parse_port(text: &str) -> Result<u16, InvalidHostPort> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = is_number.then(|| text.parse().ok()).flatten().filter(|port| *port != 0);
    port.ok_or(InvalidHostPort::Port)
}

fn is_localhost(name: &str) -> bool {
    name.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case("localhost"))
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Address(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(authority: &str, want: &str) {
        let parsed = HostPort::parse(authority).unwrap_or_else(|error| panic!("{authority}: {error}"));
        assert_eq!(parsed.to_string(), want, "{authority}");
        assert_eq!(HostPort::parse(want), Ok(parsed), "{authority}: canonical form is stable");
    }

    #[test]
    fn spellings_of_one_host_are_equal() {
        for spelling in ["example.org", "EXAMPLE.org", "example.org."] {
            check(&format!("{spelling}:443"), "example.org:443");
        }
        for spelling in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "127.0.0.1.",
            "localhost",
            "LOCALHOST",
            "localhost.",
            "a.localhost",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
        ] {
            check(&format!("{spelling}:80"), "127.0.0.1:80");
        }
        check("[::1]:5432", "[::1]:5432");
        check("0xa9fea9fe:80", "169.254.169.254:80");
        check("intranet:80", "intranet:80");
    }

    #[test]
    fn malformed_destinations_are_refused() {
        for authority in [
            "",
            ":",
            ":80",
            "example.org",
            "example.org:",
            "example.org:0",
            "example.org:65536",
            "example.org:+80",
            "example.org:80 ",
            "example.org:80:80",
            "user@example.org:80",
            "user:password@example.org:80",
            "http://example.org:80",
            "example.org/:80",
            "::1:80",
            "[::1",
            "[::1]",
            "[fe80::1%eth0]:80",
            "[127.0.0.1]:80",
            "256.1.1.1:80",
            "exämple.org:80",
            "example\0.org:80",
            "a b:80",
        ] {
            assert!(HostPort::parse(authority).is_err(), "{authority:?}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_is_idempotent(text in "[ -~\\x00\\u{e9}]{0,80}") {
            if let Ok(parsed) = HostPort::parse(&text) {
                prop_assert_eq!(HostPort::parse(&parsed.to_string()), Ok(parsed));
            }
        }

        #[test]
        fn every_address_has_one_spelling(bits: u32, port in 1_u16..) {
            let want = HostPort { host: HostName::Address(Ipv4Addr::from(bits).into()), port };
            let octets = Ipv4Addr::from(bits).octets();
            let [a, b, c, d] = octets;
            for host in [
                Ipv4Addr::from(bits).to_string(),
                bits.to_string(),
                format!("{bits:#x}"),
                format!("0{bits:o}"),
                format!("{a:#x}.0{b:o}.{c}.{d:#X}").replace("0X", "0x"),
                format!("[::ffff:{}]", Ipv4Addr::from(bits)),
            ] {
                prop_assert_eq!(&HostPort::new(&host, port).unwrap(), &want, "{}", host);
            }
        }
    }
}
