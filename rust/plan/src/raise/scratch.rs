//! Scratch of one rank: runs of chunks that are taken and given back.

use std::collections::BTreeMap;

/// Free runs by size.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    free: BTreeMap<u32, Vec<u32>>,
    /// Chunks so far.
    pub(super) chunks: u64,
}

impl Scratch {
    /// The first of `count` chunks that nobody uses; one of that size that was given back, else behind all others.
    pub(super) fn take(&mut self, count: u32) -> u32 {
        self.free.get_mut(&count).and_then(Vec::pop).unwrap_or_else(|| {
            let first = self.chunks;
            self.chunks += u64::from(count);
            u32::try_from(first).unwrap_or(u32::MAX)
        })
    }

    pub(super) fn give(&mut self, first: u32, count: u32) {
        self.free.entry(count).or_default().push(first);
    }
}
