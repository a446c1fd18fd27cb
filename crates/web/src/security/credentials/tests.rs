use axum::http::HeaderValue;

use super::*;

const STRONG: &str = "Zk3vQ9xW1bT7mN5pL8rS2dF4gH6jK0yUcVeAoIiEuYt";
const TOKEN: &str = "a-session-token";
const RESTART: &str = "/api/gateway/restart";

fn keys(drain: Option<&str>, session: Option<&str>) -> AcceptedCredentials {
    AcceptedCredentials::new(&AccessCredentials {
        drain_secret: drain.map(Secret::new),
        session_token: session.map(Secret::new),
        ..AccessCredentials::default()
    })
}

fn presented(
    keys: &AcceptedCredentials,
    method: Method,
    path: &str,
    name: HeaderName,
    value: &str,
) -> CredentialCheck {
    let headers = HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())]);
    keys.check(&method, path, &headers)
}

#[test]
fn drain_secret_authorises_its_route_only() {
    let keys = keys(Some(STRONG), Some(TOKEN));
    let right = format!("Bearer {STRONG}");
    let drain = CredentialCheck::Valid(Caller::DrainControl);
    for (method, path, value, want) in [
        (Method::POST, DRAIN, right.as_str(), drain),
        (Method::POST, DRAIN, &format!("bEARER   {STRONG} "), drain),
        (Method::POST, DRAIN, &format!("Bearer {STRONG}x"), CredentialCheck::Invalid),
        (Method::POST, DRAIN, &format!("Bearer{STRONG}"), CredentialCheck::Invalid),
        (Method::POST, DRAIN, &format!("Basic {STRONG}"), CredentialCheck::Invalid),
        (Method::POST, DRAIN, STRONG, CredentialCheck::Invalid),
        (Method::POST, DRAIN, "Bearer ", CredentialCheck::Invalid),
        (Method::POST, DRAIN, "", CredentialCheck::Invalid),
        (Method::POST, DRAIN, &format!("Bearer {TOKEN}"), CredentialCheck::Invalid),
        (Method::GET, DRAIN, &right, CredentialCheck::Absent),
        (Method::POST, RESTART, &right, CredentialCheck::Absent),
        (Method::POST, "/api/gateway/drain/skip", &right, CredentialCheck::Absent),
        (Method::POST, "/api/gateway/drain/", &right, CredentialCheck::Absent),
    ] {
        assert_eq!(presented(&keys, method, path, header::AUTHORIZATION, value), want, "{path} {value:?}");
    }
    assert_eq!(presented(&keys, Method::POST, DRAIN, SESSION_TOKEN, TOKEN), CredentialCheck::Invalid);
    assert_eq!(presented(&keys, Method::POST, DRAIN, SESSION_TOKEN, STRONG), CredentialCheck::Invalid);
    assert_eq!(presented(&keys, Method::POST, DRAIN, header::COOKIE, "petasos=x"), CredentialCheck::Invalid);
}

#[test]
fn session_token_works_in_both_headers() {
    let keys = keys(None, Some(TOKEN));
    let known = CredentialCheck::Valid(Caller::Dashboard);
    for path in [DRAIN, RESTART, "/api/sessions"] {
        assert_eq!(presented(&keys, Method::POST, path, SESSION_TOKEN, TOKEN), known);
        assert_eq!(
            presented(&keys, Method::POST, path, header::AUTHORIZATION, "bearer a-session-token"),
            known
        );
        for wrong in ["", " ", "a-session", "a-session-token-", "A-SESSION-TOKEN"] {
            assert_eq!(
                presented(&keys, Method::POST, path, SESSION_TOKEN, wrong),
                CredentialCheck::Absent,
                "{wrong:?}"
            );
        }
    }
}

#[test]
fn ignores_weak_secrets_and_empty_tokens() {
    let one_letter = "a".repeat(80);
    for weak in ["", "   ", "short", &STRONG[1..], &one_letter] {
        let keys = keys(Some(weak), Some(""));
        let value = format!("Bearer {weak}");
        assert_eq!(
            presented(&keys, Method::POST, DRAIN, header::AUTHORIZATION, &value),
            CredentialCheck::Absent
        );
        assert_eq!(
            presented(&keys, Method::POST, DRAIN, SESSION_TOKEN, weak),
            CredentialCheck::Absent,
            "{weak:?}"
        );
    }
    let blank = keys(None, Some(" \t"));
    assert_eq!(presented(&blank, Method::GET, RESTART, SESSION_TOKEN, " "), CredentialCheck::Absent);
    assert_eq!(
        presented(&blank, Method::GET, RESTART, header::AUTHORIZATION, "Bearer "),
        CredentialCheck::Absent
    );
}

#[test]
fn trims_secret() {
    let keys = keys(Some(&format!(" {STRONG}\n")), None);
    let value = format!("Bearer {STRONG}");
    let want = CredentialCheck::Valid(Caller::DrainControl);
    assert_eq!(presented(&keys, Method::POST, DRAIN, header::AUTHORIZATION, &value), want);
}
