//! Checks of `Host` and `Origin` against DNS rebinding and cross-site requests.
//!
//! DNS rebinding: a foreign name that resolves to this machine arrives as `Host`. Cross-site requests: the browser adds
//! the cookie, but also reports the site that made the request.

use std::net::IpAddr;

use crate::api::ApiOptions;
use crate::security::cookie::NetworkScope;
use crate::security::credentials::AccessCredentials;

#[derive(Debug, Clone, Default)]
pub struct PublicOptions {
    /// Accepted names and addresses in addition to loopback. An unspecified address (`0.0.0.0`, `::`) accepts every
    /// address: only names can be rebound.
    pub hosts: Vec<String>,
    pub credentials: AccessCredentials,
    /// Options of the API for programs; `None` disables it.
    pub api: Option<ApiOptions>,
    /// Serves only the API for programs.
    pub pageless: bool,
}

impl PublicOptions {
    pub(crate) fn allows_host(&self, authority: &str) -> bool {
        let Some(host) = parse_host(authority) else { return false };
        if is_loopback(&host) {
            return true;
        }
        let requested = parse_address(&host);
        self.hosts.iter().map(|allowed| allowed.trim().to_ascii_lowercase()).any(|allowed| {
            allowed == host
                || match (parse_address(&allowed), requested) {
                    (Some(allowed), Some(requested)) => allowed == requested || allowed.is_unspecified(),
                    (None, _) | (_, None) => false,
                }
        })
    }
}

pub(crate) fn network_scope(authority: &str) -> NetworkScope {
    match parse_host(authority) {
        Some(host) if is_loopback(&host) => NetworkScope::Loopback,
        Some(_) | None => NetworkScope::Network,
    }
}

/// Headers by which a browser identifies the page that makes a request; other clients send none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestOrigin<'a> {
    pub(crate) host: &'a str,
    pub(crate) origin: Option<&'a str>,
    pub(crate) fetch_site: Option<&'a str>,
}

impl RequestOrigin<'_> {
    /// Same origin, address bar, or no browser. Another port of the same host is another origin.
    pub(crate) fn is_trusted(self) -> bool {
        let site = match self.fetch_site {
            None => true,
            Some(site) => site == "same-origin" || site == "none",
        };
        let origin = match self.origin {
            None => true,
            // The scheme is ignored: a proxy may terminate TLS.
            Some(origin) => {
                origin.split_once("://").is_some_and(|(_, host)| host.eq_ignore_ascii_case(self.host))
            }
        };
        site && origin
    }
}

/// Parses the host of `host[:port]`: lower case, without brackets and final dot.
fn parse_host(authority: &str) -> Option<String> {
    let host = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            if !(port.is_empty() || port.starts_with(':')) {
                return None;
            }
            host
        }
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    (!host.is_empty()).then_some(host)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.ends_with(".localhost")
        || parse_address(host).is_some_and(|parse_address| parse_address.to_canonical().is_loopback())
}

fn parse_address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_host(hosts: &[&str], authority: &str, want: bool) {
        let options = PublicOptions {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..PublicOptions::default()
        };
        assert_eq!(options.allows_host(authority), want, "{authority:?} with {hosts:?}");
    }

    #[test]
    fn always_accepts_loopback_hosts() {
        for authority in
            ["localhost", "LOCALHOST:8642", "127.0.0.1:8642", "127.8.9.1", "[::1]:8642", "a.localhost."]
        {
            check_host(&[], authority, true);
        }
    }

    #[test]
    fn rejects_rebound_names() {
        for authority in [
            "evil.example:8642",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "192.168.1.5",
            "0.0.0.0:8642",
            "",
            ":8642",
            "[::1",
            "[::1]evil",
            "user@localhost",
        ] {
            check_host(&[], authority, false);
        }
    }

    #[test]
    fn accepts_configured_hosts_and_wildcard_addresses() {
        check_host(&["Hat.Example"], "hat.example:8642", true);
        check_host(&["192.168.1.5"], "192.168.1.5:8642", true);
        check_host(&["192.168.1.5"], "192.168.1.6:8642", false);
        check_host(&["0.0.0.0"], "192.168.1.6:8642", true);
        check_host(&["::"], "[fe80::1]:8642", true);
        check_host(&["0.0.0.0"], "evil.example", false);
    }

    #[track_caller]
    fn check_trusted(origin: Option<&str>, fetch_site: Option<&str>, want: bool) {
        let request = RequestOrigin { host: "127.0.0.1:8642", origin, fetch_site };
        assert_eq!(request.is_trusted(), want, "{request:?}");
    }

    #[test]
    fn trusts_same_origin_only() {
        check_trusted(None, None, true);
        check_trusted(Some("http://127.0.0.1:8642"), Some("same-origin"), true);
        check_trusted(Some("https://127.0.0.1:8642"), None, true);
        check_trusted(None, Some("none"), true);
        check_trusted(Some("http://127.0.0.1:3000"), Some("same-site"), false);
        check_trusted(Some("http://127.0.0.1:3000"), None, false);
        check_trusted(Some("http://evil.example"), Some("cross-site"), false);
        check_trusted(Some("null"), None, false);
        check_trusted(None, Some("cross-site"), false);
        check_trusted(Some("127.0.0.1:8642"), None, false);
    }
}
