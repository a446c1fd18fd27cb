use super::*;

const NOW: Millis = Millis(1_000_000);
const SOON: Fault = Fault::Later { after: None };

fn later(seconds: u64) -> Millis {
    NOW.after(Duration::from_secs(seconds))
}

fn calm() -> Terms {
    Terms { jitter: false, ..Terms::default() }
}

/// A step that leaves waits as they are.
fn step(link: Link, now: Millis, event: Event) -> (Link, Option<Effect>) {
    link.step(now, EVEN, event, &calm())
}

fn broke(generation: u64, fault: Fault) -> Event {
    Event::Broke { generation, fault, code: "c".into(), reason: "r".into() }
}

fn started() -> Link {
    step(Link::default(), NOW, Event::Start).0
}

fn stands() -> Link {
    step(started(), NOW, Event::Alive { generation: 1 }).0
}

fn wait_after(link: &Link, now: Millis) -> u64 {
    match &link.state {
        State::Waiting { until, .. } => until.since(now).as_secs(),
        other => panic!("waits, not {other:?}"),
    }
}

/// The waits after so many failed attempts in a row, from a start on.
fn waits(terms: &Terms, count: usize) -> alloc::vec::Vec<u64> {
    let (mut link, mut now) = (started(), NOW);
    let mut waits = alloc::vec![];
    for _ in 0..count {
        let generation = link.generation;
        link = link.step(now, 0, broke(generation, SOON), terms).0;
        let wait = wait_after(&link, now);
        waits.push(wait);
        now = now.after(Duration::from_secs(wait));
        let effect;
        (link, effect) = link.step(now, 0, Event::Tick, terms);
        assert_eq!(effect, Some(Effect::Connect { generation: generation + 1 }));
    }
    waits
}

#[test]
fn waits_grow_to_five_minutes_and_become_a_slow_probe_after_twenty() {
    let waits = waits(&calm(), 22);
    assert_eq!(waits[..6], [30, 60, 120, 240, 300, 300]);
    assert_eq!(waits[18..], [300, 1800, 1800, 1800]);
}

#[test]
fn without_a_limit_it_stays_fast_and_jitter_can_be_had() {
    assert_eq!(waits(&Terms { fast_attempts: None, ..calm() }, 26)[25], 300);
    // The lowest roll takes a fifth off.
    assert_eq!(waits(&Terms::default(), 2), [24, 48]);
    let patient = Terms { fast_attempts: Some(1), slow_probe: Duration::from_secs(7200), ..calm() };
    assert_eq!(waits(&patient, 2), [7200, 7200]);
}

#[test]
fn a_link_that_stood_is_followed_at_once_and_counts_from_nothing() {
    let (link, effect) = step(stands(), later(60), broke(1, SOON));
    assert_eq!((wait_after(&link, later(60)), link.attempts), (0, 0));
    assert_eq!(effect, Some(Effect::Disconnect));
    let (link, effect) = step(link, later(60), Event::Tick);
    assert_eq!(effect, Some(Effect::Connect { generation: 2 }));
    let (link, _) = step(link, later(61), broke(2, SOON));
    assert_eq!((wait_after(&link, later(61)), link.attempts), (30, 1));
}

#[test]
fn one_that_breaks_as_soon_as_it_stands_is_given_a_breath() {
    let (link, _) = step(stands(), later(3), broke(1, SOON));
    assert_eq!((wait_after(&link, later(3)), link.attempts), (7, 0));
}

#[test]
fn a_second_fault_does_not_change_the_wait() {
    let (link, _) = step(started(), NOW, broke(1, SOON));
    let before = link.clone();
    assert_eq!(step(link, later(20), broke(1, SOON)), (before, None));
}

#[test]
fn a_connection_that_never_stands_is_given_up_in_time() {
    let link = started();
    assert_eq!(link.due(&calm()), Some(later(30)));
    assert_eq!(step(link.clone(), later(29), Event::Tick), (link.clone(), None));
    let (link, effect) = step(link, later(30), Event::Tick);
    assert_eq!((wait_after(&link, later(30)), link.attempts), (30, 1));
    assert_eq!(effect, Some(Effect::Disconnect));
    let failure = link.failure().expect("a failure");
    assert_eq!(failure.reason, "link connect timed out after 30s");
    assert_eq!(started().due(&Terms { connect_within: None, ..calm() }), None);
}

#[test]
fn one_that_stands_and_struggles_is_left_to_its_own_patience() {
    let troubled = Event::Troubled { generation: 1, reason: "conflict".into() };
    let (link, _) = step(started(), NOW, troubled.clone());
    assert_eq!((link.due(&calm()), link.published()), (Some(later(1800)), "retrying"));
    let (link, _) = step(stands(), NOW, troubled);
    assert_eq!((link.published(), link.standing()), ("retrying", Standing::Down));
}

#[test]
fn one_that_is_lost_in_its_trouble_is_given_up() {
    let terms = Terms { longest_silence: Some(Duration::from_secs(130)), ..calm() };
    let (link, _) = step(stands(), later(60), Event::Troubled { generation: 1, reason: "conflict".into() });
    assert_eq!(link.clone().step(later(1799), EVEN, Event::Tick, &terms).1, None);
    let (link, effect) = link.step(later(1800), EVEN, Event::Tick, &terms);
    assert_eq!(effect, Some(Effect::Disconnect));
    assert_eq!(link.failure().expect("a failure").code, "link_silent");
}

#[test]
fn silence_breaks_a_link_unless_it_says_nothing() {
    let terms = Terms { longest_silence: Some(Duration::from_secs(130)), ..calm() };
    let (link, _) = step(stands(), later(100), Event::Alive { generation: 1 });
    assert_eq!(link.due(&terms), Some(later(230)));
    assert_eq!(link.clone().step(later(229), EVEN, Event::Tick, &terms).1, None);
    let (link, effect) = link.step(later(230), EVEN, Event::Tick, &terms);
    assert_eq!((effect, wait_after(&link, later(230))), (Some(Effect::Disconnect), 0));
    assert_eq!(link.failure().expect("a failure").code, "link_silent");
    assert_eq!(stands().due(&calm()), None, "silence is normal here");
}

#[test]
fn trouble_is_seen_until_something_comes_in() {
    let troubled = |generation| Event::Troubled { generation, reason: "refused".into() };
    assert_eq!(step(started(), NOW, troubled(9)).0.trouble, None);
    let (link, effect) = step(started(), NOW, troubled(1));
    assert_eq!((link.trouble.as_deref(), effect), (Some("refused"), None));
    assert_eq!(step(link, NOW, Event::Alive { generation: 1 }).0.trouble, None);
}

#[test]
fn a_superseded_generation_is_not_heard() {
    let (link, _) = step(started(), NOW, Event::Retry);
    for late in [broke(1, Fault::Fatal), broke(1, SOON), Event::Alive { generation: 1 }] {
        assert_eq!(step(link.clone(), NOW, late), (link.clone(), None));
    }
}

#[test]
fn a_fatal_fault_stops_the_link_until_someone_asks_again() {
    for link in [started(), stands()] {
        let (link, _) = step(link, NOW, broke(1, Fault::Fatal));
        assert_eq!((link.published(), link.due(&calm())), ("fatal", None));
        let (link, effect) = step(link, later(9999), Event::Tick);
        assert_eq!(effect, None);
        assert_eq!(step(link, NOW, Event::Retry).1, Some(Effect::Connect { generation: 2 }));
    }
}

#[test]
fn only_something_coming_in_makes_a_link_alive_and_forgets_failures() {
    let (link, _) = step(started(), NOW, broke(1, SOON));
    let (link, _) = step(link, later(30), Event::Tick);
    assert_eq!((link.attempts, link.last_inbound), (1, None));
    let (link, effect) = step(link, later(31), Event::Alive { generation: 2 });
    assert_eq!((link.attempts, effect), (0, Some(Effect::CameUp)));
    let (link, _) = step(link, later(60), broke(2, SOON));
    assert_eq!(link.last_inbound, Some(later(31)), "what was heard last is remembered");
}

#[test]
fn the_platforms_own_wait_is_honoured_when_longer() {
    let after = Some(Duration::from_secs(90));
    for link in [started(), stands()] {
        let (link, _) = step(link, later(60), broke(1, Fault::Later { after }));
        assert_eq!(wait_after(&link, later(60)), 90);
    }
}

#[test]
fn a_paused_link_stays_paused() {
    let (link, effect) = step(started(), NOW, Event::Pause);
    assert_eq!((effect, link.standing()), (Some(Effect::Disconnect), Standing::Paused));
    let (link, _) = step(link, NOW, Event::Alive { generation: 1 });
    assert_eq!(step(link, later(9999), Event::Tick).0.state, State::Paused);
}

#[test]
fn a_clock_set_back_does_not_silence_a_link() {
    let (link, _) = step(started(), NOW, broke(1, SOON));
    assert_eq!(step(link.clone(), NOW.before(Duration::from_secs(900)), Event::Tick).1, None, "a small step");
    let (link, _) =
        step(Link { state: State::Connecting { since: NOW }, ..link }, later(86_400), broke(1, SOON));
    assert_eq!(step(link, Millis(0), Event::Tick).1, Some(Effect::Connect { generation: 2 }));
}

#[test]
fn how_far_behind_we_are_is_told_while_it_matters() {
    let took = |sent: u64| Event::Took { generation: 1, oldest: Some(later(sent)) };
    let (link, _) = step(stands(), later(100), took(95));
    assert_eq!(link.behind_ms, None, "that is no delay");
    let (link, _) = step(link, later(100), took(40));
    assert_eq!(link.behind_ms, Some(60_000));
    assert_eq!(step(link.clone(), later(101), took(101)).0.behind_ms, None);
    assert_eq!(step(link.clone(), later(101), Event::Alive { generation: 1 }).0.behind_ms, None);
    let unknown = Event::Took { generation: 1, oldest: None };
    assert_eq!(step(link, later(101), unknown).0.behind_ms, None);
}

#[test]
fn a_catch_up_keeps_its_lag_until_it_is_done() {
    let took = |sent: u64| Event::Took { generation: 1, oldest: Some(later(sent)) };
    let catching = Event::CatchingUp { generation: 1 };
    let (link, effect) = step(started(), later(100), catching.clone());
    assert_eq!((link.standing(), effect), (Standing::Up, Some(Effect::CameUp)), "it hears");
    assert!(link.catching_up && link.behind_ms.is_none());
    let (link, _) = step(link, later(100), took(40));
    let (link, _) = step(link, later(105), catching.clone());
    let (link, _) = step(link, later(105), took(104));
    assert_eq!(link.behind_ms, Some(60_000), "neither a sign of life nor a live message ends it");
    let (link, _) = step(link, later(110), took(80));
    assert_eq!(link.behind_ms, Some(30_000));
    let (done, _) = step(link.clone(), later(111), Event::Alive { generation: 1 });
    assert_eq!((done.catching_up, done.behind_ms), (false, None));
    for over in [broke(1, SOON), Event::Retry, Event::Pause] {
        let (over, _) = step(link.clone(), later(111), over);
        assert_eq!((over.catching_up, over.behind_ms), (false, None), "{:?}", over.state);
    }
}

#[test]
fn what_is_lacking_is_said_by_the_connection_that_stands() {
    let lack = Lack { what: "workspace T1".into(), code: "c".into(), reason: "r".into() };
    let lacks = |generation| Event::Lacks { generation, lacks: alloc::vec![lack.clone()] };
    assert!(step(stands(), NOW, lacks(0)).0.lacks.is_empty(), "an older one is not heard");
    let (link, effect) = step(stands(), NOW, lacks(1));
    assert_eq!((link.lacks.len(), link.published(), effect), (1, "connected", None));
    let (link, _) = step(link, later(1), Event::Alive { generation: 1 });
    assert_eq!(link.lacks.len(), 1, "a sign of life of the rest does not bring it back");
    let (link, _) = step(link, later(20), broke(1, SOON));
    assert!(link.lacks.is_empty());
}

#[test]
fn it_is_written_flat_and_read_again() {
    let (link, _) = step(started(), NOW, broke(1, Fault::Refused));
    let written = serde_json::to_value(&link).expect("written");
    for (name, want) in [("state", "waiting"), ("class", "refused"), ("code", "c"), ("reason", "r")] {
        assert_eq!(written[name], want, "{written}");
    }
    assert_eq!(serde_json::from_value::<Link>(written).expect("read"), link);
}

#[test]
fn failure_classes_have_stable_names() {
    for (class, name) in [(Class::Passing, "passing"), (Class::Refused, "refused"), (Class::Fatal, "fatal")] {
        assert_eq!(class.as_str(), name);
        assert_eq!(serde_json::to_value(class).expect("written"), name);
    }
}

#[test]
fn unbuilt_link_is_fatal_or_disabled_by_its_code() {
    for (code, published) in [("slack_no_token", "fatal"), ("relay_disabled", "disabled")] {
        let link = Link::unbuilt(code.into(), "why".into());
        assert_eq!((link.published(), link.due(&calm())), (published, None));
        let failure = Failure { class: Class::Fatal, code: code.into(), reason: "why".into() };
        assert_eq!(link.failure(), Some(&failure));
    }
}

#[test]
fn reports_of_a_superseded_generation_change_nothing() {
    let (link, _) = step(stands(), NOW, Event::Retry);
    let lack = Lack { what: "w".into(), code: "c".into(), reason: "r".into() };
    for late in [
        Event::CatchingUp { generation: 1 },
        Event::Took { generation: 1, oldest: Some(Millis(0)) },
        Event::Lacks { generation: 1, lacks: alloc::vec![lack] },
        Event::Troubled { generation: 1, reason: "r".into() },
    ] {
        assert_eq!(step(link.clone(), later(60), late), (link.clone(), None));
    }
}

#[test]
fn retry_forgets_failed_attempts() {
    let (link, _) = step(started(), NOW, broke(1, SOON));
    assert_eq!(link.attempts, 1);
    let (link, effect) = step(link, NOW, Event::Retry);
    assert_eq!((link.attempts, effect), (0, Some(Effect::Connect { generation: 2 })));
}

#[test]
fn pause_fences_the_connection_it_ends() {
    let (mut link, _) = step(stands(), NOW, Event::Retry);
    link = step(link, NOW, Event::Pause).0;
    assert_eq!(link.generation, 3);
    for late in [Event::Alive { generation: 2 }, broke(2, Fault::Fatal)] {
        assert_eq!(step(link.clone(), later(60), late), (link.clone(), None));
    }
}

#[test]
fn new_connection_starts_without_the_trouble_of_the_last() {
    let (link, _) = step(stands(), NOW, Event::Troubled { generation: 1, reason: "conflict".into() });
    for event in [Event::Retry, Event::Pause, broke(1, SOON)] {
        assert_eq!(step(link.clone(), NOW, event).0.trouble, None);
    }
}

#[test]
fn wait_of_exactly_the_longest_span_is_kept() {
    let terms = Terms { fast_attempts: Some(1), slow_probe: LONGEST_WAIT.saturating_mul(2), ..calm() };
    let (link, _) = started().step(NOW, EVEN, broke(1, SOON), &terms);
    assert_eq!(wait_after(&link, NOW), terms.slow_probe.as_secs());
    assert_eq!(link.clone().step(NOW, EVEN, Event::Tick, &terms), (link, None));
}
