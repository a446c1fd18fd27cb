use serde_json::json;

use super::*;

fn defaults() -> RouteDefaults {
    let platform = |name: &str| Platform::parse(name).expect("known");
    let targets = [platform("telegram"), platform("discord")];
    RouteDefaults { secret: None, loopback: true, targets: Targets(targets.into()), github: true }
}

fn route(written: Value) -> Result<WebhookRoute, String> {
    WebhookRoute::parse("ci", &written, &defaults())
}

fn target(written: Value, payload: Value) -> Option<(String, Option<String>, Delivery)> {
    let webhook = route(written).expect("a route");
    let route = webhook.target(&payload, Platform::parse("webhook").expect("known"), "webhook:ci:1")?;
    Some((route.lane().to_string(), route.thread_id, route.delivery))
}

#[test]
fn resolves_the_delivery_target() {
    let push =
        |lane: &str, thread: Option<&str>| Some((lane.to_owned(), thread.map(str::to_owned), Delivery::Push));
    let log = Some(("webhook:webhook:ci:1".to_owned(), None, Delivery::Pull));
    assert_eq!(target(json!({}), json!({})), log);
    assert_eq!(target(json!({ "deliver": "log" }), json!([])), log);
    assert_eq!(target(json!({ "deliver": "telegram" }), json!({})), push("telegram:", None), "its home");
    let chat = json!({ "deliver": "discord", "deliver_extra": { "chat_id": 42, "thread_id": "{t}" } });
    assert_eq!(target(chat.clone(), json!({ "t": 5 })), push("discord:42", Some("5")));
    assert_eq!(target(chat, json!({})), None, "a missing thread is not replaced by the chat");
    let named = json!({ "deliver": "telegram", "deliver_extra": { "chat_id": "{user.chat}" } });
    assert_eq!(target(named.clone(), json!({ "user": { "chat": 9 } })), push("telegram:9", None));
    for unnamed in [json!({}), json!({ "user": { "chat": null } }), json!({ "user": { "chat": {} } })] {
        assert_eq!(target(named.clone(), unnamed), None, "a missing chat is not replaced by another");
    }
}

#[test]
fn names_the_home_platform_of_a_route_without_chat() {
    let platform = |written: Value| home_platform(&written).map(Platform::as_str);
    assert_eq!(platform(json!({ "deliver": "discord" })), Some("discord"));
    assert_eq!(platform(json!({ "deliver": "discord", "deliver_extra": { "chat_id": 7 } })), None);
    assert_eq!(platform(json!({ "deliver": "log" })), None);
    assert_eq!(platform(json!({})), None);
}

#[test]
fn accepts_only_valid_issues_for_comments() {
    let comment =
        json!({ "deliver": "github_comment", "deliver_extra": { "repo": "{repo}", "pr_number": "{n}" } });
    let to = |repo: &str, n: Value| target(comment.clone(), json!({ "repo": repo, "n": n })).map(|it| it.0);
    assert_eq!(to("acme/web.site", json!(12)).as_deref(), Some("webhook:github:acme/web.site#12"));
    for (repo, n) in [
        ("acme", json!(1)),
        ("acme/web/x", json!(1)),
        ("../web", json!(1)),
        ("acme/..", json!(1)),
        ("acme/we b", json!(1)),
        ("acme/web?x=", json!(1)),
        ("acme/web", json!(0)),
        ("acme/web", json!(-1)),
        ("acme/web", json!("1/../2")),
        ("acme/web", json!(null)),
    ] {
        assert_eq!(to(repo, n.clone()), None, "{repo} {n}");
    }
}

#[test]
fn refuses_invalid_routes_with_a_reason() {
    for (written, word) in [
        (json!({ "delivr": "log" }), "delivr"),
        (json!({ "deliver": "slack" }), "slack is not a platform"),
        (json!({ "deliver": "pigeon" }), "pigeon"),
        (json!({ "deliver_only": true }), "deliver must say"),
        (json!({ "deliver": "telegram", "deliver_extra": { "chat": 1 } }), "deliver_extra.chat "),
        (json!({ "deliver": "github_comment" }), "deliver_extra.repo"),
        (json!({ "script": "x.py" }), "script"),
        (json!({ "cron_job": "x" }), "cron_job"),
        (json!({ "filters": [{ "field": "a" }] }), "no condition"),
        (json!({ "events": 3 }), "events"),
        (json!("text"), "invalid type"),
    ] {
        let error = route(written.clone()).expect_err("refused");
        assert!(error.contains(word), "{written}: {error}");
    }
    for name in ["", "a/b", "ä", "a b", &"x".repeat(65)] {
        assert!(WebhookRoute::parse(name, &json!({}), &defaults()).is_err(), "{name}");
    }
    let without = RouteDefaults { github: false, ..defaults() };
    let comment = json!({ "deliver": "github_comment", "deliver_extra": { "repo": "a/b", "pr_number": 1 } });
    assert!(WebhookRoute::parse("ci", &comment, &without).expect_err("refused").contains("GITHUB_TOKEN"));
}

#[test]
fn falls_back_to_the_common_secret_and_allows_none_on_loopback() {
    let kind = |written: Value, common: Option<&str>, loopback| {
        let defaults = RouteDefaults { secret: common.map(Secret::new), loopback, ..defaults() };
        WebhookRoute::parse("ci", &written, &defaults).map(|route| match route.auth {
            RouteAuth::Secret(secret) => secret.expose().to_owned(),
            RouteAuth::Open => "open".to_owned(),
            RouteAuth::Missing => "missing".to_owned(),
        })
    };
    assert_eq!(kind(json!({ "secret": "own" }), Some("common"), false).as_deref(), Ok("own"));
    assert_eq!(kind(json!({}), Some("common"), false).as_deref(), Ok("common"));
    assert_eq!(kind(json!({}), None, false).as_deref(), Ok("missing"));
    assert_eq!(kind(json!({ "secret": " " }), None, false).as_deref(), Ok("missing"));
    assert_eq!(kind(json!({ "secret": NO_AUTH }), None, true).as_deref(), Ok("open"));
    assert!(kind(json!({ "secret": NO_AUTH }), None, false).is_err());
    assert!(kind(json!({}), Some(NO_AUTH), false).is_err());
}

#[test]
fn uses_the_payload_as_text_without_a_prompt() {
    assert_eq!(route(json!({})).expect("a route").text(&json!({ "a": 1 })), "{\n  \"a\": 1\n}");
    assert_eq!(route(json!({ "prompt": "n={a}" })).expect("a route").text(&json!({ "a": 1 })), "n=1");
}

#[test]
fn refuses_a_numeric_secret_without_quoting_it() {
    let error = route(json!({ "secret": 12_345_678 })).expect_err("a number");
    assert!(!error.contains("12345678"), "{error}");
}
