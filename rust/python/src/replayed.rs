//! A replayed job: its times, and what they are shown as.

use crate::interrupt::interruptible;
use crate::logs::{self, Part};
use crate::machine::Machine;
use crate::program::{PIECES, Program};
use crate::timeline::{AllTracks, as_columns};
use ahbm_emulator::training::{self, Launch, Replay, Terms, Why};
use ahbm_emulator::{Options, Span, simulate};
use ahbm_findings::Diagnostic;
use ahbm_program::marks::Region;
use ahbm_views::timeline_file::Format;
use ahbm_views::tracks::Tracks;
use ahbm_wire::store::{Output, store};
use ahbm_workload::{LARGE, Linked, Work};
use numpy::{Element, PyArray1};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Rank, start, end, what, call, name and origin.
type Stretch = (u32, u64, u64, &'static str, Option<u32>, String, String);

/// The call, the exposed time, and the part of it in which another rank had not arrived yet.
type Exposed = (Option<u32>, u64, u64);

type Column<'py, T> = Bound<'py, PyArray1<T>>;

/// A program of a launch, and the launch that it was made for.
pub(crate) type Prepared = (Option<Arc<ahbm_program::Program>>, u32);

pub(crate) fn launches(programs: &[Prepared]) -> Vec<Launch<'_>> {
    programs.iter().map(|(program, made_for)| Launch { program: program.as_deref(), made_for: *made_for }).collect()
}

/// Whether a job has computations that state no duration: what they take depends on the machine.
pub(crate) fn by_roofline(workload: &ahbm_workload::Workload) -> bool {
    let asks = |node: &ahbm_workload::Node| match node.work {
        Work::Compute(kernel) => node.ps == 0 && !kernel.is_empty(),
        Work::Memory { bytes, .. } => node.ps == 0 && bytes > 0,
        _ => false,
    };
    workload.graphs.iter().any(|graph| graph.nodes().iter().any(asks))
}

/// A job that was replayed. Times are picoseconds from its start.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Replayed {
    pub(crate) job: Arc<Linked>,
    pub(crate) machine: Machine,
    pub(crate) programs: Vec<Prepared>,
    pub(crate) regions: Vec<Vec<Region>>,
    pub(crate) terms: Terms,
    pub(crate) found: training::Replayed,
}

#[pymethods]
impl Replayed {
    /// Per rank, the end of its last node.
    #[getter]
    fn ends_ps(&self) -> Vec<u64> {
        self.found.answers.ends.clone()
    }

    /// Per rank, the time in which its device computed; computations side by side count once.
    #[getter]
    fn computed_ps(&self) -> Vec<u64> {
        self.found.answers.computed.clone()
    }

    /// Per rank, the time in which its device did not compute, and what it does next waited for its host.
    #[getter]
    fn hosted_ps(&self) -> Vec<u64> {
        self.found.answers.hosted.clone()
    }

    /// Per rank that is a copy of none, what its exposed time is made of: the call, None for other nodes, the exposed time, and the part of it
    /// in which another rank had not arrived yet. The exposed times sum to the rank's end less its computing and less
    /// what waited for its host.
    #[getter]
    fn exposures(&self) -> Vec<(u32, Vec<Exposed>)> {
        let of = |e: &ahbm_emulator::training::Exposure| (e.launch, e.exposed, e.waiting);
        let ranks = (0..).zip(&self.found.answers.exposures).filter(|(rank, _)| self.job.leads(*rank));
        ranks.map(|(rank, parts)| (rank, parts.iter().map(of).collect())).collect()
    }

    /// Per rank, the part of its exposed time in which another rank had not arrived yet.
    #[getter]
    fn waiting_ps(&self) -> Vec<u64> {
        self.found.answers.exposures.iter().map(|rank| rank.iter().map(|e| e.waiting).sum()).collect()
    }

    /// Per call that a rank exposes, None for other nodes: the exposed time of all ranks, and the part of it in which
    /// another rank had not arrived yet. In the order of calls, the other nodes first.
    #[getter]
    fn exposed_ps(&self) -> Vec<(Option<u32>, u64, u64)> {
        let mut sums: BTreeMap<Option<u32>, (u64, u64)> = BTreeMap::new();
        let times = u64::from(self.job.copies.map_or(1, ahbm_workload::Copies::count));
        let ranks = (0..).zip(&self.found.answers.exposures).filter(|(rank, _)| self.job.leads(*rank));
        for exposure in ranks.flat_map(|(_, rank)| rank.iter()) {
            let (exposed, waiting) = sums.entry(exposure.launch).or_default();
            *exposed += times * exposure.exposed;
            *waiting += times * exposure.waiting;
        }
        sums.into_iter().map(|(launch, (exposed, waiting))| (launch, exposed, waiting)).collect()
    }

    /// The critical path: rank, start, end, "compute", "host", "memory" or "call", the call, name and origin of the node.
    #[getter]
    fn path(&self) -> Vec<Stretch> {
        let workload = &self.job.workload;
        let segment = |s: &ahbm_emulator::training::Segment| {
            let (what, launch) = match s.why {
                Why::Compute => ("compute", None),
                Why::Host => ("host", None),
                Why::Memory => ("memory", None),
                Why::Launch(launch) => ("call", Some(launch)),
            };
            let name = workload.graph(s.rank).name(s.node).to_owned();
            (s.rank, s.start, s.end, what, launch, name, workload.origin(s.rank, s.node))
        };
        self.found.answers.path.iter().map(segment).collect()
    }

    /// Per call, when its first rank arrived, when its last did, and when its last part ended.
    #[getter]
    fn calls_ps(&self) -> Vec<(u64, u64, u64)> {
        let of = |launch| {
            let spans: Vec<Span> =
                self.job.places(launch).iter().map(|&place| self.found.times.nodes[place as usize]).collect();
            let starts = || spans.iter().map(|span| span.start);
            let end = spans.iter().map(|span| span.end).max();
            (starts().min().unwrap_or(0), starts().max().unwrap_or(0), end.unwrap_or(0))
        };
        (0..self.job.launches() as u32).map(of).collect()
    }

    /// Every node of ranks that are copies of none, in the order of ranks and ids, as columns: rank, id, start and end, and
    /// 0 for a computation, 1 for a call, 2 for a send, 3 for a receive, 4 for memory, 5 for others.
    #[getter]
    fn nodes<'py>(&self, py: Python<'py>) -> Nodes<'py> {
        self.columns(py, |rank| self.job.leads(rank))
    }

    /// The same of every rank, which has the times of the one that it is a copy of; as `nodes` for a job of more nodes
    /// than are ever kept for every rank.
    #[getter]
    fn every_node<'py>(&self, py: Python<'py>) -> Nodes<'py> {
        self.columns(py, |rank| self.job.workload.nodes() <= LARGE || self.job.leads(rank))
    }

    /// Whether it has computations that state no duration, which take what the machine computes at.
    #[getter]
    fn by_roofline(&self) -> bool {
        by_roofline(&self.job.workload)
    }

    /// Computations that state neither a duration nor operations, and take no time.
    #[getter]
    fn untimed(&self) -> u64 {
        self.found.untimed
    }

    /// Ranks that were simulated; the others do what one of these does.
    #[getter]
    fn simulated(&self) -> usize {
        self.found.simulated
    }

    /// Messages that were sent, their bytes, and events of the simulation.
    #[getter]
    fn traffic(&self) -> (u64, u64, u64) {
        (self.found.times.messages, self.found.times.bytes, self.found.times.events)
    }

    /// The whole job as one program, whose hosts issue their nodes in the order that was found.
    fn program(&self, py: Python<'_>) -> PyResult<Program> {
        let program = interruptible(py, || self.with(|replay| replay.program(&self.found.times)).map_err(|f| vec![f]))?;
        Ok(Program::new(program.into(), &self.machine, 0))
    }

    /// Writes the job with the operations of its calls in their places, and the times that they took, as a Chakra trace:
    /// `PREFIX.<rank>.et`.
    ///
    /// Returns the files, and the first rank whose calls waited for each other's messages, which the trace keeps in no
    /// order; None where there is none. The interpreter lock is released meanwhile. Raises `UnsupportedError` (AHBM-U294)
    /// for a call with a barrier between ranks, `FormatError` (AHBM-F102, F139), after which nothing was written.
    fn write_trace(&self, py: Python<'_>, prefix: PathBuf) -> PyResult<(Vec<PathBuf>, Option<u32>)> {
        logs::refresh(py, &[Part::Formats]);
        interruptible(py, || {
            let merged = self.with(|replay| replay.merged(&self.found.times, &self.machine.inner));
            let merged = merged.map_err(|finding| vec![finding])??;
            let files = ahbm_formats::chakra::write_workload(&merged.workload, &prefix, &merged.starts)
                .map_err(|finding| vec![finding])?;
            Ok((files, merged.contended))
        })
    }

    /// What every rank computes and calls, as columns: as `Timeline.tracks`, without the machine below. Parts of a call
    /// are joined by the number of their message. Raises `BudgetError` (AHBM-B122) for a job too long to show.
    fn tracks<'py>(&self, py: Python<'py>) -> PyResult<AllTracks<'py>> {
        let (job, machine) = (&self.job, &*self.machine.inner);
        let make = || Tracks::of_replay(job, &self.found.times, machine, None).map_err(|finding| vec![finding]);
        Ok(as_columns(py, interruptible(py, make)?))
    }

    /// Writes the job as a timeline to look at: for Perfetto (`.pftrace`), or as Chrome's trace-event JSON (`.json`).
    /// It shows what every rank computes and calls, with arrows between the parts of a call and, unless `ranks_only`, the
    /// machine below.
    ///
    /// Returns the number of slices. The interpreter lock is released meanwhile. Raises `ConfigError` (AHBM-C149) for
    /// other names, `BudgetError` (AHBM-B121, B122) for a job too long to show, `FormatError` (AHBM-F102) for a file
    /// that cannot be written.
    #[pyo3(signature = (path, *, ranks_only=false))]
    fn write_timeline(&self, py: Python<'_>, path: PathBuf, ranks_only: bool) -> PyResult<usize> {
        let (job, machine) = (&self.job, &*self.machine.inner);
        let write = || {
            let format = Format::of(&path)?;
            let tracks = if ranks_only {
                Tracks::of_replay(job, &self.found.times, machine, None)?
            } else {
                let program = self.with(|replay| replay.program(&self.found.times))?;
                let options = Options { record: false, detail: PIECES, ..Options::default() };
                let timeline = simulate(&program, machine, &options)?;
                Tracks::of_replay(job, &self.found.times, machine, Some((&program, &timeline)))?
            };
            store(&[Output { path, bytes: format.render(&tracks) }])?;
            Ok(tracks.slices.len())
        };
        interruptible(py, || write().map_err(|finding| vec![finding]))
    }
}

/// Columns of nodes, as [`Replayed::nodes`] has them.
type Nodes<'py> = (Column<'py, u32>, Column<'py, u64>, Column<'py, u64>, Column<'py, u64>, Column<'py, u8>);

impl Replayed {
    fn columns<'py>(&self, py: Python<'py>, which: impl Fn(u32) -> bool) -> Nodes<'py> {
        let kind = |work: &Work| match work {
            Work::Compute(_) => 0,
            Work::Call(_) => 1,
            Work::Send(_) => 2,
            Work::Recv(_) => 3,
            Work::Memory { .. } => 4,
            Work::Nothing | Work::Part(_) => 5,
        };
        let workload = &self.job.workload;
        let graphs = || (0..workload.ranks.len() as u32).filter(|rank| which(*rank)).map(|r| (r, workload.graph(r)));
        let nodes = || graphs().flat_map(|(_, graph)| graph.nodes());
        let times = || {
            graphs().flat_map(|(rank, graph)| {
                let first = self.job.place(rank, 0) as usize;
                &self.found.times.nodes[first..first + graph.nodes().len()]
            })
        };
        (
            column(py, graphs().flat_map(|(rank, graph)| std::iter::repeat_n(rank, graph.nodes().len()))),
            column(py, nodes().map(|node| node.id)),
            column(py, times().map(|span| span.start)),
            column(py, times().map(|span| span.end)),
            column(py, nodes().map(|node| kind(&node.work))),
        )
    }

    /// The replay of all ranks; `AHBM-B127` where only one of those that are copies of each other is there.
    fn with<R>(&self, of: impl FnOnce(&Replay<'_>) -> R) -> Result<R, Diagnostic> {
        if let Some(copies) = self.job.copies {
            let (ranks, nodes) = (self.job.workload.ranks.len(), self.job.workload.nodes());
            let what = format!("{ranks} ranks have {nodes} nodes, of which one in {} is kept", copies.count());
            return Err(
                Diagnostic::new("AHBM-B127", what).hint("a job of fewer replicas or micro-batches shows the same")
            );
        }
        Ok(of(&Replay::new(&self.job, &launches(&self.programs), &self.regions, &self.machine.inner, &self.terms)))
    }
}

fn column<'py, T: Element>(py: Python<'py>, values: impl Iterator<Item = T>) -> Column<'py, T> {
    PyArray1::from_vec(py, values.collect())
}
