//! Virtual time for deterministic simulation. Knows no hardware.
//!
//! Processes are plain Rust futures driven by [`Engine::run`]. The guarantees, in order of importance:
//!
//! 1. **Order.** Events fire by (time, sequence of posting). Two runs of the same program post the same
//!    events in the same order; nothing else (wall clock, hashing, threads) has any influence.
//! 2. **Monotone time.** [`Engine::now`] never goes back. An event can be posted for now or later.
//! 3. **A blocked process is never forgotten.** When no event is left and a process has not finished,
//!    [`Engine::run`] returns [`Stop::Deadlock`] with every process that still waits.
//! 4. **No allocation per event.** Events are 16 bytes in recycled blocks; a waiting process is one
//!    index in the slot of what it waits for; there are no wakers.
//!
//! Read [`queue`] (the event queue), [`executor`] (processes), [`waiter`] (one-slot notification),
//! [`fifo`] (bounded queues with credits) and [`resource`] (things that are busy until a time).
//! Resources and queues are *passive*: they hold timestamps, not processes, so a message costs about
//! one event.

pub mod executor;
pub mod fifo;
pub mod queue;
pub mod resource;
pub mod waiter;

pub use executor::{Engine, Limits, Stop, TaskId, Tasks};
pub use fifo::{FifoId, Fifos};
pub use queue::EventQueue;
pub use resource::Resource;
pub use waiter::Waiter;

/// Virtual time in picoseconds.
pub type Time = u64;
