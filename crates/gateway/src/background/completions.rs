//! Dispatches background completions to the session that started the work.
//!
//! Owns nothing. One commit turns a completion row into an inbox message, which gets a turn of its own and interrupts
//! no other. It goes only to the session and chat that started the work, and stays a row while that platform is
//! disconnected. If the conversation has ended, the chat gets one notice and the row is listed as undeliverable.

use std::sync::Arc;

use petasos_agent::ProcessEvent;
use petasos_core::journal::{MessageOutcome, Write};
use petasos_core::link::State;
use petasos_core::message::Delivery;
use petasos_core::outbox::{Draft, Kind};
use petasos_core::{InboxId, LaneId, Millis, Platform, Redactor, Route, SessionId, SessionKey};
use petasos_store::{Completion, CompletionState, Error as StoreError, PendingMessage, Tx};
use tokio::sync::Notify;
use tokio::time::Duration;

use crate::api::status::{LinkStatus, UndeliveredCompletion};
use crate::background::delegation;
use crate::delivery::LaneDispatcher;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::links::any_changed;
use crate::links::channels::Channels;
use crate::links::supervisor::LinkHandle;
use crate::notices::work as notices;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{PlantedBug, planted};
use crate::sessions::router::Router;
use crate::storage::database::Db;
use crate::{Error, clock};

#[derive(Debug, Clone, Default)]
pub(crate) struct WakeSignal(Arc<Notify>);

impl WakeSignal {
    pub(crate) fn notify(&self) {
        self.0.notify_one();
    }

    pub(crate) async fn notified(&self) {
        self.0.notified().await;
    }
}

const BATCH: usize = 64;
const STORE_RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct CompletionDispatcher {
    pub(crate) db: Db,
    pub(crate) channels: Arc<Channels>,
    pub(crate) router: Router,
    pub(crate) lanes: LaneDispatcher,
    pub(crate) redactor: Redactor,
    pub(crate) shutdown: ShutdownHandle,
}

pub(crate) async fn run(dispatcher: CompletionDispatcher, wake: WakeSignal, mut links: Vec<LinkHandle>) {
    loop {
        links.iter_mut().for_each(|link| link.link.mark_unchanged());
        let connected_links = connected(&links);
        let again = match dispatch(&dispatcher, connected_links).await {
            Ok(more) => more,
            Err(Error::Stopping) => return,
            Err(error) => {
                tracing::warn!(%error, "background completions are delayed");
                clock::sleep(STORE_RETRY).await;
                true
            }
        };
        petasos_runtime::select! {
            () = dispatcher.shutdown.stopped() => return,
            () = std::future::ready(()), if again => {}
            () = wake.notified() => {}
            () = any_changed(&mut links) => {}
        }
    }
}

pub(crate) fn connected(links: &[LinkHandle]) -> Vec<&'static str> {
    let up = |link: &&LinkHandle| matches!(link.link.borrow().state, State::Up { .. });
    links.iter().filter(up).map(|link| link.name).collect()
}

/// Dispatches one batch. `true`: there may be more.
async fn dispatch(
    dispatcher: &CompletionDispatcher,
    connected_links: Vec<&'static str>,
) -> Result<bool, Error> {
    let channels = dispatcher.channels.clone();
    let reachable = move |platform: Platform| {
        let link = channels.adapter(platform).map(|adapter| adapter.platform().as_str());
        link.is_some_and(|link| connected_links.contains(&link))
            || channels.capabilities(platform).delivery == Delivery::Pull
    };
    // Reading first avoids a commit when there is nothing to do.
    let waiting = dispatcher.db.read(|reader| reader.queued_completions()).await?;
    let mut waiting: Vec<_> = waiting.into_iter().filter(|it| reachable(it.origin.platform)).collect();
    let more = waiting.len() > BATCH;
    waiting.truncate(BATCH);
    if waiting.is_empty() {
        return Ok(false);
    }
    if planted(PlantedBug::DeliveredFirst) {
        let names: Vec<_> = waiting.iter().map(|it| it.dispatch.clone()).collect();
        let marked = dispatcher.db.write(Commit::Completions, move |tx| {
            names.iter().try_for_each(|name| tx.completion_consumed(name, clock::now()).map(drop))
        });
        marked.await?;
    }
    let channels = dispatcher.channels.clone();
    let redactor = dispatcher.redactor.clone();
    let accept = move |tx: &Tx<'_>| -> Result<Vec<Dispatched>, StoreError> {
        let accepted = waiting.into_iter().map(|completion| accept(tx, &channels, &redactor, completion));
        Ok(accepted.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    };
    for dispatched in dispatcher.db.write(Commit::Completions, accept).await? {
        match dispatched {
            Dispatched::ToSession(pending) => dispatcher.router.deliver(pending.key.clone(), *pending).await,
            Dispatched::ToChat(lane) => dispatcher.lanes.wake(lane).await,
        }
    }
    Ok(more)
}

enum Dispatched {
    ToSession(Box<PendingMessage>),
    /// The conversation has ended: a notice for the chat is enqueued.
    ToChat(LaneId),
}

/// Turns a row into a message. `None`: the session has consumed it meanwhile.
fn accept(
    tx: &Tx<'_>,
    channels: &Channels,
    redactor: &Redactor,
    completion: Completion,
) -> Result<Option<Dispatched>, StoreError> {
    let now = clock::now();
    let Some((text, headline)) = render(&completion) else {
        tracing::error!(completion.dispatch, "skipped an unreadable background completion");
        tx.completion_consumed(&completion.dispatch, now)?;
        return Ok(None);
    };
    let text = redactor.redact_owned(text);
    if planted(PlantedBug::DeliveredFirst) {
        let name = format!("completion:{}", completion.dispatch);
        let inbound = petasos_core::Inbound::internal(completion.origin, name, text);
        let id = tx.accept(&inbound, &completion.key, now)?.id();
        let key = completion.key;
        return Ok(Some(Dispatched::ToSession(Box::new(PendingMessage {
            id,
            key,
            inbound,
            received_at: now,
        }))));
    }
    let current = tx.bound(&completion.key)?;
    if completion.session.is_none() || completion.session == current {
        return Ok(tx
            .deliver_completion(completion, text, now)?
            .map(|pending| Dispatched::ToSession(Box::new(pending))));
    }
    Ok(reject(tx, channels, completion, &headline, now)?.map(Dispatched::ToChat))
}

/// Marks a completion as undeliverable because its conversation has ended, and enqueues one notice for the chat. Returns
/// its lane. `None`: already marked, or the chat receives no messages.
fn reject(
    tx: &Tx<'_>,
    channels: &Channels,
    completion: Completion,
    headline: &str,
    now: Millis,
) -> Result<Option<LaneId>, StoreError> {
    if !tx.completion_undeliverable(completion.id, CONVERSATION_ENDED, now)? {
        return Ok(None);
    }
    let route =
        Route::to_source(&completion.origin, channels.capabilities(completion.origin.platform).delivery);
    if route.delivery == Delivery::Pull {
        return Ok(None);
    }
    let lane = route.lane();
    tx.apply(&[Write::Enqueue(earlier_conversation_notice(route, completion.key, headline))], now)?;
    Ok(Some(lane))
}

pub(crate) enum QueuedCompletion {
    /// Not a completion, or one of the current conversation.
    Stays,
    /// A completion of an ended conversation; settled. The lane of the notice, if there is one.
    Rejected(Option<LaneId>),
}

/// Checks again that a completion belongs to the `current` conversation, which may have changed since it was queued.
/// Settles completions of earlier conversations.
pub(crate) fn recheck_session(
    tx: &Tx<'_>,
    channels: &Channels,
    inbox: InboxId,
    current: Option<&SessionId>,
    now: Millis,
) -> Result<QueuedCompletion, StoreError> {
    let Some(completion) = tx.completion_of(inbox)? else { return Ok(QueuedCompletion::Stays) };
    if completion.session.is_none() || completion.session.as_ref() == current {
        return Ok(QueuedCompletion::Stays);
    }
    let headline = render(&completion).map_or_else(|| notices::ENDED_WITHOUT_NAME.into(), |it| it.1);
    let lane = reject(tx, channels, completion, &headline, now)?;
    let outcome = MessageOutcome::Cancelled;
    tx.apply(&[Write::SettleInbox { inbox: vec![inbox], outcome, at: now }], now)?;
    Ok(QueuedCompletion::Rejected(lane))
}

fn render(completion: &Completion) -> Option<(String, String)> {
    if let Some(message) = delegation::message(&completion.kind, &completion.payload) {
        return Some((message.text, message.headline));
    }
    let event: ProcessEvent = serde_json::from_str(&completion.payload).ok()?;
    Some((event.text(), event.headline()))
}

const CONVERSATION_ENDED: &str = "the conversation it was started in has ended";

fn earlier_conversation_notice(route: Route, key: SessionKey, headline: &str) -> Draft {
    let text = notices::from_earlier_conversation(headline);
    Draft { route, session_key: Some(key), turn: None, kind: Kind::Notice, text, buttons: vec![] }
}

pub(crate) fn undelivered(links: &[LinkStatus], completion: Completion) -> UndeliveredCompletion {
    let platform = completion.origin.platform;
    let link = links.iter().find(|it| it.name == platform.as_str());
    let reason = match (completion.reason.clone(), link) {
        (Some(reason), _) => reason,
        (None, Some(link)) if matches!(link.link.state, State::Up { .. }) => {
            "it is being delivered".to_owned()
        }
        (None, Some(_)) => format!("{platform} is not connected"),
        (None, None) => format!("{platform} is not set up"),
    };
    UndeliveredCompletion {
        work: completion.dispatch,
        kind: completion.kind,
        session_key: completion.key.0,
        undeliverable: completion.state == CompletionState::Undeliverable,
        reason,
        since: completion.created_at,
    }
}
