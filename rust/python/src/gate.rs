//! The place at which the threads of a world wait for one another.
//!
//! To wake a thread that sleeps takes tens of microseconds, and it then often sleeps once more: for the interpreter's
//! lock, which whoever woke it still holds. So a thread looks at its gate for a while before it sleeps, and sets off
//! only when the thread that ran has come to wait itself and has let go of the lock. If there are more ranks than
//! processors, only the thread that is told to be next looks: one runs, and one is awake to follow.

use pyo3::prelude::*;
use std::num::NonZero;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a thread looks at its gate before it sleeps, and how long at one that opened while another thread runs.
const PATIENCE: Duration = Duration::from_micros(400);
/// How many waits at most go by without looking after looks that were in vain.
const MOST_SKIPPED: u32 = 255;
const NOBODY: u32 = u32::MAX;

/// The state that the gates of one world share.
#[derive(Debug)]
struct Shared {
    /// The rank whose thread left its gate last, until it waits again. Only a hint: others may run too.
    running: AtomicU32,
    /// Whether there are several processors, and one for every rank's thread: those who look keep none from who runs.
    parallel: bool,
    roomy: bool,
    /// Waits to go without looking, and how many the next look in vain will cost: looks are in vain where ranks compute
    /// for long, and where other work keeps the processors, so that who looks keeps off whom it looks for.
    skip: AtomicU32,
    penalty: AtomicU32,
}

/// The gates of one world's ranks.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Gates {
    inner: Arc<Shared>,
}

#[pymethods]
impl Gates {
    #[new]
    fn new(ranks: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let (parallel, roomy) = (processors > 1, ranks <= processors);
        let (running, skip, penalty) = (AtomicU32::new(NOBODY), AtomicU32::new(0), AtomicU32::new(0));
        Self { inner: Arc::new(Shared { running, parallel, roomy, skip, penalty }) }
    }

    /// A closed gate for one wait of `rank`'s thread.
    fn gate(&self, rank: u32) -> Gate {
        Gate { world: Some((self.inner.clone(), rank)), ..Gate::new() }
    }

    /// `rank`'s thread will not wait any more: nobody needs to look out for it.
    fn leave(&self, rank: u32) {
        self.inner.yield_by(rank);
    }
}

/// Opened once, by any thread; waited at by one.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Gate {
    /// Of a rank's thread.
    world: Option<(Arc<Shared>, u32)>,
    open: AtomicBool,
    /// Announced since it was last looked at.
    next: AtomicBool,
    asleep: Mutex<bool>,
    bell: Condvar,
}

#[pymethods]
impl Gate {
    /// A closed gate for one wait of a thread that is no rank's: it sleeps at once.
    #[new]
    fn new() -> Self {
        let (open, next) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { world: None, open, next, asleep: Mutex::new(false), bell: Condvar::new() }
    }

    /// Lets the waiting thread go on, or whoever comes to wait.
    fn open(&self) {
        self.open.store(true, SeqCst);
        self.ring();
    }

    /// Tells the waiting thread that this gate is likely to be the next that opens.
    fn announce(&self) {
        if self.world.as_ref().is_some_and(|(world, _)| world.parallel) {
            self.next.store(true, SeqCst);
            self.ring();
        }
    }

    /// Blocks until the gate is open, at most `seconds`; returns whether it is. The interpreter lock is released.
    #[pyo3(signature = (seconds=None))]
    fn wait(&self, py: Python<'_>, seconds: Option<f64>) -> bool {
        let limit = seconds.map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX));
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let opened = py.detach(|| self.block(deadline));
        if let Some((world, rank)) = &self.world {
            world.running.store(*rank, SeqCst);
        }
        opened
    }
}

impl Shared {
    fn yield_by(&self, rank: u32) {
        _ = self.running.compare_exchange(rank, NOBODY, SeqCst, SeqCst);
    }

    /// Looks until `done`, not for long; returns whether it is.
    fn look(&self, mut done: impl FnMut() -> bool) -> bool {
        if done() {
            return true;
        }
        let skip = self.skip.load(Relaxed);
        if skip > 0 {
            self.skip.store(skip - 1, Relaxed);
            return false;
        }
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            for _ in 0..16 {
                if done() {
                    self.penalty.store(self.penalty.load(Relaxed).saturating_sub(1), Relaxed);
                    return true;
                }
                std::hint::spin_loop();
            }
            // Whom it looks for may be on this very processor.
            std::thread::yield_now();
        }
        let penalty = (2 * self.penalty.load(Relaxed) + 1).min(MOST_SKIPPED);
        self.penalty.store(penalty, Relaxed);
        self.skip.store(penalty, Relaxed);
        false
    }
}

impl Gate {
    fn is_open(&self) -> bool {
        self.open.load(SeqCst)
    }

    fn ring(&self) {
        if *self.asleep.lock().unwrap_or_else(PoisonError::into_inner) {
            self.bell.notify_one();
        }
    }

    fn block(&self, deadline: Option<Instant>) -> bool {
        let Some((world, rank)) = &self.world else {
            return self.sleep(deadline);
        };
        world.yield_by(*rank);
        let mut looks = world.roomy;
        while !(self.is_open() || looks && world.look(|| self.is_open())) {
            if !self.sleep(deadline) {
                return false;
            }
            looks = self.next.swap(false, SeqCst) || world.roomy;
        }
        if looks {
            world.look(|| world.running.compare_exchange(NOBODY, *rank, SeqCst, SeqCst).is_ok());
        }
        true
    }

    /// Until the gate is open or announced; false when it is neither at the deadline.
    fn sleep(&self, deadline: Option<Instant>) -> bool {
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        *asleep = true;
        while !self.is_open() && !self.next.load(SeqCst) {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            asleep = match left {
                Some(Duration::ZERO) => return false,
                Some(left) => {
                    self.bell.wait_timeout(asleep, left).map_or_else(|e| e.into_inner().0, |(guard, _)| guard)
                }
                None => self.bell.wait(asleep).unwrap_or_else(PoisonError::into_inner),
            };
        }
        *asleep = false;
        true
    }
}
