//! Finds credentials in settings and URLs by their place, so that they can be hidden or looked for.

use alloc::borrow::Cow;
use alloc::format;

use serde_json::Value;

const MASK: &str = "[redacted]";
/// Words in the names of settings, headers and variables that hold a credential.
const SECRET_WORDS: [&str; 10] = [
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "key",
    "credential",
    "authorization",
    "cookie",
    "webhook_url",
];
/// Sections whose values are all treated as credentials.
const SECRET_SECTIONS: [&str; 2] = ["env", "headers"];

/// Whether a setting, header or variable of this name may hold a credential.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// Calls `visit` for every value that may hold a credential, because of the name of its field or as a URL.
pub fn visit(value: &mut Value, visit_secret: &mut impl FnMut(&mut Value)) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let section = SECRET_SECTIONS.iter().any(|section| name.eq_ignore_ascii_case(section));
                let secret = section || (is_secret_name(name) && !field.is_object());
                if secret && !field.is_null() {
                    visit_secret(field);
                } else {
                    visit(field, visit_secret);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| visit(item, visit_secret)),
        Value::String(text) if url_credentials(text).next().is_some() => visit_secret(value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The parts of a URL that may hold a credential: user name and password, and the values of its query.
pub fn url_credentials(url: &str) -> impl Iterator<Item = &str> {
    let parts = UrlParts::of(url);
    let user = parts.as_ref().and_then(|parts| parts.user).into_iter().flat_map(|user| user.split(':'));
    let query = parts.and_then(|parts| parts.query).unwrap_or_default();
    user.chain(query.split('&').filter_map(|pair| pair.split_once('=')).map(|(_, value)| value))
        .filter(|part| !part.is_empty())
}

/// The parts of a URL that are secret: the password, or a user name without one, query values by their name, and long
/// random parts of the path. Unlike `url_credentials` it leaves out words that occur elsewhere.
pub fn url_secrets(url: &str) -> impl Iterator<Item = &str> {
    let parts = UrlParts::of(url);
    let user = parts.as_ref().and_then(|parts| parts.user);
    let password = user.map(|user| user.split_once(':').map_or(user, |(_, password)| password));
    let path = parts.as_ref().map_or("", |parts| parts.host_and_path).split('/').skip(1);
    let query = parts.and_then(|parts| parts.query).unwrap_or_default();
    let named =
        query.split('&').filter_map(|pair| pair.split_once('=')).filter(|(name, _)| is_secret_name(name));
    let secrets =
        password.into_iter().chain(named.map(|(_, value)| value)).chain(path.filter(|part| is_random(part)));
    secrets.filter(|part| !part.is_empty())
}

/// Long, of letters and digits: a token, not a word or a date.
fn is_random(text: &str) -> bool {
    let has = |class: fn(&char) -> bool| text.chars().any(|c| class(&c));
    text.len() >= 24
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_:.".contains(c))
        && has(char::is_ascii_digit)
        && has(char::is_ascii_alphabetic)
}

/// Replaces user information, query values and fragment of a URL. Other texts are unchanged.
pub fn mask_url(url: &str) -> Cow<'_, str> {
    let Some(parts) = UrlParts::of(url).filter(|parts| parts.user.or(parts.query).is_some()) else {
        return Cow::Borrowed(url);
    };
    let user = parts.user.map(|_| format!("{MASK}@")).unwrap_or_default();
    let mut masked = format!("{}{user}{}", parts.scheme, parts.host_and_path);
    for (at, pair) in parts.query.into_iter().flat_map(|query| query.split('&')).enumerate() {
        masked.push(if at == 0 { '?' } else { '&' });
        masked.push_str(
            &pair.split_once('=').map_or_else(|| pair.into(), |(name, _)| format!("{name}={MASK}")),
        );
    }
    Cow::Owned(masked)
}

struct UrlParts<'a> {
    /// With `://`.
    scheme: &'a str,
    user: Option<&'a str>,
    host_and_path: &'a str,
    query: Option<&'a str>,
}

impl<'a> UrlParts<'a> {
    fn of(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_at(url.find("://")? + 3);
        let rest = rest.split_once('#').map_or(rest, |(before, _fragment)| before);
        let authority = rest.find(['/', '?']).unwrap_or(rest.len());
        let user = rest[..authority].rfind('@');
        let (address, query) = match rest.split_once('?') {
            Some((address, query)) => (address, Some(query)),
            None => (rest, None),
        };
        let host_and_path = user.map_or(address, |at| &address[at + 1..]);
        Some(Self { scheme, user: user.map(|at| &rest[..at]), host_and_path, query })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(url: &str, masked: &str, credentials: &[&str]) {
        assert_eq!(mask_url(url), masked);
        assert_eq!(url_credentials(url).collect::<Vec<_>>(), credentials, "{url}");
    }

    #[test]
    fn masks_user_information_and_query_values() {
        check(
            "https://mcp.example/sse?api_key=s3cret",
            "https://mcp.example/sse?api_key=[redacted]",
            &["s3cret"],
        );
        check("https://h?a=1&flag&b=", "https://h?a=[redacted]&flag&b=[redacted]", &["1"]);
        check("http://me:pa@ss@host:8/p", "http://[redacted]@host:8/p", &["me", "pa@ss"]);
        check("https://token@host/?q=x#frag", "https://[redacted]@host/?q=[redacted]", &["token", "x"]);
        check("https://host/path@2", "https://host/path@2", &[]);
        check("a text: 1@2?x=y", "a text: 1@2?x=y", &[]);
        check("", "", &[]);
    }

    #[test]
    fn finds_only_secret_parts_of_urls() {
        for (url, want) in [
            ("postgres://postgres:pa55@db/x?sslmode=verify-full&password=hush", &["pa55", "hush"][..]),
            ("https://token@host/", &["token"]),
            ("https://mcp.example/s/Zm9vYmFyMTIzNDU2Nzg5MGFi/mcp", &["Zm9vYmFyMTIzNDU2Nzg5MGFi"]),
            ("https://host/a-long-path-with-many-words/2026-01-01", &[]),
            ("Zm9vYmFyMTIzNDU2Nzg5MGFi", &[]),
        ] {
            assert_eq!(url_secrets(url).collect::<Vec<_>>(), want, "{url}");
        }
    }

    #[test]
    fn visits_values_by_name_section_and_url() {
        let mut value = json!({
            "telegram": {"token": "abc", "home": "7"},
            "keys": {"mine": {"key": "abc", "scopes": ["read"]}},
            "mcp": {"one": {"env": {"A": "b"}, "command": "x", "Headers": {"X": "y"}}},
            "proxy": "http://me:pass@host",
            "GITHUB_TOKEN": "abc",
            "unset_key": null,
            "list": ["https://h/?k=v", "plain"],
        });
        let mut visited = vec![];
        visit(&mut value, &mut |secret| visited.push(secret.take()));
        assert_eq!(visited.len(), 7, "{visited:?}");
        let left = json!({
            "telegram": {"token": null, "home": "7"},
            "keys": {"mine": {"key": null, "scopes": ["read"]}},
            "mcp": {"one": {"env": null, "command": "x", "Headers": null}},
            "proxy": null,
            "GITHUB_TOKEN": null,
            "unset_key": null,
            "list": [null, "plain"],
        });
        assert_eq!(value, left);
    }
}
