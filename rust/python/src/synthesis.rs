//! Synthesized schedules.

use crate::errors;
use crate::machine::Machine;
use crate::operand;
use crate::program::Program;
use ahbm_machine::Diagnostic;
use ahbm_program::{BinaryFn, Dtype};
use ahbm_synthesis::{Bound, Collective, Elements, Graph, Lowered, Request, engines, lower, synthesize};
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Instant;

/// A schedule for a machine, and the bound it is measured against. Immutable.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Schedule {
    machine: Arc<ahbm_machine::Machine>,
    graph: Graph,
    bound: Bound,
    inner: ahbm_synthesis::Synthesis,
    bound_ms: f64,
    synthesis_ms: f64,
}

#[pymethods]
impl Schedule {
    /// Bounds and synthesizes a collective; the interpreter lock is released meanwhile.
    ///
    /// `share_bytes` are those of the whole buffer for all_reduce, broadcast and reduce, of one NPU's part of it for
    /// the others; each share is cut into `chunks` of whole elements of `element_bytes`. `method` is `"auto"`,
    /// `"greedy"`, `"trees"`, `"ring"` or `"routed"`. Raises `UnsupportedError`, `BudgetError`, and ConfigError for an
    /// unknown collective.
    #[new]
    #[pyo3(signature = (machine, collective, *, share_bytes, chunks=1, element_bytes=1, root=0, method="auto", seed=0))]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn new(
        py: Python<'_>,
        machine: &Machine,
        collective: &str,
        share_bytes: u64,
        chunks: u32,
        element_bytes: u64,
        root: u32,
        method: &str,
        seed: u64,
    ) -> PyResult<Self> {
        let work = || -> Result<Self, Diagnostic> {
            let Some(collective) = Collective::parse(collective) else {
                let names = Collective::ALL.map(|c| c.0);
                return Err(*operand::unknown("AHBM-C205", "collective", collective, &names));
            };
            let method = method.to_owned();
            let request = Request {
                collective,
                share_bytes,
                chunks,
                unit: element_bytes,
                members: Vec::new(),
                root,
                method,
                seed,
            };
            let graph = Graph::of(&machine.inner)?;
            let begin = Instant::now();
            let bound = request.bound(&graph)?;
            let bounded = Instant::now();
            let inner = synthesize(&graph, &request, &bound)?;
            let milliseconds = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1e3;
            Ok(Self {
                machine: Arc::clone(&machine.inner),
                graph,
                bound,
                inner,
                bound_ms: milliseconds(begin, bounded),
                synthesis_ms: milliseconds(bounded, Instant::now()),
            })
        };
        py.detach(|| errors::guard(|| work().map_err(|finding| vec![finding])))
            .map_err(|findings| errors::raise(py, &findings))
    }

    /// The method that found it.
    #[getter]
    fn method(&self) -> &str {
        self.inner.schedule.method
    }

    /// Sizes in bytes of the chunks of one share.
    #[getter]
    fn chunk_bytes(&self) -> Vec<u64> {
        self.inner.schedule.chunk_bytes.clone()
    }

    /// Completion time.
    #[getter]
    fn time_ps(&self) -> u64 {
        self.inner.time_ps
    }

    /// Rounds the schedule takes when every chunk takes one.
    #[getter]
    fn rounds(&self) -> u64 {
        self.inner.rounds
    }

    /// Time no schedule can beat.
    #[getter]
    fn bound_ps(&self) -> u64 {
        self.bound.ps
    }

    /// Rounds no schedule of as many chunks can beat; None where links differ.
    #[getter]
    fn rounds_bound(&self) -> Option<u64> {
        self.bound.rounds(self.inner.schedule.chunk_bytes.len() as u64)
    }

    /// The tight cut: its parts (one: a set of NPUs against the others), the bandwidth across it in GB/s, the number
    /// of links across it, and how many shares have to cross it.
    #[getter]
    fn cut(&self) -> (Vec<Vec<u32>>, f64, u32, u64) {
        let cut = &self.bound.cut;
        (cut.parts.clone(), cut.capacity as f64 * self.graph.unit_gbs(), cut.links, cut.demand)
    }

    /// PEs an NPU needs so that each of its links has a DMA engine of its own.
    #[getter]
    fn engines(&self) -> u32 {
        engines(&self.graph)
    }

    /// Host time spent on the bound.
    #[getter]
    fn bound_ms(&self) -> f64 {
        self.bound_ms
    }

    /// Host time spent on the schedule.
    #[getter]
    fn synthesis_ms(&self) -> f64 {
        self.synthesis_ms
    }

    /// Number of transfers.
    fn __len__(&self) -> usize {
        self.inner.schedule.transfers.len()
    }

    /// All transfers in order of sending: (from, to, chunk, True when the receiver adds, arrival in ps).
    fn transfers(&self) -> Vec<(u32, u32, u32, bool, u64)> {
        let arrivals = self.inner.schedule.times(&self.graph, true).arrivals;
        let row = |(t, &at): (&ahbm_synthesis::Transfer, &u64)| {
            let link = self.graph.link(t.link);
            (link.from, link.to, t.chunk(), t.adds(), at)
        };
        self.inner.schedule.transfers.iter().zip(&arrivals).map(row).collect()
    }

    /// The schedule as a program: (program, buffer of each NPU, buffer of each NPU's result). The result is in place
    /// except for all_to_all. `op` is sum, prod, min or max. Raises `ConfigError`, `LintError`.
    fn program(&self, py: Python<'_>, dtype: &str, op: &str) -> PyResult<(Program, Vec<u32>, Vec<u32>)> {
        let lowered =
            py.detach(|| errors::guard(|| self.lowered(dtype, op))).map_err(|findings| errors::raise(py, &findings))?;
        let [buffers, results] = [&lowered.buffers, &lowered.results].map(|list| list.iter().map(|b| b.0).collect());
        let machine = Machine { inner: Arc::clone(&self.machine) };
        Ok((Program::checked(py, lowered.program, &machine, 0)?, buffers, results))
    }

    fn __repr__(&self) -> String {
        let schedule = &self.inner.schedule;
        let (name, method) = (schedule.collective.name(), schedule.method);
        format!("<schedule of {name} by {method}: {} transfers, {} ps>", schedule.transfers.len(), self.inner.time_ps)
    }
}

impl Schedule {
    fn lowered(&self, dtype: &str, op: &str) -> Result<Lowered, Vec<Diagnostic>> {
        let dtype = Dtype::parse(dtype).ok_or_else(|| {
            let names = Dtype::ALL.map(Dtype::name);
            vec![*operand::unknown("AHBM-K207", "dtype", dtype, &names)]
        })?;
        let op = match op {
            "sum" => BinaryFn::Add,
            "prod" => BinaryFn::Mul,
            "min" => BinaryFn::Min,
            "max" => BinaryFn::Max,
            _ => return Err(vec![*operand::unknown("AHBM-C206", "operator", op, &["sum", "prod", "min", "max"])]),
        };
        if self.inner.schedule.chunk_bytes.iter().any(|bytes| !bytes.is_multiple_of(dtype.bytes())) {
            let text = format!("chunks of the schedule are no whole numbers of {} elements", dtype.name());
            return Err(vec![Diagnostic::new("AHBM-U407", text).hint("pass element_bytes when synthesizing")]);
        }
        lower(&self.inner.schedule, &self.graph, &self.machine, Elements { dtype, op })
    }
}
