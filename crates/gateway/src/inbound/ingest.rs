//! The way in for every message: allowed? known already? then on disk, and only then acknowledged.
//!
//! Owns nothing. A batch is one transaction together with the platform's cursor; when it is refused, the
//! platform keeps the batch for us, and when it is repeated, the inbox knows it.

use std::sync::Arc;

use petasos_core::access::{self, Access, Refusal, Standing, Verdict};
use petasos_core::journal::Write;
use petasos_core::message::Delivery;
use petasos_core::outbox::Draft;
use petasos_core::session::{KeyOptions, Reader, platform_of, session_key};
use petasos_core::{Inbound, LaneId, LinkId, Millis, Platform, Route, SessionKey, Source};
use petasos_platforms::{Adapter, Post, Unreadable};
use petasos_store::{Accepted, Candidate, Error as StoreError, PairingAnswer, Pending, Tx, Unread};

use crate::api::handle::Submitted;
use crate::background::notifications::forward;
use crate::background::notifications::home_channels::Homes;
use crate::delivery::Deliver;
use crate::lifecycle::gate::Gate;
use crate::lifecycle::startup::resume;
use crate::links::channels::{Channels, Relayed};
use crate::links::idle::Traffic;
use crate::links::supervisor::{Kept, Taker};
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{Planted, planted};
use crate::runtime::tasks;
use crate::sessions::router::Router;
use crate::storage::database::Db;
use crate::storage::salvage;
use crate::{Error, clock};

#[derive(Debug)]
pub(crate) struct Ingest {
    pub(crate) db: Db,
    pub(crate) router: Router,
    pub(crate) deliver: Deliver,
    pub(crate) channels: Arc<Channels>,
    pub(crate) homes: Arc<Homes>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) gate: Gate,
    pub(crate) traffic: Traffic,
}

/// What decides where a message goes and whether it may.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) access: Access,
    pub(crate) keys: KeyOptions,
    pub(crate) relayed: Relayed,
}

/// What became of one message.
enum Placed {
    Accepted(Pending),
    Duplicate(Pending),
    /// A replay of a message that was passed on as it is.
    Replayed,
    /// Not for us. `told`: the lane through which the stranger hears how to get in.
    Denied {
        told: Option<LaneId>,
    },
    /// Not run: it may have been answered before the database was damaged or restored.
    Unsure(Inbound),
}

impl Placed {
    const fn unsure(&self) -> Option<&Inbound> {
        match self {
            Self::Unsure(inbound) => Some(inbound),
            Self::Accepted(_) | Self::Duplicate(_) | Self::Replayed | Self::Denied { .. } => None,
        }
    }
}

/// Longest text that is taken as it is; more is cut, and says so.
const LONGEST_TEXT: usize = 1 << 20;

impl Ingest {
    pub(crate) fn key_of(&self, source: &Source) -> SessionKey {
        session_key(source, &self.rules.keys)
    }

    /// A batch of an account on a platform, with the place to go on from.
    pub(crate) async fn take(
        &self,
        cursor_of: LinkId,
        events: Vec<Inbound>,
        unreadable: Vec<Unreadable>,
        cursor: Option<String>,
    ) -> Result<Kept, Error> {
        self.programs_may_start(&events)?;
        let events = events.into_iter().map(|event| self.led(event)).collect::<Result<Vec<_>, _>>()?;
        let (rules, channels, now) = (self.rules.clone(), self.channels.clone(), clock::now());
        if !events.is_empty() {
            self.traffic.heard(now);
        }
        if let (true, Some(cursor)) = (planted(Planted::CursorFirst), cursor.clone()) {
            let of = cursor_of.clone();
            self.db.write(Commit::Take, move |tx| tx.put_cursor(&of, &cursor)).await?;
        }
        let (placed, lanes) = self
            .db
            .write(Commit::Take, move |tx| {
                if let Some(cursor) = &cursor {
                    tx.put_cursor(&cursor_of, cursor)?;
                }
                for Unreadable { id, why, raw, size } in unreadable {
                    let (link, size) = (cursor_of.to_string(), size as u64);
                    tx.keep_unreadable(&Unread { id: 0, link, event: id, why, size, at: now }, &raw)?;
                }
                let placed = events.into_iter().map(|event| {
                    match channels.brings(cursor_of.platform, event.source.platform) {
                        true => place(tx, &rules, &channels, event, now),
                        false => foreign(tx, &cursor_of, &event, now),
                    }
                });
                let placed = placed.collect::<Result<Vec<_>, _>>()?;
                let unsure = placed.iter().filter_map(Placed::unsure);
                let lanes = salvage::report(tx, &channels, unsure, now)?;
                Ok((placed, lanes))
            })
            .await?;
        let known = |it: &Placed| matches!(it, Placed::Duplicate(_) | Placed::Replayed);
        let news = placed.is_empty() || !placed.iter().all(known);
        let answered = placed.iter().map(|it| !matches!(it, Placed::Denied { told: None })).collect();
        let kept = Kept { news, answered };
        for placed in placed {
            self.hand_on(placed).await;
        }
        for lane in lanes {
            self.deliver.due(lane).await;
        }
        Ok(kept)
    }

    /// A program hears at once that no turn may start: it would read no notice, and can try again by itself.
    fn programs_may_start(&self, events: &[Inbound]) -> Result<(), Error> {
        let mut programs =
            events.iter().filter(|event| self.channels.reader(event.source.platform) == Reader::Machine);
        programs.try_for_each(|event| self.gate.hears(&self.key_of(&event.source)).map_err(Error::Closed))
    }

    /// A way that leads to a platform's home leads to a chat from here on: a turn's route never changes.
    fn led(&self, mut event: Inbound) -> Result<Inbound, Error> {
        event.answer_to = event.answer_to.map(|route| self.homes.lead(route)).transpose()?;
        Ok(event)
    }

    /// One message from a channel that has checked its author. Whoever asked may go away meanwhile: what is
    /// on disk is handed on all the same.
    pub(crate) async fn submit(self: &Arc<Self>, inbound: Inbound) -> Result<Submitted, Error> {
        let ingest = self.clone();
        if planted(Planted::AcksBeforeCommit) {
            let key = self.key_of(&inbound.source);
            petasos_runtime::spawn(async move { ingest.submit_one(inbound).await });
            return Ok(Submitted { inbox: petasos_core::InboxId(0), key, duplicate: false });
        }
        tasks::uncancelled(async move { ingest.submit_one(inbound).await }).await?
    }

    async fn submit_one(&self, inbound: Inbound) -> Result<Submitted, Error> {
        let (rules, channels, now) = (self.rules.clone(), self.channels.clone(), clock::now());
        if !inbound.internal {
            self.traffic.heard(now);
        }
        let placed =
            self.db.write(Commit::Submit, move |tx| place(tx, &rules, &channels, inbound, now)).await?;
        let submitted = match &placed {
            Placed::Accepted(pending) => {
                Submitted { inbox: pending.id, key: pending.key.clone(), duplicate: false }
            }
            Placed::Duplicate(pending) => {
                Submitted { inbox: pending.id, key: pending.key.clone(), duplicate: true }
            }
            Placed::Replayed | Placed::Denied { .. } | Placed::Unsure(_) => {
                return Err(Error::NotFound("channel"));
            }
        };
        self.hand_on(placed).await;
        Ok(submitted)
    }

    async fn hand_on(&self, placed: Placed) {
        match placed {
            Placed::Accepted(pending) => {
                crate::runtime::fault_injection::wrote_last(&pending.inbound);
                self.router.arrived(pending.key.clone(), pending).await;
            }
            Placed::Denied { told: Some(lane) } => self.deliver.due(lane).await,
            // Whoever repeats a message may have been cut off before it was handed on.
            Placed::Duplicate(pending) => self.router.wake(pending.key).await,
            Placed::Replayed | Placed::Denied { told: None } | Placed::Unsure(_) => {}
        }
    }
}

/// What one link hands its messages to, and what goes on as soon as that link is up for the first time.
#[derive(Debug)]
pub(crate) struct Entrance {
    pub(crate) ingest: Arc<Ingest>,
    pub(crate) waiting: Vec<Candidate>,
}

impl Taker for Entrance {
    async fn cursor(&self, link: LinkId) -> Result<Option<String>, Error> {
        self.ingest.db.read(move |reader| reader.cursor(&link)).await
    }

    async fn take(
        &self,
        link: LinkId,
        events: Vec<Inbound>,
        unreadable: Vec<Unreadable>,
        cursor: Option<String>,
    ) -> Result<Kept, Error> {
        self.ingest.take(link, events, unreadable, cursor).await
    }

    /// As many wait as callers are let in.
    fn post(&self, platform: &'static str, account: &str, post: Post) {
        petasos_runtime::spawn(forward::carry(self.ingest.clone(), platform, account.to_owned(), post));
    }

    /// It may take a moment to stop; one that does nothing has nothing to stop.
    fn interrupt(&self, key: SessionKey) {
        let relayed =
            |platform| self.ingest.channels.adapter(platform).is_some_and(|it| it.relay().is_some());
        if !platform_of(&key).is_some_and(relayed) {
            return tracing::warn!("a connector may not stop what it does not carry");
        }
        let router = self.ingest.router.clone();
        petasos_runtime::spawn(async move { router.stop_turn(key).await });
    }

    async fn came_up(&mut self, adapter: &Arc<Adapter>) {
        self.wake_lanes(adapter).await;
        if planted(Planted::ForgetsCandidates) {
            self.waiting.clear();
        }
        resume::take_up(&self.ingest, std::mem::take(&mut self.waiting)).await;
    }
}

impl Entrance {
    /// What waited for what this adapter serves need not wait any longer.
    async fn wake_lanes(&self, adapter: &Arc<Adapter>) {
        let channels = &self.ingest.channels;
        let served: Vec<_> =
            Platform::known().filter(|platform| channels.is_served_by(*platform, adapter)).collect();
        let platforms = served.clone();
        let lanes = self.ingest.db.write(Commit::WakeLanes, move |tx| {
            for platform in served {
                tx.poke_platform(platform.as_str())?;
            }
            tx.heads()
        });
        match lanes.await {
            Ok(heads) => {
                for head in heads.into_iter().filter(|head| platforms.contains(&head.lane.platform)) {
                    self.ingest.deliver.due(head.lane).await;
                }
            }
            Err(error) => tracing::warn!(%error, "the outbox cannot be read"),
        }
    }
}

fn place(
    tx: &Tx<'_>,
    rules: &Rules,
    channels: &Channels,
    mut inbound: Inbound,
    now: Millis,
) -> Result<Placed, StoreError> {
    let source = &inbound.source;
    if !inbound.internal {
        // Whoever writes from a chat that refused us is there again.
        tx.mark_chat_alive(source.platform, &Route::back_to(source, Delivery::Push).chat_id)?;
        match verdict(tx, rules, source)? {
            Verdict::Allow => {}
            Verdict::Deny(Refusal::Silently) => return Ok(Placed::Denied { told: None }),
            Verdict::Deny(Refusal::OfferPairing) => {
                return offer_pairing(tx, channels.way_back(&inbound), source, now);
            }
        }
    }
    cut(&mut inbound.text);
    let key = session_key(&inbound.source, &rules.keys);
    if tx.is_unsure(&inbound)? {
        tx.accept_unsure(&inbound, &key, now)?;
        return Ok(Placed::Unsure(inbound));
    }
    if tx.was_owed(&inbound, now)? {
        return Ok(Placed::Replayed);
    }
    let accepted = tx.accept(&inbound, &key, now)?;
    let pending = Pending { id: accepted.id(), key, inbound, received_at: now };
    Ok(match accepted {
        Accepted::New(_) => Placed::Accepted(pending),
        Accepted::Duplicate(_) => Placed::Duplicate(pending),
    })
}

/// A message of a platform that this link has no business with: kept as it is, and not heard.
fn foreign(tx: &Tx<'_>, link: &LinkId, event: &Inbound, now: Millis) -> Result<Placed, StoreError> {
    let raw = serde_json::to_string(event).unwrap_or_default();
    let why = format!("it speaks for {}, which this link does not carry", event.source.platform);
    let (link, event, size) = (link.to_string(), Some(event.dedup.clone()), raw.len() as u64);
    tx.keep_unreadable(&Unread { id: 0, link, event, why, size, at: now }, &raw)?;
    Ok(Placed::Denied { told: None })
}

/// The lists first; whoever is on none of them may be paired.
fn verdict(tx: &Tx<'_>, rules: &Rules, source: &Source) -> Result<Verdict, StoreError> {
    let upstream = rules.relayed.includes(source.platform);
    let standing = Standing { role: source.role_authorized, upstream, ..Standing::default() };
    let listed = access::decide(&rules.access, source, standing);
    let (Verdict::Deny(_), Some(user)) = (listed, &source.user_id) else { return Ok(listed) };
    let paired = tx.is_paired(source.platform, user)?;
    Ok(access::decide(&rules.access, source, Standing { paired, ..standing }))
}

/// Whether this author may talk to us.
pub(crate) fn welcome(tx: &Tx<'_>, rules: &Rules, source: &Source) -> Result<bool, StoreError> {
    Ok(verdict(tx, rules, source)? == Verdict::Allow)
}

fn cut(text: &mut String) {
    if text.len() <= LONGEST_TEXT {
        return;
    }
    let end = text.floor_char_boundary(LONGEST_TEXT);
    text.truncate(end);
    text.push_str("\n[The rest of this message was cut: it is longer than 1 MB.]");
}

fn offer_pairing(tx: &Tx<'_>, route: Route, source: &Source, now: Millis) -> Result<Placed, StoreError> {
    let Some(user) = &source.user_id else { return Ok(Placed::Denied { told: None }) };
    let text = match tx.pairing_request(source.platform, user, source.user_name.as_deref(), now)? {
        PairingAnswer::Code(code) => format!(
            "👋 I do not know you yet. If this is your agent, approve this chat on its machine:\n\n\
             petasos pairing approve {} {code}\n\nThe code is good for one hour.",
            source.platform
        ),
        PairingAnswer::Refused => {
            "🔒 Pairing is closed for now after too many wrong codes. Try again in an hour.".into()
        }
        PairingAnswer::Silent => return Ok(Placed::Denied { told: None }),
    };
    if route.delivery == Delivery::Pull {
        return Ok(Placed::Denied { told: None });
    }
    let lane = route.lane();
    tx.apply(&[Write::Owe(Draft::notice(route, text))], now)?;
    Ok(Placed::Denied { told: Some(lane) })
}
