use super::*;

const FULL: u64 = 0;

struct ChannelFixture {
    channel: Channel,
    now: Millis,
    terms: ChannelPolicy,
}

impl ChannelFixture {
    fn new() -> Self {
        Self {
            channel: Channel::new(false, &ChannelPolicy::default()),
            now: Millis(1_000),
            terms: ChannelPolicy::default(),
        }
    }

    fn serving() -> Self {
        let mut fixture = Self::new();
        assert_eq!(fixture.step(Event::Connect), [Effect::Dial { generation: 1 }]);
        fixture.up();
        fixture
    }

    fn step(&mut self, event: Event) -> Vec<Effect> {
        let (channel, effects) = self.channel.clone().step(self.now, FULL, event, &self.terms);
        self.channel = channel;
        effects
    }

    fn generation(&self) -> u64 {
        self.channel.generation
    }

    /// The current dial succeeds.
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

    /// Seconds until the next dial, which is then in progress.
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
fn returns_failure_of_first_dial() {
    let mut fixture = ChannelFixture::new();
    fixture.step(Event::Connect);
    assert_eq!(fixture.step(Event::DialFailed { generation: 1 }), [Effect::GiveUp]);
    assert_eq!(fixture.channel.state, State::Closed);
    assert_eq!(fixture.channel.due(&fixture.terms), None);
    let mut known =
        ChannelFixture { channel: Channel::new(true, &ChannelPolicy::default()), ..ChannelFixture::new() };
    known.step(Event::Connect);
    assert_eq!(known.step(Event::DialFailed { generation: 1 }), []);
    assert_eq!(known.gap(), 1, "it was there before, and will be again");
}

#[test]
fn redials_after_loss_before_descriptor() {
    let mut fixture = ChannelFixture::new();
    fixture.step(Event::Connect);
    fixture.step(Event::Dialled { generation: 1 });
    assert_eq!(fixture.dropped(), [Effect::Abandon]);
    assert_eq!(fixture.gap(), 1);
    fixture.up();
}

#[test]
fn backoff_resets_only_after_lasting_connection() {
    let mut fixture = ChannelFixture::serving();
    for want in [1, 2, 4, 8, 16, 30, 30] {
        fixture.dropped();
        assert_eq!(fixture.gap(), want);
        fixture.up();
    }
    fixture.now = fixture.now.after(Duration::from_millis(59_999));
    fixture.dropped();
    assert_eq!(fixture.gap(), 30);
    fixture.up();
    fixture.now = fixture.now.after(Duration::from_secs(60));
    fixture.dropped();
    assert_eq!(fixture.gap(), 1);
    let generation = fixture.generation();
    fixture.step(Event::DialFailed { generation });
    assert_eq!(fixture.gap(), 2);
}

#[test]
fn closes_connection_without_descriptor() {
    let mut fixture = ChannelFixture::new();
    fixture.step(Event::Connect);
    fixture.step(Event::Dialled { generation: 1 });
    assert_eq!(fixture.pass(Duration::from_millis(29_999)), []);
    assert_eq!(fixture.pass(Duration::from_millis(1)), [Effect::Close]);
    assert_eq!(fixture.gap(), 1);
}

#[test]
fn requests_idle_once_and_answers_all_callers() {
    let mut fixture = ChannelFixture::serving();
    let wait = Duration::from_secs(2);
    assert_eq!(fixture.step(Event::GoIdle { wait }), [Effect::GoingIdle]);
    assert_eq!(fixture.step(Event::GoIdle { wait }), []);
    let generation = fixture.generation();
    assert_eq!(fixture.step(Event::IdleAck { generation }), [Effect::Answer { granted: true }]);
    assert_eq!(fixture.step(Event::IdleAck { generation }), []);
    assert_eq!(fixture.step(Event::GoIdle { wait }), [Effect::Answer { granted: true }]);
}

#[test]
fn stays_connected_without_grant() {
    let mut fixture = ChannelFixture::serving();
    fixture.step(Event::GoIdle { wait: Duration::from_millis(300) });
    assert_eq!(fixture.pass(Duration::from_millis(300)), [Effect::Answer { granted: false }]);
    assert!(matches!(fixture.channel.state, State::Serving { .. }));
    assert_eq!(fixture.step(Event::Sleep { hold: None }), [], "no sleep without a grant");
    assert!(matches!(fixture.channel.state, State::Serving { .. }));
    let wait = Duration::from_secs(1);
    assert_eq!(ChannelFixture::new().step(Event::GoIdle { wait }), [Effect::Answer { granted: false }]);
}

#[test]
fn reconnects_at_once_after_late_grant() {
    let mut fixture = ChannelFixture::serving();
    fixture.step(Event::GoIdle { wait: Duration::from_millis(300) });
    fixture.pass(Duration::from_millis(300));
    let generation = fixture.generation();
    let again = [Effect::Abandon, Effect::Close, Effect::Dial { generation: generation + 1 }];
    assert_eq!(fixture.step(Event::IdleAck { generation }), again);
    fixture.up();
    assert_eq!(fixture.step(Event::IdleAck { generation }), [], "of the connection before");
}

#[test]
fn ignores_unrequested_grant() {
    let mut fixture = ChannelFixture::serving();
    for want in [1, 2, 4] {
        let generation = fixture.generation();
        assert_eq!(fixture.step(Event::IdleAck { generation }), [Effect::Abandon, Effect::Close]);
        assert_eq!(fixture.gap(), want);
        fixture.up();
    }
}

#[test]
fn sleep_ends_by_timer_or_wake() {
    for hold in [None, Some(Duration::from_secs(60))] {
        let mut fixture = ChannelFixture::serving();
        fixture.step(Event::GoIdle { wait: Duration::from_secs(2) });
        fixture.step(Event::IdleAck { generation: 1 });
        assert_eq!(fixture.step(Event::Sleep { hold }), [Effect::Abandon, Effect::Close]);
        assert!(matches!(fixture.channel.state, State::Waiting { dormant: true, .. }));
        assert_eq!(fixture.step(Event::Lost { generation: 1, close: None }), [], "we closed it ourselves");
        assert_eq!(fixture.gap(), if hold.is_some() { 60 } else { 1 });
        fixture.step(Event::DialFailed { generation: 2 });
        assert_eq!(fixture.step(Event::Wake), [Effect::Dial { generation: 3 }]);
        fixture.up();
    }
    let mut fixture = ChannelFixture::serving();
    fixture.step(Event::GoIdle { wait: Duration::from_secs(2) });
    fixture.step(Event::IdleAck { generation: 1 });
    assert_eq!(fixture.step(Event::Wake), [Effect::Abandon, Effect::Close, Effect::Dial { generation: 2 }]);
}

#[test]
fn gives_up_after_shutdown() {
    let mut fixture = ChannelFixture::serving();
    fixture.step(Event::GoIdle { wait: Duration::from_secs(2) });
    let end = [Effect::Answer { granted: false }, Effect::Abandon, Effect::Close];
    assert_eq!(fixture.step(Event::Disconnect), end);
    assert_eq!(fixture.channel.due(&fixture.terms), None);
    assert_eq!(fixture.dropped(), []);
    assert_eq!(fixture.step(Event::Connect), []);
}

#[test]
fn retries_refusal_before_first_descriptor() {
    let mut fixture = ChannelFixture::new();
    fixture.step(Event::Connect);
    for want in [1, 2, 4, 8] {
        let generation = fixture.generation();
        fixture.step(Event::Dialled { generation });
        assert_eq!(fixture.lost(4401, false), [Effect::Abandon]);
        assert_eq!(fixture.gap(), want);
    }
    assert!(!fixture.channel.wanted());
}

#[test]
fn gives_up_after_two_refusals_in_a_row() {
    let mut fixture = ChannelFixture::serving();
    assert_eq!(fixture.lost(4401, false), [Effect::Abandon, Effect::Dial { generation: 2 }]);
    fixture.step(Event::Dialled { generation: 2 });
    assert_eq!(fixture.lost(4401, false), [Effect::Abandon, Effect::Revoked]);
    assert_eq!((fixture.channel.state, fixture.channel.due(&fixture.terms)), (State::Revoked, None));
    assert_eq!(fixture.step(Event::Wake), []);

    let mut fixture = ChannelFixture::serving();
    fixture.lost(4401, false);
    fixture.up();
    assert_eq!(fixture.lost(4401, false), [Effect::Abandon, Effect::Revoked], "also behind its descriptor");
}

#[test]
fn other_failures_do_not_change_refusal_count() {
    let mut fixture = ChannelFixture::serving();
    fixture.lost(4401, false);
    fixture.step(Event::DialFailed { generation: 2 });
    fixture.gap();
    fixture.step(Event::Dialled { generation: 3 });
    assert_eq!(fixture.lost(4401, false), [Effect::Abandon, Effect::Revoked]);

    let mut fixture = ChannelFixture::serving();
    fixture.lost(4401, false);
    fixture.up();
    fixture.now = fixture.now.after(Duration::from_secs(60));
    assert_eq!(fixture.lost(4401, false), [Effect::Abandon, Effect::Dial { generation: 3 }], "it lasted");
}

#[test]
fn expired_token_is_no_refusal() {
    let mut fixture = ChannelFixture::serving();
    assert_eq!(fixture.lost(4401, true), [Effect::Abandon]);
    assert_eq!(fixture.gap(), 1);
    let redial = ChannelPolicy::default().redial.without_retry_of_denial();
    let mut strict = ChannelFixture {
        channel: Channel::new(true, &ChannelPolicy { redial, ..ChannelPolicy::default() }),
        ..ChannelFixture::new()
    };
    strict.step(Event::Connect);
    strict.up();
    assert_eq!(strict.lost(4401, false), [Effect::Abandon, Effect::Revoked]);
}

#[test]
fn waits_after_being_superseded() {
    let mut fixture = ChannelFixture::serving();
    fixture.lost(4409, false);
    assert_eq!(fixture.gap(), 30);
}

#[test]
fn reconnects_after_overflow() {
    let mut fixture = ChannelFixture::serving();
    let again = [Effect::Abandon, Effect::Close, Effect::Dial { generation: 2 }];
    assert_eq!(fixture.step(Event::Overflowed { generation: 1 }), again);
}

#[test]
fn descriptor_marks_channel_as_wanted() {
    assert!(Channel::new(true, &ChannelPolicy::default()).wanted());
    let mut fixture = ChannelFixture::new();
    fixture.step(Event::Connect);
    assert!(!fixture.channel.wanted());
    fixture.up();
    assert!(fixture.channel.wanted());
}

#[test]
fn sleep_resets_backoff() {
    let mut fixture = ChannelFixture::serving();
    for want in [1, 2, 4] {
        fixture.dropped();
        assert_eq!(fixture.gap(), want);
        fixture.up();
    }
    fixture.step(Event::GoIdle { wait: Duration::from_secs(2) });
    let generation = fixture.generation();
    fixture.step(Event::IdleAck { generation });
    fixture.step(Event::Sleep { hold: None });
    fixture.step(Event::Wake);
    fixture.up();
    fixture.dropped();
    assert_eq!(fixture.gap(), 1);
}
