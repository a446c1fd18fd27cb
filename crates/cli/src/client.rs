//! The companion's side of the control socket.

mod sse;

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use petasos_config::Home;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::{lock, socket};
pub use sse::{Event, Events};

/// The host part is never looked up: every request goes to the socket.
const BASE: &str = "http://petasos";
const PATIENCE: Duration = Duration::from_secs(30);

/// A way to a gateway that answered a moment ago.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    /// Where its web page is, if it has one.
    pub url: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody is there (any more).
    #[error("the gateway does not answer")]
    Gone,
    #[error("{}", told(.0))]
    Refused(Value),
    #[error("the gateway's answer cannot be read: {0}")]
    Unreadable(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Gone => Self::new(error.to_string()).next("petasos status shows whether it runs"),
            Error::Refused(_) | Error::Unreadable(_) => Self::new(error.to_string()),
        }
    }
}

impl Error {
    /// A fact that came with a refusal; its `code` says which kind it is.
    pub fn fact(&self, name: &str) -> Option<&Value> {
        match self {
            Self::Refused(error) => error.get(name),
            Self::Gone | Self::Unreadable(_) => None,
        }
    }
}

fn told(error: &Value) -> &str {
    error["message"].as_str().unwrap_or("the gateway refused, and did not say why")
}

impl Client {
    /// `None`: no gateway runs on this home.
    pub fn connect(home: &Home) -> Result<Option<Self>, Failure> {
        let record = lock::holder(&home.lock_file());
        let path = path(home, record.as_ref());
        if UnixStream::connect(&path).is_err() {
            return Ok(None);
        }
        let http = reqwest::Client::builder().unix_socket(path).build();
        let http = http.map_err(|error| Failure::new(format!("no HTTP client: {error}")))?;
        Ok(Some(Self { http, url: record.and_then(|record| record.url) }))
    }

    /// The gateway, or what to do without one.
    pub fn require(home: &Home) -> Result<Self, Failure> {
        Self::connect(home)?.ok_or_else(|| nobody(home))
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.finish(self.http.get(format!("{BASE}{path}"))).await
    }

    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        self.finish(self.http.post(format!("{BASE}{path}")).json(body)).await
    }

    /// The same for what takes its time.
    pub async fn post_within<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        patience: Duration,
    ) -> Result<T, Error> {
        self.finish_within(self.http.post(format!("{BASE}{path}")).json(body), patience).await
    }

    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.finish(self.http.delete(format!("{BASE}{path}"))).await
    }

    /// The events of a conversation, from row `after` of `session` on.
    pub async fn events(&self, chat: &str, after: i64, session: Option<&str>) -> Result<Events, Error> {
        let mut path = format!("{BASE}/api/chats/terminal/{chat}/events?after={after}");
        if let Some(session) = session {
            path.push_str(&format!("&session={session}"));
        }
        let response = self.http.get(path).send().await.map_err(|_| Error::Gone)?;
        Ok(Events::new(checked(response).await?))
    }

    async fn finish<T: DeserializeOwned>(&self, request: reqwest::RequestBuilder) -> Result<T, Error> {
        self.finish_within(request, PATIENCE).await
    }

    async fn finish_within<T: DeserializeOwned>(
        &self,
        request: reqwest::RequestBuilder,
        patience: Duration,
    ) -> Result<T, Error> {
        let response = request.timeout(patience).send().await.map_err(|_| Error::Gone)?;
        let bytes = checked(response).await?.bytes().await.map_err(|_| Error::Gone)?;
        let text: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(text).map_err(|error| Error::Unreadable(error.to_string()))
    }
}

/// There is no gateway that answers, and what to do about it.
pub fn nobody(home: &Home) -> Failure {
    let path = home.path().display();
    if lock::is_held(&home.lock_file()) {
        let failure = Failure::new(format!("the gateway on {path} does not answer; it may be starting"));
        return failure.next("try again in a moment; petasos status shows its state");
    }
    Failure::new(format!("no gateway is running on {path}")).next("start one: petasos run")
}

async fn checked(response: reqwest::Response) -> Result<reqwest::Response, Error> {
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let mut body: Value = response.json().await.unwrap_or_default();
    let error = body.get_mut("error").map(Value::take).filter(|error| error["message"].is_string());
    Err(Error::Refused(
        error.unwrap_or_else(|| json!({ "message": format!("the gateway answered {status}") })),
    ))
}

fn path(home: &Home, record: Option<&lock::Record>) -> PathBuf {
    let announced = record.and_then(|record| record.socket.clone());
    announced.unwrap_or_else(|| socket::place(home.path(), |name| std::env::var_os(name)))
}
