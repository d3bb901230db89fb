//! `tl`: the context a kernel is called with. Every call records; nothing blocks, nothing has data.

mod argument;
mod record;

use crate::capture::Capture;
use crate::handle::{Handle, MemoryRef, RecvFuture, Space, not_an_operand};
use crate::operand::{self, MAX_ELEMENTS, Number, Shape, fault};
use crate::peer::{Dir, Peer};
use crate::symbolic::Integer;
use ahbm_program::formula::Axis;
use ahbm_program::{BinaryFn, Comm, Control, Dtype, Math, Move, OpKind, ReduceFn, UnaryFn};
use argument::Operand;
use pyo3::prelude::*;
use std::sync::Arc;

/// The recording context of one kernel call.
///
/// Pointers are ints (bytes), directions texts or what `peer` returns, shapes an int or a tuple of ints, dtypes one of f16 bf16 f32 f64 f8e4m3 f8e5m2 i8
/// i16 i32 i64 u8 u16 u32 u64. A call that cannot be recorded raises `ahbm.errors.KernelError` with the kernel's file and line.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Tl {
    pub(crate) capture: Arc<Capture>,
}

#[pymethods]
impl Tl {
    /// This PE's index: axis 0 inside its cube, axis 1 the cube's index inside its SIP.
    #[pyo3(signature = (axis=0))]
    fn program_id<'py>(&self, py: Python<'py>, axis: i64) -> PyResult<Bound<'py, PyAny>> {
        let launch = &self.capture.launch;
        match self.program_axis(py, axis)? {
            0 => Ok(launch.coord.pe.into_pyobject(py)?.into_any()),
            _ => self.capture.coordinate(py, Axis::Cube, launch.num_programs[1]),
        }
    }

    /// How many indices `program_id(axis)` runs over.
    #[pyo3(signature = (axis=0))]
    fn num_programs(&self, py: Python<'_>, axis: i64) -> PyResult<u32> {
        Ok(self.capture.launch.num_programs[self.program_axis(py, axis)?])
    }

    /// Reads `shape` elements at byte address `ptr` into a value: of `dtype`, f16 by default. What `tl.ref` names has a
    /// shape and a dtype, with which those that are given must agree.
    #[pyo3(signature = (ptr, shape=None, dtype=None))]
    fn load(
        &self,
        py: Python<'_>,
        ptr: &Bound<'_, PyAny>,
        shape: Option<&Bound<'_, PyAny>>,
        dtype: Option<&str>,
    ) -> PyResult<Py<Handle>> {
        if let Ok(memory) = ptr.cast::<MemoryRef>() {
            let memory = memory.get();
            self.own(py, &memory.capture)?;
            let shape = shape.map(|shape| self.checked(py, Shape::parse(Some(shape)))).transpose()?;
            return self.define(py, Space::Hbm, |rec| {
                let dtype = dtype.map(operand::dtype).transpose()?;
                memory.agrees(rec, shape.as_ref().map(Shape::extents), dtype)?;
                Ok((memory.load(rec), memory.tile))
            });
        }
        let dtype = dtype.unwrap_or("f16");
        let address = self.pointer(py, ptr)?;
        let shape = self.checked(py, Shape::parse(shape))?;
        self.define(py, Space::Hbm, |rec| {
            let dtype = operand::dtype(dtype)?;
            self.capture.launch.access(dtype)?;
            let tile = rec.shaped(dtype, &shape);
            let access = rec.access(&self.capture, address, rec.tile_at(tile).bytes())?;
            let mem = rec.mem(access);
            Ok((rec.define(|dst| Move::Load { dst, mem, tile }), tile))
        })
    }

    /// Writes a value to byte address `ptr`.
    fn store(&self, py: Python<'_>, ptr: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let address = self.pointer(py, ptr)?;
        let source = self.source(py, value)?;
        self.capture.call(py, |rec| {
            let tile = source.tile();
            source.with(rec, |rec, src| self.put(rec, address, src, tile))
        })
    }

    /// Reads `shape` elements at byte address `ptr` of every SIP in `sips`, reduced by the switch between them: one value.
    ///
    /// The SIPs are ranks of the launch, each at most once; the result is that of reducing them in this order. `op` is as
    /// in `combine`. The machine needs a switch that reduces.
    #[pyo3(signature = (ptr, shape, sips, dtype="f16", op="sum"))]
    fn load_reduce(
        &self,
        py: Python<'_>,
        ptr: &Bound<'_, PyAny>,
        shape: &Bound<'_, PyAny>,
        sips: &Bound<'_, PyAny>,
        dtype: &str,
        op: &str,
    ) -> PyResult<Py<Handle>> {
        let address = self.pointer(py, ptr)?;
        let shape = self.checked(py, Shape::parse(Some(shape)))?;
        let f = self.checked(py, operand::reduction(op))?;
        let sips = self.sips(py, sips)?;
        self.define(py, Space::Hbm, |rec| {
            let dtype = operand::dtype(dtype)?;
            self.capture.launch.access(dtype)?;
            let tile = rec.shaped(dtype, &shape);
            operand::integers_only(f, rec.tile_at(tile))?;
            let access = rec.access(&self.capture, address, rec.tile_at(tile).bytes())?;
            let group = rec.group(&self.capture, access, &sips)?;
            Ok((rec.define(|dst| Move::ReducingLoad { f, dst, group, tile }), tile))
        })
    }

    /// Writes a value to byte address `ptr` of every SIP in `sips`, copied by the switch between them.
    ///
    /// It is posted: `fence` waits until it has arrived everywhere. The SIPs are ranks of the launch, each at most once.
    /// The machine needs a switch that reduces.
    fn multicast(
        &self,
        py: Python<'_>,
        ptr: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        sips: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let address = self.pointer(py, ptr)?;
        let source = self.source(py, value)?;
        let sips = self.sips(py, sips)?;
        self.capture.call(py, |rec| {
            let tile = source.tile();
            let (dtype, bytes) = (rec.tile_at(tile).dtype, rec.tile_at(tile).bytes());
            self.capture.launch.access(dtype)?;
            let access = rec.access(&self.capture, address, bytes)?;
            let group = rec.group(&self.capture, access, &sips)?;
            source.with(rec, |rec, src| {
                rec.push(Move::Multicast { src, group, tile });
                Ok(())
            })
        })
    }

    /// Waits until everything that this PE has multicast has arrived.
    fn fence(&self, py: Python<'_>) -> PyResult<()> {
        self.capture.call(py, |rec| {
            rec.push(Control::Fence);
            Ok(())
        })
    }

    /// Names `shape` elements at byte address `ptr` without reading them: a source for `send` and `load`.
    #[pyo3(name = "ref", signature = (ptr, shape, dtype="f16"))]
    fn reference(
        &self,
        py: Python<'_>,
        ptr: &Bound<'_, PyAny>,
        shape: &Bound<'_, PyAny>,
        dtype: &str,
    ) -> PyResult<MemoryRef> {
        let address = self.pointer(py, ptr)?;
        let shape = self.checked(py, Shape::parse(Some(shape)))?;
        let (access, tile) = self.capture.call(py, |rec| {
            let dtype = operand::dtype(dtype)?;
            self.capture.launch.access(dtype)?;
            let tile = rec.shaped(dtype, &shape);
            Ok((rec.access(&self.capture, address, rec.tile_at(tile).bytes())?, tile))
        })?;
        Ok(MemoryRef { capture: Arc::clone(&self.capture), access, tile })
    }

    /// A value of zeros.
    #[pyo3(signature = (shape, dtype="f16"))]
    fn zeros(&self, py: Python<'_>, shape: &Bound<'_, PyAny>, dtype: &str) -> PyResult<Py<Handle>> {
        self.fill(py, Some(shape), Number::Int(0), dtype)
    }

    /// A value of equal elements.
    #[pyo3(signature = (shape, value, dtype="f16"))]
    fn full(
        &self,
        py: Python<'_>,
        shape: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        dtype: &str,
    ) -> PyResult<Py<Handle>> {
        let value = self.number(py, value)?;
        self.fill(py, Some(shape), value, dtype)
    }

    /// `start, start + 1, …, end - 1`.
    #[pyo3(signature = (start, end, dtype="f16"))]
    fn arange(&self, py: Python<'_>, start: i64, end: i64, dtype: &str) -> PyResult<Py<Handle>> {
        let extent = end.checked_sub(start).filter(|n| (1..=MAX_ELEMENTS as i64).contains(n));
        self.define(py, Space::Tcm, |rec| {
            let dtype = operand::dtype(dtype)?;
            let extent = extent.ok_or_else(|| match start == end {
                true => operand::empty(format!("arange({start}, {end}) has no elements")),
                false => fault("AHBM-K206", format!("arange({start}, {end}) has no or too many elements")).into(),
            })?;
            Number::Int((end - 1).into()).scalar(dtype)?;
            let start = Number::Int(start.into()).scalar(dtype)?;
            let (start, tile) = (rec.scalar(start), rec.made(dtype, &[extent as u64])?);
            Ok((rec.define(|dst| Math::Arange { dst, start, tile }), tile))
        })
    }

    /// Matrix product of `(m, k)` and `(k, n)`.
    fn dot(&self, py: Python<'_>, a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> PyResult<Py<Handle>> {
        let (a, b) = (self.source(py, a)?, self.source(py, b)?);
        self.define(py, Space::Tcm, |rec| self.product(rec, &a, &b))
    }

    /// `op="gemm"`: the matrix product of `a` and `b` (handles or memory references), stored at `out_ptr`.
    #[pyo3(signature = (op, a, b, out_ptr))]
    fn composite(
        &self,
        py: Python<'_>,
        op: &str,
        a: &Bound<'_, PyAny>,
        b: &Bound<'_, PyAny>,
        out_ptr: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (a, b) = (self.source(py, a)?, self.source(py, b)?);
        let address = self.pointer(py, out_ptr)?;
        self.capture.call(py, |rec| {
            if op != "gemm" {
                return Err(operand::unknown("AHBM-K214", "composite op", op, &["gemm"]));
            }
            let (value, tile) = self.product(rec, &a, &b)?;
            self.put(rec, address, value, tile)?;
            rec.release(value);
            Ok(())
        })
    }

    /// Transpose of a matrix.
    fn trans(&self, py: Python<'_>, a: &Bound<'_, PyAny>) -> PyResult<Py<Handle>> {
        let a = self.handle(py, a)?;
        self.define(py, Space::Tcm, |rec| {
            let tile = rec.tile_at(a.tile);
            let &[rows, cols] = &*tile.shape else {
                return Err(fault("AHBM-K209", format!("tl.trans of {tile}")).hint("matrices only").into());
            };
            let (dtype, a) = (tile.dtype, a.value);
            let tile = rec.tile(dtype, &[cols, rows]);
            Ok((rec.define(|dst| Math::Transpose { dst, a, tile }), tile))
        })
    }

    /// Bytes of one element of `dtype`; a constant, so it is no call that costs a dispatch.
    fn itemsize(&self, py: Python<'_>, dtype: &str) -> PyResult<u64> {
        operand::dtype(dtype).map(Dtype::bytes).map_err(|fault| self.capture.raise(py, *fault))
    }

    /// `a / b` rounded up; plain ints.
    fn cdiv<'py>(&self, py: Python<'py>, a: Integer<'py>, b: Integer<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.capture.count(py)?;
        // Rounded down, the negative of a quotient is rounded up.
        let divide = |a: Integer<'py>, b: Integer<'py>| a.object(py)?.neg()?.floor_div(b.object(py)?)?.neg();
        let value = |number: &Integer<'py>| number.on(py, &self.capture.path).map(|number| number.value);
        match (value(&a)?, value(&b)?) {
            (a, 0) => {
                let what = fault("AHBM-K209", format!("cdiv({a}, 0)")).hint("the divisor must not be zero");
                Err(self.capture.raise(py, what))
            }
            _ => divide(a, b),
        }
    }

    /// The address of a PE: a direction for `send`, `recv` and `recv_async`. A part left out means "same as mine".
    ///
    /// It names the same queue as the text `"sip2.cube5.pe0"`, and a rank behind it keeps its formula, which a text
    /// loses. A name, so it is no call that costs a dispatch.
    #[pyo3(signature = (*, sip=None, cube=None, pe=None))]
    fn peer<'py>(
        &self,
        py: Python<'py>,
        sip: Option<Integer<'py>>,
        cube: Option<Integer<'py>>,
        pe: Option<Integer<'py>>,
    ) -> PyResult<Peer> {
        let path = &self.capture.path;
        let on = |part: Option<Integer<'py>>| part.map(|part| part.on(py, path)).transpose();
        let parts = [on(sip)?, on(cube)?, on(pe)?];
        self.checked(py, Peer::new(py, path, parts)?)
    }

    /// Element-wise maximum; one operand may be a number.
    fn maximum(&self, py: Python<'_>, a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> PyResult<Py<Handle>> {
        self.binary(py, BinaryFn::Max, a, b)
    }

    /// Element-wise minimum; one operand may be a number.
    fn minimum(&self, py: Python<'_>, a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> PyResult<Py<Handle>> {
        self.binary(py, BinaryFn::Min, a, b)
    }

    /// The reduction step of a collective: `op` is sum, prod, min, max, avg (which adds; divide at the
    /// end), or for integers band, bor, bxor.
    fn combine(&self, py: Python<'_>, a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>, op: &str) -> PyResult<Py<Handle>> {
        let f = self.checked(py, operand::reduction(op))?;
        self.binary(py, f, a, b)
    }

    /// `a * b + c`, rounded once; numbers stand for values of equal elements.
    fn fma(
        &self,
        py: Python<'_>,
        a: &Bound<'_, PyAny>,
        b: &Bound<'_, PyAny>,
        c: &Bound<'_, PyAny>,
    ) -> PyResult<Py<Handle>> {
        let operands = [self.operand(py, a)?, self.operand(py, b)?, self.operand(py, c)?];
        let tile = operands.iter().find_map(|o| if let Operand::Handle(h) = o { Some(h.tile) } else { None });
        let tile = tile.ok_or_else(|| self.capture.raise(py, not_an_operand(a)))?;
        let [a, b, c] = &operands;
        self.define(py, Space::Tcm, |rec| {
            self.full_operand(rec, a, tile, |rec, a| {
                self.full_operand(rec, b, tile, |rec, b| {
                    self.full_operand(rec, c, tile, |rec, c| {
                        Ok((rec.define(|dst| Math::Fma { dst, a, b, c, tile }), tile))
                    })
                })
            })
        })
    }

    /// `min(max(a, lo), hi)` with numbers as bounds.
    fn clamp(
        &self,
        py: Python<'_>,
        a: &Bound<'_, PyAny>,
        lo: &Bound<'_, PyAny>,
        hi: &Bound<'_, PyAny>,
    ) -> PyResult<Py<Handle>> {
        let (a, lo, hi) = (self.handle(py, a)?, self.number(py, lo)?, self.number(py, hi)?);
        self.define(py, Space::Tcm, |rec| {
            let dtype = rec.tile_at(a.tile).dtype;
            let (lo, hi) = (lo.scalar(dtype)?, hi.scalar(dtype)?);
            let (lo, hi) = (rec.scalar(lo), rec.scalar(hi));
            let (a, tile) = (a.value, a.tile);
            Ok((rec.define(|dst| Math::Clamp { dst, a, lo, hi, tile }), tile))
        })
    }

    /// Element-wise exponential; floats only.
    fn exp(&self, py: Python<'_>, a: &Bound<'_, PyAny>) -> PyResult<Py<Handle>> {
        self.float_unary(py, "exp", UnaryFn::Exp, a)
    }

    /// Element-wise natural logarithm; floats only.
    fn log(&self, py: Python<'_>, a: &Bound<'_, PyAny>) -> PyResult<Py<Handle>> {
        self.float_unary(py, "log", UnaryFn::Log, a)
    }

    /// Element-wise square root; floats only.
    fn sqrt(&self, py: Python<'_>, a: &Bound<'_, PyAny>) -> PyResult<Py<Handle>> {
        self.float_unary(py, "sqrt", UnaryFn::Sqrt, a)
    }

    /// Sum along `axis`, or of all elements.
    #[pyo3(signature = (a, axis=None))]
    fn sum(&self, py: Python<'_>, a: &Bound<'_, PyAny>, axis: Option<i64>) -> PyResult<Py<Handle>> {
        self.reduce(py, ReduceFn::Sum, a, axis)
    }

    /// Maximum along `axis`, or of all elements.
    #[pyo3(signature = (a, axis=None))]
    fn max(&self, py: Python<'_>, a: &Bound<'_, PyAny>, axis: Option<i64>) -> PyResult<Py<Handle>> {
        self.reduce(py, ReduceFn::Max, a, axis)
    }

    /// Minimum along `axis`, or of all elements.
    #[pyo3(signature = (a, axis=None))]
    fn min(&self, py: Python<'_>, a: &Bound<'_, PyAny>, axis: Option<i64>) -> PyResult<Py<Handle>> {
        self.reduce(py, ReduceFn::Min, a, axis)
    }

    /// Softmax along `axis`; floats only.
    #[pyo3(signature = (a, axis=-1), text_signature = "($self, a, axis=-1)")]
    fn softmax(&self, py: Python<'_>, a: &Bound<'_, PyAny>, axis: i64) -> PyResult<Py<Handle>> {
        let a = self.handle(py, a)?;
        self.define(py, Space::Tcm, |rec| {
            self.floats_only(rec, "softmax", a)?;
            let axis = operand::axis(axis, rec.tile_at(a.tile))?;
            let (a, tile) = (a.value, a.tile);
            Ok((rec.define(|dst| Math::Softmax { axis, dst, a, tile }), tile))
        })
    }

    /// `a` where `cond` is not 0, else `b`; one of them may be a number.
    #[pyo3(name = "where")]
    fn select(
        &self,
        py: Python<'_>,
        cond: &Bound<'_, PyAny>,
        a: &Bound<'_, PyAny>,
        b: &Bound<'_, PyAny>,
    ) -> PyResult<Py<Handle>> {
        let cond = self.handle(py, cond)?;
        let (a, b) = (self.operand(py, a)?, self.operand(py, b)?);
        let tile = match (&a, &b) {
            (Operand::Handle(h), _) | (_, Operand::Handle(h)) => h.tile,
            _ => cond.tile,
        };
        self.define(py, Space::Tcm, |rec| {
            let (want, have) = (rec.tile_at(tile), rec.tile_at(cond.tile));
            if want.shape != have.shape {
                return Err(fault("AHBM-K209", format!("condition {have} for values {want}"))
                    .hint("condition and values have one shape")
                    .into());
            }
            let cond = cond.value;
            self.full_operand(rec, &a, tile, |rec, a| {
                self.full_operand(rec, &b, tile, |rec, b| {
                    Ok((rec.define(|dst| Math::Where { dst, cond, a, b, tile }), tile))
                })
            })
        })
    }

    /// Conversion to another dtype: floats are rounded to nearest even, and become integers by rounding towards zero.
    fn cast(&self, py: Python<'_>, a: &Bound<'_, PyAny>, dtype: &str) -> PyResult<Py<Handle>> {
        let a = self.handle(py, a)?;
        self.define(py, Space::Tcm, |rec| {
            let dtype = operand::dtype(dtype)?;
            let shape = rec.tile_at(a.tile).shape.clone();
            let (a, tile) = (a.value, rec.tile(dtype, &shape));
            Ok((rec.define(|dst| Math::Cast { dst, a, tile }), tile))
        })
    }

    /// Posts `src` (a value, or a memory reference) to the PE behind `dir`; blocks only while no slot is free.
    fn send(&self, py: Python<'_>, dir: Dir<'_>, src: &Bound<'_, PyAny>) -> PyResult<()> {
        let source = self.source(py, src)?;
        let toward = dir.toward(py, &self.capture.path)?;
        self.capture.call(py, |rec| {
            let dir = rec.direction(&self.capture.launch, &toward)?;
            let tile = source.tile();
            source.with(rec, |rec, src| {
                rec.push(Comm::Send { dir, src, tile });
                Ok(())
            })
        })
    }

    /// Receives the next message from `dir`, or (None) from the next direction, in turn, that has one.
    ///
    /// `mode="copy_to_dst"` also stores it at byte address `dst`.
    #[pyo3(signature = (dir=None, shape=None, dtype="f16", mode="return_slot", dst=None))]
    fn recv(
        &self,
        py: Python<'_>,
        dir: Option<Dir<'_>>,
        shape: Option<&Bound<'_, PyAny>>,
        dtype: &str,
        mode: &str,
        dst: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Handle>> {
        let shape = self.checked(py, Shape::parse(shape))?;
        let target = self.copy_target(py, mode, dst)?;
        let toward = dir.as_ref().map(|dir| dir.toward(py, &self.capture.path)).transpose()?;
        self.define(py, Space::Slot, |rec| {
            let dtype = operand::dtype(dtype)?;
            let dir = toward.as_ref().map(|toward| rec.direction(&self.capture.launch, toward)).transpose()?;
            let tile = rec.shaped(dtype, &shape);
            let value = rec.define(|dst| match dir {
                Some(dir) => OpKind::Comm(Comm::Recv { dir, dst, tile }),
                None => OpKind::Comm(Comm::RecvAny { dst, tile }),
            });
            if let Some(address) = target {
                self.put(rec, address, value, tile)?;
            }
            Ok((value, tile))
        })
    }

    /// Posts a receive that completes in the background; `tl.wait` gives its value.
    #[pyo3(signature = (dir, shape, dtype="f16"))]
    fn recv_async(&self, py: Python<'_>, dir: Dir<'_>, shape: &Bound<'_, PyAny>, dtype: &str) -> PyResult<RecvFuture> {
        let shape = self.checked(py, Shape::parse(Some(shape)))?;
        let toward = dir.toward(py, &self.capture.path)?;
        let (value, tile) = self.capture.call(py, |rec| {
            let dtype = operand::dtype(dtype)?;
            let dir = rec.direction(&self.capture.launch, &toward)?;
            let tile = rec.shaped(dtype, &shape);
            Ok((rec.define(|dst| Comm::PostRecv { dir, dst, tile }), tile))
        })?;
        Ok(RecvFuture::new(&self.capture, value, tile))
    }

    /// Waits for a posted receive and returns its value. A value is complete and returned as it is.
    fn wait(&self, py: Python<'_>, future: &Bound<'_, PyAny>) -> PyResult<Py<Handle>> {
        if let Ok(handle) = future.cast::<Handle>() {
            self.own(py, &handle.get().capture)?;
            self.capture.count(py)?;
            return Ok(handle.clone().unbind());
        }
        let Ok(future) = future.cast::<RecvFuture>() else {
            let what = fault("AHBM-K209", "tl.wait takes what tl.recv_async returned");
            return Err(self.capture.raise(py, what));
        };
        let future = future.get();
        self.own(py, &future.capture)?;
        self.define(py, Space::Slot, |rec| {
            future.take()?;
            rec.push(Comm::Await { value: future.value });
            Ok((future.value, future.tile))
        })
    }

    fn __repr__(&self) -> String {
        format!("<tl of {}>", self.capture.launch.label())
    }
}
