//! Restrictions that are not implemented fail closed.

use std::collections::BTreeSet;
use std::path::Path;

use petasos_agent::{Tools, Toolset};
use petasos_config::{Closed, Effect, from_texts, keys};
use petasos_core::access::{AccessDecision, SenderTrust, decide};
use petasos_core::message::ChatType;
use petasos_core::{Platform, Source};

use super::*;

/// Everything is permitted, on every supported platform.
const OPEN: &str = "
gateway: {allow_all_users: true, relay_url: 'https://c.example', relay_platforms: [matrix]}
platforms:
  telegram: {token: '1:a', allow_all_users: true, allow_bots: all}
  discord: {token: a.b.c, allow_all_users: true, allow_bots: all, require_mention: false}
  slack: {token: xoxb-1, app_token: xapp-1, allow_all_users: true, allow_bots: all, require_mention: false}
  matrix: {allow_all_users: true, allow_bots: all}
  signal: {allow_all_users: true, allow_bots: all}
terminal: {enabled: true}
";

const PLATFORMS: [&str; 5] = ["telegram", "discord", "slack", "matrix", "signal"];

/// Lists everything that the configuration permits.
fn permitted(yaml: &str) -> (BTreeSet<String>, Vec<String>) {
    let home = Home::resolve(Some(Path::new("/nowhere")), |_| None).unwrap();
    let mut resolved = from_texts(yaml.as_bytes(), b"", []);
    let wired = wire(&home, &mut resolved).unwrap_or_else(|problems| panic!("{yaml}\n{problems:?}"));
    let mut found = BTreeSet::new();
    let chats = [ChatType::Dm, ChatType::Group, ChatType::Channel, ChatType::Thread];
    for name in PLATFORMS {
        let platform = Platform::parse(name).unwrap();
        for (chat, bot) in chats.into_iter().flat_map(|chat| [(chat, false), (chat, true)]) {
            for id in ["c1", "c9"] {
                let source =
                    Source { user_id: Some("u1".into()), is_bot: bot, ..Source::new(platform, chat, id) };
                let upstream = matches!(name, "matrix" | "signal");
                let sender = SenderTrust { paired: true, upstream, ..SenderTrust::default() };
                if decide(&wired.gateway.access, &source, sender) == AccessDecision::Allow {
                    found.insert(format!("{name}: {chat:?} {id}, bot: {bot}"));
                }
            }
        }
    }
    let settings = &wired.gateway.settings;
    let tools = Tools::default().limited(&settings.tools);
    found.extend(tools.specs().iter().map(|spec| format!("tool {}", spec.name)));
    for tool in ["memory", "web_extract"] {
        let denied = settings.tools.denied.iter().any(|name| name == tool);
        found.extend((!denied && settings.tools.allowed.is_none()).then(|| format!("tool {tool}")));
    }
    found.extend(settings.terminal.is_some().then(|| "terminal".to_owned()));
    found.extend(settings.memory.then(|| "memories".to_owned()));
    for adapter in &wired.gateway.adapters {
        let policies = adapter.relay().map(|relay| relay.policies()).unwrap_or_default();
        let open = policies.iter().filter(|policy| !policy.require_address);
        found.extend(open.map(|policy| format!("{}: not addressed", policy.platform)));
    }
    (found, resolved.problems.iter().map(ToString::to_string).collect())
}

/// `OPEN` with one more setting.
fn set(path: &str, value: &str) -> String {
    match path.strip_prefix("platforms.").and_then(|rest| rest.split_once('.')) {
        // Another spelling of the same section.
        Some((platform, name)) => format!("{OPEN}{platform}: {{{name}: {value}}}\n"),
        None => match path.split_once('.') {
            Some(("terminal", name)) => {
                OPEN.replace("{enabled: true}", &format!("{{enabled: true, {name}: {value}}}"))
            }
            Some((section, name)) => format!("{OPEN}{section}: {{{name}: {value}}}\n"),
            None => format!("{OPEN}{path}: {value}\n"),
        },
    }
}

#[test]
fn unimplemented_restrictions_deny_and_are_reported() {
    let (open, _) = permitted(OPEN);
    assert!(open.len() > 60, "{open:?}");
    let mut checked = 0;
    for key in keys::all() {
        let Effect::FailsClosed(Closed { sample, denies }) = key.declared.effect else { continue };
        let platforms: &[&str] = if key.of_any_platform() { &PLATFORMS } else { &["-"] };
        for platform in platforms {
            let path = key.path.replace('*', platform);
            // Implemented by the adapter of this platform.
            if keys::find(&path).is_some_and(|found| found.key.used()) {
                continue;
            }
            checked += 1;
            let (with, problems) = permitted(&set(&path, sample));
            assert!(with.is_subset(&open) && with != open, "{path}: {sample} denies nothing");
            let implemented = path == "platforms.matrix.require_mention";
            assert!(implemented || problems.iter().any(|it| it.contains(denies)), "{path}: {problems:?}");
        }
    }
    assert!(checked > 40, "{checked}");
}

#[test]
fn denied_tools_exist() {
    let mut seen = BTreeSet::new();
    for key in keys::all().filter(|key| !key.of_any_platform()) {
        let Effect::FailsClosed(Closed { sample, .. }) = key.declared.effect else { continue };
        let settings = from_texts(set(&key.path, sample).as_bytes(), b"", []).settings;
        for tool in limits::denied(&settings, &[]).tools {
            assert!(Tools::is_tool(tool), "{} denies {tool}, which is not a tool", key.path);
            seen.insert(tool);
        }
    }
    assert_eq!(Vec::from_iter(seen), ["memory", "patch", "web_extract", "write_file"]);
    for tool in from_texts(b"", b"", []).settings.get(&keys::webhook::TOOLS) {
        assert!(Tools::is_tool(&tool), "{} has {tool}, which is not a tool", keys::webhook::TOOLS);
    }
}

#[test]
fn help_of_toolsets_names_every_toolset() {
    let names = Toolset::ALL.map(Toolset::name).join(", ");
    let key = keys::find(&agent::TOOLSETS.to_string()).unwrap().key;
    assert!(key.declared.help.contains(&format!("({names})")), "{}", key.declared.help);
}

#[test]
fn every_platform_with_an_adapter_counts_as_native() {
    let settings = from_texts(OPEN.as_bytes(), b"", []).settings;
    let native: Vec<_> = configured_platforms(&settings).iter().map(|it| it.as_str()).collect();
    assert_eq!(native, ["telegram", "discord", "slack"]);
    let off = OPEN.replace("slack: {", "slack: {enabled: false, ").replace("token: a.b.c, ", "");
    let settings = from_texts(off.as_bytes(), b"", []).settings;
    let native: Vec<_> = configured_platforms(&settings).iter().map(|it| it.as_str()).collect();
    assert_eq!(native, ["telegram"]);
}

#[track_caller]
fn denies(yaml: &str, want: &[&str]) {
    let (open, _) = permitted(OPEN);
    let (with, _) = permitted(&format!("{OPEN}{yaml}"));
    let denied: Vec<_> = open.difference(&with).collect();
    assert!(with.is_subset(&open), "{yaml} permits {:?}", with.difference(&open));
    for word in want {
        assert!(denied.iter().any(|it| it.contains(word)), "{yaml}: {word} is not in {denied:?}");
        assert!(!with.iter().any(|it| it.contains(word)), "{yaml}: {word} is left in {with:?}");
    }
}

#[test]
fn chat_policies_apply_to_every_platform() {
    for platform in PLATFORMS {
        let dm = format!("{platform}: Dm");
        let groups =
            [format!("{platform}: Group"), format!("{platform}: Channel"), format!("{platform}: Thread")];
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        denies(&format!("{platform}: {{dm_policy: disabled}}"), &[&dm]);
        denies(&format!("{platform}: {{group_policy: disabled}}"), &groups);
        let people = [format!("{platform}: Dm c1, bot: false"), format!("{platform}: Dm c9, bot: false")];
        denies(&format!("{platform}: {{dm_policy: allowlist}}"), &[&people[0], &people[1]]);
    }
}

#[test]
fn tools_outside_configured_toolsets_are_off() {
    denies("toolsets: [clock]", &["tool read_file", "tool memory", "tool web_extract"]);
    denies("toolsets: []", &["tool "]);
    denies("toolsets: [no-such-toolset]", &["tool "]);
    denies("toolsets: ''", &["tool "]);
    let (_, problems) =
        permitted(&format!("{OPEN}toolsets: [file, no-such]\nplatform_toolsets: {{slack: [nor-such]}}\n"));
    assert!(
        problems.iter().any(|it| it.contains("toolsets: there is no toolset or tool no-such")),
        "{problems:?}"
    );
    assert!(problems.iter().any(|it| it.contains("platform_toolsets.slack: there is no")), "{problems:?}");
}

#[test]
fn platform_toolsets_select_tools() {
    let narrowed = |yaml: &str| {
        let home = Home::resolve(Some(Path::new("/nowhere")), |_| None).unwrap();
        let wired = wire(&home, &mut from_texts(yaml.as_bytes(), b"", [])).unwrap();
        let mut narrowed = wired.gateway.settings.narrowed;
        let mut of = |name: &str| narrowed.remove(&Platform::parse(name).unwrap());
        (of("telegram"), of("terminal"), of("webhook"))
    };
    let clock = || Some(vec!["clock".to_owned()]);
    assert_eq!(narrowed(""), (None, None, clock()));
    assert_eq!(
        narrowed("platform_toolsets: {telegram: [clock], cli: [nope]}"),
        (clock(), Some(vec![]), clock())
    );
    assert_eq!(
        narrowed("platform_toolsets: {telegram: [hermes-telegram], webhook: []}"),
        (None, None, Some(vec![]))
    );
    assert_eq!(narrowed("platform_toolsets: {telegram: {a: b}}"), (Some(vec![]), None, clock()));
    let all = narrowed("platform_toolsets: nonsense");
    assert_eq!(all, (Some(vec![]), Some(vec![]), Some(vec![])));
}
