//! What is denied for the sake of settings that restrict something and that nothing implements, or not on the platform
//! they are set for. Pure; the wiring enforces it, `config check`, `status` and `doctor` report it.

use std::collections::BTreeMap;

use petasos_core::Platform;
use petasos_core::access::{Closed, Limits, Policy};
use serde_json::Value;

use crate::catalogue::{self, Entry, agent, any, discord, relay, restrict, slack, telegram};
use crate::choices::ChatPolicy;
use crate::explain;
use crate::key::{Effect, Key, Kind, PlatformKey};
use crate::problem::Problem;
use crate::settings::Settings;

/// Tools that read websites.
const READS_WEBSITES: &str = "web_extract";
const REMEMBERS: &str = "memory";

/// Platforms that are always served by this program, and its own channels: no relay brings messages of them.
const OURS: &[&str] = &["api_server", "webhook", "relay", "local", "web", "terminal", "subagent", "cron"];

/// Everything that is denied.
#[derive(Debug, Default)]
pub struct Denied {
    /// By platform; only those with a limit.
    pub access: BTreeMap<Platform, Limits>,
    /// Every tool is off.
    pub every_tool: bool,
    /// Names of tools that are off.
    pub tools: Vec<&'static str>,
    pub terminal: bool,
    /// Stored memories are not shown.
    pub memories: bool,
    /// One for each setting that denies something.
    pub problems: Vec<Problem>,
    /// One for each restriction that has nothing to restrict, and for those of its parts that have no effect.
    pub idle: Vec<Problem>,
}

/// Platforms whose adapter is in this program and has credentials.
pub fn native(settings: &Settings) -> Vec<Platform> {
    let on = |enabled: &Key<Option<bool>>| settings.get(enabled) != Some(false);
    let known = [
        ("telegram", on(&telegram::ENABLED) && settings.is_set(&telegram::TOKEN)),
        ("discord", on(&discord::ENABLED) && settings.is_set(&discord::TOKEN)),
        (
            "slack",
            on(&slack::ENABLED) && settings.is_set(&slack::TOKEN) && settings.is_set(&slack::APP_TOKEN),
        ),
    ];
    known.into_iter().filter(|(_, on)| *on).filter_map(|(name, _)| Platform::parse(name)).collect()
}

/// `native`: platforms that are served by an adapter of this program.
pub fn denied(settings: &Settings, native: &[Platform]) -> Denied {
    let mut out = Denied::default();
    for platform in Platform::known() {
        let limits = Platforms {
            settings,
            platform,
            native: native.contains(&platform) || is_ours(platform),
            out: &mut out,
        }
        .limits();
        if limits != Limits::default() {
            out.access.insert(platform, limits);
        }
    }
    out.idle.extend(unreachable(settings, native));
    routed(settings, &mut out);
    out.every_tool = settings.is_set(&restrict::TOOL_HOOKS);
    if out.every_tool {
        out.say(settings, &restrict::TOOL_HOOKS);
    }
    if settings.get(&restrict::BLOCKLIST).is_some_and(|list| list.get("enabled") != Some(&Value::Bool(false)))
    {
        out.tools.push(READS_WEBSITES);
        out.say(settings, &restrict::BLOCKLIST);
    }
    if !settings.get(&restrict::MEMORY) {
        out.tools.push(REMEMBERS);
        out.memories = true;
        out.say(settings, &restrict::MEMORY);
    }
    if settings.get(&agent::TERMINAL_BACKEND).trim() != "local" {
        out.terminal = true;
        out.say(settings, &agent::TERMINAL_BACKEND);
    }
    out
}

fn is_ours(platform: Platform) -> bool {
    OURS.contains(&platform.as_str())
}

/// What is denied or restricted by the settings as they are, for people.
pub fn summary(settings: &Settings) -> Vec<String> {
    let denied = denied(settings, &native(settings)).problems.into_iter().map(|problem| problem.what);
    denied.chain(toolsets(settings)).collect()
}

/// Tools that are off because of a toolset.
pub fn toolsets(settings: &Settings) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(names) = settings.get(&agent::TOOLSETS) {
        told.push(format!("tools outside of {} ({}) are off", agent::TOOLSETS, names.join(", ")));
    }
    if settings.is_set(&agent::PLATFORM_TOOLSETS) {
        told.push(format!("on the platforms of {} other tools are off", agent::PLATFORM_TOOLSETS));
    }
    told
}

impl Denied {
    fn say<T>(&mut self, settings: &Settings, key: &Key<T>) {
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

/// Restrictions of platforms that nothing brings messages of.
fn unreachable(settings: &Settings, native: &[Platform]) -> Vec<Problem> {
    if settings.is_set(&relay::URL) {
        return Vec::new();
    }
    let unreached = |path: &&str| {
        catalogue::find(path).is_some_and(|found| {
            let platform = Platform::parse(&explain::platform(&found));
            let reached = platform.is_none_or(|it| native.contains(&it) || is_ours(it));
            found.key.of_any_platform()
                && !found.key.used()
                && !reached
                && found.key.declared.effect != Effect::Ignored
        })
    };
    let told = |path: &str| idle(settings.origin_at(path).to_string(), path);
    settings.paths().filter(unreached).map(told).collect()
}

fn idle(place: String, path: &str) -> Problem {
    Problem::warning(place, format!("{path} is accepted, but this version does nothing with it"))
}

/// The settings of one platform.
struct Platforms<'a> {
    settings: &'a Settings,
    platform: Platform,
    native: bool,
    out: &'a mut Denied,
}

impl Platforms<'_> {
    fn limits(mut self) -> Limits {
        let mut limits = Limits {
            dm: self.settings.on(self.platform, &any::DM_POLICY).map(policy),
            group: self.settings.on(self.platform, &any::GROUP_POLICY).map(policy),
            ..Limits::default()
        };
        // Without an adapter and without a relay nothing comes from there.
        if !self.native && !self.settings.is_set(&relay::URL) {
            return limits;
        }
        if self.closes(&any::ENABLED, |on| *on == Some(false)) {
            limits.closed = Closed::Everything;
        }
        let mut groups = false;
        for flag in [&any::STRICT_MENTION, &any::THREAD_REQUIRE_MENTION] {
            groups |= self.closes(flag, |on| *on);
        }
        // Listed platforms of a relay: the connector is told.
        if !self.listed() {
            groups |= self.closes(&any::REQUIRE_MENTION, |on| *on);
        }
        groups |= self.closes(&any::ALLOWED_TOPICS, |topics| !topics.is_empty());
        if groups {
            limits.closed = limits.closed.max(Closed::Groups);
        }
        for list in [&any::ALLOWED_CHATS, &any::ALLOWED_CHANNELS] {
            if self.closes(list, |chats| !chats.is_empty()) {
                let here = self.settings.on(self.platform, list);
                limits.chats = Some(match limits.chats.take() {
                    None => here,
                    Some(before) => before.into_iter().filter(|chat| here.contains(chat)).collect(),
                });
            }
        }
        for list in [&any::IGNORED_CHANNELS, &any::IGNORED_THREADS] {
            if self.closes(list, |ids| !ids.is_empty()) {
                limits.ignored.extend(self.settings.on(self.platform, list));
            }
        }
        if self.closes(&any::CHANNEL_OVERRIDES, |table| !overridden(table.as_ref()).is_empty()) {
            let table = self.settings.on(self.platform, &any::CHANNEL_OVERRIDES);
            limits.ignored.extend(overridden(table.as_ref()));
        }
        limits.no_bots = self.closes(&any::BOTS_INLINE_MENTION, |on| *on);
        limits
    }

    /// Whether a key is set to a value that restricts something, and no adapter reads it.
    fn closes<T>(&mut self, key: &PlatformKey<T>, restricts: impl Fn(&T) -> bool) -> bool {
        let path = key.path(self.platform);
        let read = self.native && catalogue::exact(&path).is_some_and(Entry::used);
        if read || !self.settings.is_set_on(self.platform, key) || self.is_word_of_a_relay(&path) {
            return false;
        }
        let closes = restricts(&self.settings.on(self.platform, key));
        let place = self.settings.origin_on(self.platform, key).to_string();
        if closes {
            self.out.problems.extend(problem(place, &path, key.0.declared.effect));
        } else if key.0.declared.kind == Kind::Table {
            self.out.idle.push(idle(place, &path));
        }
        closes
    }

    fn listed(&self) -> bool {
        let listed = self.settings.get(&relay::PLATFORMS);
        !self.native && listed.iter().any(|name| Platform::parse(name) == Some(self.platform))
    }

    /// `enabled: false` keeps an adapter of this program off, so that the platform may come over the relay instead.
    fn is_word_of_a_relay(&self, path: &str) -> bool {
        path == any::ENABLED.path(self.platform)
            && (self.listed() || self.native)
            && catalogue::exact(path).is_some_and(Entry::used)
    }
}

const fn policy(written: ChatPolicy) -> Policy {
    match written {
        ChatPolicy::Open => Policy::Open,
        ChatPolicy::Allowlist => Policy::Allowlist,
        ChatPolicy::Pairing => Policy::Pairing,
        ChatPolicy::Disabled => Policy::Disabled,
    }
}

/// Channels for which another model or provider is named.
fn overridden(table: Option<&Value>) -> Vec<String> {
    let Some(Value::Object(channels)) = table else { return Vec::new() };
    let model = |entry: &Value| {
        ["model", "provider"].iter().any(|name| entry.get(name).is_some_and(|it| !it.is_null()))
    };
    channels.iter().filter(|(_, entry)| model(entry)).map(|(channel, _)| channel.clone()).collect()
}

/// Chats of other profiles. A route without ids is one for the whole platform, and one that cannot be read for all of them.
fn routed(settings: &Settings, out: &mut Denied) {
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
        let meant = |it: &Platform| named.map_or_else(|| !is_ours(*it), |named| named == *it);
        for platform in Platform::known().filter(meant) {
            let limits = out.access.entry(platform).or_default();
            if ids.is_empty() {
                limits.closed = Closed::Everything;
            } else {
                limits.ignored.extend(ids.iter().cloned());
            }
        }
    }
    if !foreign.is_empty() {
        out.say(settings, &restrict::PROFILE_ROUTES);
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

    /// What a setting denies on a platform, and whether it says so.
    #[track_caller]
    fn check(yaml: &str, native: &[&str], on: &str, want: &Limits) {
        let denied = of(yaml, native);
        let limits = denied.access.get(&platform(on)).cloned().unwrap_or_default();
        assert_eq!(limits, *want, "{yaml}");
        let told = limits.closed != Closed::Nothing || limits.chats.is_some() || !limits.ignored.is_empty();
        assert_eq!(!denied.problems.is_empty(), told || limits.no_bots, "{:?}", denied.problems);
    }

    #[test]
    fn a_restriction_that_no_adapter_reads_is_enforced_here() {
        let groups = Limits { closed: Closed::Groups, ..Limits::default() };
        let chats = Limits { chats: Some(vec!["c9".into()]), ..Limits::default() };
        let ignored = Limits { ignored: vec!["c1".into()], ..Limits::default() };
        let none = Limits::default();
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
        assert!(prompts.access.is_empty() && prompts.idle[0].what.contains("does nothing with it"));
        let unreachable = of("signal: {require_mention: true}", &[]);
        assert!(unreachable.access.is_empty() && unreachable.idle[0].what.contains("does nothing with it"));
    }

    #[test]
    fn over_a_relay_the_connector_reads_only_what_it_is_told() {
        let groups = Limits { closed: Closed::Groups, ..Limits::default() };
        let everything = Limits { closed: Closed::Everything, ..Limits::default() };
        let chats = Limits { chats: Some(vec!["c9".into()]), ..Limits::default() };
        let with = |yaml: &str| format!("{RELAY}{yaml}");
        check(&with("matrix: {require_mention: true}"), &[], "matrix", &Limits::default());
        check(&with("signal: {require_mention: true}"), &[], "signal", &groups);
        check(&with("telegram: {allowed_chats: [c9]}"), &[], "telegram", &chats);
        check(&with("matrix: {enabled: false}"), &[], "matrix", &everything);
        let telegram = "gateway: {relay_url: 'https://c.example', relay_platforms: [telegram]}\ntelegram: {enabled: false}";
        check(telegram, &[], "telegram", &Limits::default());
    }

    #[test]
    fn chats_of_other_profiles_are_not_answered() {
        let routes = "profile_routes:\n  - {platform: telegram, chat_id: c1, profile: work}\n  \
                      - {platform: discord, profile: work}\n  - {platform: slack, chat_id: c2, profile: default}\n  \
                      - {platform: slack, chat_id: c3, profile: work, enabled: false}\n";
        let denied = of(routes, &["telegram", "discord", "slack"]);
        assert_eq!(denied.access[&platform("telegram")].ignored, ["c1"]);
        assert_eq!(denied.access[&platform("discord")].closed, Closed::Everything);
        assert!(!denied.access.contains_key(&platform("slack")));
        assert_eq!(denied.problems.len(), 1);
        let unreadable = of("profile_routes: work\n", &["telegram"]);
        assert_eq!(unreadable.access[&platform("telegram")].closed, Closed::Everything);
        assert!(!unreadable.access.contains_key(&platform("web")), "the owner's own page stays");
    }
}
