//! The event queue: a radix heap that is FIFO among equal times.
//!
//! A monotone priority queue after Ahuja, Mehlhorn, Orlin and Tarjan (J. ACM 37(2), 1990): bucket `b > 0`
//! holds the keys whose highest bit that differs from the last popped key is bit `b - 1`; bucket 0
//! holds keys equal to it. Two equal keys always share a bucket and buckets are read in order of
//! insertion, so equal keys leave in the order they came: no sequence number is stored.

use crate::Time;

const NONE: u32 = u32::MAX;
const BLOCK: usize = 62;

#[derive(Clone, Copy)]
struct Entry {
    time: Time,
    event: u32,
    /// A number that the event carries.
    from: u32,
}

struct Block {
    entries: [Entry; BLOCK],
    len: u32,
    next: u32,
}

#[derive(Clone, Copy)]
struct Bucket {
    head: u32,
    tail: u32,
    min: Time,
}

const EMPTY: Bucket = Bucket { head: NONE, tail: NONE, min: Time::MAX };

/// A queue of (time, event) pairs, popped by time and, among equal times, in order of insertion.
pub struct EventQueue {
    last: Time,
    len: usize,
    /// Read position in the first block of bucket 0.
    cursor: u32,
    /// Bit `b` is set when bucket `b + 1` is not empty.
    occupied: u64,
    buckets: [Bucket; 65],
    blocks: Vec<Block>,
    free: u32,
}

impl Default for EventQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl EventQueue {
    /// An empty queue at time 0.
    pub fn new() -> Self {
        Self { last: 0, len: 0, cursor: 0, occupied: 0, buckets: [EMPTY; 65], blocks: Vec::new(), free: NONE }
    }

    /// Number of pending events.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The time of the next event.
    #[inline]
    pub fn next_time(&self) -> Option<Time> {
        if self.buckets[0].head != NONE {
            Some(self.last)
        } else if self.occupied != 0 {
            Some(self.buckets[self.occupied.trailing_zeros() as usize + 1].min)
        } else {
            None
        }
    }

    /// Adds an event.
    ///
    /// # Panics
    /// When `time` lies before the last popped time: virtual time never goes back.
    #[inline]
    pub fn push(&mut self, time: Time, event: u32) {
        self.push_from(time, event, 0);
    }

    /// Adds an event that carries a number.
    ///
    /// # Panics
    /// As [`EventQueue::push`].
    #[inline]
    pub fn push_from(&mut self, time: Time, event: u32, from: u32) {
        assert!(time >= self.last, "event posted into the past");
        self.insert(Entry { time, event, from });
        self.len += 1;
    }

    /// Removes the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<(Time, u32)> {
        self.pop_from().map(|(time, event, _)| (time, event))
    }

    /// Removes the next event, with the number that it carries.
    #[inline]
    pub fn pop_from(&mut self) -> Option<(Time, u32, u32)> {
        if self.buckets[0].head == NONE && !self.refill() {
            return None;
        }
        let head = self.buckets[0].head;
        let block = &self.blocks[head as usize];
        let entry = block.entries[self.cursor as usize];
        self.cursor += 1;
        if self.cursor == block.len {
            self.cursor = 0;
            let next = block.next;
            self.recycle(head);
            self.buckets[0].head = next;
            if next == NONE {
                self.buckets[0].tail = NONE;
            }
        }
        self.len -= 1;
        Some((entry.time, entry.event, entry.from))
    }

    /// Moves the lowest non-empty bucket down until bucket 0 holds the minimum.
    fn refill(&mut self) -> bool {
        if self.occupied == 0 {
            return false;
        }
        let index = self.occupied.trailing_zeros() as usize + 1;
        self.occupied &= self.occupied - 1;
        let bucket = std::mem::replace(&mut self.buckets[index], EMPTY);
        self.last = bucket.min;
        let mut block = bucket.head;
        while block != NONE {
            let (len, next) = (self.blocks[block as usize].len as usize, self.blocks[block as usize].next);
            for i in 0..len {
                let entry = self.blocks[block as usize].entries[i];
                self.insert(entry);
            }
            self.recycle(block);
            block = next;
        }
        true
    }

    #[inline]
    fn insert(&mut self, entry: Entry) {
        let index = (Time::BITS - (entry.time ^ self.last).leading_zeros()) as usize;
        if index > 0 {
            self.occupied |= 1 << (index - 1);
        }
        let bucket = &mut self.buckets[index];
        bucket.min = bucket.min.min(entry.time);
        let tail = bucket.tail;
        if tail != NONE {
            let block = &mut self.blocks[tail as usize];
            if (block.len as usize) < BLOCK {
                block.entries[block.len as usize] = entry;
                block.len += 1;
                return;
            }
        }
        let fresh = self.fresh(entry);
        let bucket = &mut self.buckets[index];
        if tail == NONE {
            bucket.head = fresh;
        } else {
            self.blocks[tail as usize].next = fresh;
        }
        self.buckets[index].tail = fresh;
    }

    fn fresh(&mut self, entry: Entry) -> u32 {
        let index = self.free;
        if index == NONE {
            self.blocks.push(Block { entries: [entry; BLOCK], len: 1, next: NONE });
            return self.blocks.len() as u32 - 1;
        }
        let block = &mut self.blocks[index as usize];
        self.free = block.next;
        block.entries[0] = entry;
        block.len = 1;
        block.next = NONE;
        index
    }

    fn recycle(&mut self, block: u32) {
        self.blocks[block as usize].next = self.free;
        self.free = block;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    proptest! {
        /// The radix heap behaves as a heap keyed by (time, sequence).
        #[test]
        fn agrees_with_a_keyed_heap(steps in prop::collection::vec((0u8..4, 0u64..200_000), 1..2000)) {
            let mut queue = EventQueue::new();
            let mut heap = BinaryHeap::new();
            let mut now = 0;
            for (sequence, (what, delay)) in steps.into_iter().enumerate() {
                if what == 0 {
                    let expected = heap.pop().map(|Reverse((t, s))| (t, s));
                    prop_assert_eq!(queue.next_time(), expected.map(|e: (u64, u32)| e.0));
                    prop_assert_eq!(queue.pop(), expected);
                    now = expected.map_or(now, |e| e.0);
                } else {
                    // Few distinct delays, so that ties are common.
                    let time = now + if what == 1 { delay % 3 } else { delay };
                    queue.push(time, sequence as u32);
                    heap.push(Reverse((time, sequence as u32)));
                }
                prop_assert_eq!(queue.len(), heap.len());
            }
            while let Some(Reverse((t, s))) = heap.pop() {
                prop_assert_eq!(queue.pop(), Some((t, s)));
            }
            prop_assert_eq!(queue.pop(), None);
        }
    }

    #[test]
    fn equal_times_leave_in_order_of_insertion() {
        let mut queue = EventQueue::new();
        for event in 0..1000 {
            queue.push(if event % 2 == 0 { 7 } else { 1 << 40 }, event);
        }
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop().map(|e| e.1)).collect();
        let expected: Vec<u32> = (0..1000).step_by(2).chain((1..1000).step_by(2)).collect();
        assert_eq!(order, expected);
    }

    #[test]
    fn blocks_are_recycled() {
        let mut queue = EventQueue::new();
        for round in 0..10_000u64 {
            queue.push(round * 10, 0);
            queue.push(round * 10 + 3, 1);
            queue.pop();
            queue.pop();
        }
        assert!(queue.blocks.len() < 8, "{} blocks for 2 pending events", queue.blocks.len());
    }

    #[test]
    #[should_panic(expected = "past")]
    fn the_past_is_refused() {
        let mut queue = EventQueue::new();
        queue.push(5, 0);
        queue.pop();
        queue.push(4, 0);
    }
}
