//! Which arrival a receive takes: the k-th of (tag, source, destination, bytes) takes the k-th.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;

/// What goes on when a message has arrived or a receive has been served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Nothing.
    Nothing,
    /// A node of a rank ends.
    Node(u32, u32),
    /// A stream has received.
    Stream(u32),
    /// A node of an algorithm graph ends: the run of the graph, the node.
    Step(u32, u32),
    /// A message that waited to be asked for leaves.
    Leave(u32),
    /// A receive whose sender has been asked is posted.
    Post(u32),
}

/// What tells messages apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) tag: u32,
    pub(super) bytes: u64,
}

#[derive(Debug)]
enum Slot {
    /// As many messages that nobody has received.
    Arrived(u32),
    /// A receive that waits.
    Waits(Then),
    /// Several.
    Queue(VecDeque<Then>),
}

/// Messages and receives that have not met.
#[derive(Debug, Default)]
pub(super) struct Mail {
    slots: FxHashMap<Key, Slot>,
}

impl Mail {
    /// A message has arrived: who receives it, where somebody waits.
    pub(super) fn arrived(&mut self, key: Key) -> Option<Then> {
        match self.slots.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Slot::Arrived(1));
                None
            }
            Entry::Occupied(mut entry) => match entry.get_mut() {
                Slot::Arrived(many) => {
                    *many += 1;
                    None
                }
                Slot::Waits(then) => {
                    let then = *then;
                    entry.remove();
                    Some(then)
                }
                Slot::Queue(queue) => {
                    let then = queue.pop_front();
                    if queue.is_empty() {
                        entry.remove();
                    }
                    then
                }
            },
        }
    }

    /// A receive is posted; true where its message is there already.
    pub(super) fn posted(&mut self, key: Key, then: Then) -> bool {
        match self.slots.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Slot::Waits(then));
                false
            }
            Entry::Occupied(mut entry) => match entry.get_mut() {
                Slot::Arrived(many) => {
                    *many -= 1;
                    if *many == 0 {
                        entry.remove();
                    }
                    true
                }
                Slot::Waits(first) => {
                    let queue = VecDeque::from([*first, then]);
                    entry.insert(Slot::Queue(queue));
                    false
                }
                Slot::Queue(queue) => {
                    queue.push_back(then);
                    false
                }
            },
        }
    }

    /// Keys of messages that nobody has received, in order.
    pub(super) fn unreceived(&self) -> Vec<Key> {
        let arrived = |(key, slot): (&Key, &Slot)| matches!(slot, Slot::Arrived(_)).then_some(*key);
        let mut keys: Vec<Key> = self.slots.iter().filter_map(arrived).collect();
        keys.sort_unstable_by_key(|key| (key.dst, key.src, key.tag, key.bytes));
        keys
    }
}
