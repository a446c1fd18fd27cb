//! The guarantees by name, and their violations.

use std::fmt;

use petasos_core::Millis;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    /// Accepted means durable.
    G1,
    /// Every accepted message ends in exactly one visible outcome.
    G2,
    /// One turn per message; nothing with an effect is silently repeated.
    G3,
    /// An answer is delivered at least once, and no copy is unmarked.
    G4,
    /// No answer reaches the wrong chat.
    G5,
    /// A drain is reversible, bounded and leaves no trace.
    G6,
    /// A link is up only while frames arrive, and retries for ever.
    G7,
    /// Background completions are delivered once, where they were requested.
    G8,
    /// Nothing grows without a bound.
    G9,
    /// A command that needs the consent of a person does not run without it.
    Consent,
}

impl Promise {
    pub const ALL: [Self; 10] = [
        Self::G1,
        Self::G2,
        Self::G3,
        Self::G4,
        Self::G5,
        Self::G6,
        Self::G7,
        Self::G8,
        Self::G9,
        Self::Consent,
    ];

    pub const fn words(self) -> &'static str {
        match self {
            Self::G1 => "accepted means durable",
            Self::G2 => "every message ends in one visible outcome",
            Self::G3 => "one turn per message, no effect repeated",
            Self::G4 => "delivered at least once, no unmarked copy",
            Self::G5 => "never the wrong chat",
            Self::G6 => "a drain is reversible and bounded",
            Self::G7 => "a link is tried for ever, and alive only if heard",
            Self::G8 => "ended background work is told once",
            Self::G9 => "nothing grows without a bound",
            Self::Consent => "no command runs without the consent it needs",
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A broken guarantee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub promise: Promise,
    pub what: String,
    /// Milliseconds since the start of the run.
    pub at: Millis,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { promise, what, at } = self;
        write!(f, "{promise} ({}) after {} ms: {what}", promise.words(), at.0)
    }
}
