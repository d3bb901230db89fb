//! Statements between two ranks.

use super::arguments::{Function, Int, Older, Sync, workers};
use super::local::{Piece, ThreadBlockGroup, chunks};
use super::{Program, current};
use ahbm_dsl::mscclpp::{Channel, Transfer};
use ahbm_formats::mscclpp::schema::Kind;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A channel of a program.
struct End {
    program: Py<Program>,
    channel: Channel,
}

impl End {
    fn new(py: Python<'_>, kind: Kind, dst: Int, src: Int) -> PyResult<Self> {
        let program = current(py)?;
        let made = program.get().record(py, |recorder, _| recorder.channel(kind, dst.small(), src.small()))?;
        Ok(Self { program: program.unbind(), channel: made })
    }

    fn signal(&self, py: Python<'_>, tb: Int, sync: Sync, relaxed: bool, older: Option<Given<'_, '_>>) -> PyResult<()> {
        let sync = Older::of(self.program.get(), "signal", &["sync"], older)?.sync.unwrap_or(sync).0;
        let (channel, tb) = (self.channel, tb.small());
        self.program.get().record(py, |recorder, place| recorder.signal(channel, relaxed, tb, sync, place))
    }

    fn wait(&self, py: Python<'_>, tb: Int, sync: Sync, relaxed: bool, older: Option<Given<'_, '_>>) -> PyResult<()> {
        let sync = Older::of(self.program.get(), "wait", &["sync"], older)?.sync.unwrap_or(sync).0;
        let (channel, tb) = (self.channel, tb.small());
        self.program.get().record(py, |recorder, place| recorder.wait(channel, relaxed, tb, sync, place))
    }

    fn put(
        &self,
        py: Python<'_>,
        how: Transfer,
        [dst, src]: [Piece; 2],
        tb: Option<Int>,
        group: Option<&Bound<'_, ThreadBlockGroup>>,
    ) -> PyResult<()> {
        self.program
            .get()
            .record(py, |recorder, place| recorder.put(self.channel, how, [dst.0, src.0], workers(tb, group), place))
    }
}

/// Keywords that a statement does not know.
type Given<'a, 'py> = &'a Bound<'py, PyDict>;

/// A way to a peer's memory. Each one is new. Raises `ProgramError` (AHBM-A101, AHBM-A102).
#[pyclass(frozen, subclass, module = "ahbm._core", name = "MscclppMemoryChannel")]
pub struct MemoryChannel {
    end: End,
}

#[pymethods]
impl MemoryChannel {
    #[new]
    fn new(py: Python<'_>, dst_rank: Int, src_rank: Int) -> PyResult<Self> {
        Ok(Self { end: End::new(py, Kind::Memory, dst_rank, src_rank)? })
    }

    #[getter]
    fn channel_id(&self) -> u32 {
        self.end.channel.id
    }

    #[getter]
    fn src_rank(&self) -> u32 {
        self.end.channel.src
    }

    #[getter]
    fn dst_rank(&self) -> u32 {
        self.end.channel.dst
    }

    /// Signals the peer; relaxed signals order no memory. Raises `ProgramError` (AHBM-A102, AHBM-A103).
    #[pyo3(signature = (tb, data_sync=Sync::BOTH, relaxed=false, **older),
           text_signature = "($self, tb, data_sync=..., relaxed=False, **older)")]
    fn signal(
        &self,
        py: Python<'_>,
        tb: Int,
        data_sync: Sync,
        relaxed: bool,
        older: Option<Given<'_, '_>>,
    ) -> PyResult<()> {
        self.end.signal(py, tb, data_sync, relaxed, older)
    }

    /// Waits for a signal of the peer. Raises as `signal`.
    #[pyo3(signature = (tb, data_sync=Sync::BOTH, relaxed=false, **older),
           text_signature = "($self, tb, data_sync=..., relaxed=False, **older)")]
    fn wait(
        &self,
        py: Python<'_>,
        tb: Int,
        data_sync: Sync,
        relaxed: bool,
        older: Option<Given<'_, '_>>,
    ) -> PyResult<()> {
        self.end.wait(py, tb, data_sync, relaxed, older)
    }

    /// Writes chunks at the peer. Raises as `signal`.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None, **older))]
    fn put(
        &self,
        py: Python<'_>,
        dst_chunk: Piece,
        src_chunk: Piece,
        tb: Option<Int>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        older: Option<Given<'_, '_>>,
    ) -> PyResult<()> {
        Older::of(self.end.program.get(), "put", &[], older)?;
        self.end.put(py, Transfer::Put, [dst_chunk, src_chunk], tb, tb_group)
    }

    /// Reads chunks of the peer. Raises as `signal`.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None, **older))]
    fn get(
        &self,
        py: Python<'_>,
        dst_chunk: Piece,
        src_chunk: Piece,
        tb: Option<Int>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        older: Option<Given<'_, '_>>,
    ) -> PyResult<()> {
        let program = self.end.program.get();
        Older::of(program, "get", &[], older)?;
        program.record(py, |recorder, place| {
            recorder.get(self.end.channel, [dst_chunk.0, src_chunk.0], workers(tb, tb_group), place)
        })
    }

    /// Writes chunks at the peer as packets, in its scratch. Raises as `signal`.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None, **older))]
    fn put_packets(
        &self,
        py: Python<'_>,
        dst_chunk: Piece,
        src_chunk: Piece,
        tb: Option<Int>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        older: Option<Given<'_, '_>>,
    ) -> PyResult<()> {
        let older = Older::of(self.end.program.get(), "put_packets", &["from_packet"], older)?;
        let how = if older.from_packet { Transfer::ReadPutPackets } else { Transfer::PutPackets };
        self.end.put(py, how, [dst_chunk, src_chunk], tb, tb_group)
    }

    /// Waits for packets in scratch and writes them at the peer. Raises as `signal`.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None, **older))]
    fn read_put_packets(
        &self,
        py: Python<'_>,
        dst_chunk: Piece,
        src_chunk: Piece,
        tb: Option<Int>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        older: Option<Given<'_, '_>>,
    ) -> PyResult<()> {
        Older::of(self.end.program.get(), "read_put_packets", &[], older)?;
        self.end.put(py, Transfer::ReadPutPackets, [dst_chunk, src_chunk], tb, tb_group)
    }

    /// Reduces own chunks and chunks of the peer into `local_dst_chunk`, by default into `local_src_chunk`. Raises as
    /// `signal`.
    #[pyo3(
        signature = (local_src_chunk, remote_src_chunks, tb=None, tb_group=None, local_dst_chunk=None,
                     reduce_op=Function::SUM, **older),
        text_signature = "($self, local_src_chunk, remote_src_chunks, tb=None, tb_group=None, local_dst_chunk=None, \
                          reduce_op=..., **older)"
    )]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn reduce(
        &self,
        py: Python<'_>,
        local_src_chunk: Piece,
        remote_src_chunks: &Bound<'_, PyAny>,
        tb: Option<Int>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        local_dst_chunk: Option<Piece>,
        reduce_op: Function,
        older: Option<Given<'_, '_>>,
    ) -> PyResult<()> {
        let program = self.end.program.get();
        let function = Older::of(program, "reduce", &["op"], older)?.function.unwrap_or(reduce_op);
        let others = chunks(program, remote_src_chunks)?;
        let dst = local_dst_chunk.map_or(local_src_chunk.0, |dst| dst.0);
        program.record(py, |recorder, place| {
            let (own, workers) = ([dst, local_src_chunk.0], workers(tb, tb_group));
            recorder.read_reduce(self.end.channel, own, &others, function.0, workers, place)
        })
    }
}

/// A way to a peer through a proxy. Each one is new. Raises `ProgramError` (AHBM-A101, AHBM-A102).
#[pyclass(frozen, subclass, module = "ahbm._core", name = "MscclppPortChannel")]
pub struct PortChannel {
    end: End,
}

#[pymethods]
impl PortChannel {
    #[new]
    fn new(py: Python<'_>, dst_rank: Int, src_rank: Int) -> PyResult<Self> {
        Ok(Self { end: End::new(py, Kind::Port, dst_rank, src_rank)? })
    }

    #[getter]
    fn channel_id(&self) -> u32 {
        self.end.channel.id
    }

    #[getter]
    fn src_rank(&self) -> u32 {
        self.end.channel.src
    }

    #[getter]
    fn dst_rank(&self) -> u32 {
        self.end.channel.dst
    }

    /// Signals the peer. Raises `ProgramError` (AHBM-A102, AHBM-A103).
    #[pyo3(signature = (tb, data_sync=Sync::BOTH, **older),
           text_signature = "($self, tb, data_sync=..., **older)")]
    fn signal(&self, py: Python<'_>, tb: Int, data_sync: Sync, older: Option<Given<'_, '_>>) -> PyResult<()> {
        self.end.signal(py, tb, data_sync, false, older)
    }

    /// Waits for a signal of the peer. Raises as `signal`.
    #[pyo3(signature = (tb, data_sync=Sync::BOTH, **older),
           text_signature = "($self, tb, data_sync=..., **older)")]
    fn wait(&self, py: Python<'_>, tb: Int, data_sync: Sync, older: Option<Given<'_, '_>>) -> PyResult<()> {
        self.end.wait(py, tb, data_sync, false, older)
    }

    /// Waits until everything has been sent. Raises as `signal`.
    #[pyo3(signature = (tb, data_sync=Sync::BOTH, **older),
           text_signature = "($self, tb, data_sync=..., **older)")]
    fn flush(&self, py: Python<'_>, tb: Int, data_sync: Sync, older: Option<Given<'_, '_>>) -> PyResult<()> {
        let program = self.end.program.get();
        let sync = Older::of(program, "flush", &["sync"], older)?.sync.unwrap_or(data_sync).0;
        program.record(py, |recorder, place| recorder.flush(self.end.channel, tb.small(), sync, place))
    }

    /// Writes chunks at the peer. Raises as `signal`.
    #[pyo3(signature = (dst_chunk, src_chunk, tb, **older))]
    fn put(
        &self,
        py: Python<'_>,
        dst_chunk: Piece,
        src_chunk: Piece,
        tb: Int,
        older: Option<Given<'_, '_>>,
    ) -> PyResult<()> {
        Older::of(self.end.program.get(), "put", &[], older)?;
        self.end.put(py, Transfer::Put, [dst_chunk, src_chunk], Some(tb), None)
    }

    /// Writes chunks at the peer, then signals it. Raises as `signal`.
    #[pyo3(signature = (dst_chunk, src_chunk, tb, **older))]
    fn put_with_signal(
        &self,
        py: Python<'_>,
        dst_chunk: Piece,
        src_chunk: Piece,
        tb: Int,
        older: Option<Given<'_, '_>>,
    ) -> PyResult<()> {
        Older::of(self.end.program.get(), "put_with_signal", &[], older)?;
        self.end.put(py, Transfer::PutSignal, [dst_chunk, src_chunk], Some(tb), None)
    }

    /// Writes chunks at the peer, signals it, and waits until both have been sent. Raises as `signal`.
    #[pyo3(signature = (dst_chunk, src_chunk, tb, **older))]
    fn put_with_signal_and_flush(
        &self,
        py: Python<'_>,
        dst_chunk: Piece,
        src_chunk: Piece,
        tb: Int,
        older: Option<Given<'_, '_>>,
    ) -> PyResult<()> {
        Older::of(self.end.program.get(), "put_with_signal_and_flush", &[], older)?;
        self.end.put(py, Transfer::PutSignalFlush, [dst_chunk, src_chunk], Some(tb), None)
    }

    /// Sends chunks that are packets already to the peer's scratch. Raises as `signal`.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None, **older))]
    fn put_packets(
        &self,
        py: Python<'_>,
        dst_chunk: Piece,
        src_chunk: Piece,
        tb: Option<Int>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        older: Option<Given<'_, '_>>,
    ) -> PyResult<()> {
        let older = Older::of(self.end.program.get(), "put_packets", &["from_packet"], older)?;
        let how = if older.from_packet { Transfer::ReadPutPackets } else { Transfer::PutPackets };
        self.end.put(py, how, [dst_chunk, src_chunk], tb, tb_group)
    }

    /// Waits for packets in scratch and sends them to the peer's. Raises as `signal`.
    #[pyo3(signature = (dst_chunk, src_chunk, tb=None, tb_group=None, **older))]
    fn read_put_packets(
        &self,
        py: Python<'_>,
        dst_chunk: Piece,
        src_chunk: Piece,
        tb: Option<Int>,
        tb_group: Option<&Bound<'_, ThreadBlockGroup>>,
        older: Option<Given<'_, '_>>,
    ) -> PyResult<()> {
        Older::of(self.end.program.get(), "read_put_packets", &[], older)?;
        self.end.put(py, Transfer::ReadPutPackets, [dst_chunk, src_chunk], tb, tb_group)
    }
}
