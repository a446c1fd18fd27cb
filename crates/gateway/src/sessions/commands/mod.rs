//! Slash commands. They run at once and never reach the model.

mod compress;
mod given_up;
mod memory;
mod new_session;
mod platform;
mod question_replies;
mod restart;
mod sethome;

use petasos_core::access::{SessionActivity, may_run};
use petasos_core::admission::{Admission, Arrival};
use petasos_core::command::{self as slash, Name, Parsed};
use petasos_core::journal::{MessageOutcome, Write};
use petasos_core::outbox::{Button, State};
use petasos_core::session::{ModelOverride, ResolveMode};
use petasos_core::{Inbound, InboxId, SessionId, SessionKey};
use petasos_store::{Error as StoreError, MessageReceipt, MessageStage, PendingMessage, SessionRow, Tx};

use super::{AdmissionPromise, SessionError, SessionTask};
use crate::background::hooks::HookDecision;
use crate::clock;
use crate::notices::access;
use crate::notices::commands::{self as notices, activity};
use crate::runtime::commit::Commit;
use crate::sessions::messages::reply::CommandReply;
use crate::sessions::turn::RunningTurn;
use crate::sessions::turn::begin::attachment;

/// Sessions shown by `/sessions`.
const LISTED: usize = 10;
/// Messages that `/where` looks back.
const MAX_LOOKBACK: usize = 20;

impl SessionTask {
    /// Runs the owner's command hooks, then the command.
    pub(super) async fn command(&mut self, pending: PendingMessage) -> Result<(), SessionError> {
        self.current = Some(pending.clone());
        match self.run_command_hooks(&pending).await {
            HookDecision::Allow => self.run_command(pending).await,
            HookDecision::Deny(text) => {
                let text = text.unwrap_or_else(|| notices::DENIED_BY_HOOK.into());
                self.reply(&pending, text, MessageOutcome::Refused).await
            }
            HookDecision::Handled(Some(text)) => self.reply(&pending, text, MessageOutcome::Answered).await,
            HookDecision::Handled(None) => {
                let inbox = vec![pending.id];
                let outcome = MessageOutcome::Answered;
                self.write(Commit::Rewrite, move |tx| {
                    let at = clock::now();
                    tx.apply(&[Write::SettleInbox { inbox: inbox.clone(), outcome, at }], at)
                })
                .await
            }
            HookDecision::Rewrite(text) => self.run_rewritten(pending, text).await,
        }
    }

    /// Continues with the text that a hook wrote. Hooks are not run again.
    async fn run_rewritten(&mut self, mut pending: PendingMessage, text: String) -> Result<(), SessionError> {
        pending.inbound.text = text;
        if slash::parse(&pending.inbound.text) != Parsed::Text {
            return self.run_command(pending).await;
        }
        let id = pending.id;
        let inbound = pending.inbound.clone();
        self.write(Commit::Rewrite, move |tx| tx.rewrite(id, &inbound)).await?;
        Box::pin(self.resume_turn()).await?;
        self.admit(pending, Arrival::Text).await
    }

    async fn run_command(&mut self, pending: PendingMessage) -> Result<(), SessionError> {
        let (name, args) = match slash::parse(&pending.inbound.text) {
            Parsed::Known(name, args) => (name, args),
            Parsed::Unknown(name) => {
                let text = notices::unknown(&name, slash::suggestion(&name));
                return self.reply(&pending, text, MessageOutcome::Answered).await;
            }
            Parsed::Text => return Ok(()),
        };
        if !self.may_use_command(&pending, name.as_str()) {
            let text = access::command_not_allowed(name.as_str());
            return self.reply(&pending, text, MessageOutcome::Refused).await;
        }
        if (self.running.is_some() || self.compaction.is_some()) && !name.spec().while_running {
            let text = notices::not_while_running(name.as_str());
            return self.reply(&pending, text, MessageOutcome::Refused).await;
        }
        match name {
            Name::Help => self.reply(&pending, notices::help(), MessageOutcome::Answered).await,
            Name::Start => self.reply(&pending, notices::HELLO.into(), MessageOutcome::Answered).await,
            Name::Stop => self.stop(&pending).await,
            Name::New => self.new_session(&pending).await,
            Name::Queue => self.queue_message(pending, args).await,
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
            Name::Where => self.receipt(&pending).await,
            Name::Whoami => self.whoami(&pending).await,
            Name::Memory => self.memory(&pending, &args).await,
            Name::Sethome => self.sethome(&pending).await,
            Name::Restart => self.restart(&pending).await,
            Name::Platform => self.platform(&pending, &args).await,
        }
    }

    pub(super) fn may_use_command(&self, pending: &PendingMessage, name: &str) -> bool {
        let source = &pending.inbound.source;
        let moment =
            if self.running.is_some() { SessionActivity::TurnRunning } else { SessionActivity::Idle };
        let tiers = self.handles.settings.tiers.get(&source.platform);
        tiers.is_none_or(|tiers| may_run(tiers, source.chat_type, source.user_id.as_deref(), name, moment))
    }

    async fn stop(&mut self, pending: &PendingMessage) -> Result<(), SessionError> {
        let delegation_stopped = self.handles.agent.delegation.stop(&self.key);
        let interrupted = self.interrupt().await?;
        self.notify_relay_of_stop(pending);
        // Messages that wait only for their files are part of the stopped work.
        let removed = self.downloads.remove_where(|it| it.id < pending.id && !it.inbound.internal);
        let cancelled: Vec<_> = removed.iter().map(|(id, _)| *id).collect();
        self.start_next_download();
        let text = if interrupted || delegation_stopped || !cancelled.is_empty() {
            notices::STOPPED
        } else {
            notices::NOTHING_TO_STOP
        };
        self.reply_with(pending, move |tx, _| {
            cancel_messages(tx, &cancelled)?;
            Ok(CommandReply::answered(text))
        })
        .await?;
        removed.into_iter().for_each(|(_, run)| self.notify_run_ended(run));
        Ok(())
    }

    /// A connector may run work for this session elsewhere.
    fn notify_relay_of_stop(&self, pending: &PendingMessage) {
        let adapter = self.handles.channels.adapter(pending.inbound.source.platform);
        if let Some(relay) = adapter.and_then(|adapter| adapter.relay()) {
            relay.stopped(self.key.as_str());
        }
    }

    /// Queues a message that gets a turn of its own.
    async fn queue_message(&mut self, mut pending: PendingMessage, args: String) -> Result<(), SessionError> {
        Box::pin(self.resume_turn()).await?;
        let text = match slash::parse(&args) {
            Parsed::Text if args.is_empty() => notices::QUEUE_USAGE,
            Parsed::Known(..) | Parsed::Unknown(_) => notices::QUEUE_MESSAGES_ONLY,
            Parsed::Text if self.must_wait_for_files(&pending) => {
                return self.enqueue_download(pending, Arrival::Queued, AdmissionPromise::NotYet).await;
            }
            Parsed::Text => {
                pending.inbound.text = args;
                return self.admit(pending, Arrival::Queued).await;
            }
        };
        self.reply(&pending, text.into(), MessageOutcome::Refused).await
    }

    /// Repeats the last message. The commit that takes the exchange back also turns the command into the repeated message, so a
    /// crash cannot undo twice.
    async fn retry(&mut self, mut pending: PendingMessage) -> Result<(), SessionError> {
        // Checked first: a refused retry keeps the exchange.
        if let Admission::Refuse(why) = self.admission(Arrival::Text) {
            return self.reply(&pending, why.text().into_owned(), MessageOutcome::Refused).await;
        }
        let key = self.key.clone();
        let repeated = pending.clone();
        let inbound = self
            .write(Commit::Rewrite, move |tx| {
                let Some(entry) = tx.entry(&key)? else { return Ok(None) };
                let Some(undone) = tx.undo(&entry.session_id, 1)? else { return Ok(None) };
                let attachments = undone.pictures.into_iter().map(attachment).collect();
                let inbound = Inbound { text: undone.text, attachments, ..repeated.inbound.clone() };
                tx.rewrite(repeated.id, &inbound)?;
                Ok(Some(inbound))
            })
            .await?;
        let Some(inbound) = inbound else {
            return self.reply(&pending, notices::EMPTY_SESSION.into(), MessageOutcome::Refused).await;
        };
        pending.inbound = inbound;
        self.enqueue(pending, Arrival::Text, AdmissionPromise::Given);
        Ok(())
    }

    async fn undo(&mut self, pending: &PendingMessage, args: &str) -> Result<(), SessionError> {
        let count = if args.is_empty() { Ok(1) } else { args.parse::<usize>() };
        let Ok(count @ 1..=100) = count else {
            let text = notices::UNDO_USAGE.into();
            return self.reply(pending, text, MessageOutcome::Refused).await;
        };
        let key = self.key.clone();
        self.reply_with(pending, move |tx, _| {
            let undone = match tx.entry(&key)? {
                Some(entry) => tx.undo(&entry.session_id, count)?,
                None => None,
            };
            Ok(match undone {
                Some(undone) => CommandReply::answered(notices::undone(undone.exchanges)),
                None => CommandReply::refused(notices::EMPTY_SESSION),
            })
        })
        .await
    }

    async fn model(&mut self, pending: &PendingMessage, args: &str) -> Result<(), SessionError> {
        let described = self.handles.agent.model_chain.describe();
        let provider = described.provider.as_str();
        let key = self.key.clone();
        let Some(wanted) = args.split_whitespace().next().map(str::to_owned) else {
            return self
                .reply_with(pending, move |tx, _| {
                    let entry = tx.entry(&key)?;
                    let chosen = entry.and_then(|entry| entry.model_override).and_then(|it| it.model);
                    Ok(CommandReply::answered(match chosen {
                        Some(model) => notices::chosen_model(&model, provider),
                        None => notices::default_model(&described.model, provider),
                    }))
                })
                .await;
        };
        self.reply_with(pending, move |tx, address| {
            if tx.entry(&key)?.is_none() {
                address.open(tx, ResolveMode::Continue)?;
            }
            let chosen = (wanted != "default")
                .then(|| ModelOverride { model: Some(wanted.clone()), ..ModelOverride::default() });
            let text = match chosen {
                Some(_) => notices::model_changed(&wanted),
                None => notices::model_reset(&described.model),
            };
            tx.change_entry(&key, |entry| entry.map(|entry| entry.model_override = chosen).is_some())?;
            Ok(CommandReply::answered(text))
        })
        .await
    }

    async fn resume(&mut self, pending: &PendingMessage, wanted: String) -> Result<(), SessionError> {
        let key = self.key.clone();
        self.reply_with(pending, move |tx, address| {
            let rows = tx.sessions(Some(&key), LISTED)?;
            let current = tx.bound(&key)?;
            let Some(row) = find_session(&rows, wanted.trim(), current.as_ref()) else {
                let text = match wanted.trim() {
                    "" => notices::NO_EARLIER_SESSION,
                    _ => notices::UNKNOWN_SESSION,
                };
                return Ok(CommandReply::refused(text));
            };
            if current.is_none() {
                address.open(tx, ResolveMode::Continue)?;
            }
            tx.switch_session(&key, &row.id, clock::now())?;
            let reply = CommandReply::answered(notices::resumed(&title(row)));
            Ok(CommandReply { entered: Some(row.id.clone()), ..reply })
        })
        .await
    }

    async fn status(&mut self, pending: &PendingMessage) -> Result<(), SessionError> {
        let now = clock::now();
        let activity = match &self.running {
            Some(running) if self.handles.lifecycle.quarantine.holds(running.turn.id) => {
                activity::HELD.to_owned()
            }
            Some(running) if running.parked_history().is_some() => activity::INTERRUPTED.to_owned(),
            Some(RunningTurn { turn, .. }) => {
                activity::working(now.since(turn.started_at).as_secs(), turn.step + 1)
            }
            None => activity::IDLE.to_owned(),
        };
        let situation = self.handles.lifecycle.gate.snapshot();
        let model = self.handles.agent.model_chain.describe();
        let store_problem = self.handles.db.problem();
        let text = notices::status(&notices::StatusFields {
            activity: &activity,
            waiting: self.queue.len(),
            model: &model.model,
            provider: model.provider.as_str(),
            gateway: situation.state.as_str(),
            active: situation.active(),
            store_problem: store_problem.as_deref(),
        });
        let key = self.key.clone();
        self.reply_with(pending, move |tx, _| {
            let session = tx.entry(&key)?.map(|entry| notices::status_conversation(entry.session_id));
            Ok(CommandReply::answered(format!("{text}{}", session.unwrap_or_default())))
        })
        .await
    }

    async fn sessions(&mut self, pending: &PendingMessage) -> Result<(), SessionError> {
        let key = self.key.clone();
        self.reply_with(pending, move |tx, _| {
            let rows = tx.sessions(Some(&key), LISTED)?;
            let current = tx.bound(&key)?;
            let is_current = |row: &SessionRow| Some(&row.id) == current.as_ref();
            let line = |(at, row): (usize, &SessionRow)| {
                notices::session_line(at + 1, &title(row), row.message_count, is_current(row))
            };
            let lines: String = rows.iter().enumerate().map(line).collect();
            let button = |row: &SessionRow| Button {
                label: title(row).chars().take(32).collect(),
                data: format!("/resume {}", row.id),
            };
            let others = rows.iter().filter(|row| !is_current(row));
            let buttons = others.map(button).collect();
            Ok(CommandReply { buttons, ..CommandReply::answered(notices::sessions(&lines)) })
        })
        .await
    }

    async fn usage(&mut self, pending: &PendingMessage) -> Result<(), SessionError> {
        let key = self.key.clone();
        self.reply_with(pending, move |tx, _| {
            let Some(entry) = tx.entry(&key)? else {
                return Ok(CommandReply::answered(notices::EMPTY_SESSION));
            };
            // Only a model with `model.prices` has a cost.
            let cost = (entry.cost_status != "unknown").then_some(entry.estimated_cost_usd);
            Ok(CommandReply::answered(notices::usage(&notices::UsageFields {
                input: entry.input_tokens,
                output: entry.output_tokens,
                cache_read: entry.cache_read_tokens,
                cache_write: entry.cache_write_tokens,
                total: entry.total_tokens,
                cost,
            })))
        })
        .await
    }

    /// The receipt of the author's previous message.
    async fn receipt(&mut self, pending: &PendingMessage) -> Result<(), SessionError> {
        let key = self.key.clone();
        let before = pending.id;
        self.reply_with(pending, move |tx, _| {
            let found = match last_message(tx, &key, before)? {
                Some(id) => tx.receipt_of(id)?,
                None => None,
            };
            Ok(CommandReply::answered(match found {
                Some(found) => notices::receipt(found.id, &receipt_state(&found)),
                None => notices::NO_EARLIER_MESSAGE.into(),
            }))
        })
        .await
    }

    async fn whoami(&mut self, pending: &PendingMessage) -> Result<(), SessionError> {
        let source = &pending.inbound.source;
        let open =
            slash::TABLE.iter().filter(|spec| self.may_use_command(pending, spec.word)).map(|spec| spec.word);
        let open: Vec<_> = open.collect();
        let commands = if open.len() == slash::TABLE.len() {
            notices::EVERY_COMMAND.to_owned()
        } else {
            notices::some_commands(&open)
        };
        let text = notices::whoami(&notices::WhoamiFields {
            name: source.user_name.as_deref(),
            id: source.user_id.as_deref(),
            platform: source.platform.as_str(),
            chat_type: source.chat_type.as_str(),
            chat_id: source.chat_id.as_deref(),
            commands: &commands,
        });
        self.reply(pending, text, MessageOutcome::Answered).await
    }
}

pub(super) fn cancel_messages(tx: &Tx<'_>, messages: &[InboxId]) -> Result<(), StoreError> {
    if messages.is_empty() {
        return Ok(());
    }
    let inbox = messages.to_vec();
    let at = clock::now();
    tx.apply(&[Write::SettleInbox { inbox, outcome: MessageOutcome::Cancelled, at }], at)
}

/// The session that `/resume` names by number, id or title; without an argument, the previous one.
fn find_session<'a>(
    rows: &'a [SessionRow],
    wanted: &str,
    current: Option<&SessionId>,
) -> Option<&'a SessionRow> {
    match wanted.parse::<usize>() {
        Ok(number) => rows.get(number.checked_sub(1)?),
        Err(_) if wanted.is_empty() => rows.iter().find(|row| Some(&row.id) != current),
        Err(_) => rows.iter().find(|row| matches_name(row, wanted)),
    }
}

/// The latest message before `before` that is not a command.
fn last_message(tx: &Tx<'_>, key: &SessionKey, mut before: InboxId) -> Result<Option<InboxId>, StoreError> {
    for _ in 0..MAX_LOOKBACK {
        let Some(id) = tx.latest_inbox_before(key, before)? else { return Ok(None) };
        let is_text = tx.pending(id)?.is_some_and(|it| slash::parse(&it.inbound.text) == Parsed::Text);
        if is_text {
            return Ok(Some(id));
        }
        before = id;
    }
    Ok(None)
}

fn title(row: &SessionRow) -> String {
    row.title.clone().unwrap_or_else(|| notices::untitled_session(&row.id))
}

fn matches_name(row: &SessionRow, wanted: &str) -> bool {
    let wanted = wanted.to_lowercase();
    row.id.as_str() == wanted
        || row.title.as_deref().is_some_and(|title| title.to_lowercase().contains(&wanted))
}

fn receipt_state(found: &MessageReceipt) -> String {
    let state = match found.stage {
        MessageStage::Queued { position } => notices::receipt_state::waiting(position),
        MessageStage::Running { since, .. } => {
            notices::receipt_state::running(clock::now().since(since).as_secs())
        }
        MessageStage::Settled { outcome, .. } => outcome.as_str().to_owned(),
    };
    let undelivered = found.items.iter().filter(|item| item.state != State::Done).count();
    match (found.items.len(), undelivered) {
        (0, _) => state,
        (_, 0) => notices::receipt_state::delivered(&state),
        (all, undelivered) => notices::receipt_state::partly_delivered(&state, all - undelivered, all),
    }
}
