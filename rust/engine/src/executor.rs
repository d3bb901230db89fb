//! Processes: futures polled by index, without wakers.

use crate::history::History;
use crate::{EventQueue, Time, interrupt};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Index of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub u32);

/// Set in an event that is a signal for the driver rather than a process to resume.
const SIGNAL: u32 = 1 << 31;

/// Elementary steps of an event ([`interrupt::spend`]).
const STEPS: u64 = 32;

/// Bounds of a run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Stop after this many events.
    pub max_events: u64,
    /// Stop before an event later than this.
    pub max_time: Time,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_events: u64::MAX, max_time: Time::MAX }
    }
}

/// Why a run ended before every process had finished.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// Nothing is pending and these processes wait.
    #[error("nothing is pending and {} processes wait", .0.len())]
    Deadlock(Vec<TaskId>),
    /// `max_events` reached.
    #[error("the limit of events is reached")]
    EventLimit,
    /// The next event lies beyond `max_time`.
    #[error("the next event lies beyond the limit of time")]
    TimeLimit,
}

/// The processes of a run: one concrete future type, polled by index.
pub struct Tasks<F> {
    futures: Vec<Option<Pin<Box<F>>>>,
    live: usize,
}

impl<F: Future<Output = ()>> Tasks<F> {
    /// Takes the processes; they start at time 0 in this order.
    pub fn new(futures: impl IntoIterator<Item = F>) -> Self {
        let futures: Vec<_> = futures.into_iter().map(|f| Some(Box::pin(f))).collect();
        let live = futures.len();
        Self { futures, live }
    }

    /// Processes that have not finished.
    pub fn live(&self) -> usize {
        self.live
    }
}

/// The clock and the event queue, shared by all processes of a run.
#[derive(Default)]
pub struct Engine {
    now: Cell<Time>,
    current: Cell<u32>,
    events: Cell<u64>,
    queue: RefCell<EventQueue>,
    history: History,
}

impl Engine {
    /// An engine at time 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// An engine at time 0 that remembers what posted its events.
    pub fn remembering() -> Self {
        Self { history: History::kept(), ..Self::default() }
    }

    /// The number of the event that fires, from 1 on; 0 before the first, and where none is remembered.
    #[inline]
    pub fn event(&self) -> u32 {
        self.history.current()
    }

    /// Whether times alone say which of two events comes first: their own, those of the events that posted them, and so
    /// on. Then they come in one order wherever such events happen at these times. False where nothing is remembered.
    pub fn ordered(&self, one: u32, other: u32) -> bool {
        self.history.ordered(one, other)
    }

    #[inline]
    fn post(&self, time: Time, event: u32) {
        self.queue.borrow_mut().push_from(time, event, self.history.current());
    }

    /// Current virtual time.
    #[inline]
    pub fn now(&self) -> Time {
        self.now.get()
    }

    /// Events processed so far.
    pub fn events(&self) -> u64 {
        self.events.get()
    }

    /// The process being polled.
    #[inline]
    pub fn current(&self) -> TaskId {
        TaskId(self.current.get())
    }

    /// Resumes a process at the current time, after everything already pending for that time.
    #[inline]
    pub fn wake(&self, task: TaskId) {
        self.post(self.now.get(), task.0);
    }

    /// Hands `signal` (below 2^31) to the driver of [`Engine::run`] at `time >= now`.
    #[inline]
    pub fn signal_at(&self, time: Time, signal: u32) {
        debug_assert!(signal < SIGNAL);
        self.post(time, signal | SIGNAL);
    }

    /// Waits until `time`; returns at once when it is not in the future.
    #[inline]
    pub fn sleep_until(&self, time: Time) -> Sleep<'_> {
        Sleep { engine: self, time, armed: false }
    }

    /// Waits until some [`crate::Waiter`] that the process has entered is notified.
    #[inline]
    pub fn park(&self) -> Park {
        Park(false)
    }

    /// Runs until every process has finished. `on_signal` receives what [`Engine::signal_at`] posted.
    ///
    /// # Errors
    /// [`Stop`] when the run cannot or must not go on; the processes stay where they are.
    pub fn run<F: Future<Output = ()>>(
        &self,
        tasks: &mut Tasks<F>,
        limits: &Limits,
        mut on_signal: impl FnMut(u32),
    ) -> Result<(), Stop> {
        let mut context = Context::from_waker(Waker::noop());
        for index in 0..tasks.futures.len() {
            self.poll(tasks, index as u32, &mut context);
        }
        loop {
            let Some((time, event, from)) = self.queue.borrow_mut().pop_from() else { break };
            self.history.fires(time, from);
            let count = self.events.get() + 1;
            self.events.set(count);
            if count > limits.max_events {
                return Err(Stop::EventLimit);
            }
            if time > limits.max_time {
                return Err(Stop::TimeLimit);
            }
            interrupt::spend(STEPS);
            self.now.set(time);
            if event & SIGNAL != 0 {
                on_signal(event & !SIGNAL);
            } else {
                self.poll(tasks, event, &mut context);
            }
        }
        if tasks.live == 0 {
            return Ok(());
        }
        let waiting = tasks.futures.iter().enumerate().filter(|(_, f)| f.is_some());
        Err(Stop::Deadlock(waiting.map(|(i, _)| TaskId(i as u32)).collect()))
    }

    #[inline]
    fn poll<F: Future<Output = ()>>(&self, tasks: &mut Tasks<F>, index: u32, context: &mut Context<'_>) {
        self.current.set(index);
        let slot = &mut tasks.futures[index as usize];
        if let Some(future) = slot
            && future.as_mut().poll(context).is_ready()
        {
            *slot = None;
            tasks.live -= 1;
        }
    }
}

/// Future of [`Engine::sleep_until`].
pub struct Sleep<'a> {
    engine: &'a Engine,
    time: Time,
    armed: bool,
}

impl Future for Sleep<'_> {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.armed || self.time <= self.engine.now.get() {
            return Poll::Ready(());
        }
        self.engine.post(self.time, self.engine.current.get());
        self.armed = true;
        Poll::Pending
    }
}

/// Future of [`Engine::park`].
pub struct Park(bool);

impl Future for Park {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.0 {
            return Poll::Ready(());
        }
        self.0 = true;
        Poll::Pending
    }
}
