//! Settings that restrict something and are not implemented do not fail open.

use std::collections::BTreeSet;
use std::path::Path;

use petasos_agent::Tools;
use petasos_config::{Closed, Effect, from_texts, keys};
use petasos_core::access::{Standing, Verdict, decide};
use petasos_core::message::ChatType;
use petasos_core::{Platform, Source};

use super::*;

/// Everybody may do everything, on every platform that there is a way to.
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

/// Everything that is permitted.
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
                let standing = Standing { paired: true, upstream, ..Standing::default() };
                if decide(&wired.gateway.access, &source, standing) == Verdict::Allow {
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

/// Also `platforms.x` and its keys, as lines to add to the file.
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
fn every_restriction_that_is_not_implemented_denies_something_and_says_so() {
    let (open, _) = permitted(OPEN);
    assert!(open.len() > 60, "{open:?}");
    let mut checked = 0;
    for key in keys::all() {
        let Effect::FailsClosed(Closed { sample, denies }) = key.declared.effect else { continue };
        let platforms: &[&str] = if key.of_any_platform() { &PLATFORMS } else { &["-"] };
        for platform in platforms {
            let path = key.path.replace('*', platform);
            // There the adapter reads it.
            if keys::find(&path).is_some_and(|found| found.key.used()) {
                continue;
            }
            checked += 1;
            let (with, told) = permitted(&set(&path, sample));
            assert!(with.is_subset(&open) && with != open, "{path}: {sample} denies nothing");
            let implemented = path == "platforms.matrix.require_mention";
            assert!(implemented || told.iter().any(|it| it.contains(denies)), "{path}: {told:?}");
        }
    }
    assert!(checked > 40, "{checked}");
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
fn policies_of_chats_are_enforced_on_every_platform() {
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
fn tools_outside_a_configured_toolset_are_off() {
    denies("toolsets: [clock]", &["tool read_file", "tool memory", "tool web_extract"]);
    denies("toolsets: []", &["tool "]);
    denies("toolsets: [no-such-toolset]", &["tool "]);
    denies("toolsets: ''", &["tool "]);
    let (_, told) =
        permitted(&format!("{OPEN}toolsets: [file, no-such]\nplatform_toolsets: {{slack: [nor-such]}}\n"));
    assert!(told.iter().any(|it| it.contains("toolsets: there is no toolset or tool no-such")), "{told:?}");
    assert!(told.iter().any(|it| it.contains("platform_toolsets.slack: there is no")), "{told:?}");
}

#[test]
fn tools_of_a_platform_are_those_of_its_toolsets() {
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
