//! From configuration texts to what is started.

use std::path::Path;

use petasos_agent::{Provider, TerminalConfig};
use petasos_config::from_texts;
use petasos_core::access::{Bots, Strangers};

use petasos_core::capability::ReplyTo;
use petasos_platforms::Adapter;

use super::agent_config::terminal::launcher;
use super::*;

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
fn empty_configuration_gives_demo_model_and_web_page() {
    let wired = wired("", &[]).unwrap();
    assert_eq!(wired.gateway.model.provider, Provider::Demo);
    assert!(wired.gateway.adapters.is_empty());
    assert_eq!(wired.listen, Some(Listen { host: "127.0.0.1".into(), port: 8642 }));
    assert_eq!(wired.gateway.settings.workspace, Path::new("/nowhere/workspace"));
    assert!(!wired.gateway.access.allow_all && wired.gateway.access.strangers == Strangers::Pair);
}

#[test]
fn terminal_is_off_by_default() {
    let terminal = |yaml: &str, env: &[(&str, &str)]| wired(yaml, env).unwrap().gateway.settings.terminal;
    assert_eq!(terminal("terminal: {timeout: 60, backend: local}", &[("TERMINAL_TIMEOUT", "30")]), None);
    let unconfined = terminal("terminal: {enabled: true, sandbox: off}", &[]);
    assert_eq!(unconfined, Some(TerminalConfig::default()));
    let confined = TerminalConfig { launcher: Some(launcher()), ..TerminalConfig::default() };
    assert_eq!(terminal("terminal: {enabled: true}", &[]), Some(confined));
    refuses("terminal: {sandbox: on-request}", &[], "terminal.sandbox");
    let yaml =
        "terminal: {enabled: true, cwd: /srv, env_passthrough: [A_TOKEN]}\ntool_output: {max_bytes: 9000}";
    let set = terminal(yaml, &[("TERMINAL_TIMEOUT", "30")]).unwrap();
    assert_eq!((set.cwd.as_deref(), set.timeout.as_secs()), (Some(Path::new("/srv")), 30));
    assert_eq!((set.passthrough, set.output), (vec!["A_TOKEN".to_owned()], 9000));
    refuses("terminal: {timeout: 601}", &[], "terminal.timeout");
}

#[test]
fn token_enables_telegram_unless_disabled() {
    let count = |yaml: &str, env: &[(&str, &str)]| wired(yaml, env).unwrap().gateway.adapters.len();
    let token = [("TELEGRAM_BOT_TOKEN", "123:abc")];
    assert_eq!(count("", &token), 1);
    assert_eq!(count("telegram: {enabled: false}", &token), 0);
    assert_eq!(count("", &[("TELEGRAM_BOT_TOKEN", "your-token-here")]), 0);
    refuses("telegram: {enabled: true}", &[], "there is no token");
    refuses("telegram: {token: '1:a', extra: {base_url: 'nonsense'}}", &[], "base_url");
}

#[test]
fn telegram_webhook_requires_a_secret() {
    let silence =
        |env: &[(&str, &str)]| wired("", env).unwrap().gateway.adapters[0].capabilities().longest_silence;
    let token = ("TELEGRAM_BOT_TOKEN", "123:abc");
    let url = ("TELEGRAM_WEBHOOK_URL", "https://example.org/tg");
    let secret = ("TELEGRAM_WEBHOOK_SECRET", "s3cret");
    assert_ne!(silence(&[token]), silence(&[token, url, secret]));
    refuses("", &[token, url], "TELEGRAM_WEBHOOK_SECRET");
    refuses("", &[token, url, ("TELEGRAM_WEBHOOK_SECRET", "two words")], "A-Z a-z 0-9");
    refuses("", &[token, secret, ("TELEGRAM_WEBHOOK_URL", "http://example.org")], "https");
}

#[test]
fn tokens_enable_discord_and_slack() {
    let platforms = |yaml: &str, env: &[(&str, &str)]| -> Vec<&'static str> {
        let wired = wired(yaml, env).unwrap();
        let scopes: Vec<_> = wired.gateway.lifetime.bot_locks.iter().map(|sole| sole.scope).collect();
        assert_eq!(scopes.len(), wired.gateway.adapters.len());
        scopes
    };
    let discord = ("DISCORD_BOT_TOKEN", "OTAw.x.secret");
    let bot = ("SLACK_BOT_TOKEN", "xoxb-1-2,xoxb-3-4");
    let app = ("SLACK_APP_TOKEN", "xapp-1-A1-2");
    assert_eq!(platforms("", &[discord]), ["discord-bot-token"]);
    assert_eq!(platforms("", &[bot, app]), ["slack-app-token"]);
    assert_eq!(platforms("", &[discord, bot, app]), ["discord-bot-token", "slack-app-token"]);
    assert!(platforms("discord: {enabled: false}\nslack: {enabled: no}", &[discord, bot, app]).is_empty());
    assert!(platforms("", &[bot]).is_empty());
    assert!(platforms("", &[app, ("SLACK_BOT_TOKEN", "xoxb-your-token")]).is_empty());
    refuses("discord: {enabled: true}", &[], "set DISCORD_BOT_TOKEN in .env");
    refuses("slack: {enabled: true}", &[bot], "set SLACK_APP_TOKEN in .env");
    refuses("slack: {enabled: true}", &[app], "set SLACK_BOT_TOKEN in .env");
    refuses("discord: {token: a.b.c, extra: {api_base: nonsense}}", &[], "api_base");
    refuses("discord: {token: a.b.c, gateway_url: 'http://e.org'}", &[], "gateway_url");
    refuses("slack: {token: xoxb-1, app_token: xapp-1, api_base: nonsense}", &[], "api_base");
}

#[test]
fn lists_unavailable_platform_and_starts_the_others() {
    let yaml = "slack: {enabled: true}\ndiscord: {token: a.b.c, extra: {api_base: nonsense}}\ntelegram: {token: '1:a'}";
    let wired = wired(yaml, &[]).unwrap();
    assert_eq!(wired.gateway.adapters.len(), 1);
    let listed = wired.gateway.unbuilt.iter().map(|it| (it.platform.as_str(), it.reason.as_str()));
    let listed: Vec<_> = listed.collect();
    assert!(
        matches!(listed[..], [("discord", one), ("slack", other)]
        if one.contains("api_base") && other.contains("there is no")),
        "{listed:?}"
    );
    warns(yaml, &[], "api_base");
}

#[track_caller]
fn warns(yaml: &str, env: &[(&str, &str)], want: &str) {
    let process = env.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    let home = Home::resolve(Some(Path::new("/nowhere")), |_| None).unwrap();
    let mut resolved = from_texts(yaml.as_bytes(), b"", process);
    wire(&home, &mut resolved).unwrap();
    let problems: Vec<String> = resolved.problems.iter().map(ToString::to_string).collect();
    assert!(problems.iter().any(|it| it.contains(want)), "{problems:?}");
}

#[test]
fn warns_about_malformed_credentials() {
    let token = ("DISCORD_BOT_TOKEN", "OTAw.x.secret");
    warns("", &[("DISCORD_BOT_TOKEN", "f00ba4")], "does not look like a Discord token");
    warns("", &[token, ("DISCORD_ALLOWED_USERS", "123,alice")], "\"alice\" is not an id");
    warns("", &[("DISCORD_BOT_TOKEN", "your-token")], "Discord stays off");
    warns("", &[("SLACK_BOT_TOKEN", "xoxb-1")], "no app token, so it stays off; set SLACK_APP_TOKEN");
    warns("", &[("SLACK_APP_TOKEN", "xapp-1")], "no bot token, so it stays off; set SLACK_BOT_TOKEN");
    let swapped = [("SLACK_BOT_TOKEN", "xapp-1"), ("SLACK_APP_TOKEN", "xoxb-1")];
    warns("", &swapped, "platforms.slack.app_token does not start with xapp-");
}

#[test]
fn validates_fallback_models() {
    let yaml =
        "fallback_providers:\n  - {provider: ollama, model: small}\n  - {provider: openai, model: big}\n";
    let wired = wired(yaml, &[("OPENAI_API_KEY", "sk-1")]).unwrap();
    let names: Vec<_> = wired.gateway.model.fallbacks.iter().map(|it| it.model.as_str()).collect();
    assert_eq!(names, ["small", "big"]);
    assert!(wired.gateway.model.fallbacks[1].api_key.is_some());
    refuses(
        "fallback_model: {provider: unknown, model: x}",
        &[],
        "fallback_providers[0]: provider: expected one of",
    );
}

#[test]
fn missing_api_key_error_names_the_variable() {
    refuses("model: {provider: anthropic}", &[], "ANTHROPIC_API_KEY");
}

#[test]
fn reads_access_from_lists_and_environment() {
    let env = [("TELEGRAM_ALLOWED_USERS", "1,2"), ("GATEWAY_ALLOWED_USERS", "9")];
    let access = wired("unauthorized_dm_behavior: ignore", &env).unwrap().gateway.access;
    assert_eq!(access.users, ["9"]);
    assert_eq!(access.strangers, Strangers::Ignore);
    assert_eq!(access.platforms.values().next().unwrap().users, ["1", "2"]);
}

#[test]
fn access_settings_work_on_every_platform() {
    for name in ["telegram", "discord", "slack"] {
        let platform = Platform::parse(name).unwrap();
        let upper = name.to_uppercase();
        let users = format!("{upper}_ALLOWED_USERS");
        let bots = format!("{upper}_ALLOW_BOTS");
        let yaml = format!(
            "{name}: {{allow_admin_from: [1], user_allowed_commands: new, unauthorized_dm_behavior: pair}}"
        );
        let gateway = wired(&yaml, &[(&users, "1,2"), (&bots, "mentions")]).unwrap().gateway;
        let access = &gateway.access.platforms[&platform];
        assert_eq!(
            (access.users.as_slice(), access.bots),
            (&["1".to_owned(), "2".to_owned()][..], Bots::Mentions)
        );
        assert_eq!(access.strangers, Some(Strangers::Pair));
        assert_eq!(gateway.settings.tiers[&platform].dm.admins, ["1"]);
        assert_eq!(gateway.access.platforms.len(), 1);
    }
}

#[test]
fn transport_off_disables_previews() {
    let on = |yaml: &str| wired(yaml, &[]).unwrap().gateway.settings.streaming.enabled;
    assert!(on("streaming: {enabled: true}"));
    assert!(!on("streaming: {enabled: true, transport: off}"));
    assert!(!on(""));
}

#[test]
fn platform_settings_reach_the_adapter() {
    let env =
        [("TELEGRAM_BOT_TOKEN", "123:abc"), ("TELEGRAM_REPLY_TO_MODE", "all"), ("TELEGRAM_REACTIONS", "yes")];
    let wired = wired("telegram: {typing_indicator: false}", &env).unwrap();
    let telegram = &wired.gateway.adapters[0];
    assert_eq!(telegram.capabilities().reply_to, ReplyTo::All);
    assert!(!telegram.capabilities().typing && telegram.capabilities().status_reactions);
}

#[test]
fn reads_additional_slack_workspaces_from_file() {
    let folder = tempfile::TempDir::new().unwrap();
    let home = Home::resolve(Some(folder.path()), |_| None).unwrap();
    let spoken = |file: &str| {
        std::fs::write(folder.path().join("slack_tokens.json"), file).unwrap();
        let process = [("SLACK_BOT_TOKEN", "xoxb-1"), ("SLACK_APP_TOKEN", "xapp-1")];
        let process = process.into_iter().map(|(name, value)| (name.into(), value.into()));
        let mut resolved = from_texts(b"", b"", process);
        let wired = wire(&home, &mut resolved).unwrap();
        let problems: Vec<String> = resolved.problems.iter().map(ToString::to_string).collect();
        match wired.gateway.adapters.into_iter().next() {
            Some(Adapter::Slack(slack)) => (slack.workspace_count(), problems),
            other => panic!("{other:?}"),
        }
    };
    let (count, problems) = spoken(r#"{"T1": {"token": "xoxb-1", "team_name": "a"}, "T2": "xoxb-2"}"#);
    assert_eq!((count, problems.len()), (2, 0), "{problems:?}");
    let (count, problems) = spoken(r#"{"T1": 5, "hush": "hush"}"#);
    assert_eq!(count, 1);
    assert!(problems[0].contains("slack_tokens.json") && !problems[0].contains("hush"), "{problems:?}");
}

#[test]
fn require_mention_prefers_platform_over_global_setting() {
    let require = |yaml: &str| {
        let yaml = format!("gateway: {{relay_url: 'https://c.example', relay_platforms: [matrix]}}\n{yaml}");
        let wired = wired(&yaml, &[]).unwrap();
        let relay = wired.gateway.adapters[0].relay().expect("a relay");
        relay.policies()[0].require_address
    };
    assert!(!require(""), "the platform's default");
    for yes in [
        "matrix: {require_mention: true}",
        "platforms: {matrix: {require_mention: true}}",
        "require_mention: true",
        "matrix: {require_mention: true}\nrequire_mention: false",
    ] {
        assert!(require(yes), "{yes}");
    }
    assert!(
        !require("matrix: {require_mention: false}\nrequire_mention: true"),
        "the platform's setting takes precedence"
    );
    let nested = "gateway: {relay_url: 'https://c.example', relay_platforms: [matrix], platforms: {matrix: {require_mention: true}}}";
    let wired = wired(nested, &[]).unwrap();
    assert!(wired.gateway.adapters[0].relay().expect("a relay").policies()[0].require_address);
}
