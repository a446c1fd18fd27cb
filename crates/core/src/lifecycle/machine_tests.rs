use super::*;
use crate::lifecycle::shutdown::{RestartMethod, RestartOrigin};

const NOW: Millis = Millis(1_000);
const RESTART: ShutdownReason =
    ShutdownReason::Restart { method: RestartMethod::Service, origin: RestartOrigin::Outside };

fn up() -> Lifecycle {
    Lifecycle::default().step(NOW, Event::Started).0
}

fn marked() -> Event {
    Event::Marker(Some(Marker::default()))
}

const GONE: Event = Event::Marker(None);

/// Applies events and checks the published states.
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
fn drains_while_the_marker_exists() {
    let life = published(up(), &[marked(), GONE], &[Some(State::Draining), Some(State::Running)]);
    assert_eq!(life, up());
}

#[test]
fn publishes_nothing_for_a_rewritten_marker() {
    let again = Event::Marker(Some(Marker { principal: Some("nas".into()), ..Marker::default() }));
    let life = published(up(), &[marked(), again], &[Some(State::Draining), None]);
    assert_eq!(life.drain().and_then(|drain| drain.principal.as_deref()), Some("nas"));
}

#[test]
fn publishes_nothing_without_a_marker() {
    published(up(), &[GONE, GONE, GONE, GONE, GONE], &[None; 5]);
}

#[test]
fn shutdown_overrides_the_end_of_a_drain() {
    for why in [ShutdownReason::Stop, ShutdownReason::Signal, RESTART] {
        let life = published(
            up(),
            &[marked(), Event::Shutdown(why), GONE, Event::Ended],
            &[Some(State::Draining), None, None, Some(why.final_state())],
        );
        assert!(life.drain().is_none());
    }
}

#[test]
fn ignores_a_removed_marker_after_the_end() {
    published(
        up(),
        &[marked(), Event::Shutdown(ShutdownReason::Stop), Event::Ended, GONE],
        &[Some(State::Draining), None, Some(State::Stopped), None],
    );
}

#[test]
fn drains_at_start_if_the_marker_exists() {
    let life = published(Lifecycle::default(), &[marked(), Event::Started], &[Some(State::Draining), None]);
    assert_eq!(life.admits(TurnOrigin::User, 0, None), Err(NotAccepting::Draining));
    published(life, &[GONE], &[Some(State::Running)]);
}

#[test]
fn is_degraded_while_no_platform_is_connected() {
    let degraded = published(up(), &[Event::AllDisconnected(true)], &[Some(State::Degraded)]);
    published(
        degraded,
        &[marked(), Event::AllDisconnected(true), GONE, Event::AllDisconnected(false)],
        &[Some(State::Draining), None, Some(State::Degraded), Some(State::Running)],
    );
}

#[test]
fn drain_refuses_turns_of_users_only() {
    let life = published(up(), &[marked()], &[Some(State::Draining)]);
    for (claim, want) in [
        (TurnOrigin::User, Err(NotAccepting::Draining)),
        (TurnOrigin::Internal, Ok(())),
        (TurnOrigin::Resumed, Ok(())),
    ] {
        assert_eq!(life.admits(claim, 5, Some(1)), want, "{claim:?}");
    }
    assert_eq!(life.gate(), GateState::Draining);
}

#[test]
fn starts_no_turn_during_shutdown() {
    for (why, restart) in [(ShutdownReason::Stop, false), (RESTART, true)] {
        let life = up().step(NOW, Event::Shutdown(why)).0;
        for claim in [TurnOrigin::User, TurnOrigin::Internal, TurnOrigin::Resumed] {
            assert_eq!(
                life.admits(claim, 0, None),
                Err(NotAccepting::ShuttingDown { restart }),
                "{why:?} {claim:?}"
            );
        }
    }
}

#[test]
fn limit_applies_to_new_turns_only() {
    assert_eq!(
        up().admits(TurnOrigin::User, 2, Some(2)),
        Err(NotAccepting::AtCapacity { running: 2, cap: 2 })
    );
    assert_eq!(up().admits(TurnOrigin::User, 1, Some(2)), Ok(()));
    assert_eq!(up().admits(TurnOrigin::Resumed, 2, Some(2)), Ok(()));
}

#[test]
fn keeps_the_first_reason_unless_outranked() {
    for (first, second, want) in [
        (ShutdownReason::Signal, RESTART, RESTART),
        (ShutdownReason::Stop, RESTART, ShutdownReason::Stop),
        (RESTART, ShutdownReason::Stop, ShutdownReason::Stop),
        (RESTART, ShutdownReason::Signal, RESTART),
    ] {
        let life = up().step(NOW, Event::Shutdown(first)).0;
        let (life, published) = life.step(Millis(9_000), Event::Shutdown(second));
        assert_eq!((life.shutdown(), published), (Some((want, NOW)), None), "{first:?} then {second:?}");
    }
}

#[test]
fn repeated_drains_leave_no_trace() {
    let mut life = up();
    for _ in 0..1_000 {
        life = life.step(NOW, marked()).0.step(NOW, GONE).0;
    }
    assert_eq!(life, up());
}

#[test]
fn states_have_the_names_of_the_status_file() {
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
fn has_started_after_the_first_stage() {
    assert!(!Lifecycle::default().has_started());
    assert!(up().has_started());
    assert!(up().step(NOW, Event::Shutdown(ShutdownReason::Stop)).0.has_started());
}

#[test]
fn end_clears_the_drain() {
    let life = up().step(NOW, marked()).0.step(NOW, Event::Shutdown(ShutdownReason::Stop)).0;
    assert!(life.drain().is_some());
    assert!(life.step(NOW, Event::Ended).0.drain().is_none());
}
