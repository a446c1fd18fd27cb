//! Accepts inbound messages: access check, deduplication, commit, acknowledgement.
//!
//! Stateless. A batch and the platform's cursor are committed in one transaction. If the commit fails, the platform delivers the
//! batch again; if a batch is repeated, the inbox recognises its messages.

use std::sync::Arc;

use petasos_core::access::{self, Access, AccessDecision, Denial, SenderTrust};
use petasos_core::journal::Write;
use petasos_core::message::Delivery;
use petasos_core::outbox::Draft;
use petasos_core::session::{KeyOptions, ReaderKind, platform_of, session_key};
use petasos_core::{Inbound, LaneId, LinkId, Millis, Platform, Route, SessionKey, Source};
use petasos_platforms::{Adapter, Post, Unreadable};
use petasos_store::{
    Accepted, Error as StoreError, PairingReply, PendingMessage, ResumeCandidate, Tx, UnreadableEvent,
};

use crate::api::handle::Submitted;
use crate::background::notifications::forward;
use crate::background::notifications::home_channels::HomeChannels;
use crate::delivery::LaneDispatcher;
use crate::lifecycle::gate::AcceptGate;
use crate::lifecycle::startup::resume;
use crate::links::channels::{Channels, RelayedPlatforms};
use crate::links::idle::Traffic;
use crate::links::supervisor::{AcceptedBatch, LinkSink};
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{PlantedBug, planted};
use crate::runtime::tasks;
use crate::sessions::router::Router;
use crate::storage::database::Db;
use crate::storage::salvage;
use crate::{Error, clock, notices};

#[derive(Debug)]
pub(crate) struct Ingest {
    pub(crate) db: Db,
    pub(crate) router: Router,
    pub(crate) lanes: LaneDispatcher,
    pub(crate) channels: Arc<Channels>,
    pub(crate) homes: Arc<HomeChannels>,
    pub(crate) rules: Arc<IngestRules>,
    pub(crate) gate: AcceptGate,
    pub(crate) traffic: Traffic,
}

/// Access policy and session-key options.
#[derive(Debug)]
pub(crate) struct IngestRules {
    pub(crate) access: Access,
    pub(crate) keys: KeyOptions,
    pub(crate) relayed: RelayedPlatforms,
}

enum IngestOutcome {
    Accepted(PendingMessage),
    Duplicate(PendingMessage),
    /// A replay of a notification that was forwarded as it is.
    Replayed,
    /// Refused. `notified`: the lane that delivers the pairing offer.
    Denied {
        notified: Option<LaneId>,
    },
    /// Not run: it may have been answered before the database was salvaged or restored.
    PossiblyAnswered(Inbound),
}

impl IngestOutcome {
    const fn possibly_answered(&self) -> Option<&Inbound> {
        match self {
            Self::PossiblyAnswered(inbound) => Some(inbound),
            Self::Accepted(_) | Self::Duplicate(_) | Self::Replayed | Self::Denied { .. } => None,
        }
    }
}

/// Longest accepted text; the rest is cut with a note.
const LONGEST_TEXT: usize = 1 << 20;

impl Ingest {
    pub(crate) fn key_of(&self, source: &Source) -> SessionKey {
        session_key(source, &self.rules.keys)
    }

    /// Commits a batch of one link together with the cursor to continue from.
    pub(crate) async fn commit_batch(
        &self,
        cursor_of: LinkId,
        events: Vec<Inbound>,
        unreadable: Vec<Unreadable>,
        cursor: Option<String>,
    ) -> Result<AcceptedBatch, Error> {
        self.check_gate_for_programs(&events)?;
        let events =
            events.into_iter().map(|event| self.resolve_reply_route(event)).collect::<Result<Vec<_>, _>>()?;
        let rules = self.rules.clone();
        let channels = self.channels.clone();
        let now = clock::now();
        if !events.is_empty() {
            self.traffic.record(now);
        }
        if let (true, Some(cursor)) = (planted(PlantedBug::CursorFirst), cursor.clone()) {
            let of = cursor_of.clone();
            self.db.write(Commit::AcceptBatch, move |tx| tx.put_cursor(&of, &cursor)).await?;
        }
        let (outcomes, lanes) = self
            .db
            .write(Commit::AcceptBatch, move |tx| {
                if let Some(cursor) = &cursor {
                    tx.put_cursor(&cursor_of, cursor)?;
                }
                for Unreadable { id, why, raw, size } in unreadable {
                    let link = cursor_of.to_string();
                    let size = size as u64;
                    tx.record_unreadable(
                        &UnreadableEvent { id: 0, link, event: id, why, size, at: now },
                        &raw,
                    )?;
                }
                let outcomes = events.into_iter().map(|event| {
                    if channels.may_bring(cursor_of.platform, event.source.platform) {
                        accept_one(tx, &rules, &channels, event, now)
                    } else {
                        reject_foreign(tx, &cursor_of, &event, now)
                    }
                });
                let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
                let possibly_answered = outcomes.iter().filter_map(IngestOutcome::possibly_answered);
                let lanes = salvage::report_unanswered(tx, &channels, possibly_answered, now)?;
                Ok((outcomes, lanes))
            })
            .await?;
        let known = |it: &IngestOutcome| matches!(it, IngestOutcome::Duplicate(_) | IngestOutcome::Replayed);
        let has_new = outcomes.is_empty() || !outcomes.iter().all(known);
        let answered =
            outcomes.iter().map(|it| !matches!(it, IngestOutcome::Denied { notified: None })).collect();
        let accepted = AcceptedBatch { has_new, answered };
        for outcome in outcomes {
            self.dispatch(outcome).await;
        }
        for lane in lanes {
            self.lanes.wake(lane).await;
        }
        Ok(accepted)
    }

    /// Refuses programs while no turn may start: they cannot read a notice, and they retry.
    fn check_gate_for_programs(&self, events: &[Inbound]) -> Result<(), Error> {
        let mut programs =
            events.iter().filter(|event| self.channels.reader(event.source.platform) == ReaderKind::Machine);
        programs.try_for_each(|event| self.gate.accepts(&self.key_of(&event.source)).map_err(Error::Closed))
    }

    /// Resolves a reply route to a home channel: the route of a turn never changes.
    fn resolve_reply_route(&self, mut event: Inbound) -> Result<Inbound, Error> {
        event.reply_route = event.reply_route.map(|route| self.homes.resolve(route)).transpose()?;
        Ok(event)
    }

    /// Accepts one message from a channel that has authenticated its author. Not cancelled with the caller: a committed message is
    /// always dispatched.
    pub(crate) async fn submit(self: &Arc<Self>, inbound: Inbound) -> Result<Submitted, Error> {
        let ingest = self.clone();
        if planted(PlantedBug::AcksBeforeCommit) {
            let key = self.key_of(&inbound.source);
            petasos_runtime::spawn(async move { ingest.submit_one(inbound).await });
            return Ok(Submitted { inbox: petasos_core::InboxId(0), key, duplicate: false });
        }
        tasks::uncancelled(async move { ingest.submit_one(inbound).await }).await?
    }

    async fn submit_one(&self, inbound: Inbound) -> Result<Submitted, Error> {
        let rules = self.rules.clone();
        let channels = self.channels.clone();
        let now = clock::now();
        if !inbound.internal {
            self.traffic.record(now);
        }
        let outcome =
            self.db.write(Commit::Submit, move |tx| accept_one(tx, &rules, &channels, inbound, now)).await?;
        let submitted = match &outcome {
            IngestOutcome::Accepted(pending) => {
                Submitted { inbox: pending.id, key: pending.key.clone(), duplicate: false }
            }
            IngestOutcome::Duplicate(pending) => {
                Submitted { inbox: pending.id, key: pending.key.clone(), duplicate: true }
            }
            IngestOutcome::Replayed | IngestOutcome::Denied { .. } | IngestOutcome::PossiblyAnswered(_) => {
                return Err(Error::NotFound("channel"));
            }
        };
        self.dispatch(outcome).await;
        Ok(submitted)
    }

    async fn dispatch(&self, outcome: IngestOutcome) {
        match outcome {
            IngestOutcome::Accepted(pending) => {
                crate::runtime::fault_injection::record_inbound(&pending.inbound);
                self.router.deliver(pending.key.clone(), pending).await;
            }
            IngestOutcome::Denied { notified: Some(lane) } => self.lanes.wake(lane).await,
            // The first delivery may have been cut off before the message was dispatched.
            IngestOutcome::Duplicate(pending) => self.router.wake(pending.key).await,
            IngestOutcome::Replayed
            | IngestOutcome::Denied { notified: None }
            | IngestOutcome::PossiblyAnswered(_) => {}
        }
    }
}

/// The inbound sink of one link. Also resumes interrupted turns when the link connects for the first time.
#[derive(Debug)]
pub(crate) struct GatewaySink {
    pub(crate) ingest: Arc<Ingest>,
    pub(crate) waiting: Vec<ResumeCandidate>,
}

impl LinkSink for GatewaySink {
    async fn cursor(&self, link: LinkId) -> Result<Option<String>, Error> {
        self.ingest.db.read(move |reader| reader.cursor(&link)).await
    }

    async fn accept_batch(
        &self,
        link: LinkId,
        events: Vec<Inbound>,
        unreadable: Vec<Unreadable>,
        cursor: Option<String>,
    ) -> Result<AcceptedBatch, Error> {
        self.ingest.commit_batch(link, events, unreadable, cursor).await
    }

    /// Bounded by the number of accepted connections.
    fn post(&self, platform: &'static str, account: &str, post: Post) {
        petasos_runtime::spawn(forward::forward(self.ingest.clone(), platform, account.to_owned(), post));
    }

    fn interrupt(&self, key: SessionKey) {
        let relayed =
            |platform| self.ingest.channels.adapter(platform).is_some_and(|it| it.relay().is_some());
        if !platform_of(&key).is_some_and(relayed) {
            return tracing::warn!("connector tried to stop a session of a platform that it does not serve");
        }
        let router = self.ingest.router.clone();
        petasos_runtime::spawn(async move { router.stop_turn(key).await });
    }

    async fn came_up(&mut self, adapter: &Arc<Adapter>) {
        self.wake_lanes(adapter).await;
        if planted(PlantedBug::ForgetsCandidates) {
            self.waiting.clear();
        }
        resume::resume_candidates(&self.ingest, std::mem::take(&mut self.waiting)).await;
    }
}

impl GatewaySink {
    /// Wakes the lanes of the platforms that this adapter serves.
    async fn wake_lanes(&self, adapter: &Arc<Adapter>) {
        let channels = &self.ingest.channels;
        let served: Vec<_> =
            Platform::all().filter(|platform| channels.is_served_by(*platform, adapter)).collect();
        let platforms = served.clone();
        let lanes = self.ingest.db.write(Commit::WakeLanes, move |tx| {
            for platform in served {
                tx.clear_retry_delays(platform.as_str())?;
            }
            tx.heads()
        });
        match lanes.await {
            Ok(heads) => {
                for head in heads.into_iter().filter(|head| platforms.contains(&head.lane.platform)) {
                    self.ingest.lanes.wake(head.lane).await;
                }
            }
            Err(error) => tracing::warn!(%error, "cannot read the outbox"),
        }
    }
}

fn accept_one(
    tx: &Tx<'_>,
    rules: &IngestRules,
    channels: &Channels,
    mut inbound: Inbound,
    now: Millis,
) -> Result<IngestOutcome, StoreError> {
    let source = &inbound.source;
    if !inbound.internal {
        // A message from a dead chat proves that it is reachable again.
        tx.mark_chat_alive(source.platform, &Route::to_source(source, Delivery::Push).chat_id)?;
        match access_decision(tx, rules, source)? {
            AccessDecision::Allow => {}
            AccessDecision::Deny(Denial::Silent) => return Ok(IngestOutcome::Denied { notified: None }),
            AccessDecision::Deny(Denial::OfferPairing) => {
                return offer_pairing(tx, channels.reply_route(&inbound), source, now);
            }
        }
    }
    truncate(&mut inbound.text);
    let key = session_key(&inbound.source, &rules.keys);
    if tx.may_have_been_answered(&inbound)? {
        tx.accept_possibly_answered(&inbound, &key, now)?;
        return Ok(IngestOutcome::PossiblyAnswered(inbound));
    }
    if tx.is_replay_of_outbound(&inbound, now)? {
        return Ok(IngestOutcome::Replayed);
    }
    let accepted = tx.accept(&inbound, &key, now)?;
    let pending = PendingMessage { id: accepted.id(), key, inbound, received_at: now };
    Ok(match accepted {
        Accepted::New(_) => IngestOutcome::Accepted(pending),
        Accepted::Duplicate(_) => IngestOutcome::Duplicate(pending),
    })
}

/// Stores a message of a platform that this link does not serve, without running it.
fn reject_foreign(
    tx: &Tx<'_>,
    link: &LinkId,
    event: &Inbound,
    now: Millis,
) -> Result<IngestOutcome, StoreError> {
    let raw = serde_json::to_string(event).unwrap_or_default();
    let why = format!("it names the platform {}, which this link does not serve", event.source.platform);
    let link = link.to_string();
    let event = Some(event.dedup.clone());
    let size = raw.len() as u64;
    tx.record_unreadable(&UnreadableEvent { id: 0, link, event, why, size, at: now }, &raw)?;
    Ok(IngestOutcome::Denied { notified: None })
}

/// Checks the allowlists first, then the pairing book.
fn access_decision(tx: &Tx<'_>, rules: &IngestRules, source: &Source) -> Result<AccessDecision, StoreError> {
    let upstream = rules.relayed.includes(source.platform);
    let trust = SenderTrust { role: source.role_authorized, upstream, ..SenderTrust::default() };
    let listed = access::decide(&rules.access, source, trust);
    let (AccessDecision::Deny(_), Some(user)) = (listed, &source.user_id) else { return Ok(listed) };
    let paired = tx.is_paired(source.platform, user)?;
    Ok(access::decide(&rules.access, source, SenderTrust { paired, ..trust }))
}

/// Whether the author may use the agent.
pub(crate) fn is_authorised(tx: &Tx<'_>, rules: &IngestRules, source: &Source) -> Result<bool, StoreError> {
    Ok(access_decision(tx, rules, source)? == AccessDecision::Allow)
}

fn truncate(text: &mut String) {
    if text.len() <= LONGEST_TEXT {
        return;
    }
    let end = text.floor_char_boundary(LONGEST_TEXT);
    text.truncate(end);
    text.push_str(notices::files::MESSAGE_CUT);
}

fn offer_pairing(
    tx: &Tx<'_>,
    route: Route,
    source: &Source,
    now: Millis,
) -> Result<IngestOutcome, StoreError> {
    let Some(user) = &source.user_id else { return Ok(IngestOutcome::Denied { notified: None }) };
    let text = match tx.pairing_request(source.platform, user, source.user_name.as_deref(), now)? {
        PairingReply::Code(code) => notices::access::pairing_offer(source.platform, &code),
        PairingReply::Refused => notices::access::PAIRING_CLOSED.to_owned(),
        PairingReply::Silent => return Ok(IngestOutcome::Denied { notified: None }),
    };
    if route.delivery == Delivery::Pull {
        return Ok(IngestOutcome::Denied { notified: None });
    }
    let lane = route.lane();
    tx.apply(&[Write::Enqueue(Draft::notice(route, text))], now)?;
    Ok(IngestOutcome::Denied { notified: Some(lane) })
}
