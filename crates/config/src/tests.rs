//! Tests of the whole pipeline, from texts to settings.

use std::time::Duration;

use petasos_core::Platform;
use serde_json::{Value, json};

use crate::choices::Provider;
use crate::keys::{any, discord, model, slack, telegram, web};
use crate::settings::{Origin, Settings};
use crate::value::coerce;
use crate::{Resolved, Severity, explain, explain_all, explain_group, from_texts, reference};

/// The file that the design document guarantees to accept.
const GUARANTEED: &str = r#"
model:
  default: some-model
  provider: custom            # openai | anthropic | openrouter | ollama | custom | demo
  base_url: http://127.0.0.1:9000/v1
  api_key: sk-example
  context_length: 200000
platforms:
  telegram:
    enabled: true
    token: "123:abc"
    extra:
      base_url: http://127.0.0.1:9001/bot     # requests go to <base_url><token>/<method>
gateway:
  api_server:
    max_concurrent_runs: 0                    # 0 = no cap
"#;

fn load(yaml: &str, dotenv: &str, process: &[(&str, &str)]) -> Resolved {
    let process = process.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    from_texts(yaml.as_bytes(), dotenv.as_bytes(), process)
}

#[track_caller]
fn check(yaml: &str, dotenv: &str, process: &[(&str, &str)], path: &str, want: Value, origin: &str) {
    let loaded = load(yaml, dotenv, process);
    assert!(!loaded.has_errors(), "{:?}", loaded.problems);
    assert_eq!(loaded.settings.value(path), Some(want), "{path}");
    assert_eq!(loaded.settings.origin_at(path).to_string(), origin, "{path}");
}

#[track_caller]
fn check_problem(yaml: &str, process: &[(&str, &str)], severity: Severity, want: &str) {
    let loaded = load(yaml, "", process);
    let messages: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
    assert_eq!(messages, [want]);
    assert_eq!(loaded.problems[0].severity, severity);
}

#[test]
fn guaranteed_file_is_accepted_unchanged() {
    let loaded = load(GUARANTEED, "", &[]);
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    let settings = &loaded.settings;
    assert_eq!(settings.get(&model::NAME).as_deref(), Some("some-model"));
    assert_eq!(settings.get(&model::PROVIDER), Provider::Custom);
    assert_eq!(settings.get(&model::CONTEXT_LENGTH), Some(200_000));
    assert_eq!(settings.get(&telegram::TOKEN).unwrap().expose(), "123:abc");
    assert_eq!(settings.get(&telegram::BASE_URL), "http://127.0.0.1:9001/bot");
    assert_eq!(settings.get(&web::API_MAX_RUNS), 0);
    assert_eq!(settings.origin(&model::BASE_URL), Origin::File { line: 5 });
}

mod toy {
    use std::time::Duration;

    use crate::key::{keys, seconds};

    keys! {
        SECONDS: Duration = seconds("agent.toy_seconds", 5.0, "seconds the toy may take").env(&["PETASOS_TOY"]);
    }
}

#[test]
fn setting_needs_a_single_declaration() {
    let mut settings = Settings::default();
    assert_eq!(settings.get(&toy::SECONDS), Duration::from_secs(5));
    settings.set(&toy::SECONDS, json!(7.5), Origin::File { line: 3 });
    assert_eq!(settings.get(&toy::SECONDS), Duration::from_millis(7500));
    assert_eq!(settings.origin(&toy::SECONDS).to_string(), "config.yaml:3");
    let [(name, declared)] = toy::DECLARED else { panic!("one key") };
    assert_eq!((*name, declared.path, declared.env), ("SECONDS", "agent.toy_seconds", &["PETASOS_TOY"][..]));
    assert_eq!(
        coerce(declared.kind, &json!("soon")).unwrap_err(),
        "expected a number that is not negative, found \"soon\""
    );
}

#[test]
fn platform_reads_its_own_key_or_the_general_one() {
    let settings =
        load("discord: {require_mention: false}\nmatrix: {require_mention: true}", "", &[]).settings;
    let on = |name: &str| settings.on(Platform::parse(name).unwrap(), &any::REQUIRE_MENTION);
    assert_eq!((on("discord"), on("matrix"), on("slack"), on("telegram")), (false, true, true, false));
    assert_eq!(settings.get(&discord::REQUIRE_MENTION), on("discord"));
    assert_eq!(settings.get(&slack::REQUIRE_MENTION), on("slack"), "the default of the platform");
}

#[test]
fn environment_beats_dotenv_beats_file_beats_default() {
    let file = "web:\n  port: 1\n";
    let dotenv = "API_SERVER_PORT=2";
    let process = [("API_SERVER_PORT", "3")];
    check(file, dotenv, &process, "web.port", json!(3), "environment API_SERVER_PORT");
    check(file, dotenv, &[], "web.port", json!(2), ".env API_SERVER_PORT");
    check(file, "", &[], "web.port", json!(1), "config.yaml:2");
    check("", "", &[], "web.port", json!(8642), "default");
    check(file, "", &[("API_SERVER_PORT", " ")], "web.port", json!(1), "config.yaml:2");
}

#[test]
fn file_beats_environment_for_file_first_keys() {
    let env = [("HERMES_GATEWAY_BUSY_INPUT_MODE", "queue")];
    let file = "display: {busy_input_mode: steer}";
    check(file, "", &env, "display.busy_input_mode", json!("steer"), "config.yaml:1");
    check(
        "",
        "",
        &env,
        "display.busy_input_mode",
        json!("queue"),
        "environment HERMES_GATEWAY_BUSY_INPUT_MODE",
    );
}

#[test]
fn setting_is_found_under_every_spelling() {
    let token = "platforms.telegram.token";
    check("telegram: {token: 'a'}", "", &[], token, json!("a"), "config.yaml:1");
    check(
        "gateway:\n  platforms:\n    telegram:\n      token: a",
        "",
        &[],
        token,
        json!("a"),
        "config.yaml:4",
    );
    check(
        "telegram: {extra: {require_mention: yes}}",
        "",
        &[],
        "platforms.telegram.require_mention",
        json!(true),
        "config.yaml:1",
    );
    check("gateway: {api_server: {port: 5}}", "", &[], "web.port", json!(5), "config.yaml:1");
    check(
        "platforms: {telegram: {home_channel: -100}}",
        "",
        &[],
        "platforms.telegram.home_channel.chat_id",
        json!("-100"),
        "config.yaml:1",
    );
    check(
        "platforms: {telegram: {reply_to_mode: off}}",
        "",
        &[],
        "platforms.telegram.reply_to_mode",
        json!("off"),
        "config.yaml:1",
    );
    check(
        "",
        "",
        &[("TELEGRAM_ALLOWED_USERS", "1, 2")],
        "platforms.telegram.allowed_users",
        json!(["1", "2"]),
        "environment TELEGRAM_ALLOWED_USERS",
    );
    check(
        "",
        "",
        &[("DISCORD_ALLOWED_USERS", "9")],
        "platforms.discord.allowed_users",
        json!(["9"]),
        "environment DISCORD_ALLOWED_USERS",
    );
}

#[test]
fn provider_is_derived_from_other_settings() {
    let provider = "model.provider";
    let openai = [("OPENAI_API_KEY", "sk-1")];
    check("", "", &[], provider, json!("demo"), "no model is configured");
    check("", "", &openai, provider, json!("openai"), "its API key is set");
    check("", "ANTHROPIC_API_KEY=sk-2", &[], provider, json!("anthropic"), "its API key is set");
    check("", "ANTHROPIC_API_KEY=sk-2", &[], "model.api_key", json!("sk-2"), ".env ANTHROPIC_API_KEY");
    check("model: gpt-9", "", &openai, "model.default", json!("gpt-9"), "config.yaml:1");
    check(
        "model: {default: m, base_url: 'http://h/v1'}",
        "",
        &openai,
        provider,
        json!("custom"),
        "model.base_url is set",
    );
    check(
        "model: {provider: demo}",
        "",
        &openai,
        "model.default",
        json!("demo"),
        "the default model of provider demo",
    );
    check(
        "model: {provider: openai, api_key: mine}",
        "",
        &openai,
        "model.api_key",
        json!("mine"),
        "config.yaml:1",
    );
}

#[test]
fn api_key_of_one_provider_is_not_used_for_another() {
    let loaded =
        load("model: {default: m, base_url: 'https://elsewhere/v1'}", "", &[("OPENAI_API_KEY", "sk-1")]);
    assert!(!loaded.settings.is_set(&model::API_KEY));
}

#[test]
fn incomplete_model_section_is_an_error() {
    check_problem(
        "model: {default: m}",
        &[],
        Severity::Error,
        "config.yaml:1: model.default is set, but no provider is; \
         set model.provider, or model.base_url, or a key such as OPENAI_API_KEY",
    );
    check_problem(
        "model:\n  provider: ollama\n",
        &[],
        Severity::Error,
        "config.yaml:2: model.default is not set, and provider ollama has no default model; set model.default to the name of a model",
    );
}

#[test]
fn unknown_key_suggests_the_nearest_known_one() {
    let unknown = |yaml: &str, want: &str| check_problem(yaml, &[], Severity::Unknown, want);
    unknown("modle:\n  default: x\n", "config.yaml:1: unknown key modle; did you mean model?");
    unknown("web:\n  prot: 1\n", "config.yaml:2: unknown key web.prot; did you mean web.port?");
    unknown(
        "platforms: {telgram: {enabled: true}}",
        "config.yaml:1: unknown key platforms.telgram; did you mean platforms.telegram?",
    );
    unknown(
        "telegram: {requiremention: true}",
        "config.yaml:1: unknown key telegram.requiremention; did you mean telegram.require_mention?",
    );
    unknown("zzz: 1", "config.yaml:1: unknown key zzz; it has no effect, so remove it");
}

#[test]
fn wrong_type_reports_key_expectation_and_finding() {
    let wrong =
        |yaml: &str, env: &[(&str, &str)], want: &str| check_problem(yaml, env, Severity::Error, want);
    wrong(
        "web:\n  port: many\n",
        &[],
        "config.yaml:2: web.port: expected a whole number from 0 to 65535, found \"many\"",
    );
    wrong("web: 5", &[], "config.yaml:1: web: expected a section, found 5");
    wrong(
        "telegram: {enabled: maybe}",
        &[],
        "config.yaml:1: telegram.enabled: expected true or false, found \"maybe\"",
    );
    wrong(
        "",
        &[("API_SERVER_PORT", "x")],
        "environment API_SERVER_PORT: expected a whole number from 0 to 65535, found \"x\"",
    );
}

#[test]
fn forgiving_and_duplicate_keys_give_a_warning() {
    check_problem(
        "session_reset: {at_hour: 99}",
        &[],
        Severity::Warning,
        "config.yaml:1: session_reset.at_hour: expected a whole number from 0 to 23, found 99; 4 is used instead",
    );
    check_problem(
        "telegram: {token: a}\nplatforms:\n  telegram: {token: b}\n",
        &[],
        Severity::Warning,
        "config.yaml:1: telegram.token means the same as platforms.telegram.token on line 3; only platforms.telegram.token is used, so remove the other",
    );
    check_problem(
        "telegram: {token: '${NOPE}'}",
        &[],
        Severity::Warning,
        "config.yaml:1: telegram.token: ${NOPE} is not set; set it in .env or in the environment",
    );
}

#[test]
fn yaml_error_shows_position_and_source_line() {
    let loaded = load("model:\n  default: [a, b\nweb: 1\n", "", &[]);
    assert!(loaded.has_errors());
    let messages = loaded.problems[0].to_string();
    assert!(messages.starts_with("config.yaml:3:"), "{messages}");
    assert!(messages.contains("\n    web: 1"), "{messages}");
}

#[test]
fn variables_inside_values_are_expanded() {
    check("web: {port: '${P}'}", "P=99", &[], "web.port", json!(99), "config.yaml:1");
}

#[test]
fn unimplemented_keys_are_accepted_without_effect() {
    let loaded =
        load("compression: {enabled: true}\ndisplay: {platforms: {telegram: {streaming: true}}}\n", "", &[]);
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    assert!(!explain("compression", &loaded.settings).unwrap().used);
    assert!(explain("no.such.key", &loaded.settings).is_none());
}

#[test]
fn reference_lists_every_key_once() {
    let rows = reference();
    let key = |path: &str| rows.iter().find(|row| row.key == path).unwrap();
    assert!(!key("platforms.<platform>.token").used && key("platforms.discord.token").used);
    assert_eq!(key("platforms.discord.require_mention").default.as_deref(), Some("true"));
    let mut paths: Vec<_> = rows.iter().map(|row| &row.key).collect();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), rows.len());
}

#[test]
fn keys_of_any_platform_are_explained_for_the_named_one() {
    let loaded =
        load("discord: {home_channel: {chat_id: 7, name: Den}}", "", &[("SLACK_HOME_CHANNEL", "C1")]);
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    let key = explain("discord.home_channel", &loaded.settings).unwrap();
    assert_eq!((key.key.as_str(), key.used), ("platforms.discord.home_channel.chat_id", true));
    assert_eq!((key.value, key.environment), (Some(json!("7")), vec!["DISCORD_HOME_CHANNEL".to_owned()]));
    let named = explain_group("SLACK_HOME_CHANNEL", &loaded.settings);
    assert_eq!(named[0].value, Some(json!("C1")));
    assert_eq!(named[0].key, "platforms.slack.home_channel.chat_id");
}

#[test]
fn known_part_of_a_free_form_section_is_checked() {
    let loaded = load("dashboard: {theme: dark, drain_auth: {secret: hush, scope: drain}}", "", &[]);
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    let secret = explain("dashboard.drain_auth.secret", &loaded.settings).unwrap();
    assert_eq!((secret.value, secret.used), (Some(json!("set")), true));
    check_problem(
        "dashboard: {drain_auth: {scop: x}}",
        &[],
        Severity::Unknown,
        "config.yaml:1: unknown key dashboard.drain_auth.scop; did you mean dashboard.drain_auth.scope?",
    );
}

#[test]
fn explanations_show_no_secret() {
    let yaml = "telegram: {token: hush}\nfallback_providers:\n  - {provider: openai, model: m, api_key: hush}\nweb: {port: 7}\n\
                mcp_servers:\n  a: {url: 'https://mcp.example/sse?api_key=hush', headers: {X-Any: hush}}\n  \
                b: {command: x, env: {MY_TOKEN: hush}}\n";
    let loaded = load(yaml, "", &[("OPENAI_API_KEY", "hush")]);
    let key = explain("model.api_key", &loaded.settings).unwrap();
    assert_eq!((key.value, key.origin.as_str()), (Some(json!("set")), "environment OPENAI_API_KEY"));
    let all = serde_json::to_string(&explain_all(&loaded.settings)).unwrap();
    assert!(
        all.contains("web.port")
            && all.contains("fallback_providers")
            && all.contains("mcp.example/sse")
            && !all.contains("hush"),
        "{all}"
    );
}
