use axum::http::HeaderValue;

use super::*;

const STRONG: &str = "Zk3vQ9xW1bT7mN5pL8rS2dF4gH6jK0yUcVeAoIiEuYt";
const TOKEN: &str = "a-session-token";
const RESTART: &str = "/api/gateway/restart";

fn keys(drain: Option<&str>, session: Option<&str>) -> Keys {
    Keys::cut(&Doors {
        drain_secret: drain.map(Secret::new),
        session_token: session.map(Secret::new),
        ..Doors::default()
    })
}

fn shown(keys: &Keys, method: Method, path: &str, name: HeaderName, value: &str) -> Shown {
    let headers = HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())]);
    keys.judge(&method, path, &headers)
}

#[test]
fn the_drain_secret_opens_its_route_and_no_other() {
    let keys = keys(Some(STRONG), Some(TOKEN));
    let right = format!("Bearer {STRONG}");
    let drain = Shown::Key(Caller::DrainControl);
    for (method, path, value, want) in [
        (Method::POST, DRAIN, right.as_str(), drain),
        (Method::POST, DRAIN, &format!("bEARER   {STRONG} "), drain),
        (Method::POST, DRAIN, &format!("Bearer {STRONG}x"), Shown::Wrong),
        (Method::POST, DRAIN, &format!("Bearer{STRONG}"), Shown::Wrong),
        (Method::POST, DRAIN, &format!("Basic {STRONG}"), Shown::Wrong),
        (Method::POST, DRAIN, STRONG, Shown::Wrong),
        (Method::POST, DRAIN, "Bearer ", Shown::Wrong),
        (Method::POST, DRAIN, "", Shown::Wrong),
        (Method::POST, DRAIN, &format!("Bearer {TOKEN}"), Shown::Wrong),
        (Method::GET, DRAIN, &right, Shown::Nothing),
        (Method::POST, RESTART, &right, Shown::Nothing),
        (Method::POST, "/api/gateway/drain/skip", &right, Shown::Nothing),
        (Method::POST, "/api/gateway/drain/", &right, Shown::Nothing),
    ] {
        assert_eq!(shown(&keys, method, path, header::AUTHORIZATION, value), want, "{path} {value:?}");
    }
    assert_eq!(shown(&keys, Method::POST, DRAIN, SESSION_TOKEN, TOKEN), Shown::Wrong);
    assert_eq!(shown(&keys, Method::POST, DRAIN, SESSION_TOKEN, STRONG), Shown::Wrong);
    assert_eq!(shown(&keys, Method::POST, DRAIN, header::COOKIE, "petasos=x"), Shown::Wrong);
}

#[test]
fn the_session_token_opens_everything_in_either_header() {
    let keys = keys(None, Some(TOKEN));
    let known = Shown::Key(Caller::Dashboard);
    for path in [DRAIN, RESTART, "/api/sessions"] {
        assert_eq!(shown(&keys, Method::POST, path, SESSION_TOKEN, TOKEN), known);
        assert_eq!(shown(&keys, Method::POST, path, header::AUTHORIZATION, "bearer a-session-token"), known);
        for wrong in ["", " ", "a-session", "a-session-token-", "A-SESSION-TOKEN"] {
            assert_eq!(shown(&keys, Method::POST, path, SESSION_TOKEN, wrong), Shown::Nothing, "{wrong:?}");
        }
    }
}

#[test]
fn weak_secrets_and_empty_tokens_open_nothing() {
    let one_letter = "a".repeat(80);
    for weak in ["", "   ", "short", &STRONG[1..], &one_letter] {
        let keys = keys(Some(weak), Some(""));
        let value = format!("Bearer {weak}");
        assert_eq!(shown(&keys, Method::POST, DRAIN, header::AUTHORIZATION, &value), Shown::Nothing);
        assert_eq!(shown(&keys, Method::POST, DRAIN, SESSION_TOKEN, weak), Shown::Nothing, "{weak:?}");
    }
    let blank = keys(None, Some(" \t"));
    assert_eq!(shown(&blank, Method::GET, RESTART, SESSION_TOKEN, " "), Shown::Nothing);
    assert_eq!(shown(&blank, Method::GET, RESTART, header::AUTHORIZATION, "Bearer "), Shown::Nothing);
}

#[test]
fn a_padded_secret_is_the_secret() {
    let keys = keys(Some(&format!(" {STRONG}\n")), None);
    let value = format!("Bearer {STRONG}");
    let want = Shown::Key(Caller::DrainControl);
    assert_eq!(shown(&keys, Method::POST, DRAIN, header::AUTHORIZATION, &value), want);
}
