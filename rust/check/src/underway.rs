//! Clocks on their way: what messages, free slots, counters and semaphores will tell.

use crate::ticks::{Clock, Ticks};
use std::collections::VecDeque;

/// The clock that waits on a counter see: the one at the signal that made its value reach the awaited value.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    pub(crate) value: u64,
    /// Signals to come. What is known after the last of them, only those who wait need.
    to_come: u32,
    /// Everything signalled so far.
    known: Option<Clock>,
    /// By value, in order.
    awaited: Vec<Awaited>,
}

/// A value that is waited for.
#[derive(Debug)]
struct Awaited {
    value: u64,
    /// Waits to come.
    waits: u32,
    /// Once it is reached.
    clock: Option<Clock>,
}

/// The clock that takers of a semaphore see.
#[derive(Debug, Default)]
pub(crate) struct Semaphore {
    /// Value and clock of every signal that a taker to come may need.
    signals: VecDeque<(u64, Clock)>,
    /// How much was taken.
    acquired: u64,
}

/// The clocks of a queue's messages, or of its slots, in turn; those that nobody asks for any more are dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    dropped: u64,
    clocks: VecDeque<Option<Clock>>,
}

impl Counter {
    /// Somebody will signal.
    pub(crate) fn await_signal(&mut self) {
        self.to_come += 1;
    }

    /// Somebody will wait for a value.
    pub(crate) fn await_value(&mut self, value: u64) {
        match self.awaited.binary_search_by_key(&value, |awaited| awaited.value) {
            Ok(at) => self.awaited[at].waits += 1,
            Err(at) => self.awaited.insert(at, Awaited { value, waits: 1, clock: None }),
        }
    }

    /// What is known behind a signal.
    pub(crate) fn signal(&mut self, clock: Clock, add: u32, ticks: &mut Ticks) -> Clock {
        let known = self.known.take().map_or(clock, |known| ticks.join(known, clock));
        let first = self.awaited.partition_point(|awaited| awaited.value <= self.value);
        self.value = self.value.saturating_add(add.into());
        self.awaited[first..].iter_mut().take_while(|awaited| awaited.value <= self.value).for_each(|awaited| {
            awaited.clock = Some(known);
        });
        self.to_come = self.to_come.saturating_sub(1);
        self.known = (self.to_come > 0).then_some(known);
        known
    }

    pub(crate) fn waited(&mut self, value: u64) -> Option<Clock> {
        let at = self.awaited.binary_search_by_key(&value, |awaited| awaited.value).ok()?;
        let awaited = &mut self.awaited[at];
        awaited.waits -= 1;
        if awaited.waits == 0 { awaited.clock.take() } else { awaited.clock }
    }

    pub(crate) fn clocks(&self) -> impl Iterator<Item = Clock> {
        self.known.into_iter().chain(self.awaited.iter().filter_map(|awaited| awaited.clock))
    }
}

impl Semaphore {
    /// A signal made its value `value`.
    pub(crate) fn signal(&mut self, value: u64, clock: Clock) {
        self.signals.push_back((value, clock));
    }

    /// The clock a taker knows: of the signals it needed, not of those that happened to have come as well.
    pub(crate) fn acquired(&mut self, amount: u64) -> Option<Clock> {
        self.acquired = self.acquired.saturating_add(amount);
        while self.signals.front().is_some_and(|&(value, _)| value < self.acquired) {
            self.signals.pop_front();
        }
        self.signals.front().map(|&(_, clock)| clock)
    }

    pub(crate) fn clocks(&self) -> impl Iterator<Item = Clock> {
        self.signals.iter().map(|&(_, clock)| clock)
    }
}

impl Queue {
    pub(crate) fn push(&mut self, clock: Clock) {
        self.clocks.push_back(Some(clock));
    }

    /// All that were pushed.
    pub(crate) fn total(&self) -> u64 {
        self.dropped + self.clocks.len() as u64
    }

    pub(crate) fn at(&self, number: u64) -> Option<Clock> {
        *self.clocks.get(number.checked_sub(self.dropped)? as usize)?
    }

    pub(crate) fn take(&mut self, number: u64) -> Option<Clock> {
        let clock = self.clocks.get_mut(number.checked_sub(self.dropped)? as usize)?.take();
        while let Some(None) = self.clocks.front() {
            self.clocks.pop_front();
            self.dropped += 1;
        }
        clock
    }

    /// Nobody asks for what was pushed up to this one any more.
    pub(crate) fn drop_to(&mut self, number: u64) {
        while self.dropped <= number && self.clocks.pop_front().is_some() {
            self.dropped += 1;
        }
    }

    pub(crate) fn clocks(&self) -> impl Iterator<Item = Clock> {
        self.clocks.iter().filter_map(|&clock| clock)
    }
}
