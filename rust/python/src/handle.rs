//! The objects that a kernel holds: values, memory references, pending receives. None of them has data.

use crate::capture::{Capture, Recorder};
use crate::operand::{self, Fault, Number, fault};
use ahbm_program::{BinaryFn, Dtype, Math, Move, Tile, UnaryFn, ValueId};
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The origin of a value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Space {
    /// Read from the tensor.
    Hbm,
    /// Computed by the PE.
    Tcm,
    /// Received into a queue slot.
    Slot,
}

impl Space {
    fn name(self) -> &'static str {
        match self {
            Self::Hbm => "hbm",
            Self::Tcm => "tcm",
            Self::Slot => "slot",
        }
    }
}

/// An immutable value of a kernel: shape, dtype and space, never data.
///
/// Arithmetic (`+ - * /`, unary `-`) and comparisons record operations; comparisons yield 0 or 1 in the
/// operands' dtype. Asking for data raises `KernelError` (AHBM-K202): kernels are recorded before data exists.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Handle {
    pub(crate) capture: Arc<Capture>,
    pub(crate) value: ValueId,
    pub(crate) tile: u32,
    space: Space,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.capture.release(self.value);
    }
}

/// Records one operation that defines a value, and wraps the value.
pub(crate) fn define(
    py: Python<'_>,
    capture: &Arc<Capture>,
    space: Space,
    record: impl FnOnce(&mut Recorder) -> Result<(ValueId, u32), Fault>,
) -> PyResult<Py<Handle>> {
    let (value, tile) = capture.call(py, record)?;
    Py::new(py, Handle { capture: Arc::clone(capture), value, tile, space })
}

impl Handle {
    /// `f(self, other)`, or `f(other, self)` when swapped.
    pub(crate) fn binary(
        &self,
        py: Python<'_>,
        f: BinaryFn,
        other: &Bound<'_, PyAny>,
        swapped: bool,
    ) -> PyResult<Py<Handle>> {
        if let Ok(other) = other.cast::<Handle>() {
            let (a, b) = if swapped { (other.get(), self) } else { (self, other.get()) };
            return define(py, &self.capture, Space::Tcm, |rec| {
                same_capture(&other.get().capture, &self.capture)?;
                operand::integers_only(f, rec.tile_at(self.tile))?;
                let tile = if a.tile == b.tile {
                    a.tile
                } else {
                    let (x, y) = (rec.tile_at(a.tile), rec.tile_at(b.tile));
                    operand::same_dtype(x, y)?;
                    let (dtype, shape) = (x.dtype, operand::broadcast(x, y)?);
                    rec.made(dtype, &shape)?
                };
                Ok((rec.define(|dst| Math::Binary { f, dst, a: a.value, b: b.value, tile }), tile))
            });
        }
        let number = self.number(py, other)?;
        define(py, &self.capture, Space::Tcm, |rec| {
            operand::integers_only(f, rec.tile_at(self.tile))?;
            let scalar = number.scalar(rec.tile_at(self.tile).dtype)?;
            let scalar = rec.scalar(scalar);
            let (a, tile) = (self.value, self.tile);
            Ok((rec.define(|dst| Math::BinaryScalar { f, swapped, dst, a, scalar, tile }), tile))
        })
    }

    fn number(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Number> {
        Number::parse(other).ok_or_else(|| self.capture.raise(py, not_an_operand(other)))
    }

    /// The fault for whatever would need data.
    #[cold]
    fn no_data<T>(&self, py: Python<'_>, what: &str) -> PyResult<T> {
        Err(self.capture.raise(
            py,
            fault(
                "AHBM-K202",
                format!("{what} asks a value for its data, which does not exist while a kernel is recorded"),
            )
            .hint(
                "a kernel may branch on ranks, sizes and topology only; use tl.where, tl.maximum, … to select by data",
            ),
        ))
    }
}

/// The fault for an argument that is neither a handle nor a number.
#[cold]
pub(crate) fn not_an_operand(other: &Bound<'_, PyAny>) -> ahbm_findings::Diagnostic {
    let kind = other.get_type().name().map(|n| n.to_string()).unwrap_or_default();
    fault("AHBM-K209", format!("{kind} is not an operand"))
        .hint("operands are handles of this kernel and plain numbers; arrays live in the tensor behind t_ptr")
}

/// Checks that what was made by one kernel call is used in it.
pub(crate) fn same_capture(owner: &Arc<Capture>, running: &Arc<Capture>) -> Result<(), Fault> {
    if Arc::ptr_eq(owner, running) {
        return Ok(());
    }
    Err(fault("AHBM-K203", "a handle of another kernel call")
        .site(owner.launch.label(), "")
        .hint("PEs exchange values with tl.send and tl.recv only; do not keep handles in globals")
        .into())
}

#[pymethods]
impl Handle {
    /// Extents, as a tuple of ints; `()` for a scalar.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.capture.tile(self.tile).shape)
    }

    /// Element type, e.g. `"f16"`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.capture.tile(self.tile).dtype.name()
    }

    /// Size in bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.capture.tile(self.tile).bytes()
    }

    /// The origin of the value: `"hbm"` (loaded), `"tcm"` (computed) or `"slot"` (received).
    #[getter]
    fn space(&self) -> &'static str {
        self.space.name()
    }

    fn __repr__(&self) -> String {
        format!("<value {} in {}>", self.capture.tile(self.tile), self.space.name())
    }

    fn __add__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<Handle>> {
        self.binary(py, BinaryFn::Add, other, false)
    }

    fn __radd__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<Handle>> {
        self.binary(py, BinaryFn::Add, other, true)
    }

    fn __sub__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<Handle>> {
        self.binary(py, BinaryFn::Sub, other, false)
    }

    fn __rsub__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<Handle>> {
        self.binary(py, BinaryFn::Sub, other, true)
    }

    fn __mul__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<Handle>> {
        self.binary(py, BinaryFn::Mul, other, false)
    }

    fn __rmul__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<Handle>> {
        self.binary(py, BinaryFn::Mul, other, true)
    }

    fn __truediv__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<Handle>> {
        self.binary(py, BinaryFn::Div, other, false)
    }

    fn __rtruediv__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<Handle>> {
        self.binary(py, BinaryFn::Div, other, true)
    }

    fn __neg__(&self, py: Python<'_>) -> PyResult<Py<Handle>> {
        let (a, tile) = (self.value, self.tile);
        define(py, &self.capture, Space::Tcm, |rec| {
            Ok((rec.define(|dst| Math::Unary { f: UnaryFn::Neg, dst, a, tile }), tile))
        })
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<Handle>> {
        let f = match op {
            CompareOp::Lt => BinaryFn::Lt,
            CompareOp::Le => BinaryFn::Le,
            CompareOp::Gt => BinaryFn::Gt,
            CompareOp::Ge => BinaryFn::Ge,
            CompareOp::Eq => BinaryFn::Eq,
            CompareOp::Ne => BinaryFn::Ne,
        };
        self.binary(py, f, other, false)
    }

    /// NumPy leaves operators with arrays to this class, which refuses them by name.
    #[classattr]
    fn __array_ufunc__() -> Option<bool> {
        None
    }

    /// Raises `KernelError`: a value has no data while a kernel is recorded.
    #[getter]
    fn data(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.no_data(py, ".data")
    }

    /// Raises `KernelError`: a value has no data while a kernel is recorded.
    fn numpy(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.no_data(py, ".numpy()")
    }

    /// Raises `KernelError`: a value has no data while a kernel is recorded.
    fn item(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.no_data(py, ".item()")
    }

    /// Raises `KernelError`: a value has no data while a kernel is recorded.
    fn tolist(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.no_data(py, ".tolist()")
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__(&self, py: Python<'_>, dtype: Option<Py<PyAny>>, copy: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let _ = (dtype, copy);
        self.no_data(py, "conversion to an array")
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.no_data(py, "a truth test")
    }

    fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
        self.no_data(py, "float()")
    }

    fn __int__(&self, py: Python<'_>) -> PyResult<i64> {
        self.no_data(py, "int()")
    }

    fn __index__(&self, py: Python<'_>) -> PyResult<i64> {
        self.no_data(py, "use as an index")
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.no_data(py, "len()")
    }

    fn __getitem__(&self, py: Python<'_>, index: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let _ = index;
        self.no_data(py, "indexing")
    }

    fn __setitem__(&self, py: Python<'_>, index: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let _ = (index, value);
        self.no_data(py, "item assignment")
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.no_data(py, "iteration")
    }
}

/// A piece of the tensor, named but not read: a source for `tl.send` and `tl.load`.
#[pyclass(frozen, module = "ahbm._core")]
pub struct MemoryRef {
    pub(crate) capture: Arc<Capture>,
    /// The number of its access.
    pub(crate) access: u32,
    pub(crate) tile: u32,
}

impl MemoryRef {
    /// Refuses another shape or dtype than the piece has.
    pub(crate) fn agrees(&self, rec: &Recorder, shape: Option<&[u64]>, dtype: Option<Dtype>) -> Result<(), Fault> {
        let own = rec.tile_at(self.tile);
        let asked = Tile::new(dtype.unwrap_or(own.dtype), shape.unwrap_or(&own.shape));
        if asked == *own {
            return Ok(());
        }
        Err(fault("AHBM-K209", format!("tl.load of a reference to {own} as {asked}"))
            .hint("leave shape and dtype out, or name the same memory by another tl.ref")
            .into())
    }

    /// Records the read of this piece.
    pub(crate) fn load(&self, rec: &mut Recorder) -> ValueId {
        let (mem, tile) = (rec.mem(self.access), self.tile);
        rec.define(|dst| Move::Load { dst, mem, tile })
    }
}

#[pymethods]
impl MemoryRef {
    /// Extents, as a tuple of ints.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.capture.tile(self.tile).shape)
    }

    /// Element type, e.g. `"f16"`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.capture.tile(self.tile).dtype.name()
    }

    /// Size in bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.capture.tile(self.tile).bytes()
    }

    /// Always `"hbm"`: the tensor's memory.
    #[getter]
    fn space(&self) -> &'static str {
        Space::Hbm.name()
    }

    fn __repr__(&self) -> String {
        format!("<memory {}>", self.capture.tile(self.tile))
    }
}

/// A posted receive; `tl.wait` turns it into a value, once.
#[pyclass(frozen, module = "ahbm._core")]
pub struct RecvFuture {
    pub(crate) capture: Arc<Capture>,
    /// Given back only through the handle `tl.wait` returns: until then the message may still arrive.
    pub(crate) value: ValueId,
    pub(crate) tile: u32,
    waited: AtomicBool,
}

impl RecvFuture {
    pub(crate) fn new(capture: &Arc<Capture>, value: ValueId, tile: u32) -> Self {
        Self { capture: Arc::clone(capture), value, tile, waited: AtomicBool::new(false) }
    }

    /// Marks the future as waited for.
    pub(crate) fn take(&self) -> Result<(), Fault> {
        if self.waited.swap(true, Ordering::Relaxed) {
            return Err(fault("AHBM-K215", "this future was waited for before")
                .hint("keep the value that tl.wait returned the first time")
                .into());
        }
        Ok(())
    }
}

#[pymethods]
impl RecvFuture {
    /// Extents, as a tuple of ints.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.capture.tile(self.tile).shape)
    }

    /// Element type, e.g. `"f16"`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.capture.tile(self.tile).dtype.name()
    }

    fn __repr__(&self) -> String {
        format!("<pending receive of {}>", self.capture.tile(self.tile))
    }
}
