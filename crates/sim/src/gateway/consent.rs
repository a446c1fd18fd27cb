//! Approvals: a command that needs consent, people who answer, and the check that consent was stored.

use petasos_agent::SessionCtx;
use petasos_approval::ApprovalOutcome;
use petasos_store::QuestionRow;

use super::state::State;
use crate::promise::Promise;
use crate::truth::Check;

/// A command that needs consent wherever it runs.
pub(super) const COMMAND: &str = "rm -rf build";
/// Where it runs. A fixed path: the home of the gateway has another name in every run.
pub(super) const FOLDER: &str = "/srv/project";

impl State {
    /// A person writes: in a chat with an open question, an answer to it.
    pub(super) fn written(&mut self, number: usize) {
        let said = &self.world.said[number];
        if said.answers && self.is_asked(said.chat) {
            let answers = ["/approve", "/approve all", "yes", "/deny", "no"];
            self.world.said[number].text = self.luck.pick(&answers).to_owned();
        }
        self.world.said[number].written = true;
    }

    fn is_asked(&self, chat: usize) -> bool {
        let chat = &self.world.chats[chat];
        let open = self.reader().ok().and_then(|reader| reader.all_open_questions().ok());
        let here = |row: &QuestionRow| {
            row.origin.platform == chat.class.platform() && row.origin.chat_id.as_ref() == Some(&chat.id)
        };
        open.unwrap_or_default().iter().any(here)
    }

    /// Before a command runs its consent must be on disk.
    pub(super) fn consented(&mut self, ctx: &SessionCtx) -> Check {
        self.figures.consents += 1;
        let lost =
            |why: String| (Promise::Consent, format!("no consent to call {} is on disk{why}", ctx.call));
        let reader = self.reader().map_err(|error| lost(format!(": {error}")))?;
        let rows = reader.questions(&ctx.key).map_err(|error| lost(format!(": {error}")))?;
        let allowed = |row: &QuestionRow| {
            let ending = row.ending.as_deref().and_then(|ending| serde_json::from_str(ending).ok());
            matches!(ending, Some(ApprovalOutcome::Allowed { .. }))
        };
        let agreed = rows.iter().any(|row| row.call == ctx.call && allowed(row));
        if agreed { Ok(()) } else { Err(lost(String::new())) }
    }
}
