//! Statements of one rank: copies, reductions, barriers and semaphores.

use super::arguments::{Function, Int, Older, Sync, unusable, workers, wrong};
use super::chunks::{Buffer, PyChunk};
use super::{Program, current, faulty};
use ahbm_dsl::Raised;
use ahbm_dsl::mscclpp::Chunk;
use ahbm_plan::Space;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Thread blocks that share the bytes of a statement.
///
/// Raises `ProgramError` (AHBM-A103, a `ValueError`) for none, for one twice, or for numbers that no thread block has.
#[pyclass(frozen, subclass, module = "ahbm._core", name = "MscclppThreadBlockGroup")]
pub struct ThreadBlockGroup {
    pub(super) blocks: Vec<u32>,
}

#[pymethods]
impl ThreadBlockGroup {
    #[new]
    fn new(py: Python<'_>, tb_list: Vec<Int>) -> PyResult<Self> {
        let number = |&Int(tb): &Int| u32::try_from(tb).ok().filter(|&tb| tb < 1 << 16);
        let blocks = tb_list.iter().map(number).collect::<Option<Vec<u32>>>().unwrap_or_default();
        let twice = (1..blocks.len()).any(|at| blocks[..at].contains(&blocks[at]));
        if twice || blocks.len() != tb_list.len() {
            let message = "the thread blocks of a group are different numbers from 0 to 65535";
            return Err(faulty(py, wrong(Raised::Value, message)));
        }
        Ok(Self { blocks })
    }

    #[getter]
    fn tb_list(&self) -> Vec<u32> {
        self.blocks.clone()
    }

    /// How many there are.
    fn numtb(&self) -> usize {
        self.blocks.len()
    }

    /// The position of a thread block in the group.
    fn get_internal_id(&self, py: Python<'_>, tb: Int) -> PyResult<usize> {
        self.blocks
            .iter()
            .position(|&known| i128::from(known) == tb.0)
            .ok_or_else(|| faulty(py, wrong(Raised::Value, format!("thread block {} is not in the group", tb.0))))
    }
}

/// One chunk, or several; the older language takes a chunk alone.
pub(super) fn chunks(program: &Program, given: &Bound<'_, PyAny>) -> PyResult<Vec<Chunk>> {
    if let Ok(one) = given.cast::<PyChunk>() {
        program.note(given.py(), "a chunk for a list of chunks", "[chunk]")?;
        return Ok(vec![one.get().inner]);
    }
    let items = given.try_iter().map_err(|_| unusable(given, "a list of chunks"))?;
    items
        .map(|item| {
            let item = item?;
            let found = item.cast::<PyChunk>().map(|chunk| chunk.get().inner);
            found.map_err(|_| unusable(&item, "a chunk"))
        })
        .collect()
}

/// A chunk among the arguments.
pub(super) struct Piece(pub(super) Chunk);

impl<'a, 'py> FromPyObject<'a, 'py> for Piece {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let found = value.cast::<PyChunk>().map(|chunk| Self(chunk.get().inner));
        found.map_err(|_| unusable(&value, "a chunk, which is a slice of a buffer,"))
    }
}

/// A rank of the program, and what it does alone. Raises `ProgramError` (AHBM-A101, AHBM-A102).
#[pyclass(frozen, subclass, module = "ahbm._core", name = "MscclppRank")]
pub struct Rank {
    program: Py<Program>,
    rank: u32,
}

#[pymethods]
impl Rank {
    #[new]
    fn new(py: Python<'_>, rank: Int) -> PyResult<Self> {
        let program = current(py)?;
        let known = program.get().lock().recorder.rank(rank.small());
        let rank = known.map_err(|fault| faulty(py, fault))?;
        Ok(Self { program: program.unbind(), rank })
    }

    #[getter]
    fn rank(&self) -> u32 {
        self.rank
    }

    /// Its operand.
    fn get_input_buffer(&self) -> Buffer {
        self.buffer(Space::Input)
    }

    /// Its result.
    fn get_output_buffer(&self) -> Buffer {
        self.buffer(Space::Output)
    }

    /// Copies chunks. Raises `ProgramError` (AHBM-A102, AHBM-A103).
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None, **older))]
    fn copy(
        &self,
        py: Python<'_>,
        dst_chunk: Piece,
        src_chunk: Piece,
        tb: Option<Int>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        older: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let older = Older::of(self.program.get(), "copy", &["from_packet", "to_packet"], older)?;
        let pack = match (older.from_packet, older.to_packet) {
            (false, false) => None,
            (from, to) if from != to => Some(to),
            _ => {
                let message = "copy(from_packet=True, to_packet=True): a copy of packets as packets is no operation";
                return Err(faulty(py, wrong(Raised::Runtime, message)));
            }
        };
        self.copied(py, pack, [dst_chunk, src_chunk], tb, tb_group)
    }

    /// Copies chunks into packets in scratch. Raises as `copy`.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None, **older))]
    fn copy_packets(
        &self,
        py: Python<'_>,
        dst_chunk: Piece,
        src_chunk: Piece,
        tb: Option<Int>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        older: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        Older::of(self.program.get(), "copy_packets", &[], older)?;
        self.copied(py, Some(true), [dst_chunk, src_chunk], tb, tb_group)
    }

    /// Waits for packets in scratch and copies what they carry. Raises as `copy`.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None, **older))]
    fn unpack_packets(
        &self,
        py: Python<'_>,
        dst_chunk: Piece,
        src_chunk: Piece,
        tb: Option<Int>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        older: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        Older::of(self.program.get(), "unpack_packets", &[], older)?;
        self.copied(py, Some(false), [dst_chunk, src_chunk], tb, tb_group)
    }

    /// Reduces `src_chunk` and `other_chunks` into `dst_chunk`, by default into `src_chunk`; `packet` says that the others
    /// are packets, which are awaited. Raises as `copy`.
    #[pyo3(
        signature = (src_chunk, other_chunks, tb=None, tb_group=None, dst_chunk=None, reduce_op=Function::SUM,
                     packet=false, **older),
        text_signature = "($self, src_chunk, other_chunks, tb=None, tb_group=None, dst_chunk=None, reduce_op=..., \
                          packet=False, **older)"
    )]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn reduce(
        &self,
        py: Python<'_>,
        src_chunk: Piece,
        other_chunks: &Bound<'_, PyAny>,
        tb: Option<Int>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        dst_chunk: Option<Piece>,
        reduce_op: Function,
        packet: bool,
        older: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let program = self.program.get();
        let function = Older::of(program, "reduce", &["op"], older)?.function.unwrap_or(reduce_op);
        let others = chunks(program, other_chunks)?;
        let dst = dst_chunk.map_or(src_chunk.0, |dst| dst.0);
        program.record(py, |recorder, place| {
            let workers = workers(tb, tb_group);
            recorder.reduce(self.rank, [dst, src_chunk.0], &others, packet, function.0, workers, place)
        })
    }

    /// The thread blocks of a list meet. Raises as `copy`.
    fn barrier(&self, py: Python<'_>, tb_list: Vec<Int>) -> PyResult<()> {
        let blocks: Vec<i64> = tb_list.into_iter().map(Int::small).collect();
        self.program.get().record(py, |recorder, place| recorder.barrier(self.rank, &blocks, place))
    }
}

impl Rank {
    fn buffer(&self, space: Space) -> Buffer {
        Buffer::whole(self.rank, space, self.program.get().lock().recorder.chunks(self.rank, space))
    }

    fn copied(
        &self,
        py: Python<'_>,
        pack: Option<bool>,
        [dst, src]: [Piece; 2],
        tb: Option<Int>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
    ) -> PyResult<()> {
        self.program
            .get()
            .record(py, |recorder, place| recorder.copy(self.rank, pack, [dst.0, src.0], workers(tb, tb_group), place))
    }
}

/// A counter with which thread blocks of a rank wait for each other. Raises `ProgramError` (AHBM-A101, AHBM-A102).
#[pyclass(frozen, subclass, module = "ahbm._core", name = "MscclppSemaphore")]
pub struct Semaphore {
    program: Py<Program>,
    at: (u32, u32),
    value: i64,
}

#[pymethods]
impl Semaphore {
    #[new]
    fn new(py: Python<'_>, rank: Int, initial_value: Int) -> PyResult<Self> {
        let program = current(py)?;
        let value = initial_value.small();
        let at = program.get().record(py, |recorder, _| recorder.semaphore(rank.small(), value))?;
        Ok(Self { program: program.unbind(), at, value })
    }

    #[getter]
    fn rank(&self) -> u32 {
        self.at.0
    }

    #[getter]
    fn id(&self) -> u32 {
        self.at.1
    }

    #[getter]
    fn initial_value(&self) -> i64 {
        self.value
    }

    /// A thread block takes one, and waits for it. Raises `ProgramError` (AHBM-A102, AHBM-A103).
    #[pyo3(signature = (tb, data_sync=Sync::BOTH, **older),
           text_signature = "($self, tb, data_sync=..., **older)")]
    fn acquire(&self, py: Python<'_>, tb: Int, data_sync: Sync, older: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        self.used(py, true, tb, data_sync, older)
    }

    /// A thread block gives one. Raises as `acquire`.
    #[pyo3(signature = (tb, data_sync=Sync::BOTH, **older),
           text_signature = "($self, tb, data_sync=..., **older)")]
    fn release(&self, py: Python<'_>, tb: Int, data_sync: Sync, older: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        self.used(py, false, tb, data_sync, older)
    }
}

impl Semaphore {
    fn used(&self, py: Python<'_>, take: bool, tb: Int, sync: Sync, older: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let program = self.program.get();
        let statement = if take { "acquire" } else { "release" };
        let sync = Older::of(program, statement, &["sync"], older)?.sync.unwrap_or(sync);
        program.record(py, |recorder, place| recorder.semaphored(self.at, take, tb.small(), sync.0, place))
    }
}
