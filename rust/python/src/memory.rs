//! The bytes behind a program's buffers, filled from and copied to NumPy arrays.
#![allow(unsafe_code)] // Arrays of any dtype are copied as bytes.

use crate::errors;
use crate::interrupt::interruptible;
use crate::program::Program;
use crate::timeline::Timeline;
use ahbm_emulator::Prepared;
use ahbm_findings::Diagnostic;
use ahbm_program::BufferId;
use log::{Level, debug, log_enabled};
use numpy::npyffi::flags::NPY_ARRAY_WRITEABLE;
use numpy::{PyArrayDescrMethods, PyReadonlyArray2, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// The target to which the data pass logs.
pub(crate) const LOG: &str = "ahbm::data";

/// One memory image of a program: all buffers, zero at first, allocated when first touched.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Memory {
    pub(crate) program: Arc<ahbm_program::Program>,
    prepared: OnceLock<Prepared>,
    inner: Mutex<ahbm_emulator::Memory>,
}

/// Who touched which memory in which order; made by `Memory.flow`.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Flow {
    pub(crate) inner: ahbm_emulator::inspect::Flow,
    pub(crate) timeline: Py<Timeline>,
}

/// Replays of so few operations on so few bytes keep the interpreter lock: to release it and to get it back takes
/// longer.
const QUICK: (u64, usize) = (1 << 12, 1 << 18);

impl Memory {
    /// For a thread that has released the interpreter lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ahbm_emulator::Memory> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a thread that holds the interpreter lock; a replay in another thread may take long.
    fn lock_attached(&self, py: Python<'_>) -> MutexGuard<'_, ahbm_emulator::Memory> {
        self.inner.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    /// Replays a timeline on the image `inner`, which is this one's.
    fn perform(&self, timeline: &Timeline, inner: &mut ahbm_emulator::Memory) -> Result<(), Diagnostic> {
        timeline.is_of(&self.program)?;
        self.prepared()?.replay(&self.program, &timeline.inner, inner)
    }

    fn prepared(&self) -> Result<&Prepared, Diagnostic> {
        match self.prepared.get() {
            Some(known) => Ok(known),
            None => {
                let fresh = Prepared::of(&self.program)?;
                Ok(self.prepared.get_or_init(|| fresh))
            }
        }
    }

    /// Copies pieces of an array into buffers; see `run`.
    fn scatter(
        &self,
        inner: &mut ahbm_emulator::Memory,
        array: &Bound<'_, PyUntypedArray>,
        pieces: &PyReadonlyArray2<'_, i64>,
    ) -> Result<(), Diagnostic> {
        let len = plain_bytes(array)?;
        // SAFETY: as in `write`.
        let source = unsafe { bytes(data(array), len) };
        for piece in pieces.as_array().rows() {
            let (buffer, from, to) = self.piece([piece[0], piece[1], piece[2], piece[3]], len)?;
            inner.reserve(buffer)?;
            inner.bytes_mut(buffer)[to].copy_from_slice(&source[from]);
        }
        Ok(())
    }

    /// Copies pieces from buffers into an array; see `run`.
    fn gather(
        &self,
        inner: &ahbm_emulator::Memory,
        array: &Bound<'_, PyUntypedArray>,
        pieces: &PyReadonlyArray2<'_, i64>,
    ) -> Result<(), Diagnostic> {
        let len = plain_bytes(array)?;
        for piece in pieces.as_array().rows() {
            let (buffer, to, from) = self.piece([piece[0], piece[1], piece[2], piece[3]], len)?;
            inner.reserve(buffer)?;
            let source = &inner.bytes(buffer)[from];
            if !source.is_empty() {
                // SAFETY: as in `read`; `to` lies inside the array and is as long as `source` (checked by `piece`).
                unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), data(array).add(to.start), source.len()) };
            }
        }
        Ok(())
    }

    /// A row of `pieces`: the buffer, the range in an array of `len` bytes and the range in the buffer.
    fn piece(&self, row: [i64; 4], len: usize) -> Result<(BufferId, Range<usize>, Range<usize>), Diagnostic> {
        let [Ok(buffer), Ok(host), Ok(offset), Ok(bytes)] = row.map(u64::try_from) else {
            return Err(Diagnostic::new("AHBM-V121", format!("a piece {row:?} with a negative number")));
        };
        let inside = self.range(u32::try_from(buffer).unwrap_or(u32::MAX), offset, bytes as usize)?;
        match host.checked_add(bytes) {
            Some(end) if end <= len as u64 => Ok((BufferId(buffer as u32), host as usize..end as usize, inside)),
            _ => Err(Diagnostic::new("AHBM-V121", format!("{bytes} bytes from byte {host} of an array of {len}"))),
        }
    }

    fn range(&self, buffer: u32, offset: u64, len: usize) -> Result<Range<usize>, Diagnostic> {
        let fault = |what: String| Diagnostic::new("AHBM-V121", what);
        let Some(found) = self.program.buffers.get(buffer as usize) else {
            return Err(fault(format!("buffer {buffer} of {}", self.program.buffers.len())));
        };
        match offset.checked_add(len as u64) {
            Some(end) if end <= found.bytes => Ok(offset as usize..end as usize),
            _ => Err(fault(format!("{len} bytes from byte {offset} of buffer {buffer}, which has {}", found.bytes))),
        }
    }
}

pub(crate) fn writable(array: &Bound<'_, PyUntypedArray>) -> Result<(), Diagnostic> {
    // SAFETY: the pointer is that of a live array object.
    if unsafe { (*array.as_array_ptr()).fields.flags } & NPY_ARRAY_WRITEABLE == 0 {
        return Err(Diagnostic::new("AHBM-V122", "the array to read into is not writable"));
    }
    Ok(())
}

/// The size in bytes of an array whose elements lie side by side and are plain bytes.
pub(crate) fn plain_bytes(array: &Bound<'_, PyUntypedArray>) -> Result<usize, Diagnostic> {
    let dtype = array.dtype();
    let problem = if dtype.has_object() {
        "holds Python objects"
    } else if !dtype.is_native_byteorder().unwrap_or(true) {
        "is not in native byte order"
    } else if !array.is_c_contiguous() {
        "is not C-contiguous"
    } else {
        return Ok(array.len() * dtype.itemsize());
    };
    Err(Diagnostic::new("AHBM-V122", format!("the array of dtype {dtype} {problem}"))
        .hint("pass numpy.ascontiguousarray(x) of a numeric dtype"))
}

pub(crate) fn data(array: &Bound<'_, PyUntypedArray>) -> *mut u8 {
    // SAFETY: the pointer is that of a live array object.
    unsafe { (*array.as_array_ptr()).fields.data.cast() }
}

#[pymethods]
impl Memory {
    /// All-zero memory for `program`.
    #[new]
    fn new(program: &Program) -> Self {
        let inner = Mutex::new(ahbm_emulator::Memory::new(&program.inner));
        Self { program: Arc::clone(&program.inner), prepared: OnceLock::new(), inner }
    }

    /// Copies a C-contiguous array of any numeric dtype into a buffer, from byte `offset` on.
    ///
    /// Raises `DataError` when it does not fit, `BudgetError` when the host cannot hold the buffer.
    #[pyo3(signature = (buffer, data, offset=0))]
    fn write(&self, py: Python<'_>, buffer: u32, data: &Bound<'_, PyUntypedArray>, offset: u64) -> PyResult<()> {
        let copy = || -> Result<(), Diagnostic> {
            let len = plain_bytes(data)?;
            let range = self.range(buffer, offset, len)?;
            let mut memory = self.lock_attached(py);
            memory.reserve(BufferId(buffer))?;
            // SAFETY: the array has `len` bytes side by side (checked above), stays alive during the call,
            // and nothing writes to it: the interpreter lock is held and this memory is not an array's.
            let source = unsafe { bytes(self::data(data), len) };
            memory.bytes_mut(BufferId(buffer))[range].copy_from_slice(source);
            Ok(())
        };
        copy().map_err(|finding| errors::raise_one(py, finding))
    }

    /// Copies a buffer, from byte `offset` on, into a writable C-contiguous array of any numeric dtype.
    ///
    /// Raises `DataError` when the buffer does not have that many bytes.
    #[pyo3(signature = (buffer, out, offset=0))]
    fn read(&self, py: Python<'_>, buffer: u32, out: &Bound<'_, PyUntypedArray>, offset: u64) -> PyResult<()> {
        let copy = || -> Result<(), Diagnostic> {
            let len = plain_bytes(out)?;
            writable(out)?;
            let range = self.range(buffer, offset, len)?;
            let memory = self.lock_attached(py);
            memory.reserve(BufferId(buffer))?;
            let source = &memory.bytes(BufferId(buffer))[range];
            if len > 0 {
                // SAFETY: the array has `len` writable bytes side by side (checked above) and stays alive
                // during the call; the buffer is Rust's own memory, so the two cannot overlap.
                unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), data(out), len) };
            }
            Ok(())
        };
        copy().map_err(|finding| errors::raise_one(py, finding))
    }

    /// Replays the effects of one of the program's timelines on what `write` has put here, for `read`; the interpreter
    /// lock is released meanwhile. Raises `DataError`, `BudgetError` when the host cannot hold a buffer.
    fn replay(&self, py: Python<'_>, timeline: &Timeline) -> PyResult<()> {
        interruptible(py, || self.perform(timeline, &mut self.lock()).map_err(|finding| vec![finding]))
    }

    /// In which order memory was touched; replays as `replay` does where agents share memory. Raises as `replay`, and
    /// `DeadlockError` (AHBM-D191) for a timeline that was not recorded.
    fn flow(&self, py: Python<'_>, timeline: Py<Timeline>) -> PyResult<Flow> {
        let of = timeline.get();
        let follow = || {
            of.is_of(&self.program)?;
            let prepared = self.prepared()?;
            let (accesses, lands) = prepared.accesses(&self.program, &of.inner, &mut self.lock())?;
            ahbm_emulator::inspect::Flow::new(&self.program, &of.inner, accesses, lands)
        };
        let inner = interruptible(py, || follow().map_err(|finding| vec![finding]))?;
        Ok(Flow { inner, timeline })
    }

    /// Runs the program on arrays: copies pieces of each into buffers, replays the timeline, and copies pieces back.
    ///
    /// The arrays are writable, C-contiguous and of any numeric dtype. Per array, each row of its
    /// `operands`, shape (n, 4), is: buffer, first byte in the array, first byte in the buffer, bytes; of its `results`
    /// too. The interpreter lock is released meanwhile, unless that takes longer than the replay. Raises `DataError`
    /// when a piece does not fit or the timeline is of another program, `BudgetError` when the host cannot hold a
    /// buffer.
    fn run(
        &self,
        py: Python<'_>,
        timeline: &Timeline,
        arrays: Vec<Bound<'_, PyUntypedArray>>,
        operands: Vec<PyReadonlyArray2<'_, i64>>,
        results: Vec<PyReadonlyArray2<'_, i64>>,
    ) -> PyResult<()> {
        let raise = |finding| errors::raise_one(py, finding);
        if (operands.len(), results.len()) != (arrays.len(), arrays.len()) {
            let what = format!("pieces of {} and {} for {} arrays", operands.len(), results.len(), arrays.len());
            return Err(raise(Diagnostic::new("AHBM-V121", what)));
        }
        let mut size = 0;
        for (array, pieces) in arrays.iter().zip(&operands) {
            writable(array).map_err(raise)?;
            size += array.len() * array.dtype().itemsize();
            self.scatter(&mut self.lock_attached(py), array, pieces).map_err(raise)?;
        }
        let begin = log_enabled!(target: LOG, Level::Debug).then(Instant::now);
        let quick = self.program.ops() <= QUICK.0 && size <= QUICK.1;
        let replay = |inner: &mut ahbm_emulator::Memory| self.perform(timeline, inner).map_err(|finding| vec![finding]);
        if quick {
            let done = errors::guard(|| replay(&mut self.lock_attached(py)));
            done.map_err(|findings| errors::raise(py, &findings))?;
        } else {
            interruptible(py, || replay(&mut self.lock()))?;
        }
        // Here, not in the replay: Python code may run, and no lock is held.
        if let Some(begin) = begin {
            let (name, ms) = (&self.program.name, begin.elapsed().as_secs_f64() * 1e3);
            debug!(target: LOG, "{name}: {size} bytes; replayed in {ms:.3} ms");
        }
        for (array, pieces) in arrays.iter().zip(&results) {
            self.gather(&self.lock_attached(py), array, pieces).map_err(raise)?;
        }
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<memory of {}: {} buffers>", self.program.name, self.program.buffers.len())
    }
}

/// The bytes at `start`; empty arrays may have any pointer.
///
/// # Safety
/// `start` points to `len` initialised bytes that nothing writes to during `'a`.
unsafe fn bytes<'a>(start: *const u8, len: usize) -> &'a [u8] {
    // SAFETY: the caller's promise; a pointer is not looked at when `len` is zero.
    if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, len) } }
}
