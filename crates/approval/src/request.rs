//! The life of a question: asked, then answered, timed out or lost. Never two of these.
//!
//! One `Queue` per session (or per run, which has a session of its own) holds what waits, oldest first. It is
//! stored: after a crash the questions are still known, and nobody waits behind them any more, so they end as
//! lost. An answer that comes too late finds nothing and changes nothing. Everything is bounded.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::Category;
use petasos_core::time::Millis;

pub const TIMEOUT: Duration = Duration::from_secs(60);
pub const MOST_WAITING: usize = 32;
const MOST_REASON: usize = 280;
const MOST_SESSIONS: usize = 1024;
/// What platforms carry behind a button.
const MOST_BUTTON: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    Once,
    /// And for the rest of the session.
    Session,
    /// And from now on.
    Always,
    Deny,
}

impl Choice {
    const ALL: [Self; 4] = [Self::Once, Self::Session, Self::Always, Self::Deny];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::Always => "always",
            Self::Deny => "deny",
        }
    }

    /// Whether it allows more than the one command that waits: that is for an administrator to say.
    #[must_use]
    pub fn lasts(self) -> bool {
        match self {
            Self::Session | Self::Always => true,
            Self::Once | Self::Deny => false,
        }
    }

    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.as_str() == word)
    }
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Chosen by the caller; fits behind a button.
    pub id: String,
    pub categories: Vec<Category>,
    /// A second model was against it: only this one command can still be allowed.
    #[serde(default)]
    pub advised_against: bool,
    pub expires_at: Millis,
}

impl Ask {
    #[must_use]
    pub fn new(id: &str, categories: Vec<Category>, now: Millis, timeout: Duration) -> Self {
        Self { id: id.to_owned(), categories, advised_against: false, expires_at: now.after(timeout) }
    }

    /// What a person may choose from.
    #[must_use]
    pub fn choices(&self) -> Vec<Choice> {
        let memorable =
            !self.advised_against && self.categories.iter().all(|category| category.is_memorable());
        let all = Choice::ALL.into_iter();
        all.filter(|choice| memorable || matches!(choice, Choice::Once | Choice::Deny)).collect()
    }

    /// A wish that reaches further than what is offered counts for this one command.
    fn narrowed(&self, choice: Choice) -> Choice {
        if self.choices().contains(&choice) { choice } else { Choice::Once }
    }
}

/// How a question ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ending", rename_all = "snake_case")]
pub enum Ending {
    Allowed {
        choice: Choice,
    },
    Denied {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    TimedOut,
    /// It could not be shown, or whoever waited for the answer is gone.
    Lost,
    /// Answered in words: it was no question of consent.
    Said {
        text: String,
    },
}

impl Ending {
    /// Why it was not run, for the model. `None`: it may run.
    #[must_use]
    pub fn blocked(&self) -> Option<String> {
        const DONT: &str = "Do not run it again, and do not reach the same end by another command.";
        match self {
            Self::Allowed { .. } | Self::Said { .. } => None,
            Self::Denied { reason: None } => {
                Some(format!("BLOCKED: the user did not consent to this command. {DONT}"))
            }
            Self::Denied { reason: Some(reason) } => Some(format!(
                "BLOCKED: the user did not consent to this command. {DONT} The user's reason: {reason}"
            )),
            Self::TimedOut => Some(format!(
                "BLOCKED: nobody answered in time, and silence is not consent. The command was not run. {DONT}"
            )),
            Self::Lost => Some(format!(
                "BLOCKED: the user could not be asked, so there is no consent. The command was not run. {DONT}"
            )),
        }
    }
}

/// Which of the waiting questions an answer is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    Id(String),
    Oldest,
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub which: Which,
    pub choice: Choice,
    pub reason: Option<String>,
}

impl Answer {
    /// `/approve [all|id] [session|always]`
    #[must_use]
    pub fn approve(args: &str) -> Option<Self> {
        let mut answer = Self { which: Which::Oldest, choice: Choice::Once, reason: None };
        for word in args.split_whitespace() {
            match word.to_lowercase().as_str() {
                "all" => answer.which = Which::All,
                id if is_name(id) => answer.which = Which::Id(id.to_owned()),
                word => answer.choice = Choice::from_word(word).filter(|choice| *choice != Choice::Deny)?,
            }
        }
        Some(answer)
    }

    /// `/deny [all|id] [reason]`
    #[must_use]
    pub fn deny(args: &str) -> Self {
        let args = args.trim();
        let (first, rest) = args.split_once(char::is_whitespace).unwrap_or((args, ""));
        let (which, reason) = match first.to_lowercase().as_str() {
            "all" => (Which::All, rest),
            id if is_name(id) => (Which::Id(id.to_owned()), rest),
            _reason => (Which::Oldest, args),
        };
        let reason: String = reason.trim().chars().take(MOST_REASON).collect();
        Self { which, choice: Choice::Deny, reason: (!reason.is_empty()).then_some(reason) }
    }

    /// A bare word, while something waits.
    #[must_use]
    pub fn from_word(text: &str) -> Option<Self> {
        let choice = match text.trim().to_lowercase().as_str() {
            "approve" | "yes" | "ok" | "okay" | "confirm" | "y" | "👍" => Choice::Once,
            "session" => Choice::Session,
            "always" => Choice::Always,
            "deny" | "no" | "reject" | "cancel" | "n" | "👎" => Choice::Deny,
            _ => return None,
        };
        Some(Self { which: Which::Oldest, choice, reason: None })
    }
}

/// A button: `ea:<choice>:<id>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub choice: Choice,
    pub id: String,
}

impl Reply {
    /// `None`: the id does not fit behind a button.
    #[must_use]
    pub fn encode(&self) -> Option<String> {
        let data = format!("ea:{}:{}", self.choice.as_str(), self.id);
        (is_id(&self.id) && data.len() <= MOST_BUTTON).then_some(data)
    }

    /// `None`: not one of ours.
    #[must_use]
    pub fn decode(data: &str) -> Option<Self> {
        let (choice, id) = data.strip_prefix("ea:")?.split_once(':')?;
        let reply = Self { choice: Choice::from_word(choice)?, id: id.to_owned() };
        (data.len() <= MOST_BUTTON && is_id(id)).then_some(reply)
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self { which: Which::Id(reply.id), choice: reply.choice, reason: None }
    }
}

/// The name of a question: short enough to be typed, and told from every other word.
#[must_use]
pub fn name(random: [u8; 4]) -> String {
    format!("q{:08x}", u32::from_be_bytes(random))
}

fn is_name(word: &str) -> bool {
    word.len() == 9 && word.starts_with('q') && word[1..].bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// The questions of one session that wait, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Queue {
    #[serde(default)]
    waiting: Vec<Ask>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Asked(Ask),
    Answered(Answer),
    /// The chat did not take the question.
    NotShown {
        id: String,
    },
    /// Stop, reset or the end of the turn: nobody waits for an answer any more, and none was given.
    TurnOver,
    /// A new process reads what the last one left.
    Restarted,
    Tick,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Show {
        id: String,
    },
    /// Before the command runs, so that a crash in between cannot forget what was promised.
    Remember {
        categories: Vec<Category>,
        choice: Choice,
    },
    Settle {
        id: String,
        ending: Ending,
    },
}

impl Queue {
    /// As it was stored, oldest first.
    #[must_use]
    pub fn of(waiting: Vec<Ask>) -> Self {
        Self { waiting }
    }

    #[must_use]
    pub fn waiting(&self) -> &[Ask] {
        &self.waiting
    }

    /// When to tick next.
    #[must_use]
    pub fn due(&self) -> Option<Millis> {
        self.waiting.iter().map(|ask| ask.expires_at).min()
    }

    #[must_use]
    pub fn step(self, now: Millis, event: Event) -> (Self, Vec<Effect>) {
        // what is over is over, even if the tick that says so comes later
        let (mut queue, mut effects) = match event {
            Event::Restarted => (self, Vec::new()),
            Event::Asked(_) | Event::Answered(_) | Event::NotShown { .. } | Event::TurnOver | Event::Tick => {
                self.settle(|ask| ask.expires_at <= now, |_| Ending::TimedOut)
            }
        };
        let (queue, more) = match event {
            Event::Asked(ask) => {
                // the same question twice is one question
                if queue.waiting.iter().any(|known| known.id == ask.id) {
                    return (queue, effects);
                }
                if queue.waiting.len() >= MOST_WAITING || !is_id(&ask.id) {
                    effects.push(Effect::Settle { id: ask.id, ending: Ending::Lost });
                    return (queue, effects);
                }
                effects.push(Effect::Show { id: ask.id.clone() });
                queue.waiting.push(ask);
                (queue, Vec::new())
            }
            Event::Answered(answer) => queue.answered(&answer),
            Event::NotShown { id } => queue.settle(|ask| ask.id == id, |_| Ending::Lost),
            Event::TurnOver => queue.settle(|_| true, |_| Ending::Denied { reason: None }),
            Event::Restarted => queue.settle(|_| true, |_| Ending::Lost),
            Event::Tick => (queue, Vec::new()),
        };
        effects.extend(more);
        (queue, effects)
    }

    fn answered(self, answer: &Answer) -> (Self, Vec<Effect>) {
        let oldest = self.waiting.first().map(|ask| ask.id.clone());
        let meant = |ask: &Ask| match &answer.which {
            Which::Id(id) => ask.id == *id,
            Which::Oldest => Some(&ask.id) == oldest.as_ref(),
            Which::All => true,
        };
        self.settle(meant, |ask| match answer.choice {
            Choice::Deny => Ending::Denied { reason: answer.reason.clone() },
            choice @ (Choice::Once | Choice::Session | Choice::Always) => {
                Ending::Allowed { choice: ask.narrowed(choice) }
            }
        })
    }

    fn settle(self, over: impl Fn(&Ask) -> bool, ending: impl Fn(&Ask) -> Ending) -> (Self, Vec<Effect>) {
        let (settled, waiting): (Vec<Ask>, Vec<Ask>) = self.waiting.into_iter().partition(|ask| over(ask));
        let mut effects = Vec::new();
        for ask in settled {
            let ending = ending(&ask);
            if let Ending::Allowed { choice: choice @ (Choice::Session | Choice::Always) } = ending {
                effects.push(Effect::Remember { categories: ask.categories, choice });
            }
            effects.push(Effect::Settle { id: ask.id, ending });
        }
        (Self { waiting }, effects)
    }
}

/// What was approved for longer than one command.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Remembered {
    #[serde(default)]
    always: BTreeSet<Category>,
    #[serde(default)]
    sessions: BTreeMap<String, BTreeSet<Category>>,
}

impl Remembered {
    #[must_use]
    pub fn covers(&self, session: &str, category: Category) -> bool {
        category.is_memorable()
            && (self.always.contains(&category)
                || self.sessions.get(session).is_some_and(|known| known.contains(&category)))
    }

    pub fn learn(&mut self, session: &str, categories: &[Category], choice: Choice) {
        let known = match choice {
            Choice::Always => &mut self.always,
            // a full memory asks again
            Choice::Session
                if self.sessions.len() >= MOST_SESSIONS && !self.sessions.contains_key(session) =>
            {
                return;
            }
            Choice::Session => self.sessions.entry(session.to_owned()).or_default(),
            Choice::Once | Choice::Deny => return,
        };
        known.extend(categories.iter().filter(|category| category.is_memorable()));
    }

    /// The session was reset or is over.
    pub fn forget(&mut self, session: &str) {
        self.sessions.remove(session);
    }

    /// What is to be kept for good, as keys for the allowlist.
    pub fn always(&self) -> impl Iterator<Item = &'static str> {
        self.always.iter().map(|category| category.key())
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
