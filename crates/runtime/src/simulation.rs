//! A seeded scheduler on top of tokio's current-thread runtime with paused time.
//!
//! Every task is wrapped ([`Scheduled`]): it is polled only when the conductor, the future that `block_on` runs, has
//! chosen it among the ready ones by the seed. The order in which tokio wakes tasks therefore decides nothing, and
//! neither does tokio's own randomness. When no task is ready the runtime advances its clock to the next timer.
//!
//! Tasks belong to simulated processes and inherit that of the task that spawned them. A killed process is frozen: its
//! tasks are never polled again and are dropped, with everything else, when the run is over.
//!
//! There is no I/O driver: a socket that is opened here panics.

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
use crate::fault_injection::Planted;

pub mod rng;

/// A simulated operating-system process. 0 is the world outside, which never dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Process(pub u32);

/// One run. Clones are handles.
#[derive(Debug, Clone)]
pub struct Simulation(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Which task runs next, and which branch of a `select!` is polled first.
    order: Rng,
    /// Randomness of the simulated program.
    entropy: Rng,
    /// Where time began, on the clocks of wall and runtime.
    start: Millis,
    began: Option<Instant>,
    /// How far the wall clock of each process is ahead, in milliseconds.
    ahead: BTreeMap<Process, i64>,
    tasks: BTreeMap<u64, Task>,
    next_task: u64,
    ready: BTreeSet<u64>,
    granted: Option<u64>,
    running: Process,
    /// The task that is being polled.
    polled: Option<u64>,
    dead: BTreeSet<Process>,
    conductor: Option<Waker>,
    /// Hash of everything that was decided and noted.
    trace: u64,
    steps: u64,
    /// Panics of tasks, by message.
    panics: Vec<String>,
}

#[derive(Debug)]
struct Task {
    process: Process,
    /// Tokio's; `None` before its first poll.
    waker: Option<Waker>,
    /// What it works on; see [`crate::annotate`].
    annotation: Option<String>,
}

thread_local! {
    static CURRENT: RefCell<Option<Simulation>> = const { RefCell::new(None) };
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}

/// The simulation that this thread runs.
pub fn current() -> Option<Simulation> {
    CURRENT.with_borrow(Clone::clone)
}

/// From now on what this thread runs has this bug.
pub fn plant(bug: Option<Planted>) {
    PLANTED.set(bug);
}

pub(crate) fn planted() -> Option<Planted> {
    PLANTED.get()
}

/// Payload of the unwinding that ends a task of a process that kills itself.
#[derive(Debug)]
struct Killed;

impl Simulation {
    pub fn new(seed: u64, start: Millis) -> Self {
        Self(Arc::new(Mutex::new(State {
            order: Rng::new(seed, 101),
            entropy: Rng::new(seed, 102),
            start,
            began: None,
            ahead: BTreeMap::new(),
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

    /// Runs `main` in the world's process until it ends, and drops all tasks.
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
            simulation.lock().began = Some(Instant::now());
            let main = tokio::spawn(simulation.schedule(main));
            simulation.conduct(main).await
        });
        // Destructors of what is left still find the simulation, and nothing of theirs is scheduled any more.
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

    /// Starts a task in a process.
    pub fn spawn_in<F>(&self, process: Process, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        tokio::spawn(self.schedule_in(process, future))
    }

    /// The process dies: none of its tasks is polled again.
    pub fn kill(&self, process: Process) {
        let mut state = self.lock();
        state.note(u64::from(process.0) ^ 0xdead);
        state.dead.insert(process);
        let State { ready, tasks, .. } = &mut *state;
        ready.retain(|id| tasks.get(id).is_some_and(|task| task.process != process));
    }

    /// Ends the task that runs now, whose process was killed: it does not get to its next line. Destructors of this one
    /// task run.
    ///
    /// # Panics
    /// Always; that is how it ends the task.
    pub fn end_killed_task(&self) -> ! {
        std::panic::resume_unwind(Box::new(Killed))
    }

    pub fn is_alive(&self, process: Process) -> bool {
        !self.lock().dead.contains(&process)
    }

    /// The process of the task that runs now.
    pub fn running(&self) -> Process {
        self.lock().running
    }

    /// What the task that runs now works on.
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
        let began = self.lock().began;
        began.map_or(Duration::ZERO, |began| Instant::now().saturating_duration_since(began))
    }

    /// What the wall clock of the running process shows.
    pub fn wall_clock(&self) -> Millis {
        let elapsed = u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX);
        let state = self.lock();
        let ahead = state.ahead.get(&state.running).copied().unwrap_or_default();
        Millis(state.start.0.saturating_add(elapsed).saturating_add_signed(ahead))
    }

    /// Sets how far the wall clock of a process is ahead of the true time.
    pub fn set_clock(&self, process: Process, ahead: i64) {
        self.lock().ahead.insert(process, ahead);
    }

    /// Adds something observable to the trace.
    pub fn note(&self, what: &str) {
        let mut state = self.lock();
        for byte in what.bytes() {
            state.note(u64::from(byte));
        }
    }

    /// Hash of the run so far: two runs of one seed have the same.
    pub fn trace(&self) -> u64 {
        self.lock().trace
    }

    /// How often a task was polled.
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
            let random = state.entropy.number().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }

    pub(crate) fn below(&self, end: u32) -> u32 {
        u32::try_from(self.lock().order.below(u64::from(end))).unwrap_or_default()
    }

    /// A future that is polled when the conductor chooses it.
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

    /// Chooses one ready task after the other until `main` has ended.
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
            state.note(id);
            let waker = state.tasks.get(&id).and_then(|task| task.waker.clone());
            drop(state);
            // Without one it has not been polled yet, and tokio is about to.
            if let Some(waker) = waker {
                waker.wake();
            }
            Poll::Pending
        })
        .await
    }

    /// The granted task is done for now.
    fn give_back(&self, id: u64) {
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

    /// FNV-1a, by words.
    fn note(&mut self, word: u64) {
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

/// A future that is polled only when the conductor has chosen it.
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
        simulation.give_back(id);
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
            self.simulation.give_back(self.id);
        }
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
}

/// A future for a `JoinSet`, on a thread that may run a simulation.
#[derive(Debug)]
pub enum MaybeScheduled<F: Future> {
    Plain(Pin<Box<F>>),
    Scheduled(Scheduled<F>),
}

impl<F: Future> Future for MaybeScheduled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        match &mut *self {
            Self::Plain(future) => future.as_mut().poll(context),
            Self::Scheduled(scheduled) => Pin::new(scheduled).poll(context),
        }
    }
}

#[cfg(test)]
mod tests;
