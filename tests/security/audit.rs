//! `petasos doctor --security`: homes with each weakness.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{expect_json, expect_success, petasos, stdout};
use serde_json::Value;
use tempfile::TempDir;

const SOUND: &str = "model: {provider: demo}\n";

/// Runs the audit in a home with this configuration and mode. Units are looked for below `units`.
fn audit(config: &str, prepare: impl Fn(&Path, &mut Command)) -> Output {
    let folder = TempDir::new().expect("a directory");
    let home = folder.path().join("home");
    fs::create_dir(&home).expect("created");
    fs::write(home.join("config.yaml"), format!("{SOUND}{config}")).expect("written");
    fs::set_permissions(&home, Permissions::from_mode(0o700)).expect("changed");
    let mut command = petasos(&home, &["doctor", "--security", "--json"]);
    command.env_remove("GATEWAY_ALLOW_ALL_USERS").env("XDG_CONFIG_HOME", folder.path());
    prepare(&home, &mut command);
    command.output().expect("petasos runs")
}

#[track_caller]
fn weaknesses(output: &Output) -> Vec<Value> {
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let found = report["weaknesses"].as_array().expect("a list").clone();
    let serious = found.iter().any(|weakness| weakness["risk"] == "serious");
    assert_eq!(report["ok"], !serious, "{report}");
    assert_eq!(output.status.code(), Some(i32::from(serious)), "{report}");
    for weakness in &found {
        let texts = ["what", "why", "fix"].map(|field| weakness[field].as_str().unwrap_or_default());
        assert!(texts.iter().all(|text| !text.is_empty()), "{weakness}");
    }
    found
}

#[test]
fn sound_home_passes() {
    assert_eq!(weaknesses(&audit("", |_, _| ())), Vec::<Value>::new());
}

#[test]
fn each_weak_setting_is_found() {
    const TELEGRAM: &str = "telegram: {token: '1234567:AAaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}\n";
    let people = format!("{TELEGRAM}gateway: {{allowed_users: ['1', '2']}}\n");
    let everyone = format!("{TELEGRAM}platforms: {{telegram: {{allow_all_users: true}}}}\n");
    let route =
        |secret: &str| format!("webhook: {{extra: {{routes: {{ci: {{secret: '{secret}', prompt: x}}}}}}}}\n");
    let same = "webhook: {extra: {secret: 0123456789abcdef, routes: {a: {prompt: x}, b: {prompt: x}}}}\n";
    let tools = "webhook: {extra: {tools: [terminal], routes: {a: {secret: 0123456789abcdef, prompt: x}}}}\n";
    for (config, check, risk, what) in [
        ("web: {host: 0.0.0.0}\n", "listeners", "moderate", "web.host is 0.0.0.0"),
        (
            "fallback_providers: [{provider: custom, base_url: 'http://10.0.0.1/v1', model: m}]\n",
            "listeners",
            "serious",
            "http://10.0.0.1/v1",
        ),
        ("platforms.api_server.extra.cors_origins: ['*']\n", "api", "serious", "every web page"),
        (
            "platforms.api_server.extra.cors_origins: ['http://ui.example']\n",
            "api",
            "moderate",
            "http://ui.example",
        ),
        (
            "platforms.api_server.extra.keys: {ci: {key: 0123456789abcdef}}\n",
            "api",
            "moderate",
            "has every scope",
        ),
        ("gateway: {allow_all_users: true}\n", "access", "moderate", "gateway.allow_all_users"),
        (
            "gateway: {allow_all_users: true}\nterminal: {enabled: true}\n",
            "access",
            "serious",
            "the terminal is on",
        ),
        (everyone.as_str(), "access", "moderate", "platforms.telegram.allow_all_users"),
        (people.as_str(), "access", "moderate", "2 people may talk"),
        ("terminal: {enabled: true}\napprovals: {mode: 'off'}\n", "tools", "serious", "approvals.mode"),
        ("terminal: {enabled: true}\napprovals: {cron_mode: approve}\n", "tools", "moderate", "cron_mode"),
        ("terminal: {enabled: true}\ncommand_allowlist: ['*']\n", "tools", "serious", "allows every command"),
        ("terminal: {enabled: true, env_passthrough: [GITHUB_TOKEN]}\n", "tools", "moderate", "GITHUB_TOKEN"),
        ("mcp_servers: {files: {command: npx}}\n", "tools", "moderate", "runs npx as the owner"),
        ("mcp_servers: {far: {url: 'http://mcp.example/'}}\n", "tools", "serious", "plain HTTP"),
        (route("short").as_str(), "webhooks", "serious", "is weak"),
        (route("changeme-changeme-changeme").as_str(), "webhooks", "serious", "is weak"),
        (route("INSECURE_NO_AUTH").as_str(), "webhooks", "moderate", "has no secret"),
        (same, "webhooks", "moderate", "have the same secret"),
        (tools, "webhooks", "moderate", "may use terminal"),
    ] {
        let found = weaknesses(&audit(config, |_, _| ()));
        let hit = found.iter().find(|it| it["what"].as_str().is_some_and(|text| text.contains(what)));
        let hit = hit.unwrap_or_else(|| panic!("{config}: {found:?}"));
        assert_eq!((&hit["check"], &hit["risk"]), (&Value::from(check), &Value::from(risk)), "{config}");
    }
}

#[test]
fn open_files_and_exposed_secrets_are_found() {
    let open_home = |home: &Path, _: &mut Command| {
        fs::write(home.join(".env"), "A=1\n").expect("written");
        for (path, mode) in [(home, 0o755), (&home.join(".env"), 0o664), (&home.join("config.yaml"), 0o600)] {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("changed");
        }
    };
    let found = weaknesses(&audit("", open_home));
    let texts: Vec<_> = found.iter().map(|it| (it["what"].to_string(), it["fix"].to_string())).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].0.contains("home has mode 755") && texts[0].1.contains("chmod 700"), "{texts:?}");
    assert!(texts[1].0.contains(".env has mode 664") && texts[1].1.contains("chmod 600"), "{texts:?}");
    let in_unit = |home: &Path, _: &mut Command| {
        let units = home.parent().expect("a folder").join("systemd/user/petasos.service.d");
        fs::create_dir_all(&units).expect("created");
        fs::write(units.join("keys.conf"), "[Service]\nEnvironment=\"OPENAI_API_KEY=hush\"\n")
            .expect("written");
    };
    let found = weaknesses(&audit("", in_unit));
    assert!(
        found[0]["what"]
            .as_str()
            .is_some_and(|it| it.contains("keys.conf contains the value of OPENAI_API_KEY"))
    );
    let in_environment = |_: &Path, command: &mut Command| {
        command.env("API_SERVER_KEY", "0123456789abcdef");
    };
    let found = weaknesses(&audit("", in_environment));
    assert_eq!(found[0]["what"], "API_SERVER_KEY is set in the environment", "{found:?}");
}

#[test]
fn report_for_people_says_what_why_and_how() {
    let folder = TempDir::new().expect("a directory");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).expect("changed");
    fs::write(folder.path().join("config.yaml"), format!("{SOUND}web: {{host: 0.0.0.0}}\n"))
        .expect("written");
    let run = |args: &[&str]| {
        let mut command = petasos(folder.path(), args);
        command
            .env_remove("GATEWAY_ALLOW_ALL_USERS")
            .env("XDG_CONFIG_HOME", folder.path())
            .output()
            .expect("runs")
    };
    let said = expect_success(&run(&["doctor", "--security"]));
    for text in [
        "warn listeners    web.host is 0.0.0.0",
        "Others on the network",
        "→ set web.host to 127.0.0.1",
        "ok   webhooks",
    ] {
        assert!(said.contains(text), "{text}: {said}");
    }
    assert_eq!(
        expect_json(&run(&["doctor", "--security", "--json"]))["checks"].as_array().map(Vec::len),
        Some(7)
    );
    fs::write(folder.path().join("config.yaml"), "web: {port: x}\n").expect("written");
    let invalid = run(&["doctor", "--security"]);
    assert_eq!(invalid.status.code(), Some(78), "{}", stdout(&invalid));
}
