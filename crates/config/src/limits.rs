//! Permissions denied because of unimplemented restrictions. Pure; the wiring enforces them, and `config check`, `status`
//! and `doctor` report them.

use std::collections::BTreeMap;

use petasos_core::Platform;
use petasos_core::access::{ClosedFor, PlatformLimits, SenderPolicy};
use petasos_core::platform::Peer;
use serde_json::Value;

use crate::catalogue::{self, CatalogueEntry, agent, any, relay, restrict};
use crate::choices::ChatPolicy;
use crate::explain;
use crate::key::{Effect, Key, Kind, PlatformKey};
use crate::problem::Problem;
use crate::settings::Settings;

/// Tool that reads websites.
const WEB_TOOL: &str = "web_extract";
const MEMORY_TOOL: &str = "memory";
/// Tools that write files, and with them skills.
const WRITE_TOOLS: [&str; 2] = ["write_file", "patch"];

#[derive(Debug, Default)]
pub struct Denied {
    pub access: BTreeMap<Platform, PlatformLimits>,
    pub every_tool: bool,
    pub tools: Vec<&'static str>,
    pub terminal: bool,
    /// Whether stored memories are hidden.
    pub memories: bool,
    /// One per setting that denies something.
    pub problems: Vec<Problem>,
    /// One per restriction, or part of one, that has no effect.
    pub idle: Vec<Problem>,
}

/// `native`: platforms served by an adapter of this program.
pub fn denied(settings: &Settings, native: &[Platform]) -> Denied {
    let mut out = Denied::default();
    for platform in Platform::all() {
        let limits = PlatformRestrictions {
            settings,
            platform,
            native: native.contains(&platform) || is_internal(platform),
            out: &mut out,
        }
        .limits();
        if limits != PlatformLimits::default() {
            out.access.insert(platform, limits);
        }
    }
    out.idle.extend(unreachable(settings, native));
    deny_other_profiles(settings, &mut out);
    out.every_tool = settings.is_set(&restrict::TOOL_HOOKS);
    if out.every_tool {
        out.report(settings, &restrict::TOOL_HOOKS);
    }
    if settings.get(&restrict::BLOCKLIST).is_some_and(|list| list.get("enabled") != Some(&Value::Bool(false)))
    {
        out.tools.push(WEB_TOOL);
        out.report(settings, &restrict::BLOCKLIST);
    }
    if !settings.get(&restrict::MEMORY) {
        out.tools.push(MEMORY_TOOL);
        out.memories = true;
        out.report(settings, &restrict::MEMORY);
    }
    if settings.get(&restrict::MEMORY_APPROVAL) {
        out.tools.push(MEMORY_TOOL);
        out.report(settings, &restrict::MEMORY_APPROVAL);
    }
    if settings.get(&restrict::SKILL_APPROVAL) {
        out.tools.extend(WRITE_TOOLS);
        out.report(settings, &restrict::SKILL_APPROVAL);
    }
    if settings.get(&agent::TERMINAL_BACKEND).trim() != "local" {
        out.terminal = true;
        out.report(settings, &agent::TERMINAL_BACKEND);
    }
    out
}

/// Whether no relay carries the messages of a platform: it is a channel of this program, or the relay itself.
fn is_internal(platform: Platform) -> bool {
    match platform.peer() {
        Peer::People => platform == Platform::RELAY,
        Peer::Owner | Peer::Caller | Peer::Sender | Peer::Parent | Peer::Schedule => true,
    }
}

/// Messages about everything that the settings deny or restrict. `native` as in [`denied`].
pub fn summary(settings: &Settings, native: &[Platform]) -> Vec<String> {
    let denied = denied(settings, native).problems.into_iter().map(|problem| problem.what);
    denied.chain(toolsets(settings)).collect()
}

/// Messages about tools that toolsets turn off.
pub fn toolsets(settings: &Settings) -> Vec<String> {
    let mut messages = Vec::new();
    if let Some(names) = settings.get(&agent::TOOLSETS) {
        messages.push(format!("tools outside of {} ({}) are off", agent::TOOLSETS, names.join(", ")));
    }
    if settings.is_set(&agent::PLATFORM_TOOLSETS) {
        messages.push(format!("on the platforms of {} other tools are off", agent::PLATFORM_TOOLSETS));
    }
    messages
}

impl Denied {
    fn report<T>(&mut self, settings: &Settings, key: &Key<T>) {
        let place = settings.origin(key).to_string();
        self.problems.extend(problem(place, &key.to_string(), key.declared.effect));
    }
}

fn problem(place: String, path: &str, effect: Effect) -> Option<Problem> {
    let denies = match effect {
        Effect::FailsClosed(closed) => closed.denies,
        Effect::Read | Effect::Ignored => return None,
    };
    let problem = Problem::warning(place, format!("{path} is not implemented here: {denies}"));
    Some(problem.next("remove it to lift this"))
}

/// Reports restrictions of platforms without any source of messages.
fn unreachable(settings: &Settings, native: &[Platform]) -> Vec<Problem> {
    if settings.is_set(&relay::URL) {
        return Vec::new();
    }
    let unreached = |path: &&str| {
        catalogue::find(path).is_some_and(|found| {
            let platform = Platform::parse(&explain::platform(&found));
            let reached = platform.is_none_or(|it| native.contains(&it) || is_internal(it));
            found.key.of_any_platform()
                && !found.key.used()
                && !reached
                && found.key.declared.effect != Effect::Ignored
        })
    };
    let report = |path: &str| idle_problem(settings.origin_at(path).to_string(), path);
    settings.paths().filter(unreached).map(report).collect()
}

fn idle_problem(place: String, path: &str) -> Problem {
    Problem::warning(place, format!("{path} is accepted but has no effect in this version"))
}

/// Restrictions of one platform.
struct PlatformRestrictions<'a> {
    settings: &'a Settings,
    platform: Platform,
    native: bool,
    out: &'a mut Denied,
}

impl PlatformRestrictions<'_> {
    fn limits(mut self) -> PlatformLimits {
        let mut limits = PlatformLimits {
            dm: self.settings.on(self.platform, &any::DM_POLICY).map(policy),
            group: self.settings.on(self.platform, &any::GROUP_POLICY).map(policy),
            ..PlatformLimits::default()
        };
        // Without an adapter and a relay no message arrives from there.
        if !self.native && !self.settings.is_set(&relay::URL) {
            return limits;
        }
        if self.restricts_unread(&any::ENABLED, |on| *on == Some(false)) {
            limits.closed = ClosedFor::Everything;
        }
        let mut groups = false;
        for flag in [&any::STRICT_MENTION, &any::THREAD_REQUIRE_MENTION] {
            groups |= self.restricts_unread(flag, |on| *on);
        }
        // The connector enforces it for the listed platforms of a relay.
        if !self.listed() {
            groups |= self.restricts_unread(&any::REQUIRE_MENTION, |on| *on);
        }
        groups |= self.restricts_unread(&any::ALLOWED_TOPICS, |topics| !topics.is_empty());
        if groups {
            limits.closed = limits.closed.max(ClosedFor::Groups);
        }
        for list in [&any::ALLOWED_CHATS, &any::ALLOWED_CHANNELS] {
            if self.restricts_unread(list, |chats| !chats.is_empty()) {
                let here = self.settings.on(self.platform, list);
                limits.chats = Some(match limits.chats.take() {
                    None => here,
                    Some(before) => before.into_iter().filter(|chat| here.contains(chat)).collect(),
                });
            }
        }
        for list in [&any::IGNORED_CHANNELS, &any::IGNORED_THREADS] {
            if self.restricts_unread(list, |ids| !ids.is_empty()) {
                limits.ignored.extend(self.settings.on(self.platform, list));
            }
        }
        if self.restricts_unread(&any::CHANNEL_OVERRIDES, |table| !overridden(table.as_ref()).is_empty()) {
            let table = self.settings.on(self.platform, &any::CHANNEL_OVERRIDES);
            limits.ignored.extend(overridden(table.as_ref()));
        }
        limits.no_bots = self.restricts_unread(&any::BOTS_INLINE_MENTION, |on| *on);
        limits
    }

    /// Whether a key has a restricting value that no adapter reads.
    fn restricts_unread<T>(&mut self, key: &PlatformKey<T>, restricts: impl Fn(&T) -> bool) -> bool {
        let path = key.path(self.platform);
        let read = self.native && catalogue::exact(&path).is_some_and(CatalogueEntry::used);
        if read || !self.settings.is_set_on(self.platform, key) || self.only_frees_the_relay(&path) {
            return false;
        }
        let is_restricting = restricts(&self.settings.on(self.platform, key));
        let place = self.settings.origin_on(self.platform, key).to_string();
        if is_restricting {
            self.out.problems.extend(problem(place, &path, key.0.declared.effect));
        } else if key.0.declared.kind == Kind::Table {
            self.out.idle.push(idle_problem(place, &path));
        }
        is_restricting
    }

    fn listed(&self) -> bool {
        let listed = self.settings.get(&relay::PLATFORMS);
        !self.native && listed.iter().any(|name| Platform::parse(name) == Some(self.platform))
    }

    /// Whether `enabled: false` only turns off the adapter of this program, so that the relay may serve the platform.
    fn only_frees_the_relay(&self, path: &str) -> bool {
        path == any::ENABLED.path(self.platform)
            && (self.listed() || self.native)
            && catalogue::exact(path).is_some_and(CatalogueEntry::used)
    }
}

const fn policy(written: ChatPolicy) -> SenderPolicy {
    match written {
        ChatPolicy::Open => SenderPolicy::Open,
        ChatPolicy::Allowlist => SenderPolicy::Allowlist,
        ChatPolicy::Pairing => SenderPolicy::Pairing,
        ChatPolicy::Disabled => SenderPolicy::Disabled,
    }
}

/// Channels with their own model or provider.
fn overridden(table: Option<&Value>) -> Vec<String> {
    let Some(Value::Object(channels)) = table else { return Vec::new() };
    let model = |entry: &Value| {
        ["model", "provider"].iter().any(|name| entry.get(name).is_some_and(|it| !it.is_null()))
    };
    channels.iter().filter(|(_, entry)| model(entry)).map(|(channel, _)| channel.clone()).collect()
}

/// Denies chats of other profiles. A route without ids covers its platform; an unreadable route covers all platforms.
fn deny_other_profiles(settings: &Settings, out: &mut Denied) {
    let Some(table) = settings.get(&restrict::PROFILE_ROUTES) else { return };
    let routes: Vec<&Value> = match &table {
        Value::Array(routes) => routes.iter().collect(),
        Value::Object(routes) => routes.values().collect(),
        single => vec![single],
    };
    let foreign: Vec<&Value> = routes.into_iter().filter(|route| is_foreign(route)).collect();
    for route in &foreign {
        let named = route.get("platform").and_then(Value::as_str).and_then(Platform::parse);
        let ids: Vec<String> = ["thread_id", "chat_id", "guild_id", "scope_id"]
            .iter()
            .filter_map(|it| id(route.get(it)?))
            .take(1)
            .collect();
        let meant = |it: &Platform| named.map_or_else(|| !is_internal(*it), |named| named == *it);
        for platform in Platform::all().filter(meant) {
            let limits = out.access.entry(platform).or_default();
            if ids.is_empty() {
                limits.closed = ClosedFor::Everything;
            } else {
                limits.ignored.extend(ids.iter().cloned());
            }
        }
    }
    if !foreign.is_empty() {
        out.report(settings, &restrict::PROFILE_ROUTES);
    }
}

fn is_foreign(route: &Value) -> bool {
    let off = route.get("enabled") == Some(&Value::Bool(false));
    let own = matches!(route.get("profile").and_then(Value::as_str), Some("default" | "main" | ""));
    !off && !own
}

fn id(value: &Value) -> Option<String> {
    match value {
        Value::String(id) if !id.is_empty() => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::from_texts;

    const RELAY: &str = "gateway: {relay_url: 'https://c.example', relay_platforms: [matrix]}\n";

    fn platform(name: &str) -> Platform {
        Platform::parse(name).unwrap()
    }

    fn of(yaml: &str, native: &[&str]) -> Denied {
        let resolved = from_texts(yaml.as_bytes(), b"", []);
        assert!(resolved.problems.is_empty(), "{:?}", resolved.problems);
        let native: Vec<_> = native.iter().map(|name| platform(name)).collect();
        denied(&resolved.settings, &native)
    }

    /// Checks the limits of a platform, and that they are reported.
    #[track_caller]
    fn check(yaml: &str, native: &[&str], on: &str, want: &PlatformLimits) {
        let denied = of(yaml, native);
        let limits = denied.access.get(&platform(on)).cloned().unwrap_or_default();
        assert_eq!(limits, *want, "{yaml}");
        let is_limited =
            limits.closed != ClosedFor::Nothing || limits.chats.is_some() || !limits.ignored.is_empty();
        assert_eq!(!denied.problems.is_empty(), is_limited || limits.no_bots, "{:?}", denied.problems);
    }

    #[test]
    fn restriction_unread_by_adapters_is_enforced() {
        let groups = PlatformLimits { closed: ClosedFor::Groups, ..PlatformLimits::default() };
        let chats = PlatformLimits { chats: Some(vec!["c9".into()]), ..PlatformLimits::default() };
        let ignored = PlatformLimits { ignored: vec!["c1".into()], ..PlatformLimits::default() };
        let none = PlatformLimits::default();
        check("telegram: {strict_mention: true}", &["telegram"], "telegram", &groups);
        check("slack: {strict_mention: true}", &["slack"], "slack", &none);
        check("telegram: {strict_mention: false}", &["telegram"], "telegram", &none);
        check("telegram: {allowed_channels: [c9]}", &["telegram"], "telegram", &chats);
        check("telegram: {allowed_chats: [c9]}", &["telegram"], "telegram", &none);
        check("slack: {ignored_channels: [c1]}", &["slack"], "slack", &ignored);
        check("discord: {ignored_channels: [c1]}", &["discord"], "discord", &none);
        check(
            "telegram: {channel_overrides: {c1: {model: x}, c2: {system_prompt: y}}}",
            &["telegram"],
            "telegram",
            &ignored,
        );
        let prompts = of("telegram: {channel_overrides: {c2: {system_prompt: y}}}", &["telegram"]);
        assert!(prompts.access.is_empty() && prompts.idle[0].what.contains("has no effect"));
        let unreachable = of("signal: {require_mention: true}", &[]);
        assert!(unreachable.access.is_empty() && unreachable.idle[0].what.contains("has no effect"));
    }

    #[test]
    fn relay_enforces_only_reported_restrictions() {
        let groups = PlatformLimits { closed: ClosedFor::Groups, ..PlatformLimits::default() };
        let everything = PlatformLimits { closed: ClosedFor::Everything, ..PlatformLimits::default() };
        let chats = PlatformLimits { chats: Some(vec!["c9".into()]), ..PlatformLimits::default() };
        let with = |yaml: &str| format!("{RELAY}{yaml}");
        check(&with("matrix: {require_mention: true}"), &[], "matrix", &PlatformLimits::default());
        check(&with("signal: {require_mention: true}"), &[], "signal", &groups);
        check(&with("telegram: {allowed_chats: [c9]}"), &[], "telegram", &chats);
        check(&with("matrix: {enabled: false}"), &[], "matrix", &everything);
        let telegram = "gateway: {relay_url: 'https://c.example', relay_platforms: [telegram]}\ntelegram: {enabled: false}";
        check(telegram, &[], "telegram", &PlatformLimits::default());
    }

    #[test]
    fn chats_of_other_profiles_are_denied() {
        let routes = "profile_routes:\n  - {platform: telegram, chat_id: c1, profile: work}\n  \
                      - {platform: discord, profile: work}\n  - {platform: slack, chat_id: c2, profile: default}\n  \
                      - {platform: slack, chat_id: c3, profile: work, enabled: false}\n";
        let denied = of(routes, &["telegram", "discord", "slack"]);
        assert_eq!(denied.access[&platform("telegram")].ignored, ["c1"]);
        assert_eq!(denied.access[&platform("discord")].closed, ClosedFor::Everything);
        assert!(!denied.access.contains_key(&platform("slack")));
        assert_eq!(denied.problems.len(), 1);
        let unreadable = of("profile_routes: work\n", &["telegram"]);
        assert_eq!(unreadable.access[&platform("telegram")].closed, ClosedFor::Everything);
        assert!(!unreadable.access.contains_key(&platform("web")), "the owner's own page stays");
    }
}
