//! The memory operands of a body.

use crate::Shared;
use std::hash::{Hash, Hasher};

/// A memory operand: an offset into one of the agent's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mem {
    /// Index into the agent's buffer table.
    pub buffer: u16,
    /// Byte offset.
    pub offset: u64,
}

/// Memory operands of one buffer whose offsets are as far from each other as the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) buffer: u16,
    /// Number of the first one.
    pub(crate) from: u32,
    pub(crate) count: u32,
    pub(crate) offset: u64,
    /// From one to the next, modulo 2^64; 0 for one alone.
    pub(crate) step: u64,
}

impl Run {
    pub(crate) fn alone(from: u32, mem: Mem) -> Self {
        Self { buffer: mem.buffer, from, count: 1, offset: mem.offset, step: 0 }
    }

    pub(crate) fn at(&self, number: u32) -> Mem {
        Mem {
            buffer: self.buffer,
            offset: self.offset.wrapping_add(self.step.wrapping_mul((number - self.from).into())),
        }
    }

    /// The last one.
    pub(crate) fn last(&self) -> Mem {
        self.at(self.from + self.count - 1)
    }

    /// Whether offsets pass 2^64 on the way.
    pub(crate) fn wraps(&self) -> bool {
        let way = i128::from(self.step as i64) * i128::from(self.count - 1);
        i128::from(self.offset) + way != i128::from(self.last().offset)
    }

    /// The first and the last one; all where offsets pass 2^64 on the way.
    fn extremes(&self) -> impl Iterator<Item = Mem> + '_ {
        let between = if self.wraps() { 1..self.count } else { self.count - 1..self.count };
        std::iter::once(0).chain(between).map(|number| self.at(self.from + number))
    }

    /// Takes the operand that follows the last one, if it is one of these.
    fn take(&mut self, mem: Mem) -> bool {
        if self.count == 1 {
            self.step = mem.offset.wrapping_sub(self.offset);
        }
        let follows = mem.buffer == self.buffer && self.at(self.from + self.count).offset == mem.offset;
        if follows {
            self.count += 1;
        } else if self.count == 1 {
            self.step = 0;
        }
        follows
    }
}

/// Appends operands to runs, each of which stays as long as can be; `more.from` is not asked for.
pub(crate) fn append(runs: &mut Vec<Run>, more: Run) {
    let mut done = 0;
    while done < more.count {
        let mem = more.at(more.from + done);
        done += 1;
        let mut from = 0;
        if let Some(run) = runs.last_mut() {
            from = run.from + run.count;
            if run.take(mem) {
                if run.step == more.step {
                    run.count += more.count - done;
                    return;
                }
                continue;
            }
        }
        runs.push(Run::alone(from, mem));
    }
}

/// Distinct memory operands, in order of first use. A list is kept as its runs: a program of thousands of agents has as
/// many lists, each as long as a ring and of few runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Mems {
    /// Each as long as can be, from the first on: equal lists have equal runs.
    runs: Shared<Run>,
    count: u32,
    /// The highest number of a buffer, and one.
    buffers: u32,
    /// The buffer of all of them, where it is one.
    single: Option<u16>,
}

impl From<&[Mem]> for Mems {
    fn from(list: &[Mem]) -> Self {
        list.iter().copied().collect()
    }
}

impl FromIterator<Mem> for Mems {
    fn from_iter<I: IntoIterator<Item = Mem>>(mems: I) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        for mem in mems {
            append(&mut runs, Run::alone(0, mem));
        }
        Self::of(&runs)
    }
}

impl Mems {
    /// Those of runs, each of which is as long as can be.
    pub(crate) fn of(runs: &[Run]) -> Self {
        let buffers = runs.iter().map(|run| u32::from(run.buffer) + 1).max().unwrap_or(0);
        let single = runs.first().map(|run| run.buffer).filter(|&first| runs.iter().all(|run| run.buffer == first));
        let count = runs.last().map_or(0, |run| run.from + run.count);
        Self { runs: runs.into(), count, buffers, single }
    }

    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Entries that an agent's table of buffers needs.
    pub fn buffers(&self) -> u32 {
        self.buffers
    }

    /// The buffers, some of them more than once.
    pub fn named(&self) -> impl Iterator<Item = u16> + '_ {
        self.runs.iter().map(|run| run.buffer)
    }

    /// Some of them, among which are the lowest and the highest offset into each buffer.
    pub(crate) fn extremes(&self) -> impl Iterator<Item = Mem> + '_ {
        self.runs.iter().flat_map(Run::extremes)
    }

    /// An operand by its number; none where no operand has it.
    #[inline]
    pub fn get(&self, mem: u32) -> Option<Mem> {
        (mem < self.count).then(|| self.runs[self.runs.partition_point(|run| run.from <= mem) - 1].at(mem))
    }

    /// An operand by its number.
    ///
    /// # Panics
    /// Where no operand has this number.
    #[inline]
    pub fn at(&self, mem: u32) -> Mem {
        self.get(mem).expect("bodies name their own memory operands")
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Mem> + '_ {
        self.runs.iter().flat_map(|run| (run.from..run.from + run.count).map(|number| run.at(number)))
    }

    /// The buffer of an operand, without a look at the list where all have one.
    ///
    /// # Panics
    /// Where no operand has this number; not where all operands are of one buffer.
    #[inline]
    pub fn buffer(&self, mem: u32) -> u16 {
        self.single.unwrap_or_else(|| self.at(mem).buffer)
    }

    /// The buffers alone, as a key.
    pub fn by_buffer(&self) -> ByBuffer<'_> {
        ByBuffer(self)
    }
}

/// Memory operands that are equal where those of each number are of one buffer.
#[derive(Debug, Clone, Copy)]
pub struct ByBuffer<'a>(&'a Mems);

impl PartialEq for ByBuffer<'_> {
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (self.0, other.0);
        let same = (one.count, one.buffers, one.single) == (other.count, other.buffers, other.single);
        same && (one.single.is_some()
            || one.runs == other.runs
            || one.iter().map(|mem| mem.buffer).eq(other.iter().map(|mem| mem.buffer)))
    }
}

impl Eq for ByBuffer<'_> {}

impl Hash for ByBuffer<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.count, self.0.buffers, self.0.single).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(list: &[(u16, u64)]) -> Vec<Mem> {
        list.iter().map(|&(buffer, offset)| Mem { buffer, offset }).collect()
    }

    fn mems(of: &[(u16, u64)]) -> Mems {
        list(of)[..].into()
    }

    #[test]
    fn operands_are_told_apart_by_buffer_alone() {
        let (one, moved, other) = (mems(&[(1, 0), (1, 8)]), mems(&[(1, 8), (1, 0)]), mems(&[(2, 0), (2, 8)]));
        assert_ne!(one, moved);
        assert_eq!(one.by_buffer(), moved.by_buffer());
        assert_ne!(one.by_buffer(), other.by_buffer());
        let (mixed, swapped, again) = (mems(&[(0, 0), (1, 0)]), mems(&[(1, 0), (0, 0)]), mems(&[(0, 8), (1, 8)]));
        assert_ne!(mixed.by_buffer(), swapped.by_buffer());
        assert_eq!(mixed.by_buffer(), again.by_buffer());
        assert_eq!([&one, &other, &mixed, &mems(&[])].map(Mems::buffers), [2, 3, 2, 0]);
        assert_eq!((one.buffer(1), mixed.buffer(1)), (1, 1));
        let most = mems(&[(u16::MAX, 0)]);
        assert_eq!(most.buffers(), 1 << 16);
    }

    #[test]
    fn a_list_is_what_it_was_made_of() {
        let ring = list(&[(0, 24), (0, 16), (0, 8), (0, 0), (0, 56), (0, 48), (0, 40), (0, 32)]);
        assert_eq!(Mems::from(&ring[..]).runs().len(), 2);
        assert_eq!(mems(&[(0, 0), (1, 8), (1, 16), (1, 16), (1, 16), (0, u64::MAX), (0, 0), (0, 1)]).runs().len(), 4);
        let mut state = 7u64;
        for case in 0..3_000 {
            let mut random = move || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state >> 60
            };
            let wanted: Vec<Mem> =
                (0..case % 9).map(|_| Mem { buffer: (random() / 8) as u16, offset: random() % 4 }).collect();
            state = state.wrapping_add(0x9e37_79b9 * case);
            let made = Mems::from(&wanted[..]);
            assert_eq!(made.iter().collect::<Vec<_>>(), wanted);
            assert_eq!((made.len(), made.is_empty()), (wanted.len(), wanted.is_empty()));
            let found: Vec<Mem> = (0..=wanted.len() as u32).map_while(|number| made.get(number)).collect();
            assert_eq!(found, wanted);
            assert_eq!(made, Mems::of(made.runs()), "equal lists have equal runs");
            let last = made.runs().last().map(Run::last);
            assert_eq!(last, wanted.last().copied());
        }
    }
}
