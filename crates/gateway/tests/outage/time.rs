//! Time that passes when we say so, and never while somebody still works.
//!
//! Gateway and fakes live on one runtime whose clock stands still. It is moved by hand, step by step; after each step
//! we wait until every thread of this process sleeps: nothing is on its way between sockets, store and tasks any more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as blocking;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use petasos_core::Millis;
use petasos_gateway::clock;
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;

/// The wall clock of the gateways in this process; it starts where the real one was.
static NOW: AtomicU64 = AtomicU64::new(0);

pub struct Time {
    pub runtime: Handle,
    steps: mpsc::Sender<(Duration, blocking::Sender<()>)>,
    thread: Option<JoinHandle<()>>,
    end: Option<blocking::Sender<()>>,
}

impl Time {
    pub fn still() -> Self {
        let _first = NOW.compare_exchange(0, clock::now().0, Ordering::Relaxed, Ordering::Relaxed);
        clock::replace(|| Millis(NOW.load(Ordering::Relaxed)));
        let (steps, mut asked) = mpsc::channel::<(Duration, blocking::Sender<()>)>(1);
        let (end, ended) = blocking::channel();
        let (tell, told) = blocking::channel();
        let thread = std::thread::spawn(move || {
            let runtime =
                Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
            runtime.block_on(async move {
                // While a blocking task runs, tokio does not move the clock by itself.
                let held = tokio::task::spawn_blocking(move || ended.recv());
                tell.send(Handle::current()).expect("the test waits");
                while let Some((step, done)) = asked.recv().await {
                    NOW.fetch_add(u64::try_from(step.as_millis()).expect("short"), Ordering::Relaxed);
                    tokio::time::advance(step).await;
                    // A test that has failed does not wait.
                    let _ = done.send(());
                }
                drop(held);
            });
            runtime.shutdown_background();
        });
        let runtime = told.recv().expect("a runtime");
        Self { runtime, steps, thread: Some(thread), end: Some(end) }
    }

    pub fn pass(&self, span: Duration, step: Duration) {
        let mut left = span;
        while !left.is_zero() {
            let now = step.min(left);
            left -= now;
            let (done, passed) = blocking::channel();
            self.steps.blocking_send((now, done)).expect("the runtime lives");
            passed.recv().expect("the runtime lives");
            settle();
        }
    }

    /// The machine sleeps: only its wall clock goes on.
    pub fn jump(&self, span: Duration) {
        NOW.fetch_add(u64::try_from(span.as_millis()).expect("short"), Ordering::Relaxed);
    }

    /// Lets time pass until something is found; panics after `most`.
    #[track_caller]
    pub fn until<T>(
        &self,
        what: &str,
        most: Duration,
        step: Duration,
        mut look: impl FnMut() -> Option<T>,
    ) -> T {
        let mut passed = Duration::ZERO;
        loop {
            settle();
            if let Some(found) = look() {
                return found;
            }
            assert!(passed < most, "never {what}");
            self.pass(step, step);
            passed += step;
        }
    }
}

impl Drop for Time {
    fn drop(&mut self) {
        drop(self.end.take());
        let (steps, _) = mpsc::channel(1);
        drop(std::mem::replace(&mut self.steps, steps));
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            thread.join().expect("no panic");
        }
    }
}

const LOOK: Duration = Duration::from_micros(250);

/// Returns when every other thread sleeps and none has run since the last look.
pub fn settle() {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut before = None;
    loop {
        let now = threads();
        if now.values().all(|thread| thread.asleep) && before.as_ref() == Some(&now) {
            return;
        }
        assert!(Instant::now() < deadline, "never quiet: {now:?}");
        before = Some(now);
        // Looking costs more than most of what is waited for, and takes a processor from it.
        std::thread::park_timeout(LOOK);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Thread {
    asleep: bool,
    /// How often it was given the processor.
    turns: u64,
}

/// Every thread of this process but the one that asks.
fn threads() -> BTreeMap<String, Thread> {
    let own = std::fs::read_link("/proc/thread-self").expect("this thread");
    let own = own.file_name().map(|name| name.to_owned());
    let all = std::fs::read_dir("/proc/self/task").expect("this process").flatten();
    let others = all.filter(|task| Some(task.file_name()) != own);
    let look = |task: std::fs::DirEntry| {
        // One that has ended meanwhile is missing next time, too.
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let number = |name| field(name).and_then(|text| text.parse().ok()).unwrap_or(0u64);
        let asleep = field("State:").is_some_and(|state| state.starts_with('S'));
        let turns = number("voluntary_ctxt_switches:") + number("nonvoluntary_ctxt_switches:");
        Some((task.file_name().to_string_lossy().into_owned(), Thread { asleep, turns }))
    };
    others.filter_map(look).collect()
}
