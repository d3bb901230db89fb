//! Notification: one slot that remembers who waits.

use crate::{Engine, TaskId};
use std::cell::Cell;

const NOBODY: u32 = u32::MAX;

/// A place for at most one waiting process.
#[derive(Debug)]
pub struct Waiter(Cell<u32>);

impl Default for Waiter {
    fn default() -> Self {
        Self(Cell::new(NOBODY))
    }
}

impl Waiter {
    /// Enters the running process; it then parks with [`Engine::park`].
    #[inline]
    pub fn enter(&self, engine: &Engine) {
        debug_assert!(self.0.get() == NOBODY || self.0.get() == engine.current().0, "two processes wait in one slot");
        self.0.set(engine.current().0);
    }

    /// Withdraws whoever waits.
    #[inline]
    pub fn leave(&self) {
        self.0.set(NOBODY);
    }

    /// Resumes whoever waits, at the current time.
    #[inline]
    pub fn notify(&self, engine: &Engine) {
        let task = self.0.replace(NOBODY);
        if task != NOBODY {
            engine.wake(TaskId(task));
        }
    }
}
