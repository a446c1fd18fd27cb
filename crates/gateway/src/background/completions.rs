//! Ended background work, on its way to the session that started it.
//!
//! Owns nothing: a completion is a row until it is a message of the inbox, in one commit, and from there on it goes the
//! way of every message, as a turn of its own that interrupts nobody. It goes to the session and the chat that the work
//! was started from and nowhere else. While its platform is away it stays a row. If its conversation has been ended
//! meanwhile, the new one is not bothered with it: the chat is told once that it ended, and it is listed with the reason.

use std::sync::Arc;

use petasos_agent::Event;
use petasos_core::journal::{Outcome, Write};
use petasos_core::link::State;
use petasos_core::message::Delivery;
use petasos_core::outbox::{Draft, Kind};
use petasos_core::{InboxId, LaneId, Millis, Platform, Route, SessionId, SessionKey};
use petasos_store::{Completion, CompletionState, Error as StoreError, Pending, Tx};
use tokio::sync::Notify;
use tokio::time::Duration;

use crate::api::status::{LinkStatus, Untold};
use crate::background::delegation;
use crate::delivery::Deliver;
use crate::lifecycle::shutdown::Stopper;
use crate::links::any_changed;
use crate::links::channels::Channels;
use crate::links::supervisor::LinkHandle;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{Planted, planted};
use crate::sessions::router::Router;
use crate::storage::database::Db;
use crate::{Error, clock};

/// Rung after a commit that somebody waits for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bell(Arc<Notify>);

impl Bell {
    pub(crate) fn ring(&self) {
        self.0.notify_one();
    }

    pub(crate) async fn rung(&self) {
        self.0.notified().await;
    }
}

/// Completions in one commit.
const BATCH: usize = 64;
/// How long to wait when the store refuses.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// What completions are handed over with.
#[derive(Debug)]
pub(crate) struct HandOver {
    pub(crate) db: Db,
    pub(crate) channels: Arc<Channels>,
    pub(crate) router: Router,
    pub(crate) deliver: Deliver,
    pub(crate) stopper: Stopper,
}

pub(crate) async fn run(with: HandOver, bell: Bell, mut links: Vec<LinkHandle>) {
    loop {
        links.iter_mut().for_each(|link| link.link.mark_unchanged());
        let there = connected(&links);
        let again = match hand_over(&with, there).await {
            Ok(more) => more,
            Err(Error::Stopping) => return,
            Err(error) => {
                tracing::warn!(%error, "ended background work is not handed over yet");
                tokio::time::sleep(STORE_RETRY).await;
                true
            }
        };
        petasos_runtime::select! {
            () = with.stopper.stopped() => return,
            () = std::future::ready(()), if again => {}
            () = bell.rung() => {}
            () = any_changed(&mut links) => {}
        }
    }
}

pub(crate) fn connected(links: &[LinkHandle]) -> Vec<&'static str> {
    let up = |link: &&LinkHandle| matches!(link.link.borrow().state, State::Up { .. });
    links.iter().filter(up).map(|link| link.name).collect()
}

/// `true`: there may be more.
async fn hand_over(with: &HandOver, there: Vec<&'static str>) -> Result<bool, Error> {
    let channels = with.channels.clone();
    let reachable = move |platform: Platform| {
        let link = channels.adapter(platform).map(|adapter| adapter.platform().as_str());
        link.is_some_and(|link| there.contains(&link))
            || channels.capabilities(platform).delivery == Delivery::Pull
    };
    // Most of the time there is nothing, and a look costs no commit.
    let waiting = with.db.read(|reader| reader.queued_completions()).await?;
    let mut waiting: Vec<_> = waiting.into_iter().filter(|it| reachable(it.origin.platform)).collect();
    let more = waiting.len() > BATCH;
    waiting.truncate(BATCH);
    if waiting.is_empty() {
        return Ok(false);
    }
    if planted(Planted::DeliveredFirst) {
        let names: Vec<_> = waiting.iter().map(|it| it.dispatch.clone()).collect();
        let marked = with.db.write(Commit::Completions, move |tx| {
            names.iter().try_for_each(|name| tx.completion_consumed(name, clock::now()).map(drop))
        });
        marked.await?;
    }
    let channels = with.channels.clone();
    let accept = move |tx: &Tx<'_>| -> Result<Vec<Handed>, StoreError> {
        let accepted = waiting.into_iter().map(|completion| accept(tx, &channels, completion));
        Ok(accepted.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    };
    for handed in with.db.write(Commit::Completions, accept).await? {
        match handed {
            Handed::ToSession(pending) => with.router.arrived(pending.key.clone(), *pending).await,
            Handed::ToChat(lane) => with.deliver.due(lane).await,
        }
    }
    Ok(more)
}

/// Who is told.
enum Handed {
    ToSession(Box<Pending>),
    /// Its conversation is over: a word in the chat is all.
    ToChat(LaneId),
}

/// From a row to a message: both, or neither. `None`: its session has learned of it meanwhile.
fn accept(tx: &Tx<'_>, channels: &Channels, completion: Completion) -> Result<Option<Handed>, StoreError> {
    let now = clock::now();
    let Some((text, headline)) = words(&completion) else {
        tracing::error!(completion.dispatch, "ended background work cannot be read and is passed over");
        tx.completion_consumed(&completion.dispatch, now)?;
        return Ok(None);
    };
    if planted(Planted::DeliveredFirst) {
        let name = format!("completion:{}", completion.dispatch);
        let inbound = petasos_core::Inbound::internal(completion.origin, name, text);
        let (id, key) = (tx.accept(&inbound, &completion.key, now)?.id(), completion.key);
        return Ok(Some(Handed::ToSession(Box::new(Pending { id, key, inbound, received_at: now }))));
    }
    let current = tx.bound(&completion.key)?;
    if completion.session.is_none() || completion.session == current {
        return Ok(tx.hand_over(completion, text, now)?.map(|pending| Handed::ToSession(Box::new(pending))));
    }
    Ok(pass_over(tx, channels, completion, &headline, now)?.map(Handed::ToChat))
}

/// Its conversation is over: it is listed with the reason, and the chat is told once, in one line. Gives the lane that
/// owes this. `None`: it had been told before, or nobody would see it there.
fn pass_over(
    tx: &Tx<'_>,
    channels: &Channels,
    completion: Completion,
    headline: &str,
    now: Millis,
) -> Result<Option<LaneId>, StoreError> {
    if !tx.completion_undeliverable(completion.id, ENDED, now)? {
        return Ok(None);
    }
    let route =
        Route::back_to(&completion.origin, channels.capabilities(completion.origin.platform).delivery);
    if route.delivery == Delivery::Pull {
        return Ok(None);
    }
    let lane = route.lane();
    tx.apply(&[Write::Owe(word(route, completion.key, headline))], now)?;
    Ok(Some(lane))
}

/// A message in the queue of a conversation, when it would be dealt with.
pub(crate) enum Queued {
    /// Not ours, or it belongs here.
    Stays,
    /// It tells of work of a conversation that is over, and has been dealt with. The lane that says so, if one does.
    PassedOver(Option<LaneId>),
}

/// Looks once more to whom a completion belongs, now that `current` is the conversation: between the queue and the turn
/// it may have become another one. What belongs to an earlier one is settled here.
pub(crate) fn look_again(
    tx: &Tx<'_>,
    channels: &Channels,
    inbox: InboxId,
    current: Option<&SessionId>,
    now: Millis,
) -> Result<Queued, StoreError> {
    let Some(completion) = tx.completion_of(inbox)? else { return Ok(Queued::Stays) };
    if completion.session.is_none() || completion.session.as_ref() == current {
        return Ok(Queued::Stays);
    }
    let headline = words(&completion).map_or_else(|| "background work has ended".into(), |it| it.1);
    let lane = pass_over(tx, channels, completion, &headline, now)?;
    let outcome = Outcome::Cancelled;
    tx.apply(&[Write::SettleInbox { inbox: vec![inbox], outcome, at: now }], now)?;
    Ok(Queued::PassedOver(lane))
}

/// What the conversation is told, and in one line. `None`: it cannot be read.
fn words(completion: &Completion) -> Option<(String, String)> {
    if let Some(told) = delegation::told(&completion.kind, &completion.payload) {
        return Some((told.text, told.headline));
    }
    let event: Event = serde_json::from_str(&completion.payload).ok()?;
    Some((event.text(), event.headline()))
}

/// Why it is not told to the conversation.
const ENDED: &str = "the conversation it was started in has ended";

/// What the chat is told of work that a conversation before the present one has started.
fn word(route: Route, key: SessionKey, headline: &str) -> Draft {
    let text = format!("ℹ️ From an earlier conversation: {headline}.");
    Draft { route, session_key: Some(key), turn: None, kind: Kind::Notice, text, buttons: vec![] }
}

/// Why it was not told, for people.
pub(crate) fn untold(links: &[LinkStatus], completion: Completion) -> Untold {
    let platform = completion.origin.platform;
    let link = links.iter().find(|it| it.name == platform.as_str());
    let reason = match (completion.reason.clone(), link) {
        (Some(reason), _) => reason,
        (None, Some(link)) if matches!(link.link.state, State::Up { .. }) => {
            "it is being handed over".to_owned()
        }
        (None, Some(_)) => format!("{platform} is not connected"),
        (None, None) => format!("{platform} is not set up"),
    };
    Untold {
        work: completion.dispatch,
        kind: completion.kind,
        session_key: completion.key.0,
        undeliverable: completion.state == CompletionState::Undeliverable,
        reason,
        since: completion.created_at,
    }
}
