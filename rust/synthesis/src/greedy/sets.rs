//! Sets of chunks and counts of chunks, 64 to a word.

/// A set of chunks per NPU, in `words` of 64, and behind them a word for the number that stands for no chunk.
pub(super) struct Sets {
    pub(super) words: usize,
    bits: Vec<u64>,
}

impl Sets {
    pub(super) fn new(nodes: u32, chunks: u32) -> Self {
        let words = (chunks as usize).div_ceil(64);
        Self { words, bits: vec![0; (words + 1) * nodes as usize] }
    }

    pub(super) fn of(&self, node: u32) -> &[u64] {
        &self.bits[node as usize * (self.words + 1)..][..=self.words]
    }

    pub(super) fn insert(&mut self, node: u32, chunk: u32) {
        self.bits[node as usize * (self.words + 1) + chunk as usize / 64] |= 1 << (chunk % 64);
    }
}

/// A number per chunk, up to some `most`, kept as planes of bits: 64 chunks are compared at a time.
pub(super) struct Counts {
    planes: usize,
    bits: Vec<u64>,
}

impl Counts {
    pub(super) fn new(words: usize, most: u32) -> Self {
        let planes = (u32::BITS - most.leading_zeros()) as usize;
        Self { planes, bits: vec![0; words * planes] }
    }

    pub(super) fn of(&self, word: usize) -> &[u64] {
        &self.bits[word * self.planes..][..self.planes]
    }

    pub(super) fn add_one(&mut self, chunk: u32) {
        let mut carry = 1 << (chunk % 64);
        for plane in &mut self.bits[chunk as usize / 64 * self.planes..][..self.planes] {
            *plane ^= carry;
            carry &= !*plane;
        }
    }

    /// The least number among some chunks of a word, and those that have it.
    pub(super) fn least(&self, word: usize, mut among: u64) -> (u32, u64) {
        let mut least = 0;
        for plane in self.of(word).iter().rev() {
            let without = among & !plane;
            least = 2 * least + u32::from(without == 0);
            among = if without == 0 { among } else { without };
        }
        (least, among)
    }
}

/// The `count` lowest of the bits.
pub(super) fn lowest(bits: u64, count: u32) -> u64 {
    if bits.count_ones() <= count {
        return bits;
    }
    bits & !(0..count).fold(bits, |rest, _| rest & (rest - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn planes_count_like_numbers() {
        let mut random = Random::new(3);
        let (mut planes, mut numbers) = (Counts::new(2, 63), [0u32; 128]);
        for _ in 0..1000 {
            let chunk = random.below(128);
            if numbers[chunk as usize] < 63 {
                planes.add_one(chunk);
                numbers[chunk as usize] += 1;
            }
            let (word, among) = (random.below(2) as usize, random.next() & random.next() | 1);
            let of = |bit: &u32| numbers[word * 64 + *bit as usize];
            let bits = |set: u64| (0..64).filter(move |bit| set >> bit & 1 == 1);
            let least = bits(among).map(|bit| of(&bit)).min().unwrap();
            let wanted = bits(among).filter(|bit| of(bit) == least).fold(0, |set, bit| set | 1 << bit);
            assert_eq!(planes.least(word, among), (least, wanted));
            let count = random.below(64) + 1;
            assert_eq!(lowest(among, count), bits(among).take(count as usize).fold(0, |set, bit| set | 1 << bit));
        }
    }
}
