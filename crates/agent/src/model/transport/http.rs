//! One model call over HTTP, without retries.
//!
//! Owns the shared clients, which are built on first use: loading trust roots costs start-up time and memory.

use std::error::Error as _;
use std::sync::OnceLock;
use std::time::Duration;

use petasos_core::Provider;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response, Url};
use tokio::time::timeout;

use crate::model::config::ConfiguredModel;
use crate::model::failure::{CallError, ModelFailureClass};
use crate::model::provider::{Prompt, Protocol, ResponseDraft};
use crate::model::request::Chunk;
use crate::model::transport::classify::{classify, retry_after};
use crate::model::transport::sse::{EventParser, LineSplitter, LineTooLong};

const ANSWER: usize = 32 << 20;
const ERROR_BODY: usize = 64 << 10;
/// Wait for the end of the body after a complete response.
const LINGER: Duration = Duration::from_millis(50);
const CONNECT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Http {
    direct: OnceLock<Client>,
    proxied: OnceLock<Client>,
}

impl Http {
    /// Fills `draft` as the response streams in. After an error it holds the text received before.
    pub(crate) async fn call(
        &self,
        link: &ConfiguredModel,
        url: &Url,
        prompt: &Prompt<'_>,
        draft: &mut ResponseDraft,
        chunks: &mut (dyn FnMut(Chunk) + Send),
    ) -> Result<(), CallError> {
        let protocol = Protocol::of(link.provider);
        let request = self
            .client(url)?
            .post(url.clone())
            .headers(headers(link))
            .json(&protocol.request(link.provider, prompt));
        let sent = timeout(link.stale, request.send())
            .await
            .map_err(|_| CallError::new(ModelFailureClass::Timeout))?;
        let mut response = sent.map_err(|error| classify_transport_error(&error))?;
        if !response.status().is_success() {
            return Err(read_error_response(link, response).await);
        }
        let mut frames = BodyDecoder::of(protocol, &response)?;
        let mut size = 0;
        loop {
            let piece = timeout(link.stale, response.chunk())
                .await
                .map_err(|_| CallError::new(ModelFailureClass::Timeout))?;
            // A stream that breaks after it has begun counts as cut, for any reason.
            let piece = piece.map_err(|_| CallError::new(ModelFailureClass::StreamCut))?;
            let Some(piece) = piece else { break };
            size += piece.len();
            if size > ANSWER {
                return Err(CallError::new(ModelFailureClass::Malformed));
            }
            let events =
                frames.push(&piece).map_err(|LineTooLong| CallError::new(ModelFailureClass::Malformed))?;
            apply_event(protocol, link, &events, draft, chunks)?;
            if draft.done {
                // Reading the body to its end returns the connection to the pool.
                let _end = timeout(LINGER, response.chunk()).await;
                return Ok(());
            }
        }
        apply_event(protocol, link, &frames.rest(), draft, chunks)?;
        match (draft.is_complete(), size) {
            (true, _) => Ok(()),
            (false, 0) => Err(CallError::new(ModelFailureClass::Malformed)),
            (false, _) => Err(CallError::new(ModelFailureClass::StreamCut)),
        }
    }

    fn client(&self, url: &Url) -> Result<&Client, CallError> {
        let cell = if is_loopback(url) { &self.direct } else { &self.proxied };
        if let Some(client) = cell.get() {
            return Ok(client);
        }
        let mut builder = Client::builder()
            .connect_timeout(CONNECT)
            .tcp_keepalive(Duration::from_secs(30))
            .pool_max_idle_per_host(32)
            // A key must not follow a redirect to another host.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("petasos/", env!("CARGO_PKG_VERSION")));
        if is_loopback(url) {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|_| CallError::new(ModelFailureClass::Tls))?;
        Ok(cell.get_or_init(|| client))
    }
}

fn apply_event(
    protocol: Protocol,
    link: &ConfiguredModel,
    events: &[String],
    draft: &mut ResponseDraft,
    chunks: &mut (dyn FnMut(Chunk) + Send),
) -> Result<(), CallError> {
    for event in events {
        let applied = protocol.apply_event(draft, event, link.key.as_ref());
        draft.take_chunks().for_each(&mut *chunks);
        applied?;
    }
    Ok(())
}

fn headers(link: &ConfiguredModel) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(
        ACCEPT,
        HeaderValue::from_static("text/event-stream, application/x-ndjson, application/json"),
    );
    if link.provider == Provider::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    }
    let Some(key) = &link.key else { return headers };
    let (name, value) = match link.provider {
        Provider::Anthropic => ("x-api-key", key.expose().to_owned()),
        Provider::OpenAi | Provider::OpenRouter | Provider::Ollama | Provider::Custom | Provider::Demo => {
            (AUTHORIZATION.as_str(), format!("Bearer {}", key.expose()))
        }
    };
    if let (Ok(mut value), Ok(name)) =
        (HeaderValue::from_str(&value), name.parse::<reqwest::header::HeaderName>())
    {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    headers
}

async fn read_error_response(link: &ConfiguredModel, mut response: Response) -> CallError {
    let wait =
        response.headers().get("retry-after").and_then(|value| value.to_str().ok()).and_then(retry_after);
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while body.len() < ERROR_BODY {
        match timeout(CONNECT, response.chunk()).await {
            Ok(Ok(Some(piece))) => body.extend_from_slice(&piece),
            Ok(Ok(None) | Err(_)) | Err(_) => break,
        }
    }
    classify(status, wait, &String::from_utf8_lossy(&body), link.key.as_ref())
}

fn classify_transport_error(error: &reqwest::Error) -> CallError {
    let mut source = error.source();
    let mut untrusted = false;
    while let Some(cause) = source {
        // A failed TLS handshake surfaces as an I/O error about invalid data.
        let io = cause.downcast_ref::<std::io::Error>();
        untrusted |= io.is_some_and(|io| io.kind() == std::io::ErrorKind::InvalidData);
        source = cause.source();
    }
    CallError::new(match error {
        error if error.is_connect() && untrusted => ModelFailureClass::Tls,
        error if error.is_connect() => ModelFailureClass::Unreachable,
        error if error.is_timeout() => ModelFailureClass::Timeout,
        _ => ModelFailureClass::Unreachable,
    })
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

enum BodyDecoder {
    Events(EventParser),
    Lines(LineSplitter),
    /// A response that was not streamed: one event.
    Whole(Vec<u8>),
}

impl BodyDecoder {
    fn of(protocol: Protocol, response: &Response) -> Result<Self, CallError> {
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if kind.contains("text/html") {
            return Err(CallError::new(ModelFailureClass::Malformed));
        }
        Ok(match protocol {
            Protocol::Ollama => Self::Lines(LineSplitter::default()),
            Protocol::Chat | Protocol::Messages if kind.contains("application/json") => {
                Self::Whole(Vec::new())
            }
            Protocol::Chat | Protocol::Messages => Self::Events(EventParser::default()),
        })
    }

    fn push(&mut self, piece: &[u8]) -> Result<Vec<String>, LineTooLong> {
        match self {
            Self::Events(events) => events.push(piece),
            Self::Lines(lines) => lines.push(piece),
            Self::Whole(body) => {
                body.extend_from_slice(piece);
                Ok(Vec::new())
            }
        }
    }

    fn rest(&mut self) -> Vec<String> {
        match self {
            Self::Events(events) => events.rest(),
            Self::Lines(lines) => lines.rest().into_iter().collect(),
            Self::Whole(body) if body.is_empty() => Vec::new(),
            Self::Whole(body) => vec![String::from_utf8_lossy(&std::mem::take(body)).into_owned()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_loopback_in_all_spellings() {
        for near in
            ["http://127.0.0.1:1/", "http://127.9.9.9/", "http://localhost:8080/v1", "http://[::1]:1/"]
        {
            assert!(is_loopback(&Url::parse(near).unwrap()), "{near}");
        }
        for far in ["https://api.openai.com/", "http://10.0.0.1/", "http://localhost.example/"] {
            assert!(!is_loopback(&Url::parse(far).unwrap()), "{far}");
        }
    }
}
