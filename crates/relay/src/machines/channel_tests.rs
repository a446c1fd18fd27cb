use super::*;

const FULL: u64 = 0;

struct Rig {
    channel: Channel,
    now: Millis,
    terms: Terms,
}

impl Rig {
    fn new() -> Self {
        Self { channel: Channel::new(false, &Terms::default()), now: Millis(1_000), terms: Terms::default() }
    }

    fn serving() -> Self {
        let mut rig = Self::new();
        assert_eq!(rig.step(Event::Connect), [Effect::Dial { generation: 1 }]);
        rig.up();
        rig
    }

    fn step(&mut self, event: Event) -> Vec<Effect> {
        let (channel, effects) = self.channel.clone().step(self.now, FULL, event, &self.terms);
        self.channel = channel;
        effects
    }

    fn generation(&self) -> u64 {
        self.channel.generation
    }

    /// The dial that is under way succeeds.
    #[track_caller]
    fn up(&mut self) {
        let generation = self.generation();
        assert_eq!(self.step(Event::Dialled { generation }), [Effect::Hello]);
        assert_eq!(self.step(Event::Descriptor { generation }), [Effect::Up]);
    }

    fn lost(&mut self, code: u16, expired: bool) -> Vec<Effect> {
        let generation = self.generation();
        self.step(Event::Lost { generation, close: Some(Closed { code, expired }) })
    }

    fn dropped(&mut self) -> Vec<Effect> {
        let generation = self.generation();
        self.step(Event::Lost { generation, close: None })
    }

    fn pass(&mut self, span: Duration) -> Vec<Effect> {
        self.now = self.now.after(span);
        self.step(Event::Tick)
    }

    /// Seconds until the next dial, which is then under way.
    #[track_caller]
    fn gap(&mut self) -> u64 {
        let due = self.channel.due(&self.terms).expect("a dial is planned");
        let gap = due.since(self.now);
        let generation = self.generation() + 1;
        assert_eq!(self.pass(gap), [Effect::Dial { generation }]);
        gap.as_secs()
    }
}

#[test]
fn a_first_dial_that_fails_is_the_callers_to_know_of() {
    let mut rig = Rig::new();
    rig.step(Event::Connect);
    assert_eq!(rig.step(Event::DialFailed { generation: 1 }), [Effect::GiveUp]);
    assert_eq!(rig.channel.state, State::Closed);
    assert_eq!(rig.channel.due(&rig.terms), None);
    let mut known = Rig { channel: Channel::new(true, &Terms::default()), ..Rig::new() };
    known.step(Event::Connect);
    assert_eq!(known.step(Event::DialFailed { generation: 1 }), []);
    assert_eq!(known.gap(), 1, "it was there before, and will be again");
}

#[test]
fn a_connection_that_is_lost_before_its_descriptor_is_followed() {
    let mut rig = Rig::new();
    rig.step(Event::Connect);
    rig.step(Event::Dialled { generation: 1 });
    assert_eq!(rig.dropped(), [Effect::Abandon]);
    assert_eq!(rig.gap(), 1);
    rig.up();
}

#[test]
fn waits_double_to_half_a_minute_and_begin_anew_only_behind_what_lasted() {
    let mut rig = Rig::serving();
    for want in [1, 2, 4, 8, 16, 30, 30] {
        rig.dropped();
        assert_eq!(rig.gap(), want);
        rig.up();
    }
    rig.now = rig.now.after(Duration::from_millis(59_999));
    rig.dropped();
    assert_eq!(rig.gap(), 30);
    rig.up();
    rig.now = rig.now.after(Duration::from_secs(60));
    rig.dropped();
    assert_eq!(rig.gap(), 1);
    let generation = rig.generation();
    rig.step(Event::DialFailed { generation });
    assert_eq!(rig.gap(), 2);
}

#[test]
fn a_descriptor_that_does_not_come_ends_the_connection() {
    let mut rig = Rig::new();
    rig.step(Event::Connect);
    rig.step(Event::Dialled { generation: 1 });
    assert_eq!(rig.pass(Duration::from_millis(29_999)), []);
    assert_eq!(rig.pass(Duration::from_millis(1)), [Effect::Close]);
    assert_eq!(rig.gap(), 1);
}

#[test]
fn going_idle_is_asked_once_and_answered_to_all() {
    let mut rig = Rig::serving();
    let wait = Duration::from_secs(2);
    assert_eq!(rig.step(Event::GoIdle { wait }), [Effect::GoingIdle]);
    assert_eq!(rig.step(Event::GoIdle { wait }), []);
    let generation = rig.generation();
    assert_eq!(rig.step(Event::IdleAck { generation }), [Effect::Answer { granted: true }]);
    assert_eq!(rig.step(Event::IdleAck { generation }), []);
    assert_eq!(rig.step(Event::GoIdle { wait }), [Effect::Answer { granted: true }]);
}

#[test]
fn without_a_grant_the_connection_stays() {
    let mut rig = Rig::serving();
    rig.step(Event::GoIdle { wait: Duration::from_millis(300) });
    assert_eq!(rig.pass(Duration::from_millis(300)), [Effect::Answer { granted: false }]);
    assert!(matches!(rig.channel.state, State::Serving { .. }));
    assert_eq!(rig.step(Event::Sleep { hold: None }), [], "nobody sleeps without a grant");
    assert!(matches!(rig.channel.state, State::Serving { .. }));
    let wait = Duration::from_secs(1);
    assert_eq!(Rig::new().step(Event::GoIdle { wait }), [Effect::Answer { granted: false }]);
}

#[test]
fn a_grant_that_comes_too_late_means_a_new_connection_at_once() {
    let mut rig = Rig::serving();
    rig.step(Event::GoIdle { wait: Duration::from_millis(300) });
    rig.pass(Duration::from_millis(300));
    let generation = rig.generation();
    let again = [Effect::Abandon, Effect::Close, Effect::Dial { generation: generation + 1 }];
    assert_eq!(rig.step(Event::IdleAck { generation }), again);
    rig.up();
    assert_eq!(rig.step(Event::IdleAck { generation }), [], "of the connection before");
}

#[test]
fn a_grant_that_nobody_asked_for_is_no_way_to_make_us_dial() {
    let mut rig = Rig::serving();
    for want in [1, 2, 4] {
        let generation = rig.generation();
        assert_eq!(rig.step(Event::IdleAck { generation }), [Effect::Abandon, Effect::Close]);
        assert_eq!(rig.gap(), want);
        rig.up();
    }
}

#[test]
fn one_who_sleeps_is_called_by_the_clock_or_by_name() {
    for hold in [None, Some(Duration::from_secs(60))] {
        let mut rig = Rig::serving();
        rig.step(Event::GoIdle { wait: Duration::from_secs(2) });
        rig.step(Event::IdleAck { generation: 1 });
        assert_eq!(rig.step(Event::Sleep { hold }), [Effect::Abandon, Effect::Close]);
        assert!(matches!(rig.channel.state, State::Waiting { dormant: true, .. }));
        assert_eq!(rig.step(Event::Lost { generation: 1, close: None }), [], "we closed it ourselves");
        assert_eq!(rig.gap(), if hold.is_some() { 60 } else { 1 });
        rig.step(Event::DialFailed { generation: 2 });
        assert_eq!(rig.step(Event::Wake), [Effect::Dial { generation: 3 }]);
        rig.up();
    }
    let mut rig = Rig::serving();
    rig.step(Event::GoIdle { wait: Duration::from_secs(2) });
    rig.step(Event::IdleAck { generation: 1 });
    assert_eq!(rig.step(Event::Wake), [Effect::Abandon, Effect::Close, Effect::Dial { generation: 2 }]);
}

#[test]
fn a_deliberate_end_is_the_end() {
    let mut rig = Rig::serving();
    rig.step(Event::GoIdle { wait: Duration::from_secs(2) });
    let end = [Effect::Answer { granted: false }, Effect::Abandon, Effect::Close];
    assert_eq!(rig.step(Event::Disconnect), end);
    assert_eq!(rig.channel.due(&rig.terms), None);
    assert_eq!(rig.dropped(), []);
    assert_eq!(rig.step(Event::Connect), []);
}

#[test]
fn a_refusal_before_we_were_ever_wanted_is_retried() {
    let mut rig = Rig::new();
    rig.step(Event::Connect);
    for want in [1, 2, 4, 8] {
        let generation = rig.generation();
        rig.step(Event::Dialled { generation });
        assert_eq!(rig.lost(4401, false), [Effect::Abandon]);
        assert_eq!(rig.gap(), want);
    }
    assert!(!rig.channel.wanted());
}

#[test]
fn two_refusals_in_a_row_are_believed() {
    let mut rig = Rig::serving();
    assert_eq!(rig.lost(4401, false), [Effect::Abandon, Effect::Dial { generation: 2 }]);
    rig.step(Event::Dialled { generation: 2 });
    assert_eq!(rig.lost(4401, false), [Effect::Abandon, Effect::Revoked]);
    assert_eq!((rig.channel.state, rig.channel.due(&rig.terms)), (State::Revoked, None));
    assert_eq!(rig.step(Event::Wake), []);

    let mut rig = Rig::serving();
    rig.lost(4401, false);
    rig.up();
    assert_eq!(rig.lost(4401, false), [Effect::Abandon, Effect::Revoked], "also behind its descriptor");
}

#[test]
fn other_failures_between_two_refusals_neither_count_nor_forgive() {
    let mut rig = Rig::serving();
    rig.lost(4401, false);
    rig.step(Event::DialFailed { generation: 2 });
    rig.gap();
    rig.step(Event::Dialled { generation: 3 });
    assert_eq!(rig.lost(4401, false), [Effect::Abandon, Effect::Revoked]);

    let mut rig = Rig::serving();
    rig.lost(4401, false);
    rig.up();
    rig.now = rig.now.after(Duration::from_secs(60));
    assert_eq!(rig.lost(4401, false), [Effect::Abandon, Effect::Dial { generation: 3 }], "it lasted");
}

#[test]
fn an_expired_token_is_no_refusal_and_one_try_can_be_switched_off() {
    let mut rig = Rig::serving();
    assert_eq!(rig.lost(4401, true), [Effect::Abandon]);
    assert_eq!(rig.gap(), 1);
    let redial = Terms::default().redial.without_retry_of_denial();
    let mut strict = Rig { channel: Channel::new(true, &Terms { redial, ..Terms::default() }), ..Rig::new() };
    strict.step(Event::Connect);
    strict.up();
    assert_eq!(strict.lost(4401, false), [Effect::Abandon, Effect::Revoked]);
}

#[test]
fn whoever_took_our_place_is_left_alone_for_a_while() {
    let mut rig = Rig::serving();
    rig.lost(4409, false);
    assert_eq!(rig.gap(), 30);
}

#[test]
fn an_overflow_is_followed_by_a_new_connection() {
    let mut rig = Rig::serving();
    let again = [Effect::Abandon, Effect::Close, Effect::Dial { generation: 2 }];
    assert_eq!(rig.step(Event::Overflowed { generation: 1 }), again);
}

#[test]
fn channel_is_wanted_once_a_descriptor_came() {
    assert!(Channel::new(true, &Terms::default()).wanted());
    let mut rig = Rig::new();
    rig.step(Event::Connect);
    assert!(!rig.channel.wanted());
    rig.up();
    assert!(rig.channel.wanted());
}

#[test]
fn sleep_starts_the_waits_anew() {
    let mut rig = Rig::serving();
    for want in [1, 2, 4] {
        rig.dropped();
        assert_eq!(rig.gap(), want);
        rig.up();
    }
    rig.step(Event::GoIdle { wait: Duration::from_secs(2) });
    let generation = rig.generation();
    rig.step(Event::IdleAck { generation });
    rig.step(Event::Sleep { hold: None });
    rig.step(Event::Wake);
    rig.up();
    rig.dropped();
    assert_eq!(rig.gap(), 1);
}
