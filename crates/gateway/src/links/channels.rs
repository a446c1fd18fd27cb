//! All channels of the gateway and their capabilities.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::capability::{Capabilities, Dialect, ReplyTo};
use petasos_core::message::Delivery;
use petasos_core::platform::Peer;
use petasos_core::session::ReaderKind;
use petasos_core::text::Unit;
use petasos_core::{Inbound, Platform, Route};
use petasos_platforms::Adapter;
use petasos_platforms::relay::Relay;

#[derive(Debug)]
pub(crate) struct Channels {
    /// Ordered: tasks are started in this order.
    adapters: BTreeMap<Platform, Arc<Adapter>>,
    /// Serves platforms without an adapter: a relay that is not limited to named platforms.
    fallback: Option<Arc<Adapter>>,
    /// The page, which polls for answers and shows buttons.
    page: Capabilities,
    /// The terminal, which polls for answers.
    pulled: Capabilities,
    /// API callers: the channel ends with the response.
    stateless: Capabilities,
    /// Scheduled jobs: the result is reported at the end.
    scheduled: Capabilities,
    /// Subagents: the last message is the report.
    subagents: Capabilities,
    /// A platform that is not configured: its outbox items wait.
    absent: Capabilities,
}

impl Channels {
    pub(crate) fn new(adapters: Vec<Adapter>) -> Self {
        let adapters: BTreeMap<_, _> =
            adapters.into_iter().map(|adapter| (adapter.platform(), Arc::new(adapter))).collect();
        let fallback = adapters.values().find(|it| it.relay().is_some_and(Relay::is_for_any)).cloned();
        let pulled = pulled();
        let absent = Capabilities { delivery: Delivery::Push, dialect: Dialect::Plain, ..pulled.clone() };
        let hint = "You answer a program over HTTP; what it shows is usually Markdown. Nothing can follow your answer.";
        let page = Capabilities { buttons: true, ..pulled.clone() };
        let stateless = Capabilities { async_delivery: false, hint: hint.into(), ..pulled.clone() };
        let hint =
            "You run as a scheduled job: no user reads along, and your final answer is delivered as it is.";
        let scheduled = Capabilities { hint: hint.into(), ..stateless.clone() };
        let subagents = Capabilities { hint: SUBAGENT_HINT.into(), ..stateless.clone() };
        Self { adapters, fallback, page, pulled, stateless, scheduled, subagents, absent }
    }

    pub(crate) fn adapter(&self, platform: Platform) -> Option<&Arc<Adapter>> {
        let fallback = self.fallback.as_ref().filter(|_| relayable(platform));
        self.adapters.get(&platform).or(fallback)
    }

    /// Whether messages to this platform go through this adapter.
    pub(crate) fn is_served_by(&self, platform: Platform, adapter: &Arc<Adapter>) -> bool {
        self.adapter(platform).is_some_and(|it| Arc::ptr_eq(it, adapter))
    }

    /// Whether a link may bring messages of a platform: its own, or, for a relay, any relayed platform. A relay must not
    /// bring messages of the owner of this machine, or of platforms that the gateway connects to itself.
    pub(crate) fn may_bring(&self, link: Platform, platform: Platform) -> bool {
        let relayed = |it: Platform| self.adapter(it).is_some_and(|adapter| adapter.relay().is_some());
        link == platform || (relayed(link) && relayed(platform))
    }

    /// The relay that owns the connection.
    pub(crate) fn relay(&self) -> Option<&Relay> {
        self.adapters.values().filter_map(|adapter| adapter.relay()).find(|relay| relay.leads())
    }

    pub(crate) fn adapters(&self) -> impl Iterator<Item = &Arc<Adapter>> {
        self.adapters.values()
    }

    pub(crate) fn capabilities(&self, platform: Platform) -> Cow<'_, Capabilities> {
        match self.adapter(platform) {
            Some(adapter) => adapter.capabilities(),
            None => Cow::Borrowed(match platform.peer() {
                Peer::Owner if platform.shows_buttons() => &self.page,
                Peer::Owner => &self.pulled,
                Peer::Caller => &self.stateless,
                Peer::Schedule => &self.scheduled,
                Peer::Parent => &self.subagents,
                Peer::People | Peer::Sender => &self.absent,
            }),
        }
    }

    /// Whether messages come from scheduled jobs.
    pub(crate) fn is_scheduled(&self, platform: Platform) -> bool {
        platform.peer() == Peer::Schedule
    }

    pub(crate) fn reader(&self, platform: Platform) -> ReaderKind {
        match platform.peer() {
            Peer::Caller | Peer::Sender | Peer::Parent => ReaderKind::Machine,
            Peer::People | Peer::Owner | Peer::Schedule => ReaderKind::Interactive,
        }
    }

    /// Whether the owner types the messages on this machine: page and terminal.
    pub(crate) fn is_local(&self, platform: Platform) -> bool {
        self.capabilities(platform).delivery == Delivery::Pull
            && self.reader(platform) == ReaderKind::Interactive
    }

    /// Where replies to a message go.
    pub(crate) fn reply_route(&self, inbound: &Inbound) -> Route {
        if let Some(inbound) = crate::runtime::fault_injection::current_chat() {
            return Route::to_source(&inbound.source, self.capabilities(inbound.source.platform).delivery);
        }
        let source = &inbound.source;
        let back = || Route::to_source(source, self.capabilities(source.platform).delivery);
        inbound.reply_route.clone().unwrap_or_else(back)
    }
}

fn relayable(platform: Platform) -> bool {
    platform.peer() == Peer::People
}

/// Platforms whose senders a connector has authorised.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RelayedPlatforms {
    named: Vec<Platform>,
    /// All other platforms too, except these, which have adapters of their own.
    rest: Option<Vec<Platform>>,
}

impl RelayedPlatforms {
    pub(crate) fn of(adapters: &[Adapter]) -> Self {
        let (relays, own): (Vec<_>, Vec<_>) = adapters.iter().partition(|adapter| adapter.relay().is_some());
        let any = relays.iter().any(|it| it.relay().is_some_and(Relay::is_for_any));
        let own = own.into_iter().map(Adapter::platform).collect();
        Self { named: relays.into_iter().map(Adapter::platform).collect(), rest: any.then_some(own) }
    }

    pub(crate) fn includes(&self, platform: Platform) -> bool {
        let rest = self.rest.as_ref().is_some_and(|own| relayable(platform) && !own.contains(&platform));
        self.named.contains(&platform) || rest
    }
}

const SUBAGENT_HINT: &str = "You are a subagent: another agent has given you a task and waits for your report. No user can answer \
questions. Work until the task is done or cannot be done. Your last message is all that the other agent sees: say what you did, what you \
found, which files you changed, and what is left.";

pub(crate) fn pulled() -> Capabilities {
    Capabilities {
        label: "Petasos".into(),
        delivery: Delivery::Pull,
        max_message: usize::MAX,
        max_edit: usize::MAX,
        unit: Unit::Chars,
        split_hint: None,
        dialect: Dialect::Markdown,
        edit: false,
        finalize: false,
        typing: false,
        reply_to: ReplyTo::First,
        buttons: false,
        status_reactions: false,
        threads_are_separate: false,
        files: None,
        async_delivery: true,
        pace: Duration::ZERO,
        longest_silence: None,
        hint: "You are shown as Markdown in a web page or a terminal.".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relay_brings_no_messages_of_own_platforms() {
        let config = petasos_platforms::relay::Config::new("http://127.0.0.1:9");
        let relays = petasos_platforms::relay::adapters(config).unwrap();
        let own = petasos_platforms::telegram::Config::new(petasos_platforms::Secret::new("1:a"));
        let own = Adapter::Telegram(petasos_platforms::telegram::Telegram::new(own).unwrap());
        let channels = Channels::new(relays.into_iter().map(Adapter::Relay).chain([own]).collect());
        let relay = Platform::relay();
        let telegram = Platform::parse("telegram").unwrap();
        for platform in Platform::all() {
            let ours = ["web", "terminal", "local", "api_server", "webhook", "cron", "subagent", "telegram"];
            assert_eq!(channels.may_bring(relay, platform), !ours.contains(&platform.as_str()), "{platform}");
            assert_eq!(channels.may_bring(telegram, platform), platform == telegram, "{platform}");
        }
    }

    #[test]
    fn async_delivery_depends_on_the_channel_only() {
        let channels = Channels::new(vec![]);
        for platform in Platform::all() {
            let can = channels.capabilities(platform);
            let ends = ["api_server", "cron", "subagent"].contains(&platform.as_str());
            assert_eq!(can.async_delivery, !ends, "{platform}");
        }
        assert_eq!(channels.capabilities(Platform::parse("api_server").unwrap()).delivery, Delivery::Pull);
    }
}
