//! How a turn starts: which messages it takes, and what the model is told about them.

use petasos_core::admission::Refusal;
use petasos_core::ids::RowId;
use petasos_core::journal::{Outcome, Write};
use petasos_core::lifecycle::{Claim, Closed};
use petasos_core::message::Delivery;
use petasos_core::outbox::{Draft, Kind};
use petasos_core::session::{Ask, ResetReason};
use petasos_core::transcript::Message;
use petasos_core::turn::{self, Effect, Event, Turn};
use petasos_core::{Inbound, Millis};
use petasos_store::Pending;
use tokio::time::Instant;

use super::{Ended, Session, Waiting};
use crate::clock;
use crate::config::Opened;

/// A turn that is on disk.
struct Begun {
    turn: Turn,
    /// The newest row: its question.
    row: Option<RowId>,
    effects: Vec<Effect>,
}

impl Session {
    /// When the next turn may start; `None`: nothing waits, or a turn runs.
    pub(super) fn ready(&self) -> Option<Instant> {
        if self.turn.is_some() {
            return None;
        }
        self.queue.back().map(|last| last.ready)
    }

    /// Takes the next messages and starts their turn: one transaction. First comes the place among those who work;
    /// whoever gets none waits, or is turned away.
    pub(super) async fn begin(&mut self) -> Result<(), Ended> {
        let news = self.shell.gate.watch();
        let internal = self.queue.front().is_some_and(|first| first.pending.inbound.internal);
        let claim = if internal { Claim::Internal } else { Claim::User };
        let slot = match self.shell.gate.claim(&self.key, claim) {
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
        let Some(Begun { turn, row, effects }) = begun else { return Ok(()) };
        self.publish_queue();
        slot.began(turn.id);
        self.shell.marks.begun(&turn.route);
        self.slot = Some(slot);
        self.turn = Some(turn);
        self.author = batch.first().map(|pending| pending.inbound.source.clone());
        self.resumed = batch.iter().all(|pending| is_silent(&pending.inbound));
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
        let gate = self.shell.gate.clone();
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
        let author = first.inbound.source.user_id.clone();
        let mut batch = vec![first];
        while !alone
            && self
                .queue
                .front()
                .is_some_and(|next| !next.alone && next.pending.inbound.source.user_id == author)
        {
            batch.extend(self.queue.pop_front().map(|next| next.pending));
        }
        batch
    }

    async fn try_begin(&self, batch: &[Pending]) -> Result<Option<Begun>, crate::Error> {
        let Some(first) = batch.first() else { return Ok(None) };
        let now = clock::now();
        let (key, source) = (self.key.clone(), first.inbound.source.clone());
        let route = self.shell.channels.way_back(&source);
        let inbox: Vec<_> = batch.iter().map(|pending| pending.id).collect();
        let silent = batch.iter().all(|pending| is_silent(&pending.inbound));
        let spoken = batch.iter().filter(|pending| !is_silent(&pending.inbound));
        let rows: Vec<_> = spoken.map(|pending| user_row(&pending.inbound, now)).collect();
        let settings = self.shell.settings.clone();
        let hint = self.shell.channels.capabilities(source.platform).hint.clone();
        let begin = self.shell.db.write(move |tx| {
            let Opened { entry, told } = settings.open(tx, &key, &source, &hint, Ask::Continue, now)?;
            if silent && !entry.resume_pending {
                // Somebody else has taken the session up meanwhile, or its time is over: there is nothing to say.
                tx.apply(&[Write::SettleInbox { inbox, outcome: Outcome::Merged, at: now }], now)?;
                return Ok(None);
            }
            let Some(turn) = Turn::new(key, entry.session_id, route, inbox, now) else { return Ok(None) };
            if let Some(reason) = told {
                tx.apply(&reset_notice(&turn, reason, now), now)?;
            }
            let (turn, decision) = turn::step(turn, settings.limits, now, Event::Started { rows });
            tx.apply(&decision.writes, now)?;
            let mut effects = decision.effects;
            if told.is_some() && turn.route.delivery == Delivery::Push {
                effects.push(Effect::Deliver { lane: turn.route.lane() });
            }
            let row = tx.last_row(&turn.session)?;
            Ok(Some(Begun { turn, row, effects }))
        });
        begin.await
    }
}

fn reset_notice(turn: &Turn, reason: ResetReason, now: Millis) -> Vec<Write> {
    let text = format!(
        "◐ Session automatically reset ({}). Your earlier conversation is kept: /resume brings it back.",
        reason.as_str()
    );
    let mut writes =
        vec![Write::Append { session: turn.session.clone(), message: Message::notice(text.clone(), now) }];
    if turn.route.delivery == Delivery::Push {
        writes.push(Write::Owe(Draft {
            route: turn.route.clone(),
            session_key: Some(turn.key.clone()),
            turn: None,
            kind: Kind::Notice,
            text,
            buttons: vec![],
        }));
    }
    writes
}

/// The gateway wants a session taken up again; nobody has written.
fn is_silent(inbound: &Inbound) -> bool {
    inbound.internal && inbound.text.is_empty()
}

fn user_row(inbound: &Inbound, now: Millis) -> Message {
    let mut row = Message::user(said(inbound), now);
    row.platform_message_id = inbound.source.message_id.clone();
    row
}

/// The message as the model reads it.
pub(super) fn said(inbound: &Inbound) -> String {
    let mut text = String::new();
    if let Some(quoted) = &inbound.quoted {
        text.push_str(&format!("[In reply to: \"{quoted}\"]\n\n"));
    }
    text.push_str(&inbound.text);
    for attachment in &inbound.attachments {
        let name = attachment.name.as_deref().map(|name| format!(" {name:?}")).unwrap_or_default();
        text.push_str(&format!("\n[Attached: {}{name}; its content cannot be read here]", attachment.kind));
    }
    text
}
