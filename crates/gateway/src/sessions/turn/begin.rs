//! How a turn starts: which messages it takes, and what the model is told about them.

use std::path::Path;
use std::time::Duration;

use petasos_core::admission::{BusyMode, Refusal};
use petasos_core::ids::SessionId;
use petasos_core::journal::Outcome;
use petasos_core::lifecycle::{Claim, Closed};
use petasos_core::message::Attachment;
use petasos_core::session::Ask;
use petasos_core::transcript::{Message, Picture};
use petasos_core::{Inbound, LaneId, Millis, text};
use petasos_store::{Batch, Begun, Pending};
use tokio::time::Instant;

use crate::api::runs::Wish;
use crate::background::completions::{self, Queued};
use crate::background::delegation::Place;
use crate::background::hooks;
use crate::clock;
use crate::lifecycle::config::Opened;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{Planted, planted};
use crate::sessions::turn::{Running, Standing};
use crate::sessions::{Ended, Session, Waiting};

/// Messages that come within this time were sent in one go.
const BURST: Duration = Duration::from_secs(1);

/// How long a message waits for the next of its author's whose files are on their way: pictures that are sent
/// together are messages of their own.
const MORE_WAIT: Duration = Duration::from_secs(2);

/// Its transcript has just begun, in the place of this one if there was one.
type Fresh = Option<Option<SessionId>>;

/// What came of an attempt to start a turn.
enum Start {
    Turn(Box<Begun>, Fresh),
    Nothing,
    /// It was about work of a conversation that is over; the lane has a word about it.
    PassedOver(Option<LaneId>),
}

impl Session {
    /// When the next turn may start; `None`: nothing waits, or a turn runs.
    pub(in crate::sessions) fn ready(&self) -> Option<Instant> {
        if self.running.is_some() || self.compressing.is_some() {
            return None;
        }
        let last = self.queue.back()?;
        let more = !last.alone && self.arriving.holds_of(&last.pending.inbound.source);
        Some(if more { last.ready + MORE_WAIT } else { last.ready })
    }

    /// Takes the next messages and starts their turn: one transaction. First comes the place among those who work;
    /// whoever gets none waits, or is turned away.
    pub(in crate::sessions) async fn begin(&mut self) -> Result<(), Ended> {
        let news = self.handles.lifecycle.gate.watch();
        let ours = |inbound: &Inbound| {
            // Scheduled work is no answer to anybody: it waits as people do.
            inbound.internal && !self.handles.channels.is_scheduled(inbound.source.platform)
        };
        let internal = self.queue.front().is_some_and(|first| ours(&first.pending.inbound));
        let claim = match (Place::of(&self.key), internal) {
            // Whoever gave it the work has a place, and may wait for it.
            (Some(_), _) => Claim::Resumed,
            (None, false) if planted(Planted::BeginsWhileDraining) => Claim::Internal,
            (None, true) => Claim::Internal,
            (None, false) => Claim::User,
        };
        let slot = match self.handles.lifecycle.gate.claim(&self.key, claim) {
            Ok(slot) => slot,
            Err(closed) => {
                self.barred = Some(news);
                return self.turned_away(closed).await;
            }
        };
        let batch = self.take_batch();
        self.handling = batch.first().cloned();
        let begun = loop {
            match self.try_begin(&batch).await {
                Ok(begun) => break begun,
                Err(error) => self.refused(&error).await?,
            }
        };
        let (Begun { turn, row, effects }, fresh) = match begun {
            Start::Turn(begun, fresh) => (*begun, fresh),
            Start::Nothing => return Ok(()),
            Start::PassedOver(lane) => {
                if let Some(lane) = lane {
                    self.handles.delivery.deliver.due(lane).await;
                }
                return Ok(());
            }
        };
        self.publish_queue();
        slot.began(turn.id);
        self.handles.delivery.reactions.begun(&turn.route);
        let author = batch.first().map(|pending| pending.inbound.source.clone());
        self.reader = author.as_ref().map(|author| author.platform);
        let texts: Vec<_> = batch.iter().map(|pending| pending.inbound.text.as_str()).collect();
        let asked = hooks::shown(&texts.join("\n")).to_owned();
        let mut running = Running::new(turn, author, asked, Standing::AtWork(slot));
        running.resumed = batch.iter().all(|pending| is_silent(&pending.inbound));
        self.running = Some(running);
        self.hooks_hear_the_start(fresh);
        self.show.send_modify(|view| view.rows = row);
        self.go_live();
        self.start(effects).await;
        Ok(())
    }

    /// No turn may start. Who was promised one waits for it; the others are told to come again.
    async fn turned_away(&mut self, closed: Closed) -> Result<(), Ended> {
        let own = self.queue.iter().position(|waiting| waiting.pending.inbound.internal);
        if let (Closed::Draining, Some(own @ 1..)) = (closed, own) {
            // What the gateway itself has to do passes those who are held.
            let waiting = self.queue.remove(own);
            self.queue.extend(waiting);
            self.queue.rotate_right(1);
            self.barred = None;
            return Ok(());
        }
        let gate = self.handles.lifecycle.gate.clone();
        let turned_away = |first: &mut Waiting| !first.promised && !gate.keeps(first.pending.received_at);
        while let Some(first) = self.queue.pop_front_if(turned_away) {
            self.handling = Some(first.pending.clone());
            self.publish_queue();
            let text = Refusal::Closed(closed).text().into_owned();
            self.answer(&first.pending, text, Outcome::Refused).await?;
        }
        Ok(())
    }

    /// The first waiting message, and what its author added meanwhile.
    fn take_batch(&mut self) -> Vec<Pending> {
        let Some(Waiting { pending: first, alone, .. }) = self.queue.pop_front() else { return vec![] };
        let (author, at) = (first.inbound.source.user_id.clone(), first.received_at);
        // Whoever wants things to be queued wants them one by one, but for what was sent in one go.
        let apart = self.handles.settings.busy == BusyMode::Queue;
        let joins = |next: &mut Waiting| {
            let late = apart && next.pending.received_at.since(at) > BURST;
            !alone && !next.alone && !late && next.pending.inbound.source.user_id == author
        };
        let mut batch = vec![first];
        while let Some(next) = self.queue.pop_front_if(joins) {
            batch.push(next.pending);
        }
        batch
    }

    async fn try_begin(&self, batch: &[Pending]) -> Result<Start, crate::Error> {
        let Some(first) = batch.first() else { return Ok(Start::Nothing) };
        let now = clock::now();
        let (key, source) = (self.key.clone(), first.inbound.source.clone());
        let spoken = batch.iter().filter(|pending| !is_silent(&pending.inbound));
        let mut batch = Batch {
            route: self.handles.channels.way_back(&first.inbound),
            inbox: batch.iter().map(|pending| pending.id).collect(),
            internal: first.inbound.internal,
            rows: spoken.map(|pending| user_row(&pending.inbound, now)).collect(),
        };
        let fresh = !batch.rows.is_empty() && self.handles.channels.is_scheduled(source.platform);
        let ask = if fresh { Ask::ForceNew } else { Ask::Continue };
        let (settings, limits) = (self.handles.settings.clone(), self.limits());
        let hint = self.handles.channels.capabilities(source.platform).hint.clone();
        let channels = self.handles.channels.clone();
        let begin = self.handles.db.write(Commit::Begin, move |tx| {
            let run = batch.inbox.first().map_or(Ok(None), |first| tx.run_of(*first))?;
            if let Some(wish) = run.and_then(|run| Wish::read(&run.wish)) {
                batch.rows.splice(0..0, wish.rows(now));
            }
            let before = tx.bound(&key)?;
            if let Some(first) = batch.inbox.first().filter(|_| batch.internal)
                && let Queued::PassedOver(lane) =
                    completions::look_again(tx, &channels, *first, before.as_ref(), now)?
            {
                return Ok(Start::PassedOver(lane));
            }
            let Opened { entry, notice, fresh } = settings.open(tx, &key, &source, &hint, ask, now)?;
            let begun = tx.begin_turn(&entry, notice, batch, limits, now)?;
            Ok(match begun {
                Some(begun) => Start::Turn(Box::new(begun), fresh.then_some(before)),
                None => Start::Nothing,
            })
        });
        begin.await
    }
}

/// The gateway wants a session taken up again; nobody has written.
fn is_silent(inbound: &Inbound) -> bool {
    inbound.internal && inbound.text.is_empty()
}

fn user_row(inbound: &Inbound, now: Millis) -> Message {
    let mut row = Message::user(said(inbound), now);
    row.platform_message_id = inbound.source.message_id.clone();
    row.pictures = inbound.attachments.iter().filter_map(picture).collect();
    row
}

/// There is something to be seen in it.
pub(in crate::sessions) fn is_seen(inbound: &Inbound) -> bool {
    inbound.attachments.iter().any(|it| picture(it).is_some())
}

fn picture(attachment: &Attachment) -> Option<Picture> {
    let mime = attachment.mime.clone().filter(|mime| mime.starts_with("image/"))?;
    // Pictures lie in a folder of their own, session by session; what only calls itself one lies elsewhere.
    let shown = |file: &String| Path::new(file).ancestors().nth(2).is_some_and(|it| it.ends_with("images"));
    let path = attachment.file.clone().filter(shown)?;
    Some(Picture { path, mime })
}

/// A picture of an earlier message, to be seen again.
pub(in crate::sessions) fn attachment(picture: Picture) -> Attachment {
    let Picture { path, mime } = picture;
    let (reference, kind) = (path.clone(), "photo".to_owned());
    Attachment { kind, reference, mime: Some(mime), file: Some(path), ..Attachment::default() }
}

/// The message as the model reads it.
pub(in crate::sessions) fn said(inbound: &Inbound) -> String {
    let mut text = String::new();
    if let Some(context) = &inbound.context {
        text.push_str(&format!("{context}\n\n[New message]\n"));
    }
    if let Some(quoted) = &inbound.quoted {
        text.push_str(&format!("[In reply to: \"{quoted}\"]\n\n"));
    }
    text.push_str(&inbound.text);
    // What is asked again says already what is attached to it.
    let said = |it: &&Attachment| it.file.as_ref().is_some_and(|file| inbound.text.contains(file.as_str()));
    for attachment in inbound.attachments.iter().filter(|it| !said(it)) {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&attached(attachment));
    }
    text
}

/// One line that says what it is and where it lies, or why it does not.
fn attached(attachment: &Attachment) -> String {
    let Attachment { kind, reference, name, mime, size, file, trouble } = attachment;
    let name = name.as_deref().map(|name| format!(" {name:?}")).unwrap_or_default();
    match (file, trouble) {
        (Some(file), _) => {
            let mime = mime.as_deref().unwrap_or("unknown type");
            format!("[{kind}{name}: {file}, {mime}, {}]", text::size(size.unwrap_or_default()))
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
    fn the_model_reads_where_a_file_lies_or_why_it_does_not() {
        let base = Attachment { kind: "photo".into(), reference: "r".into(), ..Attachment::default() };
        let fetched = Attachment {
            mime: Some("image/jpeg".into()),
            size: Some(120_000),
            file: Some("/h/cache/images/7f/1-0.jpg".into()),
            ..base.clone()
        };
        let lost = Attachment { trouble: Some("it is empty".into()), ..base.clone() };
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
            assert_eq!(attached(&attachment), want);
        }
        assert_eq!(picture(&fetched).map(|it| it.path).as_deref(), Some("/h/cache/images/7f/1-0.jpg"));
        let other = Attachment { file: Some("/h/cache/documents/7f/1-0.svg".into()), ..fetched };
        assert_eq!(picture(&other), None);
    }
}
