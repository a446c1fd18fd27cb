//! The interface of a platform to the matrix: sends messages, reads the chat and injects faults.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use petasos_fakes::hooks::WebhookDelivery;
use petasos_fakes::wait::{self, Condition};
use petasos_fakes::{Connector, Discord, Slack, Telegram};
use petasos_platforms::Adapter;

use crate::rows::{AdapterTimeout, In, Out};

/// Selects a request by its text.
pub type RequestFilter = fn(&str) -> bool;

/// The fake of one platform.
pub trait MatrixPlatform {
    /// New adapters, as for a new process.
    fn adapters(&self, patience: AdapterTimeout) -> Vec<Adapter>;
    /// Whether the platform supports idempotency keys.
    fn keyed(&self) -> bool;
    /// Sends a message to the bot.
    fn send_text(&self, text: &str);
    /// The bot's messages, oldest first.
    fn texts(&self) -> Vec<String>;
    /// Injects a fault into the first matching request. `false`: not applicable to this platform.
    fn out(&self, saying: RequestFilter, fault: Out) -> bool;
    /// Sends a message under this fault. `false`: not applicable to this platform.
    fn hear(&self, fault: In, text: &str) -> bool;
    fn fake(&self) -> &dyn Fake;
    fn tally(&self) -> &FaultCounter;

    fn down(&self) -> usize {
        self.fake().down()
    }

    fn up(&self) {
        self.fake().up();
    }

    /// Number of faults that a request has met.
    fn faults_applied(&self) -> u64 {
        self.fake().faults_applied() + self.tally().get()
    }

    /// Sends a message while the platform is down. Returns the number of lost connections.
    fn say_while_down(&self, text: &str) -> usize {
        let lost = self.down();
        self.send_text(text);
        self.up();
        lost
    }
}

/// A fake service that can be switched off.
pub trait Fake {
    fn down(&self) -> usize;
    fn up(&self);
    fn faults_applied(&self) -> u64;
}

macro_rules! fakes {
    ($($fake:ty),*) => {$(
        impl Fake for $fake {
            fn down(&self) -> usize {
                Self::down(self)
            }

            fn up(&self) {
                Self::up(self).expect("the port is ours");
            }

            fn faults_applied(&self) -> u64 {
                Self::faults_applied(self)
            }
        }
    )*};
}

fakes!(Discord, Slack, Telegram, Connector);

/// Network faults have the same names in all fakes; service errors do not.
macro_rules! met {
    ($fault:ident, $met:expr, { $($own:ident => $said:expr),* $(,)? }) => {
        match $met {
            Out::ResetBefore => $fault::ResetBefore,
            Out::ResetAfter => $fault::ResetAfter,
            Out::Hang => $fault::Hang,
            Out::HangAfter => $fault::HangAfter,
            Out::Half => $fault::HalfBody,
            Out::Garbage => $fault::Garbage,
            Out::Slow => $fault::Delay(Duration::from_millis(700)),
            $(Out::$own => $said,)*
        }
    };
}

pub(crate) use met;

/// Counts faults that a stage injected itself.
#[derive(Debug, Default)]
pub struct FaultCounter(AtomicU64);

impl FaultCounter {
    pub fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Longer than a lane's wait after the clock was set back.
pub const SOON: Duration = Duration::from_secs(90);

/// Polls for a condition without a notification.
#[track_caller]
pub fn eventually<C: Condition>(description: &str, condition: impl FnMut() -> C) -> C::Value {
    wait::eventually(description, SOON, condition)
}

/// A text longer than any message limit, with this at its beginning.
pub fn huge(length: usize, text: &str) -> String {
    format!("{text} {}", "x".repeat(length))
}

/// Posts as soon as the port accepts connections; returns the status.
pub fn post(port: u16, delivery: &WebhookDelivery) -> u16 {
    eventually("answered", || delivery.post(port).ok()).status
}

/// Posts and disconnects before the response. `half`: in the middle of the body.
pub fn post_and_leave(port: u16, delivery: &WebhookDelivery, half: bool) {
    let mut request = format!("POST {} HTTP/1.1\r\nHost: 127.0.0.1\r\n", delivery.path);
    for (name, value) in &delivery.headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("Content-Length: {}\r\n\r\n", delivery.body.len()));
    let sent = if half { &delivery.body[..delivery.body.len() / 2] } else { &delivery.body };
    eventually("listening", || {
        let mut line = TcpStream::connect(("127.0.0.1", port)).ok()?;
        line.write_all(request.as_bytes()).ok()?;
        line.write_all(sent).ok()?;
        line.shutdown(std::net::Shutdown::Both).ok()
    });
}
