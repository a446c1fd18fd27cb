//! Whoever sits at the other end of a turn: whether somebody can be asked, and how that ends.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use petasos_approval::{Audience, Category, Ending};
use serde::{Deserialize, Serialize};

use super::SessionCtx;

/// How often whoever waits for an answer says so.
const PULSE: Duration = Duration::from_secs(10);

/// What a person is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Question {
    /// May this command run?
    Approval {
        /// The whole command as `approve::display` shows it.
        command: String,
        /// Where it would run, in the same form.
        #[serde(default)]
        folder: Option<String>,
        categories: Vec<Category>,
        /// A second model was against it.
        advised_against: bool,
    },
    /// Anything else, answered in words or by one of these choices.
    Clarify { text: String, choices: Vec<String> },
}

pub type Ended<'a> = Pin<Box<dyn Future<Output = Ending> + Send + 'a>>;

/// Brings questions to the people of one turn.
pub trait People: fmt::Debug + Send + Sync {
    /// Resolves when it is answered, or over without an answer. Dropping the future takes the question back.
    /// `call`: the tool call that waits; nothing of it has happened yet.
    fn ask<'a>(&'a self, call: &'a str, question: Question, patience: Duration) -> Ended<'a>;

    /// Characters of a command that can be shown whole where these people read.
    fn room(&self) -> usize;
}

/// Who can be asked in a turn.
#[derive(Debug, Clone, Default)]
pub enum Person {
    /// A job, a subagent, a channel that ends with its response.
    #[default]
    Nobody,
    /// Nobody, and the owner wants such work done all the same.
    NobodyNeeded,
    There(Arc<dyn People>),
}

impl Person {
    pub fn audience(&self) -> Audience {
        match self {
            Self::Nobody => Audience::Nobody,
            Self::NobodyNeeded => Audience::NobodyNeeded,
            Self::There(_) => Audience::Person,
        }
    }

    /// Characters of a command that can be shown whole.
    pub fn room(&self) -> usize {
        match self {
            Self::Nobody | Self::NobodyNeeded => 0,
            Self::There(people) => people.room(),
        }
    }
}

impl SessionCtx {
    /// Asks the person of this turn and waits, which is a sign of life. Where nobody can be asked, the question is lost
    /// at once.
    pub async fn ask(&self, question: Question, patience: Duration) -> Ending {
        let Person::There(people) = &self.person else { return Ending::Lost };
        let mut ended = people.ask(&self.call, question, patience);
        let mut pulse = tokio::time::interval(PULSE);
        loop {
            petasos_runtime::select! {
                ending = &mut ended => return ending,
                _ = pulse.tick() => self.alive.sign(),
            }
        }
    }
}
