//! Admission of a message: start, wait, interrupt, steer or refuse.
//!
//! The decision is made after the message is committed, so every acknowledgement is true.

use alloc::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::lifecycle::{GateState, NotAccepting};
use crate::notices;

/// The effect of a message on the running turn of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BusyMode {
    #[default]
    Interrupt,
    Queue,
    Steer,
}

impl BusyMode {
    /// Unknown words mean the default.
    pub fn parse(word: &str) -> Self {
        match word.trim() {
            "queue" => Self::Queue,
            "steer" => Self::Steer,
            _ => Self::Interrupt,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    Idle,
    Thinking,
    Acting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    Text,
    /// `/queue …`: a turn of its own, in order, in every mode.
    Queued,
    /// From the gateway: waits silently, never interrupts.
    Internal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    Start,
    Wait(Ack),
    /// End the running turn; this message is next.
    Interrupt(Ack),
    /// Pass to the model with the next tool result; without one, start the next turn.
    Steer(Ack),
    Refuse(AdmissionRefusal),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionRefusal {
    QueueFull,
    /// A new turn would be needed, and none may start.
    NotAccepting(NotAccepting),
    /// The session is busy during a shutdown.
    Busy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    Silent,
    Queued,
    Interrupting,
    Steered,
    /// Runs after the drain.
    Held,
    AfterRestart,
}

pub const MAX_QUEUED: usize = 32;

/// `waiting`: queued messages of this session, without this one.
pub fn admit(
    mode: BusyMode,
    gate: GateState,
    activity: Activity,
    arrival: Arrival,
    waiting: usize,
) -> Admission {
    if waiting >= MAX_QUEUED && arrival != Arrival::Internal {
        return Admission::Refuse(AdmissionRefusal::QueueFull);
    }
    let busy = activity != Activity::Idle || waiting > 0;
    match (gate, arrival) {
        (GateState::Draining, Arrival::Internal) if busy => Admission::Wait(Ack::Silent),
        // Committed, so the next start finds it.
        (GateState::ShuttingDown { .. }, Arrival::Internal) => Admission::Wait(Ack::Silent),
        (GateState::Draining, Arrival::Internal) => Admission::Start,
        (GateState::Draining, Arrival::Text | Arrival::Queued) if busy => Admission::Wait(Ack::Held),
        (GateState::Draining, Arrival::Text | Arrival::Queued) => {
            Admission::Refuse(AdmissionRefusal::NotAccepting(NotAccepting::Draining))
        }
        (GateState::ShuttingDown { restart }, Arrival::Text | Arrival::Queued) if !busy => {
            Admission::Refuse(AdmissionRefusal::NotAccepting(NotAccepting::ShuttingDown { restart }))
        }
        (GateState::ShuttingDown { restart }, Arrival::Text | Arrival::Queued) => {
            let can_wait = mode != BusyMode::Interrupt || arrival == Arrival::Queued;
            if restart && can_wait {
                Admission::Wait(Ack::AfterRestart)
            } else {
                Admission::Refuse(AdmissionRefusal::Busy)
            }
        }
        (GateState::Open, _) => admit_running(mode, activity, arrival, waiting),
    }
}

fn admit_running(mode: BusyMode, activity: Activity, arrival: Arrival, waiting: usize) -> Admission {
    match (activity, arrival) {
        (Activity::Idle, Arrival::Text | Arrival::Queued | Arrival::Internal) if waiting == 0 => {
            Admission::Start
        }
        (_, Arrival::Internal) => Admission::Wait(Ack::Silent),
        (_, Arrival::Queued) => Admission::Wait(Ack::Queued),
        (Activity::Idle, Arrival::Text) => Admission::Wait(Ack::Silent),
        (Activity::Thinking | Activity::Acting, Arrival::Text) => match mode {
            BusyMode::Interrupt => Admission::Interrupt(Ack::Interrupting),
            BusyMode::Queue => Admission::Wait(Ack::Queued),
            BusyMode::Steer => Admission::Steer(Ack::Steered),
        },
    }
}

impl AdmissionRefusal {
    pub fn text(self) -> Cow<'static, str> {
        match self {
            Self::QueueFull => Cow::Borrowed(notices::QUEUE_FULL),
            Self::NotAccepting(NotAccepting::Draining) => Cow::Borrowed(notices::DRAINING),
            Self::NotAccepting(NotAccepting::ShuttingDown { restart: true }) => {
                Cow::Borrowed(notices::RESTARTING)
            }
            Self::NotAccepting(NotAccepting::ShuttingDown { restart: false }) => {
                Cow::Borrowed(notices::SHUTTING_DOWN)
            }
            Self::NotAccepting(NotAccepting::AtCapacity { running, cap }) => {
                Cow::Owned(notices::at_capacity(running, cap))
            }
            Self::Busy => Cow::Borrowed(notices::BUSY_SHUTTING_DOWN),
        }
    }
}

impl Ack {
    pub const fn text(self) -> Option<&'static str> {
        match self {
            Self::Silent => None,
            Self::Queued => Some(notices::QUEUED),
            Self::Interrupting => Some(notices::INTERRUPTING),
            Self::Steered => Some(notices::STEERED),
            Self::Held => Some(notices::HELD),
            Self::AfterRestart => Some(notices::AFTER_RESTART),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mode: BusyMode, activity: Activity, arrival: Arrival, waiting: usize, want: Admission) {
        assert_eq!(
            admit(mode, GateState::Open, activity, arrival, waiting),
            want,
            "{mode:?} {activity:?} {arrival:?} {waiting}"
        );
    }

    #[test]
    fn starts_at_once_in_an_idle_session() {
        for mode in [BusyMode::Interrupt, BusyMode::Queue, BusyMode::Steer] {
            check(mode, Activity::Idle, Arrival::Text, 0, Admission::Start);
            check(mode, Activity::Idle, Arrival::Internal, 0, Admission::Start);
        }
    }

    #[test]
    fn busy_session_follows_its_mode() {
        use Activity::{Acting, Thinking};
        check(BusyMode::Interrupt, Thinking, Arrival::Text, 0, Admission::Interrupt(Ack::Interrupting));
        check(BusyMode::Queue, Acting, Arrival::Text, 3, Admission::Wait(Ack::Queued));
        check(BusyMode::Steer, Acting, Arrival::Text, 0, Admission::Steer(Ack::Steered));
    }

    #[test]
    fn never_overtakes_a_waiting_message() {
        for (arrival, ack) in
            [(Arrival::Text, Ack::Silent), (Arrival::Queued, Ack::Queued), (Arrival::Internal, Ack::Silent)]
        {
            check(BusyMode::Interrupt, Activity::Idle, arrival, 1, Admission::Wait(ack));
        }
    }

    #[test]
    fn internal_events_wait_silently() {
        for mode in [BusyMode::Interrupt, BusyMode::Queue, BusyMode::Steer] {
            check(mode, Activity::Acting, Arrival::Internal, 0, Admission::Wait(Ack::Silent));
        }
    }

    #[test]
    fn full_queue_refuses_users_but_not_internal_events() {
        check(
            BusyMode::Queue,
            Activity::Thinking,
            Arrival::Internal,
            MAX_QUEUED,
            Admission::Wait(Ack::Silent),
        );
        for arrival in [Arrival::Text, Arrival::Queued] {
            check(
                BusyMode::Queue,
                Activity::Thinking,
                arrival,
                MAX_QUEUED,
                Admission::Refuse(AdmissionRefusal::QueueFull),
            );
        }
    }

    const MODES: [BusyMode; 3] = [BusyMode::Interrupt, BusyMode::Queue, BusyMode::Steer];
    const BUSY: [Activity; 2] = [Activity::Thinking, Activity::Acting];

    #[test]
    fn drain_refuses_idle_sessions_and_queues_busy_ones() {
        for mode in MODES {
            for arrival in [Arrival::Text, Arrival::Queued] {
                let idle = admit(mode, GateState::Draining, Activity::Idle, arrival, 0);
                assert_eq!(idle, Admission::Refuse(AdmissionRefusal::NotAccepting(NotAccepting::Draining)));
                for (activity, waiting) in BUSY.map(|busy| (busy, 0)).into_iter().chain([(Activity::Idle, 1)])
                {
                    let busy = admit(mode, GateState::Draining, activity, arrival, waiting);
                    assert_eq!(busy, Admission::Wait(Ack::Held), "{mode:?} {activity:?} {arrival:?}");
                }
            }
            let internal = admit(mode, GateState::Draining, Activity::Acting, Arrival::Internal, 0);
            assert_eq!(internal, Admission::Wait(Ack::Silent));
            assert_eq!(
                admit(mode, GateState::Draining, Activity::Idle, Arrival::Internal, 0),
                Admission::Start
            );
        }
    }

    #[test]
    fn shutdown_queues_only_messages_that_can_wait() {
        for (restart, mode, arrival, want) in [
            (true, BusyMode::Queue, Arrival::Text, Admission::Wait(Ack::AfterRestart)),
            (true, BusyMode::Steer, Arrival::Text, Admission::Wait(Ack::AfterRestart)),
            (true, BusyMode::Interrupt, Arrival::Text, Admission::Refuse(AdmissionRefusal::Busy)),
            (true, BusyMode::Interrupt, Arrival::Queued, Admission::Wait(Ack::AfterRestart)),
            (false, BusyMode::Queue, Arrival::Text, Admission::Refuse(AdmissionRefusal::Busy)),
            (false, BusyMode::Queue, Arrival::Internal, Admission::Wait(Ack::Silent)),
        ] {
            for activity in BUSY {
                let got = admit(mode, GateState::ShuttingDown { restart }, activity, arrival, 0);
                assert_eq!(got, want, "{restart} {mode:?} {activity:?} {arrival:?}");
            }
            let idle = admit(mode, GateState::ShuttingDown { restart }, Activity::Idle, Arrival::Text, 0);
            assert_eq!(
                idle,
                Admission::Refuse(AdmissionRefusal::NotAccepting(NotAccepting::ShuttingDown { restart }))
            );
        }
    }

    #[test]
    fn refusals_contain_the_required_phrases() {
        for (refusal, phrases) in [
            (
                AdmissionRefusal::NotAccepting(NotAccepting::Draining),
                &["draining", "maintenance", "resend"][..],
            ),
            (
                AdmissionRefusal::NotAccepting(NotAccepting::ShuttingDown { restart: true }),
                &["Gateway is restarting", "not accepting new work right now"],
            ),
            (
                AdmissionRefusal::NotAccepting(NotAccepting::ShuttingDown { restart: false }),
                &["Gateway is shutting down", "not accepting new work right now"],
            ),
            (AdmissionRefusal::Busy, &["is not accepting another turn right now"]),
            (
                AdmissionRefusal::NotAccepting(NotAccepting::AtCapacity { running: 3, cap: 3 }),
                &["at the active session limit (3/3)"],
            ),
        ] {
            let text = refusal.text();
            for phrase in phrases {
                assert!(text.contains(phrase), "{phrase:?} is missing in {text}");
            }
        }
        let ack = Ack::AfterRestart.text().unwrap();
        assert!(ack.contains("Gateway restarting — queued for the next turn after it comes back"));
    }

    #[test]
    fn parses_unknown_modes_as_the_default() {
        assert_eq!(BusyMode::parse("que"), BusyMode::Interrupt);
        assert_eq!(BusyMode::parse(" steer "), BusyMode::Steer);
        assert_eq!(BusyMode::parse("queue"), BusyMode::Queue);
    }
}
