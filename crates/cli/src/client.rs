//! Client of the gateway's control socket.

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
pub use sse::{Event, EventStream};

/// Every request goes to the socket; the host is never resolved.
const BASE: &str = "http://petasos";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    /// Address of the web page, if the gateway serves one.
    pub url: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the gateway does not answer")]
    Unreachable,
    #[error("{}", error_message(.0))]
    Refused(Value),
    #[error("the gateway's answer cannot be read: {0}")]
    Malformed(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Unreachable => {
                Self::new(error.to_string()).next("petasos status shows whether it is running")
            }
            Error::Refused(_) | Error::Malformed(_) => Self::new(error.to_string()),
        }
    }
}

impl Error {
    /// A field of the error that the gateway returned; `code` holds its kind.
    pub fn detail(&self, name: &str) -> Option<&Value> {
        match self {
            Self::Refused(error) => error.get(name),
            Self::Unreachable | Self::Malformed(_) => None,
        }
    }
}

fn error_message(error: &Value) -> &str {
    error["message"].as_str().unwrap_or("the gateway refused the request without a reason")
}

impl Client {
    /// `None` if no gateway runs on this home.
    pub fn connect(home: &Home) -> Result<Option<Self>, Failure> {
        let record = lock::holder(&home.lock_file());
        let path = socket_path(home, record.as_ref());
        if UnixStream::connect(&path).is_err() {
            return Ok(None);
        }
        let http = reqwest::Client::builder().unix_socket(path).build();
        let http =
            http.map_err(|error| Failure::new(format!("the HTTP client cannot be started: {error}")))?;
        Ok(Some(Self { http, url: record.and_then(|record| record.url) }))
    }

    /// Connects, or fails with advice for starting a gateway.
    pub fn require(home: &Home) -> Result<Self, Failure> {
        Self::connect(home)?.ok_or_else(|| no_gateway(home))
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.send(self.http.get(format!("{BASE}{path}"))).await
    }

    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        self.send(self.http.post(format!("{BASE}{path}")).json(body)).await
    }

    pub async fn post_with_timeout<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        timeout: Duration,
    ) -> Result<T, Error> {
        self.send_with_timeout(self.http.post(format!("{BASE}{path}")).json(body), timeout).await
    }

    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.send(self.http.delete(format!("{BASE}{path}"))).await
    }

    /// The events of a conversation, after row `after` of `session`.
    pub async fn events(&self, chat: &str, after: i64, session: Option<&str>) -> Result<EventStream, Error> {
        let mut path = format!("{BASE}/api/chats/terminal/{chat}/events?after={after}");
        if let Some(session) = session {
            path.push_str(&format!("&session={session}"));
        }
        let response = self.http.get(path).send().await.map_err(|_| Error::Unreachable)?;
        Ok(EventStream::new(check_status(response).await?))
    }

    async fn send<T: DeserializeOwned>(&self, request: reqwest::RequestBuilder) -> Result<T, Error> {
        self.send_with_timeout(request, DEFAULT_TIMEOUT).await
    }

    async fn send_with_timeout<T: DeserializeOwned>(
        &self,
        request: reqwest::RequestBuilder,
        timeout: Duration,
    ) -> Result<T, Error> {
        let response = request.timeout(timeout).send().await.map_err(|_| Error::Unreachable)?;
        let bytes = check_status(response).await?.bytes().await.map_err(|_| Error::Unreachable)?;
        let text: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(text).map_err(|error| Error::Malformed(error.to_string()))
    }
}

/// The failure to report when no gateway answers.
pub fn no_gateway(home: &Home) -> Failure {
    let path = home.path().display();
    if lock::is_held(&home.lock_file()) {
        let failure = Failure::new(format!("the gateway on {path} does not answer; it may be starting"));
        return failure.next("try again in a moment, or check with petasos status");
    }
    Failure::new(format!("no gateway is running on {path}")).next("start one: petasos run")
}

async fn check_status(response: reqwest::Response) -> Result<reqwest::Response, Error> {
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

fn socket_path(home: &Home, record: Option<&lock::LockRecord>) -> PathBuf {
    let published = record.and_then(|record| record.socket.clone());
    published.unwrap_or_else(|| socket::path_for(home.path(), |name| std::env::var_os(name)))
}
