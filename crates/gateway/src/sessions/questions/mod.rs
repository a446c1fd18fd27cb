//! Questions to people that a turn waits for: approvals and clarifying questions.
//!
//! Owns the list of waiters, under one short lock; everything else is a row. A question is asked by committing its row together
//! with the message that shows it. It ends once: by an answer, a timeout, the end of its turn, or a restart. The end and its
//! notice are one commit, and the waiter continues only after that: a crash can lose a question but never runs an unapproved
//! command. Answering needs only the store, so a person can answer from another chat.
//!
//! When the waiting future is dropped (stop, timeout), [`run`] ends its question as denied.

mod ask;
mod settle;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_agent::Question;
use petasos_approval::{AnswerMethod, ApprovalOutcome, ApprovalRequest, CommandSummary, OfferedChoices};
use petasos_core::ids::RowId;
use petasos_core::outbox::Button;
use petasos_core::{LaneId, Millis, SessionKey, TurnId};
use petasos_store::{Error as StoreError, QuestionRow};
use tokio::sync::{Notify, oneshot, watch};

pub(crate) use ask::{QuestionIssuer, QuestionScope};
pub(crate) use settle::{
    AnswerOutcome, Answerer, answer_approval, answer_clarification, answer_turn_approval, mark_all_lost,
    unapproved_calls,
};

use crate::delivery::LaneDispatcher;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::links::channels::Channels;
use crate::notices::questions as notices;
use crate::runtime::commit::Commit;
use crate::sessions::view::{self, SessionView};
use crate::storage::database::Db;
use crate::{Error, clock};

/// Wait before another attempt when the store refuses.
const STORE_RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(crate) struct Questions(Arc<QuestionsInner>);

#[derive(Debug)]
struct QuestionsInner {
    db: Db,
    lanes: LaneDispatcher,
    channels: Arc<Channels>,
    waiting: Mutex<BTreeMap<String, Waiter>>,
    waiter_dropped: Notify,
}

/// A turn that waits for an answer. Bounded by the store's limit of open questions per session.
#[derive(Debug)]
struct Waiter {
    expires_at: Millis,
    key: SessionKey,
    kind: Kind,
    view_tx: Arc<watch::Sender<SessionView>>,
    /// `None`: the waiting future was dropped.
    answer: Option<oneshot::Sender<ApprovalOutcome>>,
}

impl Waiter {
    /// Outcome of its question if the waiting future was dropped.
    fn abandoned_outcome(&self, now: Millis) -> ApprovalOutcome {
        if now >= self.expires_at { ApprovalOutcome::TimedOut } else { stopped_with_turn() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Approval,
    Clarify,
}

#[derive(Debug)]
pub(crate) struct SettledQuestion {
    id: String,
    /// The session that asked.
    pub(crate) key: SessionKey,
    ending: ApprovalOutcome,
    pub(crate) text: String,
    lane: Option<LaneId>,
    /// The transcript row with the notice, on channels that read the transcript.
    last: Option<RowId>,
}

impl Questions {
    pub(crate) fn new(db: Db, lanes: LaneDispatcher, channels: Arc<Channels>) -> Self {
        let waiting = Mutex::default();
        let waiter_dropped = Notify::new();
        Self(Arc::new(QuestionsInner { db, lanes, channels, waiting, waiter_dropped }))
    }

    /// Whether a question of this kind is open in the session.
    pub(crate) fn has_open(&self, key: &SessionKey, kind: Kind) -> bool {
        self.lock().values().any(|waiter| waiter.key == *key && waiter.kind == kind)
    }

    /// Ends all open questions of a session whose turn is being stopped. Returns the calls of the turn that were not approved and
    /// therefore not run.
    pub(crate) async fn end_for_turn(&self, key: &SessionKey, turn: TurnId) -> Result<Vec<String>, Error> {
        if self.lock().values().any(|waiter| waiter.key == *key) {
            let key = key.clone();
            let channels = self.0.channels.clone();
            let over = self.0.db.write(Commit::Question, move |tx| {
                let rows = tx.open_questions(&key)?;
                let over = rows
                    .iter()
                    .map(|row| settle::settle(tx, &channels, row, stopped_with_turn(), clock::now()));
                Ok(over.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
            });
            self.release(over.await?).await;
        }
        self.0.db.read(move |reader| unapproved_calls(reader, turn)).await
    }

    /// Called after the commit: releases the waiters and updates the views.
    pub(crate) async fn release(&self, settled: Vec<SettledQuestion>) {
        for SettledQuestion { id, ending, lane, last, .. } in settled {
            if let Some(answer) = self.remove_waiter(&id, last) {
                // The waiter may have gone; the row has the outcome.
                let _ = answer.send(ending);
            }
            if let Some(lane) = lane {
                self.0.lanes.wake(lane).await;
            }
        }
    }

    /// Returns the channel of the waiter.
    fn remove_waiter(&self, id: &str, last: Option<RowId>) -> Option<oneshot::Sender<ApprovalOutcome>> {
        let waiter = self.lock().remove(id)?;
        waiter.view_tx.send_modify(|view| {
            view.questions.retain(|known| known.id != id);
            view.rows = view.rows.max(last);
        });
        waiter.answer
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Waiter>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends questions whose waiter was dropped. Tries again while the store refuses.
pub(crate) async fn run(questions: Questions, shutdown: ShutdownHandle) {
    let mut refused = false;
    loop {
        petasos_runtime::select! {
            () = shutdown.stopped() => return,
            () = questions.0.waiter_dropped.notified() => {}
            () = clock::sleep(STORE_RETRY), if refused => {}
        }
        let warned = std::mem::take(&mut refused);
        let now = clock::now();
        let abandoned: Vec<(String, ApprovalOutcome)> = {
            let waiting = questions.lock();
            let abandoned = waiting.iter().filter(|(_, waiter)| waiter.answer.is_none());
            abandoned.map(|(id, waiter)| (id.clone(), waiter.abandoned_outcome(now))).collect()
        };
        for (id, outcome) in abandoned {
            match questions.end(&id, outcome).await {
                // Removes a question that was never stored.
                Ok(_) => drop(questions.remove_waiter(&id, None)),
                Err(Error::Stopping) => {}
                Err(error) => {
                    if !warned {
                        tracing::warn!(%error, "cannot end an abandoned question yet");
                    }
                    refused = true;
                }
            }
        }
    }
}

fn stopped_with_turn() -> ApprovalOutcome {
    ApprovalOutcome::Denied { reason: Some(notices::TURN_STOPPED.into()) }
}

fn encode(question: &Question) -> Result<String, StoreError> {
    serde_json::to_string(question).map_err(|_| StoreError::Unreadable("question"))
}

pub(crate) fn decode(row: &QuestionRow) -> Result<Question, StoreError> {
    serde_json::from_str(&row.body).map_err(|_| StoreError::Unreadable("question"))
}

fn kind_of(question: &Question) -> Kind {
    match question {
        Question::Approval { .. } => Kind::Approval,
        Question::Clarify { .. } => Kind::Clarify,
    }
}

/// The approval request of a question; `None` for a clarifying question.
pub(crate) fn to_ask(id: &str, question: &Question, expires_at: Millis) -> Option<ApprovalRequest> {
    match question {
        Question::Approval { categories, advised_against, .. } => Some(ApprovalRequest {
            id: id.to_owned(),
            categories: categories.clone(),
            advised_against: *advised_against,
            expires_at,
        }),
        Question::Clarify { .. } => None,
    }
}

fn render_question(
    id: &str,
    question: &Question,
    offer: OfferedChoices,
    method: AnswerMethod,
    now: Millis,
    expires_at: Millis,
) -> (String, Vec<Button>) {
    match (question, to_ask(id, question, expires_at)) {
        (Question::Approval { command, folder, .. }, Some(ask)) => {
            let subject = CommandSummary { command, folder: folder.as_deref() };
            let seconds = expires_at.since(now).as_secs();
            (
                petasos_approval::question_text(&ask, subject, seconds, offer, method),
                petasos_approval::buttons(&ask, offer),
            )
        }
        (Question::Approval { command, .. }, None) => (command.clone(), vec![]),
        (Question::Clarify { text, choices }, _) => {
            let button = |choice: &String| Button {
                label: choice.chars().take(32).collect(),
                data: choice.chars().take(24).collect(),
            };
            let short = |choice: &&String| choice.chars().count() <= 24 && choice.len() <= 60;
            (notices::clarification(text, choices), choices.iter().filter(short).map(button).collect())
        }
    }
}

fn render_outcome(question: &Question, ending: &ApprovalOutcome) -> String {
    match question {
        Question::Approval { command, .. } => petasos_approval::outcome_text(command, ending),
        Question::Clarify { text, .. } => match ending {
            ApprovalOutcome::Answered { text: answer } => notices::answered(text, answer),
            ApprovalOutcome::Allowed { .. } | ApprovalOutcome::Denied { .. } => notices::not_answered(text),
            ApprovalOutcome::TimedOut => notices::timed_out(text),
            ApprovalOutcome::Lost => notices::lost(text),
        },
    }
}

impl view::OpenQuestion {
    fn of(id: &str, text: &str, buttons: &[Button]) -> Self {
        Self { id: id.to_owned(), text: text.to_owned(), buttons: buttons.to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use petasos_core::message::{ChatType, Delivery};
    use petasos_core::outbox::{Draft, Kind as Owed};
    use petasos_core::{Platform, Route, SessionId, Source};
    use petasos_store::Store;

    use super::*;
    use crate::runtime::tasks::testing::dropped_after;

    /// Stores an open question of chat 7 with a waiter.
    async fn store_open_question(questions: &Questions, db: &Db) -> oneshot::Receiver<ApprovalOutcome> {
        let origin = Source::new(Platform::parse("telegram").unwrap(), ChatType::Dm, "7");
        let key = SessionKey("agent:main:telegram:dm:7".into());
        let draft = Draft {
            route: Route::to_source(&origin, Delivery::Push),
            session_key: Some(key.clone()),
            turn: None,
            kind: Owed::Notice,
            text: "Which one?".into(),
            buttons: vec![],
        };
        let question = Question::Clarify { text: "Which one?".into(), choices: vec![] };
        let now = clock::now();
        let mut row = QuestionRow {
            id: "q1".into(),
            key: key.clone(),
            session: SessionId("s".into()),
            turn: TurnId(1),
            call: "call_1".into(),
            origin,
            kind: "clarify".into(),
            body: encode(&question).unwrap(),
            outbox: None,
            asked_row: None,
            ended_row: None,
            asked_at: now,
            expires_at: now,
            ending: None,
        };
        let stored = db.write(Commit::Question, move |tx| {
            row.outbox = Some(tx.enqueue_new(&draft, now)?);
            tx.insert_question(&row)
        });
        stored.await.unwrap();
        let (answer, answered) = oneshot::channel();
        let view_tx = Arc::new(watch::channel(SessionView::default()).0);
        let waiter = Waiter { expires_at: now, key, kind: Kind::Clarify, view_tx, answer: Some(answer) };
        questions.lock().insert("q1".into(), waiter);
        answered
    }

    #[tokio::test]
    async fn question_end_is_reported_after_the_caller_is_dropped() {
        let mut dropped_behind_commit = 0;
        for polls in 1..64 {
            let home = tempfile::tempdir().unwrap();
            let store = Store::open(home.path().join("petasos.db")).unwrap();
            let (db, _writer) = crate::storage::database::start(store, ShutdownHandle::default()).unwrap();
            let (lanes, mut due) = LaneDispatcher::recorded();
            let questions = Questions::new(db.clone(), lanes, Arc::new(Channels::new(vec![])));
            let mut answered = store_open_question(&questions, &db).await;
            let dropped = dropped_after(polls, &db, questions.end("q1", ApprovalOutcome::TimedOut)).await;
            if db.read(|reader| reader.all_open_questions()).await.unwrap().is_empty() {
                assert_eq!(
                    due().map(|lane| lane.to_string()).as_deref(),
                    Some("telegram:7"),
                    "the chat is not told"
                );
                assert_eq!(
                    answered.try_recv().ok(),
                    Some(ApprovalOutcome::TimedOut),
                    "the turn waits for ever"
                );
                dropped_behind_commit += usize::from(dropped);
            }
            if !dropped {
                break;
            }
        }
        assert!(dropped_behind_commit > 0, "never dropped behind its commit");
    }
}
