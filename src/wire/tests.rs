//! From texts to what is started.

use std::path::Path;

use petasos_agent::Provider;
use petasos_core::access::Strangers;

use super::*;
use crate::config::from_texts;

fn wired(yaml: &str, process: &[(&str, &str)]) -> Result<Wired, Vec<Problem>> {
    let process = process.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    let home = Home::resolve(Some(Path::new("/nowhere")), |_| None).unwrap();
    wire(&home, &mut from_texts(yaml.as_bytes(), b"", process))
}

#[track_caller]
fn refuses(yaml: &str, process: &[(&str, &str)], want: &str) {
    let problems = wired(yaml, process).unwrap_err();
    assert!(problems.iter().any(|problem| problem.to_string().contains(want)), "{problems:?}");
}

#[test]
fn nothing_at_all_gives_the_demo_model_and_a_web_page() {
    let wired = wired("", &[]).unwrap();
    assert_eq!(wired.gateway.model.provider, Provider::Demo);
    assert!(wired.gateway.adapters.is_empty());
    assert_eq!(wired.listen, Some(Listen { host: "127.0.0.1".into(), port: 8642 }));
    assert_eq!(wired.gateway.settings.workspace, Path::new("/nowhere/workspace"));
    assert!(!wired.gateway.access.allow_all && wired.gateway.access.strangers == Strangers::Pair);
}

#[test]
fn a_token_turns_telegram_on_and_an_explicit_no_keeps_it_off() {
    let count = |yaml: &str, env: &[(&str, &str)]| wired(yaml, env).unwrap().gateway.adapters.len();
    let token = [("TELEGRAM_BOT_TOKEN", "123:abc")];
    assert_eq!(count("", &token), 1);
    assert_eq!(count("telegram: {enabled: false}", &token), 0);
    assert_eq!(count("", &[("TELEGRAM_BOT_TOKEN", "your-token-here")]), 0);
    refuses("telegram: {enabled: true}", &[], "there is no token");
    refuses("telegram: {token: '1:a', extra: {base_url: 'nonsense'}}", &[], "base_url");
}

#[test]
fn fallbacks_are_checked_like_the_first_model() {
    let yaml =
        "fallback_providers:\n  - {provider: ollama, model: small}\n  - {provider: openai, model: big}\n";
    let wired = wired(yaml, &[("OPENAI_API_KEY", "sk-1")]).unwrap();
    let names: Vec<_> = wired.gateway.model.fallbacks.iter().map(|it| it.model.as_str()).collect();
    assert_eq!(names, ["small", "big"]);
    assert!(wired.gateway.model.fallbacks[1].api_key.is_some());
    refuses(
        "fallback_model: {provider: nobody, model: x}",
        &[],
        "fallback_providers[0]: provider: expected one of",
    );
}

#[test]
fn a_provider_without_its_key_is_an_error_that_names_the_variable() {
    refuses("model: {provider: anthropic}", &[], "ANTHROPIC_API_KEY");
}

#[test]
fn access_comes_from_lists_and_environment() {
    let env = [("TELEGRAM_ALLOWED_USERS", "1,2"), ("GATEWAY_ALLOWED_USERS", "9")];
    let access = wired("unauthorized_dm_behavior: ignore", &env).unwrap().gateway.access;
    assert_eq!(access.users, ["9"]);
    assert_eq!(access.strangers, Strangers::Ignore);
    assert_eq!(access.platforms.values().next().unwrap().users, ["1", "2"]);
}

#[test]
fn transport_off_means_no_previews() {
    let on = |yaml: &str| wired(yaml, &[]).unwrap().gateway.settings.streaming.enabled;
    assert!(on("streaming: {enabled: true}"));
    assert!(!on("streaming: {enabled: true, transport: off}"));
    assert!(!on(""));
}
