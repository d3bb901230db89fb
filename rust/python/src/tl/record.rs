//! Families of operations that several `tl` calls share.

use super::Tl;
use super::argument::{Operand, Source};
use crate::capture::{Address, Recorder};
use crate::handle::{Handle, Space, define};
use crate::operand::{self, Fault, Number, Shape, fault};
use ahbm_program::{BinaryFn, Math, Move, ReduceFn, Scalar, UnaryFn, ValueId};
use pyo3::prelude::*;

impl Tl {
    pub(super) fn define(
        &self,
        py: Python<'_>,
        space: Space,
        record: impl FnOnce(&mut Recorder) -> Result<(ValueId, u32), Fault>,
    ) -> PyResult<Py<Handle>> {
        define(py, &self.capture, space, record)
    }

    pub(super) fn fill(
        &self,
        py: Python<'_>,
        shape: Option<&Bound<'_, PyAny>>,
        value: Number,
        dtype: &str,
    ) -> PyResult<Py<Handle>> {
        let shape = self.checked(py, Shape::parse(shape))?;
        self.define(py, Space::Tcm, |rec| {
            let dtype = operand::dtype(dtype)?;
            let (scalar, tile) = (value.scalar(dtype)?, rec.made(dtype, shape.extents())?);
            Ok((fill(rec, scalar, tile), tile))
        })
    }

    /// A function of one floating-point value.
    pub(super) fn float_unary(
        &self,
        py: Python<'_>,
        name: &str,
        f: UnaryFn,
        a: &Bound<'_, PyAny>,
    ) -> PyResult<Py<Handle>> {
        let a = self.handle(py, a)?;
        self.define(py, Space::Tcm, |rec| {
            self.floats_only(rec, name, a)?;
            let (a, tile) = (a.value, a.tile);
            Ok((rec.define(|dst| Math::Unary { f, dst, a, tile }), tile))
        })
    }

    pub(super) fn floats_only(&self, rec: &Recorder, name: &str, a: &Handle) -> Result<(), Fault> {
        let tile = rec.tile_at(a.tile);
        if tile.dtype.is_float() {
            return Ok(());
        }
        Err(fault("AHBM-K209", format!("tl.{name} of {tile}")).hint("floats only; convert with tl.cast").into())
    }

    /// A function of a handle and a handle or number, in either order.
    pub(super) fn binary(
        &self,
        py: Python<'_>,
        f: BinaryFn,
        a: &Bound<'_, PyAny>,
        b: &Bound<'_, PyAny>,
    ) -> PyResult<Py<Handle>> {
        let (handle, other, swapped) = if a.cast::<Handle>().is_ok() { (a, b, false) } else { (b, a, true) };
        let handle = self.handle(py, handle)?;
        handle.binary(py, f, other, swapped)
    }

    pub(super) fn reduce(
        &self,
        py: Python<'_>,
        f: ReduceFn,
        a: &Bound<'_, PyAny>,
        axis: Option<i64>,
    ) -> PyResult<Py<Handle>> {
        let a = self.handle(py, a)?;
        self.define(py, Space::Tcm, |rec| {
            let tile = rec.tile_at(a.tile);
            let (dtype, mut shape) = (tile.dtype, tile.shape.to_vec());
            let axis = match axis {
                Some(axis) => {
                    let axis = operand::axis(axis, tile)?;
                    shape.remove(axis as usize);
                    axis
                }
                None => {
                    shape.clear();
                    -1
                }
            };
            let result = rec.tile(dtype, &shape);
            let (a, tile) = (a.value, a.tile);
            Ok((rec.define(|dst| Math::Reduce { f, axis, dst, a, tile }), result))
        })
    }

    /// Runs `record` with the operand as a value of `tile`; numbers are filled in for it.
    pub(super) fn full_operand<T>(
        &self,
        rec: &mut Recorder,
        operand: &Operand<'_>,
        tile: u32,
        record: impl FnOnce(&mut Recorder, ValueId) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        match operand {
            Operand::Handle(handle) => {
                if handle.tile != tile {
                    let (want, have) = (rec.tile_at(tile), rec.tile_at(handle.tile));
                    return Err(fault("AHBM-K209", format!("operands {want} and {have} differ"))
                        .hint("all operands of this call have one shape and dtype")
                        .into());
                }
                record(rec, handle.value)
            }
            Operand::Number(number) => {
                let scalar = number.scalar(rec.tile_at(tile).dtype)?;
                let value = fill(rec, scalar, tile);
                let outcome = record(rec, value);
                rec.release(value);
                outcome
            }
        }
    }

    pub(super) fn program_axis(&self, py: Python<'_>, axis: i64) -> PyResult<usize> {
        self.capture.count(py)?;
        let known = usize::try_from(axis).ok().filter(|&axis| axis < 2);
        let wrong =
            || fault("AHBM-K214", format!("program axis {axis}")).hint("axis 0 is the PE in its cube, axis 1 the cube");
        known.ok_or_else(|| self.capture.raise(py, wrong()))
    }

    /// Records the write of a value to memory.
    pub(super) fn put(&self, rec: &mut Recorder, address: Address, src: ValueId, tile: u32) -> Result<(), Fault> {
        let (dtype, bytes) = (rec.tile_at(tile).dtype, rec.tile_at(tile).bytes());
        self.capture.launch.access(dtype)?;
        let access = rec.access(&self.capture, address, bytes)?;
        let mem = rec.mem(access);
        rec.push(Move::Store { src, mem, tile, posted: false });
        Ok(())
    }

    /// Records a matrix product; the result's value and tile.
    pub(super) fn product(&self, rec: &mut Recorder, a: &Source<'_>, b: &Source<'_>) -> Result<(ValueId, u32), Fault> {
        let (x, y) = (rec.tile_at(a.tile()), rec.tile_at(b.tile()));
        operand::same_dtype(x, y)?;
        let (&[m, k], &[other, n]) = (&*x.shape, &*y.shape) else {
            return Err(fault("AHBM-K209", format!("product of {x} and {y}")).hint("matrices only").into());
        };
        if k != other {
            return Err(fault("AHBM-K209", format!("product of {x} and {y}"))
                .hint("the first one's columns must be as many as the second one's rows")
                .into());
        }
        let dtype = x.dtype;
        let (extents, result) = (rec.tile(dtype, &[m, k, n]), rec.made(dtype, &[m, n])?);
        let value =
            a.with(rec, |rec, a| b.with(rec, |rec, b| Ok(rec.define(|dst| Math::Dot { dst, a, b, tile: extents }))))?;
        Ok((value, result))
    }
}

fn fill(rec: &mut Recorder, scalar: Scalar, tile: u32) -> ValueId {
    let scalar = rec.scalar(scalar);
    rec.define(|dst| Math::Fill { dst, scalar, tile })
}
