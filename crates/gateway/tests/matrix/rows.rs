//! The rows: faults, forms of answers, and the results that people may see.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Plain,
    /// A preview that is completed by a last edit.
    Streamed,
    /// More than fits into one message.
    Split,
}

impl Form {
    pub const ALL: [Self; 3] = [Self::Plain, Self::Streamed, Self::Split];
}

/// Faults of outgoing requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Out {
    TooMany,
    /// Without a retry time.
    TooManyBare,
    NotWell,
    /// An HTML page of a proxy.
    BadGateway,
    ResetBefore,
    ResetAfter,
    Hang,
    HangAfter,
    Half,
    Garbage,
    Slow,
    Forbidden,
    NoChat,
    TooLong,
    /// The message to edit no longer exists.
    Gone,
}

/// Faults of incoming messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum In {
    Twice,
    OutOfOrder,
    Rubbish,
    Garbage,
    Half,
    NotWell,
    TooMany,
    /// The connection is lost before the message is sent.
    Cut,
    /// The connection is lost after the message is sent.
    CutBehind,
    Closed,
    /// The platform requests a reconnect to another address.
    Moved,
    /// The session is invalid and cannot be resumed.
    Over,
    Down,
    Silent,
    Huge,
    AckLost,
    /// A forged request comes first.
    Forged,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelFault {
    NotWell,
    CutOff,
    Garbage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellFault {
    /// Fault of the request that completes the answer: the message, the last edit, or the last part.
    Last(Out),
    /// Fault of the first request of the answer: its preview, or its first part.
    First(Out),
    /// The platform is down when the answer is sent.
    Away,
    /// The process dies while the request that completes the answer hangs.
    Crash(Out),
    Incoming(In),
    Model(ModelFault),
    /// The wall clock jumps by this many hours while the answer waits.
    Clock(i64),
}

pub struct FaultRow {
    pub name: &'static str,
    pub trouble: CellFault,
}

const fn row(name: &'static str, trouble: CellFault) -> FaultRow {
    FaultRow { name, trouble }
}

pub const ROWS: &[FaultRow] = &[
    row("429 with a wait", CellFault::Last(Out::TooMany)),
    row("429 without a wait", CellFault::Last(Out::TooManyBare)),
    row("500", CellFault::Last(Out::NotWell)),
    row("502 with an HTML page of a proxy", CellFault::Last(Out::BadGateway)),
    row("reset before processing", CellFault::Last(Out::ResetBefore)),
    row("reset after processing: the acknowledgement is lost", CellFault::Last(Out::ResetAfter)),
    row("the acknowledgement of the first request is lost", CellFault::First(Out::ResetAfter)),
    row("timeout, not processed", CellFault::Last(Out::Hang)),
    row("timeout, processed", CellFault::Last(Out::HangAfter)),
    row("a truncated response", CellFault::Last(Out::Half)),
    row("an invalid response", CellFault::Last(Out::Garbage)),
    row("a slow response", CellFault::Last(Out::Slow)),
    row("403", CellFault::Last(Out::Forbidden)),
    row("404, no such chat", CellFault::Last(Out::NoChat)),
    row("refused as too long", CellFault::Last(Out::TooLong)),
    row("the message to edit is gone", CellFault::Last(Out::Gone)),
    row("connections are refused", CellFault::Away),
    row("a crash, the request not processed", CellFault::Crash(Out::Hang)),
    row("a crash, the request processed", CellFault::Crash(Out::HangAfter)),
    row("the clock jumps six hours ahead", CellFault::Clock(6)),
    row("the clock jumps two hours back", CellFault::Clock(-2)),
    row("delivered twice", CellFault::Incoming(In::Twice)),
    row("delivered out of order", CellFault::Incoming(In::OutOfOrder)),
    row("an unreadable event before the message", CellFault::Incoming(In::Rubbish)),
    row("garbage on the wire before the message", CellFault::Incoming(In::Garbage)),
    row("half a delivery", CellFault::Incoming(In::Half)),
    row("502 while receiving", CellFault::Incoming(In::NotWell)),
    row("429 while receiving", CellFault::Incoming(In::TooMany)),
    row("the connection is lost before the message", CellFault::Incoming(In::Cut)),
    row("the connection is lost after the message", CellFault::Incoming(In::CutBehind)),
    row("closed with a code", CellFault::Incoming(In::Closed)),
    row("a reconnect to another address is requested", CellFault::Incoming(In::Moved)),
    row("the session is over", CellFault::Incoming(In::Over)),
    row("sent while the server is away", CellFault::Incoming(In::Down)),
    row("the connection falls silent", CellFault::Incoming(In::Silent)),
    row("a message that is far too long", CellFault::Incoming(In::Huge)),
    row("the gateway's acknowledgement is lost", CellFault::Incoming(In::AckLost)),
    row("a forged delivery before the message", CellFault::Incoming(In::Forged)),
    // The model.
    row("the model answers 503", CellFault::Model(ModelFault::NotWell)),
    row("the model's answer breaks off", CellFault::Model(ModelFault::CutOff)),
    row("the model's answer is invalid", CellFault::Model(ModelFault::Garbage)),
];

/// The messages that people see in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisibleResult {
    /// Complete and once, without a mark.
    Once,
    /// Complete and once, marked as a possible duplicate.
    Marked,
    /// Partly duplicated; the duplicate is marked.
    Twice,
    /// Listed as a dead letter.
    GivenUp,
}

impl VisibleResult {
    pub const fn letter(self) -> char {
        match self {
            Self::Once => '1',
            Self::Marked => 'm',
            Self::Twice => '2',
            Self::GivenUp => 'x',
        }
    }
}

/// Implication of a failed request for the message.
enum FailureMeaning {
    /// Not sent: retry.
    Later,
    /// Refused: do not retry.
    Refused,
    /// Unknown outcome.
    Unknown { arrived: bool },
}

impl Out {
    const fn meaning(self) -> FailureMeaning {
        match self {
            Self::TooMany | Self::TooManyBare | Self::NotWell | Self::Slow => FailureMeaning::Later,
            Self::Forbidden | Self::NoChat | Self::TooLong | Self::Gone => FailureMeaning::Refused,
            Self::BadGateway | Self::ResetBefore | Self::Hang | Self::Garbage => {
                FailureMeaning::Unknown { arrived: false }
            }
            Self::ResetAfter | Self::HangAfter | Self::Half => FailureMeaning::Unknown { arrived: true },
        }
    }

    /// `keyed`: the platform supports idempotency keys.
    const fn want(self, form: Form, keyed: bool) -> VisibleResult {
        match (self.meaning(), form) {
            (FailureMeaning::Later, _) => VisibleResult::Once,
            // An edit is repeated, or sent as a new message if the old one is gone.
            (FailureMeaning::Refused | FailureMeaning::Unknown { .. }, Form::Streamed) => VisibleResult::Once,
            (FailureMeaning::Refused, Form::Plain | Form::Split) => VisibleResult::GivenUp,
            (FailureMeaning::Unknown { .. }, Form::Plain | Form::Split) if keyed => VisibleResult::Once,
            (FailureMeaning::Unknown { arrived: true }, Form::Plain | Form::Split) => VisibleResult::Twice,
            (FailureMeaning::Unknown { arrived: false }, Form::Plain | Form::Split) => VisibleResult::Marked,
        }
    }
}

impl CellFault {
    /// `None`: not applicable to this form.
    pub const fn want(self, form: Form, keyed: bool) -> Option<VisibleResult> {
        match (self, form) {
            (Self::Last(Out::Gone), Form::Plain | Form::Split) | (Self::First(_), Form::Plain) => None,
            // A preview has no idempotency key, so its outcome is unknown and the whole answer is marked.
            (Self::First(_), Form::Streamed) => Some(VisibleResult::Twice),
            (Self::Last(out) | Self::First(out) | Self::Crash(out), _) => Some(out.want(form, keyed)),
            (Self::Away | Self::Incoming(_) | Self::Model(_) | Self::Clock(_), _) => {
                Some(VisibleResult::Once)
            }
        }
    }

    /// Whether the fault depends on a timeout.
    pub const fn patience(self) -> AdapterTimeout {
        match self {
            Self::Last(Out::Hang | Out::HangAfter | Out::Garbage) | Self::Incoming(In::Silent) => {
                AdapterTimeout::Short
            }
            Self::Last(_)
            | Self::First(_)
            | Self::Away
            | Self::Crash(_)
            | Self::Incoming(_)
            | Self::Model(_)
            | Self::Clock(_) => AdapterTimeout::Long,
        }
    }
}

/// Request timeout of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdapterTimeout {
    /// Long enough for a loaded machine.
    Long,
    Short,
}

impl AdapterTimeout {
    pub const fn request(self) -> Duration {
        match self {
            Self::Long => Duration::from_secs(30),
            Self::Short => Duration::from_millis(2500),
        }
    }
}
