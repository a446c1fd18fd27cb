//! Every way in and out, and what each can do.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::capability::{Capabilities, Dialect, ReplyTo};
use petasos_core::message::Delivery;
use petasos_core::platform::Peer;
use petasos_core::session::Reader;
use petasos_core::text::Unit;
use petasos_core::{Inbound, Platform, Route};
use petasos_platforms::Adapter;
use petasos_platforms::relay::Relay;

#[derive(Debug)]
pub(crate) struct Channels {
    /// Ordered: tasks are started in this order.
    adapters: BTreeMap<Platform, Arc<Adapter>>,
    /// Whatever has no adapter of its own comes and goes there: a relay that fronts no platform by name.
    fallback: Option<Arc<Adapter>>,
    /// Page and terminal: readers who come for their answers.
    pulled: Capabilities,
    /// Callers whose channel ends with the response: nothing can follow it.
    stateless: Capabilities,
    /// Scheduled work: what is said is passed on when it has ended.
    scheduled: Capabilities,
    /// Subagents: what they say last is their report.
    children: Capabilities,
    /// A platform that is switched off: what is owed to it waits until it is back.
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
        let stateless = Capabilities { async_delivery: false, hint: hint.into(), ..pulled.clone() };
        let hint =
            "You run as a scheduled job: nobody reads along, and your final answer is delivered as it is.";
        let scheduled = Capabilities { hint: hint.into(), ..stateless.clone() };
        let children = Capabilities { hint: SUBAGENT.into(), ..stateless.clone() };
        Self { adapters, fallback, pulled, stateless, scheduled, children, absent }
    }

    pub(crate) fn adapter(&self, platform: Platform) -> Option<&Arc<Adapter>> {
        let fallback = self.fallback.as_ref().filter(|_| relayable(platform));
        self.adapters.get(&platform).or(fallback)
    }

    /// Whether what is said to this platform goes through this adapter.
    pub(crate) fn is_served_by(&self, platform: Platform, adapter: &Arc<Adapter>) -> bool {
        self.adapter(platform).is_some_and(|it| Arc::ptr_eq(it, adapter))
    }

    /// Whether a link may bring messages of a platform: its own, or, for a relay, one that is spoken through a relay.
    /// Nobody at the other end of a relay speaks for the owner of this machine, or for people we hear ourselves.
    pub(crate) fn brings(&self, link: Platform, platform: Platform) -> bool {
        let relayed = |it: Platform| self.adapter(it).is_some_and(|adapter| adapter.relay().is_some());
        link == platform || (relayed(link) && relayed(platform))
    }

    /// The one that keeps the relay's connection.
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
                Peer::Owner => &self.pulled,
                Peer::Caller => &self.stateless,
                Peer::Schedule => &self.scheduled,
                Peer::Parent => &self.children,
                Peer::People | Peer::Sender => &self.absent,
            }),
        }
    }

    /// Nobody is there: a run of a job, which begins with a transcript of its own.
    pub(crate) fn is_scheduled(&self, platform: Platform) -> bool {
        platform.peer() == Peer::Schedule
    }

    /// Who reads what is said there.
    pub(crate) fn reader(&self, platform: Platform) -> Reader {
        match platform.peer() {
            Peer::Caller | Peer::Sender | Peer::Parent => Reader::Machine,
            Peer::People | Peer::Owner | Peer::Schedule => Reader::Interactive,
        }
    }

    /// Whether its messages are typed by the owner at this machine: the page and the terminal.
    pub(crate) fn is_local(&self, platform: Platform) -> bool {
        self.capabilities(platform).delivery == Delivery::Pull && self.reader(platform) == Reader::Interactive
    }

    /// Where what is said about a message goes.
    pub(crate) fn way_back(&self, inbound: &Inbound) -> Route {
        if let Some(inbound) = crate::runtime::fault_injection::current_chat() {
            return Route::back_to(&inbound.source, self.capabilities(inbound.source.platform).delivery);
        }
        let source = &inbound.source;
        let back = || Route::back_to(source, self.capabilities(source.platform).delivery);
        inbound.answer_to.clone().unwrap_or_else(back)
    }
}

/// A platform that could be behind a connector.
fn relayable(platform: Platform) -> bool {
    platform.peer() == Peer::People
}

/// Platforms whose senders a connector has let through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Relayed {
    named: Vec<Platform>,
    /// Every other one too, except those that we speak ourselves.
    rest: Option<Vec<Platform>>,
}

impl Relayed {
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

const SUBAGENT: &str = "You are a subagent: another agent has given you a task and waits for your report. Nobody can answer \
questions. Work until the task is done or cannot be done. Your last message is all that the other sees: say what you did, what you \
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
        marks: false,
        threads_stand_alone: false,
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
    fn a_relay_brings_nothing_of_ours() {
        let config = petasos_platforms::relay::Config::new("http://127.0.0.1:9");
        let relays = petasos_platforms::relay::adapters(config).unwrap();
        let own = petasos_platforms::telegram::Config::new(petasos_platforms::Secret::new("1:a"));
        let own = Adapter::Telegram(petasos_platforms::telegram::Telegram::new(own).unwrap());
        let channels = Channels::new(relays.into_iter().map(Adapter::Relay).chain([own]).collect());
        let (relay, telegram) = (Platform::relay(), Platform::parse("telegram").unwrap());
        for platform in Platform::known() {
            let ours = ["web", "terminal", "local", "api_server", "webhook", "cron", "subagent", "telegram"];
            assert_eq!(channels.brings(relay, platform), !ours.contains(&platform.as_str()), "{platform}");
            assert_eq!(channels.brings(telegram, platform), platform == telegram, "{platform}");
        }
    }

    #[test]
    fn what_can_be_delivered_later_depends_on_the_channel_alone() {
        let channels = Channels::new(vec![]);
        for platform in Platform::known() {
            let can = channels.capabilities(platform);
            let ends = ["api_server", "cron", "subagent"].contains(&platform.as_str());
            assert_eq!(can.async_delivery, !ends, "{platform}");
        }
        assert_eq!(channels.capabilities(Platform::parse("api_server").unwrap()).delivery, Delivery::Pull);
    }
}
