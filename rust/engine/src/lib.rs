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
//! A sender with one slot to fill, and a receiver that takes 7 ps for each message:
//!
//! ```
//! use ahbm_engine::{Engine, Fifos, Limits, Stop, TaskId, Tasks};
//! use std::cell::Cell;
//!
//! let engine = Engine::new();
//! let mut queues = Fifos::default();
//! let queue = queues.add(1);
//! let last = Cell::new(0);
//!
//! // A queue answers with a time, or not yet; the process then sleeps until the time, or until it is notified.
//! let process = |sends: bool, messages: u32| {
//!     let (engine, queues, last) = (&engine, &queues, &last);
//!     async move {
//!         for _ in 0..messages {
//!             loop {
//!                 let known = if sends { queues.try_claim(queue) } else { queues.try_take(queue) };
//!                 if let Some(time) = known {
//!                     engine.sleep_until(time).await;
//!                     break;
//!                 }
//!                 let waiter = if sends { queues.sender(queue) } else { queues.receiver(queue) };
//!                 waiter.enter(engine);
//!                 engine.park().await;
//!             }
//!             if sends {
//!                 queues.publish(queue, engine.now() + 3, engine);
//!             } else {
//!                 last.set(engine.now() + 7);
//!                 queues.release(queue, last.get(), engine);
//!             }
//!         }
//!     }
//! };
//!
//! let mut tasks = Tasks::new([process(true, 2), process(false, 2)]);
//! engine.run(&mut tasks, &Limits::default(), |_| {})?;
//! assert_eq!(last.get(), 3 + 7 + 3 + 7);
//!
//! // A third message is never sent: its receiver is not forgotten.
//! let mut tasks = Tasks::new([process(false, 1)]);
//! assert_eq!(engine.run(&mut tasks, &Limits::default(), |_| {}), Err(Stop::Deadlock(vec![TaskId(0)])));
//! # Ok::<(), Stop>(())
//! ```
//!
//! Reading order: [`queue`] (the event queue), [`executor`] (processes), [`waiter`] (one-slot notification),
//! [`fifo`] (bounded queues with credits) and [`resource`] (things that are busy until a time).
//! [`interrupt`] ends what nobody wants any more.
//! Resources and queues are *passive*: they hold timestamps, not processes, so a message costs about
//! one event.

pub mod executor;
pub mod fifo;
mod history;
pub mod interrupt;
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
