//! A service that delivers webhooks: it posts, and posts again whatever was not answered with a 2xx or a 4xx, in
//! order, as providers promise.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long an answer may take before the delivery counts as failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries.
const REST: Duration = Duration::from_millis(10);

/// One request: where to, with what.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    /// Head and body as they came.
    pub text: String,
}

/// The handle. Dropping it ends the service; what was not delivered is forgotten.
#[derive(Debug)]
pub struct Sender {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    port: u16,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Delivery>,
    replies: Vec<Reply>,
    tries: usize,
    ended: bool,
}

impl Delivery {
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

    /// One try.
    pub fn post(&self, port: u16) -> io::Result<Reply> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut head = format!("POST {} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n", self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\nConnection: close\r\n\r\n", self.body.len()));
        stream.write_all(head.as_bytes())?;
        // A body that is too large is refused before it is whole.
        let written = stream.write_all(&self.body);
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer).into_owned();
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        match status {
            Some(status) => Ok(Reply { status, text }),
            None => Err(read.err().or(written.err()).unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

impl Sender {
    /// Delivers to this port of loopback, whether or not somebody listens there yet.
    #[must_use]
    pub fn start(port: u16) -> Self {
        let shared = Arc::new(Shared { port, state: Mutex::default(), changed: Condvar::new() });
        let service = shared.clone();
        thread::spawn(move || service.run());
        Self { shared }
    }

    pub fn send(&self, delivery: Delivery) {
        self.shared.state().queue.push_back(delivery);
        self.shared.changed.notify_all();
    }

    /// What has not been answered for good yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.shared.state().queue.len()
    }

    /// Every try, also of what failed.
    #[must_use]
    pub fn tries(&self) -> usize {
        self.shared.state().tries
    }

    /// The last answers, one for each delivery that is over.
    #[must_use]
    pub fn replies(&self) -> Vec<Reply> {
        self.shared.state().replies.clone()
    }

    /// Waits until everything is answered for good.
    #[must_use]
    pub fn wait_idle(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let mut state = self.shared.state();
        while !state.queue.is_empty() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
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
            let reply = first.post(self.port);
            let mut state = self.state();
            state.tries += 1;
            match reply {
                Ok(reply) if reply.status < 500 && reply.status != 429 => {
                    state.queue.pop_front();
                    state.replies.push(reply);
                    drop(state);
                    self.changed.notify_all();
                }
                Ok(_) | Err(_) => {
                    drop(state);
                    thread::sleep(REST);
                }
            }
        }
    }
}
