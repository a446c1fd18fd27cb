//! Addresses of a connector: the socket and the HTTP endpoints.

use alloc::format;
use alloc::string::{String, ToString};

const PATH: &str = "/relay";

/// The socket's address. Idempotent.
pub fn dial(url: &str) -> String {
    let url = scheme(url.trim(), &[("https://", "wss://"), ("http://", "ws://")]);
    let url = url.trim_end_matches('/');
    if url.ends_with(PATH) { url.to_string() } else { format!("{url}{PATH}") }
}

/// The HTTP endpoint `name`: `provision`, `enroll`, `policy`, `media`.
pub fn endpoint(url: &str, name: &str) -> String {
    let url = scheme(url.trim(), &[("wss://", "https://"), ("ws://", "http://")]);
    let url = url.trim_end_matches('/');
    format!("{}{PATH}/{name}", url.strip_suffix(PATH).unwrap_or(url))
}

fn scheme(url: &str, changes: &[(&str, &str)]) -> String {
    for (from, to) in changes {
        if let Some(rest) =
            url.get(..from.len()).filter(|it| it.eq_ignore_ascii_case(from)).map(|it| &url[it.len()..])
        {
            return format!("{to}{rest}");
        }
    }
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_at_relay() {
        for (url, want) in [
            ("https://c.example", "wss://c.example/relay"),
            (" https://c.example/ ", "wss://c.example/relay"),
            ("http://127.0.0.1:9", "ws://127.0.0.1:9/relay"),
            ("https://c/api", "wss://c/api/relay"),
            ("wss://c/relay", "wss://c/relay"),
            ("wss://c/relay//", "wss://c/relay"),
            ("unix:/x", "unix:/x/relay"),
        ] {
            assert_eq!(dial(url), want);
            assert_eq!(dial(&dial(url)), want, "twice");
        }
    }

    #[test]
    fn the_endpoints_are_beside_it() {
        for (url, want) in [
            ("wss://c.example/relay", "https://c.example/relay/provision"),
            ("ws://127.0.0.1:9", "http://127.0.0.1:9/relay/provision"),
            ("https://c/api/", "https://c/api/relay/provision"),
            ("https://c/relay/relay", "https://c/relay/relay/provision"),
        ] {
            assert_eq!(endpoint(url, "provision"), want);
        }
    }
}
