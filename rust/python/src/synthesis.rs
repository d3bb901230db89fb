//! Synthesized schedules.

use crate::formats::PyDocument;
use crate::given::{Given, given};
use crate::interrupt::interruptible;
use crate::logs::{self, Part};
use crate::machine::Machine;
use crate::operand;
use ahbm_findings::Diagnostic;
use ahbm_formats::{Format, mscclpp};
use ahbm_synthesis::{Bound, Collective, Graph, METHODS, Request, Synthesis, ends, synthesize};
use pyo3::prelude::*;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Instant;

/// A schedule for a machine, and the bound it is measured against. Immutable.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Schedule {
    machine: Machine,
    graph: Graph,
    bound: Bound,
    inner: Synthesis,
    request: Request,
    bound_ms: f64,
    synthesis_ms: f64,
}

#[pymethods]
impl Schedule {
    /// Bounds and synthesizes a collective; the interpreter lock is released meanwhile.
    ///
    /// `share_bytes` are those of the whole buffer for all_reduce, broadcast and reduce, of one NPU's part of it for
    /// the others; each share is cut into `chunks` of whole elements of `element_bytes`. `method` is `"auto"` or
    /// one of `methods()`. `members` are the NPUs that take part, by rank; without any, all do. Raises
    /// `UnsupportedError`, `BudgetError`, and ConfigError for an unknown collective.
    #[new]
    #[pyo3(
        signature = (
            machine, collective, *, share_bytes, chunks=Given::ok(NonZero::<u32>::MIN),
            element_bytes=Given::ok(NonZero::<u64>::MIN), root=Given::ok(0), method=Given::ok("auto"),
            seed=Given::ok(0), members=Given::ok(Vec::new()),
        ),
        text_signature = "(machine, collective, *, share_bytes, chunks=1, element_bytes=1, root=0, method='auto', \
                          seed=0, members=())"
    )]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn new(
        py: Python<'_>,
        machine: Given<pyo3::Bound<'_, Machine>>,
        collective: Given<&str>,
        share_bytes: Given<u64>,
        chunks: Given<NonZero<u32>>,
        element_bytes: Given<NonZero<u64>>,
        root: Given<u32>,
        method: Given<&str>,
        seed: Given<u64>,
        members: Given<Vec<u32>>,
    ) -> PyResult<Self> {
        given!(machine, collective, share_bytes, chunks, element_bytes, root, method, seed, members);
        let (machine, chunks, element_bytes) = (machine.get(), chunks.get(), element_bytes.get());
        logs::refresh(py, &[Part::Synthesis]);
        let work = || -> Result<Self, Diagnostic> {
            let Some(collective) = Collective::parse(collective) else {
                let names = Collective::ALL.map(|c| c.0);
                return Err(*operand::unknown("AHBM-C205", "collective", collective, &names));
            };
            let method = method.to_owned();
            let request = Request { collective, share_bytes, chunks, unit: element_bytes, members, root, method, seed };
            let graph = Graph::of(&machine.inner)?;
            if graph.nodes() > machine.inner.sfr().sips {
                let relays = graph.nodes() - machine.inner.sfr().sips;
                let text = format!("no method schedules a network with {relays} vertices that are no SIP");
                return Err(Diagnostic::new("AHBM-U406", text).hint("run a kernel or a plan on this machine"));
            }
            let begin = Instant::now();
            let bound = request.bound(&graph)?;
            let bounded = Instant::now();
            let inner = synthesize(&graph, &request, &bound)?;
            let milliseconds = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1e3;
            Ok(Self {
                machine: machine.clone(),
                graph,
                bound,
                inner,
                request,
                bound_ms: milliseconds(begin, bounded),
                synthesis_ms: milliseconds(bounded, Instant::now()),
            })
        };
        interruptible(py, || work().map_err(|finding| vec![finding]))
    }

    /// Names of the methods besides `"auto"`.
    #[staticmethod]
    fn methods() -> Vec<&'static str> {
        METHODS.iter().map(|method| method.name()).collect()
    }

    /// The same methods as rows: (name, the idea in one sentence, True for closed forms).
    #[staticmethod]
    fn method_table() -> Vec<(&'static str, &'static str, bool)> {
        METHODS.iter().map(|method| (method.name(), method.about(), method.is_closed_form())).collect()
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

    /// True when no cut is tighter and no way longer: see `Limit.tightest`.
    #[getter]
    fn bound_is_tightest(&self) -> bool {
        self.bound.tightest
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
        (cut.parts.lists(), cut.capacity as f64 * self.graph.unit_gbs(), cut.links, cut.demand)
    }

    /// PEs an NPU needs so that each thread block of the plan, one for every end of a link, has a DMA engine of its own:
    /// as many as these, or more; at a switch one and no more, so that its DMA engine keeps what leaves by the port in
    /// order.
    #[getter]
    fn ends(&self) -> u32 {
        ends(&self.graph)
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

    /// The schedule for the greatest size, up to its own, whose chunks are all equal: what a plan for many sizes is
    /// made of. Chunks of sizes of their own stay so. A `path` says by its suffix which format the plan is meant for;
    /// chunks of an execution plan are multiples of 16 B. Raises `UnsupportedError` (AHBM-U291 for a path of no format,
    /// AHBM-U293 for chunks of less).
    #[pyo3(signature = (path=Given::ok(None)), text_signature = "($self, path=None)")]
    fn even(&self, py: Python<'_>, path: Given<Option<PathBuf>>) -> PyResult<Self> {
        given!(path);
        let work = || -> Result<Self, Diagnostic> {
            let step = match path.as_deref().map(Format::of).transpose()? {
                Some(Format::Mscclpp) => mscclpp::ALIGNMENT,
                _ => 1,
            };
            let (inner, request, bound) = self.inner.even(&self.graph, &self.request, &self.bound, step)?;
            Ok(Self {
                graph: self.graph.clone(),
                bound,
                inner,
                request,
                machine: self.machine.clone(),
                bound_ms: self.bound_ms,
                synthesis_ms: self.synthesis_ms,
            })
        };
        interruptible(py, || work().map_err(|finding| vec![finding]))
    }

    /// The NPUs by rank of the plan: those that take part, then those that only relay.
    fn places(&self) -> Vec<u32> {
        self.inner.schedule.places(&self.graph)
    }

    /// The schedule as a plan, in place except for all_to_all. Raises `UnsupportedError` (AHBM-U293) for sizes that a
    /// plan has no numbers for.
    fn plan(&self, py: Python<'_>) -> PyResult<PyDocument> {
        let make = || self.inner.schedule.to_plan(&self.graph).map_err(|finding| vec![finding]);
        interruptible(py, make).map(PyDocument::made)
    }

    fn __repr__(&self) -> String {
        let schedule = &self.inner.schedule;
        let (name, method) = (schedule.collective.name(), schedule.method);
        format!("<schedule of {name} by {method}: {} transfers, {} ps>", schedule.transfers.len(), self.inner.time_ps)
    }
}
