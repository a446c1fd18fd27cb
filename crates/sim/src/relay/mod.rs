//! The relay, both ends of it: the gateway's channel and the connector's session are the real machines, the queue is
//! the connector's real SQL on a file of its own, and every line is written and read as it is in life.
//!
//! `wire.rs` lies between the two; it survives neither of them. `near.rs` and `doze.rs` follow `platforms/relay` and
//! the gateway's `doze.rs`; `connector.rs` and `outbound.rs` follow `crates/connector`.

mod connector;
mod doze;
mod near;
mod outbound;
mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::outside::About;
use crate::sim::{Flow, Sim};
pub(crate) use connector::Connector;
pub(crate) use near::Near;
pub(crate) use outbound::Request;
use wire::Wire;

/// What is fronted, as it is called on the wire.
const PLATFORM: &str = "slack";
const BOT: &str = "bot";
/// Whose queue it is.
const INSTANCE: &str = "i1";

/// What lies outside the gateway.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) connector: Option<Connector>,
    /// Of the connector's process.
    pub(crate) life: u32,
    wires: BTreeMap<u64, Wire>,
    /// Wires, numbers of entries and of questions that were given out.
    made: u64,
    /// What the questions under way are about, as only the simulation knows.
    abouts: BTreeMap<String, About>,
    /// Which message each entry of the queue is.
    entries: BTreeMap<String, usize>,
    /// How often a wire stood and was slow.
    stalls: u32,
    path: PathBuf,
}

impl Relay {
    pub(crate) fn new(path: PathBuf) -> Self {
        let (wires, abouts, entries) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { connector: None, life: 1, wires, made: 0, abouts, entries, stalls: 0, path }
    }

    fn number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// Nothing waits here for anybody.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.connector.as_ref().is_some_and(Connector::is_at_rest)
    }
}

/// Things that happen between the two, and at either end.
#[derive(Debug)]
pub(crate) enum Event {
    /// A line has crossed, towards the connector or towards us.
    Up {
        wire: u64,
        line: String,
    },
    Down {
        wire: u64,
        line: String,
    },
    /// An end learns that the other is gone.
    UpOver {
        wire: u64,
    },
    DownOver {
        wire: u64,
        code: Option<u16>,
    },
    // of the gateway's process
    Dialled {
        life: u32,
        generation: u64,
    },
    Tick {
        life: u32,
    },
    Keep {
        life: u32,
    },
    Beat {
        life: u32,
    },
    Unanswered {
        life: u32,
        request: String,
        op: u64,
    },
    Doze {
        life: u32,
    },
    Wake {
        life: u32,
    },
    // of the connector's
    Start,
    Poll {
        life: u32,
    },
    Polled {
        life: u32,
        batch: Vec<usize>,
    },
    Turn {
        life: u32,
    },
    Reach(Box<Request>),
    Answered(Box<Request>, crate::outside::Answer),
    /// Somebody calls the address that wakes the gateway.
    Poke,
}

impl Sim {
    pub(crate) fn relay_event(&mut self, event: Event) -> Flow {
        let here = |sim: &Self, life| life == sim.life && sim.process.is_some();
        let there = |sim: &Self, life| life == sim.relay.life && sim.relay.connector.is_some();
        match event {
            Event::Up { wire, line } => self.crossed_up(wire, &line),
            Event::Down { wire, line } => self.crossed_down(wire, &line),
            Event::UpOver { wire } => self.up_over(wire),
            Event::DownOver { wire, code } => self.down_over(wire, code),
            Event::Dialled { life, generation } if here(self, life) => self.dialled(generation),
            Event::Tick { life } if here(self, life) => {
                self.feed_channel(petasos_relay::channel::Event::Tick)?;
                self.settle()
            }
            Event::Keep { life } if here(self, life) => self.keep_told(),
            Event::Beat { life } if here(self, life) => self.beat(),
            Event::Unanswered { life, request, op } if here(self, life) => self.unanswered(&request, op),
            Event::Doze { life } if here(self, life) => self.doze(),
            Event::Wake { life } if here(self, life) => {
                self.feed_channel(petasos_relay::channel::Event::Wake)
            }
            Event::Start => self.start_connector(),
            Event::Poll { life } if there(self, life) => self.their_poll(),
            Event::Polled { life, batch } if there(self, life) => self.their_polled(batch),
            Event::Turn { life } if there(self, life) => self.their_turn(),
            Event::Reach(request) => self.their_reach(*request),
            Event::Answered(request, answer) if there(self, request.life) => {
                self.their_answer(*request, answer)
            }
            Event::Poke => self.poked(),
            Event::Dialled { .. }
            | Event::Tick { .. }
            | Event::Keep { .. }
            | Event::Beat { .. }
            | Event::Unanswered { .. }
            | Event::Doze { .. }
            | Event::Wake { .. }
            | Event::Poll { .. }
            | Event::Polled { .. }
            | Event::Turn { .. }
            | Event::Answered(..) => Ok(()), // of a life before
        }
    }

    pub(crate) fn relay_soon(&mut self, event: Event, first: u64, last: u64) {
        self.soon(crate::shell::Event::Relay(event), first, last);
    }

    fn relay_later(&mut self, event: Event, millis: u64) {
        self.later(crate::shell::Event::Relay(event), millis);
    }
}
