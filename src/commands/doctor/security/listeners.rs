//! Addresses that the gateway listens on, and servers that it talks to without TLS.

use petasos_config::keys::{connector, discord, model, relay, slack, telegram, web, webhook};
use petasos_config::{Key, Settings};
use petasos_platforms::listener::is_loopback;
use serde_json::Value;

use super::{Check, Weakness};

const OPEN: &str = "Others on the network can connect, and plain HTTP shows them messages and keys.";
const PLAIN: &str = "Everyone on the way to the server can read the key and the messages, and change them.";

pub(super) fn weaknesses(settings: &Settings) -> Vec<Weakness> {
    open_listeners(settings).into_iter().chain(plain_servers(settings)).collect()
}

fn open_listeners(settings: &Settings) -> Vec<Weakness> {
    let open = |key: &Key<String>| {
        let address = settings.get(key);
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        (!is_loopback(&address) && !is_loopback(host.trim_matches(['[', ']']))).then(|| {
            let fix = format!("set {key} to 127.0.0.1 and put an HTTPS proxy in front of it");
            Weakness::moderate(Check::Listeners, format!("{key} is {address}"), OPEN, fix)
        })
    };
    let hosts = [&web::HOST, &webhook::HOST, &telegram::WEBHOOK_HOST, &connector::LISTEN];
    hosts.into_iter().filter_map(open).collect()
}

fn plain_servers(settings: &Settings) -> Vec<Weakness> {
    let required = [&telegram::BASE_URL, &discord::API_BASE, &slack::API_BASE, &webhook::GITHUB_API];
    let optional = [
        &model::BASE_URL,
        &telegram::BASE_FILE_URL,
        &discord::GATEWAY_URL,
        &relay::URL,
        &relay::IDP_TOKEN_URL,
        &connector::PUBLIC_URL,
    ];
    let mut urls: Vec<(String, String)> =
        required.into_iter().map(|key| (key.to_string(), settings.get(key))).collect();
    urls.extend(optional.into_iter().filter_map(|key| Some((key.to_string(), settings.get(key)?))));
    urls.extend(fallbacks(settings));
    let plain = urls.into_iter().filter(|(_, url)| is_plain(url));
    plain
        .map(|(name, url)| {
            let what = format!("{name} uses plain HTTP: {}", petasos_core::credentials::mask_url(&url));
            Weakness::serious(Check::Listeners, what, PLAIN, format!("use https:// (or wss://) in {name}"))
        })
        .collect()
}

fn fallbacks(settings: &Settings) -> Vec<(String, String)> {
    let entries = match settings.get(&model::FALLBACKS) {
        Some(Value::Array(entries)) => entries,
        Some(single) => vec![single],
        None => vec![],
    };
    let url = |entry: &Value| {
        Some((format!("{}.base_url", model::FALLBACKS), entry["base_url"].as_str()?.to_owned()))
    };
    entries.iter().filter_map(url).collect()
}

/// Whether a URL leads to another machine without TLS.
pub(super) fn is_plain(url: &str) -> bool {
    let url = url.to_ascii_lowercase();
    let Some(rest) = url.strip_prefix("http://").or_else(|| url.strip_prefix("ws://")) else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let address = authority.rsplit('@').next().unwrap_or_default();
    let host = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _port)) => host,
        None => address.split(':').next().unwrap_or_default(),
    };
    !is_loopback(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_plain_http_to_other_machines() {
        for (url, want) in [
            ("http://10.0.0.1/v1", true),
            ("HTTP://Host.example", true),
            ("ws://host:1?x", true),
            ("http://me:p@127.0.0.1@evil/", true),
            ("http://127.0.0.1:9/v1", false),
            ("http://[::1]:9/", false),
            ("http://localhost", false),
            ("https://host", false),
            ("wss://host", false),
        ] {
            assert_eq!(is_plain(url), want, "{url}");
        }
    }
}
