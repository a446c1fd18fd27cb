//! Answers to questions that wait: commands, pressed buttons, bare words.
//!
//! The end of the question, what is said about it and the end of the message that answered: one commit.

use std::time::Duration;

use petasos_approval::{Answer, Choice, Reply as Pressed, Which};
use petasos_core::command::Parsed;
use petasos_core::journal::{Outcome, Write};
use petasos_core::message::{ChatType, Delivery};
use petasos_core::session::Ask;
use petasos_store::{Pending, Tx};

use crate::clock;
use crate::runtime::commit::Commit;
use crate::sessions::messages::reply::Reply;
use crate::sessions::questions::{self, Found, Kind, Settled, Who};
use crate::sessions::{Ended, Session, parsed};

/// Platforms tell seconds, by clocks of their own.
const CLOCKS: Duration = Duration::from_secs(3);

/// Tells how to name an administrator.
const ADMINS: &str = "the owner names them in `allow_admin_from`, for groups in `group_allow_admin_from`";

/// What a message says to a question.
pub(in crate::sessions) enum Word {
    /// A button, which says so itself when it is over.
    Pressed(Answer),
    /// A bare word. If nothing waits after all, it is a message like any other.
    Bare(Answer),
    /// The answer to a question in words.
    Said,
}

/// What became of an answer.
enum Met {
    Done(Vec<Settled>),
    /// It was no answer.
    Text,
}

impl Session {
    /// Whether a message is the answer to something; nothing that a program says is.
    pub(in crate::sessions) fn as_word(&self, pending: &Pending) -> Option<Word> {
        let inbound = &pending.inbound;
        if inbound.internal || inbound.source.chat_type == ChatType::Webhook {
            return None;
        }
        if let Some(pressed) = Pressed::decode(inbound.text.trim()) {
            return Some(Word::Pressed(pressed.into()));
        }
        let questions = &self.handles.people.questions;
        if let Some(answer) = Answer::from_word(&inbound.text)
            && questions.waits(&self.key, Kind::Approval)
        {
            return Some(Word::Bare(answer));
        }
        let words = parsed(inbound) == Parsed::Text && inbound.attachments.is_empty();
        (words && questions.waits(&self.key, Kind::Clarify)).then_some(Word::Said)
    }

    pub(in crate::sessions) async fn approve(&mut self, pending: &Pending, args: &str) -> Result<(), Ended> {
        let Some(answer) = Answer::approve(args) else {
            let text =
                "Say /approve, and if you like: all or the question's id, and session or always.".into();
            return self.answer(pending, text, Outcome::Refused).await;
        };
        self.consent(pending, answer, Manner::Typed).await.map(drop)
    }

    pub(in crate::sessions) async fn deny(&mut self, pending: &Pending, args: &str) -> Result<(), Ended> {
        self.consent(pending, Answer::deny(args), Manner::Typed).await.map(drop)
    }

    /// Hears an answer. `false`: it was none.
    pub(in crate::sessions) async fn hear_word(
        &mut self,
        pending: &Pending,
        word: Word,
    ) -> Result<bool, Ended> {
        self.handling = Some(pending.clone());
        let (answer, manner) = match word {
            Word::Said => return self.said(pending).await,
            Word::Pressed(answer) => (answer, Manner::Pressed),
            Word::Bare(answer) => (answer, Manner::Bare),
        };
        let command = if answer.choice == Choice::Deny { "deny" } else { "approve" };
        if !self.allows(pending, command) {
            let text = format!("🚫 /{command} is not open to you here. /whoami says what is.");
            self.answer(pending, text, Outcome::Refused).await?;
            return Ok(true);
        }
        self.consent(pending, answer, manner).await
    }

    async fn consent(&mut self, pending: &Pending, answer: Answer, manner: Manner) -> Result<bool, Ended> {
        if answer.choice.lasts() && !self.may_decide_lastingly(pending).await {
            let text = format!(
                "🚫 Only an administrator may allow commands for longer than once ({ADMINS}). The question still waits: \
                 /approve allows this one, /deny refuses it."
            );
            self.answer(pending, text, Outcome::Refused).await?;
            return Ok(true);
        }
        let (address, who, channels) =
            (self.address(pending), self.who(pending), self.handles.channels.clone());
        let (id, pulled) = (pending.id, address.delivery() == Delivery::Pull);
        let met = self
            .change(Commit::Question, move |tx| {
                let now = clock::now();
                let found = questions::answer(tx, &channels, &who, answer.clone(), now)?;
                if matches!((&found, manner), (Found::Nothing, Manner::Bare)) {
                    return Ok(Met::Text);
                }
                let (text, outcome, settled) = told(&found, &answer.which);
                // What stands in the chat already is not said again.
                let here = settled.iter().all(|settled| settled.key == who.key);
                let seen = !settled.is_empty() && here && (pulled || manner == Manner::Pressed);
                let settle = Write::SettleInbox { inbox: vec![id], outcome, at: now };
                match seen {
                    true => tx.apply(&[settle], now)?,
                    false => address.tell(tx, &Reply { outcome, ..Reply::answered(text) }, vec![settle])?,
                }
                Ok(Met::Done(match found {
                    Found::Settled(settled) => settled,
                    Found::Over(_) | Found::Nothing | Found::NotTheirs => vec![],
                }))
            })
            .await?;
        self.met(pending, met).await
    }

    /// Words for the oldest question in words.
    async fn said(&mut self, pending: &Pending) -> Result<bool, Ended> {
        let (who, channels, id) = (self.who(pending), self.handles.channels.clone(), pending.id);
        let text = pending.inbound.text.clone();
        let met = self
            .change(Commit::Question, move |tx: &Tx<'_>| {
                let now = clock::now();
                let Some(settled) = questions::said(tx, &channels, &who, &text, now)? else {
                    return Ok(Met::Text);
                };
                let settle = Write::SettleInbox { inbox: vec![id], outcome: Outcome::Merged, at: now };
                tx.apply(&[settle], now)?;
                Ok(Met::Done(vec![settled]))
            })
            .await?;
        self.met(pending, met).await
    }

    async fn met(&mut self, pending: &Pending, met: Met) -> Result<bool, Ended> {
        match met {
            Met::Text => Ok(false),
            Met::Done(settled) => {
                self.handles.people.questions.release(settled).await;
                self.told(pending, None).await?;
                Ok(true)
            }
        }
    }

    fn who(&self, pending: &Pending) -> Who {
        let source = pending.inbound.source.clone();
        let own = self.handles.channels.is_local(source.platform);
        let home = self.handles.notifications.homes.places().iter().any(|place| {
            place.platform == source.platform && source.chat_id.as_deref() == Some(place.chat_id.as_str())
        });
        let received = pending.received_at;
        let written_at = pending.inbound.sent_at.map_or(received, |sent| sent.after(CLOCKS).min(received));
        Who { key: self.key.clone(), owner: own || home, source, written_at }
    }

    async fn may_decide_lastingly(&self, pending: &Pending) -> bool {
        self.handles.may_decide_lastingly(&pending.inbound.source).await
    }

    /// Questions off, or on again, for the transcript that this conversation is in.
    pub(in crate::sessions) async fn yolo(&mut self, pending: &Pending) -> Result<(), Ended> {
        if !self.may_decide_lastingly(pending).await {
            let text =
                format!("🚫 Only an administrator may switch questions about commands off ({ADMINS}).");
            return self.answer(pending, text, Outcome::Refused).await;
        }
        let address = self.address(pending);
        let session = self
            .change(Commit::Question, move |tx| Ok(address.open(tx, Ask::Continue)?.entry.session_id))
            .await?;
        let text = match self.handles.people.approvals.toggle_yolo(&session) {
            true => {
                "⚡ I ask about no command in this session any more, until /yolo, /new or a restart of the gateway. What \
                 never runs still does not."
            }
            false => "🛡 I ask again before commands that need your yes.",
        };
        self.answer(pending, text.into(), Outcome::Answered).await
    }

    /// The turn is being stopped: what it waited for is answered by that. Gives its calls that were not run.
    pub(in crate::sessions) async fn unanswered(&self) -> Result<Vec<String>, Ended> {
        let Some(turn) = self.turn().map(|turn| turn.id) else { return Ok(vec![]) };
        loop {
            match self.handles.people.questions.turn_over(&self.key, turn).await {
                Ok(calls) => return Ok(calls),
                Err(error) => self.refused(&error).await?,
            }
        }
    }
}

/// How somebody answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Typed,
    Pressed,
    Bare,
}

/// What is said to whoever answered.
fn told<'a>(found: &'a Found, which: &Which) -> (String, Outcome, &'a [Settled]) {
    match found {
        Found::Settled(settled) => {
            let texts: Vec<_> = settled.iter().map(|settled| settled.text.as_str()).collect();
            (texts.join("\n\n"), Outcome::Answered, settled)
        }
        Found::Over(how) => (format!("That question is over.\n\n{how}"), Outcome::Refused, &[]),
        Found::Nothing => match which {
            Which::Id(id) => (format!("I know no question {id}."), Outcome::Refused, &[]),
            Which::Oldest | Which::All => ("Nothing waits for your yes here.".into(), Outcome::Refused, &[]),
        },
        Found::NotTheirs => {
            ("🚫 That was asked of somebody else, in another chat.".into(), Outcome::Refused, &[])
        }
    }
}
