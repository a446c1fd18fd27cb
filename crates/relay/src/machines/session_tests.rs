use alloc::format;
use alloc::string::ToString;
use alloc::vec;

use super::*;

struct SessionFixture {
    session: Session,
    now: Millis,
    terms: SessionPolicy,
}

impl SessionFixture {
    fn new() -> Self {
        Self { session: Session::default(), now: Millis(1_000_000), terms: SessionPolicy::default() }
    }

    /// A session with a backlog, and a socket.
    fn waiting(entries: usize) -> Self {
        let mut fixture = Self::new();
        (1..=entries).for_each(|n| drop(fixture.arrives(&format!("b{n}"))));
        fixture
    }

    fn step(&mut self, event: Event) -> Decision {
        self.session.step(self.now, event, &self.terms)
    }

    fn arrives(&mut self, id: &str) -> Decision {
        let entry = self.entry(id);
        self.step(Event::Arrived(entry))
    }

    fn entry(&self, id: &str) -> Entry {
        let carries = if id.starts_with('f') { Carries::Forward } else { Carries::Inbound };
        Entry { id: id.into(), platform: "discord".into(), carries, size: 100, at: self.now, strikes: 0 }
    }

    fn hello(&mut self, epoch: u64) -> Decision {
        self.step(Event::Hello { epoch, platform: "discord".into() })
    }

    fn ack(&mut self, id: &str) -> Decision {
        self.step(Event::Acked { id: id.into() })
    }

    fn pass(&mut self, span: Duration) -> Decision {
        self.now = self.now.after(span);
        self.step(Event::Tick)
    }
}

/// Ids delivered on this socket.
fn delivered(decision: &Decision, epoch: u64) -> Vec<&str> {
    let of = |effect| match effect {
        &Effect::Deliver { epoch: on, ref id } if on == epoch => Some(id.as_str()),
        _other => None,
    };
    decision.effects.iter().filter_map(of).collect()
}

fn deleted(id: &str) -> Vec<Write> {
    vec![Write::Delete { id: id.to_string() }]
}

#[test]
fn drains_backlog_one_by_one_in_order() {
    let mut fixture = SessionFixture::waiting(3);
    assert_eq!(delivered(&fixture.hello(1), 1), ["b1"]);
    assert_eq!(fixture.session.mode(), Mode::Draining);
    assert_eq!(fixture.arrives("b4").effects, [], "what comes meanwhile waits behind it");
    for (acked, next) in [("b1", "b2"), ("b2", "b3"), ("b3", "b4")] {
        let decision = fixture.ack(acked);
        assert_eq!(decision.writes, deleted(acked));
        assert_eq!(delivered(&decision, 1), [next]);
    }
    assert_eq!(fixture.ack("b4").writes, deleted("b4"));
    assert_eq!(fixture.session.mode(), Mode::Live);
    assert_eq!(delivered(&fixture.arrives("b5"), 1), ["b5"]);
    assert_eq!(delivered(&fixture.arrives("b6"), 1), ["b6"], "the window is open now");
}

#[test]
fn redelivers_unacknowledged_entries_to_next_socket() {
    let mut fixture = SessionFixture::waiting(5);
    fixture.hello(1);
    fixture.ack("b1");
    fixture.ack("b2");
    assert_eq!(fixture.step(Event::Closed { epoch: 1 }), Decision::default());
    assert_eq!(fixture.session.mode(), Mode::Gone);
    assert_eq!(delivered(&fixture.hello(2), 2), ["b3"]);
    assert_eq!(delivered(&fixture.ack("b3"), 2), ["b4"]);
    assert_eq!(delivered(&fixture.ack("b4"), 2), ["b5"]);
}

#[test]
fn grant_follows_all_deliveries() {
    let mut fixture = SessionFixture::waiting(0);
    fixture.hello(1);
    fixture.arrives("b1");
    let decision = fixture.step(Event::GoingIdle { epoch: 1 });
    assert_eq!(decision.writes, [Write::Flip { idle: true }]);
    assert_eq!(decision.effects, [Effect::GrantIdle { epoch: 1 }]);
    assert_eq!(fixture.arrives("b2").effects, [Effect::Poke]);
    assert_eq!(fixture.ack("b1").writes, deleted("b1"), "acknowledgements still count");
    assert_eq!(fixture.step(Event::GoingIdle { epoch: 1 }).effects, [Effect::GrantIdle { epoch: 1 }]);
    fixture.step(Event::Closed { epoch: 1 });
    assert_eq!(fixture.session.mode(), Mode::Idle);
    let decision = fixture.hello(2);
    assert_eq!(decision.writes, [Write::Flip { idle: false }]);
    assert_eq!(delivered(&decision, 2), ["b2"]);
}

#[test]
fn idling_stops_the_drain() {
    let mut fixture = SessionFixture::waiting(3);
    fixture.hello(1);
    assert_eq!(fixture.step(Event::GoingIdle { epoch: 1 }).effects, [Effect::GrantIdle { epoch: 1 }]);
    assert_eq!(fixture.ack("b1").effects, []);
    assert_eq!(delivered(&fixture.hello(1), 1), ["b2"], "a hello on the same socket takes it up again");
}

#[test]
fn newest_socket_takes_over() {
    let mut fixture = SessionFixture::waiting(1);
    fixture.hello(1);
    let decision = fixture.hello(2);
    assert_eq!(decision.effects[0], Effect::Close { epoch: 1, code: close::SUPERSEDED });
    assert_eq!(delivered(&decision, 2), ["b1"]);
    assert_eq!(fixture.step(Event::GoingIdle { epoch: 1 }), Decision::default());
    assert_eq!(fixture.step(Event::Closed { epoch: 1 }), Decision::default());
    assert_eq!(fixture.hello(1), Decision::default());
    assert_eq!(fixture.session.epoch(), Some(2));
    assert_eq!(fixture.ack("b1").writes, deleted("b1"), "whichever socket it came from");
}

#[test]
fn ignores_unknown_acknowledgements() {
    let mut fixture = SessionFixture::waiting(2);
    assert_eq!(fixture.ack("b1"), Decision::default(), "never sent");
    fixture.hello(1);
    assert_eq!(fixture.ack("b2"), Decision::default(), "behind the window");
    assert_eq!(fixture.ack("x"), Decision::default());
    fixture.ack("b1");
    assert_eq!(fixture.ack("b1"), Decision::default(), "twice");
}

#[test]
fn dead_letters_entries_never_acknowledged() {
    let mut fixture = SessionFixture::waiting(2);
    let minute = fixture.terms.ack_within;
    for epoch in 1..5 {
        fixture.hello(epoch);
        assert_eq!(fixture.pass(minute - Duration::from_millis(1)).effects, []);
        let strikes = u32::try_from(epoch).unwrap();
        let decision = fixture.pass(Duration::from_millis(1));
        assert_eq!(decision.writes, [Write::Strike { id: "b1".into(), strikes }]);
        assert_eq!(decision.effects[0], Effect::Close { epoch, code: close::ACK_TIMEOUT });
    }
    fixture.hello(5);
    let decision = fixture.pass(minute);
    assert_eq!(
        decision.writes,
        [Write::DeadLetter { id: "b1".into(), why: DeadLetterReason::NotAcknowledged }]
    );
    assert_eq!(delivered(&decision, 5), ["b2"], "and the queue goes on");
}

#[test]
fn older_gateways_need_not_acknowledge_forwards() {
    let mut fixture = SessionFixture::new();
    fixture.arrives("f1");
    fixture.arrives("b1");
    assert_eq!(delivered(&fixture.hello(1), 1), ["f1"]);
    let decision = fixture.pass(fixture.terms.forward_within);
    assert_eq!((decision.writes.as_slice(), delivered(&decision, 1)), (deleted("f1").as_slice(), vec!["b1"]));
    fixture.ack("b1");
    fixture.arrives("f2");
    assert_eq!(
        fixture
            .session
            .clone()
            .step(fixture.now.after(fixture.terms.forward_within), Event::Tick, &fixture.terms)
            .writes,
        deleted("f2")
    );
    assert_eq!(fixture.ack("f2").writes, deleted("f2"));
    fixture.arrives("f3");
    assert_eq!(fixture.pass(fixture.terms.forward_within).writes, [], "this one does acknowledge them");
}

#[test]
fn events_wait_a_bounded_time_for_their_hello() {
    let mut fixture = SessionFixture::new();
    let telegram = Entry { platform: "telegram".into(), ..fixture.entry("b1") };
    fixture.step(Event::Arrived(telegram));
    fixture.arrives("b2");
    assert_eq!(fixture.hello(1).effects, []);
    assert_eq!(fixture.session.due(&fixture.terms), Some(fixture.now.after(Duration::from_secs(2))));
    let greeted = fixture.session.clone().step(
        fixture.now,
        Event::Hello { epoch: 1, platform: "telegram".into() },
        &fixture.terms,
    );
    assert_eq!(greeted.effects, [Effect::Deliver { epoch: 1, id: "b1".into() }]);
    assert_eq!(delivered(&fixture.pass(Duration::from_secs(2)), 1), ["b1"]);
}

#[test]
fn counts_at_most_32_platforms_of_a_socket() {
    for (platform, at_once) in [("p1", true), ("p32", true), ("p33", false)] {
        let mut fixture = SessionFixture::new();
        (1..=33).for_each(|n| drop(fixture.step(Event::Hello { epoch: 1, platform: format!("p{n}") })));
        let entry = Entry { platform: platform.into(), ..fixture.entry("b1") };
        assert_eq!(!fixture.step(Event::Arrived(entry)).effects.is_empty(), at_once, "{platform}");
    }
}

#[test]
fn keeps_idle_sockets_with_missing_acknowledgements() {
    let mut fixture = SessionFixture::new();
    fixture.hello(1);
    fixture.arrives("b1");
    fixture.step(Event::GoingIdle { epoch: 1 });
    assert_eq!(fixture.session.due(&fixture.terms), Some(fixture.now.after(LOOK_EVERY)), "only to look");
    assert_eq!(fixture.pass(fixture.terms.ack_within), Decision::default());
}

#[test]
fn stops_wake_calls_after_ten_attempts() {
    let mut fixture = SessionFixture::new();
    assert_eq!(fixture.arrives("b1").effects, [Effect::Poke], "never idle, not there either");
    for n in 0..100 {
        assert_eq!(fixture.arrives(&format!("c{n}")).effects, []);
    }
    for _ in 0..9 {
        assert_eq!(fixture.pass(Duration::from_secs(59)).effects, []);
        assert_eq!(fixture.pass(Duration::from_secs(1)).effects, [Effect::Poke]);
    }
    assert_eq!(fixture.pass(Duration::from_secs(60)).effects, []);
    assert_eq!(fixture.session.due(&fixture.terms), Some(fixture.now.after(LOOK_EVERY)), "only to look");
    fixture.hello(1);
    fixture.step(Event::Closed { epoch: 1 });
    assert_eq!(fixture.pass(Duration::from_secs(60)).effects, [Effect::Poke], "an event arrived meanwhile");
}

#[test]
fn full_queue_dead_letters_newest_and_reports_once() {
    let mut fixture = SessionFixture::new();
    fixture.terms.most_entries = 2;
    fixture.arrives("b1");
    fixture.arrives("b2");
    let decision = fixture.arrives("b3");
    assert_eq!(decision.writes, [Write::DeadLetter { id: "b3".into(), why: DeadLetterReason::Full }]);
    assert_eq!(decision.effects, [Effect::Overflowed]);
    assert_eq!(fixture.arrives("b4").effects, []);
    fixture.terms = SessionPolicy { most_bytes: 299, ..SessionPolicy::default() };
    assert_eq!(
        fixture.arrives("b5").writes,
        [Write::DeadLetter { id: "b5".into(), why: DeadLetterReason::Full }]
    );
    let old = |id: &str| Write::DeadLetter { id: id.into(), why: DeadLetterReason::Old };
    for _hour in 1..7 * 24 {
        assert_eq!(fixture.pass(LOOK_EVERY).writes, []);
    }
    assert_eq!(fixture.pass(LOOK_EVERY).writes, [old("b1"), old("b2")]);
    assert_eq!(fixture.session.due(&fixture.terms), None);
    fixture.terms.most_bytes = 200;
    fixture.arrives("b6");
    assert_eq!(fixture.arrives("b7").writes, [Write::Append { id: "b7".into() }], "exactly full");
}

#[test]
fn repeats_wake_call_made_before_gateway_left() {
    let mut fixture = SessionFixture::new();
    fixture.hello(1);
    fixture.step(Event::GoingIdle { epoch: 1 });
    assert_eq!(fixture.arrives("b1").effects, [Effect::Poke], "it may be frozen with its socket open");
    assert_eq!(fixture.arrives("b2").effects, []);
    fixture.step(Event::Closed { epoch: 1 });
    assert_eq!(fixture.pass(Duration::ZERO).effects, [Effect::Poke]);
    assert_eq!(fixture.pass(Duration::from_secs(4)).effects, []);
    assert_eq!(fixture.session.due(&fixture.terms), Some(fixture.now.after(Duration::from_secs(1))));
    assert_eq!(
        fixture.pass(Duration::from_secs(1)).effects,
        [Effect::Poke],
        "it may still have been leaving"
    );
    assert_eq!(fixture.pass(Duration::from_secs(59)).effects, []);
    assert_eq!(fixture.pass(Duration::from_secs(1)).effects, [Effect::Poke], "from then on as usual");
    // A gateway that answered its wake call and left as agreed is woken again at once.
    let mut fixture = SessionFixture::new();
    assert_eq!(fixture.arrives("b1").effects, [Effect::Poke]);
    fixture.hello(1);
    fixture.ack("b1");
    fixture.step(Event::GoingIdle { epoch: 1 });
    fixture.step(Event::Closed { epoch: 1 });
    fixture.pass(Duration::from_secs(1));
    assert_eq!(fixture.arrives("b2").effects, [Effect::Poke]);
    assert_eq!(
        fixture.pass(Duration::from_secs(5)).effects,
        [Effect::Poke],
        "it may still have been leaving"
    );
    assert_eq!(fixture.pass(Duration::from_secs(59)).effects, []);
    // After a longer absence the cooldown applies.
    let mut fixture = SessionFixture::new();
    fixture.hello(1);
    fixture.step(Event::Closed { epoch: 1 });
    fixture.pass(LEAVING);
    assert_eq!(fixture.arrives("b1").effects, [Effect::Poke]);
    assert_eq!(fixture.pass(LEAVING).effects, []);
    // A wake call without an answer does not shorten the cooldown.
    let mut fixture = SessionFixture::new();
    fixture.arrives("b1");
    fixture.hello(1);
    fixture.step(Event::Closed { epoch: 1 });
    assert_eq!(fixture.pass(Duration::from_secs(59)).effects, []);
}

#[test]
fn clock_jumps_neither_age_entries_nor_delay_wakes() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let mut fixture = SessionFixture::new();
    fixture.now = Millis(0).after(DAY * 30);
    fixture.arrives("b1");
    fixture.now = fixture.now.before(DAY);
    assert_eq!(fixture.step(Event::Tick).effects, []);
    assert_eq!(fixture.pass(Duration::from_secs(60)).effects, [Effect::Poke], "a minute is a minute");
    fixture.now = fixture.now.after(DAY * 20);
    assert_eq!(fixture.step(Event::Tick).writes, [], "no entry waited for twenty days");
    assert_eq!(fixture.pass(Duration::from_secs(60)).effects, [Effect::Poke]);
    // Without a backlog any time may pass; then the next wake call is immediate.
    fixture.hello(1);
    fixture.ack("b1");
    fixture.step(Event::Closed { epoch: 1 });
    fixture.now = fixture.now.after(DAY);
    assert_eq!(fixture.arrives("b2").effects, [Effect::Poke]);
    // The same after a clock was set back with an empty queue; acknowledgements are still awaited.
    fixture.now = fixture.now.before(DAY * 3);
    assert_eq!(delivered(&fixture.hello(2), 2), ["b2"]);
    fixture.now = fixture.now.before(DAY);
    fixture.step(Event::Tick);
    let closed = fixture.pass(fixture.terms.ack_within);
    assert!(closed.effects.contains(&Effect::Close { epoch: 2, code: close::ACK_TIMEOUT }), "{closed:?}");
}

#[test]
fn live_events_have_no_buffer_id_unless_durable() {
    let mut fixture = SessionFixture::waiting(1);
    fixture.terms.durable_live = false;
    fixture.hello(1);
    fixture.ack("b1");
    let pass = Effect::Pass { epoch: 1, id: "b2".into() };
    assert_eq!(fixture.arrives("b2"), Decision { writes: vec![], effects: vec![pass] });
    fixture.step(Event::GoingIdle { epoch: 1 });
    assert_eq!(fixture.arrives("b3").writes, [Write::Append { id: "b3".into() }]);
}

#[test]
fn restart_recovers_from_the_store() {
    let fixture = SessionFixture::waiting(3);
    let entries = (1..=3).map(|n| fixture.entry(&format!("b{n}")));
    let mut again = SessionFixture { session: Session::recover(entries, true), ..SessionFixture::new() };
    assert_eq!((again.session.mode(), again.session.backlog()), (Mode::Idle, 3));
    assert_eq!(delivered(&again.hello(1), 1), ["b1"]);
}
