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
    /// Messages that a queue must hold for the program to end; 0 without queues.
    queue_depth: u32,
    /// Bytes from one part of the tightest cut to another.
    cut_bytes: u64,
    /// Nanoseconds of the longest chain of operations and messages, each on links of its own.
    path_ns: f64,
    /// Nanoseconds that the busiest link or DMA channel is busy.
    link_ns: f64,
    /// Nanoseconds of chunks that go depth by depth: of each depth the slowest chunk and its busiest link or
    /// DMA channel.
    rounds_ns: f64,
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
            queue_depth: found.queue_depth,
            cut_bytes: found.cut_bytes,
            path_ns: found.path_ps as f64 / 1000.0,
            link_ns: found.link_ps as f64 / 1000.0,
            rounds_ns: found.rounds_ps as f64 / 1000.0,
        }
    }
}

/// The network between the SIPs of a machine, in numbers that tell one network from another.
#[pyclass(frozen, get_all, module = "ahbm._core")]
pub struct MachineFeatures {
    /// SIPs.
    ranks: u32,
    /// Cubes of a SIP.
    cubes: u32,
    /// PEs of a cube.
    pes: u32,
    /// Directed links between SIPs.
    links: u32,
    /// Fewest links that leave a SIP.
    least_degree: u32,
    /// Most links that leave a SIP.
    most_degree: u32,
    /// Links of the longest shortest way.
    diameter: u32,
    /// Fewest links that leave a half of the SIPs.
    bisection_links: u32,
    /// GB/s of these links.
    bisection_gbs: f64,
    /// Extents that are more than 1.
    dimensions: Vec<u32>,
    /// Nanoseconds of the links: least, median, most.
    latency_ns: [f64; 3],
    /// GB/s of the links: least, median, most.
    bandwidth_gbs: [f64; 3],
}

impl MachineFeatures {
    pub(crate) fn of(found: &features::Fingerprint) -> Self {
        Self {
            ranks: found.ranks,
            cubes: found.cubes,
            pes: found.pes,
            links: found.links,
            least_degree: found.degree[0],
            most_degree: found.degree[1],
            diameter: found.diameter,
            bisection_links: found.bisection_links,
            bisection_gbs: found.bisection_gbs,
            dimensions: found.dimensions.clone(),
            latency_ns: found.latency_ps.map(|ps| ps as f64 / 1000.0),
            bandwidth_gbs: found.bandwidth_gbs,
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
