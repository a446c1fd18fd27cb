//! Builds the adapters of the configured platforms.

pub(super) mod credential;
pub(super) mod discord;
pub(crate) mod relay;
pub(super) mod slack;
pub(super) mod telegram;
pub(super) mod webhook;

use petasos_config::choices::ReplyMode;
use petasos_config::{Home, Problem, Settings, Severity, keys};
use petasos_core::capability::ReplyTo;
use petasos_core::{Platform, Secret};
use petasos_gateway::UnavailablePlatform;
use petasos_gateway::home::bot_lock::{self, BotLock};
use petasos_platforms::{Adapter, AdapterKind};

use credential::Enabled;

/// An adapter built from the settings, and the scope and identity of its bot lock.
#[derive(Debug)]
pub(super) struct BuiltAdapter {
    pub(super) adapter: Adapter,
    pub(super) bot_lock: Option<(&'static str, Secret)>,
}

pub(super) fn bot_locks(home: &Home, adapters: &[BuiltAdapter]) -> Vec<BotLock> {
    let Some(directory) = bot_lock::directory(|name| std::env::var_os(name)) else { return vec![] };
    let used = adapters.iter().filter_map(|BuiltAdapter { adapter, bot_lock }| {
        let (scope, identity) = bot_lock.clone()?;
        let directory = directory.clone();
        let home = home.path().into();
        Some(BotLock { scope, platform: adapter.platform(), identity, directory, home })
    });
    used.collect()
}

/// Builds every configured platform. One that cannot be built is listed and does not prevent the others from
/// starting; if none can be built, its problems become errors.
pub(super) fn build_all(
    home: &Home,
    settings: &Settings,
    problems: &mut Vec<Problem>,
) -> (Vec<BuiltAdapter>, Vec<UnavailablePlatform>) {
    let mut kinds: Vec<_> = AdapterKind::all().collect();
    kinds.sort_by_key(|kind| build_order(*kind));
    let mut adapters = Vec::new();
    let mut unavailable = Vec::new();
    let mut errors = Vec::new();
    for kind in kinds {
        let mut found = Vec::new();
        let built = build(kind, home, settings, &adapters, &mut found);
        let reason = found.iter().find(|it| it.severity == Severity::Error).map(|it| it.what.clone());
        match (built, reason) {
            (built, _) if !built.is_empty() => adapters.extend(built),
            (_none, Some(reason)) => {
                unavailable.push(UnavailablePlatform { platform: kind.platform(), reason })
            }
            (_none, None) => {}
        }
        let (failures, warnings): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|it| it.severity == Severity::Error);
        errors.extend(failures);
        problems.extend(warnings);
    }
    if !adapters.is_empty() {
        errors.iter_mut().for_each(|problem| problem.severity = Severity::Warning);
    }
    problems.append(&mut errors);
    (adapters, unavailable)
}

/// The only place that builds adapters from settings. Empty if the platform is not configured.
fn build(
    kind: AdapterKind,
    home: &Home,
    settings: &Settings,
    others: &[BuiltAdapter],
    found: &mut Vec<Problem>,
) -> Vec<BuiltAdapter> {
    match kind {
        AdapterKind::Telegram => Vec::from_iter(telegram::build(settings, found)),
        AdapterKind::Discord => Vec::from_iter(discord::build(settings, found)),
        AdapterKind::Slack => Vec::from_iter(slack::build(home, settings, found)),
        AdapterKind::Webhook => Vec::from_iter(webhook::build(home, settings, others, found)),
        AdapterKind::External(_) => relay::build(settings, others, found),
    }
}

/// Platforms that the settings give an adapter of their own. Builds nothing, for commands that only report.
pub(crate) fn configured_platforms(settings: &Settings) -> Vec<Platform> {
    let configured = AdapterKind::all().filter(|kind| is_configured(settings, *kind));
    configured.map(AdapterKind::platform).collect()
}

fn is_configured(settings: &Settings, kind: AdapterKind) -> bool {
    let is_on = |enabled| credential::enabled(settings, enabled) != Enabled::No;
    match kind {
        AdapterKind::Telegram => is_on(&keys::telegram::ENABLED) && settings.is_set(&keys::telegram::TOKEN),
        AdapterKind::Discord => is_on(&keys::discord::ENABLED) && settings.is_set(&keys::discord::TOKEN),
        AdapterKind::Slack => {
            is_on(&keys::slack::ENABLED)
                && settings.is_set(&keys::slack::TOKEN)
                && settings.is_set(&keys::slack::APP_TOKEN)
        }
        AdapterKind::Webhook => is_on(&keys::webhook::ENABLED) && settings.is_set(&keys::webhook::ROUTES),
        // A connector serves these platforms, not an adapter of this program.
        AdapterKind::External(_) => false,
    }
}

/// Platforms with a higher number depend on the adapters built before.
const fn build_order(kind: AdapterKind) -> u8 {
    match kind {
        AdapterKind::Telegram | AdapterKind::Discord | AdapterKind::Slack => 0,
        // The relay skips platforms with a native adapter.
        AdapterKind::External(_) => 1,
        // Answers to webhook deliveries go to the other platforms.
        AdapterKind::Webhook => 2,
    }
}

const fn reply_to(written: ReplyMode) -> ReplyTo {
    match written {
        ReplyMode::Off => ReplyTo::Off,
        ReplyMode::First => ReplyTo::First,
        ReplyMode::All => ReplyTo::All,
    }
}
