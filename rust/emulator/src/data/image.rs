//! What a replay works on: bytes ([`Memory`]), or where they come from (`Sketch`).

use super::error::Fault;
use super::memory::Memory;
use super::value::Value;
use super::{elementwise, math};
use ahbm_findings::Diagnostic;
use ahbm_program::{BinaryFn, Body, BufferId, Math, Tile};
use std::fmt::Debug;

/// A byte of a buffer.
pub(super) type Place = (BufferId, u64);

/// The buffers of a program and the values in them. The caller has checked the bounds of all places.
pub(super) trait Image<'p> {
    /// The contents of a tile.
    type Value: Clone + Debug;

    /// Makes sure a buffer can be touched.
    fn reserve(&self, buffer: BufferId) -> Result<(), Diagnostic>;
    /// The contents of as many bytes as `tile` has.
    fn read(&self, from: Place, tile: &'p Tile) -> Result<Self::Value, Fault>;
    /// Overwrites as many bytes as `value` has.
    fn write(&mut self, to: Place, value: &Self::Value);
    /// Copies between two places, which may overlap.
    fn copy(&mut self, from: Place, to: Place, bytes: u64);
    /// Shape and dtype that a value was defined with.
    fn tile(value: &Self::Value) -> &'p Tile;
    /// The same contents under another shape of equal size.
    fn reshaped(value: Self::Value, tile: &'p Tile) -> Self::Value;
    /// The result of an operation on values, whose tile is `tile`; `None` for other operations.
    fn apply(
        &mut self,
        body: &Body,
        op: Math,
        values: [Option<Self::Value>; 3],
        tile: &'p Tile,
        result_tile: &'p Tile,
    ) -> Option<Result<Self::Value, Fault>>;
    /// `f(a, b)`.
    fn binary(&mut self, f: BinaryFn, a: Self::Value, b: Self::Value, tile: &'p Tile) -> Result<Self::Value, Fault>;
}

impl<'p> Image<'p> for Memory {
    type Value = Value<'p>;

    fn reserve(&self, buffer: BufferId) -> Result<(), Diagnostic> {
        Memory::reserve(self, buffer)
    }

    fn read(&self, (buffer, offset): Place, tile: &'p Tile) -> Result<Value<'p>, Fault> {
        Ok(Value::read(tile, self.words(buffer), offset)?)
    }

    fn write(&mut self, (buffer, offset): Place, value: &Value<'p>) {
        self.bytes_mut(buffer)[offset as usize..][..value.bytes().len()].copy_from_slice(value.bytes());
    }

    fn copy(&mut self, from: Place, to: Place, bytes: u64) {
        Memory::copy(self, from, to, bytes);
    }

    fn tile(value: &Value<'p>) -> &'p Tile {
        value.tile
    }

    fn reshaped(value: Value<'p>, tile: &'p Tile) -> Value<'p> {
        value.reshaped(tile)
    }

    fn apply(
        &mut self,
        body: &Body,
        op: Math,
        values: [Option<Value<'p>>; 3],
        tile: &'p Tile,
        result_tile: &'p Tile,
    ) -> Option<Result<Value<'p>, Fault>> {
        math::apply(body, op, values, tile, result_tile)
    }

    fn binary(&mut self, f: BinaryFn, a: Value<'p>, b: Value<'p>, tile: &'p Tile) -> Result<Value<'p>, Fault> {
        elementwise::binary(f, a, b, tile)
    }
}
