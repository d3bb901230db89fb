//! Values: immutable tiles shared between agents and messages.

use super::memory;
use super::pool::Words;
use ahbm_program::{Dtype, Tile};
use std::rc::Rc;

/// The contents of a tile. Cloning shares the bytes; writing copies them first unless nobody else
/// holds them, so `acc = acc + recv` allocates nothing.
#[derive(Debug, Clone)]
pub(super) struct Value<'p> {
    words: Rc<Words>,
    /// Shape and dtype it was defined with.
    pub(super) tile: &'p Tile,
}

impl<'p> Value<'p> {
    /// An all-zero value; the size in bytes as the error when the host cannot hold it.
    pub(super) fn zeros(tile: &'p Tile) -> Result<Self, u64> {
        memory::probe(tile.bytes())?;
        Ok(Self { words: Rc::new(Words::zeros(tile.bytes().div_ceil(8) as usize)), tile })
    }

    /// A copy of `tile.bytes()` bytes of a buffer from `offset` on, which the caller has checked to be there.
    pub(super) fn read(tile: &'p Tile, buffer: &[u64], offset: u64) -> Result<Self, u64> {
        let (offset, bytes) = (offset as usize, tile.bytes() as usize);
        if offset % 8 == 0 {
            memory::probe(tile.bytes())?;
            let words = Words::copy_of(&buffer[offset / 8..offset / 8 + bytes.div_ceil(8)]);
            return Ok(Self { words: Rc::new(words), tile });
        }
        let mut value = Self::zeros(tile)?;
        value.bytes_mut().copy_from_slice(&bytemuck::cast_slice(buffer)[offset..offset + bytes]);
        Ok(value)
    }

    pub(super) fn dtype(&self) -> Dtype {
        self.tile.dtype
    }

    pub(super) fn elements(&self) -> usize {
        self.tile.elements() as usize
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.view()
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.tile.bytes() as usize;
        &mut bytemuck::cast_slice_mut(Rc::make_mut(&mut self.words).as_mut())[..bytes]
    }

    /// The elements, or any other equally sized reading of the bytes.
    pub(super) fn view<T: bytemuck::Pod>(&self) -> &[T] {
        let n = self.tile.bytes() as usize / size_of::<T>();
        &bytemuck::cast_slice(self.words.as_ref().as_ref())[..n]
    }

    pub(super) fn view_mut<T: bytemuck::Pod>(&mut self) -> &mut [T] {
        let n = self.tile.bytes() as usize / size_of::<T>();
        &mut bytemuck::cast_slice_mut(Rc::make_mut(&mut self.words).as_mut())[..n]
    }

    /// The same bytes under another shape of equal size.
    pub(super) fn reshaped(self, tile: &'p Tile) -> Self {
        debug_assert_eq!((self.tile.dtype, self.tile.bytes()), (tile.dtype, tile.bytes()));
        Self { tile, ..self }
    }
}
