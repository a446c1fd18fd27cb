//! Idempotency of gateway requests: a repeated request id gets the first answer. The id is on disk before the platform
//! is called; an id without an answer after a crash has an unknown outcome and is never repeated.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_core::{InstanceId, LaneId, Millis};
use petasos_gateway::shell::Db;
use petasos_gateway::{Commit, Error, clock};
use petasos_relay::Answer;
use petasos_runtime::fault_injection::{PlantedBug, planted};
use petasos_store::connector::RequestState;
use serde_json::Value;
use tokio::sync::watch;

pub(crate) const ANSWER_RETENTION: Duration = Duration::from_secs(24 * 3600);

const LOST: &str = "the connector was interrupted while it called the platform";

/// Instance and request id.
type RequestKey = (InstanceId, String);

#[derive(Debug)]
pub(crate) struct RequestTable {
    db: Db,
    /// After a salvage or a restore: requests before this time may have been performed without a row.
    unknown_before: Option<Millis>,
    /// Calls in flight in this process.
    open: Mutex<HashMap<RequestKey, watch::Receiver<Option<Answer>>>>,
}

/// A call in flight. Dropping it releases its waiters without an answer.
struct InFlight<'a> {
    requests: &'a RequestTable,
    key: RequestKey,
    sender: watch::Sender<Option<Answer>>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.requests.lock().remove(&self.key);
    }
}

impl RequestTable {
    pub(crate) fn new(db: Db, unknown_before: Option<Millis>) -> Self {
        Self { db, unknown_before, open: Mutex::default() }
    }

    /// How far back every performed request is known. A gateway repeats an older one with the mark of a possible duplicate.
    pub(crate) fn memory(&self) -> Duration {
        let known = self.unknown_before.map_or(ANSWER_RETENTION, |at| clock::now().since(at));
        known.min(ANSWER_RETENTION)
    }

    /// `lane`: the chat of the message that the request creates.
    pub(crate) async fn run_once(
        &self,
        instance: &InstanceId,
        request: &str,
        lane: &LaneId,
        work: impl Future<Output = Answer>,
    ) -> Answer {
        let name = (instance.clone(), request.to_owned());
        let open = match self.register(name) {
            Ok(open) => open,
            Err(mut other) => {
                let answer = other.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
                return answer.unwrap_or_else(|| Answer::doubtful(LOST));
            }
        };
        let answer = match self.record_start(&open.key).await {
            Ok(RequestState::New) => {
                let answer = work.await;
                if let Err(error) = self.store_answer(&open.key, lane, &answer).await {
                    // A repeat then gets an unknown outcome.
                    tracing::error!(%error, "cannot store the answer of a request");
                }
                answer
            }
            Ok(RequestState::Answered(text)) => parse_answer(&text),
            Ok(RequestState::InProgress) => Answer::doubtful(LOST),
            Err(error) => Answer { retry_after: Some(1), ..Answer::failed(error.to_string()) },
        };
        open.sender.send_replace(Some(answer.clone()));
        answer
    }

    /// `Err`: the call is in flight.
    fn register(&self, name: RequestKey) -> Result<InFlight<'_>, watch::Receiver<Option<Answer>>> {
        let mut open = self.lock();
        if let Some(other) = open.get(&name) {
            return Err(other.clone());
        }
        let (sender, receiver) = watch::channel(None);
        open.insert(name.clone(), receiver);
        Ok(InFlight { requests: self, key: name, sender })
    }

    async fn record_start(&self, (instance, request): &RequestKey) -> Result<RequestState, Error> {
        if planted(PlantedBug::RepeatsRequests) {
            return Ok(RequestState::New);
        }
        let instance = instance.clone();
        let request = request.clone();
        let now = clock::now();
        self.db.write(Commit::Connector, move |tx| tx.begin_request(&instance, &request, now)).await
    }

    async fn store_answer(
        &self,
        (instance, request): &RequestKey,
        lane: &LaneId,
        answer: &Answer,
    ) -> Result<(), Error> {
        let instance = instance.clone();
        let request = request.clone();
        let message = answer.message_id.as_ref().map(|id| message_name(lane, id));
        let known = answer.success || answer.ambiguous;
        let text = answer.value().to_string();
        let stored = self.db.write(Commit::Connector, move |tx| {
            if known {
                return tx.finish_request(&instance, &request, &text, message.as_deref());
            }
            // It certainly had no effect, so it may be repeated.
            tx.delete_request(&instance, &request)
        });
        stored.await
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RequestKey, watch::Receiver<Option<Answer>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message that a request created, as the store names it.
pub(crate) fn message_name(lane: &LaneId, message: &str) -> String {
    format!("{lane}:{message}")
}

fn parse_answer(text: &str) -> Answer {
    match serde_json::from_str(text) {
        Ok(Value::Object(answer)) => Answer::read(&answer),
        Ok(_) | Err(_) => Answer::doubtful(LOST),
    }
}
