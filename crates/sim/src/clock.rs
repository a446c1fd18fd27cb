//! Clocks that somebody sets. Time itself goes on; what was to happen in ten seconds does, whatever the wall shows.

use petasos_core::Millis;

use crate::shell::Event;
use crate::sim::{Flow, Sim, Whose};
use petasos_runtime::simulation::rng::Rng;

/// Two clocks never drift apart by this much on their own (`network.rs`).
const JUMP: i64 = 30_000;
/// How often that is looked at.
const LOOK: u64 = 5_000;
/// A waiting lane looks again after this long (`deliver/lane.rs`).
const LANE_LOOK: u64 = 60_000;

/// Seconds, minutes, hours; forward or back. `near`: no hours, for what waits for the clock itself.
pub(crate) fn jump(script: &mut Rng, near: bool) -> i64 {
    let far = if near { 600_000 } else { 12 * 3_600_000 };
    let longest = script.pick(&[25_000, 600_000, far]);
    let by = i64::try_from(script.between(500, longest)).unwrap_or_default();
    if script.odds(500) { by } else { -by }
}

impl Sim {
    pub(crate) fn set_clock(&mut self, whose: Whose, by: i64) {
        self.figures.jumps += 1;
        match whose {
            Whose::Ours => self.ahead += by,
            Whose::Theirs => self.their_ahead += by,
        }
        self.read_clock();
        if whose == Whose::Theirs || self.process.is_none() {
            return;
        }
        self.cron_soon(); // the kernel tells
        let life = self.life;
        if by.abs() > JUMP {
            self.soon(Event::Jumped { life }, 0, LOOK);
        }
        for lane in self.p().lanes.keys().cloned().collect::<Vec<_>>() {
            self.soon(Event::LaneLook { life, lane }, 0, LANE_LOOK);
        }
    }

    pub(crate) fn read_clock(&mut self) {
        self.now = shown(self.time, self.ahead);
    }

    /// The connector's clock on the wall.
    pub(crate) fn their_now(&self) -> Millis {
        shown(self.time, self.their_ahead)
    }

    /// `network::watch`: every link is tried anew.
    pub(crate) fn jumped(&mut self) -> Flow {
        for platform in self.p().lines.keys().copied().collect::<Vec<_>>() {
            self.feed_link(platform, petasos_core::link::Event::Retry)?;
        }
        Ok(())
    }

    pub(crate) fn lane_look(&mut self, name: &str) -> Flow {
        let now = self.now;
        if let Some(lane) = self.p().lanes.get_mut(name) {
            lane.due_at = lane.due_at.map(|_| now);
        }
        self.lane_tick(name)
    }
}

fn shown(time: Millis, ahead: i64) -> Millis {
    Millis(time.0.saturating_add_signed(ahead))
}
