//! Exclusive resources as timestamps: busy until a time, nothing more.

use crate::Time;
use std::cell::Cell;

/// Something that serves one user at a time, in order of reservation.
///
/// Reserve in order of request time; a resource cannot reorder what it has granted.
#[derive(Debug, Default)]
pub struct Resource {
    free_at: Cell<Time>,
}

impl Resource {
    /// Grants the resource from `max(at, free)` for `duration` and returns when it starts.
    #[inline]
    pub fn reserve(&self, at: Time, duration: Time) -> Time {
        let start = at.max(self.free_at.get());
        self.free_at.set(start + duration);
        start
    }

    /// When the resource is free again.
    #[inline]
    pub fn free_at(&self) -> Time {
        self.free_at.get()
    }

    /// Keeps the resource busy at least until `time`.
    #[inline]
    pub fn hold_until(&self, time: Time) {
        self.free_at.set(self.free_at.get().max(time));
    }
}
