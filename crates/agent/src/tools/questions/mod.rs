//! Questions to the people of a turn: who can be asked, and how a question ends.

pub(super) mod clarify;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use petasos_approval::{ApprovalOutcome, Audience, Category};
use serde::{Deserialize, Serialize};

use super::SessionCtx;

/// Heartbeat interval while a question waits.
const HEARTBEAT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Question {
    /// Asks for permission to run a command.
    Approval {
        /// The whole command, formatted by `approve::display`.
        command: String,
        /// Its working directory, in the same form.
        #[serde(default)]
        folder: Option<String>,
        categories: Vec<Category>,
        /// A second model advised against it.
        advised_against: bool,
    },
    /// Any other question, answered in words or with one of these choices.
    Clarify { text: String, choices: Vec<String> },
}

pub type QuestionFuture<'a> = Pin<Box<dyn Future<Output = ApprovalOutcome> + Send + 'a>>;

/// Delivers questions to the people of one turn.
pub trait QuestionChannel: fmt::Debug + Send + Sync {
    /// Resolves when the question ends, answered or not. Dropping the future withdraws it. `call`: id of the
    /// tool call that waits; it has had no effect yet.
    fn ask<'a>(&'a self, call: &'a str, question: Question, timeout: Duration) -> QuestionFuture<'a>;

    /// Characters of a command that the channel can show in full.
    fn command_limit(&self) -> usize;
}

/// The person that a turn can ask, if any.
#[derive(Debug, Clone, Default)]
pub enum Respondent {
    /// A cron job, a subagent, or a channel that closes with the response.
    #[default]
    None,
    /// No person is available, and the owner permits such work all the same.
    Unattended,
    Person(Arc<dyn QuestionChannel>),
}

impl Respondent {
    pub fn audience(&self) -> Audience {
        match self {
            Self::None => Audience::None,
            Self::Unattended => Audience::Unattended,
            Self::Person(_) => Audience::Person,
        }
    }

    pub fn command_limit(&self) -> usize {
        match self {
            Self::None | Self::Unattended => 0,
            Self::Person(channel) => channel.command_limit(),
        }
    }
}

impl SessionCtx {
    /// Asks the person of this turn and sends heartbeats while it waits. Where no person can be asked, the
    /// question is lost at once.
    pub async fn ask(&self, question: Question, timeout: Duration) -> ApprovalOutcome {
        let Respondent::Person(channel) = &self.respondent else { return ApprovalOutcome::Lost };
        let mut answer = channel.ask(&self.call, question, timeout);
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        loop {
            petasos_runtime::select! {
                outcome = &mut answer => return outcome,
                _ = heartbeat.tick() => self.heartbeat.record(),
            }
        }
    }
}
