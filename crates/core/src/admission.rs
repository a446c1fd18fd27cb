//! What becomes of a message when it arrives: start, wait, interrupt, steer, or refuse.
//!
//! The decision is made after the message has been committed, so every acknowledgement given here is true.

use alloc::borrow::Cow;
use alloc::format;

use serde::{Deserialize, Serialize};

use crate::lifecycle::{Closed, Door};

/// What a message does to a turn that is running in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BusyMode {
    #[default]
    Interrupt,
    Queue,
    Steer,
}

impl BusyMode {
    /// An unknown word means the default.
    pub fn parse(word: &str) -> Self {
        match word.trim() {
            "queue" => Self::Queue,
            "steer" => Self::Steer,
            _ => Self::Interrupt,
        }
    }
}

/// What the session is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    Idle,
    Thinking,
    Acting,
}

/// What kind of message came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    Text,
    /// `/queue …`: its own turn, in order, whatever the mode.
    Queued,
    /// Made by the gateway: waits silently, never interrupts.
    Internal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    Start,
    /// Stays in the queue.
    Wait(Ack),
    /// Ends the running turn; the message is next.
    Interrupt(Ack),
    /// Goes to the model with the next tool result; if none comes, it is the next turn.
    Steer(Ack),
    /// Not taken; the author is told why.
    Refuse(Refusal),
}

/// Why a message is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Too much waits here already.
    QueueFull,
    /// A turn would have to start, and none may.
    Closed(Closed),
    /// The session is at work, and we are leaving.
    Busy,
}

/// What the author is told about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    Silent,
    Queued,
    Interrupting,
    Steered,
    /// It runs when the drain is over.
    Held,
    /// It runs after the restart.
    AfterRestart,
}

/// Longest queue of one session.
pub const QUEUE_CAP: usize = 32;

/// `waiting`: messages already queued in this session, without this one.
pub fn admit(mode: BusyMode, door: Door, activity: Activity, arrival: Arrival, waiting: usize) -> Admission {
    if waiting >= QUEUE_CAP && arrival != Arrival::Internal {
        return Admission::Refuse(Refusal::QueueFull);
    }
    let busy = activity != Activity::Idle || waiting > 0;
    match (door, arrival) {
        (Door::Draining, Arrival::Internal) if busy => Admission::Wait(Ack::Silent),
        // It is on disk, and the next start finds it there.
        (Door::Leaving { .. }, Arrival::Internal) => Admission::Wait(Ack::Silent),
        (Door::Draining, Arrival::Internal) => Admission::Start,
        (Door::Draining, Arrival::Text | Arrival::Queued) if busy => Admission::Wait(Ack::Held),
        (Door::Draining, Arrival::Text | Arrival::Queued) => {
            Admission::Refuse(Refusal::Closed(Closed::Draining))
        }
        (Door::Leaving { restart }, Arrival::Text | Arrival::Queued) if !busy => {
            Admission::Refuse(Refusal::Closed(Closed::Leaving { restart }))
        }
        (Door::Leaving { restart }, Arrival::Text | Arrival::Queued) => {
            let patient = mode != BusyMode::Interrupt || arrival == Arrival::Queued;
            if restart && patient {
                Admission::Wait(Ack::AfterRestart)
            } else {
                Admission::Refuse(Refusal::Busy)
            }
        }
        (Door::Open, _) => admit_running(mode, activity, arrival, waiting),
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

impl Refusal {
    /// The words for the author.
    pub fn text(self) -> Cow<'static, str> {
        match self {
            Self::QueueFull => Cow::Borrowed(
                "🚫 Too many messages are waiting here, so this one was not taken. Wait for an answer, or send /stop.",
            ),
            Self::Closed(Closed::Draining) => Cow::Borrowed(
                "🚧 The gateway is draining for maintenance, so I have not started on this. Please resend it in a while.",
            ),
            Self::Closed(Closed::Leaving { restart: true }) => Cow::Borrowed(
                "🔄 Gateway is restarting and is not accepting new work right now. Please resend it in a minute.",
            ),
            Self::Closed(Closed::Leaving { restart: false }) => Cow::Borrowed(
                "⏹ Gateway is shutting down and is not accepting new work right now. Please resend it when it is back.",
            ),
            Self::Closed(Closed::Full { running, cap }) => Cow::Owned(format!(
                "🚦 I am at the active session limit ({running}/{cap}), so I have not started on this. Please resend it later."
            )),
            Self::Busy => Cow::Borrowed(
                "⏹ The gateway is on its way out and is not accepting another turn right now. Please resend this later.",
            ),
        }
    }
}

impl Ack {
    /// The words for the author. `None`: nothing is said.
    pub const fn text(self) -> Option<&'static str> {
        match self {
            Self::Silent => None,
            Self::Queued => Some("⏳ Queued for the next turn."),
            Self::Interrupting => Some("⚡ Interrupting current task for your new message."),
            Self::Steered => Some("↪️ Steered into current run."),
            Self::Held => Some(
                "🚧 The gateway is draining: your message is held, and I start on it when the drain is over.",
            ),
            Self::AfterRestart => {
                Some("🔄 Gateway restarting — queued for the next turn after it comes back.")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mode: BusyMode, activity: Activity, arrival: Arrival, waiting: usize, want: Admission) {
        assert_eq!(
            admit(mode, Door::Open, activity, arrival, waiting),
            want,
            "{mode:?} {activity:?} {arrival:?} {waiting}"
        );
    }

    #[test]
    fn an_idle_session_starts_at_once() {
        for mode in [BusyMode::Interrupt, BusyMode::Queue, BusyMode::Steer] {
            check(mode, Activity::Idle, Arrival::Text, 0, Admission::Start);
            check(mode, Activity::Idle, Arrival::Internal, 0, Admission::Start);
        }
    }

    #[test]
    fn a_busy_session_follows_its_mode() {
        use Activity::{Acting, Thinking};
        check(BusyMode::Interrupt, Thinking, Arrival::Text, 0, Admission::Interrupt(Ack::Interrupting));
        check(BusyMode::Queue, Acting, Arrival::Text, 3, Admission::Wait(Ack::Queued));
        check(BusyMode::Steer, Acting, Arrival::Text, 0, Admission::Steer(Ack::Steered));
    }

    #[test]
    fn nothing_overtakes_a_waiting_message() {
        for (arrival, ack) in
            [(Arrival::Text, Ack::Silent), (Arrival::Queued, Ack::Queued), (Arrival::Internal, Ack::Silent)]
        {
            check(BusyMode::Interrupt, Activity::Idle, arrival, 1, Admission::Wait(ack));
        }
    }

    #[test]
    fn internal_events_never_interrupt_and_say_nothing() {
        for mode in [BusyMode::Interrupt, BusyMode::Queue, BusyMode::Steer] {
            check(mode, Activity::Acting, Arrival::Internal, 0, Admission::Wait(Ack::Silent));
        }
    }

    #[test]
    fn a_full_queue_refuses_people_and_nothing_of_the_gateways_own() {
        check(
            BusyMode::Queue,
            Activity::Thinking,
            Arrival::Internal,
            QUEUE_CAP,
            Admission::Wait(Ack::Silent),
        );
        for arrival in [Arrival::Text, Arrival::Queued] {
            check(
                BusyMode::Queue,
                Activity::Thinking,
                arrival,
                QUEUE_CAP,
                Admission::Refuse(Refusal::QueueFull),
            );
        }
    }

    const MODES: [BusyMode; 3] = [BusyMode::Interrupt, BusyMode::Queue, BusyMode::Steer];
    const BUSY: [Activity; 2] = [Activity::Thinking, Activity::Acting];

    #[test]
    fn in_a_drain_an_idle_chat_is_turned_away_and_a_busy_one_waits_whatever_the_mode() {
        for mode in MODES {
            for arrival in [Arrival::Text, Arrival::Queued] {
                let idle = admit(mode, Door::Draining, Activity::Idle, arrival, 0);
                assert_eq!(idle, Admission::Refuse(Refusal::Closed(Closed::Draining)));
                for (activity, waiting) in BUSY.map(|busy| (busy, 0)).into_iter().chain([(Activity::Idle, 1)])
                {
                    let busy = admit(mode, Door::Draining, activity, arrival, waiting);
                    assert_eq!(busy, Admission::Wait(Ack::Held), "{mode:?} {activity:?} {arrival:?}");
                }
            }
            let internal = admit(mode, Door::Draining, Activity::Acting, Arrival::Internal, 0);
            assert_eq!(internal, Admission::Wait(Ack::Silent));
            assert_eq!(admit(mode, Door::Draining, Activity::Idle, Arrival::Internal, 0), Admission::Start);
        }
    }

    #[test]
    fn whoever_leaves_takes_follow_ups_only_if_they_can_wait_for_the_restart() {
        for (restart, mode, arrival, want) in [
            (true, BusyMode::Queue, Arrival::Text, Admission::Wait(Ack::AfterRestart)),
            (true, BusyMode::Steer, Arrival::Text, Admission::Wait(Ack::AfterRestart)),
            (true, BusyMode::Interrupt, Arrival::Text, Admission::Refuse(Refusal::Busy)),
            (true, BusyMode::Interrupt, Arrival::Queued, Admission::Wait(Ack::AfterRestart)),
            (false, BusyMode::Queue, Arrival::Text, Admission::Refuse(Refusal::Busy)),
            (false, BusyMode::Queue, Arrival::Internal, Admission::Wait(Ack::Silent)),
        ] {
            for activity in BUSY {
                let got = admit(mode, Door::Leaving { restart }, activity, arrival, 0);
                assert_eq!(got, want, "{restart} {mode:?} {activity:?} {arrival:?}");
            }
            let idle = admit(mode, Door::Leaving { restart }, Activity::Idle, Arrival::Text, 0);
            assert_eq!(idle, Admission::Refuse(Refusal::Closed(Closed::Leaving { restart })));
        }
    }

    #[test]
    fn every_refusal_says_what_the_contract_wants() {
        for (refusal, phrases) in [
            (Refusal::Closed(Closed::Draining), &["draining", "maintenance", "resend"][..]),
            (
                Refusal::Closed(Closed::Leaving { restart: true }),
                &["Gateway is restarting", "not accepting new work right now"],
            ),
            (
                Refusal::Closed(Closed::Leaving { restart: false }),
                &["Gateway is shutting down", "not accepting new work right now"],
            ),
            (Refusal::Busy, &["is not accepting another turn right now"]),
            (Refusal::Closed(Closed::Full { running: 3, cap: 3 }), &["at the active session limit (3/3)"]),
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
    fn an_unknown_mode_is_the_default() {
        assert_eq!(BusyMode::parse("que"), BusyMode::Interrupt);
        assert_eq!(BusyMode::parse(" steer "), BusyMode::Steer);
        assert_eq!(BusyMode::parse("queue"), BusyMode::Queue);
    }
}
