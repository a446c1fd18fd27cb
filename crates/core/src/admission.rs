//! What becomes of a message when it arrives: start, wait, interrupt, steer, or refuse.
//!
//! The decision is made after the message has been committed, so every acknowledgement given here is true.

use serde::{Deserialize, Serialize};

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
    /// The queue is full; the author is told.
    Refuse,
}

/// What the author is told about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    Silent,
    Queued,
    Interrupting,
    Steered,
}

/// Longest queue of one session.
pub const QUEUE_CAP: usize = 32;

/// `waiting`: messages already queued in this session, without this one.
pub fn admit(mode: BusyMode, activity: Activity, arrival: Arrival, waiting: usize) -> Admission {
    if waiting >= QUEUE_CAP {
        return Admission::Refuse;
    }
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

impl Ack {
    /// The words for the author. `None`: nothing is said.
    pub const fn text(self) -> Option<&'static str> {
        match self {
            Self::Silent => None,
            Self::Queued => Some("⏳ Queued for the next turn."),
            Self::Interrupting => Some("⚡ Interrupting current task for your new message."),
            Self::Steered => Some("↪️ Steered into current run."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mode: BusyMode, activity: Activity, arrival: Arrival, waiting: usize, want: Admission) {
        assert_eq!(
            admit(mode, activity, arrival, waiting),
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
    fn internal_events_never_interrupt_and_say_nothing() {
        for mode in [BusyMode::Interrupt, BusyMode::Queue, BusyMode::Steer] {
            check(mode, Activity::Acting, Arrival::Internal, 0, Admission::Wait(Ack::Silent));
        }
    }

    #[test]
    fn a_full_queue_refuses_whatever_comes() {
        for arrival in [Arrival::Text, Arrival::Queued, Arrival::Internal] {
            check(BusyMode::Queue, Activity::Thinking, arrival, QUEUE_CAP, Admission::Refuse);
        }
    }

    #[test]
    fn an_unknown_mode_is_the_default() {
        assert_eq!(BusyMode::parse("que"), BusyMode::Interrupt);
        assert_eq!(BusyMode::parse(" steer "), BusyMode::Steer);
    }
}
