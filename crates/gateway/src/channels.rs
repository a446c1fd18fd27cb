//! Every way in and out, and what each can do.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::capability::{Capabilities, Dialect, ReplyTo};
use petasos_core::message::Delivery;
use petasos_core::session::Reader;
use petasos_core::text::Unit;
use petasos_core::{Inbound, Platform, Route};
use petasos_platforms::Adapter;

use crate::cron;

#[derive(Debug)]
pub(crate) struct Channels {
    adapters: HashMap<Platform, Arc<Adapter>>,
    /// Page and terminal: readers who come for their answers.
    pulled: Capabilities,
    /// Callers whose channel ends with the response: nothing can follow it.
    stateless: Capabilities,
    /// Scheduled work: what is said is passed on when it has ended.
    scheduled: Capabilities,
    /// A platform that is switched off: what is owed to it waits until it is back.
    absent: Capabilities,
}

/// Channels whose readers come for their answers.
const PULLED: [&str; 3] = ["web", "terminal", "local"];
/// Channels that end with the response.
const STATELESS: [&str; 1] = ["api_server"];
/// Channels with a program at the other end.
const PROGRAMS: [&str; 2] = ["api_server", "webhook"];

impl Channels {
    pub(crate) fn new(adapters: Vec<Adapter>) -> Self {
        let adapters = adapters.into_iter().map(|adapter| (adapter.platform(), Arc::new(adapter))).collect();
        let pulled = pulled();
        let absent = Capabilities { delivery: Delivery::Push, dialect: Dialect::Plain, ..pulled.clone() };
        let stateless = Capabilities { async_delivery: false, ..pulled.clone() };
        let hint =
            "You run as a scheduled job: nobody reads along, and your final answer is delivered as it is.";
        let scheduled = Capabilities { hint: hint.into(), ..stateless.clone() };
        Self { adapters, pulled, stateless, scheduled, absent }
    }

    pub(crate) fn adapter(&self, platform: Platform) -> Option<&Arc<Adapter>> {
        self.adapters.get(&platform)
    }

    pub(crate) fn adapters(&self) -> impl Iterator<Item = &Arc<Adapter>> {
        self.adapters.values()
    }

    pub(crate) fn capabilities(&self, platform: Platform) -> &Capabilities {
        match self.adapters.get(&platform) {
            Some(adapter) => adapter.capabilities(),
            None if PULLED.contains(&platform.as_str()) => &self.pulled,
            None if STATELESS.contains(&platform.as_str()) => &self.stateless,
            None if self.is_scheduled(platform) => &self.scheduled,
            None => &self.absent,
        }
    }

    /// Nobody is there: a run of a job, which begins with a transcript of its own.
    pub(crate) fn is_scheduled(&self, platform: Platform) -> bool {
        platform.as_str() == cron::CHANNEL
    }

    /// Who reads what is said there.
    pub(crate) fn reader(&self, platform: Platform) -> Reader {
        if PROGRAMS.contains(&platform.as_str()) { Reader::Machine } else { Reader::Interactive }
    }

    /// Where what is said about a message goes.
    pub(crate) fn way_back(&self, inbound: &Inbound) -> Route {
        let source = &inbound.source;
        let back = || Route::back_to(source, self.capabilities(source.platform).delivery);
        inbound.answer_to.clone().unwrap_or_else(back)
    }
}

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
        files: None,
        async_delivery: true,
        pace: Duration::ZERO,
        hint: "You are shown as Markdown in a web page or a terminal.".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_delivered_later_depends_on_the_channel_alone() {
        let channels = Channels::new(vec![]);
        for platform in Platform::known() {
            let can = channels.capabilities(platform);
            assert_eq!(
                can.async_delivery,
                !["api_server", "cron"].contains(&platform.as_str()),
                "{platform}"
            );
        }
        assert_eq!(channels.capabilities(Platform::parse("api_server").unwrap()).delivery, Delivery::Pull);
    }
}
