//! Replies to open questions: commands, pressed buttons, plain words.
//!
//! The end of the question, the notice about it and the settlement of the reply are one commit.

use std::time::Duration;

use petasos_approval::{ApprovalReply, ButtonData as ButtonReply, Choice, RequestSelector};
use petasos_core::command::Parsed;
use petasos_core::journal::{MessageOutcome, Write};
use petasos_core::message::{ChatType, Delivery};
use petasos_core::session::ResolveMode;
use petasos_store::{PendingMessage, Tx};

use crate::clock;
use crate::notices::access;
use crate::notices::questions as texts;
use crate::runtime::commit::Commit;
use crate::sessions::messages::reply::CommandReply;
use crate::sessions::questions::{self, AnswerOutcome, Answerer, Kind, SettledQuestion};
use crate::sessions::{SessionError, SessionTask, parsed};

/// Tolerance for platform timestamps, which have whole seconds of another clock.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(3);

/// How a message may answer an open question.
pub(in crate::sessions) enum QuestionReply {
    Button(ApprovalReply),
    /// A plain word such as "yes". Without an open question it is an ordinary message.
    Word(ApprovalReply),
    /// Free text for a clarifying question.
    Text,
}

enum ReplyResult {
    Settled(Vec<SettledQuestion>),
    NotAnAnswer,
}

impl SessionTask {
    /// Recognises a reply to an open question. Messages of programs are never replies.
    pub(in crate::sessions) fn as_question_reply(&self, pending: &PendingMessage) -> Option<QuestionReply> {
        let inbound = &pending.inbound;
        if inbound.internal || inbound.source.chat_type == ChatType::Webhook {
            return None;
        }
        if let Some(pressed) = ButtonReply::decode(inbound.text.trim()) {
            return Some(QuestionReply::Button(pressed.into()));
        }
        let questions = &self.handles.people.questions;
        if let Some(answer) = ApprovalReply::from_word(&inbound.text)
            && questions.has_open(&self.key, Kind::Approval)
        {
            return Some(QuestionReply::Word(answer));
        }
        let words = parsed(inbound) == Parsed::Text && inbound.attachments.is_empty();
        (words && questions.has_open(&self.key, Kind::Clarify)).then_some(QuestionReply::Text)
    }

    pub(in crate::sessions) async fn approve(
        &mut self,
        pending: &PendingMessage,
        args: &str,
    ) -> Result<(), SessionError> {
        let Some(answer) = ApprovalReply::approve(args) else {
            return self.reply(pending, texts::APPROVE_USAGE.into(), MessageOutcome::Refused).await;
        };
        self.answer_approval(pending, answer, ReplyForm::Command).await.map(drop)
    }

    pub(in crate::sessions) async fn deny(
        &mut self,
        pending: &PendingMessage,
        args: &str,
    ) -> Result<(), SessionError> {
        self.answer_approval(pending, ApprovalReply::deny(args), ReplyForm::Command).await.map(drop)
    }

    /// `false`: the message was no reply.
    pub(in crate::sessions) async fn handle_question_reply(
        &mut self,
        pending: &PendingMessage,
        word: QuestionReply,
    ) -> Result<bool, SessionError> {
        self.current = Some(pending.clone());
        let (answer, form) = match word {
            QuestionReply::Text => return self.answer_clarification(pending).await,
            QuestionReply::Button(answer) => (answer, ReplyForm::Button),
            QuestionReply::Word(answer) => (answer, ReplyForm::Word),
        };
        let command = if answer.choice == Choice::Deny { "deny" } else { "approve" };
        if !self.may_use_command(pending, command) {
            let text = access::command_not_allowed(command);
            self.reply(pending, text, MessageOutcome::Refused).await?;
            return Ok(true);
        }
        self.answer_approval(pending, answer, form).await
    }

    async fn answer_approval(
        &mut self,
        pending: &PendingMessage,
        answer: ApprovalReply,
        form: ReplyForm,
    ) -> Result<bool, SessionError> {
        if answer.choice.lasts() && !self.may_approve_lastingly(pending).await {
            let text = access::only_admin_may_approve_lastingly();
            self.reply(pending, text, MessageOutcome::Refused).await?;
            return Ok(true);
        }
        let address = self.address(pending);
        let who = self.answerer(pending);
        let channels = self.handles.channels.clone();
        let id = pending.id;
        let pulled = address.delivery() == Delivery::Pull;
        let outcome = self
            .write(Commit::Question, move |tx| {
                let now = clock::now();
                let result = questions::answer_approval(tx, &channels, &who, answer.clone(), now)?;
                if matches!((&result, form), (AnswerOutcome::NoneOpen, ReplyForm::Word)) {
                    return Ok(ReplyResult::NotAnAnswer);
                }
                let (text, outcome, settled) = reply_notice(&result, &answer.which);
                // The chat already shows the end of the question.
                let here = settled.iter().all(|settled| settled.key == who.key);
                let seen = !settled.is_empty() && here && (pulled || form == ReplyForm::Button);
                let settle = Write::SettleInbox { inbox: vec![id], outcome, at: now };
                if seen {
                    tx.apply(&[settle], now)?
                } else {
                    address.enqueue_reply(
                        tx,
                        &CommandReply { outcome, ..CommandReply::answered(text) },
                        vec![settle],
                    )?
                }
                Ok(ReplyResult::Settled(match result {
                    AnswerOutcome::Settled(settled) => settled,
                    AnswerOutcome::AlreadyEnded(_) | AnswerOutcome::NoneOpen | AnswerOutcome::NotAllowed => {
                        vec![]
                    }
                }))
            })
            .await?;
        self.finish_reply(pending, outcome).await
    }

    /// Answers the oldest clarifying question.
    async fn answer_clarification(&mut self, pending: &PendingMessage) -> Result<bool, SessionError> {
        let who = self.answerer(pending);
        let channels = self.handles.channels.clone();
        let id = pending.id;
        let text = pending.inbound.text.clone();
        let outcome = self
            .write(Commit::Question, move |tx: &Tx<'_>| {
                let now = clock::now();
                let Some(settled) = questions::answer_clarification(tx, &channels, &who, &text, now)? else {
                    return Ok(ReplyResult::NotAnAnswer);
                };
                let settle = Write::SettleInbox { inbox: vec![id], outcome: MessageOutcome::Merged, at: now };
                tx.apply(&[settle], now)?;
                Ok(ReplyResult::Settled(vec![settled]))
            })
            .await?;
        self.finish_reply(pending, outcome).await
    }

    async fn finish_reply(
        &mut self,
        pending: &PendingMessage,
        outcome: ReplyResult,
    ) -> Result<bool, SessionError> {
        match outcome {
            ReplyResult::NotAnAnswer => Ok(false),
            ReplyResult::Settled(settled) => {
                self.handles.people.questions.release(settled).await;
                self.publish_reply(pending, None).await?;
                Ok(true)
            }
        }
    }

    fn answerer(&self, pending: &PendingMessage) -> Answerer {
        let source = pending.inbound.source.clone();
        let own = self.handles.channels.is_local(source.platform);
        let home = self.handles.notifications.homes.places().iter().any(|place| {
            place.platform == source.platform && source.chat_id.as_deref() == Some(place.chat_id.as_str())
        });
        let received = pending.received_at;
        let written_at =
            pending.inbound.sent_at.map_or(received, |sent| sent.after(CLOCK_TOLERANCE).min(received));
        Answerer { key: self.key.clone(), owner: own || home, source, written_at }
    }

    async fn may_approve_lastingly(&self, pending: &PendingMessage) -> bool {
        self.handles.may_approve_lastingly(&pending.inbound.source).await
    }

    /// Toggles approvals for the current transcript.
    pub(in crate::sessions) async fn yolo(&mut self, pending: &PendingMessage) -> Result<(), SessionError> {
        if !self.may_approve_lastingly(pending).await {
            let text = access::only_admin_may_switch_questions_off();
            return self.reply(pending, text, MessageOutcome::Refused).await;
        }
        let address = self.address(pending);
        let session = self
            .write(Commit::Question, move |tx| Ok(address.open(tx, ResolveMode::Continue)?.entry.session_id))
            .await?;
        let off = self.handles.people.approvals.toggle_yolo(&session);
        let text = if off { texts::QUESTIONS_OFF } else { texts::QUESTIONS_ON };
        self.reply(pending, text.into(), MessageOutcome::Answered).await
    }

    /// Ends the open questions of a turn that is being stopped. Returns its calls that were not run.
    pub(in crate::sessions) async fn end_open_questions(&self) -> Result<Vec<String>, SessionError> {
        let Some(turn) = self.turn().map(|turn| turn.id) else { return Ok(vec![]) };
        loop {
            match self.handles.people.questions.end_for_turn(&self.key, turn).await {
                Ok(calls) => return Ok(calls),
                Err(error) => self.wait_or_fail(&error).await?,
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyForm {
    Command,
    Button,
    Word,
}

/// The notice for the person who replied.
fn reply_notice<'a>(
    result: &'a AnswerOutcome,
    which: &RequestSelector,
) -> (String, MessageOutcome, &'a [SettledQuestion]) {
    match result {
        AnswerOutcome::Settled(settled) => {
            let texts: Vec<_> = settled.iter().map(|settled| settled.text.as_str()).collect();
            (texts.join("\n\n"), MessageOutcome::Answered, settled)
        }
        AnswerOutcome::AlreadyEnded(how) => (texts::already_ended(how), MessageOutcome::Refused, &[]),
        AnswerOutcome::NoneOpen => match which {
            RequestSelector::Id(id) => (texts::unknown(id), MessageOutcome::Refused, &[]),
            RequestSelector::Oldest | RequestSelector::All => {
                (texts::NOTHING_WAITS.into(), MessageOutcome::Refused, &[])
            }
        },
        AnswerOutcome::NotAllowed => (texts::ASKED_ELSEWHERE.into(), MessageOutcome::Refused, &[]),
    }
}
