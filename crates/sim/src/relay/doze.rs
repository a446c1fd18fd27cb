//! `doze.rs` of the gateway: sleeping when there is nothing to do, and being woken.

use std::time::Duration;

use petasos_core::lifecycle::Leave;
use petasos_relay::channel::{self, State};
use petasos_relay::idle::{Work, is_idle};

use super::Event;
use crate::outside::Class;
use crate::sim::{Flow, Sim};

const GRANTED_WITHIN: Duration = Duration::from_secs(10);
/// Nobody dials while a process ends, or a machine tries to sleep.
const HOLD: Duration = Duration::from_secs(60);
const UNTIL_GONE: Duration = Duration::from_secs(3600);

impl Sim {
    pub(super) fn doze(&mut self) -> Flow {
        let Some(doze) = self.plan.doze else { return Ok(()) };
        self.relay_later(Event::Doze { life: self.life }, doze.tick);
        if self.is_calm() || !self.is_due() {
            return Ok(());
        }
        self.feed_channel(channel::Event::GoIdle { wait: GRANTED_WITHIN })
    }

    /// A stop begins: what comes from now on is for the process after us.
    pub(crate) fn go_idle(&mut self) -> Flow {
        if !self.plan.relayed {
            return Ok(());
        }
        self.feed_channel(channel::Event::GoIdle { wait: GRANTED_WITHIN })
    }

    fn is_due(&mut self) -> bool {
        let Some(doze) = self.plan.doze else { return false };
        let now = self.now;
        let process = self.p();
        let up = process.lines.get(&Class::Relayed.platform()).is_some_and(|line| line.is_up());
        let (store, active) = (&process.store, !process.gate.holders.is_empty());
        let work = || -> petasos_store::Result<Work> {
            let owed = store.outbox_counts()?;
            Ok(Work {
                turns: active || !store.keys_with_work()?.is_empty(),
                owed: owed.due + owed.sending + owed.streaming > 0,
                completions: !store.queued_completions()?.is_empty(),
                processes: false,
                jobs: store.jobs()?.iter().any(|(_, next)| next.is_some()),
            })
        };
        let serving = matches!(process.near.channel.state, State::Serving { .. });
        let after = Duration::from_millis(doze.after);
        up && serving && process.stop.is_none() && is_idle(work().ok(), process.near.traffic, now, after)
    }

    /// Granted, and everything that came before the grant is on disk.
    pub(super) fn lie_down(&mut self) -> Flow {
        if self.p().stop.is_some() {
            return Ok(()); // we leave anyway
        }
        let Some(doze) = self.plan.doze.filter(|_| !self.is_calm() && self.is_due()) else {
            return self.feed_channel(channel::Event::Wake);
        };
        let hold = if doze.exits { UNTIL_GONE } else { HOLD };
        self.feed_channel(channel::Event::Sleep { hold: Some(hold) })?;
        if !matches!(self.p().near.channel.state, State::Waiting { dormant: true, .. }) {
            return Ok(());
        }
        self.figures.sleeps += 1;
        if !doze.exits {
            // The machine did not fall asleep, or is awake again.
            self.relay_soon(Event::Wake { life: self.life }, 200, 20_000);
            return Ok(());
        }
        self.leave(Leave::Stop)?;
        if let Some(stop) = &mut self.p().stop {
            stop.sleeps = true;
        }
        Ok(())
    }

    /// Whoever runs the process starts it, if it is gone. One that is just leaving does not hear it.
    pub(super) fn poked(&mut self) -> Flow {
        if !self.fails(self.plan.poll_odds) && self.process.is_none() && std::mem::take(&mut self.asleep) {
            self.soon(crate::shell::Event::Boot, 200, 8_000);
        }
        Ok(())
    }
}
