use alloc::format;
use alloc::string::ToString;
use alloc::vec;

use super::*;

struct Rig {
    session: Session,
    now: Millis,
    terms: Terms,
}

impl Rig {
    fn new() -> Self {
        Self { session: Session::default(), now: Millis(1_000_000), terms: Terms::default() }
    }

    /// A backlog and then a socket.
    fn waiting(entries: usize) -> Self {
        let mut rig = Self::new();
        (1..=entries).for_each(|n| drop(rig.arrives(&format!("b{n}"))));
        rig
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

/// The numbers that were delivered on this socket.
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
fn a_backlog_leaves_one_by_one_and_in_order() {
    let mut rig = Rig::waiting(3);
    assert_eq!(delivered(&rig.hello(1), 1), ["b1"]);
    assert_eq!(rig.session.mode(), Mode::Draining);
    assert_eq!(rig.arrives("b4").effects, [], "what comes meanwhile waits behind it");
    for (acked, next) in [("b1", "b2"), ("b2", "b3"), ("b3", "b4")] {
        let decision = rig.ack(acked);
        assert_eq!(decision.writes, deleted(acked));
        assert_eq!(delivered(&decision, 1), [next]);
    }
    assert_eq!(rig.ack("b4").writes, deleted("b4"));
    assert_eq!(rig.session.mode(), Mode::Live);
    assert_eq!(delivered(&rig.arrives("b5"), 1), ["b5"]);
    assert_eq!(delivered(&rig.arrives("b6"), 1), ["b6"], "the window is open now");
}

#[test]
fn what_was_not_acknowledged_goes_to_the_next_socket_under_its_number() {
    let mut rig = Rig::waiting(5);
    rig.hello(1);
    rig.ack("b1");
    rig.ack("b2");
    assert_eq!(rig.step(Event::Closed { epoch: 1 }), Decision::default());
    assert_eq!(rig.session.mode(), Mode::Gone);
    assert_eq!(delivered(&rig.hello(2), 2), ["b3"]);
    assert_eq!(delivered(&rig.ack("b3"), 2), ["b4"]);
    assert_eq!(delivered(&rig.ack("b4"), 2), ["b5"]);
}

#[test]
fn the_grant_is_behind_what_was_sent_and_before_nothing() {
    let mut rig = Rig::waiting(0);
    rig.hello(1);
    rig.arrives("b1");
    let decision = rig.step(Event::GoingIdle { epoch: 1 });
    assert_eq!(decision.writes, [Write::Flip { idle: true }]);
    assert_eq!(decision.effects, [Effect::GrantIdle { epoch: 1 }]);
    assert_eq!(rig.arrives("b2").effects, [Effect::Poke]);
    assert_eq!(rig.ack("b1").writes, deleted("b1"), "acknowledgements still count");
    assert_eq!(rig.step(Event::GoingIdle { epoch: 1 }).effects, [Effect::GrantIdle { epoch: 1 }]);
    rig.step(Event::Closed { epoch: 1 });
    assert_eq!(rig.session.mode(), Mode::Idle);
    let decision = rig.hello(2);
    assert_eq!(decision.writes, [Write::Flip { idle: false }]);
    assert_eq!(delivered(&decision, 2), ["b2"]);
}

#[test]
fn idling_while_it_drains_stops_the_drain() {
    let mut rig = Rig::waiting(3);
    rig.hello(1);
    assert_eq!(rig.step(Event::GoingIdle { epoch: 1 }).effects, [Effect::GrantIdle { epoch: 1 }]);
    assert_eq!(rig.ack("b1").effects, []);
    assert_eq!(delivered(&rig.hello(1), 1), ["b2"], "a hello on the same socket takes it up again");
}

#[test]
fn the_newest_socket_counts() {
    let mut rig = Rig::waiting(1);
    rig.hello(1);
    let decision = rig.hello(2);
    assert_eq!(decision.effects[0], Effect::Close { epoch: 1, code: close::SUPERSEDED });
    assert_eq!(delivered(&decision, 2), ["b1"]);
    assert_eq!(rig.step(Event::GoingIdle { epoch: 1 }), Decision::default());
    assert_eq!(rig.step(Event::Closed { epoch: 1 }), Decision::default());
    assert_eq!(rig.hello(1), Decision::default());
    assert_eq!(rig.session.epoch(), Some(2));
    assert_eq!(rig.ack("b1").writes, deleted("b1"), "whichever socket it came from");
}

#[test]
fn acknowledgements_of_nothing_change_nothing() {
    let mut rig = Rig::waiting(2);
    assert_eq!(rig.ack("b1"), Decision::default(), "never sent");
    rig.hello(1);
    assert_eq!(rig.ack("b2"), Decision::default(), "behind the window");
    assert_eq!(rig.ack("x"), Decision::default());
    rig.ack("b1");
    assert_eq!(rig.ack("b1"), Decision::default(), "twice");
}

#[test]
fn an_entry_that_is_never_acknowledged_ends_as_a_dead_letter() {
    let mut rig = Rig::waiting(2);
    let minute = rig.terms.ack_within;
    for epoch in 1..5 {
        rig.hello(epoch);
        assert_eq!(rig.pass(minute - Duration::from_millis(1)).effects, []);
        let strikes = u32::try_from(epoch).unwrap();
        let decision = rig.pass(Duration::from_millis(1));
        assert_eq!(decision.writes, [Write::Strike { id: "b1".into(), strikes }]);
        assert_eq!(decision.effects[0], Effect::Close { epoch, code: close::ACK_TIMEOUT });
    }
    rig.hello(5);
    let decision = rig.pass(minute);
    assert_eq!(decision.writes, [Write::Bury { id: "b1".into(), why: Buried::NotAcknowledged }]);
    assert_eq!(delivered(&decision, 5), ["b2"], "and the queue goes on");
}

#[test]
fn an_older_gateway_need_not_acknowledge_forwards() {
    let mut rig = Rig::new();
    rig.arrives("f1");
    rig.arrives("b1");
    assert_eq!(delivered(&rig.hello(1), 1), ["f1"]);
    let decision = rig.pass(rig.terms.forward_within);
    assert_eq!((decision.writes.as_slice(), delivered(&decision, 1)), (deleted("f1").as_slice(), vec!["b1"]));
    rig.ack("b1");
    rig.arrives("f2");
    assert_eq!(
        rig.session.clone().step(rig.now.after(rig.terms.forward_within), Event::Tick, &rig.terms).writes,
        deleted("f2")
    );
    assert_eq!(rig.ack("f2").writes, deleted("f2"));
    rig.arrives("f3");
    assert_eq!(rig.pass(rig.terms.forward_within).writes, [], "this one does acknowledge them");
}

#[test]
fn an_event_waits_for_the_hello_of_its_platform_but_not_for_ever() {
    let mut rig = Rig::new();
    let telegram = Entry { platform: "telegram".into(), ..rig.entry("b1") };
    rig.step(Event::Arrived(telegram));
    rig.arrives("b2");
    assert_eq!(rig.hello(1).effects, []);
    assert_eq!(rig.session.due(&rig.terms), Some(rig.now.after(Duration::from_secs(2))));
    let greeted =
        rig.session.clone().step(rig.now, Event::Hello { epoch: 1, platform: "telegram".into() }, &rig.terms);
    assert_eq!(greeted.effects, [Effect::Deliver { epoch: 1, id: "b1".into() }]);
    assert_eq!(delivered(&rig.pass(Duration::from_secs(2)), 1), ["b1"]);
}

#[test]
fn counts_at_most_32_platforms_of_a_socket() {
    for (platform, at_once) in [("p1", true), ("p32", true), ("p33", false)] {
        let mut rig = Rig::new();
        (1..=33).for_each(|n| drop(rig.step(Event::Hello { epoch: 1, platform: format!("p{n}") })));
        let entry = Entry { platform: platform.into(), ..rig.entry("b1") };
        assert_eq!(!rig.step(Event::Arrived(entry)).effects.is_empty(), at_once, "{platform}");
    }
}

#[test]
fn an_idle_socket_is_not_closed_for_missing_acknowledgements() {
    let mut rig = Rig::new();
    rig.hello(1);
    rig.arrives("b1");
    rig.step(Event::GoingIdle { epoch: 1 });
    assert_eq!(rig.session.due(&rig.terms), Some(rig.now.after(LOOK_EVERY)), "only to look");
    assert_eq!(rig.pass(rig.terms.ack_within), Decision::default());
}

#[test]
fn one_call_wakes_and_nobody_is_called_more_than_ten_times() {
    let mut rig = Rig::new();
    assert_eq!(rig.arrives("b1").effects, [Effect::Poke], "never idle, not there either");
    for n in 0..100 {
        assert_eq!(rig.arrives(&format!("c{n}")).effects, []);
    }
    for _ in 0..9 {
        assert_eq!(rig.pass(Duration::from_secs(59)).effects, []);
        assert_eq!(rig.pass(Duration::from_secs(1)).effects, [Effect::Poke]);
    }
    assert_eq!(rig.pass(Duration::from_secs(60)).effects, []);
    assert_eq!(rig.session.due(&rig.terms), Some(rig.now.after(LOOK_EVERY)), "only to look");
    rig.hello(1);
    rig.step(Event::Closed { epoch: 1 });
    assert_eq!(rig.pass(Duration::from_secs(60)).effects, [Effect::Poke], "somebody came meanwhile");
}

#[test]
fn a_full_queue_puts_the_newest_aside_and_says_so_once() {
    let mut rig = Rig::new();
    rig.terms.most_entries = 2;
    rig.arrives("b1");
    rig.arrives("b2");
    let decision = rig.arrives("b3");
    assert_eq!(decision.writes, [Write::Bury { id: "b3".into(), why: Buried::Full }]);
    assert_eq!(decision.effects, [Effect::Overflowed]);
    assert_eq!(rig.arrives("b4").effects, []);
    rig.terms = Terms { most_bytes: 299, ..Terms::default() };
    assert_eq!(rig.arrives("b5").writes, [Write::Bury { id: "b5".into(), why: Buried::Full }]);
    let old = |id: &str| Write::Bury { id: id.into(), why: Buried::Old };
    for _hour in 1..7 * 24 {
        assert_eq!(rig.pass(LOOK_EVERY).writes, []);
    }
    assert_eq!(rig.pass(LOOK_EVERY).writes, [old("b1"), old("b2")]);
    assert_eq!(rig.session.due(&rig.terms), None);
    rig.terms.most_bytes = 200;
    rig.arrives("b6");
    assert_eq!(rig.arrives("b7").writes, [Write::Append { id: "b7".into() }], "exactly full");
}

#[test]
fn whoever_was_called_before_they_had_left_is_called_again_when_they_have() {
    let mut rig = Rig::new();
    rig.hello(1);
    rig.step(Event::GoingIdle { epoch: 1 });
    assert_eq!(rig.arrives("b1").effects, [Effect::Poke], "it may be frozen with its socket open");
    assert_eq!(rig.arrives("b2").effects, []);
    rig.step(Event::Closed { epoch: 1 });
    assert_eq!(rig.pass(Duration::ZERO).effects, [Effect::Poke]);
    assert_eq!(rig.pass(Duration::from_secs(4)).effects, []);
    assert_eq!(rig.session.due(&rig.terms), Some(rig.now.after(Duration::from_secs(1))));
    assert_eq!(rig.pass(Duration::from_secs(1)).effects, [Effect::Poke], "it may still have been leaving");
    assert_eq!(rig.pass(Duration::from_secs(59)).effects, []);
    assert_eq!(rig.pass(Duration::from_secs(1)).effects, [Effect::Poke], "from then on as usual");
    // Whoever came when they were called, and left as agreed, is called at once when something comes.
    let mut rig = Rig::new();
    assert_eq!(rig.arrives("b1").effects, [Effect::Poke]);
    rig.hello(1);
    rig.ack("b1");
    rig.step(Event::GoingIdle { epoch: 1 });
    rig.step(Event::Closed { epoch: 1 });
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.arrives("b2").effects, [Effect::Poke]);
    assert_eq!(rig.pass(Duration::from_secs(5)).effects, [Effect::Poke], "it may still have been leaving");
    assert_eq!(rig.pass(Duration::from_secs(59)).effects, []);
    // One that left longer ago is not called sooner.
    let mut rig = Rig::new();
    rig.hello(1);
    rig.step(Event::Closed { epoch: 1 });
    rig.pass(LEAVING);
    assert_eq!(rig.arrives("b1").effects, [Effect::Poke]);
    assert_eq!(rig.pass(LEAVING).effects, []);
    // One that was called when nobody was there, and did not stay, is not called sooner.
    let mut rig = Rig::new();
    rig.arrives("b1");
    rig.hello(1);
    rig.step(Event::Closed { epoch: 1 });
    assert_eq!(rig.pass(Duration::from_secs(59)).effects, []);
}

#[test]
fn a_clock_that_is_set_makes_nothing_old_and_keeps_nobody_asleep() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let mut rig = Rig::new();
    rig.now = Millis(0).after(DAY * 30);
    rig.arrives("b1");
    rig.now = rig.now.before(DAY);
    assert_eq!(rig.step(Event::Tick).effects, []);
    assert_eq!(rig.pass(Duration::from_secs(60)).effects, [Effect::Poke], "a minute is a minute");
    rig.now = rig.now.after(DAY * 20);
    assert_eq!(rig.step(Event::Tick).writes, [], "nobody has waited for twenty days");
    assert_eq!(rig.pass(Duration::from_secs(60)).effects, [Effect::Poke]);
    // With nothing that waits, days may pass; then the next one is called for at once.
    rig.hello(1);
    rig.ack("b1");
    rig.step(Event::Closed { epoch: 1 });
    rig.now = rig.now.after(DAY);
    assert_eq!(rig.arrives("b2").effects, [Effect::Poke]);
    // So it is behind a clock that was set back while nothing waited, and an acknowledgement is still waited for.
    rig.now = rig.now.before(DAY * 3);
    assert_eq!(delivered(&rig.hello(2), 2), ["b2"]);
    rig.now = rig.now.before(DAY);
    rig.step(Event::Tick);
    let closed = rig.pass(rig.terms.ack_within);
    assert!(closed.effects.contains(&Effect::Close { epoch: 2, code: close::ACK_TIMEOUT }), "{closed:?}");
}

#[test]
fn without_durable_live_what_is_live_has_no_number() {
    let mut rig = Rig::waiting(1);
    rig.terms.durable_live = false;
    rig.hello(1);
    rig.ack("b1");
    let pass = Effect::Pass { epoch: 1, id: "b2".into() };
    assert_eq!(rig.arrives("b2"), Decision { writes: vec![], effects: vec![pass] });
    rig.step(Event::GoingIdle { epoch: 1 });
    assert_eq!(rig.arrives("b3").writes, [Write::Append { id: "b3".into() }]);
}

#[test]
fn a_restart_goes_on_from_the_store() {
    let rig = Rig::waiting(3);
    let entries = (1..=3).map(|n| rig.entry(&format!("b{n}")));
    let mut again = Rig { session: Session::recover(entries, true), ..Rig::new() };
    assert_eq!((again.session.mode(), again.session.backlog()), (Mode::Idle, 3));
    assert_eq!(delivered(&again.hello(1), 1), ["b1"]);
}
