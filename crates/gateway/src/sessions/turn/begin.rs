//! Starts a turn: claims the queued messages and builds the user rows for the model.

use std::path::Path;
use std::time::Duration;

use petasos_core::admission::{AdmissionRefusal, BusyMode};
use petasos_core::ids::SessionId;
use petasos_core::journal::MessageOutcome;
use petasos_core::lifecycle::{NotAccepting, TurnOrigin};
use petasos_core::message::Attachment;
use petasos_core::session::ResolveMode;
use petasos_core::transcript::{Message, Picture};
use petasos_core::{Inbound, LaneId, Millis, text};
use petasos_store::{PendingMessage, StartedTurn, TurnBatch};
use tokio::time::Instant;

use crate::api::runs::RunOptions;
use crate::background::completions::{self, QueuedCompletion};
use crate::background::delegation::ChildLevel;
use crate::background::hooks;
use crate::clock;
use crate::lifecycle::config::OpenedSession;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{PlantedBug, planted};
use crate::sessions::turn::{RunningTurn, TurnSlot};
use crate::sessions::{QueuedMessage, SessionError, SessionTask};

const BURST_WINDOW: Duration = Duration::from_secs(1);

/// How long a message waits for a further one of its author whose files are still being downloaded: an album arrives as several
/// messages.
const ALBUM_WAIT: Duration = Duration::from_secs(2);

/// `Some` if the turn starts a transcript, with the one that it replaces.
type NewTranscript = Option<Option<SessionId>>;

enum BeginOutcome {
    Turn(Box<StartedTurn>, NewTranscript),
    Nothing,
    /// A completion of an earlier conversation; the lane delivers a notice about it.
    CompletionRejected(Option<LaneId>),
}

impl SessionTask {
    /// Earliest start of the next turn; `None`: the queue is empty, or a turn runs.
    pub(in crate::sessions) fn next_start_at(&self) -> Option<Instant> {
        if self.running.is_some() || self.compaction.is_some() {
            return None;
        }
        let last = self.queue.back()?;
        let more = !last.alone && self.downloads.contains_author(&last.pending.inbound.source);
        Some(if more { last.ready + ALBUM_WAIT } else { last.ready })
    }

    /// Acquires a slot, then claims the next messages and starts their turn in one transaction. Without a slot the messages wait or
    /// are refused.
    pub(in crate::sessions) async fn begin_turn(&mut self) -> Result<(), SessionError> {
        let gate_changes = self.handles.lifecycle.gate.watch();
        let ours = |inbound: &Inbound| {
            // Scheduled jobs wait like messages of people.
            inbound.internal && !self.handles.channels.is_scheduled(inbound.source.platform)
        };
        let internal = self.queue.front().is_some_and(|first| ours(&first.pending.inbound));
        let claim = match (ChildLevel::of(&self.key), internal) {
            // The parent turn holds a slot and may be waiting for this one.
            (Some(_), _) => TurnOrigin::Resumed,
            (None, false) if planted(PlantedBug::BeginsWhileDraining) => TurnOrigin::Internal,
            (None, true) => TurnOrigin::Internal,
            (None, false) => TurnOrigin::User,
        };
        let slot = match self.handles.lifecycle.gate.claim(&self.key, claim) {
            Ok(slot) => slot,
            Err(closed) => {
                self.gate_changes = Some(gate_changes);
                return self.refuse_queued(closed).await;
            }
        };
        let batch = self.claim_batch();
        self.current = batch.first().cloned();
        let begun = loop {
            match self.commit_begin(&batch).await {
                Ok(begun) => break begun,
                Err(error) => self.wait_or_fail(&error).await?,
            }
        };
        let (StartedTurn { turn, row, effects }, fresh) = match begun {
            BeginOutcome::Turn(begun, fresh) => (*begun, fresh),
            BeginOutcome::Nothing => return Ok(()),
            BeginOutcome::CompletionRejected(lane) => {
                if let Some(lane) = lane {
                    self.handles.delivery.lanes.wake(lane).await;
                }
                return Ok(());
            }
        };
        self.publish_queue();
        slot.set_turn(turn.id);
        self.handles.delivery.reactions.turn_started(&turn.route);
        let author = batch.first().map(|pending| pending.inbound.source.clone());
        self.reader = author.as_ref().map(|author| author.platform);
        let texts: Vec<_> = batch.iter().map(|pending| pending.inbound.text.as_str()).collect();
        let question = hooks::excerpt(&texts.join("\n")).to_owned();
        let mut running = RunningTurn::new(turn, author, question, TurnSlot::Active(slot));
        running.resumed = batch.iter().all(|pending| is_resume_signal(&pending.inbound));
        self.running = Some(running);
        self.emit_turn_start(fresh);
        self.view_tx.send_modify(|view| view.rows = row);
        self.publish_turn();
        self.start_effects(effects).await;
        Ok(())
    }

    /// No turn may start: acknowledged messages wait, the others are refused.
    async fn refuse_queued(&mut self, closed: NotAccepting) -> Result<(), SessionError> {
        let own = self.queue.iter().position(|waiting| waiting.pending.inbound.internal);
        if let (NotAccepting::Draining, Some(own @ 1..)) = (closed, own) {
            // Internal messages overtake held ones.
            let waiting = self.queue.remove(own);
            self.queue.extend(waiting);
            self.queue.rotate_right(1);
            self.gate_changes = None;
            return Ok(());
        }
        let gate = self.handles.lifecycle.gate.clone();
        let turned_away = |first: &mut QueuedMessage| {
            !first.promised && !gate.defers_to_next_process(first.pending.received_at)
        };
        while let Some(first) = self.queue.pop_front_if(turned_away) {
            self.current = Some(first.pending.clone());
            self.publish_queue();
            let text = AdmissionRefusal::NotAccepting(closed).text().into_owned();
            self.reply(&first.pending, text, MessageOutcome::Refused).await?;
        }
        Ok(())
    }

    /// The first queued message and the following ones of the same author.
    fn claim_batch(&mut self) -> Vec<PendingMessage> {
        let Some(QueuedMessage { pending: first, alone, .. }) = self.queue.pop_front() else { return vec![] };
        let author = first.inbound.source.user_id.clone();
        let at = first.received_at;
        // In queue mode only messages that were sent together share a turn.
        let apart = self.handles.settings.busy == BusyMode::Queue;
        let joins = |next: &mut QueuedMessage| {
            let late = apart && next.pending.received_at.since(at) > BURST_WINDOW;
            !alone && !next.alone && !late && next.pending.inbound.source.user_id == author
        };
        let mut batch = vec![first];
        while let Some(next) = self.queue.pop_front_if(joins) {
            batch.push(next.pending);
        }
        batch
    }

    async fn commit_begin(&self, batch: &[PendingMessage]) -> Result<BeginOutcome, crate::Error> {
        let Some(first) = batch.first() else { return Ok(BeginOutcome::Nothing) };
        let now = clock::now();
        let key = self.key.clone();
        let source = first.inbound.source.clone();
        let spoken = batch.iter().filter(|pending| !is_resume_signal(&pending.inbound));
        let mut batch = TurnBatch {
            route: self.handles.channels.reply_route(&first.inbound),
            inbox: batch.iter().map(|pending| pending.id).collect(),
            internal: first.inbound.internal,
            rows: spoken.map(|pending| user_row(&pending.inbound, now)).collect(),
        };
        let fresh = !batch.rows.is_empty() && self.handles.channels.is_scheduled(source.platform);
        let ask = if fresh { ResolveMode::ForceNew } else { ResolveMode::Continue };
        let settings = self.handles.settings.clone();
        let limits = self.limits();
        let hint = self.handles.channels.capabilities(source.platform).hint.clone();
        let channels = self.handles.channels.clone();
        let begin = self.handles.db.write(Commit::Begin, move |tx| {
            let run = batch.inbox.first().map_or(Ok(None), |first| tx.run_of(*first))?;
            if let Some(options) = run.and_then(|run| RunOptions::parse(&run.options)) {
                batch.rows.splice(0..0, options.rows(now));
            }
            let before = tx.bound(&key)?;
            if let Some(first) = batch.inbox.first().filter(|_| batch.internal)
                && let QueuedCompletion::Rejected(lane) =
                    completions::recheck_session(tx, &channels, *first, before.as_ref(), now)?
            {
                return Ok(BeginOutcome::CompletionRejected(lane));
            }
            let OpenedSession { entry, notice, fresh } = settings.open(tx, &key, &source, &hint, ask, now)?;
            let begun = tx.begin_turn(&entry, notice, batch, limits, now)?;
            Ok(match begun {
                Some(begun) => BeginOutcome::Turn(Box::new(begun), fresh.then_some(before)),
                None => BeginOutcome::Nothing,
            })
        });
        begin.await
    }
}

/// An internal message without text resumes a session.
fn is_resume_signal(inbound: &Inbound) -> bool {
    inbound.internal && inbound.text.is_empty()
}

fn user_row(inbound: &Inbound, now: Millis) -> Message {
    let mut row = Message::user(text_for_model(inbound), now);
    row.platform_message_id = inbound.source.message_id.clone();
    row.pictures = inbound.attachments.iter().filter_map(picture).collect();
    row
}

pub(in crate::sessions) fn has_pictures(inbound: &Inbound) -> bool {
    inbound.attachments.iter().any(|it| picture(it).is_some())
}

fn picture(attachment: &Attachment) -> Option<Picture> {
    let mime = attachment.mime.clone().filter(|mime| mime.starts_with("image/"))?;
    // Only files in the picture folder were recognised as images.
    let shown = |file: &String| Path::new(file).ancestors().nth(2).is_some_and(|it| it.ends_with("images"));
    let path = attachment.file.clone().filter(shown)?;
    Some(Picture { path, mime })
}

pub(in crate::sessions) fn attachment(picture: Picture) -> Attachment {
    let Picture { path, mime } = picture;
    let reference = path.clone();
    let kind = "photo".to_owned();
    Attachment { kind, reference, mime: Some(mime), file: Some(path), ..Attachment::default() }
}

pub(in crate::sessions) fn text_for_model(inbound: &Inbound) -> String {
    let mut text = String::new();
    if let Some(context) = &inbound.context {
        text.push_str(&format!("{context}\n\n[New message]\n"));
    }
    if let Some(quoted) = &inbound.quoted {
        text.push_str(&format!("[In reply to: \"{quoted}\"]\n\n"));
    }
    text.push_str(&inbound.text);
    // The text of a repeated message already names its files.
    let text_for_model =
        |it: &&Attachment| it.file.as_ref().is_some_and(|file| inbound.text.contains(file.as_str()));
    for attachment in inbound.attachments.iter().filter(|it| !text_for_model(it)) {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&describe(attachment));
    }
    text
}

/// One line: kind, path and type, or why the file is missing.
fn describe(attachment: &Attachment) -> String {
    let Attachment { kind, reference, name, mime, size, file, error: failure } = attachment;
    let name = name.as_deref().map(|name| format!(" {name:?}")).unwrap_or_default();
    match (file, failure) {
        (Some(file), _) => {
            let mime = mime.as_deref().unwrap_or("unknown type");
            format!("[{kind}{name}: {file}, {mime}, {}]", text::format_bytes(size.unwrap_or_default()))
        }
        (None, Some(why)) => format!("[{kind}{name}: could not be read: {why}]"),
        (None, None) if attachment.is_file() => format!("[{kind}{name}: its content cannot be read here]"),
        (None, None) => format!("[{kind}{name}: {reference}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_path_of_a_file_or_why_it_is_missing() {
        let base = Attachment { kind: "photo".into(), reference: "r".into(), ..Attachment::default() };
        let fetched = Attachment {
            mime: Some("image/jpeg".into()),
            size: Some(120_000),
            file: Some("/h/cache/images/7f/1-0.jpg".into()),
            ..base.clone()
        };
        let lost = Attachment { error: Some("it is empty".into()), ..base.clone() };
        let place = Attachment { kind: "location".into(), reference: "52.5,13.4".into(), ..base.clone() };
        for (attachment, want) in [
            (fetched.clone(), "[photo: /h/cache/images/7f/1-0.jpg, image/jpeg, 118 KB]"),
            (lost, "[photo: could not be read: it is empty]"),
            (place, "[location: 52.5,13.4]"),
            (
                Attachment { name: Some("a \"b\"".into()), ..base },
                "[photo \"a \\\"b\\\"\": its content cannot be read here]",
            ),
        ] {
            assert_eq!(describe(&attachment), want);
        }
        assert_eq!(picture(&fetched).map(|it| it.path).as_deref(), Some("/h/cache/images/7f/1-0.jpg"));
        let other = Attachment { file: Some("/h/cache/documents/7f/1-0.svg".into()), ..fetched };
        assert_eq!(picture(&other), None);
    }
}
