//! Asks a question and waits for its end.

use std::sync::Arc;
use std::time::Duration;

use petasos_agent::{Question, QuestionChannel, QuestionFuture};
use petasos_approval::{AnswerMethod, ApprovalOutcome, MAX_PENDING, OfferedChoices};
use petasos_core::ids::RowId;
use petasos_core::journal::Write;
use petasos_core::message::Delivery;
use petasos_core::outbox::{Draft, Kind as Owed};
use petasos_core::transcript::Message;
use petasos_core::turn::Turn;
use petasos_core::{Route, SessionId, SessionKey, Source, TurnId};
use petasos_store::{Error as StoreError, QuestionRow, Tx};
use tokio::sync::{oneshot, watch};

use super::{Kind, Questions, Waiter, encode, kind_of, render_question};
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{PlantedBug, planted};
use crate::sessions::view::{self, SessionView};
use crate::{Error, clock};

#[derive(Debug)]
pub(crate) struct QuestionIssuer {
    questions: Questions,
    key: SessionKey,
    session: SessionId,
    turn: TurnId,
    route: Route,
    origin: Source,
    view_tx: Arc<watch::Sender<SessionView>>,
    scope: QuestionScope,
    offer: OfferedChoices,
}

/// Which kinds of questions are possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuestionScope {
    Anything,
    /// API clients answer approvals only, never in words.
    ApprovalsOnly,
}

impl QuestionIssuer {
    pub(crate) fn new(
        questions: &Questions,
        turn: &Turn,
        origin: &Source,
        view_tx: &Arc<watch::Sender<SessionView>>,
        scope: QuestionScope,
        offer: OfferedChoices,
    ) -> Self {
        Self {
            questions: questions.clone(),
            key: turn.key.clone(),
            session: turn.session.clone(),
            turn: turn.id,
            route: turn.route.clone(),
            origin: origin.clone(),
            view_tx: view_tx.clone(),
            scope,
            offer,
        }
    }
}

/// Messages that one question may span. Well below the limit of a split text, since markup makes it longer.
const MAX_PARTS: usize = 10;

impl QuestionChannel for QuestionIssuer {
    fn command_limit(&self) -> usize {
        let can = self.questions.0.channels.capabilities(self.route.platform);
        can.max_message.saturating_mul(MAX_PARTS) / 2
    }

    fn ask<'a>(&'a self, call: &'a str, question: Question, timeout: Duration) -> QuestionFuture<'a> {
        Box::pin(async move {
            if self.scope == QuestionScope::ApprovalsOnly && kind_of(&question) == Kind::Clarify {
                return ApprovalOutcome::Denied { reason: None };
            }
            match self.ask_and_wait(call, question, timeout).await {
                Ok(ending) => ending,
                Err(error) => {
                    tracing::warn!(key = %self.key, %error, "cannot ask a question");
                    ApprovalOutcome::Lost
                }
            }
        })
    }
}

/// Marks the question as abandoned when the waiting future is dropped.
struct WaitGuard<'a> {
    questions: &'a Questions,
    id: &'a str,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let mut waiting = self.questions.lock();
        if let Some(waiter) = waiting.get_mut(self.id) {
            waiter.answer = None;
            self.questions.0.waiter_dropped.notify_one();
        }
    }
}

impl QuestionIssuer {
    fn answer_method(&self) -> AnswerMethod {
        if self.questions.0.channels.capabilities(self.route.platform).buttons {
            return AnswerMethod::Buttons;
        }
        AnswerMethod::Commands
    }

    async fn ask_and_wait(
        &self,
        call: &str,
        question: Question,
        timeout: Duration,
    ) -> Result<ApprovalOutcome, Error> {
        let now = clock::now();
        let id = petasos_approval::request_id(clock::random());
        let expires_at = now.after(timeout);
        let (text, buttons) =
            render_question(&id, &question, self.offer, self.answer_method(), now, expires_at);
        let row = QuestionRow {
            id: id.clone(),
            key: self.key.clone(),
            session: self.session.clone(),
            turn: self.turn,
            call: call.to_owned(),
            origin: self.origin.clone(),
            kind: match kind_of(&question) {
                Kind::Approval => "approval".into(),
                Kind::Clarify => "clarify".into(),
            },
            body: encode(&question).map_err(Error::Store)?,
            outbox: None,
            asked_row: None,
            ended_row: None,
            asked_at: now,
            expires_at,
            ending: None,
        };
        let question_view = view::OpenQuestion::of(&id, &text, &buttons);
        let draft = Draft {
            route: self.route.clone(),
            session_key: Some(self.key.clone()),
            turn: None,
            kind: Owed::Notice,
            text,
            buttons,
        };
        // Before the commit: an answer must find the waiter.
        let (answer, mut answered) = oneshot::channel();
        let waiter = Waiter {
            expires_at,
            key: self.key.clone(),
            kind: kind_of(&question),
            view_tx: self.view_tx.clone(),
            answer: Some(answer),
        };
        self.questions.lock().insert(id.clone(), waiter);
        let wait = WaitGuard { questions: &self.questions, id: &id };
        let stored =
            self.questions.0.db.write(Commit::Question, move |tx| store_question(tx, row, &draft)).await;
        let Some(last) = stored.inspect_err(|_refused| drop(self.questions.lock().remove(&id)))? else {
            self.questions.lock().remove(&id);
            return Ok(ApprovalOutcome::Lost);
        };
        self.view_tx.send_modify(|view| {
            view.questions.push(question_view);
            view.rows = view.rows.max(last);
        });
        if self.route.delivery == Delivery::Push {
            self.questions.0.lanes.wake(self.route.lane()).await;
        }
        let ending = petasos_runtime::select! {
            ending = &mut answered => ending.ok(),
            () = clock::sleep_until(expires_at) => None,
        };
        let ending = match ending {
            Some(ending) => ending,
            None => self.questions.end(&id, ApprovalOutcome::TimedOut).await?,
        };
        drop(wait);
        if planted(PlantedBug::SilenceIsConsent) && ending == ApprovalOutcome::TimedOut {
            return Ok(ApprovalOutcome::Allowed { choice: petasos_approval::Choice::Once });
        }
        Ok(ending)
    }
}

/// Stores the question and its message in one commit. `None`: too many open questions.
fn store_question(
    tx: &Tx<'_>,
    mut row: QuestionRow,
    draft: &Draft,
) -> Result<Option<Option<RowId>>, StoreError> {
    if tx.open_questions(&row.key)?.len() >= MAX_PENDING {
        return Ok(None);
    }
    let now = row.asked_at;
    match draft.route.delivery {
        Delivery::Push => row.outbox = Some(tx.enqueue_new(draft, now)?),
        Delivery::Pull => {
            let message = Message::notice(draft.text.clone(), now);
            tx.apply(&[Write::Append { session: row.session.clone(), message }], now)?;
            row.asked_row = tx.last_row(&row.session)?;
        }
    }
    tx.insert_question(&row)?;
    Ok(Some(row.asked_row))
}
