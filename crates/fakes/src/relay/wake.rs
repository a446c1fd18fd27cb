//! The endpoint that a connector calls to wake a gateway.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use crate::server::Server;
use crate::server::watched::Watched;

#[derive(Debug, Clone)]
pub struct WakeCall {
    pub method: String,
    pub path: String,
    pub has_credentials: bool,
    pub body: usize,
}

/// The wake endpoint. It records its calls.
#[derive(Debug)]
pub struct WakeServer {
    server: Server,
    calls: Arc<Watched<Vec<WakeCall>>>,
}

#[derive(Debug, Clone)]
struct WakeState {
    calls: Arc<Watched<Vec<WakeCall>>>,
    redirect_to: Option<String>,
}

impl WakeServer {
    pub fn start() -> io::Result<Self> {
        Self::start_with(None)
    }

    /// Redirects its callers to another address.
    pub fn redirecting_to(url: &str) -> io::Result<Self> {
        Self::start_with(Some(url.to_owned()))
    }

    fn start_with(redirect_to: Option<String>) -> io::Result<Self> {
        let calls = Arc::new(Watched::default());
        let state = WakeState { calls: calls.clone(), redirect_to };
        let router = Router::new().fallback(wake).with_state(state);
        Ok(Self { server: Server::start(0, router)?, calls })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.addr()
    }

    pub fn url(&self) -> String {
        format!("http://{}/wake?of=this", self.address())
    }

    pub fn calls(&self) -> Vec<WakeCall> {
        self.calls.read(Vec::clone)
    }

    pub fn wait_for(&self, count: usize, timeout: Duration) -> bool {
        self.calls.wait_until(timeout, |calls| (calls.len() >= count).then_some(())).is_some()
    }
}

async fn wake(
    State(state): State<WakeState>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: bytes::Bytes,
) -> Response {
    let call = WakeCall {
        method: method.to_string(),
        path: uri.to_string(),
        has_credentials: headers.contains_key("authorization") || headers.contains_key("cookie"),
        body: body.len(),
    };
    state.calls.change(|calls| calls.push(call));
    match state.redirect_to {
        Some(url) => (StatusCode::FOUND, [("location", url)]).into_response(),
        None => StatusCode::OK.into_response(),
    }
}
