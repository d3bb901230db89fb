//! Set-ups of ASTRA-sim, and its numbers.

use crate::errors;
use crate::formats::budget;
use crate::interrupt::interruptible;
use ahbm_astra::config::Shape;
use ahbm_astra::{Backend, Files, Flags, Options, Setup};
use ahbm_formats::chakra::ReadOptions;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::path::PathBuf;

/// Collective, bytes, ranks of its group, nodes, their time in ns, the longest of them.
type CallKind = (&'static str, u64, u32, u64, u64, u64);

/// A set-up of ASTRA-sim that has been read: network, system, remote memory, process groups, workload. Immutable.
#[pyclass(frozen, name = "AstraSetup", module = "ahbm._core")]
pub struct AstraSetup {
    inner: Setup,
}

/// A run of ASTRA-sim's analytical networks. Times are in ns.
#[pyclass(frozen, get_all, module = "ahbm._core")]
pub struct AstraRun {
    /// Per rank, when it ended; None where it never does.
    cycles: Vec<Option<u64>>,
    /// Per rank, the total without the computation on the GPU; None where it never ends.
    exposed: Vec<Option<u64>>,
    /// Per rank, the time in which a communication node ran.
    comm_ns: Vec<u64>,
    /// Per rank, the time in which a computation ran on the GPU.
    gpu_ns: Vec<u64>,
    /// Per rank and node its id, start and end; None unless asked for.
    times: Option<Vec<Vec<(u64, u64, u64)>>>,
    /// Collectives by kind: name, bytes, ranks of the group, nodes that ended, their time, the longest of them.
    calls: Vec<CallKind>,
    /// Per dimension, messages and bytes.
    traffic: Vec<(u64, u64)>,
    /// Links that carried something: dimension, from, to, bytes; "switch" is an end. Empty for `congestion_unaware`.
    links: Vec<(usize, String, String, u64)>,
    /// Events that the run took.
    events: u64,
    /// Findings about ranks that never end, messages that nobody received and algorithm graphs too small for their
    /// collectives, as dicts of `Finding.from_json`.
    findings: Py<PyList>,
}

#[pymethods]
impl AstraSetup {
    /// Reads a set-up: PREFIX of `PREFIX.<rank>.et`, system JSON, network YAML, remote memory JSON, groups JSON.
    ///
    /// `limits` are pairs of a name of `plan_limits()` and a number. The interpreter lock is released meanwhile.
    /// Raises ConfigError (AHBM-C190) for keys that are missing or have an unusable value, FormatError,
    /// TopologyError, BudgetError, UnsupportedError (AHBM-U234, U235).
    #[new]
    #[pyo3(signature = (workload, system, network, memory, groups=None, *, limits=Vec::new()),
           text_signature = "(workload, system, network, memory, groups=None, *, limits=())")]
    fn new(
        py: Python<'_>,
        workload: PathBuf,
        system: PathBuf,
        network: PathBuf,
        memory: PathBuf,
        groups: Option<PathBuf>,
        limits: Vec<(String, u64)>,
    ) -> PyResult<Self> {
        let budget = budget(&limits).map_err(|finding| errors::raise_one(py, finding))?;
        let options = ReadOptions { budget, ..ReadOptions::default() };
        let files = Files { workload, system, network, memory, groups };
        interruptible(py, || Setup::read(&files, &options)).map(|inner| Self { inner })
    }

    /// Number of ranks.
    #[getter]
    fn ranks(&self) -> u32 {
        self.inner.world()
    }

    /// Number of nodes over all ranks.
    #[getter]
    fn nodes(&self) -> u64 {
        self.inner.job.nodes()
    }

    /// Per dimension of the network its shape, NPUs, bandwidth in GB/s of 2^30 bytes, and latency in ns.
    #[getter]
    fn dimensions(&self) -> Vec<(&'static str, u32, f64, f64)> {
        let name = |shape| match shape {
            Shape::Ring => "Ring",
            Shape::Switch => "Switch",
            Shape::FullyConnected => "FullyConnected",
        };
        self.inner.network.iter().map(|d| (name(d.shape), d.npus, d.bandwidth, d.latency)).collect()
    }

    /// Keys that change no number, as dicts of `Finding.from_json`.
    #[getter]
    fn warnings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        errors::to_list(py, &self.inner.warnings)
    }

    /// Raises the first thing that is wrong before a run, with all others in its `findings`: FormatError for a job that
    /// is no job, DeadlockError (AHBM-D102, D103) for what never ends, UnsupportedError (AHBM-U235) for what stops
    /// ASTRA-sim, ConfigError (AHBM-C190).
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let findings = interruptible(py, || Ok(self.inner.findings()))?;
        if findings.is_empty() { Ok(()) } else { Err(errors::raise(py, &findings)) }
    }

    /// Runs. `aware` queues messages at links; `queues` per dimension; `injection_scale` times the endpoint delay;
    /// `rendezvous` asks for each message; `times` keeps those of every node.
    ///
    /// The interpreter lock is released meanwhile. Raises BudgetError (AHBM-B120, B213), UnsupportedError (AHBM-U235).
    #[pyo3(signature = (*, aware=false, queues=1, injection_scale=1.0, rendezvous=false, times=false, max_events=None))]
    #[allow(clippy::too_many_arguments)]
    fn run(
        &self,
        py: Python<'_>,
        aware: bool,
        queues: u32,
        injection_scale: f64,
        rendezvous: bool,
        times: bool,
        max_events: Option<u64>,
    ) -> PyResult<AstraRun> {
        let backend = if aware { Backend::CongestionAware } else { Backend::CongestionUnaware };
        let flags = Flags { backend, queues: queues.max(1), injection_scale, rendezvous };
        let mut options = Options { times, ..Options::default() };
        options.max_events = max_events.unwrap_or(options.max_events);
        let run = interruptible(py, || self.inner.run(flags, &options).map_err(|finding| vec![finding]))?;
        let of_nodes = |(rank, times): (u32, Vec<(u64, u64)>)| {
            let ids = self.inner.job.graph(rank).nodes().iter().map(|node| node.id);
            ids.zip(times).map(|(id, (start, end))| (id, start, end)).collect()
        };
        Ok(AstraRun {
            cycles: run.ranks.iter().map(|rank| rank.cycles).collect(),
            exposed: run.ranks.iter().map(|rank| rank.exposed).collect(),
            comm_ns: run.ranks.iter().map(|rank| rank.comm_ns).collect(),
            gpu_ns: run.ranks.iter().map(|rank| rank.gpu_ns).collect(),
            times: run.times.map(|times| (0..).zip(times).map(of_nodes).collect()),
            calls: run
                .calls
                .iter()
                .map(|kind| {
                    (kind.collective.name(), kind.bytes, kind.ranks, kind.nodes, kind.total_ns, kind.longest_ns)
                })
                .collect(),
            traffic: run.traffic.iter().map(|traffic| (traffic.messages, traffic.bytes)).collect(),
            links: run.links.into_iter().map(|link| (link.dimension, link.from, link.to, link.bytes)).collect(),
            events: run.events,
            findings: errors::to_list(py, &run.findings)?.unbind(),
        })
    }
}
