//! Both machines against each other: a thousand events while the gateway idles, sleeps and reconnects, with sockets
//! and processes killed between any two steps.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use proptest::prelude::{ProptestConfig, any, proptest};

use super::channel::{self, Channel, Effect as Ours, State};
use super::session;
use super::session::{Carries, Effect as Theirs, Entry, Event, Session, Write};
use petasos_core::time::Millis;

enum Down {
    Descriptor,
    Inbound { id: String, numbered: bool },
    IdleAck,
}

enum Up {
    Hello,
    Ack(String),
    GoingIdle,
}

/// One connection and the frames in flight. A cut loses all of them.
#[derive(Default)]
struct SimulatedConnection {
    epoch: u64,
    down: VecDeque<Down>,
    up: VecDeque<Up>,
    open: bool,
    /// `down` contains or contained the grant: nothing may follow it.
    granted: bool,
}

struct RaceFixture {
    now: Millis,
    chance: u64,
    channel: Channel,
    session: Session,
    terms: session::SessionPolicy,
    wire: SimulatedConnection,
    epochs: u64,
    /// The connector's disk, by arrival.
    kept: BTreeMap<u64, Entry>,
    idle: bool,
    arrived: u64,
    /// The gateway's disk.
    journal: Vec<String>,
    known: BTreeSet<String>,
    grants: u32,
}

impl RaceFixture {
    fn new(seed: u64, durable_live: bool) -> Self {
        Self {
            now: Millis(1),
            chance: seed | 1,
            channel: Channel::new(false, &channel::ChannelPolicy::default()),
            session: Session::default(),
            terms: session::SessionPolicy { durable_live, ..session::SessionPolicy::default() },
            wire: SimulatedConnection::default(),
            epochs: 0,
            kept: BTreeMap::new(),
            idle: false,
            arrived: 0,
            journal: Vec::new(),
            known: BTreeSet::new(),
            grants: 0,
        }
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance % sides
    }

    fn entry(&self, number: u64) -> Entry {
        let id = name(number);
        let platform = "discord".into();
        Entry { id, platform, carries: Carries::Inbound, size: 1, at: self.now, strikes: 0 }
    }

    fn arrive(&mut self) {
        self.arrived += 1;
        let entry = self.entry(self.arrived);
        self.theirs(Event::Arrived(entry));
    }

    /// The connector commits, then acts.
    fn theirs(&mut self, event: Event) {
        let decision = self.session.step(self.now, event, &self.terms);
        for write in decision.writes {
            match write {
                Write::Append { id } => {
                    let entry = self.entry(number(&id));
                    assert!(self.kept.insert(number(&id), entry).is_none(), "appended twice");
                }
                Write::Delete { id } => assert!(self.kept.remove(&number(&id)).is_some(), "deleted twice"),
                Write::Flip { idle } => self.idle = idle,
                Write::Strike { .. } | Write::DeadLetter { .. } => panic!("nothing is given up here"),
            }
        }
        for effect in decision.effects {
            match effect {
                Theirs::Deliver { epoch, id } => self.send(epoch, Down::Inbound { id, numbered: true }),
                Theirs::Pass { epoch, id } => self.send(epoch, Down::Inbound { id, numbered: false }),
                Theirs::GrantIdle { epoch } => {
                    self.send(epoch, Down::IdleAck);
                    self.wire.granted = true;
                    self.grants += 1;
                }
                Theirs::Poke => {}
                Theirs::Close { .. } | Theirs::Overflowed => panic!("one socket, and room enough"),
            }
        }
    }

    fn send(&mut self, epoch: u64, frame: Down) {
        if epoch == self.wire.epoch && self.wire.open {
            let again = matches!(frame, Down::IdleAck);
            assert!(again || !self.wire.granted, "something was sent behind the grant");
            self.wire.down.push_back(frame);
        }
    }

    fn ours(&mut self, event: channel::Event) {
        let roll = self.roll(1001);
        let terms = channel::ChannelPolicy::default();
        let (channel, effects) = self.channel.clone().step(self.now, roll, event, &terms);
        self.channel = channel;
        for effect in effects {
            match effect {
                Ours::Dial { generation } => {
                    self.epochs += 1;
                    self.wire = SimulatedConnection {
                        epoch: self.epochs,
                        open: true,
                        ..SimulatedConnection::default()
                    };
                    self.ours(channel::Event::Dialled { generation });
                }
                Ours::Hello => self.wire.up.push_back(Up::Hello),
                Ours::GoingIdle => self.wire.up.push_back(Up::GoingIdle),
                Ours::Close => self.cut(),
                Ours::Up | Ours::Answer { .. } | Ours::Abandon => {}
                Ours::GiveUp | Ours::Revoked => panic!("neither end gives up"),
            }
        }
    }

    /// The connector notices that the connection is lost.
    fn cut(&mut self) {
        if core::mem::take(&mut self.wire.open) {
            let epoch = self.wire.epoch;
            self.wire.down.clear();
            self.wire.up.clear();
            self.theirs(Event::Closed { epoch });
        }
    }

    fn gateway_reads(&mut self) {
        let generation = self.channel.generation;
        match self.wire.down.pop_front() {
            None => {}
            Some(Down::Descriptor) => self.ours(channel::Event::Descriptor { generation }),
            Some(Down::IdleAck) => self.ours(channel::Event::IdleAck { generation }),
            Some(Down::Inbound { id, numbered }) => {
                // Stores first, then acknowledges; duplicates are acknowledged again.
                if self.known.insert(id.clone()) {
                    self.journal.push(id.clone());
                }
                if numbered {
                    self.wire.up.push_back(Up::Ack(id));
                }
            }
        }
    }

    fn connector_reads(&mut self) {
        let epoch = self.wire.epoch;
        match self.wire.up.pop_front() {
            None => {}
            Some(Up::Hello) => {
                self.wire.down.push_back(Down::Descriptor);
                self.theirs(Event::Hello { epoch, platform: "discord".into() });
            }
            Some(Up::Ack(id)) => self.theirs(Event::Acked { id }),
            Some(Up::GoingIdle) => self.theirs(Event::GoingIdle { epoch }),
        }
    }

    fn drop_connection(&mut self) {
        if self.wire.open {
            self.cut();
            let generation = self.channel.generation;
            self.ours(channel::Event::Lost { generation, close: None });
        }
    }

    /// The connector crashes and restarts from disk.
    fn connector_dies(&mut self) {
        self.wire.down.clear();
        self.wire.up.clear();
        self.wire.open = false;
        self.session = Session::recover(self.kept.values().cloned(), self.idle);
        let generation = self.channel.generation;
        self.ours(channel::Event::Lost { generation, close: None });
    }

    /// The gateway crashes between storing and acknowledging, and restarts from disk.
    fn gateway_dies(&mut self) {
        if let Some(Down::Inbound { id, numbered: true }) = self.wire.down.pop_front()
            && self.known.insert(id.clone())
        {
            self.journal.push(id);
        }
        self.cut();
        self.channel = Channel::new(false, &channel::ChannelPolicy::default());
        self.ours(channel::Event::Connect);
    }

    fn advance(&mut self) {
        self.now = self.now.after(Duration::from_millis(200));
        self.ours(channel::Event::Tick);
        self.theirs(Event::Tick);
    }

    fn anything(&mut self, deaths: bool) {
        match self.roll(100) {
            0..=24 => self.arrive(),
            25..=54 => self.gateway_reads(),
            55..=84 => self.connector_reads(),
            85..=89 => self.ours(channel::Event::GoIdle { wait: Duration::from_millis(500) }),
            90..=92 => self.ours(channel::Event::Sleep { hold: None }),
            93 => self.ours(channel::Event::Wake),
            94 if deaths => self.drop_connection(),
            95 if deaths => self.connector_dies(),
            96 if deaths => self.gateway_dies(),
            _time => self.advance(),
        }
    }

    /// Runs everything to completion.
    fn settle(&mut self) {
        for _ in 0..20_000 {
            self.gateway_reads();
            self.connector_reads();
            if self.wire.down.is_empty() && self.wire.up.is_empty() {
                if self.kept.is_empty() && matches!(self.channel.state, State::Serving { .. }) {
                    return;
                }
                self.ours(channel::Event::Wake);
                self.advance();
            }
        }
        panic!("{} entries never arrived: {:?}", self.kept.len(), self.channel);
    }
}

fn name(number: u64) -> String {
    format!("b{number}")
}

fn number(id: &str) -> u64 {
    id[1..].parse().unwrap()
}

fn race(seed: u64, durable_live: bool, deaths: bool) {
    let mut fixture = RaceFixture::new(seed, durable_live);
    fixture.ours(channel::Event::Connect);
    while fixture.arrived < 1_000 {
        fixture.anything(deaths);
    }
    fixture.settle();
    let want: Vec<_> = (1..=1_000).map(name).collect();
    assert_eq!(fixture.journal, want, "every event once, and in order");
    assert!(fixture.grants > 5, "the race was run: {}", fixture.grants);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn delivers_thousand_events_in_order_while_idling(seed in any::<u64>()) {
        race(seed, true, false);
    }

    #[test]
    fn delivers_thousand_events_despite_crashes(seed in any::<u64>()) {
        race(seed, true, true);
    }

    #[test]
    fn idling_loses_no_events_without_buffer_ids(seed in any::<u64>()) {
        race(seed, false, false);
    }
}
