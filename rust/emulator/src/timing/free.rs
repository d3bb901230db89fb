//! Operations that cost nothing, for what a run would gain without their costs.
//!
//! Such an operation is dispatched in no time, and its transfer, message, slots, credit and math take none. It waits as
//! ever: for a slot, a message, a signal. Its message does not overtake those that its queue has sent before.

use super::Sim;
use super::recorder::Recorder;
use ahbm_engine::{FifoId, Time};
use ahbm_program::ChannelId;
use std::cell::RefCell;
use std::collections::VecDeque;

pub(super) struct Free<'a> {
    /// Per body and operation.
    ops: &'a [Vec<bool>],
    /// Per channel, its messages from the first on that has not arrived; those that cost nothing with the time of their
    /// send.
    under_way: Vec<RefCell<VecDeque<Option<Time>>>>,
}

impl<'a> Free<'a> {
    pub(super) fn new(ops: &'a [Vec<bool>], channels: usize) -> Self {
        Self { ops, under_way: super::default_vec(channels) }
    }

    #[inline]
    pub(super) fn has(&self, body: u32, op: u32) -> bool {
        self.ops[body as usize][op as usize]
    }

    /// A message is sent, for nothing if `at` says when. True when it has arrived with that: nothing is before it.
    pub(super) fn send(&self, channel: ChannelId, at: Option<Time>) -> bool {
        let mut under_way = self.under_way[channel.0 as usize].borrow_mut();
        let arrived = at.is_some() && under_way.is_empty();
        if !arrived {
            under_way.push_back(at);
        }
        arrived
    }
}

impl<R: Recorder> Sim<'_, R> {
    /// A message is visible at `at`, with those behind it that cost nothing.
    #[inline]
    pub(super) fn publish(&self, channel: ChannelId, at: Time) {
        self.messages.set(self.messages.get() + 1);
        self.fifos.publish(FifoId(channel.0), at, &self.engine);
        if let Some(free) = &self.free {
            let mut under_way = free.under_way[channel.0 as usize].borrow_mut();
            under_way.pop_front();
            while let Some(&Some(sent)) = under_way.front() {
                under_way.pop_front();
                self.messages.set(self.messages.get() + 1);
                self.fifos.publish(FifoId(channel.0), sent.max(at), &self.engine);
            }
        }
    }
}
