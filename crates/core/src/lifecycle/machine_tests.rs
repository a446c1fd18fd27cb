use super::*;
use crate::lifecycle::leave::{From, How};

const NOW: Millis = Millis(1_000);
const RESTART: Leave = Leave::Restart { how: How::Service, from: From::Outside };

fn up() -> Lifecycle {
    Lifecycle::default().step(NOW, Event::Started).0
}

fn marked() -> Event {
    Event::Marker(Some(Marker::default()))
}

const GONE: Event = Event::Marker(None);

/// Feeds events and tells what was published at each.
#[track_caller]
fn published(start: Lifecycle, events: &[Event], want: &[Option<State>]) -> Lifecycle {
    let mut life = start;
    for (at, (event, want)) in events.iter().zip(want).enumerate() {
        let (next, published) = life.step(NOW, event.clone());
        assert_eq!(published, *want, "event {at}: {event:?}");
        life = next;
    }
    life
}

#[test]
fn a_marker_drains_and_its_removal_runs_again() {
    let life = published(up(), &[marked(), GONE], &[Some(State::Draining), Some(State::Running)]);
    assert_eq!(life, up());
}

#[test]
fn a_marker_that_is_rewritten_publishes_nothing_new() {
    let again = Event::Marker(Some(Marker { principal: Some("nas".into()), ..Marker::default() }));
    let life = published(up(), &[marked(), again], &[Some(State::Draining), None]);
    assert_eq!(life.drain().and_then(|drain| drain.principal.as_deref()), Some("nas"));
}

#[test]
fn without_a_marker_nothing_is_published() {
    published(up(), &[GONE, GONE, GONE, GONE, GONE], &[None; 5]);
}

#[test]
fn a_shutdown_wins_over_the_end_of_a_drain() {
    for why in [Leave::Stop, Leave::Signal, RESTART] {
        let life = published(
            up(),
            &[marked(), Event::Leave(why), GONE, Event::Ended],
            &[Some(State::Draining), None, None, Some(why.last_words())],
        );
        assert!(life.drain().is_none());
    }
}

#[test]
fn after_the_end_a_removed_marker_publishes_nothing() {
    published(
        up(),
        &[marked(), Event::Leave(Leave::Stop), Event::Ended, GONE],
        &[Some(State::Draining), None, Some(State::Stopped), None],
    );
}

#[test]
fn a_marker_found_at_the_start_drains_before_anything_runs() {
    let life = published(Lifecycle::default(), &[marked(), Event::Started], &[Some(State::Draining), None]);
    assert_eq!(life.admits(Claim::User, 0, None), Err(Closed::Draining));
    published(life, &[GONE], &[Some(State::Running)]);
}

#[test]
fn a_deaf_gateway_is_degraded_until_it_hears() {
    let degraded = published(up(), &[Event::Deaf(true)], &[Some(State::Degraded)]);
    published(
        degraded,
        &[marked(), Event::Deaf(true), GONE, Event::Deaf(false)],
        &[Some(State::Draining), None, Some(State::Degraded), Some(State::Running)],
    );
}

#[test]
fn a_drain_closes_the_door_to_people_only() {
    let life = published(up(), &[marked()], &[Some(State::Draining)]);
    for (claim, want) in
        [(Claim::User, Err(Closed::Draining)), (Claim::Internal, Ok(())), (Claim::Resumed, Ok(()))]
    {
        assert_eq!(life.admits(claim, 5, Some(1)), want, "{claim:?}");
    }
    assert_eq!(life.door(), Door::Draining);
}

#[test]
fn whoever_leaves_starts_nothing() {
    for (why, restart) in [(Leave::Stop, false), (RESTART, true)] {
        let life = up().step(NOW, Event::Leave(why)).0;
        for claim in [Claim::User, Claim::Internal, Claim::Resumed] {
            assert_eq!(life.admits(claim, 0, None), Err(Closed::Leaving { restart }), "{why:?} {claim:?}");
        }
    }
}

#[test]
fn the_cap_counts_turns_that_begin() {
    assert_eq!(up().admits(Claim::User, 2, Some(2)), Err(Closed::Full { running: 2, cap: 2 }));
    assert_eq!(up().admits(Claim::User, 1, Some(2)), Ok(()));
    assert_eq!(up().admits(Claim::Resumed, 2, Some(2)), Ok(()));
}

#[test]
fn the_first_stop_counts_and_only_a_stronger_one_replaces_it() {
    for (first, second, want) in [
        (Leave::Signal, RESTART, RESTART),
        (Leave::Stop, RESTART, Leave::Stop),
        (RESTART, Leave::Stop, Leave::Stop),
        (RESTART, Leave::Signal, RESTART),
    ] {
        let life = up().step(NOW, Event::Leave(first)).0;
        let (life, published) = life.step(Millis(9_000), Event::Leave(second));
        assert_eq!((life.leaving(), published), (Some((want, NOW)), None), "{first:?} then {second:?}");
    }
}

#[test]
fn drained_and_released_a_thousand_times_it_is_what_it_was() {
    let mut life = up();
    for _ in 0..1_000 {
        life = life.step(NOW, marked()).0.step(NOW, GONE).0;
    }
    assert_eq!(life, up());
}

#[test]
fn published_states_have_the_names_of_the_status_file() {
    for (state, name) in [
        (State::Starting, "starting"),
        (State::Running, "running"),
        (State::Degraded, "degraded"),
        (State::Draining, "draining"),
        (State::Stopped, "stopped"),
        (State::StartupFailed, "startup_failed"),
    ] {
        assert_eq!(state.as_str(), name);
        assert_eq!(serde_json::to_value(state).ok(), Some(name.into()));
    }
}

#[test]
fn process_has_started_once_it_left_the_first_stage() {
    assert!(!Lifecycle::default().has_started());
    assert!(up().has_started());
    assert!(up().step(NOW, Event::Leave(Leave::Stop)).0.has_started());
}

#[test]
fn end_forgets_the_drain_whose_marker_is_still_there() {
    let life = up().step(NOW, marked()).0.step(NOW, Event::Leave(Leave::Stop)).0;
    assert!(life.drain().is_some());
    assert!(life.step(NOW, Event::Ended).0.drain().is_none());
}
