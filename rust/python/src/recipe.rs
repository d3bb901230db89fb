//! The data of a program without the program, on NumPy arrays.
#![allow(unsafe_code)] // Arrays of any dtype are bytes.

use crate::errors;
use crate::interrupt::interruptible;
use crate::memory::{LOG, data, plain_bytes, writable};
use crate::program::Program;
use crate::timeline::Timeline;
use ahbm_emulator::{Copied, Prepared};
use ahbm_findings::Diagnostic;
use ahbm_program::BufferId;
use log::{Level, debug, log_enabled};
use numpy::{PyReadonlyArray2, PyUntypedArray};
use pyo3::prelude::*;
use std::num::NonZero;
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;
use std::time::Instant;

/// Arrays of so few bytes are worked on with the interpreter lock: to release it and to get it back takes longer.
const QUICK: usize = 1 << 18;

static THREADS: OnceLock<usize> = OnceLock::new();

/// How the results of a program are made of its operands, in place and without buffers; the bits are those of a replay.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Recipe {
    program: Arc<ahbm_program::Program>,
    inner: ahbm_emulator::Recipe,
}

#[pymethods]
impl Recipe {
    /// The recipe of what `Memory.run` does with these arguments; None where the data cannot be followed so, and that
    /// must do it. Raises `DataError` when a piece does not fit or the timeline is of another program.
    #[staticmethod]
    fn of(
        py: Python<'_>,
        program: &Program,
        timeline: &Timeline,
        operands: Vec<PyReadonlyArray2<'_, i64>>,
        results: Vec<PyReadonlyArray2<'_, i64>>,
    ) -> PyResult<Option<Self>> {
        let read = || -> Result<_, Diagnostic> {
            timeline.is_of(&program.inner)?;
            let all = |lists: &[PyReadonlyArray2<'_, i64>]| {
                lists.iter().map(|rows| pieces(&program.inner, rows)).collect::<Result<Vec<_>, _>>()
            };
            Ok((all(&operands)?, all(&results)?))
        };
        let (operands, results) = read().map_err(|finding| errors::raise_one(py, finding))?;
        let (program, timeline) = (Arc::clone(&program.inner), &timeline.inner);
        let inner = interruptible(py, || {
            let prepared = Prepared::of(&program).map_err(|finding| vec![finding])?;
            Ok(prepared.recipe(&program, timeline, &operands, &results))
        })?;
        Ok(inner.map(|inner| Self { program, inner }))
    }

    /// Makes the results in `arrays`, writable, C-contiguous and of any numeric dtype; False, and nothing done, where two
    /// of them share memory. The interpreter lock is released meanwhile, unless that takes longer than the work.
    /// Raises `DataError`.
    fn run(&self, py: Python<'_>, arrays: Vec<Bound<'_, PyUntypedArray>>) -> PyResult<bool> {
        let raise = |finding| errors::raise_one(py, finding);
        let sizes = self.inner.sizes();
        let mut places = Vec::with_capacity(arrays.len());
        for array in &arrays {
            let len = plain_bytes(array).and_then(|len| writable(array).map(|()| len)).map_err(raise)?;
            places.push((data(array) as usize, len));
        }
        if places.len() != sizes.len() || places.iter().zip(sizes).any(|(&(_, len), &size)| len < size) {
            let what = format!("{} arrays for {}, or too short ones", arrays.len(), sizes.len());
            return Err(raise(Diagnostic::new("AHBM-V121", what)));
        }
        let mut order: Vec<_> = places.iter().filter(|&&(_, len)| len > 0).copied().collect();
        order.sort_unstable();
        if order.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            return Ok(false);
        }
        let size: usize = places.iter().map(|&(_, len)| len).sum();
        let begin = log_enabled!(target: LOG, Level::Debug).then(Instant::now);
        let work = || {
            let bytes = |&(at, len): &(usize, usize)| {
                // SAFETY: the memory of an array that is alive during the call, writable, its bytes side by side, and
                // shared with no other of the arrays (all checked above). Whoever writes to it meanwhile gets any bytes.
                if len == 0 { &mut [][..] } else { unsafe { std::slice::from_raw_parts_mut(at as *mut u8, len) } }
            };
            // To ask the system takes longer than a small call.
            let threads = *THREADS.get_or_init(|| available_parallelism().map_or(1, NonZero::get));
            self.inner.run(&mut places.iter().map(bytes).collect::<Vec<_>>(), threads);
            Ok(())
        };
        let done = if size <= QUICK { errors::guard(work) } else { py.detach(|| errors::guard(work)) };
        done.map_err(|findings| errors::raise(py, &findings))?;
        if let Some(begin) = begin {
            let (name, ms) = (&self.program.name, begin.elapsed().as_secs_f64() * 1e3);
            debug!(target: LOG, "{name}: {size} bytes; replayed in {ms:.3} ms");
        }
        Ok(true)
    }
}

fn pieces(program: &ahbm_program::Program, rows: &PyReadonlyArray2<'_, i64>) -> Result<Vec<Copied>, Diagnostic> {
    let rows = rows.as_array();
    let piece = |row: [i64; 4]| {
        let fault = || Diagnostic::new("AHBM-V121", format!("a piece {row:?} that does not fit"));
        let [Ok(buffer), Ok(host), Ok(offset), Ok(bytes)] = row.map(u64::try_from) else { return Err(fault()) };
        let found = program.buffers.get(buffer as usize).ok_or_else(fault)?;
        let inside =
            offset.checked_add(bytes).is_some_and(|end| end <= found.bytes) && host.checked_add(bytes).is_some();
        if inside { Ok(Copied { host, buffer: BufferId(buffer as u32), offset, bytes }) } else { Err(fault()) }
    };
    if rows.ncols() != 4 {
        return Err(Diagnostic::new("AHBM-V121", format!("pieces with {} numbers", rows.ncols())));
    }
    rows.rows().into_iter().map(|row| piece([row[0], row[1], row[2], row[3]])).collect()
}
