//! Programs and their timelines.

use crate::features::AlgorithmFeatures;
use crate::formats::{PyDocument, budget};
use crate::given::{Given, Wanted, given, wanted, within};
use crate::interrupt::interruptible;
use crate::limit::Limit;
use crate::logs::{self, Part};
use crate::machine::Machine;
use crate::timeline::Timeline;
use crate::{check, errors, operand};
use ahbm_check::CheckOptions;
use ahbm_emulator::Options;
use ahbm_findings::Diagnostic;
use ahbm_machine::{Caps, Collision, LinkChange, LinkId};
use ahbm_plan::{Captured, Collective, Plan, Reduced};
use ahbm_program::{AgentId, OriginId};
use ahbm_synthesis::Engines;
use ahbm_wire::store::store;
use indexmap::IndexSet;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::path::PathBuf;
use std::sync::Arc;

/// Pieces of detail that a run may keep, 32 bytes each.
pub(crate) const PIECES: u32 = 1 << 26;

/// A program to run: agents, their operations, queues and buffers. Immutable; made by `ProgramBuilder.finish`.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Program {
    pub(crate) inner: Arc<ahbm_program::Program>,
    /// The machine that it runs on.
    pub(crate) machine: Arc<ahbm_machine::Machine>,
    /// The machine that was given for it.
    pub(crate) given: Machine,
    pub(crate) calls: u64,
    /// The programs that further launches run, in turn, if those differ from `inner`.
    pub(crate) later: Vec<ahbm_program::Program>,
}

wanted! { Bound<'_, Program>: "a Program" }

#[pymethods]
impl Program {
    /// Name for people.
    #[getter]
    fn name(&self) -> &str {
        &self.inner.name
    }

    /// Number of agents (PEs that run a kernel).
    #[getter]
    fn agents(&self) -> usize {
        self.inner.agents.len()
    }

    /// Number of operations over all agents.
    #[getter]
    fn ops(&self) -> u64 {
        self.inner.ops()
    }

    /// Bytes of the buffers and queue slots at the PE that has most; a queue's slots are at its receiver.
    #[getter]
    fn memory_bytes(&self) -> u64 {
        self.inner.memory_bytes()
    }

    /// Number of `tl` calls that were captured to make it.
    #[getter]
    fn calls(&self) -> u64 {
        self.calls
    }

    /// Stable 64-bit hash of everything that influences a run.
    #[getter]
    fn hash(&self) -> u64 {
        self.inner.hash()
    }

    /// The program as text, for people and for golden files.
    fn text(&self) -> String {
        self.inner.text()
    }

    /// What the program computes and sends, and what waits for what, without a run; the interpreter lock is released
    /// meanwhile. `limit`: the bound whose tight cut `cut_bytes` cross; without one they are 0. Raises `DeadlockError`
    /// (AHBM-D201) for a program that gets stuck, and KeyboardInterrupt.
    #[pyo3(signature = (limit=Given::ok(None)), text_signature = "($self, limit=None)")]
    fn features(&self, py: Python<'_>, limit: Given<Option<Bound<'_, Limit>>>) -> PyResult<AlgorithmFeatures> {
        given!(limit);
        let parts = limit.map_or_else(Vec::new, |limit| limit.get().parts());
        let found = interruptible(py, || {
            ahbm_views::features::Algorithm::of(&self.inner, &self.machine, &parts).map_err(|finding| vec![finding])
        })?;
        Ok(AlgorithmFeatures::of(&found))
    }

    /// Links that more of the program's flows take than would if they were spread evenly over equal ways, the most crowded
    /// first: the link, its flows by the SIPs that send and receive, how many flows had the choice, and the links of it.
    #[allow(clippy::type_complexity)]
    fn collisions(&self) -> Vec<(String, Vec<(u32, u32)>, u32, Vec<String>)> {
        if !self.machine.spreads() {
            return Vec::new();
        }
        let found = self.machine.collisions(&ahbm_emulator::flows(&self.inner, &self.machine));
        let name = |link: &LinkId| self.machine.link_name(*link);
        let row = |each: Collision| (name(&each.link), each.flows, each.among, each.choice.iter().map(name).collect());
        found.into_iter().map(row).collect()
    }

    /// Runs the timing pass on the program's machine; the interpreter lock is released meanwhile.
    ///
    /// `record` keeps the time of every operation, which views and some replays need; `detail` also keeps why it took
    /// that long. With `stuck`, a deadlock is no error: the timeline goes as far as the run (`Timeline.deadlock`). Raises `DeadlockError`, `BudgetError` after `max_events` engine events or for more detail than 2 GB
    /// hold, and KeyboardInterrupt. Where nothing is kept, one of the ranks that do the same may be simulated for all of
    /// them, at the same times; `fold=False` simulates every rank.
    #[pyo3(signature = (
        *, record=Given::ok(true), detail=Given::ok(false), max_events=Given::ok(Options::default().max_events),
        stuck=Given::ok(false), fold=Given::ok(true)),
           text_signature = "($self, *, record=True, detail=False, max_events=..., stuck=False, fold=True)")]
    fn simulate(
        &self,
        py: Python<'_>,
        record: Given<bool>,
        detail: Given<bool>,
        max_events: Given<u64>,
        stuck: Given<bool>,
        fold: Given<bool>,
    ) -> PyResult<Timeline> {
        given!(record, detail, max_events, stuck, fold);
        logs::refresh(py, &[Part::Engine, Part::Data]);
        let outcome = interruptible(py, || {
            let detail = if detail { PIECES } else { 0 };
            let options = Options { record, detail, max_events, fold, ..Options::default() };
            let simulate = if stuck { ahbm_emulator::until_stuck } else { ahbm_emulator::simulate };
            simulate(&self.inner, &self.machine, &options).map_err(|finding| vec![finding])
        })?;
        Ok(Timeline { inner: outcome, program: Arc::clone(&self.inner), machine: Arc::clone(&self.machine) })
    }

    /// The latency in ps if the operations of these lines cost nothing: dispatch, transfers, messages, slots, credits and
    /// math take no time there, waits do. Lines are numbered as in `Timeline.critical_path`.
    ///
    /// Raises as `simulate`.
    fn latency_without(&self, py: Python<'_>, lines: Given<Vec<u32>>) -> PyResult<u64> {
        given!(lines);
        logs::refresh(py, &[Part::Engine, Part::Data]);
        interruptible(py, || {
            let of = self.inner.origins.lines();
            let is_free = |origin: &OriginId| of.get(origin.0 as usize).is_some_and(|line| lines.contains(line));
            let free: Vec<Vec<bool>> =
                self.inner.bodies.iter().map(|body| body.origins.iter().map(is_free).collect()).collect();
            let options = Options { record: false, ..Options::default() };
            ahbm_emulator::simulate_free(&self.inner, &self.machine, &options, &free).map_err(|finding| vec![finding])
        })
        .map(|timeline| timeline.latency)
    }

    /// The least time in ps that the engines and ports of this program's PEs allow a collective of `nbytes` per share among
    /// `sips`, and which of them it is; `root` and `dst` are SIPs. A rank is a SIP or, `by_tile`, a cube. None where they
    /// limit nothing, and where PEs do not exchange messages alone.
    ///
    /// Raises `ConfigError` (AHBM-C129).
    fn least_by_engines(
        &self,
        collective: Given<&str>,
        sips: Given<Vec<u32>>,
        nbytes: Given<u64>,
        root: Given<u32>,
        dst: Given<u32>,
        by_tile: Given<bool>,
    ) -> PyResult<Option<(u64, String)>> {
        given!(collective, sips, nbytes, root, dst, by_tile);
        let engines = Engines::of(&self.inner, &self.machine, by_tile);
        let found = engines.and_then(|engines| match Collective::parse(collective) {
            Some(collective) => engines.least(collective, &sips, nbytes, root),
            None if collective == "send_recv" => engines.least_between(nbytes, root, dst),
            None => None,
        });
        Ok(found.map(|least| (least.ps, least.by)))
    }

    /// Physical place of an agent, e.g. `"sip 0 cube 3 pe 0"`. Raises `ConfigError` (AHBM-C129).
    fn place(&self, agent: Given<usize>) -> PyResult<String> {
        given!(agent);
        within("agent", agent, self.inner.agents.len())?;
        let agent = &self.inner.agents[agent];
        Ok(self.machine.coord(agent.place).to_string())
    }

    /// An operation in words and where it was written (`""`: unknown). Raises `ConfigError` (AHBM-C129).
    fn describe(&self, agent: Given<u32>, op: Given<usize>) -> PyResult<(String, String)> {
        given!(agent, op);
        within("agent", agent as usize, self.inner.agents.len())?;
        Ok((self.inner.describe(AgentId(agent), op), self.inner.origin_text(AgentId(agent), op)))
    }

    /// Where an operation was written, the same in every iteration of a loop (`""`: unknown). Raises `ConfigError`
    /// (AHBM-C129).
    fn line(&self, agent: Given<u32>, op: Given<usize>) -> PyResult<String> {
        given!(agent, op);
        within("agent", agent as usize, self.inner.agents.len())?;
        Ok(self.inner.line_text(AgentId(agent), op))
    }

    /// Writes a recorded timeline as a post-execution trace, `PREFIX.<rank>.et`: every operation with the time it took.
    ///
    /// Returns the paths that were written. Raises `FormatError` for files that cannot be written, `DataError` for a
    /// timeline that was not recorded or belongs to another program.
    fn write_trace(
        &self,
        py: Python<'_>,
        timeline: Given<Bound<'_, Timeline>>,
        prefix: Given<PathBuf>,
    ) -> PyResult<Vec<PathBuf>> {
        given!(timeline, prefix);
        let timeline = timeline.get();
        let write = || {
            let files = ahbm_views::executed::render(&self.inner, &timeline.inner, &prefix);
            files.and_then(|files| store(&files).map(|()| files)).map_err(|finding| vec![finding])
        };
        interruptible(py, write).map(|files| files.into_iter().map(|file| file.path).collect())
    }

    /// The program with pauses: `(agent, op, ps)` holds an agent up for `ps` picoseconds before one of its operations.
    /// The work is the same, its times are not.
    fn delayed(&self, pauses: Given<Vec<(u32, u32, u64)>>) -> PyResult<Self> {
        given!(pauses);
        let pauses: Vec<_> = pauses.into_iter().map(|(agent, op, ps)| (ahbm_program::AgentId(agent), op, ps)).collect();
        let (inner, machine) = (Arc::new(self.inner.delayed(&pauses)), Arc::clone(&self.machine));
        Ok(Self { inner, machine, given: self.given.clone(), calls: self.calls, later: Vec::new() })
    }

    /// The machine that was given for the program.
    #[getter]
    fn machine(&self) -> Machine {
        self.given.clone()
    }

    /// The protocols of its calls: the name, bytes of one rank's array, 0 where they are not known, and what
    /// `Machine.caps` says with `alike`.
    fn protocols(&self, py: Python<'_>, alike: Given<f64>) -> PyResult<Vec<(String, u64, Caps)>> {
        given!(alike);
        let calls: Result<Vec<_>, _> = self.inner.costs.iter().map(|call| self.machine.with_costs(call)).collect();
        let calls = calls.map_err(|finding| errors::raise_one(py, finding))?;
        let row = |machine: &ahbm_machine::Machine| {
            let ((name, _), caps) = machine.protocol_of_call().zip(machine.caps(alike))?;
            Some((name.to_owned(), machine.call().nbytes, caps))
        };
        Ok([&*self.machine].into_iter().chain(&calls).filter_map(row).collect())
    }

    /// Names of the memory tiers that the program's queue slots live in, in order of first use.
    #[getter]
    fn tiers(&self) -> Vec<String> {
        let used: IndexSet<u32> = self.inner.channels.iter().map(|channel| channel.tier).collect();
        let tiers = &self.machine.costs().tiers;
        used.into_iter().filter_map(|tier| tiers.get_index(tier as usize)).map(|(name, _)| name.clone()).collect()
    }

    /// The same program on another machine of the same shape and slot tiers. Of the links with these numbers
    /// (`Timeline.link_use`), the `doubled` ones have twice the bandwidth there, the `instant` ones no latency.
    ///
    /// Raises `ConfigError` (AHBM-C146) for a machine of another shape, C129 for links that are none, and `LintError`
    /// for a machine that cannot hold the program.
    #[pyo3(signature = (machine, doubled=Given::ok(Vec::new()), instant=Given::ok(Vec::new())),
           text_signature = "($self, machine, doubled=(), instant=())")]
    fn on(
        &self,
        py: Python<'_>,
        machine: Given<Bound<'_, Machine>>,
        doubled: Given<Vec<u32>>,
        instant: Given<Vec<u32>>,
    ) -> PyResult<Self> {
        given!(machine, doubled, instant);
        let machine = machine.get();
        let tiers = |machine: &ahbm_machine::Machine| machine.costs().tiers.keys().cloned().collect::<Vec<_>>();
        if machine.inner.sfr() != self.machine.sfr() || tiers(&machine.inner) != tiers(&self.machine) {
            let what = format!("{} was made for a machine of another shape, or with other slot tiers", self.inner.name);
            let finding = Diagnostic::new("AHBM-C146", what);
            return Err(errors::raise_one(py, finding.hint("run the algorithm again on that machine")));
        }
        let mut program = Self::new(Arc::clone(&self.inner), machine, self.calls);
        let changes = doubled.into_iter().map(|link| (link, LinkChange::Twice));
        for (link, change) in changes.chain(instant.into_iter().map(|link| (link, LinkChange::Instant))) {
            within("link", link as usize, machine.inner.links() as usize)?;
            program.machine = Arc::new(program.machine.with_link(LinkId(link), change));
        }
        program.linted(py)
    }

    /// Number of operations of every agent, in the order they were added.
    #[getter]
    fn lengths(&self) -> Vec<usize> {
        self.inner.agents.iter().map(|a| self.inner.bodies[a.body as usize].ops.len()).collect()
    }

    /// The rank of every agent.
    #[getter]
    fn ranks(&self) -> Vec<u32> {
        self.inner.agents.iter().map(|a| a.rank).collect()
    }

    /// Whether the program is right for elements of `dtype`, whatever the order of its agents, and when it is issued
    /// `calls` times in a row.
    ///
    /// `operands`: `(rank, buffer, first byte in the buffer, bytes, first byte in the rank's array)`. `results`:
    /// `(rank, buffer, first byte, bytes, set)`. A set lists the contributions, ranks and indices of their elements,
    /// that go into the first element; the next element takes the next ones. `names` names buffers; `owners` gives, per
    /// buffer of operands or results, the rank of the agents that they belong to. With `repeats`, a contribution may take
    /// part more than once; with `synchronises`, no rank may end before every rank has started. `op` is the reduction of
    /// the contributions, None where a result is one of them, and `parties` what an average divides by. Returns the
    /// verdict and findings as `Plan.check` does; the interpreter lock is released meanwhile. Raises KernelError
    /// (AHBM-K207) for an unknown dtype, and for an unknown `op` as `tl.combine`.
    #[pyo3(signature = (
        *, dtype, operands, results, sets, names, owners, repeats=Given::ok(false),
            synchronises=Given::ok(false), op=Given::ok(None), parties=Given::ok(1), calls=Given::ok(1),
            orders=Given::ok(4), seed=Given::ok(0)),
        text_signature = "($self, *, dtype, operands, results, sets, names, owners, repeats=False, synchronises=False, \
                          op=None, parties=1, calls=1, orders=4, seed=0)")]
    #[allow(clippy::too_many_arguments)]
    fn check<'py>(
        &self,
        py: Python<'py>,
        dtype: Given<&str>,
        operands: Given<Vec<check::Piece>>,
        results: Given<Vec<check::Wanted>>,
        sets: Given<Vec<Vec<(u32, u64)>>>,
        names: Given<Vec<(u32, String)>>,
        owners: Given<Vec<(u32, u32)>>,
        repeats: Given<bool>,
        synchronises: Given<bool>,
        op: Given<Option<&str>>,
        parties: Given<u32>,
        calls: Given<u32>,
        orders: Given<u32>,
        seed: Given<u64>,
    ) -> PyResult<(&'static str, Bound<'py, PyList>)> {
        given!(dtype, operands, results, sets, names, owners, repeats, synchronises, op, parties, calls, orders, seed);
        let options = CheckOptions {
            calls,
            later: &self.later,
            machine: Some(&self.machine),
            orders,
            seed,
            min_slots: false,
            ..CheckOptions::default()
        };
        let dtype = operand::dtype(dtype).map_err(|fault| errors::raise_one(py, *fault))?;
        let function = op.map(operand::reduction).transpose().map_err(|fault| errors::raise_one(py, *fault))?;
        let factor = if op == Some("avg") { 1.0 / f64::from(parties.max(1)) } else { 1.0 };
        let reduction = Reduced { function, factor };
        let subject =
            check::Subject { dtype, operands, results, sets, names, owners, repeats, synchronises, reduction };
        logs::refresh(py, &[Part::Check]);
        let verdict = interruptible(py, || Ok(subject.check(&self.inner, &options)))?;
        Ok((verdict.outcome.name(), errors::to_list(py, &verdict.findings)?))
    }

    /// In which orders the program adds up the elements of `parties` arrays of `dtype`, read off its operations; None
    /// where they do not say (`ahbm_check::orders`).
    ///
    /// `operands`, `results`: `(party, buffer, first byte in the buffer, bytes, first byte in the party's array)`.
    /// Returns the orders, fully bracketed, by party, and per run of elements: the party, its first element and its end,
    /// and the index of its order. The interpreter lock is released meanwhile. Raises KernelError (AHBM-K207) for an
    /// unknown dtype.
    #[pyo3(signature = (*, dtype, operands, results, parties))]
    fn orders(
        &self,
        py: Python<'_>,
        dtype: Given<&str>,
        operands: Given<Vec<check::Piece>>,
        results: Given<Vec<check::Piece>>,
        parties: Given<u32>,
    ) -> PyResult<Option<check::Orders>> {
        given!(dtype, operands, results, parties);
        let dtype = operand::dtype(dtype).map_err(|fault| errors::raise_one(py, *fault))?;
        interruptible(py, || Ok(check::orders(&self.inner, dtype, &operands, &results, parties)))
    }

    /// The program of a kernel as a plan: what its agents, one per rank, do with chunks of their arrays.
    ///
    /// `name` is the plan's; a rank's array has `nbytes` bytes of `dtype`, and is the only buffer of its agent. `slots`
    /// is how many messages a queue holds. The interpreter lock is released meanwhile. Raises `UnsupportedError`
    /// (AHBM-U294) for what a plan cannot express, `BudgetError`, KernelError (AHBM-K207) for an unknown dtype.
    #[pyo3(signature = (*, name, collective, root, nranks, nbytes, dtype, slots, limits=Given::ok(Vec::new())),
           text_signature = "($self, *, name, collective, root, nranks, nbytes, dtype, slots, limits=())")]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn plan(
        &self,
        py: Python<'_>,
        name: Given<&str>,
        collective: Given<&str>,
        root: Given<u32>,
        nranks: Given<u32>,
        nbytes: Given<u64>,
        dtype: Given<&str>,
        slots: Given<u32>,
        limits: Given<Vec<(String, u64)>>,
    ) -> PyResult<PyDocument> {
        given!(name, collective, root, nranks, nbytes, dtype, slots, limits);
        let dtype = operand::dtype(dtype).map_err(|fault| errors::raise_one(py, *fault))?;
        let budget = budget(&limits).map_err(|finding| errors::raise_one(py, finding))?;
        let Some(known) = Collective::parse(collective) else {
            let what = format!("{name} computes {collective}, which no plan states");
            return Err(errors::raise_one(py, Diagnostic::new("AHBM-U294", what)));
        };
        let program = &*self.inner;
        let given = Captured { program, name, collective: (known, root), ranks: nranks, bytes: nbytes, dtype };
        let plan = interruptible(py, || Plan::from_program(&given, &budget))?;
        Ok(PyDocument::raised(plan, budget, slots))
    }

    fn __repr__(&self) -> String {
        format!("<program {} of {} agents, {} operations>", self.inner.name, self.agents(), self.ops())
    }
}

impl Program {
    /// Checks a program against its machine and wraps it.
    pub(crate) fn checked(
        py: Python<'_>,
        program: ahbm_program::Program,
        machine: &Machine,
        calls: u64,
    ) -> PyResult<Self> {
        Self::new(Arc::new(program), machine, calls).linted(py)
    }

    /// As [`Program::checked`], but messages without a partner may stay: whoever runs it sees who waits for whom.
    pub(crate) fn unmatched(
        py: Python<'_>,
        program: ahbm_program::Program,
        machine: &Machine,
        calls: u64,
    ) -> PyResult<Self> {
        const MATCHING: [&str; 3] = ["AHBM-L100", "AHBM-L104", "AHBM-L107"];
        let found = Self::new(Arc::new(program), machine, calls);
        interruptible(py, || {
            // What running it relies on is looked at alone: the list of all findings is cut.
            let mut findings = ahbm_program::structure(&found.inner);
            if findings.is_empty() {
                findings = ahbm_program::lint(&found.inner, &found.machine);
                findings.retain(|finding| !MATCHING.contains(&finding.code));
            }
            if findings.is_empty() { Ok(()) } else { Err(findings) }
        })?;
        Ok(found)
    }

    /// A program for a machine, unchecked.
    pub(crate) fn new(inner: Arc<ahbm_program::Program>, machine: &Machine, calls: u64) -> Self {
        Self { inner, machine: Arc::clone(&machine.inner), given: machine.clone(), calls, later: Vec::new() }
    }

    fn linted(self, py: Python<'_>) -> PyResult<Self> {
        interruptible(py, || {
            let findings = ahbm_program::lint(&self.inner, &self.machine);
            if findings.is_empty() { Ok(()) } else { Err(findings) }
        })?;
        Ok(self)
    }
}
