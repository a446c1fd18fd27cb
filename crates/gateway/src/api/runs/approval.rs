//! What a run asks whoever started it, and their answer. A question belongs to its run: an answer to one run reaches no
//! other, whatever transcript they share.

use petasos_agent::Question;
use petasos_approval::{Answer, Category, Choice, Ending};
use petasos_core::ids::RowId;
use petasos_core::{Millis, TurnId};
use petasos_store::{Error as StoreError, QuestionRow, Reads, RunRow};

use crate::runtime::commit::Commit;
use crate::runtime::tasks;
use crate::sessions::questions::{self, Found};
use crate::{Error, Handle, clock};

/// A question of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    pub id: String,
    /// The whole command as `approve::display` shows it.
    pub command: String,
    /// Where it would run.
    pub folder: Option<String>,
    pub categories: Vec<Category>,
    /// A second model was against it.
    pub advised_against: bool,
    pub choices: Vec<Choice>,
    pub asked_at: Millis,
    /// The rows of the transcript that tell of it.
    pub asked_row: Option<RowId>,
    pub ended_row: Option<RowId>,
    /// `None`: it waits.
    pub ending: Option<Ending>,
}

impl Approval {
    /// `None`: not a question of consent.
    fn read(row: &QuestionRow) -> Result<Option<Self>, StoreError> {
        let question = questions::read(row)?;
        let choices = questions::as_ask(&row.id, &question, row.expires_at).map(|ask| ask.choices());
        let Question::Approval { command, folder, categories, advised_against } = question else {
            return Ok(None);
        };
        let ending = row.ending.as_deref().map(serde_json::from_str).transpose();
        Ok(Some(Self {
            id: row.id.clone(),
            command,
            folder,
            categories,
            advised_against,
            choices: choices.unwrap_or_default(),
            asked_at: row.asked_at,
            asked_row: row.asked_row,
            ended_row: row.ended_row,
            ending: ending.map_err(|_| StoreError::Unreadable("ending"))?,
        }))
    }
}

/// Everything that a run asked, oldest first.
pub(super) fn of(reads: &Reads, run: &RunRow) -> Result<Vec<Approval>, StoreError> {
    let rows = reads.questions_of_turn(run.inbox.into())?;
    let read = rows.iter().map(Approval::read).collect::<Result<Vec<_>, _>>()?;
    Ok(read.into_iter().flatten().collect())
}

impl Handle {
    /// What a run waits for.
    pub async fn run_waits_for(&self, run: &RunRow) -> Result<Option<Approval>, Error> {
        if run.claimed_at.is_none() || run.end.is_some() {
            return Ok(None);
        }
        let run = run.clone();
        let asked = self.0.handles.db.read(move |reader| of(reader, &run)).await?;
        Ok(asked.into_iter().find(|asked| asked.ending.is_none()))
    }

    /// Answers what a run waits for. Gives how many questions that ended.
    pub async fn answer_run(&self, run: &RunRow, answer: Answer) -> Result<usize, Error> {
        let (handle, turn) = (self.clone(), run.inbox.into());
        tasks::uncancelled(async move { handle.answer_turn(turn, answer).await }).await?
    }

    async fn answer_turn(&self, turn: TurnId, answer: Answer) -> Result<usize, Error> {
        let channels = self.0.handles.channels.clone();
        let found = self.0.handles.db.write(Commit::Question, move |tx| {
            questions::answer_turn(tx, &channels, turn, answer, clock::now())
        });
        match found.await? {
            Found::Settled(settled) => {
                let ended = settled.len();
                self.0.handles.people.questions.release(settled).await;
                Ok(ended)
            }
            Found::Over(_) | Found::Nothing | Found::NotTheirs => Ok(0),
        }
    }
}
