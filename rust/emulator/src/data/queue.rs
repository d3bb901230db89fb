//! Channels as the data pass sees them: messages in order of sending, taken by ticket.

use super::value::Value;
use std::collections::VecDeque;

/// A value on its way, with the operation that sent it.
#[derive(Debug)]
pub(super) struct Message<'p> {
    pub(super) value: Value<'p>,
    pub(super) op: u32,
}

/// One channel. A receive's ticket is its position among the receives of the channel, in the
/// receiver's program order; it gets the message with that position among the sends.
#[derive(Debug, Default)]
pub(super) struct Queue<'p> {
    /// Position of the first message still held.
    base: u64,
    messages: VecDeque<Option<Message<'p>>>,
    /// The next ticket.
    tickets: u64,
}

impl<'p> Queue<'p> {
    pub(super) fn send(&mut self, message: Message<'p>) {
        self.messages.push_back(Some(message));
    }

    /// Claims the next position.
    pub(super) fn post(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets - 1
    }

    /// The message of a ticket, once it was sent.
    pub(super) fn take(&mut self, ticket: u64) -> Option<Message<'p>> {
        let at = usize::try_from(ticket.checked_sub(self.base)?).ok()?;
        let message = self.messages.get_mut(at)?.take();
        while let Some(None) = self.messages.front() {
            self.messages.pop_front();
            self.base += 1;
        }
        message
    }

    /// Claims the next position and takes its message, or does neither.
    pub(super) fn receive(&mut self) -> Option<Message<'p>> {
        let message = self.take(self.tickets)?;
        self.tickets += 1;
        Some(message)
    }
}
