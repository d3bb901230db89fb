//! Running a recipe on arrays.

use super::{Item, Recipe, Source, Step, With};
use crate::data::elementwise;
use std::ops::Range;

/// Bytes of a block: a few of them fit the first cache.
const BLOCK: usize = 1 << 14;
/// Threads share items at multiples of this many bytes.
const SHARE: usize = 1 << 12;
/// Bytes that are worth a thread.
const WORTH: u64 = 1 << 20;

/// What all threads read: per array, the pieces before, between and behind what is written; and the copies.
struct Shared<'a> {
    unwritten: Vec<Vec<&'a [u8]>>,
    staged: &'a [u8],
}

/// Some bytes of an item, from byte `at` on, and where they go.
struct Job<'a> {
    item: &'a Item,
    at: usize,
    dests: Vec<&'a mut [u8]>,
}

impl Recipe {
    /// Makes the results of the operands, on at most so many threads. Arrays are at least as long as [`Recipe::sizes`]
    /// says.
    pub fn run(&self, arrays: &mut [&mut [u8]], threads: usize) {
        let mut room = vec![0u64; self.staged.iter().map(|range| range.len.div_ceil(8)).sum()];
        let staged: &mut [u8] = bytemuck::cast_slice_mut(&mut room);
        let mut at = 0;
        for range in &self.staged {
            staged[at..at + range.len].copy_from_slice(&arrays[range.array][range.at..range.at + range.len]);
            at += range.len.next_multiple_of(8);
        }
        let mut jobs: Vec<Job<'_>> =
            self.items.iter().map(|item| Job { item, at: 0, dests: Vec::with_capacity(item.dests.len()) }).collect();
        let mut shared = Shared { unwritten: Vec::with_capacity(arrays.len()), staged };
        let mut pieces: Vec<(usize, usize, &mut [u8])> = Vec::new();
        for (array, writes) in arrays.iter_mut().zip(&self.writes) {
            let (mut rest, mut at, mut unwritten) = (&mut **array, 0, Vec::with_capacity(writes.len() + 1));
            for write in writes {
                let (gap, tail) = rest.split_at_mut(write.at - at);
                let (piece, tail) = tail.split_at_mut(self.items[write.item].len);
                at = write.at + piece.len();
                unwritten.push(&*gap);
                pieces.push((write.item, write.dest, piece));
                rest = tail;
            }
            unwritten.push(&*rest);
            shared.unwritten.push(unwritten);
        }
        pieces.sort_unstable_by_key(|&(item, dest, _)| (item, dest));
        for (item, _, piece) in pieces {
            jobs[item].dests.push(piece);
        }
        let threads = threads.min((self.bytes / WORTH) as usize).max(1);
        let mut shares = deal(jobs, threads);
        let own = shares.pop().unwrap_or_default();
        std::thread::scope(|scope| {
            for share in shares {
                scope.spawn(|| work(share, &shared));
            }
            work(own, &shared);
        });
    }
}

/// Deals out the jobs to threads: long ones to all of them, piece by piece, the others in turn.
fn deal(jobs: Vec<Job<'_>>, threads: usize) -> Vec<Vec<Job<'_>>> {
    let mut shares: Vec<Vec<Job<'_>>> = (0..threads).map(|_| Vec::new()).collect();
    for (number, mut job) in jobs.into_iter().enumerate() {
        let len = job.item.len;
        if len < 4 * threads * SHARE {
            shares[number % threads].push(job);
            continue;
        }
        let mut from = 0;
        for (thread, share) in shares.iter_mut().enumerate() {
            let to = if thread + 1 == threads { len } else { len * (thread + 1) / threads / SHARE * SHARE };
            let mut dests = Vec::with_capacity(job.dests.len());
            for dest in &mut job.dests {
                let (mine, rest) = std::mem::take(dest).split_at_mut(to - from);
                dests.push(mine);
                *dest = rest;
            }
            share.push(Job { item: job.item, at: from, dests });
            from = to;
        }
    }
    shares
}

fn work(jobs: Vec<Job<'_>>, shared: &Shared<'_>) {
    let registers = jobs.iter().map(|job| job.item.registers()).max().unwrap_or(0);
    // One more, for operands that are not aligned.
    let mut registers: Vec<Vec<u64>> = (0..=registers).map(|_| vec![0; BLOCK / 8]).collect();
    for mut job in jobs {
        let len = job.dests.first().map_or(0, |dest| dest.len());
        for from in (0..len).step_by(BLOCK) {
            job.block(from..len.min(from + BLOCK), &mut registers, shared);
        }
    }
}

impl Job<'_> {
    fn block(&mut self, range: Range<usize>, registers: &mut [Vec<u64>], shared: &Shared<'_>) {
        let n = range.len();
        if let [Step::Load { source, .. }] = self.item.code[..]
            && let Some(from) = self.elsewhere(source, &range, shared)
        {
            self.dests.iter_mut().for_each(|dest| dest[range.clone()].copy_from_slice(from));
            return;
        }
        for step in &self.item.code {
            match *step {
                Step::Clear { to } => bytes(&mut registers[to])[..n].fill(0),
                Step::Load { to, source } => {
                    bytes(&mut registers[to])[..n].copy_from_slice(self.source(source, &range, shared));
                }
                Step::Scalar { f, swapped, dtype, to, scalar } => {
                    elementwise::scalar_in_place(f, swapped, dtype, &mut bytes(&mut registers[to])[..n], scalar);
                }
                Step::Apply { f, dtype, to, with: With::Register(with) } => {
                    let (lower, upper) = registers.split_at_mut(with);
                    elementwise::in_place(f, dtype, &mut bytes(&mut lower[to])[..n], &bytes(&mut upper[0])[..n]);
                }
                Step::Apply { f, dtype, to, with: With::Source(source) } => {
                    let with = self.source(source, &range, shared);
                    let (registers, spare) = registers.split_at_mut(to + 1);
                    let aligned = with.as_ptr() as usize % dtype.bytes() as usize == 0;
                    let with = if aligned {
                        with
                    } else {
                        let spare = spare.last_mut().map_or(&mut [][..], |spare| &mut bytes(spare)[..n]);
                        spare.copy_from_slice(with);
                        spare
                    };
                    elementwise::in_place(f, dtype, &mut bytes(&mut registers[to])[..n], with);
                }
            }
        }
        let made = &bytes(&mut registers[0])[..n];
        self.dests.iter_mut().for_each(|dest| dest[range.clone()].copy_from_slice(made));
    }

    fn source<'b>(&'b self, source: usize, range: &Range<usize>, shared: &'b Shared<'_>) -> &'b [u8] {
        match self.item.sources[source] {
            Source::Own(dest) => &self.dests[dest][range.clone()],
            _ => self.elsewhere(source, range, shared).unwrap_or(&[]),
        }
    }

    /// What is read from where this item does not write.
    fn elsewhere<'b>(&self, source: usize, range: &Range<usize>, shared: &Shared<'b>) -> Option<&'b [u8]> {
        let part = |from: usize| from + self.at + range.start..from + self.at + range.end;
        match self.item.sources[source] {
            Source::Own(_) => None,
            Source::Unwritten { array, before, at } => Some(&shared.unwritten[array][before][part(at)]),
            Source::Staged(at) => Some(&shared.staged[part(at)]),
        }
    }
}

fn bytes(words: &mut [u64]) -> &mut [u8] {
    bytemuck::cast_slice_mut(words)
}
