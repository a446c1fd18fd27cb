//! The rows: what goes wrong, in which form of answer, and what people must see all the same.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One message.
    Plain,
    /// A message that grows and is completed by a last edit.
    Streamed,
    /// More than one message holds.
    Split,
}

impl Form {
    pub const ALL: [Self; 3] = [Self::Plain, Self::Streamed, Self::Split];
}

/// What a request of ours meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Out {
    TooMany,
    /// Without a wait.
    TooManyBare,
    NotWell,
    /// A page of somebody in between.
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
    /// The message that is to be changed is not there any more.
    Gone,
}

/// What befalls a message on its way to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum In {
    Twice,
    OutOfOrder,
    Rubbish,
    Garbage,
    Half,
    NotWell,
    TooMany,
    /// The connection is lost, then it is said.
    Cut,
    /// It is said, then the connection is lost.
    CutBehind,
    Closed,
    /// We are asked to connect elsewhere.
    Moved,
    /// The session is over and cannot be taken up again.
    Over,
    Down,
    Silent,
    Huge,
    AckLost,
    /// Somebody speaks in the platform's name first.
    Forged,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mind {
    NotWell,
    CutOff,
    Garbage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The request that completes the answer meets this: the message, the last edit, or the last part.
    Last(Out),
    /// The first request of the answer meets this: its preview, or its first part.
    First(Out),
    /// Nobody is there when the answer is to be sent.
    Away,
    /// The process dies while the request that completes the answer hangs.
    Crash(Out),
    Heard(In),
    Model(Mind),
    /// The wall clock jumps by so many hours while the answer waits.
    Clock(i64),
}

pub struct Row {
    pub name: &'static str,
    pub trouble: Trouble,
}

const fn row(name: &'static str, trouble: Trouble) -> Row {
    Row { name, trouble }
}

pub const ROWS: &[Row] = &[
    // The way out.
    row("429 with a wait", Trouble::Last(Out::TooMany)),
    row("429 without a wait", Trouble::Last(Out::TooManyBare)),
    row("500", Trouble::Last(Out::NotWell)),
    row("502, a page of somebody in between", Trouble::Last(Out::BadGateway)),
    row("reset before it was processed", Trouble::Last(Out::ResetBefore)),
    row("processed, then reset: the acknowledgement is lost", Trouble::Last(Out::ResetAfter)),
    row("the acknowledgement of the first request is lost", Trouble::First(Out::ResetAfter)),
    row("time-out, not processed", Trouble::Last(Out::Hang)),
    row("time-out, processed", Trouble::Last(Out::HangAfter)),
    row("half an answer", Trouble::Last(Out::Half)),
    row("an answer that makes no sense", Trouble::Last(Out::Garbage)),
    row("a slow answer", Trouble::Last(Out::Slow)),
    row("403", Trouble::Last(Out::Forbidden)),
    row("404, no such chat", Trouble::Last(Out::NoChat)),
    row("refused as too long", Trouble::Last(Out::TooLong)),
    row("what is to be edited is gone", Trouble::Last(Out::Gone)),
    row("connections are refused", Trouble::Away),
    row("a crash, the request not processed", Trouble::Crash(Out::Hang)),
    row("a crash, the request processed", Trouble::Crash(Out::HangAfter)),
    row("the clock jumps six hours ahead", Trouble::Clock(6)),
    row("the clock jumps two hours back", Trouble::Clock(-2)),
    // The way in.
    row("delivered twice", Trouble::Heard(In::Twice)),
    row("delivered out of order", Trouble::Heard(In::OutOfOrder)),
    row("something unreadable before it", Trouble::Heard(In::Rubbish)),
    row("garbage on the wire before it", Trouble::Heard(In::Garbage)),
    row("half a delivery", Trouble::Heard(In::Half)),
    row("502 while receiving", Trouble::Heard(In::NotWell)),
    row("429 while receiving", Trouble::Heard(In::TooMany)),
    row("the connection is lost before it is said", Trouble::Heard(In::Cut)),
    row("the connection is lost behind it", Trouble::Heard(In::CutBehind)),
    row("closed with a code", Trouble::Heard(In::Closed)),
    row("asked to connect elsewhere", Trouble::Heard(In::Moved)),
    row("the session is over", Trouble::Heard(In::Over)),
    row("said while the server is away", Trouble::Heard(In::Down)),
    row("a connection that falls silent", Trouble::Heard(In::Silent)),
    row("a message that is far too long", Trouble::Heard(In::Huge)),
    row("our acknowledgement is lost", Trouble::Heard(In::AckLost)),
    row("a forged delivery before it", Trouble::Heard(In::Forged)),
    // The model.
    row("the model answers 503", Trouble::Model(Mind::NotWell)),
    row("the model's answer breaks off", Trouble::Model(Mind::CutOff)),
    row("the model's answer makes no sense", Trouble::Model(Mind::Garbage)),
];

/// What people see in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Every word once, without a mark.
    Once,
    /// Every word once, and a mark: it might have been there already.
    Marked,
    /// Something twice, the second time marked.
    Twice,
    /// It was given up and is listed for the owner.
    GivenUp,
}

impl Seen {
    pub const fn letter(self) -> char {
        match self {
            Self::Once => '1',
            Self::Marked => 'm',
            Self::Twice => '2',
            Self::GivenUp => 'x',
        }
    }
}

/// What a failed request says of the message.
enum Meaning {
    /// Certainly not there: try again.
    Later,
    /// Never.
    Refused,
    /// Nobody can know.
    Unknown { arrived: bool },
}

impl Out {
    const fn meaning(self) -> Meaning {
        match self {
            Self::TooMany | Self::TooManyBare | Self::NotWell | Self::Slow => Meaning::Later,
            Self::Forbidden | Self::NoChat | Self::TooLong | Self::Gone => Meaning::Refused,
            Self::BadGateway | Self::ResetBefore | Self::Hang | Self::Garbage => {
                Meaning::Unknown { arrived: false }
            }
            Self::ResetAfter | Self::HangAfter | Self::Half => Meaning::Unknown { arrived: true },
        }
    }

    /// `keyed`: the platform recognises what comes again.
    const fn want(self, form: Form, keyed: bool) -> Seen {
        match (self.meaning(), form) {
            (Meaning::Later, _) => Seen::Once,
            // What replaces a message is repeated, or sent as new once the other is gone.
            (Meaning::Refused | Meaning::Unknown { .. }, Form::Streamed) => Seen::Once,
            (Meaning::Refused, Form::Plain | Form::Split) => Seen::GivenUp,
            (Meaning::Unknown { .. }, Form::Plain | Form::Split) if keyed => Seen::Once,
            (Meaning::Unknown { arrived: true }, Form::Plain | Form::Split) => Seen::Twice,
            (Meaning::Unknown { arrived: false }, Form::Plain | Form::Split) => Seen::Marked,
        }
    }
}

impl Trouble {
    /// `None`: there is no such thing in this form.
    pub const fn want(self, form: Form, keyed: bool) -> Option<Seen> {
        match (self, form) {
            (Self::Last(Out::Gone), Form::Plain | Form::Split) | (Self::First(_), Form::Plain) => None,
            // A preview has no key: whether it is there nobody knows, and the whole answer says so.
            (Self::First(_), Form::Streamed) => Some(Seen::Twice),
            (Self::Last(out) | Self::First(out) | Self::Crash(out), _) => Some(out.want(form, keyed)),
            (Self::Away | Self::Heard(_) | Self::Model(_) | Self::Clock(_), _) => Some(Seen::Once),
        }
    }

    /// Whether somebody must lose patience.
    pub const fn patience(self) -> Patience {
        match self {
            Self::Last(Out::Hang | Out::HangAfter | Out::Garbage) | Self::Heard(In::Silent) => {
                Patience::Short
            }
            Self::Last(_)
            | Self::First(_)
            | Self::Away
            | Self::Crash(_)
            | Self::Heard(_)
            | Self::Model(_)
            | Self::Clock(_) => Patience::Long,
        }
    }
}

/// How long an adapter waits for its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Long enough for a machine under load.
    Long,
    Short,
}

impl Patience {
    pub const fn request(self) -> Duration {
        match self {
            Self::Long => Duration::from_secs(30),
            Self::Short => Duration::from_millis(2500),
        }
    }
}
