//! What the matrix needs of a platform: somebody who writes, a look at the chat, and trouble on demand.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use petasos_fakes::hooks::Delivery;
use petasos_fakes::{Connector, Discord, Slack, Telegram};
use petasos_platforms::Adapter;

use crate::rows::{In, Out, Patience};

/// Which request is meant, by its text.
pub type Saying = fn(&str) -> bool;

/// The fake of one platform.
pub trait Stage {
    /// New ones, as for a new process.
    fn adapters(&self, patience: Patience) -> Vec<Adapter>;
    /// The platform recognises a message that comes again.
    fn keyed(&self) -> bool;
    /// Somebody writes to us.
    fn say(&self, text: &str);
    /// Our messages, oldest first.
    fn texts(&self) -> Vec<String>;
    /// The first request that is meant shall meet this. `false`: there is no such thing here.
    fn out(&self, saying: Saying, fault: Out) -> bool;
    /// Somebody writes while this happens. `false`: there is no such thing here.
    fn hear(&self, fault: In, text: &str) -> bool;
    fn fake(&self) -> &dyn Fake;
    fn tally(&self) -> &Tally;

    /// Gives how many connections were lost.
    fn down(&self) -> usize {
        self.fake().down()
    }

    fn up(&self) {
        self.fake().up();
    }

    /// Faults that have met something so far.
    fn struck(&self) -> u64 {
        self.fake().struck() + self.tally().get()
    }

    /// Somebody writes while nothing is there. Gives how many connections were lost.
    fn say_while_down(&self, text: &str) -> usize {
        let lost = self.down();
        self.say(text);
        self.up();
        lost
    }
}

/// Somebody else's service, which can be switched off.
pub trait Fake {
    fn down(&self) -> usize;
    fn up(&self);
    fn struck(&self) -> u64;
}

macro_rules! fakes {
    ($($fake:ty: $struck:ident),*) => {$(
        impl Fake for $fake {
            fn down(&self) -> usize {
                Self::down(self)
            }

            fn up(&self) {
                Self::up(self).expect("the port is ours");
            }

            fn struck(&self) -> u64 {
                Self::$struck(self)
            }
        }
    )*};
}

fakes!(Discord: struck, Slack: struck, Telegram: struck, Connector: troubled);

/// What breaks on the way is called the same by every fake; what a service says is its own.
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

/// Trouble that a stage made with its own hands.
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    pub fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Longer than a lane waits that meets a clock which was set back.
pub const SOON: Duration = Duration::from_secs(90);

/// For what nobody rings a bell for.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// A text that no message may be as long as, with this at its beginning.
pub fn huge(length: usize, text: &str) -> String {
    format!("{text} {}", "x".repeat(length))
}

/// Posts as soon as somebody listens; gives the status.
pub fn post(port: u16, delivery: &Delivery) -> u16 {
    eventually("answered", || delivery.post(port).ok()).status
}

/// Posts, and is gone before an answer can come. `half`: in the middle of the body.
pub fn post_and_leave(port: u16, delivery: &Delivery, half: bool) {
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
