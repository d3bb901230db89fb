//! Bounded queues with credits, as timestamps.
//!
//! A queue is a ring of slots between one sender and one receiver. Each slot holds a single time whose
//! meaning alternates: after `publish` it is when the message becomes visible to the receiver, after
//! `release` when the credit becomes visible to the sender. Both sides may run ahead of the engine's
//! clock: they only ever combine times with `max`, so the result does not depend on who is polled first.

use crate::{Engine, Time, Waiter};
use std::cell::Cell;

/// Index of a queue in its [`Fifos`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FifoId(pub u32);

/// Slots that a queue has in itself.
const NEAR: usize = 4;

/// A run of many queues waits for memory: one with few slots is a line of the cache.
#[derive(Debug)]
#[repr(align(64))]
struct Fifo {
    /// The times of at most [`NEAR`] slots.
    near: [Cell<Time>; NEAR],
    /// Those of more begin here.
    base: u32,
    slots: u32,
    sent: Cell<u32>,
    published: Cell<u32>,
    taken: Cell<u32>,
    released: Cell<u32>,
    sender: Waiter,
    receiver: Waiter,
}

/// A set of bounded queues.
#[derive(Debug, Default)]
pub struct Fifos {
    queues: Vec<Fifo>,
    times: Vec<Cell<Time>>,
}

impl Fifos {
    /// An empty set with room for so many queues.
    pub fn with_capacity(queues: usize) -> Self {
        Self { queues: Vec::with_capacity(queues), times: Vec::new() }
    }

    /// Adds a queue of `slots >= 1` slots, all free from time 0.
    pub fn add(&mut self, slots: u32) -> FifoId {
        let base = self.times.len() as u32;
        if slots as usize > NEAR {
            self.times.resize_with(self.times.len() + slots as usize, Cell::default);
        }
        self.queues.push(Fifo {
            near: Default::default(),
            base,
            slots,
            sent: Cell::new(0),
            published: Cell::new(0),
            taken: Cell::new(0),
            released: Cell::new(0),
            sender: Waiter::default(),
            receiver: Waiter::default(),
        });
        FifoId(self.queues.len() as u32 - 1)
    }

    #[inline]
    fn time<'a>(&'a self, fifo: &'a Fifo, index: u32) -> &'a Cell<Time> {
        let slot = if fifo.slots.is_power_of_two() { index & (fifo.slots - 1) } else { index % fifo.slots };
        if fifo.slots as usize <= NEAR { &fifo.near[slot as usize] } else { &self.times[(fifo.base + slot) as usize] }
    }

    /// Sender: when the credit of the next slot is visible, without claiming it; `None` while no credit is known.
    #[inline]
    pub fn free(&self, id: FifoId) -> Option<Time> {
        let fifo = &self.queues[id.0 as usize];
        let sent = fifo.sent.get();
        (sent.wrapping_sub(fifo.released.get()) < fifo.slots).then(|| self.time(fifo, sent).get())
    }

    /// Sender: claims the next slot; returns when its credit is visible, `None` while no credit is known.
    #[inline]
    pub fn try_claim(&self, id: FifoId) -> Option<Time> {
        let fifo = &self.queues[id.0 as usize];
        let sent = fifo.sent.get();
        if sent.wrapping_sub(fifo.released.get()) >= fifo.slots {
            return None;
        }
        fifo.sent.set(sent.wrapping_add(1));
        Some(self.time(fifo, sent).get())
    }

    /// Sender: the oldest claimed message becomes visible to the receiver at `at`.
    #[inline]
    pub fn publish(&self, id: FifoId, at: Time, engine: &Engine) {
        let fifo = &self.queues[id.0 as usize];
        let index = fifo.published.get();
        debug_assert!(index != fifo.sent.get(), "published what was not claimed");
        self.time(fifo, index).set(at);
        fifo.published.set(index.wrapping_add(1));
        fifo.receiver.notify(engine);
    }

    /// Receiver: when the next message is visible, without taking it; `None` while that is not known.
    #[inline]
    pub fn peek(&self, id: FifoId) -> Option<Time> {
        let fifo = &self.queues[id.0 as usize];
        let index = fifo.taken.get();
        (index != fifo.published.get()).then(|| self.time(fifo, index).get())
    }

    /// Receiver: takes the next message; returns when it is visible, `None` while that is not known.
    #[inline]
    pub fn try_take(&self, id: FifoId) -> Option<Time> {
        let time = self.peek(id)?;
        let fifo = &self.queues[id.0 as usize];
        fifo.taken.set(fifo.taken.get().wrapping_add(1));
        Some(time)
    }

    /// Receiver: gives the oldest taken slot back; the sender sees the credit at `at`.
    #[inline]
    pub fn release(&self, id: FifoId, at: Time, engine: &Engine) {
        let fifo = &self.queues[id.0 as usize];
        let index = fifo.released.get();
        debug_assert!(index != fifo.taken.get(), "released what was not taken");
        self.time(fifo, index).set(at);
        fifo.released.set(index.wrapping_add(1));
        fifo.sender.notify(engine);
    }

    /// The sender waits here for a credit.
    pub fn sender(&self, id: FifoId) -> &Waiter {
        &self.queues[id.0 as usize].sender
    }

    /// The receiver waits here for a message.
    pub fn receiver(&self, id: FifoId) -> &Waiter {
        &self.queues[id.0 as usize].receiver
    }

    /// (claimed by the sender, taken by the receiver) since the start.
    pub fn progress(&self, id: FifoId) -> (u32, u32) {
        let fifo = &self.queues[id.0 as usize];
        (fifo.sent.get(), fifo.taken.get())
    }
}
