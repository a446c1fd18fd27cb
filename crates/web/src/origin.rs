//! Which names the page answers to, and which pages may ask it to do something.
//!
//! Two attacks end here. DNS rebinding: a stranger's name that resolves to this machine arrives with the
//! stranger's `Host`. Cross-site requests: the browser adds the cookie, but also says where the request was
//! made.

use std::net::IpAddr;

use crate::api::ApiOptions;
use crate::cookie::Wire;
use crate::token::Doors;

#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Names and addresses, besides those of this machine, under which the page may be opened. An
    /// unspecified address (`0.0.0.0`, `::`) stands for every address: only names can be rebound.
    pub hosts: Vec<String>,
    /// What programs may show instead of a cookie.
    pub doors: Doors,
    /// The API for programs; `None`: there is none.
    pub api: Option<ApiOptions>,
    /// There is no page.
    pub pageless: bool,
}

impl Options {
    /// Whether a request for this `Host` may be answered.
    pub(crate) fn answers_to(&self, authority: &str) -> bool {
        let Some(host) = host_of(authority) else { return false };
        if is_loopback(&host) {
            return true;
        }
        let address = address(&host);
        self.hosts.iter().map(|allowed| allowed.trim().to_ascii_lowercase()).any(|allowed| {
            allowed == host
                || match (crate::origin::address(&allowed), address) {
                    (Some(allowed), Some(asked)) => allowed == asked || allowed.is_unspecified(),
                    (None, _) | (_, None) => false,
                }
        })
    }
}

pub(crate) fn wire(authority: &str) -> Wire {
    match host_of(authority) {
        Some(host) if is_loopback(&host) => Wire::Loopback,
        Some(_) | None => Wire::Network,
    }
}

/// What the browser says about the page that makes a request. Absent when no browser made it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Provenance<'a> {
    pub(crate) host: &'a str,
    pub(crate) origin: Option<&'a str>,
    pub(crate) fetch_site: Option<&'a str>,
}

impl Provenance<'_> {
    /// Made by our own page, by the address bar, or by no browser at all. Another port of the same host
    /// is somebody else.
    pub(crate) fn is_ours(self) -> bool {
        let site = match self.fetch_site {
            None => true,
            Some(site) => site == "same-origin" || site == "none",
        };
        let origin = match self.origin {
            None => true,
            // The scheme is left out: a proxy may speak HTTPS for us.
            Some(origin) => {
                origin.split_once("://").is_some_and(|(_, host)| host.eq_ignore_ascii_case(self.host))
            }
        };
        site && origin
    }
}

/// The host of `host[:port]`, lower case, without brackets and final dot.
fn host_of(authority: &str) -> Option<String> {
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
        || address(host).is_some_and(|address| address.to_canonical().is_loopback())
}

fn address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn host(hosts: &[&str], authority: &str, want: bool) {
        let options =
            Options { hosts: hosts.iter().map(|host| (*host).to_owned()).collect(), ..Options::default() };
        assert_eq!(options.answers_to(authority), want, "{authority:?} with {hosts:?}");
    }

    #[test]
    fn this_machine_is_always_answered() {
        for authority in
            ["localhost", "LOCALHOST:8642", "127.0.0.1:8642", "127.8.9.1", "[::1]:8642", "a.localhost."]
        {
            host(&[], authority, true);
        }
    }

    #[test]
    fn a_name_that_was_rebound_is_not() {
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
            host(&[], authority, false);
        }
    }

    #[test]
    fn configured_hosts_are_answered_and_unspecified_means_any_address() {
        host(&["Hat.Example"], "hat.example:8642", true);
        host(&["192.168.1.5"], "192.168.1.5:8642", true);
        host(&["192.168.1.5"], "192.168.1.6:8642", false);
        host(&["0.0.0.0"], "192.168.1.6:8642", true);
        host(&["::"], "[fe80::1]:8642", true);
        host(&["0.0.0.0"], "evil.example", false);
    }

    #[track_caller]
    fn ours(origin: Option<&str>, fetch_site: Option<&str>, want: bool) {
        let asked = Provenance { host: "127.0.0.1:8642", origin, fetch_site };
        assert_eq!(asked.is_ours(), want, "{asked:?}");
    }

    #[test]
    fn only_our_own_page_may_change_something() {
        ours(None, None, true);
        ours(Some("http://127.0.0.1:8642"), Some("same-origin"), true);
        ours(Some("https://127.0.0.1:8642"), None, true);
        ours(None, Some("none"), true);
        ours(Some("http://127.0.0.1:3000"), Some("same-site"), false);
        ours(Some("http://127.0.0.1:3000"), None, false);
        ours(Some("http://evil.example"), Some("cross-site"), false);
        ours(Some("null"), None, false);
        ours(None, Some("cross-site"), false);
        ours(Some("127.0.0.1:8642"), None, false);
    }
}
