//! Slash commands. They are obeyed here, at once, and never reach the model.

mod answers;
mod compress;
mod given_up;
mod memory;
mod new_session;
mod platform;
mod restart;
mod sethome;

use petasos_core::access::{Moment, may_run};
use petasos_core::admission::{Admission, Arrival};
use petasos_core::command::{self as slash, Name, Parsed};
use petasos_core::journal::{Outcome, Write};
use petasos_core::outbox::{Button, State};
use petasos_core::session::{Ask, ModelOverride};
use petasos_core::{Inbound, InboxId, SessionId, SessionKey};
use petasos_store::{Error as StoreError, Pending, SessionRow, Stage, Tx, Whereabouts};

use super::{Ended, Promise, Session};
use crate::background::hooks::Said;
use crate::clock;
use crate::runtime::commit::Commit;
use crate::sessions::messages::reply::Reply;
use crate::sessions::turn::Running;
use crate::sessions::turn::begin::attachment;

/// Sessions shown by `/sessions`.
const LISTED: usize = 10;
/// How far `/where` looks back.
const LOOKED_AT: usize = 20;

impl Session {
    /// The owner's hooks are asked first; then it is obeyed.
    pub(super) async fn command(&mut self, pending: Pending) -> Result<(), Ended> {
        self.handling = Some(pending.clone());
        match self.ask_hooks(&pending).await {
            Said::Allow => self.obey(pending).await,
            Said::Deny(text) => {
                let text = text.unwrap_or_else(|| "🚫 That command is not allowed here.".into());
                self.answer(&pending, text, Outcome::Refused).await
            }
            Said::Handled(Some(text)) => self.answer(&pending, text, Outcome::Answered).await,
            Said::Handled(None) => {
                let (inbox, outcome) = (vec![pending.id], Outcome::Answered);
                self.change(Commit::Rewrite, move |tx| {
                    let at = clock::now();
                    tx.apply(&[Write::SettleInbox { inbox: inbox.clone(), outcome, at }], at)
                })
                .await
            }
            Said::Rewrite(text) => self.rewritten(pending, text).await,
        }
    }

    /// Goes on as if this had been written. Hooks are not asked again.
    async fn rewritten(&mut self, mut pending: Pending, text: String) -> Result<(), Ended> {
        pending.inbound.text = text;
        if slash::parse(&pending.inbound.text) != Parsed::Text {
            return self.obey(pending).await;
        }
        let (id, inbound) = (pending.id, pending.inbound.clone());
        self.change(Commit::Rewrite, move |tx| tx.rewrite(id, &inbound)).await?;
        Box::pin(self.take_up()).await?;
        self.admit(pending, Arrival::Text).await
    }

    async fn obey(&mut self, pending: Pending) -> Result<(), Ended> {
        let (name, args) = match slash::parse(&pending.inbound.text) {
            Parsed::Known(name, args) => (name, args),
            Parsed::Unknown(name) => {
                let near = slash::suggestion(&name).map(|near| format!(" Did you mean /{near}?"));
                let hint = near.unwrap_or_default();
                let text = format!("❓ Unknown command /{name}.{hint} /help lists what I know.");
                return self.answer(&pending, text, Outcome::Answered).await;
            }
            Parsed::Text => return Ok(()),
        };
        if !self.allows(&pending, name.as_str()) {
            let text = format!("🚫 /{} is not open to you here. /whoami says what is.", name.as_str());
            return self.answer(&pending, text, Outcome::Refused).await;
        }
        if (self.running.is_some() || self.compressing.is_some()) && !name.spec().while_running {
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
            Name::Retry if !args.is_empty() => self.retry_given_up(pending, &args).await,
            Name::Retry => self.retry(pending).await,
            Name::Drop => self.drop_given_up(&pending, &args).await,
            Name::Undo => self.undo(&pending, &args).await,
            Name::Model => self.model(&pending, &args).await,
            Name::Resume => self.resume(&pending, args).await,
            Name::Status => self.status(&pending).await,
            Name::Sessions => self.sessions(&pending).await,
            Name::Compress => self.compress(&pending, &args).await,
            Name::Approve => self.approve(&pending, &args).await,
            Name::Deny => self.deny(&pending, &args).await,
            Name::Yolo => self.yolo(&pending).await,
            Name::Usage => self.usage(&pending).await,
            Name::Where => self.whereabouts(&pending).await,
            Name::Whoami => self.whoami(&pending).await,
            Name::Memory => self.memory(&pending, &args).await,
            Name::Sethome => self.sethome(&pending).await,
            Name::Restart => self.restart(&pending).await,
            Name::Platform => self.platform(&pending, &args).await,
        }
    }

    /// Whether this author may use a command here.
    pub(super) fn allows(&self, pending: &Pending, name: &str) -> bool {
        let source = &pending.inbound.source;
        let moment = if self.running.is_some() { Moment::TurnRunning } else { Moment::Idle };
        let tiers = self.handles.settings.tiers.get(&source.platform);
        tiers.is_none_or(|tiers| may_run(tiers, source.chat_type, source.user_id.as_deref(), name, moment))
    }

    async fn stop(&mut self, pending: &Pending) -> Result<(), Ended> {
        let given_away = self.handles.agent.delegation.stop(&self.key);
        let interrupted = self.interrupt().await?;
        self.tell_of_stop(pending);
        // Fetching their files is what they were waiting for.
        let taken = self.arriving.take_back(|it| it.id < pending.id && !it.inbound.internal);
        let cancelled: Vec<_> = taken.iter().map(|(id, _)| *id).collect();
        self.fetch_first();
        let text = match interrupted || given_away || !cancelled.is_empty() {
            true => "⏹ Stopped. The session goes on.",
            false => "No active task to stop.",
        };
        self.reply(pending, move |tx, _| {
            cancel(tx, &cancelled)?;
            Ok(Reply::answered(text))
        })
        .await?;
        taken.iter().for_each(|(_, run)| self.settled(run.as_ref()));
        Ok(())
    }

    /// Where a conversation may be run by others, too, they hear of it.
    fn tell_of_stop(&self, pending: &Pending) {
        let adapter = self.handles.channels.adapter(pending.inbound.source.platform);
        if let Some(relay) = adapter.and_then(|adapter| adapter.relay()) {
            relay.stopped(self.key.as_str());
        }
    }

    /// A message of its own turn, behind everything that waits.
    async fn queue_up(&mut self, mut pending: Pending, args: String) -> Result<(), Ended> {
        Box::pin(self.take_up()).await?;
        let text = match slash::parse(&args) {
            Parsed::Text if args.is_empty() => "Say what to queue: /queue <message>",
            Parsed::Known(..) | Parsed::Unknown(_) => "Only messages can be queued, not commands.",
            Parsed::Text if self.waits_for_files(&pending) => {
                return self.await_files(pending, Arrival::Queued, Promise::NotYet).await;
            }
            Parsed::Text => {
                pending.inbound.text = args;
                return self.admit(pending, Arrival::Queued).await;
            }
        };
        self.answer(&pending, text.into(), Outcome::Refused).await
    }

    /// The last message again, as if it had not been answered. The command becomes the message it repeats, in
    /// the commit that takes the exchange back: a crash cannot undo twice.
    async fn retry(&mut self, mut pending: Pending) -> Result<(), Ended> {
        // Before anything is taken back: whoever is turned away keeps the exchange.
        if let Admission::Refuse(why) = self.admission(Arrival::Text) {
            return self.answer(&pending, why.text().into_owned(), Outcome::Refused).await;
        }
        let (key, repeated) = (self.key.clone(), pending.clone());
        let inbound = self
            .change(Commit::Rewrite, move |tx| {
                let Some(entry) = tx.entry(&key)? else { return Ok(None) };
                let Some(undone) = tx.undo(&entry.session_id, 1)? else { return Ok(None) };
                let attachments = undone.pictures.into_iter().map(attachment).collect();
                let inbound = Inbound { text: undone.text, attachments, ..repeated.inbound.clone() };
                tx.rewrite(repeated.id, &inbound)?;
                Ok(Some(inbound))
            })
            .await?;
        let Some(inbound) = inbound else {
            return self.answer(&pending, NOTHING_YET.into(), Outcome::Refused).await;
        };
        pending.inbound = inbound;
        self.enqueue(pending, Arrival::Text, Promise::Given);
        Ok(())
    }

    async fn undo(&mut self, pending: &Pending, args: &str) -> Result<(), Ended> {
        let count = if args.is_empty() { Ok(1) } else { args.parse::<usize>() };
        let Ok(count @ 1..=100) = count else {
            let text = "Say how many exchanges to drop, up to 100: /undo 2".into();
            return self.answer(pending, text, Outcome::Refused).await;
        };
        let key = self.key.clone();
        self.reply(pending, move |tx, _| {
            let undone = match tx.entry(&key)? {
                Some(entry) => tx.undo(&entry.session_id, count)?,
                None => None,
            };
            Ok(match undone {
                Some(undone) if undone.exchanges == 1 => Reply::answered("↩️ Dropped the last exchange."),
                Some(undone) => {
                    Reply::answered(format!("↩️ Dropped the last {} exchanges.", undone.exchanges))
                }
                None => Reply::refused(NOTHING_YET),
            })
        })
        .await
    }

    async fn model(&mut self, pending: &Pending, args: &str) -> Result<(), Ended> {
        let described = self.handles.agent.brain.describe();
        let provider = described.provider.as_str();
        let key = self.key.clone();
        let Some(wanted) = args.split_whitespace().next().map(str::to_owned) else {
            return self
                .reply(pending, move |tx, _| {
                    let entry = tx.entry(&key)?;
                    let chosen = entry.and_then(|entry| entry.model_override).and_then(|chosen| chosen.model);
                    Ok(Reply::answered(match chosen {
                        Some(model) => {
                            format!("🧠 This session uses {model} ({provider}). /model default goes back.")
                        }
                        None => {
                            format!(
                                "🧠 {} ({provider}). /model <name> changes it for this session.",
                                described.model
                            )
                        }
                    }))
                })
                .await;
        };
        self.reply(pending, move |tx, address| {
            if tx.entry(&key)?.is_none() {
                address.open(tx, Ask::Continue)?;
            }
            let chosen = (wanted != "default")
                .then(|| ModelOverride { model: Some(wanted.clone()), ..ModelOverride::default() });
            tx.change_entry(&key, |entry| entry.map(|entry| entry.model_override = chosen).is_some())?;
            Ok(Reply::answered(format!("🧠 This session now uses {wanted}.")))
        })
        .await
    }

    async fn resume(&mut self, pending: &Pending, wanted: String) -> Result<(), Ended> {
        let key = self.key.clone();
        self.reply(pending, move |tx, address| {
            let rows = tx.sessions(Some(&key), LISTED)?;
            let current = tx.bound(&key)?;
            let Some(row) = chosen(&rows, wanted.trim(), current.as_ref()) else {
                let text = match wanted.trim() {
                    "" => "There is no earlier session here to go back to.",
                    _ => "I know no such session here. /sessions lists them; /resume takes a number, an id or a name.",
                };
                return Ok(Reply::refused(text));
            };
            if current.is_none() {
                address.open(tx, Ask::Continue)?;
            }
            tx.switch_session(&key, &row.id, clock::now())?;
            let reply = Reply::answered(format!("▶️ Back in “{}”.", title(row)));
            Ok(Reply { entered: Some(row.id.clone()), ..reply })
        })
        .await
    }

    async fn status(&mut self, pending: &Pending) -> Result<(), Ended> {
        let now = clock::now();
        let doing = match &self.running {
            Some(running) if self.handles.lifecycle.quarantine.holds(running.turn.id) => {
                "interrupted by repeated restarts, continues by itself soon".into()
            }
            Some(running) if running.parked().is_some() => {
                "interrupted, goes on with your next message".into()
            }
            Some(Running { turn, .. }) => {
                format!("working for {} s (step {})", now.since(turn.started_at).as_secs(), turn.step + 1)
            }
            None => "idle".into(),
        };
        let situation = self.handles.lifecycle.gate.situation();
        let model = self.handles.agent.brain.describe();
        let mut lines = vec![format!("📊 Session: {doing}, {} waiting", self.queue.len())];
        lines.push(format!("Model: {} ({})", model.model, model.provider.as_str()));
        lines.push(format!("Gateway: {}, {} at work", situation.state.as_str(), situation.active()));
        if let Some(trouble) = self.handles.db.trouble() {
            lines.push(format!("⚠️ Store: {trouble}"));
        }
        let key = self.key.clone();
        self.reply(pending, move |tx, _| {
            let session = tx.entry(&key)?.map(|entry| format!("\nConversation: {}", entry.session_id));
            Ok(Reply::answered(format!("{}{}", lines.join("\n"), session.unwrap_or_default())))
        })
        .await
    }

    async fn sessions(&mut self, pending: &Pending) -> Result<(), Ended> {
        let key = self.key.clone();
        self.reply(pending, move |tx, _| {
            let rows = tx.sessions(Some(&key), LISTED)?;
            let current = tx.bound(&key)?;
            let line = |(at, row): (usize, &SessionRow)| {
                let here = if Some(&row.id) == current.as_ref() { " ← now" } else { "" };
                format!("{}. {} ({} messages){here}\n", at + 1, title(row), row.message_count)
            };
            let list: String = rows.iter().enumerate().map(line).collect();
            let list = if list.is_empty() { "None yet.\n".to_owned() } else { list };
            let button = |row: &SessionRow| Button {
                label: title(row).chars().take(32).collect(),
                data: format!("/resume {}", row.id),
            };
            let others = rows.iter().filter(|row| Some(&row.id) != current.as_ref());
            let buttons = others.map(button).collect();
            let text = format!("🗂 Sessions of this chat\n{list}/resume <number> goes back to one.");
            Ok(Reply { buttons, ..Reply::answered(text) })
        })
        .await
    }

    async fn usage(&mut self, pending: &Pending) -> Result<(), Ended> {
        let key = self.key.clone();
        self.reply(pending, move |tx, _| {
            let Some(entry) = tx.entry(&key)? else { return Ok(Reply::answered(NOTHING_YET)) };
            // Only a model with `model.prices` has a cost.
            let cost = match entry.cost_status.as_str() {
                "unknown" => String::new(),
                _estimated => format!(" Estimated cost: ${:.4}.", entry.estimated_cost_usd),
            };
            Ok(Reply::answered(format!(
                "🧮 This session: {} tokens in, {} out, {} read from cache, {} written to it; {} in all.{cost}",
                entry.input_tokens,
                entry.output_tokens,
                entry.cache_read_tokens,
                entry.cache_write_tokens,
                entry.total_tokens
            )))
        })
        .await
    }

    /// The receipt of the message before this one.
    async fn whereabouts(&mut self, pending: &Pending) -> Result<(), Ended> {
        let (key, before) = (self.key.clone(), pending.id);
        self.reply(pending, move |tx, _| {
            let found = match last_message(tx, &key, before)? {
                Some(id) => tx.where_is(id)?,
                None => None,
            };
            Ok(Reply::answered(match found {
                Some(found) => format!("📍 Message {}: received and stored, {}.", found.id, stage(&found)),
                None => "There is no earlier message of yours here.".into(),
            }))
        })
        .await
    }

    async fn whoami(&mut self, pending: &Pending) -> Result<(), Ended> {
        let source = &pending.inbound.source;
        let open = slash::TABLE.iter().filter(|spec| self.allows(pending, spec.word)).map(|spec| spec.word);
        let open: Vec<_> = open.collect();
        let commands = if open.len() == slash::TABLE.len() {
            "every command".to_owned()
        } else {
            format!("these commands: {}", open.join(", "))
        };
        let text = format!(
            "🪪 {} {} on {} ({} {}). You may talk to me and use {commands}.",
            source.user_name.as_deref().unwrap_or("You"),
            source.user_id.as_deref().map(|id| format!("[{id}]")).unwrap_or_default(),
            source.platform,
            source.chat_type.as_str(),
            source.chat_id.as_deref().unwrap_or("-"),
        );
        self.answer(pending, text, Outcome::Answered).await
    }
}

pub(super) fn cancel(tx: &Tx<'_>, messages: &[InboxId]) -> Result<(), StoreError> {
    if messages.is_empty() {
        return Ok(());
    }
    let (inbox, at) = (messages.to_vec(), clock::now());
    tx.apply(&[Write::SettleInbox { inbox, outcome: Outcome::Cancelled, at }], at)
}

/// The session that `/resume` means: by number, id or name; without a word, the one before the present.
fn chosen<'a>(rows: &'a [SessionRow], wanted: &str, current: Option<&SessionId>) -> Option<&'a SessionRow> {
    match wanted.parse::<usize>() {
        Ok(number) => rows.get(number.checked_sub(1)?),
        Err(_) if wanted.is_empty() => rows.iter().find(|row| Some(&row.id) != current),
        Err(_) => rows.iter().find(|row| named(row, wanted)),
    }
}

/// The message before `before` that was not a command.
fn last_message(tx: &Tx<'_>, key: &SessionKey, mut before: InboxId) -> Result<Option<InboxId>, StoreError> {
    for _ in 0..LOOKED_AT {
        let Some(id) = tx.latest_before(key, before)? else { return Ok(None) };
        let said = tx.pending(id)?.is_some_and(|it| slash::parse(&it.inbound.text) == Parsed::Text);
        if said {
            return Ok(Some(id));
        }
        before = id;
    }
    Ok(None)
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
    row.title.clone().unwrap_or_else(|| format!("new session {}", row.id))
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
