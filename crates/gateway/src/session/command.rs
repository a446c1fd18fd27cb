//! Slash commands. They are obeyed here, at once, and never reach the model.

use petasos_core::admission::Arrival;
use petasos_core::command::{self as slash, Name, Parsed};
use petasos_core::journal::{Outcome, Write};
use petasos_core::message::Delivery;
use petasos_core::outbox::State;
use petasos_core::session::{Ask, Entry, ModelOverride};
use petasos_core::{Inbound, SessionId};
use petasos_store::{Error as StoreError, Pending, SessionRow, Stage, Tx, Whereabouts};

use super::{Ended, Session};
use crate::clock;

/// Sessions shown by `/sessions`.
const LISTED: usize = 10;

impl Session {
    pub(super) async fn command(&mut self, pending: Pending) -> Result<(), Ended> {
        let (name, args) = match slash::parse(&pending.inbound.text) {
            Parsed::Known(name, args) => (name, args),
            Parsed::Unknown(name) => {
                let hint = slash::suggestion(&name)
                    .map(|near| format!(" Did you mean /{near}?"))
                    .unwrap_or_default();
                let text = format!("❓ Unknown command /{name}.{hint} /help lists what I know.");
                return self.answer(&pending, text, Outcome::Answered).await;
            }
            Parsed::Text => return Ok(()),
        };
        if self.turn.is_some() && !name.spec().while_running {
            let text = format!(
                "⏳ Agent is running — `/{}` can't run mid-turn. Wait for it, or send /stop first.",
                name.as_str()
            );
            return self.answer(&pending, text, Outcome::Refused).await;
        }
        match name {
            Name::Help => self.answer(&pending, help(), Outcome::Answered).await,
            Name::Start => self.answer(&pending, HELLO.into(), Outcome::Answered).await,
            Name::Stop => self.stop(&pending).await,
            Name::New => self.renew(&pending).await,
            Name::Queue => self.queue_up(pending, args).await,
            Name::Retry => self.retry(pending).await,
            Name::Undo => self.undo(&pending, &args).await,
            Name::Model => self.model(&pending, &args).await,
            Name::Resume => self.resume(&pending, &args).await,
            Name::Status => self.status(&pending).await,
            Name::Sessions => self.sessions(&pending).await,
            Name::Usage => self.usage(&pending).await,
            Name::Where => self.whereabouts(&pending).await,
            Name::Whoami => self.whoami(&pending).await,
        }
    }

    async fn stop(&mut self, pending: &Pending) -> Result<(), Ended> {
        let starting = self.turn.is_some() && self.work.is_none();
        let text = match self.interrupt().await? {
            true if starting => "⏹ Stopped. It hadn't started yet.",
            true => "⏹ Stopped. What was said so far is kept; the session goes on.",
            false => "No active task to stop.",
        };
        self.answer(pending, text.into(), Outcome::Answered).await
    }

    async fn renew(&mut self, pending: &Pending) -> Result<(), Ended> {
        self.interrupt().await?;
        self.cancel_queue().await?;
        let fresh = self.open(pending, Ask::ForceNew).await?;
        self.enter(fresh);
        self.answer(
            pending,
            "✨ New session. The earlier one is kept: /sessions lists it.".into(),
            Outcome::Answered,
        )
        .await
    }

    /// A message of its own turn, behind everything that waits.
    async fn queue_up(&mut self, mut pending: Pending, args: String) -> Result<(), Ended> {
        if args.is_empty() {
            let text = "Say what to queue: /queue <message>".into();
            return self.answer(&pending, text, Outcome::Refused).await;
        }
        pending.inbound.text = args;
        self.admit(pending, Arrival::Queued).await
    }

    /// The last message again, as if it had not been answered.
    async fn retry(&mut self, mut pending: Pending) -> Result<(), Ended> {
        let Some(session) = self.current().await? else {
            return self.answer(&pending, NOTHING_YET.into(), Outcome::Refused).await;
        };
        // One commit: the command becomes the message it repeats, so a crash cannot undo twice.
        let repeated = pending.clone();
        let undone = self
            .change(move |tx| {
                let Some(undone) = tx.undo(&session, 1)? else { return Ok(None) };
                let inbound = Inbound { text: undone.text, ..repeated.inbound.clone() };
                tx.rewrite(repeated.id, &inbound)?;
                Ok(Some(inbound))
            })
            .await?;
        let Some(inbound) = undone else {
            return self.answer(&pending, NOTHING_YET.into(), Outcome::Refused).await;
        };
        pending.inbound = inbound;
        self.admit(pending, Arrival::Text).await
    }

    async fn undo(&mut self, pending: &Pending, args: &str) -> Result<(), Ended> {
        let count = match args {
            "" => 1,
            number => match number.parse::<usize>() {
                Ok(count @ 1..=100) => count,
                Ok(_) | Err(_) => {
                    let text = "Say how many exchanges to drop: /undo 2".into();
                    return self.answer(pending, text, Outcome::Refused).await;
                }
            },
        };
        let undone = match self.current().await? {
            Some(session) => self.change(move |tx| tx.undo(&session, count)).await?,
            None => None,
        };
        let text = match undone {
            Some(_) if count == 1 => "↩️ Dropped the last exchange.".into(),
            Some(_) => format!("↩️ Dropped the last {count} exchanges."),
            None => NOTHING_YET.into(),
        };
        self.answer(pending, text, Outcome::Answered).await
    }

    async fn model(&mut self, pending: &Pending, args: &str) -> Result<(), Ended> {
        let wanted = args.split_whitespace().next().map(str::to_owned);
        let described = self.shell.brain.describe();
        let Some(wanted) = wanted else {
            let entry = self.entry().await?;
            let chosen = entry.and_then(|entry| entry.model_override).and_then(|chosen| chosen.model);
            let text = match chosen {
                Some(model) => format!(
                    "🧠 This session uses {model} ({}). /model default goes back.",
                    described.provider.as_str()
                ),
                None => format!(
                    "🧠 {} ({}). /model <name> changes it for this session.",
                    described.model,
                    described.provider.as_str()
                ),
            };
            return self.answer(pending, text, Outcome::Answered).await;
        };
        let chosen = (wanted != "default")
            .then(|| ModelOverride { model: Some(wanted.clone()), ..Default::default() });
        self.open(pending, Ask::Continue).await?;
        let key = self.key.clone();
        self.change(move |tx| {
            tx.change_entry(&key, |entry| entry.map(|entry| entry.model_override = chosen.clone()).is_some())
        })
        .await?;
        self.answer(pending, format!("🧠 This session now uses {wanted}."), Outcome::Answered).await
    }

    async fn resume(&mut self, pending: &Pending, args: &str) -> Result<(), Ended> {
        let rows = self.earlier().await?;
        let wanted = args.trim();
        let found = match wanted.parse::<usize>() {
            Ok(number) => number.checked_sub(1).and_then(|at| rows.get(at)),
            Err(_) if wanted.is_empty() => {
                rows.iter().find(|row| Some(&row.id) != self.show.borrow().session.as_ref())
            }
            Err(_) => rows.iter().find(|row| named(row, wanted)),
        };
        let Some(row) = found else {
            let text =
                "I know no such session here. /sessions lists them; /resume takes a number, an id or a name.";
            return self.answer(pending, text.into(), Outcome::Refused).await;
        };
        let (key, id, title) = (self.key.clone(), row.id.clone(), title(row));
        let now = clock::now();
        self.change(move |tx| tx.switch_session(&key, &id, now)).await?;
        self.enter(row.id.clone());
        self.answer(pending, format!("▶️ Back in “{title}”."), Outcome::Answered).await
    }

    async fn status(&mut self, pending: &Pending) -> Result<(), Ended> {
        let now = clock::now();
        let doing = match &self.turn {
            Some(turn) => {
                format!("working for {} s (step {})", now.since(turn.started_at).as_secs(), turn.step + 1)
            }
            None => "idle".into(),
        };
        let model = self.shell.brain.describe();
        let mut lines = vec![format!("📊 Session: {doing}, {} waiting", self.queue.len())];
        if let Some(session) = self.current().await? {
            lines.push(format!("Conversation: {session}"));
        }
        lines.push(format!("Model: {} ({})", model.model, model.provider.as_str()));
        if let Some(trouble) = self.shell.db.trouble() {
            lines.push(format!("⚠️ Store: {trouble}"));
        }
        self.answer(pending, lines.join("\n"), Outcome::Answered).await
    }

    async fn sessions(&mut self, pending: &Pending) -> Result<(), Ended> {
        let rows = self.earlier().await?;
        let current = self.current().await?;
        let mut text = String::from("🗂 Sessions of this chat\n");
        for (at, row) in rows.iter().enumerate() {
            let here = if Some(&row.id) == current.as_ref() { " ← now" } else { "" };
            text.push_str(&format!("{}. {} ({} messages){here}\n", at + 1, title(row), row.message_count));
        }
        if rows.is_empty() {
            text.push_str("None yet.\n");
        }
        text.push_str("/resume <number> goes back to one.");
        self.answer(pending, text, Outcome::Answered).await
    }

    async fn usage(&mut self, pending: &Pending) -> Result<(), Ended> {
        let text = match self.entry().await? {
            Some(entry) => format!(
                "🧮 This session: {} tokens in, {} out, {} read from cache, {} written to it; {} in all.",
                entry.input_tokens,
                entry.output_tokens,
                entry.cache_read_tokens,
                entry.cache_write_tokens,
                entry.total_tokens
            ),
            None => NOTHING_YET.into(),
        };
        self.answer(pending, text, Outcome::Answered).await
    }

    /// The receipt of the message before this one.
    async fn whereabouts(&mut self, pending: &Pending) -> Result<(), Ended> {
        let (key, before) = (self.key.clone(), pending.id);
        let found = self
            .change(move |tx| match tx.latest_before(&key, before)? {
                Some(id) => Ok(tx.where_is(id)?.map(|found| (id, found))),
                None => Ok(None),
            })
            .await?;
        let text = match found {
            Some((id, found)) => format!("📍 Message {id}: received and stored, {}.", stage(&found)),
            None => "There is no earlier message of yours here.".into(),
        };
        self.answer(pending, text, Outcome::Answered).await
    }

    async fn whoami(&mut self, pending: &Pending) -> Result<(), Ended> {
        let source = &pending.inbound.source;
        let text = format!(
            "🪪 {} {} on {} ({} {}). You may talk to me and use every command.",
            source.user_name.as_deref().unwrap_or("You"),
            source.user_id.as_deref().map(|id| format!("[{id}]")).unwrap_or_default(),
            source.platform,
            source.chat_type.as_str(),
            source.chat_id.as_deref().unwrap_or("-"),
        );
        self.answer(pending, text, Outcome::Answered).await
    }

    /// Messages that wait are cancelled with the session they were meant for.
    async fn cancel_queue(&mut self) -> Result<(), Ended> {
        let waiting: Vec<_> = self
            .queue
            .drain(..)
            .map(|waiting| waiting.pending)
            .chain(self.steering.drain(..))
            .map(|it| it.id)
            .collect();
        self.publish_queue();
        if waiting.is_empty() {
            return Ok(());
        }
        let settle = Write::SettleInbox { inbox: waiting, outcome: Outcome::Cancelled, at: clock::now() };
        self.change(move |tx| tx.apply(std::slice::from_ref(&settle), clock::now())).await
    }

    /// The transcript changed under us: what is seen starts anew.
    fn enter(&self, session: SessionId) {
        self.show.send_modify(|view| {
            view.session = Some(session);
            view.rows = None;
        });
    }

    async fn current(&self) -> Result<Option<SessionId>, Ended> {
        Ok(self.entry().await?.map(|entry| entry.session_id))
    }

    async fn entry(&self) -> Result<Option<Entry>, Ended> {
        let key = self.key.clone();
        self.change(move |tx| tx.entry(&key)).await
    }

    /// Newest first.
    async fn earlier(&self) -> Result<Vec<SessionRow>, Ended> {
        let key = self.key.clone();
        self.change(move |tx| tx.sessions(Some(&key), LISTED)).await
    }

    /// Changes (or asks) the store, and waits for one that refuses for the moment.
    async fn change<T, F>(&self, job: F) -> Result<T, Ended>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Result<T, StoreError> + Clone + Send + 'static,
    {
        loop {
            match self.shell.db.write(job.clone()).await {
                Ok(value) => return Ok(value),
                Err(error) => self.refused(&error).await?,
            }
        }
    }

    /// Finds or makes the transcript that `pending` belongs to.
    async fn open(&self, pending: &Pending, ask: Ask) -> Result<SessionId, Ended> {
        let (key, source, settings) =
            (self.key.clone(), pending.inbound.source.clone(), self.shell.settings.clone());
        let hint = self.shell.channels.capabilities(source.platform).hint.clone();
        let now = clock::now();
        self.change(move |tx| Ok(settings.open(tx, &key, &source, &hint, ask, now)?.entry.session_id)).await
    }

    /// The transcript a notice to this author belongs to, made if there is none yet.
    pub(super) async fn session_for(&mut self, pending: &Pending) -> Result<SessionId, Ended> {
        if let Some(turn) = &self.turn {
            return Ok(turn.session.clone());
        }
        let known = self.show.borrow().session.clone();
        if let Some(session) = known {
            return Ok(session);
        }
        let session = self.open(pending, Ask::Continue).await?;
        if self.shell.channels.way_back(&pending.inbound.source).delivery == Delivery::Pull {
            self.enter(session.clone());
        }
        Ok(session)
    }
}

const HELLO: &str =
    "👋 Hello, I am Petasos. Write to me as you would to a person; /help lists what else I can do.";
const NOTHING_YET: &str = "There is nothing in this session yet.";

fn help() -> String {
    let mut text = String::from("Write to me as you would to a person. Commands:\n");
    for spec in slash::TABLE {
        let args = if spec.args.is_empty() { String::new() } else { format!(" {}", spec.args) };
        text.push_str(&format!("/{}{args}: {}\n", spec.word, spec.help));
    }
    text
}

fn title(row: &SessionRow) -> String {
    row.title.clone().unwrap_or_else(|| row.id.to_string())
}

fn named(row: &SessionRow, wanted: &str) -> bool {
    let wanted = wanted.to_lowercase();
    row.id.as_str() == wanted
        || row.title.as_deref().is_some_and(|title| title.to_lowercase().contains(&wanted))
}

fn stage(found: &Whereabouts) -> String {
    let stage = match found.stage {
        Stage::Queued { place } => format!("waiting as number {place}"),
        Stage::Running { since, .. } => {
            format!("being worked on for {} s", clock::now().since(since).as_secs())
        }
        Stage::Settled { outcome, .. } => outcome.as_str().to_owned(),
    };
    let owed = found.said.iter().filter(|item| item.state != State::Done).count();
    match (found.said.len(), owed) {
        (0, _) => stage,
        (_, 0) => format!("{stage}, delivered"),
        (all, owed) => format!("{stage}, {} of {all} messages delivered", all - owed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_command() {
        let help = help();
        for spec in slash::TABLE {
            assert!(help.contains(&format!("/{}", spec.word)), "{}", spec.word);
        }
    }
}
