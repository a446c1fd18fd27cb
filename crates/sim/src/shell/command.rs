//! `session/command.rs`, `session/say.rs`: as many commands as change what is promised.

use petasos_core::admission::Arrival;
use petasos_core::command::{self as slash, Name, Parsed};
use petasos_core::journal::{Outcome, Write};
use petasos_core::message::Delivery;
use petasos_core::outbox::{Draft, Kind};
use petasos_core::session::{Ask, Background, ResetPolicy, Window};
use petasos_core::transcript::Message;
use petasos_core::turn::Event as Turning;
use petasos_core::{Millis, Route, SessionKey};
use petasos_store::{Binding, Error as StoreError, Pending, Tx};

use super::Session;
use crate::sim::{Flow, Sim};

impl Sim {
    pub(crate) fn command(&mut self, session: &mut Session, mut pending: Pending) -> Flow {
        match slash::parse(&pending.inbound.text) {
            Parsed::Known(Name::Stop, _) => {
                let text = match self.interrupt(session)? {
                    true => "⏹ Stopped. The session goes on.",
                    false => "No active task to stop.",
                };
                self.answer(session, &pending, text.into(), Outcome::Answered)
            }
            Parsed::Known(Name::New, _) => self.renew(session, &pending),
            Parsed::Known(Name::Queue, text) => {
                self.take_up_turn(session)?;
                pending.inbound.text = text;
                self.admit(session, pending, Arrival::Queued)
            }
            Parsed::Known(..) | Parsed::Unknown(_) | Parsed::Text => {
                self.answer(session, &pending, "❓ Unknown command.".into(), Outcome::Answered)
            }
        }
    }

    /// Ends the running turn. `false`: there was none.
    pub(crate) fn interrupt(&mut self, session: &mut Session) -> Flow<bool> {
        if session.turn.is_none() {
            return Ok(false);
        }
        let shown = self.shown(session);
        session.work = None;
        self.feed(session, Turning::Interrupted { shown, unstarted: vec![] })?;
        Ok(true)
    }

    fn renew(&mut self, session: &mut Session, pending: &Pending) -> Flow {
        self.interrupt(session)?;
        let earlier = |it: &Pending| it.id < pending.id;
        let queued = session.queue.iter().map(|waiting| &waiting.pending);
        let cancelled: Vec<_> =
            queued.chain(session.steering.iter()).filter(|it| earlier(it)).map(|it| it.id).collect();
        session.queue.retain(|waiting| !earlier(&waiting.pending));
        session.steering.retain(|it| !earlier(it));
        let (key, now) = (session.key.clone(), self.now);
        let (pending, route) = (pending.clone(), self.route(&pending.inbound));
        let lane = route.lane();
        let push = route.delivery == Delivery::Push;
        self.commit("new session", move |tx| {
            tx.apply(
                &[Write::SettleInbox { inbox: cancelled.clone(), outcome: Outcome::Cancelled, at: now }],
                now,
            )?;
            open(tx, &key, &pending, Ask::ForceNew, now)?;
            tx.forget_failures(&key)?;
            let settle = Write::SettleInbox { inbox: vec![pending.id], outcome: Outcome::Answered, at: now };
            say(tx, &key, &pending, &route, "✨ New session.".into(), vec![settle], now)
        })?;
        if push {
            self.lane_due(lane);
        }
        Ok(())
    }

    /// Answers a message and settles it: one commit.
    pub(crate) fn answer(
        &mut self,
        _session: &mut Session,
        pending: &Pending,
        text: String,
        outcome: Outcome,
    ) -> Flow {
        let settle = Write::SettleInbox { inbox: vec![pending.id], outcome, at: self.now };
        self.notice(pending, text, vec![settle])
    }

    /// Says something to the author of a message, together with further writes.
    pub(crate) fn notice(&mut self, pending: &Pending, text: String, writes: Vec<Write>) -> Flow {
        let (now, pending, route) = (self.now, pending.clone(), self.route(&pending.inbound));
        let lane = (route.delivery == Delivery::Push).then(|| route.lane());
        self.commit("notice", move |tx| {
            say(tx, &pending.key, &pending, &route, text.clone(), writes.clone(), now)
        })?;
        if let Some(lane) = lane {
            self.lane_due(lane);
        }
        Ok(())
    }
}

fn open(
    tx: &Tx<'_>,
    key: &SessionKey,
    pending: &Pending,
    ask: Ask,
    now: Millis,
) -> Result<petasos_core::SessionId, StoreError> {
    let policy = ResetPolicy::default();
    let binding = Binding {
        key,
        source: &pending.inbound.source,
        ask,
        policy: &policy,
        window: Window::default(),
        background: Background::None,
    };
    Ok(tx.get_or_create(&binding, now)?.entry.session_id)
}

/// `Address::tell`.
fn say(
    tx: &Tx<'_>,
    key: &SessionKey,
    pending: &Pending,
    route: &Route,
    text: String,
    mut writes: Vec<Write>,
    now: Millis,
) -> Result<(), StoreError> {
    match route.delivery {
        Delivery::Push => writes.push(Write::Owe(Draft {
            route: route.clone(),
            session_key: Some(key.clone()),
            turn: None,
            kind: Kind::Notice,
            text,
            buttons: vec![],
        })),
        Delivery::Pull => {
            let session = match tx.entry(key)? {
                Some(entry) => entry.session_id,
                None => open(tx, key, pending, Ask::Continue, now)?,
            };
            writes.push(Write::Append { session, message: Message::notice(text, now) });
        }
    }
    tx.apply(&writes, now)
}
