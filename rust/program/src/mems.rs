//! The memory operands of a body.

use crate::Shared;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// A memory operand: an offset into one of the agent's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mem {
    /// Index into the agent's buffer table.
    pub buffer: u16,
    /// Byte offset.
    pub offset: u64,
}

/// Distinct memory operands, in order of first use. What is asked of all of them again and again is found once: a
/// program of thousands of agents has as many of these lists, each as long as a ring.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Mems {
    list: Shared<Mem>,
    /// The highest number of a buffer, and one.
    buffers: u32,
    /// The buffer of all of them, where it is one.
    single: Option<u16>,
}

impl From<&[Mem]> for Mems {
    fn from(list: &[Mem]) -> Self {
        let buffers = list.iter().map(|mem| u32::from(mem.buffer) + 1).max().unwrap_or(0);
        let single = list.first().map(|mem| mem.buffer).filter(|&first| list.iter().all(|mem| mem.buffer == first));
        Self { list: list.into(), buffers, single }
    }
}

impl FromIterator<Mem> for Mems {
    fn from_iter<I: IntoIterator<Item = Mem>>(mems: I) -> Self {
        mems.into_iter().collect::<Vec<Mem>>()[..].into()
    }
}

impl Deref for Mems {
    type Target = [Mem];

    #[inline]
    fn deref(&self) -> &[Mem] {
        &self.list
    }
}

impl Mems {
    /// Entries that an agent's table of buffers needs.
    pub fn buffers(&self) -> u32 {
        self.buffers
    }

    /// The buffer of an operand, without a look at the list where all have one.
    ///
    /// # Panics
    /// Where no operand has this number; not where all operands are of one buffer.
    #[inline]
    pub fn buffer(&self, mem: u32) -> u16 {
        self.single.unwrap_or_else(|| self.list[mem as usize].buffer)
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
        let same = (one.len(), one.buffers, one.single) == (other.len(), other.buffers, other.single);
        same && (one.single.is_some() || one.iter().map(|mem| mem.buffer).eq(other.iter().map(|mem| mem.buffer)))
    }
}

impl Eq for ByBuffer<'_> {}

impl Hash for ByBuffer<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.len(), self.0.buffers, self.0.single).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mems(list: &[(u16, u64)]) -> Mems {
        list.iter().map(|&(buffer, offset)| Mem { buffer, offset }).collect()
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
}
