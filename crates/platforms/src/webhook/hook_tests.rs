use serde_json::json;

use super::*;

fn terms() -> Terms {
    let platform = |name: &str| Platform::parse(name).expect("known");
    let targets = [platform("telegram"), platform("discord")];
    Terms { secret: None, loopback: true, targets: Targets(targets.into()), github: true }
}

fn hook(written: Value) -> Result<Hook, String> {
    Hook::parse("ci", &written, &terms())
}

fn target(written: Value, payload: Value) -> Option<(String, Option<String>, Delivery)> {
    let hook = hook(written).expect("a route");
    let route = hook.target(&payload, Platform::parse("webhook").expect("known"), "webhook:ci:1")?;
    Some((route.lane().to_string(), route.thread_id, route.delivery))
}

#[test]
fn an_answer_goes_where_the_route_says() {
    let push =
        |lane: &str, thread: Option<&str>| Some((lane.to_owned(), thread.map(str::to_owned), Delivery::Push));
    let log = Some(("webhook:webhook:ci:1".to_owned(), None, Delivery::Pull));
    assert_eq!(target(json!({}), json!({})), log);
    assert_eq!(target(json!({ "deliver": "log" }), json!([])), log);
    assert_eq!(target(json!({ "deliver": "telegram" }), json!({})), push("telegram:", None), "its home");
    let chat = json!({ "deliver": "discord", "deliver_extra": { "chat_id": 42, "thread_id": "{t}" } });
    assert_eq!(target(chat.clone(), json!({ "t": 5 })), push("discord:42", Some("5")));
    assert_eq!(target(chat, json!({})), None, "a thread that is not named is not the chat itself");
    let named = json!({ "deliver": "telegram", "deliver_extra": { "chat_id": "{user.chat}" } });
    assert_eq!(target(named.clone(), json!({ "user": { "chat": 9 } })), push("telegram:9", None));
    for unnamed in [json!({}), json!({ "user": { "chat": null } }), json!({ "user": { "chat": {} } })] {
        assert_eq!(
            target(named.clone(), unnamed),
            None,
            "a chat that is not named is not replaced by another"
        );
    }
}

#[test]
fn a_route_without_a_chat_wants_a_home() {
    let platform = |written: Value| wants_home(&written).map(Platform::as_str);
    assert_eq!(platform(json!({ "deliver": "discord" })), Some("discord"));
    assert_eq!(platform(json!({ "deliver": "discord", "deliver_extra": { "chat_id": 7 } })), None);
    assert_eq!(platform(json!({ "deliver": "log" })), None);
    assert_eq!(platform(json!({})), None);
}

#[test]
fn a_comment_goes_to_what_is_certainly_an_issue() {
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
fn what_makes_no_sense_is_refused_and_says_why() {
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
        let error = hook(written.clone()).expect_err("refused");
        assert!(error.contains(word), "{written}: {error}");
    }
    for name in ["", "a/b", "ä", "a b", &"x".repeat(65)] {
        assert!(Hook::parse(name, &json!({}), &terms()).is_err(), "{name}");
    }
    let without = Terms { github: false, ..terms() };
    let comment = json!({ "deliver": "github_comment", "deliver_extra": { "repo": "a/b", "pr_number": 1 } });
    assert!(Hook::parse("ci", &comment, &without).expect_err("refused").contains("GITHUB_TOKEN"));
}

#[test]
fn a_route_without_a_secret_takes_the_common_one_and_no_secret_is_for_this_machine() {
    let kind = |written: Value, common: Option<&str>, loopback| {
        let terms = Terms { secret: common.map(Secret::new), loopback, ..terms() };
        Hook::parse("ci", &written, &terms).map(|hook| match hook.key {
            Key::Secret(secret) => secret.expose().to_owned(),
            Key::Open => "open".to_owned(),
            Key::Missing => "missing".to_owned(),
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
fn without_a_prompt_the_payload_is_shown() {
    assert_eq!(hook(json!({})).expect("a route").text(&json!({ "a": 1 })), "{\n  \"a\": 1\n}");
    assert_eq!(hook(json!({ "prompt": "n={a}" })).expect("a route").text(&json!({ "a": 1 })), "n=1");
}

#[test]
fn a_secret_that_is_no_text_is_refused_and_not_repeated() {
    let error = hook(json!({ "secret": 12_345_678 })).expect_err("a number");
    assert!(!error.contains("12345678"), "{error}");
}
