//! Channels as the data pass sees them: messages in order of sending, taken by ticket.

use std::collections::VecDeque;

/// A value on its way, with the operation that sent it.
#[derive(Debug)]
pub(super) struct Message<V> {
    pub(super) value: V,
    pub(super) op: u32,
}

/// One channel. A receive's ticket is its position among the receives of the channel, in the
/// receiver's program order; it gets the message with that position among the sends.
#[derive(Debug)]
pub(super) struct Queue<V> {
    /// Position of the first message still held.
    base: u64,
    messages: VecDeque<Option<Message<V>>>,
    /// The next ticket.
    tickets: u64,
}

impl<V> Default for Queue<V> {
    fn default() -> Self {
        Self { base: 0, messages: VecDeque::new(), tickets: 0 }
    }
}

impl<V> Queue<V> {
    pub(super) fn send(&mut self, message: Message<V>) {
        self.messages.push_back(Some(message));
    }

    /// Messages from the first that is still held to the last.
    pub(super) fn held(&self) -> usize {
        self.messages.len()
    }

    /// Claims the next position.
    pub(super) fn post(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets - 1
    }

    /// The message of a ticket, once it was sent.
    pub(super) fn take(&mut self, ticket: u64) -> Option<Message<V>> {
        let at = usize::try_from(ticket.checked_sub(self.base)?).ok()?;
        let message = self.messages.get_mut(at)?.take();
        while let Some(None) = self.messages.front() {
            self.messages.pop_front();
            self.base += 1;
        }
        message
    }

    /// Claims the next position and takes its message, or does neither.
    pub(super) fn receive(&mut self) -> Option<Message<V>> {
        let message = self.take(self.tickets)?;
        self.tickets += 1;
        Some(message)
    }
}
