//! A seeded scheduler on top of tokio's current-thread runtime with paused time.
//!
//! Every task is wrapped in [`Scheduled`] and polled only when the conductor, the future run by `block_on`, has chosen it
//! among the ready tasks by the seed. Tokio's wake order and randomness therefore have no influence. If no task is ready,
//! the runtime advances its clock to the next timer.
//!
//! A task belongs to a simulated process, which spawned tasks inherit. A killed process is frozen: its tasks are never
//! polled again and are dropped at the end of the run. Without an I/O driver, opening a socket panics.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use petasos_core::Millis;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::rng::Rng;
use crate::fault_injection::PlantedBug;

pub mod rng;

/// A simulated operating-system process. Process 0 is the environment, which never dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Process(pub u32);

/// A simulation run. Clones share it.
#[derive(Debug, Clone)]
pub struct Simulation(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Decides the next task and the first branch of `select!`.
    order: Rng,
    entropy: Rng,
    /// The start time on the wall clock and on the runtime clock.
    start: Millis,
    started_at: Option<Instant>,
    /// Offset of each process's wall clock in milliseconds.
    offset: BTreeMap<Process, i64>,
    tasks: BTreeMap<u64, Task>,
    next_task: u64,
    ready: BTreeSet<u64>,
    granted: Option<u64>,
    running: Process,
    /// The task that is being polled.
    polled: Option<u64>,
    dead: BTreeSet<Process>,
    conductor: Option<Waker>,
    /// Hash of all decisions and recorded events.
    trace: u64,
    steps: u64,
    panics: Vec<String>,
}

#[derive(Debug)]
struct Task {
    process: Process,
    /// Tokio's waker; `None` before the first poll.
    waker: Option<Waker>,
    /// Its annotation; see [`crate::annotate`].
    annotation: Option<String>,
}

thread_local! {
    static CURRENT: RefCell<Option<Simulation>> = const { RefCell::new(None) };
    static PLANTED: Cell<Option<PlantedBug>> = const { Cell::new(None) };
}

pub fn current() -> Option<Simulation> {
    CURRENT.with_borrow(Clone::clone)
}

/// Plants a bug in everything that this thread runs.
pub fn plant(bug: Option<PlantedBug>) {
    PLANTED.set(bug);
}

pub(crate) fn planted() -> Option<PlantedBug> {
    PLANTED.get()
}

/// Panic payload that ends a task whose process kills itself.
#[derive(Debug)]
struct Killed;

impl Simulation {
    pub fn new(seed: u64, start: Millis) -> Self {
        Self(Arc::new(Mutex::new(State {
            order: Rng::new(seed, 101),
            entropy: Rng::new(seed, 102),
            start,
            started_at: None,
            offset: BTreeMap::new(),
            tasks: BTreeMap::new(),
            next_task: 0,
            ready: BTreeSet::new(),
            granted: None,
            running: Process::default(),
            polled: None,
            dead: BTreeSet::new(),
            conductor: None,
            trace: 0xcbf2_9ce4_8422_2325,
            steps: 0,
            panics: Vec::new(),
        })))
    }

    /// Runs `main` in process 0 until it ends, then drops all tasks.
    ///
    /// # Panics
    /// If there is a simulation on this thread already, or if `main` panics.
    pub fn run<T, F>(&self, main: F) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        assert!(current().is_none(), "a thread runs one simulation at a time");
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build();
        let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
        CURRENT.set(Some(self.clone()));
        let simulation = self.clone();
        let ended = runtime.block_on(async move {
            simulation.lock().started_at = Some(Instant::now());
            let main = tokio::spawn(simulation.schedule(main));
            simulation.conduct(main).await
        });
        // Destructors of remaining tasks still find the simulation, but nothing is scheduled any more.
        drop(runtime);
        CURRENT.set(None);
        match ended {
            Ok(value) => value,
            Err(error) => match error.try_into_panic() {
                Ok(payload) => std::panic::resume_unwind(payload),
                Err(error) => panic!("the main task was cancelled: {error}"),
            },
        }
    }

    pub fn spawn_in<F>(&self, process: Process, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        tokio::spawn(self.schedule_in(process, future))
    }

    /// Kills a process: its tasks are never polled again.
    pub fn kill(&self, process: Process) {
        let mut state = self.lock();
        state.add_to_trace(u64::from(process.0) ^ 0xdead);
        state.dead.insert(process);
        let State { ready, tasks, .. } = &mut *state;
        ready.retain(|id| tasks.get(id).is_some_and(|task| task.process != process));
    }

    /// Ends the running task, whose process was killed, before its next statement. Its destructors run.
    ///
    /// # Panics
    /// Always; that is how it ends the task.
    pub fn end_killed_task(&self) -> ! {
        std::panic::resume_unwind(Box::new(Killed))
    }

    pub fn is_alive(&self, process: Process) -> bool {
        !self.lock().dead.contains(&process)
    }

    pub fn running(&self) -> Process {
        self.lock().running
    }

    /// The annotation of the running task; see [`crate::annotate`].
    pub fn annotation(&self) -> Option<String> {
        let state = self.lock();
        state.tasks.get(&state.polled?)?.annotation.clone()
    }

    pub(crate) fn annotate(&self, what: &str) {
        let mut state = self.lock();
        let Some(polled) = state.polled else { return };
        if let Some(task) = state.tasks.get_mut(&polled) {
            task.annotation = Some(what.to_owned());
        }
    }

    /// Virtual time since the start.
    pub fn elapsed(&self) -> Duration {
        let started_at = self.lock().started_at;
        started_at.map_or(Duration::ZERO, |started_at| Instant::now().saturating_duration_since(started_at))
    }

    pub fn wall_clock(&self) -> Millis {
        let elapsed = u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX);
        let state = self.lock();
        let offset = state.offset.get(&state.running).copied().unwrap_or_default();
        Millis(state.start.0.saturating_add(elapsed).saturating_add_signed(offset))
    }

    /// Sets the offset of a process's wall clock in milliseconds.
    pub fn set_clock(&self, process: Process, offset: i64) {
        self.lock().offset.insert(process, offset);
    }

    /// Adds an event to the trace.
    pub fn record(&self, event: &str) {
        let mut state = self.lock();
        for byte in event.bytes() {
            state.add_to_trace(u64::from(byte));
        }
    }

    /// Hash of the run so far, equal for equal seeds.
    pub fn trace(&self) -> u64 {
        self.lock().trace
    }

    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// Panics of tasks that were not killed.
    pub fn panics(&self) -> Vec<String> {
        self.lock().panics.clone()
    }

    pub(crate) fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.lock();
        for chunk in bytes.chunks_mut(8) {
            let random = state.entropy.next_u64().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }

    pub(crate) fn below(&self, end: u32) -> u32 {
        u32::try_from(self.lock().order.below(u64::from(end))).unwrap_or_default()
    }

    /// Wraps a future of the running process.
    pub(crate) fn schedule<F: Future + Send + 'static>(&self, future: F) -> Scheduled<F> {
        self.schedule_in(self.running(), future)
    }

    fn schedule_in<F: Future + Send + 'static>(&self, process: Process, future: F) -> Scheduled<F> {
        let mut state = self.lock();
        let id = state.next_task;
        state.next_task += 1;
        state.tasks.insert(id, Task { process, waker: None, annotation: None });
        state.make_ready(id);
        drop(state);
        let waker = Waker::from(Arc::new(TaskWaker { id, simulation: self.clone() }));
        Scheduled { id, waker, simulation: self.clone(), future: Box::pin(future) }
    }

    /// Grants one ready task after the other until `main` has ended.
    async fn conduct<T>(&self, mut main: JoinHandle<T>) -> Result<T, tokio::task::JoinError> {
        std::future::poll_fn(move |context| {
            if let Poll::Ready(ended) = Pin::new(&mut main).poll(context) {
                return Poll::Ready(ended);
            }
            let mut state = self.lock();
            state.conductor = Some(context.waker().clone());
            if state.granted.is_some() || state.ready.is_empty() {
                return Poll::Pending;
            }
            let count = state.ready.len() as u64;
            let chosen = usize::try_from(state.order.below(count)).unwrap_or_default();
            let Some(id) = state.ready.iter().nth(chosen).copied() else { return Poll::Pending };
            state.ready.remove(&id);
            state.granted = Some(id);
            state.steps += 1;
            state.add_to_trace(id);
            let waker = state.tasks.get(&id).and_then(|task| task.waker.clone());
            drop(state);
            // A task without a waker is about to be polled by tokio for the first time.
            if let Some(waker) = waker {
                waker.wake();
            }
            Poll::Pending
        })
        .await
    }

    /// Ends the grant of a task after its poll.
    fn release(&self, id: u64) {
        let mut state = self.lock();
        if state.granted == Some(id) {
            state.granted = None;
        }
        state.running = Process::default();
        state.polled = None;
        let conductor = state.conductor.clone();
        drop(state);
        if let Some(conductor) = conductor {
            conductor.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn make_ready(&mut self, id: u64) -> bool {
        let alive = self.tasks.get(&id).is_some_and(|task| !self.dead.contains(&task.process));
        alive && self.ready.insert(id)
    }

    fn add_to_trace(&mut self, word: u64) {
        self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    }
}

struct TaskWaker {
    id: u64,
    simulation: Simulation,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.simulation.lock();
        if !state.make_ready(self.id) {
            return;
        }
        let conductor = state.conductor.clone();
        drop(state);
        if let Some(conductor) = conductor {
            conductor.wake();
        }
    }
}

/// A future that is polled only when granted by the conductor.
#[derive(Debug)]
pub struct Scheduled<F: Future> {
    id: u64,
    waker: Waker,
    simulation: Simulation,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Scheduled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let id = self.id;
        let simulation = self.simulation.clone();
        {
            let mut state = simulation.lock();
            let granted = state.granted == Some(id);
            let Some(task) = state.tasks.get_mut(&id) else { return Poll::Pending };
            if task.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
                task.waker = Some(context.waker().clone());
            }
            let process = task.process;
            if !granted {
                return Poll::Pending;
            }
            state.running = process;
            state.polled = Some(id);
        }
        let waker = self.waker.clone();
        let future = self.future.as_mut();
        let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            future.poll(&mut Context::from_waker(&waker))
        }));
        if let Err(payload) = &polled
            && !payload.is::<Killed>()
        {
            simulation.lock().panics.push(message(payload.as_ref()));
        }
        simulation.release(id);
        polled.unwrap_or_else(|payload| std::panic::resume_unwind(payload))
    }
}

impl<F: Future> Drop for Scheduled<F> {
    fn drop(&mut self) {
        let mut state = self.simulation.lock();
        state.tasks.remove(&self.id);
        state.ready.remove(&self.id);
        let granted = state.granted == Some(self.id);
        drop(state);
        if granted {
            self.simulation.release(self.id);
        }
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
}

#[cfg(test)]
mod tests;
