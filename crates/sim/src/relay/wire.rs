//! One connection: what is said arrives late and in order, or not at all. Each end learns of the other's end by itself.

use petasos_core::Millis;
use petasos_relay::channel;

use super::Event;
use crate::sim::{Flow, Sim};

#[derive(Debug)]
pub(super) struct Wire {
    /// Of the gateway: its process, and its number for this connection.
    life: u32,
    pub(super) generation: u64,
    /// Of the connector: its process, and its number since the first hello.
    their_life: u32,
    pub(super) epoch: Option<u64>,
    /// Which ends are open.
    ours: bool,
    theirs: bool,
    /// Nothing crosses any more.
    cut: bool,
    /// When the last thing said arrives.
    up_at: Millis,
    down_at: Millis,
    /// The grant has been said: nothing may follow it.
    pub(super) granted: bool,
}

impl Wire {
    pub(super) fn is_whole(&self) -> bool {
        !self.cut && self.ours && self.theirs
    }
}

impl Sim {
    pub(super) fn string_wire(&mut self, generation: u64) -> u64 {
        let wire = Wire {
            life: self.life,
            generation,
            their_life: self.relay.life,
            epoch: None,
            ours: true,
            theirs: true,
            cut: false,
            up_at: self.time,
            down_at: self.time,
            granted: false,
        };
        let number = self.relay.number();
        self.relay.wires.insert(number, wire);
        number
    }

    pub(super) fn say_up(&mut self, wire: u64, line: String) {
        let Some(at) = self.crossing(wire, |wire| wire.ours.then_some(&mut wire.up_at)) else { return };
        self.relay_later(Event::Up { wire, line }, at);
    }

    pub(super) fn say_down(&mut self, wire: u64, line: String) {
        let Some(at) = self.crossing(wire, |wire| wire.theirs.then_some(&mut wire.down_at)) else { return };
        self.relay_later(Event::Down { wire, line }, at);
    }

    /// In how many milliseconds it arrives, behind everything that was said before it.
    fn crossing(&mut self, wire: u64, clock: impl Fn(&mut Wire) -> Option<&mut Millis>) -> Option<u64> {
        let mut takes = self.luck.between(1, 300);
        if self.fails(self.plan.wire_odds) {
            match self.luck.below(3) {
                0 => {
                    // It stands, and is slow.
                    takes += self.luck.between(1_000, 90_000);
                    self.relay.stalls += 1;
                }
                _ => self.cut(wire),
            }
        }
        let now = self.time;
        let at = clock(self.relay.wires.get_mut(&wire)?)?;
        *at = Millis(now.0 + takes).max(Millis(at.0 + 1));
        Some(at.0 - now.0)
    }

    /// Nobody says goodbye: both ends find out, in their time.
    fn cut(&mut self, wire: u64) {
        let Some(found) = self.relay.wires.get_mut(&wire) else { return };
        if std::mem::replace(&mut found.cut, true) {
            return;
        }
        self.relay_soon(Event::DownOver { wire, code: None }, 10, 60_000);
        self.relay_soon(Event::UpOver { wire }, 10, 60_000);
    }

    /// We close it: what we said before arrives, and then the news.
    pub(super) fn close_ours(&mut self, wire: u64) {
        let now = self.time;
        let Some(found) = self.relay.wires.get_mut(&wire).filter(|wire| wire.ours) else { return };
        found.ours = false;
        if !found.cut {
            let at = found.up_at.0.max(now.0) - now.0 + 1;
            self.relay_later(Event::UpOver { wire }, at);
        }
        self.forget(wire);
    }

    pub(super) fn close_theirs(&mut self, wire: u64, code: Option<u16>) {
        let now = self.time;
        let Some(found) = self.relay.wires.get_mut(&wire).filter(|wire| wire.theirs) else { return };
        found.theirs = false;
        if !found.cut {
            let at = found.down_at.0.max(now.0) - now.0 + 1;
            self.relay_later(Event::DownOver { wire, code }, at);
        }
        self.forget(wire);
    }

    /// The gateway's process is gone. The system closes its sockets, unless the machine went with it.
    pub(crate) fn our_end_died(&mut self) {
        let life = self.life;
        let open = |wire: &Wire| wire.ours && wire.life == life;
        let mine: Vec<_> = self.relay.wires.iter().filter(|(_, it)| open(it)).map(|(n, _)| *n).collect();
        for wire in mine {
            if self.luck.odds(200) {
                self.cut(wire);
            }
            self.close_ours(wire);
        }
    }

    pub(crate) fn their_end_died(&mut self) {
        let life = self.relay.life;
        let open = |wire: &Wire| wire.theirs && wire.their_life == life;
        let all: Vec<_> = self.relay.wires.iter().filter(|(_, it)| open(it)).map(|(n, _)| *n).collect();
        for wire in all {
            if self.luck.odds(200) {
                self.cut(wire);
            }
            self.close_theirs(wire, None);
        }
    }

    fn forget(&mut self, wire: u64) {
        if self.relay.wires.get(&wire).is_some_and(|wire| !wire.ours && !wire.theirs) {
            self.relay.wires.remove(&wire);
        }
    }

    pub(super) fn crossed_up(&mut self, wire: u64, line: &str) -> Flow {
        let there = self.relay.wires.get(&wire).is_some_and(|it| it.theirs && !it.cut);
        if there { self.their_line(wire, line) } else { Ok(()) }
    }

    pub(super) fn crossed_down(&mut self, wire: u64, line: &str) -> Flow {
        let here = self.relay.wires.get(&wire).is_some_and(|it| it.ours && !it.cut);
        if here { self.our_line(wire, line) } else { Ok(()) }
    }

    pub(super) fn up_over(&mut self, wire: u64) -> Flow {
        let Some(found) = self.relay.wires.get_mut(&wire).filter(|wire| wire.theirs) else { return Ok(()) };
        found.theirs = false;
        let epoch = found.epoch;
        self.forget(wire);
        self.their_wire_ended(epoch);
        Ok(())
    }

    pub(super) fn down_over(&mut self, wire: u64, code: Option<u16>) -> Flow {
        let Some(found) = self.relay.wires.get_mut(&wire).filter(|wire| wire.ours) else { return Ok(()) };
        found.ours = false;
        let generation = found.generation;
        self.forget(wire);
        let close = code.map(|code| channel::Closed { code, expired: false });
        self.our_wire_ended(wire, generation, close)
    }
}
