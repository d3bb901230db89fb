//! Synthesized schedules.

use crate::errors;
use crate::formats::Plan;
use crate::machine::Machine;
use crate::operand;
use crate::program::Program;
use ahbm_formats::plan::{Transfer, Transfers};
use ahbm_formats::{Format, Reduction, mscclpp};
use ahbm_machine::Diagnostic;
use ahbm_program::Dtype;
use ahbm_synthesis::{
    Bound, Collective, Elements, Graph, Link, Lowered, METHODS, Request, Synthesis, ends, engines, lower, synthesize,
};
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// A schedule for a machine, and the bound it is measured against. Immutable.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Schedule {
    machine: Arc<ahbm_machine::Machine>,
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
            machine, collective, *, share_bytes, chunks=1, element_bytes=1, root=0, method="auto", seed=0,
            members=Vec::new(),
        ),
        text_signature = "(machine, collective, *, share_bytes, chunks=1, element_bytes=1, root=0, method='auto', \
                          seed=0, members=())"
    )]
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
        members: Vec<u32>,
    ) -> PyResult<Self> {
        let work = || -> Result<Self, Diagnostic> {
            let Some(collective) = Collective::parse(collective) else {
                let names = Collective::ALL.map(|c| c.0);
                return Err(*operand::unknown("AHBM-C205", "collective", collective, &names));
            };
            let method = method.to_owned();
            let request = Request { collective, share_bytes, chunks, unit: element_bytes, members, root, method, seed };
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
                request,
                bound_ms: milliseconds(begin, bounded),
                synthesis_ms: milliseconds(bounded, Instant::now()),
            })
        };
        py.detach(|| errors::guard(|| work().map_err(|finding| vec![finding])))
            .map_err(|findings| errors::raise(py, &findings))
    }

    /// Names of the methods besides `"auto"`.
    #[staticmethod]
    fn methods() -> Vec<&'static str> {
        METHODS.to_vec()
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

    /// PEs an NPU needs so that, in the program, each of its links out has a DMA engine of its own.
    #[getter]
    fn engines(&self) -> u32 {
        engines(&self.graph)
    }

    /// PEs an NPU needs for the same in the plan, which has a thread block for every end of a link: as many as these,
    /// or more; at a switch one and no more, so that its DMA engine keeps what leaves by the port in order.
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

    /// The schedule as a program: (program, buffer of each NPU, buffer of each NPU's result). The result is in place
    /// except for all_to_all. `op` is sum, prod, min, max or avg. Raises `ConfigError`, `UnsupportedError` (AHBM-U203
    /// for another op), `LintError`.
    fn program(&self, py: Python<'_>, dtype: &str, op: &str) -> PyResult<(Program, Vec<u32>, Vec<u32>)> {
        let lowered =
            py.detach(|| errors::guard(|| self.lowered(dtype, op))).map_err(|findings| errors::raise(py, &findings))?;
        let [buffers, results] = [&lowered.buffers, &lowered.results].map(|list| list.iter().map(|b| b.0).collect());
        let machine = Machine { inner: Arc::clone(&self.machine) };
        Ok((Program::checked(py, lowered.program, &machine, 0)?, buffers, results))
    }

    /// The schedule for the greatest size, up to its own, whose chunks are all equal: what a plan for many sizes is
    /// made of. Chunks of sizes of their own stay so. A `path` says by its suffix which format the plan is meant for;
    /// chunks of an execution plan are multiples of 16 B. Raises `UnsupportedError` (AHBM-U291 for a path of no format,
    /// AHBM-U293 for chunks of less).
    #[pyo3(signature = (path=None))]
    fn even(&self, py: Python<'_>, path: Option<PathBuf>) -> PyResult<Self> {
        let work = || -> Result<Self, Diagnostic> {
            let step = match path.as_deref().map(Format::of).transpose()? {
                Some(Format::Mscclpp) => mscclpp::ALIGNMENT,
                _ => 1,
            };
            let mut schedule = self.inner.schedule.clone();
            let (least, most) = schedule.chunk_bytes.iter().fold((u64::MAX, 0), |(a, b), &c| (a.min(c), b.max(c)));
            let (mut bound, mut request) = (self.bound.clone(), self.request.clone());
            if least < step {
                let text = format!("chunks of {least} B are less than the {step} B of the format");
                return Err(Diagnostic::new("AHBM-U293", text).hint("choose a larger size, or fewer chunks"));
            }
            let alike = most - least <= request.unit;
            for bytes in &mut schedule.chunk_bytes {
                *bytes = if alike { least } else { *bytes } / step * step;
            }
            if schedule.chunk_bytes != self.inner.schedule.chunk_bytes {
                request.chunks = schedule.chunk_bytes.len() as u32;
                request.share_bytes = schedule.chunk_bytes.iter().sum();
                bound = request.bound(&self.graph)?;
            }
            Ok(Self {
                graph: self.graph.clone(),
                bound,
                inner: Synthesis::of(&self.graph, schedule),
                request,
                machine: Arc::clone(&self.machine),
                bound_ms: self.bound_ms,
                synthesis_ms: self.synthesis_ms,
            })
        };
        py.detach(|| errors::guard(|| work().map_err(|finding| vec![finding])))
            .map_err(|findings| errors::raise(py, &findings))
    }

    /// The NPUs by rank of the plan: those that take part, then those that only relay.
    fn places(&self) -> Vec<u32> {
        let members = &self.inner.schedule.members;
        let relays = (0..self.graph.nodes()).filter(|npu| !members.contains(npu));
        members.iter().copied().chain(relays).collect()
    }

    /// The schedule as a plan, in place except for all_to_all. Raises `UnsupportedError` (AHBM-U293) for sizes that a
    /// plan has no numbers for.
    fn plan(&self, py: Python<'_>) -> PyResult<Plan> {
        let made = py.detach(|| errors::guard(|| self.to_plan().map_err(|finding| vec![finding])));
        made.map(Plan::computed).map_err(|findings| errors::raise(py, &findings))
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
        let reduction = Reduction::parse(op).map_err(|finding| vec![finding])?;
        if self.inner.schedule.chunk_bytes.iter().any(|bytes| !bytes.is_multiple_of(dtype.bytes())) {
            let text = format!("chunks of the schedule are no whole numbers of {} elements", dtype.name());
            return Err(vec![Diagnostic::new("AHBM-U407", text).hint("pass element_bytes when synthesizing")]);
        }
        let elements = Elements { dtype, op: reduction.function(), average: reduction == Reduction::Avg };
        lower(&self.inner.schedule, &self.graph, &self.machine, elements)
    }

    /// Chunks of the plan are the greatest common measure of those of the schedule.
    fn to_plan(&self) -> Result<ahbm_formats::Plan, Diagnostic> {
        let schedule = &self.inner.schedule;
        let mut rank = vec![0; self.graph.nodes() as usize];
        (0..).zip(self.places()).for_each(|(number, npu)| rank[npu as usize] = number);
        let measure = schedule.chunk_bytes.iter().fold(0, |a, &b| gcd(a, b)).max(1);
        let Some(pieces) =
            schedule.chunk_bytes.iter().map(|c| u32::try_from(c / measure).ok()).collect::<Option<Vec<u32>>>()
        else {
            let text = format!("chunks of {measure} bytes are too many for a plan");
            return Err(Diagnostic::new("AHBM-U293", text).hint("choose a size that splits into equal chunks"));
        };
        let (channels, chunks) = (self.channels(), schedule.chunks());
        let parcels: Vec<u32> = schedule.parcels.iter().map(|p| p.chunk).collect();
        let arrivals = schedule.times(&self.graph, true).arrivals;
        let list: Vec<Transfer> = schedule
            .transfers
            .iter()
            .zip(&arrivals)
            .map(|(t, &at)| {
                let link = self.graph.link(t.link);
                let channel = channels[t.link as usize];
                let source = schedule.meaning(link.from, t.chunk());
                let target = schedule.meaning(link.to, t.chunk());
                // What passes is added where it gets to.
                let adds = t.adds() && target < chunks;
                let [from, to] = [link.from, link.to].map(|npu| rank[npu as usize]);
                Transfer { from, to, channel, source, target, adds, at }
            })
            .collect();
        let root = schedule.root;
        let collective = match schedule.collective {
            Collective::AllGather => ahbm_formats::Collective::AllGather,
            Collective::ReduceScatter => ahbm_formats::Collective::ReduceScatter,
            Collective::AllReduce => ahbm_formats::Collective::AllReduce,
            Collective::AllToAll => ahbm_formats::Collective::AllToAll,
            Collective::Broadcast => ahbm_formats::Collective::Broadcast { root },
            Collective::Reduce => ahbm_formats::Collective::Reduce { root },
            Collective::Gather => ahbm_formats::Collective::Gather { root },
            Collective::Scatter => ahbm_formats::Collective::Scatter { root },
        };
        ahbm_formats::Plan::from_transfers(&Transfers {
            name: format!("{} by {}", schedule.collective.name(), schedule.method),
            collective,
            ranks: schedule.members.len() as u32,
            relays: self.graph.nodes() - schedule.members.len() as u32,
            one_port: self.graph.switch().is_some(),
            pieces: &pieces,
            parcels: &parcels,
            list: &list,
        })
    }

    /// Per link, how many links before it join the same NPUs.
    fn channels(&self) -> Vec<u32> {
        let mut seen: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let number = |link: &Link| {
            let next = seen.entry((link.from, link.to)).or_default();
            *next += 1;
            *next - 1
        };
        self.graph.links().iter().map(number).collect()
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
