//! A manual clock that advances only while the process is idle.
//!
//! Gateway and fakes run on one runtime with a paused clock. It is advanced step by step; after each step the test waits
//! until every thread of this process sleeps, so that nothing is in flight between sockets, store and tasks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as blocking;
use std::thread::JoinHandle;
use std::time::Duration;

use petasos_core::Millis;
use petasos_gateway::clock;
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;

/// The wall clock of the gateways in this process; starts at the real time.
static NOW: AtomicU64 = AtomicU64::new(0);

pub struct ManualClock {
    pub runtime: Handle,
    steps: mpsc::Sender<(Duration, blocking::SyncSender<()>)>,
    thread: Option<JoinHandle<()>>,
    end: Option<blocking::SyncSender<()>>,
}

impl ManualClock {
    #[expect(clippy::disallowed_methods, reason = "the thread of the runtime whose clock is manual")]
    pub fn still() -> Self {
        let _first = NOW.compare_exchange(0, clock::now().0, Ordering::Relaxed, Ordering::Relaxed);
        clock::replace(|| Millis(NOW.load(Ordering::Relaxed)));
        let (steps, mut asked) = mpsc::channel::<(Duration, blocking::SyncSender<()>)>(1);
        let (end, ended) = blocking::sync_channel(1);
        let (sender, receiver) = blocking::sync_channel(1);
        let thread = std::thread::spawn(move || {
            let runtime =
                Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
            runtime.block_on(async move {
                // A running blocking task keeps tokio from advancing the clock itself.
                let held = petasos_runtime::blocking(move || ended.recv());
                sender.send(Handle::current()).expect("the test waits");
                while let Some((step, done)) = asked.recv().await {
                    NOW.fetch_add(u64::try_from(step.as_millis()).expect("short"), Ordering::Relaxed);
                    tokio::time::advance(step).await;
                    // A failed test does not wait.
                    let _ = done.send(());
                }
                drop(held);
            });
            runtime.shutdown_background();
        });
        let runtime = receiver.recv().expect("a runtime");
        Self { runtime, steps, thread: Some(thread), end: Some(end) }
    }

    pub fn pass(&self, span: Duration, step: Duration) {
        let mut left = span;
        while !left.is_zero() {
            let now = step.min(left);
            left -= now;
            let (done, passed) = blocking::sync_channel(1);
            self.steps.blocking_send((now, done)).expect("the runtime lives");
            passed.recv().expect("the runtime lives");
            settle();
        }
    }

    /// Suspend: advances only the wall clock.
    pub fn jump(&self, span: Duration) {
        NOW.fetch_add(u64::try_from(span.as_millis()).expect("short"), Ordering::Relaxed);
    }

    /// Advances time until `look` succeeds; panics after `most`.
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

impl Drop for ManualClock {
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

const POLL_INTERVAL: Duration = Duration::from_micros(250);

/// Returns when every other thread sleeps and none has run since the last check.
pub fn settle() {
    let deadline = clock::monotonic() + Duration::from_secs(60);
    let mut before = None;
    loop {
        let now = threads();
        if now.values().all(|thread| thread.asleep) && before.as_ref() == Some(&now) {
            return;
        }
        assert!(clock::monotonic() < deadline, "never quiet: {now:?}");
        before = Some(now);
        // Polling takes a processor from the threads that are waited for.
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Thread {
    asleep: bool,
    /// Number of context switches.
    turns: u64,
}

/// All threads of this process except the current one.
fn threads() -> BTreeMap<String, Thread> {
    let own = std::fs::read_link("/proc/thread-self").expect("this thread");
    let own = own.file_name().map(|name| name.to_owned());
    let all = std::fs::read_dir("/proc/self/task").expect("this process").flatten();
    let others = all.filter(|task| Some(task.file_name()) != own);
    let look = |task: std::fs::DirEntry| {
        // Threads that have ended meanwhile are skipped.
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let number = |name| field(name).and_then(|text| text.parse().ok()).unwrap_or(0u64);
        let asleep = field("State:").is_some_and(|state| state.starts_with('S'));
        let turns = number("voluntary_ctxt_switches:") + number("nonvoluntary_ctxt_switches:");
        Some((task.file_name().to_string_lossy().into_owned(), Thread { asleep, turns }))
    };
    others.filter_map(look).collect()
}
