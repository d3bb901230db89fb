//! Training jobs: read, and replayed on a machine.

use crate::errors;
use crate::features::JobFeatures;
use crate::formats::budget;
use crate::given::{Given, Wanted, given, wanted, within};
use crate::interrupt::interruptible;
use crate::job::{JobCall, with_costs};
use crate::logs::{self, Part};
use crate::machine::Machine;
use crate::operand;
use crate::program::Program;
use crate::replayed::{Replayed, by_roofline, launches};
use crate::steps;
use ahbm_emulator::Options;
use ahbm_emulator::training::{self, Lanes, Terms};
use ahbm_findings::Diagnostic;
use ahbm_formats::chakra::{ReadOptions, Sort};
use ahbm_formats::{jobs, pytorch};
use ahbm_program::marks::Region;
use ahbm_workload::Linked;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyList;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// A training job as a graph of what every rank computes, calls, sends and receives. Immutable.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Workload {
    /// Thin where the job is large.
    pub(crate) inner: Arc<Linked>,
    whole: OnceLock<Arc<Linked>>,
}

wanted! { Py<Workload>: "a Workload" }

#[pymethods]
impl Workload {
    /// Reads the job that a path names: the prefix of a Chakra trace, one of its files, or a folder that holds one; or
    /// the trace of a rank that PyTorch wrote (.json, .json.gz), whose siblings are found by their names, or a folder of
    /// such traces.
    ///
    /// `groups` has the ranks of process groups that nodes only name; `lenient` leaves out dependencies on nodes that do
    /// not exist and those that close a circle; `limits` are pairs of a name of `plan_limits()` and a number. Of traces
    /// of PyTorch, `step` takes the profiler's step of this number instead of all, `host_gaps` keeps the time that the
    /// host takes between launches, `symmetric` lets all ranks do what the one rank with a trace does, and `scaled` keeps
    /// communications of groups of one rank for `replicated`. The interpreter lock is released meanwhile. Raises
    /// `FormatError` (AHBM-F131 to F139, F149, F183 to F187), `UnsupportedError` (AHBM-U234 for a process group of unknown
    /// ranks), `ConfigError` (AHBM-C146 for options that do not go with the trace), `BudgetError`.
    #[staticmethod]
    #[pyo3(signature = (path, *, groups=Given::ok(HashMap::new()), lenient=false, limits=Vec::new(), step=None,
                        host_gaps=false, symmetric=false, scaled=false),
           text_signature = "(path, *, groups={}, lenient=False, limits=(), step=None, host_gaps=False, symmetric=False, scaled=False)")]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn read(
        py: Python<'_>,
        path: PathBuf,
        groups: Given<HashMap<String, Vec<u32>>>,
        lenient: bool,
        limits: Vec<(String, u64)>,
        step: Option<u64>,
        host_gaps: bool,
        symmetric: bool,
        scaled: bool,
    ) -> PyResult<Self> {
        given!(groups);
        let budget = budget(&limits).map_err(|finding| errors::raise_one(py, finding))?;
        logs::refresh(py, &[Part::Formats]);
        let mut named: Vec<_> = groups.into_iter().collect();
        named.sort();
        interruptible(py, || {
            let options = pytorch::Options { budget, step, host_gaps, symmetric, scaled };
            Linked::sized(jobs::read(&path, lenient, &options, named.into_iter().collect())?)
        })
        .map(Self::of)
    }

    /// Reads a job from profilers' traces (kineto) in memory: per rank the name of its file, for findings, and its bytes.
    ///
    /// Options and errors as `read`. The interpreter lock is released meanwhile.
    #[staticmethod]
    #[pyo3(signature = (name, files, *, groups=Given::ok(HashMap::new()), limits=Vec::new(), step=None, host_gaps=false,
                        symmetric=false, scaled=false),
           text_signature = "(name, files, *, groups={}, limits=(), step=None, host_gaps=False, symmetric=False, scaled=False)")]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn of_profiles(
        py: Python<'_>,
        name: String,
        files: Vec<(String, PyBackedBytes)>,
        groups: Given<HashMap<String, Vec<u32>>>,
        limits: Vec<(String, u64)>,
        step: Option<u64>,
        host_gaps: bool,
        symmetric: bool,
        scaled: bool,
    ) -> PyResult<Self> {
        given!(groups);
        let budget = budget(&limits).map_err(|finding| errors::raise_one(py, finding))?;
        let mut named: Vec<_> = groups.into_iter().collect();
        named.sort();
        interruptible(py, || {
            let options = pytorch::Options { budget, step, host_gaps, symmetric, scaled };
            let files: Vec<(&str, &[u8])> = files.iter().map(|(file, bytes)| (&**file, &**bytes)).collect();
            let found = pytorch::parse(&name, pytorch::Kind::Kineto, &files, &options, named.into_iter().collect())?;
            Linked::new(found)
        })
        .map(Self::of)
    }

    /// One training step of a transformer; `ahbm.job.transformer.Transformer` says what the numbers mean.
    ///
    /// `sizes` has each of them by name, `dtype` is a name and its bytes, `words` has the others. thin: one rank of those
    /// that are copies of each other, however few there are. The interpreter lock is released meanwhile. Raises `ConfigError` (AHBM-C157) for a name that is missing or unknown, and for numbers that are
    /// out of range, do not divide each other as they must, or make too large a job.
    #[staticmethod]
    #[pyo3(signature = (name, sizes, dtype, words, *, thin=false),
           text_signature = "(name, sizes, dtype, words, *, thin=False)")]
    fn transformer(
        py: Python<'_>,
        name: &str,
        sizes: HashMap<String, u64>,
        dtype: (String, u64),
        words: HashMap<String, String>,
        thin: bool,
    ) -> PyResult<Self> {
        let wrong = |what: String| errors::raise_one(py, Diagnostic::new("AHBM-C157", what));
        let transformer = steps::transformer(sizes, dtype, &words).map_err(wrong)?;
        let linked = |job| if thin { Linked::thin(job) } else { Linked::sized(job) };
        interruptible(py, || linked(transformer.workload(name)?)).map(Self::of)
    }

    /// Chunks of layers of stage `stage` of `stages` whose activations are kept at most, of a schedule of
    /// `ahbm.job.transformer.SCHEDULES`, where a rank has `chunks` of them.
    ///
    /// Raises `ConfigError` (AHBM-C157) for an unknown schedule, and for numbers of which there is no such order.
    #[staticmethod]
    fn in_flight(
        py: Python<'_>,
        schedule: &str,
        stage: u32,
        stages: u32,
        chunks: u32,
        micro_batches: u32,
    ) -> PyResult<u64> {
        let wrong = |what: String| errors::raise_one(py, Diagnostic::new("AHBM-C157", what));
        let schedule = steps::schedule(schedule).map_err(wrong)?;
        let [stages, chunks, micro_batches] = [stages, chunks, micro_batches].map(u64::from);
        if u64::from(stage) >= stages || chunks * micro_batches == 0 || chunks * micro_batches > 1 << 17 {
            return Err(wrong(format!("stage {stage} of {stages}, {chunks} chunks, {micro_batches} micro-batches")));
        }
        match schedule.misfit(stages, chunks, micro_batches) {
            Some(why) => Err(wrong(why)),
            None => Ok(schedule.in_flight(stage.into(), stages, chunks, micro_batches)),
        }
    }

    /// The job with another number of data-parallel replicas: added ones do what recorded ones do, in turn.
    ///
    /// An all_gather and a reduce_scatter among replicas move the same whole in other shares; computing stays as it
    /// was recorded. The interpreter lock is released meanwhile. Raises `UnsupportedError` (AHBM-U236) for a job that
    /// has no replicas, or cannot have so many.
    fn replicated(&self, py: Python<'_>, replicas: u32) -> PyResult<Self> {
        interruptible(py, || Linked::sized(self.inner.workload.replicated(replicas)?)).map(Self::of)
    }

    /// The job on a network of dimensions with so many NPUs each, the first varying fastest: a call of all ranks that
    /// names dimensions (`involved_dim`) is one call for every group of ranks that differ in these alone.
    ///
    /// The interpreter lock is released meanwhile. Raises as `read` for what these calls then are.
    fn on_network(&self, py: Python<'_>, npus: Vec<u32>) -> PyResult<Self> {
        interruptible(py, || Linked::sized(self.inner.workload.on_network(&npus))).map(Self::of)
    }

    /// One job of `size` ranks: of each pair, rank `places[r]` does what rank r of the job does; every other rank does
    /// nothing. Groups keep their names and the order of their ranks. The interpreter lock is released meanwhile.
    ///
    /// Raises `ConfigError` (AHBM-C120) for a job with another number of places than ranks, and for a place that does
    /// not exist or has two ranks.
    #[staticmethod]
    fn together(
        py: Python<'_>,
        name: Given<String>,
        jobs: Given<Vec<(Py<Self>, Vec<u32>)>>,
        size: Given<u32>,
    ) -> PyResult<Self> {
        given!(name, jobs, size);
        within("size", size as usize, 1 << 20)?;
        let pairs: Vec<_> = jobs.iter().map(|(job, places)| (&job.get().inner.workload, places.as_slice())).collect();
        interruptible(py, || Linked::sized(ahbm_workload::Workload::together(&name, &pairs, size)?)).map(Self::of)
    }

    /// Writes the job as a Chakra trace: `PREFIX.<rank>.et`, and `PREFIX.groups.json` where calls name groups.
    ///
    /// Reading the files gives the same job. Returns the files. The interpreter lock is released meanwhile. Raises
    /// `FormatError` (AHBM-F102, F139), after which nothing was written.
    fn write(&self, py: Python<'_>, prefix: PathBuf) -> PyResult<Vec<PathBuf>> {
        logs::refresh(py, &[Part::Formats]);
        interruptible(py, || {
            ahbm_formats::chakra::write_workload(&self.inner.workload, &prefix, &[]).map_err(|finding| vec![finding])
        })
    }

    /// Name for people.
    #[getter]
    fn name(&self) -> &str {
        &self.inner.workload.name
    }

    /// Number of ranks.
    #[getter]
    fn ranks(&self) -> usize {
        self.inner.workload.ranks.len()
    }

    /// Number of nodes of all ranks.
    #[getter]
    fn nodes(&self) -> u64 {
        self.inner.workload.nodes()
    }

    /// Ranks of which only one is kept in `calls` and replayed: so many do the same, 1 where every rank is kept.
    ///
    /// Of a job of more than four million nodes, ranks that a renumbering takes to each other, as data-parallel replicas,
    /// are copies: the nodes, calls and messages of the lowest stand for theirs.
    #[getter]
    fn copies(&self) -> u32 {
        self.inner.copies.map_or(1, ahbm_workload::Copies::count)
    }

    /// Per rank the lowest of which it is a copy.
    #[getter]
    fn leads(&self) -> Vec<u32> {
        let of = |rank| self.inner.copies.map_or(rank, |copies| copies.lead(rank));
        (0..self.inner.workload.ranks.len() as u32).map(of).collect()
    }

    /// The job with every rank's calls and messages. The interpreter lock is released meanwhile. Raises
    /// `FormatError` (AHBM-F136) for more nodes than there are numbers.
    fn whole(&self, py: Python<'_>) -> PyResult<Self> {
        self.linked(py).map(|inner| Self { inner, whole: OnceLock::new() })
    }

    /// Number of different graphs: ranks that do the same share one.
    #[getter]
    fn graphs(&self) -> usize {
        self.inner.workload.graphs.len()
    }

    /// Dependencies that lenient reading left out: on nodes that do not exist, and to open circles.
    #[getter]
    fn left_out(&self) -> (usize, usize) {
        let of = |rank: &ahbm_workload::Rank| &self.inner.workload.graphs[rank.graph as usize];
        let ranks = &self.inner.workload.ranks;
        (ranks.iter().map(|rank| of(rank).dangling).sum(), ranks.iter().map(|rank| of(rank).cut.len()).sum())
    }

    /// Whether it was recorded by `ahbm.torch`.
    #[getter]
    fn recorded(&self) -> bool {
        self.inner.workload.recorded
    }

    /// What the source leaves open, and how it was taken.
    #[getter]
    fn notes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let workload = &self.inner.workload;
        let notes: Vec<_> = workload.notes.iter().cloned().chain(workload.without_dimensions()).collect();
        errors::to_list(py, &notes)
    }

    /// The collectives, group by group, and behind them the messages; those in which ranks have a part that are copies
    /// of none.
    #[getter]
    fn calls(&self) -> Vec<JobCall> {
        let (job, workload) = (&self.inner, &self.inner.workload);
        let alike = job.alike();
        let calls = (0..).zip(&job.calls).zip(&alike).map(|((number, call), &alike)| {
            let (group, spec) = (&workload.groups[call.group as usize], &call.spec);
            JobCall {
                collective: spec.collective.name().into(),
                group: group.name.to_string(),
                node: workload.graph(group.ranks[0]).name(call.nodes[0]).to_owned(),
                ranks: group.ranks.to_vec(),
                bytes: spec.bytes,
                longest: call.longest,
                shares: call.shares.as_ref().map(|found| found.rows.iter().map(|row| row.to_vec()).collect()),
                spread: call.shares.as_ref().is_some_and(|found| found.spread),
                uneven: call.uneven,
                dtype: spec.dtype.as_deref().map(str::to_owned),
                op: spec.op.as_deref().map(str::to_owned),
                root: spec.root,
                alike,
                copies: job.times(number),
                origin: workload.origin(group.ranks[0], call.nodes[0]),
            }
        });
        let messages = (job.calls.len() as u32..).zip(&job.messages);
        let messages = messages.zip(&alike[job.calls.len()..]).map(|((number, message), &alike)| JobCall {
            collective: "send_recv".into(),
            group: message.group.map(|group| workload.groups[group as usize].name.to_string()).unwrap_or_default(),
            node: workload.graph(message.send.0).name(message.send.1).to_owned(),
            ranks: vec![message.send.0, message.recv.0],
            bytes: message.bytes,
            longest: None,
            shares: None,
            spread: false,
            uneven: false,
            dtype: None,
            op: None,
            root: None,
            alike,
            copies: job.times(number),
            origin: workload.origin(message.send.0, message.send.1),
        });
        calls.chain(messages).collect()
    }

    /// The chunks of calls that nodes wait for or deliver: the call, the rank's position in it, the chunk, and whether
    /// it is waited for.
    #[getter]
    fn chunks(&self) -> Vec<(u32, u32, u32, bool)> {
        self.inner.chunks.iter().map(|c| (c.share.launch, c.share.part, c.chunk, c.completes)).collect()
    }

    /// What its calls look like before they run. Computations without a duration take what `machine.roofline` says;
    /// `factors` as in `replay`. The interpreter lock is released meanwhile. Raises KeyboardInterrupt.
    #[pyo3(signature = (machine, *, factors=Vec::new()), text_signature = "($self, machine, *, factors=())")]
    fn features(&self, py: Python<'_>, machine: &Machine, factors: Vec<(String, f64)>) -> PyResult<JobFeatures> {
        self.check_computes(py, machine)?;
        let terms = Terms::of(&machine.inner, Lanes::ALL[0], factors);
        let job = self.linked(py)?;
        let found = interruptible(py, || Ok(ahbm_views::features::Job::of(&job, &terms)))?;
        JobFeatures::of(py, &found)
    }

    /// Replays the job. `programs` has one entry for each of `calls`, None where nothing runs, and `regions` one for
    /// each of `chunks`: buffers of the program with first byte and end. Rank r is SIP r. `made_for` has for each of
    /// `calls` the one for whose ranks its program was made, whose places its own ranks take in ascending order; without
    /// any, every program was made for its call. With `fold`, of ranks that do the same one is simulated. None where ranks
    /// that are copies do not do the same on this machine: `whole` has all of them.
    ///
    /// `lanes` says which nodes of a rank may run side by side: "device" (one computation of the accelerator and one of
    /// the host at a time), "streams" (besides, nodes of a recorded stream one after the other), "astra" (besides, one
    /// communication at a time) or "unlimited". Computations without a duration take what `machine.roofline` says;
    /// `factors` are pairs of a text and a factor for computations with the text in their name. The interpreter lock is
    /// released meanwhile. Raises `DeadlockError` (AHBM-D102) for ranks that wait for each other, `ConfigError`
    /// (AHBM-C205) for unknown lanes, `BudgetError`, and KeyboardInterrupt.
    #[pyo3(signature = (machine, programs, *, made_for=Vec::new(), regions=Vec::new(), lanes="device", factors=Vec::new(),
                        fold=true, max_events=Options::default().max_events),
           text_signature = "($self, machine, programs, *, made_for=(), regions=(), lanes='device', factors=(), fold=True, max_events=5000000000)")]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn replay(
        &self,
        py: Python<'_>,
        machine: &Machine,
        programs: Vec<Option<PyRef<'_, Program>>>,
        made_for: Vec<u32>,
        regions: Vec<Vec<(u32, u64, u64)>>,
        lanes: &str,
        factors: Vec<(String, f64)>,
        fold: bool,
        max_events: u64,
    ) -> PyResult<Option<Replayed>> {
        let Some(policy) = Lanes::ALL.into_iter().find(|known| known.name() == lanes) else {
            let names = Lanes::ALL.map(Lanes::name);
            return Err(errors::raise_one(py, *operand::unknown("AHBM-C205", "lanes", lanes, &names)));
        };
        if programs.len() != self.inner.launches() {
            let what = format!("{} programs for {} calls", programs.len(), self.inner.launches());
            return Err(errors::raise_one(py, Diagnostic::new("AHBM-V125", what)));
        }
        if regions.len() != self.inner.chunks.len() {
            let what = format!("{} regions for {} chunks", regions.len(), self.inner.chunks.len());
            return Err(errors::raise_one(py, Diagnostic::new("AHBM-V125", what)));
        }
        let made_for = if made_for.is_empty() { (0..programs.len() as u32).collect() } else { made_for };
        if let Err(what) = self.check_made_for(&made_for, machine) {
            return Err(errors::raise_one(py, Diagnostic::new("AHBM-V125", what)));
        }
        let region = |(buffer, from, to)| Region { buffer, from, to };
        let regions: Vec<Vec<Region>> =
            regions.into_iter().map(|list| list.into_iter().map(region).collect()).collect();
        logs::refresh(py, &[Part::Engine]);
        self.check_computes(py, machine)?;
        let terms = Terms::of(&machine.inner, policy, factors);
        let programs = with_costs(py, machine, programs.iter().map(Option::as_deref))?;
        let programs: Vec<_> = programs.into_iter().zip(made_for).collect();
        let found = interruptible(py, || {
            let options = Options { max_events, ..Options::default() };
            let how = (&*machine.inner, &terms);
            match training::replay(&self.inner, &launches(&programs), &regions, how, &options, fold) {
                Err(_) if self.inner.copies.is_some() => Ok(None),
                found => found.map(Some).map_err(|finding| vec![finding]),
            }
        })?;
        Ok(found.map(|found| Replayed {
            job: self.inner.clone(),
            machine: machine.clone(),
            programs,
            regions,
            terms,
            found,
        }))
    }
}

impl Workload {
    fn of(inner: Linked) -> Self {
        Self { inner: inner.into(), whole: OnceLock::new() }
    }

    /// The job with every rank.
    pub(crate) fn linked(&self, py: Python<'_>) -> PyResult<Arc<Linked>> {
        if self.inner.copies.is_none() {
            return Ok(Arc::clone(&self.inner));
        }
        if self.whole.get().is_none() {
            let whole = interruptible(py, || Linked::new(self.inner.workload.clone()))?;
            let _ = self.whole.set(whole.into());
        }
        Ok(Arc::clone(self.whole.get().expect("it was made")))
    }

    /// Refuses a job that computes on a machine that does not say what it computes at.
    fn check_computes(&self, py: Python<'_>, machine: &Machine) -> PyResult<()> {
        match machine.inner.computes() {
            Err(finding) if by_roofline(&self.inner.workload) => Err(errors::raise_one(py, finding)),
            _ => Ok(()),
        }
    }

    /// What is wrong with the calls for whose ranks programs were made.
    fn check_made_for(&self, made_for: &[u32], machine: &Machine) -> Result<(), String> {
        if made_for.len() != self.inner.launches() {
            return Err(format!("{} calls that programs were made for, of {}", made_for.len(), self.inner.launches()));
        }
        let ascending = |call: u32| {
            let mut ranks = self.inner.ranks(call);
            ranks.sort_unstable();
            ranks
        };
        let mut known = HashSet::new();
        for (call, &of) in (0..).zip(made_for) {
            if of as usize >= made_for.len() {
                return Err(format!("there is no call {of} of {}", made_for.len()));
            }
            // Calls of one group are at the same places.
            let group = |call: u32| self.inner.calls.get(call as usize).map(|call| call.group);
            let pair = (group(call), group(of));
            let new = call != of && (pair.0.is_none() || pair.1.is_none() || known.insert(pair));
            if new && !machine.inner.carries(&ascending(of), &ascending(call)) {
                return Err(format!("the program of call {of} does not fit the ranks of call {call}"));
            }
        }
        Ok(())
    }
}

/// Whether a path names the trace of a job: "job", "algorithm", "either" where it only sends, receives and computes, or
/// "none" where it is no trace.
///
/// Raises as `read_plan`.
#[pyfunction]
#[pyo3(signature = (path, *, limits=Vec::new()), text_signature = "(path, *, limits=())")]
pub(crate) fn trace_sort(py: Python<'_>, path: PathBuf, limits: Vec<(String, u64)>) -> PyResult<&'static str> {
    let budget = budget(&limits).map_err(|finding| errors::raise_one(py, finding))?;
    let sort = interruptible(py, || jobs::sort(&path, &ReadOptions { budget, ..ReadOptions::default() }))?;
    Ok(match sort {
        Some(Sort::Job) => "job",
        Some(Sort::Algorithm) => "algorithm",
        Some(Sort::Either) => "either",
        None => "none",
    })
}
