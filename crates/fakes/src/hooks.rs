//! A service that delivers webhooks in order, and retries each until it gets a final status: neither 429 nor 5xx.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
const RETRY_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, Clone)]
pub struct WebhookDelivery {
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookResponse {
    pub status: u16,
    /// Head and body, unparsed.
    pub text: String,
}

/// The handle. Dropping it ends the service and drops pending deliveries.
#[derive(Debug)]
pub struct Sender {
    queue: Arc<Queue>,
}

#[derive(Debug)]
struct Queue {
    port: u16,
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    queue: VecDeque<WebhookDelivery>,
    responses: Vec<WebhookResponse>,
    attempts: usize,
    ended: bool,
}

impl WebhookDelivery {
    #[must_use]
    pub fn json(path: impl Into<String>, body: &serde_json::Value) -> Self {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        Self { path: path.into(), headers, body: body.to_string().into_bytes() }
    }

    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn post(&self, port: u16) -> io::Result<WebhookResponse> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        stream.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
        let mut head = format!("POST {} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n", self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\nConnection: close\r\n\r\n", self.body.len()));
        stream.write_all(head.as_bytes())?;
        // A server refuses a body that is too large before it has read all of it.
        let written = stream.write_all(&self.body);
        let mut response = Vec::new();
        let read = stream.read_to_end(&mut response);
        let text = String::from_utf8_lossy(&response).into_owned();
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        match status {
            Some(status) => Ok(WebhookResponse { status, text }),
            None => Err(read.err().or(written.err()).unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

impl Sender {
    /// Delivers to this port of loopback. The server may start later.
    #[must_use]
    pub fn start(port: u16) -> Self {
        let queue = Arc::new(Queue { port, state: Mutex::default(), changed: Condvar::new() });
        let service = queue.clone();
        thread::spawn(move || service.run());
        Self { queue }
    }

    pub fn send(&self, delivery: WebhookDelivery) {
        self.queue.state().queue.push_back(delivery);
        self.queue.changed.notify_all();
    }

    /// The number of deliveries without a final response.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.queue.state().queue.len()
    }

    /// The number of attempts, failed ones included.
    #[must_use]
    pub fn attempts(&self) -> usize {
        self.queue.state().attempts
    }

    /// The final response of each completed delivery.
    #[must_use]
    pub fn responses(&self) -> Vec<WebhookResponse> {
        self.queue.state().responses.clone()
    }

    /// Waits until every delivery has a final response.
    #[must_use]
    pub fn wait_idle(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let mut state = self.queue.state();
        while !state.queue.is_empty() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            let waited = self.queue.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.queue.state().ended = true;
        self.queue.changed.notify_all();
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let mut state = self.state();
            while !state.ended && state.queue.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.ended {
                return;
            }
            let Some(first) = state.queue.front().cloned() else { continue };
            drop(state);
            let response = first.post(self.port);
            let mut state = self.state();
            state.attempts += 1;
            match response {
                Ok(response) if response.status < 500 && response.status != 429 => {
                    state.queue.pop_front();
                    state.responses.push(response);
                    drop(state);
                    self.changed.notify_all();
                }
                Ok(_) | Err(_) => {
                    drop(state);
                    thread::sleep(RETRY_PAUSE);
                }
            }
        }
    }
}
