//! Statements of a switch that joins one buffer of several ranks.

use super::arguments::{BufferType, Function, Int, Older, buffer_type, workers, wrong};
use super::local::{Piece, ThreadBlockGroup};
use super::{Program, current, faulty};
use ahbm_dsl::Raised;
use ahbm_plan::Space;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A switch over one buffer of all its ranks. Raises `ProgramError` (AHBM-A101, AHBM-A102).
#[pyclass(frozen, subclass, module = "ahbm._core", name = "MscclppSwitchChannel")]
pub struct SwitchChannel {
    program: Py<Program>,
    space: Space,
    /// Its ranks, and its number at each.
    at: Vec<(u32, u32)>,
}

#[pymethods]
impl SwitchChannel {
    #[new]
    fn new(py: Python<'_>, rank_list: Vec<Int>, buffer_type: BufferType) -> PyResult<Self> {
        let program = current(py)?;
        let ranks: Vec<i64> = rank_list.into_iter().map(Int::small).collect();
        let at = program.get().record(py, |recorder, _| recorder.switch(&ranks, buffer_type.0))?;
        Ok(Self { program: program.unbind(), space: buffer_type.0, at })
    }

    #[getter]
    fn rank_list(&self) -> Vec<u32> {
        self.at.iter().map(|&(rank, _)| rank).collect()
    }

    #[getter]
    fn buffer_type(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        buffer_type(py, self.space)
    }

    /// The switch as one of its ranks uses it. Raises `ProgramError` (AHBM-A102).
    fn at_rank(&self, py: Python<'_>, rank: Int) -> PyResult<SwitchRank> {
        let found = self.at.iter().find(|(known, _)| i128::from(*known) == rank.0);
        let at = *found.ok_or_else(|| {
            let message = format!("rank {} is not in the group of the switch channel: {:?}", rank.0, self.rank_list());
            faulty(py, wrong(Raised::Runtime, message))
        })?;
        Ok(SwitchRank { program: self.program.clone_ref(py), at })
    }
}

/// A switch as one of its ranks uses it.
#[pyclass(frozen, module = "ahbm._core", name = "MscclppSwitchRank")]
pub struct SwitchRank {
    program: Py<Program>,
    at: (u32, u32),
}

#[pymethods]
impl SwitchRank {
    #[getter]
    fn rank(&self) -> u32 {
        self.at.0
    }

    /// Reduces the same chunks of all ranks into `dst_chunk`. Raises `ProgramError` (AHBM-A102, AHBM-A103).
    #[pyo3(
        signature = (buffer_offset, size, dst_chunk, tb=None, reduce_op=Function::SUM, tb_group=None, **older),
        text_signature = "($self, buffer_offset, size, dst_chunk, tb=None, reduce_op=..., tb_group=None, **older)"
    )]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn reduce(
        &self,
        py: Python<'_>,
        buffer_offset: Int,
        size: Int,
        dst_chunk: Piece,
        tb: Option<Int>,
        reduce_op: Function,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        older: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let program = self.program.get();
        let function = Older::of(program, "reduce", &["op"], older)?.function.unwrap_or(reduce_op);
        program.record(py, |recorder, place| {
            let extent = [buffer_offset.small(), size.small()];
            recorder.switch_reduce(self.at, extent, dst_chunk.0, function.0, workers(tb, tb_group), place)
        })
    }

    /// Stores `src_chunk` at the same chunks of all ranks. Raises as `reduce`.
    #[pyo3(signature = (src_chunk, buffer_offset, size, tb=None, tb_group=None, **older))]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn broadcast(
        &self,
        py: Python<'_>,
        src_chunk: Piece,
        buffer_offset: Int,
        size: Int,
        tb: Option<Int>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        older: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        self.stored(py, "broadcast", [buffer_offset, size], src_chunk, tb, tb_group, older)
    }

    /// Waits for packets in scratch and stores them at the same chunks of all ranks' scratch. Raises as `reduce`.
    #[pyo3(signature = (src_chunk, buffer_offset, size, tb=None, tb_group=None, **older))]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn broadcast_packets(
        &self,
        py: Python<'_>,
        src_chunk: Piece,
        buffer_offset: Int,
        size: Int,
        tb: Option<Int>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        older: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        self.stored(py, "broadcast_packets", [buffer_offset, size], src_chunk, tb, tb_group, older)
    }

    /// The older name of `reduce`.
    #[pyo3(signature = (buffer_offset, size, dst_chunk, tb=None, tb_group=None, **older))]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn group_load_reduce(
        &self,
        py: Python<'_>,
        buffer_offset: Int,
        size: Int,
        dst_chunk: Piece,
        tb: Option<Int>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        older: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        self.program.get().note(py, "group_load_reduce", "reduce")?;
        self.reduce(py, buffer_offset, size, dst_chunk, tb, Function::SUM, tb_group, older)
    }

    /// The older name of `broadcast`.
    #[pyo3(signature = (src_chunk, buffer_offset, size, tb=None, tb_group=None, **older))]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn group_store(
        &self,
        py: Python<'_>,
        src_chunk: Piece,
        buffer_offset: Int,
        size: Int,
        tb: Option<Int>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        older: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        self.program.get().note(py, "group_store", "broadcast")?;
        self.stored(py, "group_store", [buffer_offset, size], src_chunk, tb, tb_group, older)
    }
}

impl SwitchRank {
    #[allow(clippy::too_many_arguments)]
    fn stored(
        &self,
        py: Python<'_>,
        statement: &str,
        extent: [Int; 2],
        src: Piece,
        tb: Option<Int>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        older: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let program = self.program.get();
        Older::of(program, statement, &[], older)?;
        let packets = statement == "broadcast_packets";
        program.record(py, |recorder, place| {
            let extent = extent.map(Int::small);
            recorder.switch_broadcast(self.at, src.0, extent, packets, workers(tb, tb_group), place)
        })
    }
}
