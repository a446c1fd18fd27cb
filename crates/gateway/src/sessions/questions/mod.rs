//! Questions to people, for which a turn waits.
//!
//! Owns who waits for which answer, under one short lock; everything else is a row. A question is asked by committing
//! its row together with the message that shows it, and it ends once: by an answer, by time, with its turn, or at the
//! next start. The end and what the chat shows of it are one commit, and only then does whoever waits go on: a crash
//! can lose the question, but never run what nobody agreed to. Whoever answers needs no session but the store, so
//! two chats can answer each other's questions.
//!
//! A future that is dropped (stop, a time limit) leaves its question to [`run`], which ends it as denied.

mod ask;
mod end;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_agent::Question;
use petasos_approval::{Ask, Ending, Offer, Subject};
use petasos_core::ids::RowId;
use petasos_core::outbox::Button;
use petasos_core::{LaneId, Millis, SessionKey, TurnId};
use petasos_store::{Error as StoreError, QuestionRow};
use tokio::sync::{Notify, oneshot, watch};

pub(crate) use ask::{Asker, Scope};
pub(crate) use end::{Found, Who, answer, answer_turn, lose, said, unstarted};

use crate::delivery::Deliver;
use crate::lifecycle::shutdown::Stopper;
use crate::links::channels::Channels;
use crate::runtime::commit::Commit;
use crate::sessions::view::{self, View};
use crate::storage::database::Db;
use crate::{Error, clock};

/// How long to wait when the store refuses.
const STORE_RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(crate) struct Questions(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    db: Db,
    deliver: Deliver,
    channels: Arc<Channels>,
    waiting: Mutex<BTreeMap<String, Waiter>>,
    /// Somebody stopped waiting.
    gone: Notify,
}

/// Whoever waits for an answer. Bounded by what the store takes for each session.
#[derive(Debug)]
struct Waiter {
    expires_at: Millis,
    key: SessionKey,
    kind: Kind,
    show: Arc<watch::Sender<View>>,
    /// `None`: nobody waits any more.
    answer: Option<oneshot::Sender<Ending>>,
}

impl Waiter {
    /// The ending of an abandoned question.
    fn left_with(&self, now: Millis) -> Ending {
        if now >= self.expires_at { Ending::TimedOut } else { stopped() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Approval,
    Clarify,
}

/// A question that has ended, and who is to hear of it.
#[derive(Debug)]
pub(crate) struct Settled {
    id: String,
    /// The session that asked.
    pub(crate) key: SessionKey,
    ending: Ending,
    /// What people are told of it.
    pub(crate) text: String,
    lane: Option<LaneId>,
    /// The row that says so to those who come for it.
    last: Option<RowId>,
}

impl Questions {
    pub(crate) fn new(db: Db, deliver: Deliver, channels: Arc<Channels>) -> Self {
        let (waiting, gone) = (Mutex::default(), Notify::new());
        Self(Arc::new(Inner { db, deliver, channels, waiting, gone }))
    }

    /// Whether a plain word in this session may be the answer to such a question.
    pub(crate) fn waits(&self, key: &SessionKey, kind: Kind) -> bool {
        self.lock().values().any(|waiter| waiter.key == *key && waiter.kind == kind)
    }

    /// The turn is being stopped: ends all that wait in its session. Gives those of its calls that never got their
    /// yes, and were therefore not run.
    pub(crate) async fn turn_over(&self, key: &SessionKey, turn: TurnId) -> Result<Vec<String>, Error> {
        if self.lock().values().any(|waiter| waiter.key == *key) {
            let (key, channels) = (key.clone(), self.0.channels.clone());
            let over = self.0.db.write(Commit::Question, move |tx| {
                let rows = tx.open_questions(&key)?;
                let over = rows.iter().map(|row| end::settle(tx, &channels, row, stopped(), clock::now()));
                Ok(over.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
            });
            self.release(over.await?).await;
        }
        self.0.db.read(move |reader| unstarted(reader, turn)).await
    }

    /// After the commit: those who wait go on, and those who watch see it.
    pub(crate) async fn release(&self, settled: Vec<Settled>) {
        for Settled { id, ending, lane, last, .. } in settled {
            if let Some(answer) = self.forget(&id, last) {
                // Whoever waited may have gone; the row says how it ended.
                let _ = answer.send(ending);
            }
            if let Some(lane) = lane {
                self.0.deliver.due(lane).await;
            }
        }
    }

    /// Gives whoever waits.
    fn forget(&self, id: &str, last: Option<RowId>) -> Option<oneshot::Sender<Ending>> {
        let waiter = self.lock().remove(id)?;
        waiter.show.send_modify(|view| {
            view.questions.retain(|known| known.id != id);
            view.rows = view.rows.max(last);
        });
        waiter.answer
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Waiter>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the questions behind which nobody waits any more.
pub(crate) async fn run(questions: Questions, stopper: Stopper) {
    let mut refused = false;
    loop {
        petasos_runtime::select! {
            () = stopper.stopped() => return,
            () = questions.0.gone.notified() => {}
            () = tokio::time::sleep(STORE_RETRY), if refused => {}
        }
        let warned = std::mem::take(&mut refused);
        let now = clock::now();
        let left: Vec<(String, Ending)> = {
            let waiting = questions.lock();
            let left = waiting.iter().filter(|(_, waiter)| waiter.answer.is_none());
            left.map(|(id, waiter)| (id.clone(), waiter.left_with(now))).collect()
        };
        for (id, ending) in left {
            match questions.end(&id, ending).await {
                // One that never got as far as the store ends here.
                Ok(_) => drop(questions.forget(&id, None)),
                Err(Error::Stopping) => {}
                Err(error) => {
                    if !warned {
                        tracing::warn!(%error, "a question that nobody waits for stays open until its end is stored");
                    }
                    refused = true;
                }
            }
        }
    }
}

fn stopped() -> Ending {
    Ending::Denied { reason: Some("the turn was stopped".into()) }
}

/// What is stored of a question.
fn body(question: &Question) -> Result<String, StoreError> {
    serde_json::to_string(question).map_err(|_| StoreError::Unreadable("question"))
}

pub(crate) fn read(row: &QuestionRow) -> Result<Question, StoreError> {
    serde_json::from_str(&row.body).map_err(|_| StoreError::Unreadable("question"))
}

fn kind(question: &Question) -> Kind {
    match question {
        Question::Approval { .. } => Kind::Approval,
        Question::Clarify { .. } => Kind::Clarify,
    }
}

/// As the machine of approvals knows it.
pub(crate) fn as_ask(id: &str, question: &Question, expires_at: Millis) -> Option<Ask> {
    match question {
        Question::Approval { categories, advised_against, .. } => Some(Ask {
            id: id.to_owned(),
            categories: categories.clone(),
            advised_against: *advised_against,
            expires_at,
        }),
        Question::Clarify { .. } => None,
    }
}

/// What people are asked, and the buttons below it.
fn shown(
    id: &str,
    question: &Question,
    offer: Offer,
    now: Millis,
    expires_at: Millis,
) -> (String, Vec<Button>) {
    match (question, as_ask(id, question, expires_at)) {
        (Question::Approval { command, folder, .. }, Some(ask)) => {
            let subject = Subject { command, folder: folder.as_deref() };
            let seconds = expires_at.since(now).as_secs();
            (
                petasos_approval::question(&ask, subject, seconds, offer),
                petasos_approval::buttons(&ask, offer),
            )
        }
        (Question::Approval { command, .. }, None) => (command.clone(), vec![]),
        (Question::Clarify { text, choices }, _) => {
            let listed: String =
                choices.iter().enumerate().map(|(at, choice)| format!("\n{}. {choice}", at + 1)).collect();
            let button = |choice: &String| Button {
                label: choice.chars().take(32).collect(),
                data: choice.chars().take(24).collect(),
            };
            let short = |choice: &&String| choice.chars().count() <= 24 && choice.len() <= 60;
            (format!("❓ {text}{listed}"), choices.iter().filter(short).map(button).collect())
        }
    }
}

fn outcome(question: &Question, ending: &Ending) -> String {
    match question {
        Question::Approval { command, .. } => petasos_approval::outcome(command, ending),
        Question::Clarify { text, .. } => match ending {
            Ending::Said { text: said } => format!("❓ {text}\n💬 {said}"),
            Ending::Allowed { .. } | Ending::Denied { .. } => format!("❓ {text}\n🚫 Not answered."),
            Ending::TimedOut => format!("❓ {text}\n⌛ Nobody answered in time."),
            Ending::Lost => format!("❓ {text}\n♻️ The question was lost in a restart of the gateway."),
        },
    }
}

impl view::Asked {
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

    /// An open question of chat 7, for which somebody waits.
    async fn asked(questions: &Questions, db: &Db) -> oneshot::Receiver<Ending> {
        let origin = Source::new(Platform::parse("telegram").unwrap(), ChatType::Dm, "7");
        let key = SessionKey("agent:main:telegram:dm:7".into());
        let draft = Draft {
            route: Route::back_to(&origin, Delivery::Push),
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
            body: body(&question).unwrap(),
            outbox: None,
            asked_row: None,
            ended_row: None,
            asked_at: now,
            expires_at: now,
            ending: None,
        };
        let stored = db.write(Commit::Question, move |tx| {
            row.outbox = Some(tx.owe_new(&draft, now)?);
            tx.ask(&row)
        });
        stored.await.unwrap();
        let (answer, answered) = oneshot::channel();
        let show = Arc::new(watch::channel(View::default()).0);
        let waiter = Waiter { expires_at: now, key, kind: Kind::Clarify, show, answer: Some(answer) };
        questions.lock().insert("q1".into(), waiter);
        answered
    }

    #[tokio::test]
    async fn end_of_a_question_is_told_after_the_caller_is_dropped() {
        let mut dropped_behind_commit = 0;
        for polls in 1..64 {
            let home = tempfile::tempdir().unwrap();
            let store = Store::open(home.path().join("petasos.db")).unwrap();
            let (db, _writer) = crate::storage::database::start(store, Stopper::default()).unwrap();
            let (deliver, mut due) = Deliver::recorded();
            let questions = Questions::new(db.clone(), deliver, Arc::new(Channels::new(vec![])));
            let mut answered = asked(&questions, &db).await;
            let dropped = dropped_after(polls, &db, questions.end("q1", Ending::TimedOut)).await;
            if db.read(|reader| reader.all_open_questions()).await.unwrap().is_empty() {
                assert_eq!(
                    due().map(|lane| lane.to_string()).as_deref(),
                    Some("telegram:7"),
                    "the chat is not told"
                );
                assert_eq!(answered.try_recv().ok(), Some(Ending::TimedOut), "the turn waits for ever");
                dropped_behind_commit += usize::from(dropped);
            }
            if !dropped {
                break;
            }
        }
        assert!(dropped_behind_commit > 0, "never dropped behind its commit");
    }
}
