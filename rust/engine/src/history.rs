//! Where events come from: what posted an event, back to the start of the run.

use crate::Time;
use std::cell::{Cell, RefCell};

/// The events of a run, numbered from 1 in the order in which they fired. Number 0 stands for the start.
#[derive(Default)]
pub(crate) struct History {
    /// Per event its time and the number of the event that posted it; nothing where nobody wants to know.
    events: Option<RefCell<Vec<(Time, u32)>>>,
    current: Cell<u32>,
}

impl History {
    /// A history that is kept.
    pub(crate) fn kept() -> Self {
        Self { events: Some(RefCell::default()), current: Cell::new(0) }
    }

    /// The number of the event that fires; 0 where none is kept.
    #[inline]
    pub(crate) fn current(&self) -> u32 {
        self.current.get()
    }

    /// An event fires that event `from` has posted.
    #[inline]
    pub(crate) fn fires(&self, time: Time, from: u32) {
        if let Some(events) = &self.events {
            let mut events = events.borrow_mut();
            events.push((time, from));
            self.current.set(events.len() as u32);
        }
    }

    /// See [`crate::Engine::ordered`].
    pub(crate) fn ordered(&self, one: u32, other: u32) -> bool {
        let Some(events) = &self.events else { return false };
        let events = events.borrow();
        let (mut one, mut other) = (one, other);
        while one != other {
            // Everything else comes after the start.
            let (Some(a), Some(b)) = (one.checked_sub(1), other.checked_sub(1)) else { return true };
            let (a, b) = (events[a as usize], events[b as usize]);
            if a.0 != b.0 {
                return true;
            }
            (one, other) = (a.1, b.1);
        }
        false
    }
}
