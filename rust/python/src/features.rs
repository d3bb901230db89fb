//! Columns for selectors that learn.

use ahbm_views::features;
use pyo3::prelude::*;

/// What an algorithm computes and sends, over all of its ranks.
#[pyclass(frozen, get_all, module = "ahbm._core")]
pub struct AlgorithmFeatures {
    /// Hash of who does what with whom, whatever the size: 16 hex digits.
    algorithm_id: String,
    /// Ranks that take part.
    ranks: u32,
    /// Operations of the program.
    ops: u64,
    /// Messages from one PE to another.
    messages: u64,
    /// Messages and accesses to memory from one rank to another.
    chunk_count: u64,
    /// Bytes of them.
    sent_bytes: u64,
    /// Bytes of those of the rank that moves most.
    busiest_bytes: u64,
    /// Most chunks of one rank that are equally deep.
    branch_factor: u64,
    /// Chunks of the longest chain in which each waits for the one before.
    dependency_depth: u32,
    /// Arithmetic operations on elements.
    operations: u64,
    /// Nanoseconds that they take one after the other, and delays.
    compute_ns: f64,
    /// Operations per byte sent.
    arithmetic_intensity: f64,
    /// Nanoseconds of computing per byte sent.
    compute_to_comm_ratio: f64,
}

impl AlgorithmFeatures {
    pub(crate) fn of(found: &features::Algorithm) -> Self {
        Self {
            algorithm_id: format!("{:016x}", found.id),
            ranks: found.ranks,
            ops: found.ops,
            messages: found.messages,
            chunk_count: found.chunk_count,
            sent_bytes: found.sent_bytes,
            busiest_bytes: found.busiest_bytes,
            branch_factor: found.branch_factor,
            dependency_depth: found.dependency_depth,
            operations: found.operations,
            compute_ns: found.compute_ps as f64 / 1000.0,
            arithmetic_intensity: found.arithmetic_intensity(),
            compute_to_comm_ratio: found.compute_to_comm_ratio(),
        }
    }
}

/// A collective of a job, before it runs.
#[pyclass(frozen, get_all, module = "ahbm._core")]
pub struct CallFeatures {
    /// Binary logarithm of its bytes, rounded down.
    message_size_bin: u32,
    /// Some computation neither waits for it nor is waited for by it.
    pipelined: bool,
    /// Tensors are merged before it.
    fused: bool,
    /// Some node waits for a chunk of it, or delivers one.
    overlap_capable: bool,
    /// Computations that it waits for.
    producers: u32,
    /// Nodes that wait for it.
    branch_factor: u32,
    /// Calls and messages of the longest chain that ends in it.
    dependency_depth: u32,
}

/// A job's collectives, in the order of `Workload.calls`, and sums over the nodes of all ranks.
#[pyclass(frozen, get_all, module = "ahbm._core")]
pub struct JobFeatures {
    /// The collectives.
    calls: Vec<Py<CallFeatures>>,
    /// Computations of the accelerator.
    computations: u64,
    /// Arithmetic operations that they state.
    operations: u64,
    /// Nanoseconds that they take.
    compute_ns: f64,
    /// Bytes that collectives and sends state.
    comm_bytes: u64,
    /// Computations per byte communicated.
    model_intensity: f64,
    /// Operations per byte communicated.
    arithmetic_intensity: f64,
    /// Nanoseconds of computing per byte communicated.
    compute_to_comm_ratio: f64,
}

impl JobFeatures {
    pub(crate) fn of(py: Python<'_>, found: &features::Job) -> PyResult<Self> {
        let call = |call: &features::Call| {
            Py::new(
                py,
                CallFeatures {
                    message_size_bin: call.message_size_bin,
                    pipelined: call.pipelined,
                    fused: call.fused,
                    overlap_capable: call.overlap_capable,
                    producers: call.producers,
                    branch_factor: call.branch_factor,
                    dependency_depth: call.dependency_depth,
                },
            )
        };
        Ok(Self {
            calls: found.calls.iter().map(call).collect::<PyResult<_>>()?,
            computations: found.computations,
            operations: found.operations,
            compute_ns: found.compute_ps as f64 / 1000.0,
            comm_bytes: found.comm_bytes,
            model_intensity: found.model_intensity(),
            arithmetic_intensity: found.arithmetic_intensity(),
            compute_to_comm_ratio: found.compute_to_comm_ratio(),
        })
    }
}
