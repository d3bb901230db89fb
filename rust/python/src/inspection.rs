//! What an element was made of, and what it became.

use crate::errors;
use crate::given::{Given, given};
use crate::interrupt::interruptible;
use crate::memory::{Flow, Memory};
use crate::timeline::Timeline;
use ahbm_emulator::inspect::Spot;
use ahbm_findings::Diagnostic;
use ahbm_program::BufferId;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ops::Range;

/// Agent, operation, element, and the name of the element's type; of memory before the run -1, the buffer, the first
/// byte and their number, and no name.
type Place = (i64, u32, u64, &'static str);
/// A place, when the element was there in ps, the places that it was made of, and its bytes.
type Source<'py> = (Place, u64, Vec<u32>, Bound<'py, PyBytes>);
/// A place without a type, when the element was there in ps, the places that it went to, memory that had it in the end
/// (buffer, first byte, bytes), and the operations (agent, operation) that replaced it in memory.
type Use = ((i64, u32, u64), u64, Vec<u32>, Vec<(u32, u64, u64)>, Vec<(u32, u32)>);

#[pymethods]
impl Flow {
    /// What some bytes of a buffer were made of at `at` ps (None: in the end), and what that was made of, down to memory
    /// as it was before the run: `inputs`.
    ///
    /// Returns the places, each behind those that it was made of, and which of them stood in the bytes. A place is
    /// `((agent, operation, element, dtype), ps, made of, bytes)`, or `((-1, buffer, byte, ""), 0, [], bytes)` before
    /// the run. Bytes are empty where writers of other sizes made the element. Raises `BudgetError` (AHBM-B124) for more
    /// than `most` places, `DataError` (AHBM-V121) for bytes that the buffer does not have.
    #[pyo3(signature = (inputs, buffer, start, end, *, at=Given::ok(None), most=Given::ok(1 << 20)),
           text_signature = "($self, inputs, buffer, start, end, *, at=None, most=1048576)")]
    #[allow(clippy::too_many_arguments)]
    fn origin<'py>(
        &self,
        py: Python<'py>,
        inputs: &Memory,
        buffer: Given<u32>,
        start: Given<u64>,
        end: Given<u64>,
        at: Given<Option<u64>>,
        most: Given<usize>,
    ) -> PyResult<(Vec<Source<'py>>, Vec<u32>)> {
        given!(buffer, start, end, at, most);
        let timeline = self.timeline.get();
        timeline.is_of(&inputs.program).map_err(|finding| errors::raise_one(py, finding))?;
        let found = interruptible(py, || {
            let bytes = (BufferId(buffer), within(timeline, buffer, start..end)?);
            let origin = self.inner.origin(&timeline.program, &timeline.inner, &inputs.lock(), bytes, at, most);
            origin.map_err(|finding| vec![finding])
        })?;
        let nodes = found.nodes.into_iter().map(|node| {
            let dtype = node.dtype.map_or("", ahbm_program::Dtype::name);
            let (agent, op, element) = place(&node.spot);
            ((agent, op, element, dtype), node.at, node.of, PyBytes::new(py, &node.bytes))
        });
        Ok((nodes.collect(), found.roots))
    }

    /// Where some bytes of a buffer went that stood there before the run.
    ///
    /// Returns places, the first of which is these bytes: as `origin` does, with the places that each went to, memory
    /// that had it in the end `(buffer, first byte, bytes)`, and the operations that replaced it in memory `(agent,
    /// operation)`. Raises as `origin`.
    #[pyo3(signature = (buffer, start, end, *, most=Given::ok(1 << 20)),
           text_signature = "($self, buffer, start, end, *, most=1048576)")]
    fn fate(
        &self,
        py: Python<'_>,
        buffer: Given<u32>,
        start: Given<u64>,
        end: Given<u64>,
        most: Given<usize>,
    ) -> PyResult<Vec<Use>> {
        given!(buffer, start, end, most);
        let timeline = self.timeline.get();
        let found = interruptible(py, || {
            let bytes = (BufferId(buffer), within(timeline, buffer, start..end)?);
            self.inner.fate(&timeline.program, &timeline.inner, bytes, most).map_err(|finding| vec![finding])
        })?;
        let node = |node: ahbm_emulator::inspect::Use| {
            let left = node.left.into_iter().map(|(buffer, range)| (buffer.0, range.start, range.end - range.start));
            let over = node.over.into_iter().map(|(agent, op)| (agent.0, op));
            (place(&node.spot), node.at, node.to, left.collect(), over.collect())
        };
        Ok(found.nodes.into_iter().map(node).collect())
    }

    fn __repr__(&self) -> String {
        format!("<flow of {}: {} accesses>", self.timeline.get().program.name, self.inner.len())
    }
}

fn within(timeline: &Timeline, buffer: u32, bytes: Range<u64>) -> Result<Range<u64>, Vec<Diagnostic>> {
    let size = timeline.program.buffers.get(buffer as usize).map(|buffer| buffer.bytes);
    match size {
        Some(size) if bytes.start < bytes.end && bytes.end <= size => Ok(bytes),
        _ => {
            let what = format!("bytes {} to {} of buffer {buffer}, which has {size:?}", bytes.start, bytes.end);
            Err(vec![Diagnostic::new("AHBM-V121", what)])
        }
    }
}

fn place(spot: &Spot) -> (i64, u32, u64) {
    match spot {
        Spot::Op { agent, op, element } => (agent.0.into(), *op, *element),
        Spot::Before { buffer, bytes } => (-1, buffer.0, bytes.start),
    }
}
