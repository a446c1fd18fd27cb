use super::*;

const NOW: Millis = Millis(1_000_000);
const SOON: Fault = Fault::Later { after: None };

fn later(seconds: u64) -> Millis {
    NOW.after(Duration::from_secs(seconds))
}

fn no_jitter() -> LinkPolicy {
    LinkPolicy { jitter: false, ..LinkPolicy::default() }
}

/// A step without jitter.
fn step(link: Link, now: Millis, event: Event) -> (Link, Option<LinkEffect>) {
    link.step(now, MIDDLE_ROLL, event, &no_jitter())
}

fn failed(generation: u64, fault: Fault) -> Event {
    Event::Failed { generation, fault, code: "c".into(), reason: "r".into() }
}

fn started() -> Link {
    step(Link::default(), NOW, Event::Start).0
}

fn up() -> Link {
    step(started(), NOW, Event::Alive { generation: 1 }).0
}

fn wait_after(link: &Link, now: Millis) -> u64 {
    match &link.state {
        State::Waiting { until, .. } => until.since(now).as_secs(),
        other => panic!("waits, not {other:?}"),
    }
}

/// The waits after `count` failed attempts in a row.
fn waits(policy: &LinkPolicy, count: usize) -> alloc::vec::Vec<u64> {
    let mut link = started();
    let mut now = NOW;
    let mut waits = alloc::vec![];
    for _ in 0..count {
        let generation = link.generation;
        link = link.step(now, 0, failed(generation, SOON), policy).0;
        let wait = wait_after(&link, now);
        waits.push(wait);
        now = now.after(Duration::from_secs(wait));
        let effect;
        (link, effect) = link.step(now, 0, Event::Tick, policy);
        assert_eq!(effect, Some(LinkEffect::Connect { generation: generation + 1 }));
    }
    waits
}

#[test]
fn waits_up_to_five_minutes_then_probes_slowly() {
    let waits = waits(&no_jitter(), 22);
    assert_eq!(waits[..6], [30, 60, 120, 240, 300, 300]);
    assert_eq!(waits[18..], [300, 1800, 1800, 1800]);
}

#[test]
fn stays_fast_without_a_limit_and_applies_jitter() {
    assert_eq!(waits(&LinkPolicy { fast_attempts: None, ..no_jitter() }, 26)[25], 300);
    // The lowest roll subtracts a fifth.
    assert_eq!(waits(&LinkPolicy::default(), 2), [24, 48]);
    let patient = LinkPolicy { fast_attempts: Some(1), slow_probe: Duration::from_secs(7200), ..no_jitter() };
    assert_eq!(waits(&patient, 2), [7200, 7200]);
}

#[test]
fn reconnects_at_once_after_a_link_was_up() {
    let (link, effect) = step(up(), later(60), failed(1, SOON));
    assert_eq!((wait_after(&link, later(60)), link.attempts), (0, 0));
    assert_eq!(effect, Some(LinkEffect::Disconnect));
    let (link, effect) = step(link, later(60), Event::Tick);
    assert_eq!(effect, Some(LinkEffect::Connect { generation: 2 }));
    let (link, _) = step(link, later(61), failed(2, SOON));
    assert_eq!((wait_after(&link, later(61)), link.attempts), (30, 1));
}

#[test]
fn delays_a_link_that_fails_right_after_coming_up() {
    let (link, _) = step(up(), later(3), failed(1, SOON));
    assert_eq!((wait_after(&link, later(3)), link.attempts), (7, 0));
}

#[test]
fn ignores_a_second_failure_while_waiting() {
    let (link, _) = step(started(), NOW, failed(1, SOON));
    let before = link.clone();
    assert_eq!(step(link, later(20), failed(1, SOON)), (before, None));
}

#[test]
fn times_out_a_connection_attempt() {
    let link = started();
    assert_eq!(link.due(&no_jitter()), Some(later(30)));
    assert_eq!(step(link.clone(), later(29), Event::Tick), (link.clone(), None));
    let (link, effect) = step(link, later(30), Event::Tick);
    assert_eq!((wait_after(&link, later(30)), link.attempts), (30, 1));
    assert_eq!(effect, Some(LinkEffect::Disconnect));
    let failure = link.failure().expect("a failure");
    assert_eq!(failure.reason, "link connect timed out after 30s");
    assert_eq!(started().due(&LinkPolicy { connect_within: None, ..no_jitter() }), None);
}

#[test]
fn leaves_retries_of_the_adapter_alone() {
    let retrying = Event::Retrying { generation: 1, reason: "conflict".into() };
    let (link, _) = step(started(), NOW, retrying.clone());
    assert_eq!((link.due(&no_jitter()), link.status()), (Some(later(1800)), "retrying"));
    let (link, _) = step(up(), NOW, retrying);
    assert_eq!((link.status(), link.availability()), ("retrying", Availability::Down));
}

#[test]
fn fails_an_adapter_that_retries_too_long() {
    let policy = LinkPolicy { longest_silence: Some(Duration::from_secs(130)), ..no_jitter() };
    let (link, _) = step(up(), later(60), Event::Retrying { generation: 1, reason: "conflict".into() });
    assert_eq!(link.clone().step(later(1799), MIDDLE_ROLL, Event::Tick, &policy).1, None);
    let (link, effect) = link.step(later(1800), MIDDLE_ROLL, Event::Tick, &policy);
    assert_eq!(effect, Some(LinkEffect::Disconnect));
    assert_eq!(link.failure().expect("a failure").code, "link_silent");
}

#[test]
fn fails_a_silent_link_unless_silence_is_normal() {
    let policy = LinkPolicy { longest_silence: Some(Duration::from_secs(130)), ..no_jitter() };
    let (link, _) = step(up(), later(100), Event::Alive { generation: 1 });
    assert_eq!(link.due(&policy), Some(later(230)));
    assert_eq!(link.clone().step(later(229), MIDDLE_ROLL, Event::Tick, &policy).1, None);
    let (link, effect) = link.step(later(230), MIDDLE_ROLL, Event::Tick, &policy);
    assert_eq!((effect, wait_after(&link, later(230))), (Some(LinkEffect::Disconnect), 0));
    assert_eq!(link.failure().expect("a failure").code, "link_silent");
    assert_eq!(up().due(&no_jitter()), None, "silence is normal here");
}

#[test]
fn keeps_the_retry_reason_until_data_arrives() {
    let retrying = |generation| Event::Retrying { generation, reason: "refused".into() };
    assert_eq!(step(started(), NOW, retrying(9)).0.retry_reason, None);
    let (link, effect) = step(started(), NOW, retrying(1));
    assert_eq!((link.retry_reason.as_deref(), effect), (Some("refused"), None));
    assert_eq!(step(link, NOW, Event::Alive { generation: 1 }).0.retry_reason, None);
}

#[test]
fn ignores_a_superseded_generation() {
    let (link, _) = step(started(), NOW, Event::Retry);
    for late in [failed(1, Fault::Fatal), failed(1, SOON), Event::Alive { generation: 1 }] {
        assert_eq!(step(link.clone(), NOW, late), (link.clone(), None));
    }
}

#[test]
fn fatal_failure_stops_the_link_until_a_retry() {
    for link in [started(), up()] {
        let (link, _) = step(link, NOW, failed(1, Fault::Fatal));
        assert_eq!((link.status(), link.due(&no_jitter())), ("fatal", None));
        let (link, effect) = step(link, later(9999), Event::Tick);
        assert_eq!(effect, None);
        assert_eq!(step(link, NOW, Event::Retry).1, Some(LinkEffect::Connect { generation: 2 }));
    }
}

#[test]
fn inbound_data_brings_the_link_up_and_resets_attempts() {
    let (link, _) = step(started(), NOW, failed(1, SOON));
    let (link, _) = step(link, later(30), Event::Tick);
    assert_eq!((link.attempts, link.last_inbound), (1, None));
    let (link, effect) = step(link, later(31), Event::Alive { generation: 2 });
    assert_eq!((link.attempts, effect), (0, Some(LinkEffect::CameUp)));
    let (link, _) = step(link, later(60), failed(2, SOON));
    assert_eq!(link.last_inbound, Some(later(31)), "the last sign of life is kept");
}

#[test]
fn honours_a_longer_wait_named_by_the_platform() {
    let after = Some(Duration::from_secs(90));
    for link in [started(), up()] {
        let (link, _) = step(link, later(60), failed(1, Fault::Later { after }));
        assert_eq!(wait_after(&link, later(60)), 90);
    }
}

#[test]
fn a_paused_link_stays_paused() {
    let (link, effect) = step(started(), NOW, Event::Pause);
    assert_eq!((effect, link.availability()), (Some(LinkEffect::Disconnect), Availability::Paused));
    let (link, _) = step(link, NOW, Event::Alive { generation: 1 });
    assert_eq!(step(link, later(9999), Event::Tick).0.state, State::Paused);
}

#[test]
fn reconnects_after_the_clock_was_set_back() {
    let (link, _) = step(started(), NOW, failed(1, SOON));
    assert_eq!(step(link.clone(), NOW.before(Duration::from_secs(900)), Event::Tick).1, None, "a small step");
    let (link, _) =
        step(Link { state: State::Connecting { since: NOW }, ..link }, later(86_400), failed(1, SOON));
    assert_eq!(step(link, Millis(0), Event::Tick).1, Some(LinkEffect::Connect { generation: 2 }));
}

#[test]
fn reports_the_lag_of_late_batches() {
    let committed = |sent: u64| Event::Committed { generation: 1, oldest: Some(later(sent)) };
    let (link, _) = step(up(), later(100), committed(95));
    assert_eq!(link.lag_ms, None, "that is no delay");
    let (link, _) = step(link, later(100), committed(40));
    assert_eq!(link.lag_ms, Some(60_000));
    assert_eq!(step(link.clone(), later(101), committed(101)).0.lag_ms, None);
    assert_eq!(step(link.clone(), later(101), Event::Alive { generation: 1 }).0.lag_ms, None);
    let unknown = Event::Committed { generation: 1, oldest: None };
    assert_eq!(step(link, later(101), unknown).0.lag_ms, None);
}

#[test]
fn keeps_the_lag_until_the_backfill_is_complete() {
    let committed = |sent: u64| Event::Committed { generation: 1, oldest: Some(later(sent)) };
    let backfilling = Event::Backfilling { generation: 1 };
    let (link, effect) = step(started(), later(100), backfilling.clone());
    assert_eq!((link.availability(), effect), (Availability::Up, Some(LinkEffect::CameUp)), "it hears");
    assert!(link.backfilling && link.lag_ms.is_none());
    let (link, _) = step(link, later(100), committed(40));
    let (link, _) = step(link, later(105), backfilling.clone());
    let (link, _) = step(link, later(105), committed(104));
    assert_eq!(link.lag_ms, Some(60_000), "neither a sign of life nor a live message ends it");
    let (link, _) = step(link, later(110), committed(80));
    assert_eq!(link.lag_ms, Some(30_000));
    let (done, _) = step(link.clone(), later(111), Event::Alive { generation: 1 });
    assert_eq!((done.backfilling, done.lag_ms), (false, None));
    for over in [failed(1, SOON), Event::Retry, Event::Pause] {
        let (over, _) = step(link.clone(), later(111), over);
        assert_eq!((over.backfilling, over.lag_ms), (false, None), "{:?}", over.state);
    }
}

#[test]
fn reports_partial_outages_of_the_current_connection() {
    let outage = PartialOutage { part: "workspace T1".into(), code: "c".into(), reason: "r".into() };
    let outages = |generation| Event::PartialOutages { generation, outages: alloc::vec![outage.clone()] };
    assert!(step(up(), NOW, outages(0)).0.partial_outages.is_empty(), "an older one is ignored");
    let (link, effect) = step(up(), NOW, outages(1));
    assert_eq!((link.partial_outages.len(), link.status(), effect), (1, "connected", None));
    let (link, _) = step(link, later(1), Event::Alive { generation: 1 });
    assert_eq!(link.partial_outages.len(), 1, "a sign of life of the rest does not bring it back");
    let (link, _) = step(link, later(20), failed(1, SOON));
    assert!(link.partial_outages.is_empty());
}

#[test]
fn serializes_flat_and_round_trips() {
    let (link, _) = step(started(), NOW, failed(1, Fault::Refused));
    let written = serde_json::to_value(&link).expect("written");
    for (name, want) in [("state", "waiting"), ("class", "refused"), ("code", "c"), ("reason", "r")] {
        assert_eq!(written[name], want, "{written}");
    }
    assert_eq!(serde_json::from_value::<Link>(written).expect("read"), link);
}

#[test]
fn failure_classes_have_stable_names() {
    for (class, name) in [
        (FailureClass::Passing, "passing"),
        (FailureClass::Refused, "refused"),
        (FailureClass::Fatal, "fatal"),
    ] {
        assert_eq!(class.as_str(), name);
        assert_eq!(serde_json::to_value(class).expect("written"), name);
    }
}

#[test]
fn unconfigured_link_is_fatal_or_disabled_by_code() {
    for (code, published) in [("slack_no_token", "fatal"), ("relay_disabled", "disabled")] {
        let link = Link::unconfigured(code.into(), "why".into());
        assert_eq!((link.status(), link.due(&no_jitter())), (published, None));
        let failure = Failure { class: FailureClass::Fatal, code: code.into(), reason: "why".into() };
        assert_eq!(link.failure(), Some(&failure));
    }
}

#[test]
fn ignores_reports_of_a_superseded_generation() {
    let (link, _) = step(up(), NOW, Event::Retry);
    let outage = PartialOutage { part: "w".into(), code: "c".into(), reason: "r".into() };
    for late in [
        Event::Backfilling { generation: 1 },
        Event::Committed { generation: 1, oldest: Some(Millis(0)) },
        Event::PartialOutages { generation: 1, outages: alloc::vec![outage] },
        Event::Retrying { generation: 1, reason: "r".into() },
    ] {
        assert_eq!(step(link.clone(), later(60), late), (link.clone(), None));
    }
}

#[test]
fn retry_resets_failed_attempts() {
    let (link, _) = step(started(), NOW, failed(1, SOON));
    assert_eq!(link.attempts, 1);
    let (link, effect) = step(link, NOW, Event::Retry);
    assert_eq!((link.attempts, effect), (0, Some(LinkEffect::Connect { generation: 2 })));
}

#[test]
fn pause_fences_the_connection_it_ends() {
    let (mut link, _) = step(up(), NOW, Event::Retry);
    link = step(link, NOW, Event::Pause).0;
    assert_eq!(link.generation, 3);
    for late in [Event::Alive { generation: 2 }, failed(2, Fault::Fatal)] {
        assert_eq!(step(link.clone(), later(60), late), (link.clone(), None));
    }
}

#[test]
fn clears_the_retry_reason_for_a_new_connection() {
    let (link, _) = step(up(), NOW, Event::Retrying { generation: 1, reason: "conflict".into() });
    for event in [Event::Retry, Event::Pause, failed(1, SOON)] {
        assert_eq!(step(link.clone(), NOW, event).0.retry_reason, None);
    }
}

#[test]
fn keeps_a_wait_of_exactly_the_maximum() {
    let policy = LinkPolicy { fast_attempts: Some(1), slow_probe: MAX_WAIT.saturating_mul(2), ..no_jitter() };
    let (link, _) = started().step(NOW, MIDDLE_ROLL, failed(1, SOON), &policy);
    assert_eq!(wait_after(&link, NOW), policy.slow_probe.as_secs());
    assert_eq!(link.clone().step(NOW, MIDDLE_ROLL, Event::Tick, &policy), (link, None));
}
