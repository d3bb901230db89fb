//! The order of operations: by distance from the start, distance to the end, and index.
//!
//! The heap is CPython's, since the order of operations that compare equal depends on how a heap moves its elements.

use super::fuse::Fused;
use super::record::NONE;
use crate::Faith;
use ahbm_plan::blocks::Action;

/// The operations in order, and what their order rests on.
pub struct Order {
    /// Every operation that is done.
    pub ops: Vec<u32>,
    /// Distance from the start of every operation, in steps.
    pub steps: Vec<u32>,
    /// Operations whose turn never comes at the language's own compiler: local reductions of inputs that nothing has
    /// touched, and what follows them.
    pub lost: Vec<u32>,
}

impl Order {
    /// By statement, for a program of which nothing is fused: every message is received right after it is sent.
    pub fn by_statement(mut self) -> Self {
        self.ops.sort_unstable();
        self
    }

    /// The turn of each of `ops` operations; of those that are not done, none.
    pub fn turns(&self, ops: usize) -> Vec<u32> {
        let mut turns = vec![NONE; ops];
        (0..).zip(&self.ops).for_each(|(turn, &op)| turns[op as usize] = turn);
        turns
    }
}

/// Orders the operations.
pub fn order(fused: &Fused, faith: Faith) -> Order {
    let count = fused.ops.len();
    let (steps, lengths) = distances(fused);
    let mut waiting: Vec<u32> = (0..count as u32).map(|op| fused.prev.of(op).len() as u32).collect();
    let mut heap = Heap { keys: Vec::with_capacity(count), items: Vec::new() };
    for (op, node) in fused.ops.iter().enumerate() {
        let key = [steps[op], u32::MAX - lengths[op], node.dst.index, node.src.index];
        heap.keys.push(key);
    }
    let starts = (0..count as u32).filter(|&op| fused.ops[op as usize].action.is_none());
    for start in starts.clone() {
        fused.next.of(start).iter().for_each(|&op| waiting[op as usize] -= 1);
    }
    let mut first = vec![false; count];
    let mut lost = Vec::new();
    for start in starts {
        for &op in fused.next.of(start) {
            match fused.ops[op as usize].action {
                Some(Action::Send | Action::Copy) => heap.push(op),
                Some(Action::Reduce) if waiting[op as usize] == 0 && !first[op as usize] => {
                    first[op as usize] = true;
                    lost.push(op);
                    if faith == Faith::Meant {
                        heap.push(op);
                    }
                }
                _ => {}
            }
        }
    }
    let mut done = vec![false; count];
    let mut ops = Vec::with_capacity(count);
    while let Some(op) = heap.pop() {
        if done[op as usize] {
            continue;
        }
        done[op as usize] = true;
        ops.push(op);
        for &next in fused.next.of(op) {
            waiting[next as usize] -= 1;
        }
        let to = fused.ops[op as usize].to;
        if to != NONE && waiting[to as usize] == 0 {
            heap.push(to);
        }
        for &next in fused.next.of(op) {
            let from = fused.ops[next as usize].from;
            if waiting[next as usize] == 0 && (from == NONE || done[from as usize]) {
                heap.push(next);
            }
        }
    }
    Order { ops, steps, lost }
}

/// Longest distance of every operation from a start, where starts are at 0, and to an end. An operation has a higher
/// number than everything before it.
fn distances(fused: &Fused) -> (Vec<u32>, Vec<u32>) {
    let count = fused.ops.len();
    let (mut steps, mut lengths) = (vec![0u32; count], vec![0u32; count]);
    let successors = |op: u32| {
        let to = fused.ops[op as usize].to;
        fused.next.of(op).iter().copied().chain((to != NONE).then_some(to))
    };
    for op in 0..count as u32 {
        let step = steps[op as usize] + 1;
        successors(op).for_each(|next| steps[next as usize] = steps[next as usize].max(step));
    }
    for op in (0..count as u32).rev() {
        lengths[op as usize] = successors(op).map(|next| lengths[next as usize] + 1).max().unwrap_or(0);
    }
    (steps, lengths)
}

/// The binary heap of CPython's `heapq`.
struct Heap {
    /// Of every operation.
    keys: Vec<[u32; 4]>,
    items: Vec<u32>,
}

impl Heap {
    fn less(&self, a: u32, b: u32) -> bool {
        self.keys[a as usize] < self.keys[b as usize]
    }

    fn push(&mut self, item: u32) {
        self.items.push(item);
        self.rise(self.items.len() - 1);
    }

    fn pop(&mut self) -> Option<u32> {
        let last = self.items.pop()?;
        if self.items.is_empty() {
            return Some(last);
        }
        let first = std::mem::replace(&mut self.items[0], last);
        let (mut at, end) = (0, self.items.len());
        while 2 * at + 1 < end {
            let mut child = 2 * at + 1;
            if child + 1 < end && !self.less(self.items[child], self.items[child + 1]) {
                child += 1;
            }
            self.items[at] = self.items[child];
            at = child;
        }
        self.items[at] = last;
        self.rise(at);
        Some(first)
    }

    fn rise(&mut self, mut at: usize) {
        let item = self.items[at];
        while at > 0 {
            let parent = (at - 1) / 2;
            if !self.less(item, self.items[parent]) {
                break;
            }
            self.items[at] = self.items[parent];
            at = parent;
        }
        self.items[at] = item;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_leave_the_heap_as_they_leave_cpythons() {
        // heapq over (key, name), compared by key alone: pushed 0..8, popped in this order by CPython.
        let keys = [5, 5, 1, 5, 1, 5, 1, 5].map(|key| [key, 0, 0, 0]).to_vec();
        let mut heap = Heap { keys, items: Vec::new() };
        (0..8).for_each(|item| heap.push(item));
        let order: Vec<u32> = std::iter::from_fn(|| heap.pop()).collect();
        assert_eq!(order, CPYTHON);
    }

    const CPYTHON: [u32; 8] = [2, 6, 4, 0, 5, 7, 1, 3];
}
