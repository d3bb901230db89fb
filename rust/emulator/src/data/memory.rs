//! Memory: the bytes behind a program's buffers.

use super::error;
use super::pool::Pool;
use ahbm_findings::Diagnostic;
use ahbm_program::{BufferId, Program};
use std::sync::OnceLock;

/// The bytes of every buffer of a program: zero at first, allocated when first touched, aligned to 8
/// bytes so that a buffer of any dtype can be viewed as that dtype.
///
/// Buffers are raw bytes, little-endian and row-major; what they mean is in the tiles of the operations
/// that touch them.
#[derive(Debug)]
pub struct Memory {
    buffers: Vec<Buffer>,
    /// Blocks of the values of earlier replays.
    pub(super) pool: Pool,
    /// Those of the threads besides the first.
    others: Vec<Pool>,
}

#[derive(Debug)]
struct Buffer {
    bytes: u64,
    words: OnceLock<Box<[u64]>>,
}

impl Buffer {
    fn words(&self) -> &[u64] {
        // `vec![0; n]` asks the system for zero pages, so untouched parts of large buffers cost nothing.
        self.words.get_or_init(|| vec![0; self.bytes.div_ceil(8) as usize].into())
    }
}

impl Memory {
    /// All-zero memory for the buffers of `program`. Allocates no buffer yet.
    pub fn new(program: &Program) -> Self {
        Self {
            buffers: program.buffers.iter().map(|b| Buffer { bytes: b.bytes, words: OnceLock::new() }).collect(),
            pool: Pool::default(),
            others: Vec::new(),
        }
    }

    /// Takes the buffers out into as many memories for the same program; buffer i goes into number `piece_of(i)`.
    pub(super) fn divide(&mut self, pieces: usize, piece_of: impl Fn(usize) -> usize) -> Vec<Self> {
        let mut pools = std::iter::once(std::mem::take(&mut self.pool)).chain(std::mem::take(&mut self.others));
        let empty = |b: &Buffer| Buffer { bytes: b.bytes, words: OnceLock::new() };
        let mut divided: Vec<Self> = (0..pieces)
            .map(|_| Self {
                buffers: self.buffers.iter().map(empty).collect(),
                pool: pools.next().unwrap_or_default(),
                others: Vec::new(),
            })
            .collect();
        for (index, buffer) in self.buffers.iter_mut().enumerate() {
            divided[piece_of(index)].buffers[index].words = std::mem::take(&mut buffer.words);
        }
        divided
    }

    /// Takes back what was divided.
    pub(super) fn unite(&mut self, pieces: Vec<Self>) {
        for (number, piece) in pieces.into_iter().enumerate() {
            for (buffer, found) in self.buffers.iter_mut().zip(piece.buffers) {
                if found.words.get().is_some() {
                    buffer.words = found.words;
                }
            }
            match number {
                0 => self.pool = piece.pool,
                _ => self.others.push(piece.pool),
            }
        }
    }

    /// Number of buffers.
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    /// True when the program has no buffers.
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// The bytes of a buffer; empty for an id that is not the program's.
    ///
    /// # Panics
    /// When the host cannot allocate the buffer; see [`Memory::reserve`].
    pub fn bytes(&self, buffer: BufferId) -> &[u8] {
        self.buffers.get(buffer.0 as usize).map_or(&[], |b| &bytemuck::cast_slice(b.words())[..b.bytes as usize])
    }

    /// The bytes of a buffer, to write inputs into; empty for an id that is not the program's.
    ///
    /// # Panics
    /// When the host cannot allocate the buffer; see [`Memory::reserve`].
    pub fn bytes_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        match self.buffers.get_mut(buffer.0 as usize) {
            None => &mut [],
            Some(b) => {
                b.words();
                let bytes = b.bytes as usize;
                b.words.get_mut().map_or(&mut [], |words| &mut bytemuck::cast_slice_mut(words)[..bytes])
            }
        }
    }

    /// Bytes that the largest values of a replay have needed at once, kept for the next one.
    pub fn kept(&self) -> u64 {
        self.pool.bytes()
    }

    /// Makes sure the host can hold a buffer before it is touched.
    ///
    /// # Errors
    /// `AHBM-B301` when it cannot.
    pub fn reserve(&self, buffer: BufferId) -> Result<(), Diagnostic> {
        match self.buffers.get(buffer.0 as usize) {
            Some(b) if b.words.get().is_none() => {
                probe(b.bytes).map_err(|bytes| error::too_large(&format!("buffer {}", buffer.0), bytes))
            }
            _ => Ok(()),
        }
    }

    /// Size of a buffer in bytes; zero for an id that is not the program's.
    pub fn size(&self, buffer: BufferId) -> u64 {
        self.buffers.get(buffer.0 as usize).map_or(0, |b| b.bytes)
    }

    /// Copies `bytes` bytes between two places, which may overlap. The caller has checked the bounds.
    pub(super) fn copy(&mut self, from: (BufferId, u64), to: (BufferId, u64), bytes: u64) {
        let (start, at, n) = (from.1 as usize, to.1 as usize, bytes as usize);
        if from.0 == to.0 {
            self.bytes_mut(to.0).copy_within(start..start + n, at);
            return;
        }
        // Touched before both are borrowed.
        self.words(to.0);
        if let Ok([from, to]) = self.buffers.get_disjoint_mut([from.0.0 as usize, to.0.0 as usize])
            && let Some(to) = to.words.get_mut()
        {
            let from: &[u8] = &bytemuck::cast_slice(from.words())[start..start + n];
            bytemuck::cast_slice_mut(to)[at..at + n].copy_from_slice(from);
        }
    }

    /// A buffer as words; the bytes behind the buffer's size in the last word are zero.
    pub(super) fn words(&self, buffer: BufferId) -> &[u64] {
        self.buffers.get(buffer.0 as usize).map_or(&[], Buffer::words)
    }
}

/// Checks that the host can allocate `bytes`; gives them back as the error.
///
/// Small sizes pass unchecked: a host that cannot hold them cannot run at all.
pub(super) fn probe(bytes: u64) -> Result<(), u64> {
    if bytes <= 1 << 24 {
        return Ok(());
    }
    let words = usize::try_from(bytes.div_ceil(8)).map_err(|_| bytes)?;
    Vec::<u64>::new().try_reserve_exact(words).map_err(|_| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahbm_machine::{Node, PeId};

    #[test]
    fn zero_lazy_and_aligned() {
        let buffer = |bytes| ahbm_program::Buffer { node: Node::Pe(PeId(0)), bytes };
        let program = Program { buffers: vec![buffer(13), buffer(u64::MAX), buffer(0)], ..Program::default() };
        let mut memory = Memory::new(&program);
        assert_eq!(memory.bytes(BufferId(0)), [0; 13]);
        memory.bytes_mut(BufferId(0))[12] = 7;
        assert_eq!(memory.bytes(BufferId(0))[12], 7);
        assert_eq!(memory.bytes(BufferId(0)).as_ptr() as usize % 8, 0);
        assert_eq!(memory.reserve(BufferId(1)).unwrap_err().code, "AHBM-B301");
        assert!(memory.bytes(BufferId(2)).is_empty() && memory.bytes(BufferId(9)).is_empty());
        assert!(memory.bytes_mut(BufferId(9)).is_empty());
    }
}
