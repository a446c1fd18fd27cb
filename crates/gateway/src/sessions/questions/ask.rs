//! Asking, and waiting for the end of it.

use std::sync::Arc;
use std::time::Duration;

use petasos_agent::{Ended, People, Question};
use petasos_approval::{Ending, MOST_WAITING, Offer};
use petasos_core::ids::RowId;
use petasos_core::journal::Write;
use petasos_core::message::Delivery;
use petasos_core::outbox::{Draft, Kind as Owed};
use petasos_core::transcript::Message;
use petasos_core::turn::Turn;
use petasos_core::{Route, SessionId, SessionKey, Source, TurnId};
use petasos_store::{Error as StoreError, QuestionRow, Tx};
use tokio::sync::{oneshot, watch};

use super::{Kind, Questions, Waiter, body, kind, shown};
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{Planted, planted};
use crate::sessions::view::{self, View};
use crate::{Error, clock};

/// The people of one turn.
#[derive(Debug)]
pub(crate) struct Asker {
    questions: Questions,
    key: SessionKey,
    session: SessionId,
    turn: TurnId,
    route: Route,
    origin: Source,
    show: Arc<watch::Sender<View>>,
    scope: Scope,
    offer: Offer,
}

/// What may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Anything,
    /// A program answers with one of the choices, never in words.
    Consent,
}

impl Asker {
    pub(crate) fn new(
        questions: &Questions,
        turn: &Turn,
        origin: &Source,
        show: &Arc<watch::Sender<View>>,
        scope: Scope,
        offer: Offer,
    ) -> Self {
        Self {
            questions: questions.clone(),
            key: turn.key.clone(),
            session: turn.session.clone(),
            turn: turn.id,
            route: turn.route.clone(),
            origin: origin.clone(),
            show: show.clone(),
            scope,
            offer,
        }
    }
}

/// Messages over which one question may be spread. Well below what a text is cut at, since markup makes it longer.
const MOST_PARTS: usize = 10;

impl People for Asker {
    fn room(&self) -> usize {
        let can = self.questions.0.channels.capabilities(self.route.platform);
        // A character takes up to two units.
        can.max_message.saturating_mul(MOST_PARTS) / 2
    }

    fn ask<'a>(&'a self, call: &'a str, question: Question, patience: Duration) -> Ended<'a> {
        Box::pin(async move {
            if self.scope == Scope::Consent && kind(&question) == Kind::Clarify {
                return Ending::Denied { reason: None };
            }
            match self.put(call, question, patience).await {
                Ok(ending) => ending,
                Err(error) => {
                    tracing::warn!(key = %self.key, %error, "a question could not be asked");
                    Ending::Lost
                }
            }
        })
    }
}

/// Dropped when nobody waits any more, whatever the reason.
struct Wait<'a> {
    questions: &'a Questions,
    id: &'a str,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut waiting = self.questions.lock();
        if let Some(waiter) = waiting.get_mut(self.id) {
            waiter.answer = None;
            self.questions.0.gone.notify_one();
        }
    }
}

impl Asker {
    async fn put(&self, call: &str, question: Question, patience: Duration) -> Result<Ending, Error> {
        let now = clock::now();
        let (id, expires_at) = (petasos_approval::name(clock::random()), now.after(patience));
        let (text, buttons) = shown(&id, &question, self.offer, now, expires_at);
        let row = QuestionRow {
            id: id.clone(),
            key: self.key.clone(),
            session: self.session.clone(),
            turn: self.turn,
            call: call.to_owned(),
            origin: self.origin.clone(),
            kind: match kind(&question) {
                Kind::Approval => "approval".into(),
                Kind::Clarify => "clarify".into(),
            },
            body: body(&question).map_err(Error::Store)?,
            outbox: None,
            asked_row: None,
            ended_row: None,
            asked_at: now,
            expires_at,
            ending: None,
        };
        let asked = view::Asked::of(&id, &text, &buttons);
        let draft = Draft {
            route: self.route.clone(),
            session_key: Some(self.key.clone()),
            turn: None,
            kind: Owed::Notice,
            text,
            buttons,
        };
        // Before the commit: whoever answers finds somebody waiting.
        let (answer, mut answered) = oneshot::channel();
        let waiter = Waiter {
            expires_at,
            key: self.key.clone(),
            kind: kind(&question),
            show: self.show.clone(),
            answer: Some(answer),
        };
        self.questions.lock().insert(id.clone(), waiter);
        let wait = Wait { questions: &self.questions, id: &id };
        let kept = self.questions.0.db.write(Commit::Question, move |tx| keep(tx, row, &draft)).await;
        let Some(last) = kept.inspect_err(|_refused| drop(self.questions.lock().remove(&id)))? else {
            self.questions.lock().remove(&id);
            return Ok(Ending::Lost);
        };
        self.show.send_modify(|view| {
            view.questions.push(asked);
            view.rows = view.rows.max(last);
        });
        if self.route.delivery == Delivery::Push {
            self.questions.0.deliver.due(self.route.lane()).await;
        }
        let ending = petasos_runtime::select! {
            ending = &mut answered => ending.ok(),
            () = clock::sleep_until(expires_at) => None,
        };
        let ending = match ending {
            Some(ending) => ending,
            None => self.questions.end(&id, Ending::TimedOut).await?,
        };
        drop(wait);
        if planted(Planted::SilenceIsConsent) && ending == Ending::TimedOut {
            return Ok(Ending::Allowed { choice: petasos_approval::Choice::Once });
        }
        Ok(ending)
    }
}

/// The question and what shows it: one commit. `None`: too many wait already.
fn keep(tx: &Tx<'_>, mut row: QuestionRow, draft: &Draft) -> Result<Option<Option<RowId>>, StoreError> {
    if tx.open_questions(&row.key)?.len() >= MOST_WAITING {
        return Ok(None);
    }
    let now = row.asked_at;
    match draft.route.delivery {
        Delivery::Push => row.outbox = Some(tx.owe_new(draft, now)?),
        Delivery::Pull => {
            let message = Message::notice(draft.text.clone(), now);
            tx.apply(&[Write::Append { session: row.session.clone(), message }], now)?;
            row.asked_row = tx.last_row(&row.session)?;
        }
    }
    tx.ask(&row)?;
    Ok(Some(row.asked_row))
}
