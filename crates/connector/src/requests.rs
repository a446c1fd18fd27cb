//! What gateways ask for, once: whoever asks again under the same number gets the same answer.
//!
//! Before a platform is asked, the number is on disk; its answer follows. Whoever repeats a number while it is under way
//! waits for that answer. After a crash nobody knows what became of a number without an answer: it is called doubtful,
//! and never done again by us. What certainly had no effect is forgotten, so that it may be tried again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_gateway::Commit;
use petasos_gateway::shell::Db;
use petasos_gateway::{Error, clock};
use petasos_relay::Answer;
use petasos_runtime::fault_injection::{Planted, planted};
use petasos_store::connector::Request;
use serde_json::Value;
use tokio::sync::watch;

/// How long answers are remembered.
pub(crate) const MEMORY: Duration = Duration::from_secs(24 * 3600);

const LOST: &str = "the connector was interrupted while it asked the platform";

type Name = (String, String);

#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Under way in this process. Held only to look and to change.
    open: Mutex<HashMap<Name, watch::Receiver<Option<Answer>>>>,
}

/// Dropping it lets those go who wait for it, with nothing.
struct Open<'a> {
    requests: &'a Requests,
    name: Name,
    tell: watch::Sender<Option<Answer>>,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.requests.lock().remove(&self.name);
    }
}

impl Requests {
    /// `place`: where what comes of it is said. See `written`.
    pub(crate) async fn once(
        &self,
        db: &Db,
        instance: &str,
        request: &str,
        place: &str,
        work: impl Future<Output = Answer>,
    ) -> Answer {
        let name = (instance.to_owned(), request.to_owned());
        let open = match self.open(name) {
            Ok(open) => open,
            Err(mut other) => {
                let answer = other.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
                return answer.unwrap_or_else(|| Answer::doubtful(LOST));
            }
        };
        let answer = match begin(db, &open.name).await {
            Ok(Request::New) => {
                let answer = work.await;
                if let Err(error) = end(db, &open.name, place, &answer).await {
                    // Whoever asks again hears that nobody knows, which is less than the truth and no lie.
                    tracing::error!(%error, "an answer is not kept");
                }
                answer
            }
            Ok(Request::Answered(text)) => kept(&text),
            Ok(Request::Begun) => Answer::doubtful(LOST),
            Err(error) => Answer { retry_after: Some(1), ..Answer::failed(error.to_string()) },
        };
        open.tell.send_replace(Some(answer.clone()));
        answer
    }

    /// `Err`: somebody is at it.
    fn open(&self, name: Name) -> Result<Open<'_>, watch::Receiver<Option<Answer>>> {
        let mut open = self.lock();
        if let Some(other) = open.get(&name) {
            return Err(other.clone());
        }
        let (tell, told) = watch::channel(None);
        open.insert(name.clone(), told);
        Ok(Open { requests: self, name, tell })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, watch::Receiver<Option<Answer>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn begin(db: &Db, (instance, request): &Name) -> Result<Request, Error> {
    if planted(Planted::RepeatsRequests) {
        return Ok(Request::New);
    }
    let (instance, request, now) = (instance.clone(), request.clone(), clock::now());
    db.write(Commit::Connector, move |tx| tx.begin_request(&instance, &request, now)).await
}

async fn end(db: &Db, (instance, request): &Name, place: &str, answer: &Answer) -> Result<(), Error> {
    let (instance, request) = (instance.clone(), request.clone());
    let message = answer.message_id.as_ref().map(|id| format!("{place}:{id}"));
    let (known, text) = (answer.success || answer.ambiguous, answer.value().to_string());
    db.write(Commit::Connector, move |tx| match known {
        true => tx.answer_request(&instance, &request, &text, message.as_deref()),
        false => tx.forget_request(&instance, &request),
    })
    .await
}

fn kept(text: &str) -> Answer {
    match serde_json::from_str(text) {
        Ok(Value::Object(answer)) => Answer::read(&answer),
        Ok(_) | Err(_) => Answer::doubtful(LOST),
    }
}
