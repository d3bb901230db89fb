//! Buffers, and slices of them.

use super::arguments::{BufferType, Int, buffer_type};
use super::faulty;
use ahbm_dsl::mscclpp::Chunk;
use ahbm_dsl::{Fault, Raised};
use ahbm_plan::Space;
use pyo3::prelude::*;
use pyo3::types::PySlice;
use std::sync::atomic::{AtomicU32, Ordering};

/// A slice that is none.
const SLICE: &str = "AHBM-A105";

/// Numbers the objects that an author holds.
static OBJECTS: AtomicU32 = AtomicU32::new(0);

/// Consecutive chunks of a rank's buffer. Immutable.
#[pyclass(frozen, module = "ahbm._core", name = "MscclppChunk", eq, hash)]
#[derive(Clone, Copy)]
pub struct PyChunk {
    pub(super) inner: Chunk,
}

impl PartialEq for PyChunk {
    fn eq(&self, other: &Self) -> bool {
        let key = |chunk: &Chunk| (chunk.rank, chunk.space, chunk.index, chunk.size);
        key(&self.inner) == key(&other.inner)
    }
}

impl std::hash::Hash for PyChunk {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let Chunk { rank, space, index, size, .. } = self.inner;
        (rank, space, index, size).hash(state);
    }
}

fn chunk(rank: u32, space: Space, index: u32, size: u32) -> PyChunk {
    let object = OBJECTS.fetch_add(1, Ordering::Relaxed);
    PyChunk { inner: Chunk { rank, space, index, size, object } }
}

fn number(py: Python<'_>, what: &str, Int(value): Int) -> PyResult<u32> {
    u32::try_from(value).map_err(|_| {
        faulty(py, Fault::new(Raised::Value, SLICE, format!("{what} is {value}: it must not be negative")))
    })
}

#[pymethods]
impl PyChunk {
    #[new]
    fn new(py: Python<'_>, rank: Int, buffer: BufferType, index: Int, size: Int) -> PyResult<Self> {
        let (index, size) = (number(py, "the index", index)?, number(py, "the size", size)?);
        if size == 0 || index.checked_add(size).is_none() {
            let message = format!("{size} chunks from {index} on");
            return Err(faulty(py, Fault::new(Raised::Value, SLICE, message)));
        }
        Ok(chunk(number(py, "the rank", rank)?, buffer.0, index, size))
    }

    #[getter]
    fn rank(&self) -> u32 {
        self.inner.rank
    }

    #[getter]
    fn buffer(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        buffer_type(py, self.inner.space)
    }

    #[getter]
    fn index(&self) -> u32 {
        self.inner.index
    }

    #[getter]
    fn size(&self) -> u32 {
        self.inner.size
    }

    fn __repr__(&self) -> String {
        let Chunk { rank, space, index, size, .. } = self.inner;
        format!("Chunk(rank={rank}, buffer={}, index={index}, size={size})", format!("{space:?}").to_lowercase())
    }
}

/// A rank's buffer, or a part of it: chunks from `offset` on, `size` in all with those before them.
///
/// A slice of it is a chunk. Raises `ProgramError` (AHBM-A105): a `TypeError` for an index or a bound that is no integer, a
/// `ValueError` for a step or no chunks, a `RuntimeError` outside of the buffer.
#[pyclass(frozen, subclass, module = "ahbm._core", name = "MscclppBuffer")]
pub struct Buffer {
    rank: u32,
    space: Space,
    offset: u32,
    size: u32,
}

impl Buffer {
    pub(super) const fn whole(rank: u32, space: Space, size: u32) -> Self {
        Self { rank, space, offset: 0, size }
    }
}

#[pymethods]
impl Buffer {
    #[new]
    fn new(py: Python<'_>, rank: Int, buffer_type: BufferType, offset: Int, size: Int) -> PyResult<Self> {
        let (offset, size) = (number(py, "the offset", offset)?, number(py, "the size", size)?);
        let end = offset.checked_add(size).ok_or_else(|| {
            faulty(py, Fault::new(Raised::Value, SLICE, format!("a buffer of {size} chunks from {offset} on")))
        })?;
        Ok(Self { rank: number(py, "the rank", rank)?, space: buffer_type.0, offset, size: end })
    }

    #[getter]
    fn rank(&self) -> u32 {
        self.rank
    }

    #[getter]
    fn buffer_type(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        buffer_type(py, self.space)
    }

    #[getter]
    fn offset(&self) -> u32 {
        self.offset
    }

    #[getter]
    fn size(&self) -> u32 {
        self.size
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<PyChunk> {
        let py = key.py();
        let refused = |raised, message: String| Err(faulty(py, Fault::new(raised, SLICE, message)));
        let Ok(slice) = key.cast::<PySlice>() else {
            return refused(
                Raised::Type,
                "a buffer is cut by slices, buffer[first:last + 1], not by an index".to_owned(),
            );
        };
        let bound = |name| -> PyResult<Option<i64>> {
            let value = slice.getattr(name)?;
            Ok(value.extract::<Option<Int>>()?.map(Int::small))
        };
        let names = (pyo3::intern!(py, "start"), pyo3::intern!(py, "stop"), pyo3::intern!(py, "step"));
        let length = i64::from(self.size - self.offset);
        let (start, stop, step) = (bound(names.0)?.unwrap_or(0), bound(names.1)?.unwrap_or(length), bound(names.2)?);
        if step.is_some_and(|step| step != 1) {
            return refused(Raised::Value, "a slice of a buffer has no step".to_owned());
        }
        if start == stop {
            return refused(Raised::Value, format!("no chunks: the slice from {start} to {stop} is empty"));
        }
        if start < 0 || stop < start || stop > length {
            let space = format!("{:?}", self.space).to_lowercase();
            let whose = format!("the {length} chunks of rank {}'s {space}", self.rank);
            let message = format!("Index range from {start} to {stop} is out of bounds for {whose}");
            return refused(if stop < start && stop >= 0 { Raised::Value } else { Raised::Runtime }, message);
        }
        Ok(chunk(self.rank, self.space, self.offset + start as u32, (stop - start) as u32))
    }

    fn __repr__(&self) -> String {
        let Self { rank, space, offset, size } = self;
        format!("<{} of rank {rank}, chunks {offset} to {size}>", format!("{space:?}").to_lowercase())
    }
}
