//! Approval requests of API runs. A request belongs to its run: an answer to one run never reaches another, even in the same
//! transcript.

use petasos_agent::Question;
use petasos_approval::{ApprovalOutcome, ApprovalReply, Category, Choice};
use petasos_core::ids::RowId;
use petasos_core::{Millis, TurnId};
use petasos_store::{Error as StoreError, QuestionRow, Reads, RunRow};

use crate::runtime::commit::Commit;
use crate::runtime::tasks;
use crate::sessions::questions::{self, AnswerOutcome};
use crate::{Error, Handle, clock};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunApproval {
    pub id: String,
    /// The complete command, as `petasos_approval::display` shows it.
    pub command: String,
    pub folder: Option<String>,
    pub categories: Vec<Category>,
    pub advised_against: bool,
    pub choices: Vec<Choice>,
    pub asked_at: Millis,
    /// The transcript rows of the request and of its end.
    pub asked_row: Option<RowId>,
    pub ended_row: Option<RowId>,
    /// `None`: still open.
    pub ending: Option<ApprovalOutcome>,
}

impl RunApproval {
    /// `None`: not an approval request.
    fn from_row(row: &QuestionRow) -> Result<Option<Self>, StoreError> {
        let question = questions::decode(row)?;
        let choices = questions::to_ask(&row.id, &question, row.expires_at).map(|ask| ask.choices());
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

/// All approval requests of a run, oldest first.
pub(super) fn approvals_of(reads: &Reads, run: &RunRow) -> Result<Vec<RunApproval>, StoreError> {
    let rows = reads.questions_of_turn(run.inbox.into())?;
    let from_row = rows.iter().map(RunApproval::from_row).collect::<Result<Vec<_>, _>>()?;
    Ok(from_row.into_iter().flatten().collect())
}

impl Handle {
    pub async fn open_run_approval(&self, run: &RunRow) -> Result<Option<RunApproval>, Error> {
        if run.claimed_at.is_none() || run.end.is_some() {
            return Ok(None);
        }
        let run = run.clone();
        let approvals = self.0.handles.db.read(move |reader| approvals_of(reader, &run)).await?;
        Ok(approvals.into_iter().find(|approval| approval.ending.is_none()))
    }

    /// Answers the open requests of a run; returns how many ended.
    pub async fn answer_run(&self, run: &RunRow, answer: ApprovalReply) -> Result<usize, Error> {
        let handle = self.clone();
        let turn = run.inbox.into();
        tasks::uncancelled(async move { handle.answer_turn(turn, answer).await }).await?
    }

    async fn answer_turn(&self, turn: TurnId, answer: ApprovalReply) -> Result<usize, Error> {
        let channels = self.0.handles.channels.clone();
        let outcome = self.0.handles.db.write(Commit::Question, move |tx| {
            questions::answer_turn_approval(tx, &channels, turn, answer, clock::now())
        });
        match outcome.await? {
            AnswerOutcome::Settled(settled) => {
                let ended = settled.len();
                self.0.handles.people.questions.release(settled).await;
                Ok(ended)
            }
            AnswerOutcome::AlreadyEnded(_) | AnswerOutcome::NoneOpen | AnswerOutcome::NotAllowed => Ok(0),
        }
    }
}
