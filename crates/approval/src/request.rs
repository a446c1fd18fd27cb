//! Approval requests: requested, then answered, timed out or lost, exactly one of these.
//!
//! A `RequestQueue` holds the pending requests of one session (or run), oldest first. It is stored. After a crash no tool
//! call waits for the stored requests any more, so they end as lost. A late answer changes nothing. All sizes are bounded.

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
pub const MAX_PENDING: usize = 32;
const MAX_REASON_CHARS: usize = 280;
const MAX_SESSIONS: usize = 1024;
const MAX_BUTTON_BYTES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    Once,
    Session,
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

    /// Whether it allows more than one command, which only administrators may do.
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// Chosen by the caller, short enough for button data.
    pub id: String,
    pub categories: Vec<Category>,
    /// A second model advises against it: only this command can be allowed.
    #[serde(default)]
    pub advised_against: bool,
    pub expires_at: Millis,
}

impl ApprovalRequest {
    #[must_use]
    pub fn new(id: &str, categories: Vec<Category>, now: Millis, timeout: Duration) -> Self {
        Self { id: id.to_owned(), categories, advised_against: false, expires_at: now.after(timeout) }
    }

    #[must_use]
    pub fn choices(&self) -> Vec<Choice> {
        let memorable =
            !self.advised_against && self.categories.iter().all(|category| category.can_be_remembered());
        let all = Choice::ALL.into_iter();
        all.filter(|choice| memorable || matches!(choice, Choice::Once | Choice::Deny)).collect()
    }

    /// A choice that is not available counts as `Once`.
    fn narrowed(&self, choice: Choice) -> Choice {
        if self.choices().contains(&choice) { choice } else { Choice::Once }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ending", rename_all = "snake_case")]
pub enum ApprovalOutcome {
    Allowed {
        choice: Choice,
    },
    Denied {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    TimedOut,
    /// Not shown, or the waiting tool call is gone.
    Lost,
    /// The free-text answer to a clarifying question.
    #[serde(rename = "said")]
    Answered {
        text: String,
    },
}

impl ApprovalOutcome {
    /// The tool result of a command that was not run. `None`: it may run.
    #[must_use]
    pub fn blocked_text(&self) -> Option<String> {
        const DONT: &str = "Do not run it again, and do not achieve the same with another command.";
        match self {
            Self::Allowed { .. } | Self::Answered { .. } => None,
            Self::Denied { reason: None } => {
                Some(format!("BLOCKED: the user did not consent to this command. {DONT}"))
            }
            Self::Denied { reason: Some(reason) } => Some(format!(
                "BLOCKED: the user did not consent to this command. {DONT} The user's reason: {reason}"
            )),
            Self::TimedOut => Some(format!(
                "BLOCKED: there was no answer in time, and silence is not consent. The command was not run. {DONT}"
            )),
            Self::Lost => Some(format!(
                "BLOCKED: the user could not be asked, so there is no consent. The command was not run. {DONT}"
            )),
        }
    }
}

/// The pending requests that an answer is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestSelector {
    Id(String),
    Oldest,
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalReply {
    pub which: RequestSelector,
    pub choice: Choice,
    pub reason: Option<String>,
}

impl ApprovalReply {
    /// `/approve [all|id] [session|always]`
    #[must_use]
    pub fn approve(args: &str) -> Option<Self> {
        let mut answer = Self { which: RequestSelector::Oldest, choice: Choice::Once, reason: None };
        for word in args.split_whitespace() {
            match word.to_lowercase().as_str() {
                "all" => answer.which = RequestSelector::All,
                id if is_generated_id(id) => answer.which = RequestSelector::Id(id.to_owned()),
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
            "all" => (RequestSelector::All, rest),
            id if is_generated_id(id) => (RequestSelector::Id(id.to_owned()), rest),
            _reason => (RequestSelector::Oldest, args),
        };
        let reason: String = reason.trim().chars().take(MAX_REASON_CHARS).collect();
        Self { which, choice: Choice::Deny, reason: (!reason.is_empty()).then_some(reason) }
    }

    #[must_use]
    pub fn from_word(text: &str) -> Option<Self> {
        let choice = match text.trim().to_lowercase().as_str() {
            "approve" | "yes" | "ok" | "okay" | "confirm" | "y" | "👍" => Choice::Once,
            "session" => Choice::Session,
            "always" => Choice::Always,
            "deny" | "no" | "reject" | "cancel" | "n" | "👎" => Choice::Deny,
            _ => return None,
        };
        Some(Self { which: RequestSelector::Oldest, choice, reason: None })
    }
}

/// Data of a button: `ea:<choice>:<id>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ButtonData {
    pub choice: Choice,
    pub id: String,
}

impl ButtonData {
    /// `None`: the id does not fit.
    #[must_use]
    pub fn encode(&self) -> Option<String> {
        let data = format!("ea:{}:{}", self.choice.as_str(), self.id);
        (is_id(&self.id) && data.len() <= MAX_BUTTON_BYTES).then_some(data)
    }

    /// `None`: not an approval button.
    #[must_use]
    pub fn decode(data: &str) -> Option<Self> {
        let (choice, id) = data.strip_prefix("ea:")?.split_once(':')?;
        let reply = Self { choice: Choice::from_word(choice)?, id: id.to_owned() };
        (data.len() <= MAX_BUTTON_BYTES && is_id(id)).then_some(reply)
    }
}

impl From<ButtonData> for ApprovalReply {
    fn from(reply: ButtonData) -> Self {
        Self { which: RequestSelector::Id(reply.id), choice: reply.choice, reason: None }
    }
}

/// A new request id, short enough to type.
#[must_use]
pub fn request_id(random: [u8; 4]) -> String {
    format!("q{:08x}", u32::from_be_bytes(random))
}

fn is_generated_id(word: &str) -> bool {
    word.len() == 9 && word.starts_with('q') && word[1..].bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// The pending requests of one session, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RequestQueue {
    #[serde(default)]
    waiting: Vec<ApprovalRequest>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Requested(ApprovalRequest),
    Answered(ApprovalReply),
    /// The request could not be sent to the chat.
    NotShown {
        id: String,
    },
    /// Stop, reset or the end of the turn.
    TurnOver,
    /// A new process has loaded the queue.
    Restarted,
    Tick,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueEffect {
    Show {
        id: String,
    },
    /// Store before the command runs, so that a crash cannot lose the approval.
    Remember {
        categories: Vec<Category>,
        choice: Choice,
    },
    Settle {
        id: String,
        ending: ApprovalOutcome,
    },
}

impl RequestQueue {
    /// From stored requests, oldest first.
    #[must_use]
    pub fn of(waiting: Vec<ApprovalRequest>) -> Self {
        Self { waiting }
    }

    #[must_use]
    pub fn waiting(&self) -> &[ApprovalRequest] {
        &self.waiting
    }

    /// When to tick next.
    #[must_use]
    pub fn due(&self) -> Option<Millis> {
        self.waiting.iter().map(|request| request.expires_at).min()
    }

    #[must_use]
    pub fn step(self, now: Millis, event: Event) -> (Self, Vec<QueueEffect>) {
        // expired requests time out before the event is applied
        let (mut queue, mut effects) = match event {
            Event::Restarted => (self, Vec::new()),
            Event::Requested(_)
            | Event::Answered(_)
            | Event::NotShown { .. }
            | Event::TurnOver
            | Event::Tick => self.settle(|request| request.expires_at <= now, |_| ApprovalOutcome::TimedOut),
        };
        let (queue, more) = match event {
            Event::Requested(request) => {
                // a repeated request is ignored
                if queue.waiting.iter().any(|pending| pending.id == request.id) {
                    return (queue, effects);
                }
                if queue.waiting.len() >= MAX_PENDING || !is_id(&request.id) {
                    effects.push(QueueEffect::Settle { id: request.id, ending: ApprovalOutcome::Lost });
                    return (queue, effects);
                }
                effects.push(QueueEffect::Show { id: request.id.clone() });
                queue.waiting.push(request);
                (queue, Vec::new())
            }
            Event::Answered(answer) => queue.answered(&answer),
            Event::NotShown { id } => queue.settle(|request| request.id == id, |_| ApprovalOutcome::Lost),
            Event::TurnOver => queue.settle(|_| true, |_| ApprovalOutcome::Denied { reason: None }),
            Event::Restarted => queue.settle(|_| true, |_| ApprovalOutcome::Lost),
            Event::Tick => (queue, Vec::new()),
        };
        effects.extend(more);
        (queue, effects)
    }

    fn answered(self, answer: &ApprovalReply) -> (Self, Vec<QueueEffect>) {
        let oldest = self.waiting.first().map(|request| request.id.clone());
        let is_meant = |request: &ApprovalRequest| match &answer.which {
            RequestSelector::Id(id) => request.id == *id,
            RequestSelector::Oldest => Some(&request.id) == oldest.as_ref(),
            RequestSelector::All => true,
        };
        self.settle(is_meant, |request| match answer.choice {
            Choice::Deny => ApprovalOutcome::Denied { reason: answer.reason.clone() },
            choice @ (Choice::Once | Choice::Session | Choice::Always) => {
                ApprovalOutcome::Allowed { choice: request.narrowed(choice) }
            }
        })
    }

    fn settle(
        self,
        over: impl Fn(&ApprovalRequest) -> bool,
        ending: impl Fn(&ApprovalRequest) -> ApprovalOutcome,
    ) -> (Self, Vec<QueueEffect>) {
        let (settled, waiting): (Vec<ApprovalRequest>, Vec<ApprovalRequest>) =
            self.waiting.into_iter().partition(|request| over(request));
        let mut effects = Vec::new();
        for request in settled {
            let ending = ending(&request);
            if let ApprovalOutcome::Allowed { choice: choice @ (Choice::Session | Choice::Always) } = ending {
                effects.push(QueueEffect::Remember { categories: request.categories, choice });
            }
            effects.push(QueueEffect::Settle { id: request.id, ending });
        }
        (Self { waiting }, effects)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RememberedApprovals {
    #[serde(default)]
    always: BTreeSet<Category>,
    #[serde(default)]
    sessions: BTreeMap<String, BTreeSet<Category>>,
}

impl RememberedApprovals {
    #[must_use]
    pub fn covers(&self, session: &str, category: Category) -> bool {
        category.can_be_remembered()
            && (self.always.contains(&category)
                || self.sessions.get(session).is_some_and(|known| known.contains(&category)))
    }

    pub fn record(&mut self, session: &str, categories: &[Category], choice: Choice) {
        let known = match choice {
            Choice::Always => &mut self.always,
            // with a full list, later requests ask again
            Choice::Session
                if self.sessions.len() >= MAX_SESSIONS && !self.sessions.contains_key(session) =>
            {
                return;
            }
            Choice::Session => self.sessions.entry(session.to_owned()).or_default(),
            Choice::Once | Choice::Deny => return,
        };
        known.extend(categories.iter().filter(|category| category.can_be_remembered()));
    }

    /// Drops the approvals of a session that was reset or ended.
    pub fn forget(&mut self, session: &str) {
        self.sessions.remove(session);
    }

    /// Category keys for the allowlist.
    pub fn always(&self) -> impl Iterator<Item = &'static str> {
        self.always.iter().map(|category| category.key())
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
