//! When everything happened, and why.

use crate::errors;
use crate::given::{Given, Wanted, given, wanted, within};
use crate::interrupt::interruptible;
use ahbm_emulator::inspect::{Phase, State};
use ahbm_emulator::{Category, Detail, LinkUse, NEVER, Segment, Span};
use ahbm_findings::Diagnostic;
use ahbm_program::AgentId;
use ahbm_views::credit::Chunks;
use ahbm_views::timeline_file::Format;
use ahbm_views::tracks::{self, Flow, Slice, Tracks};
use ahbm_wire::store::{Output, store};
use numpy::{Element, PyArray1};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

type Column<'py, T> = Bound<'py, PyArray1<T>>;
type Columns<'py> = (
    Column<'py, u32>,
    Column<'py, u32>,
    Column<'py, u8>,
    Column<'py, u32>,
    Column<'py, u32>,
    Column<'py, u64>,
    Column<'py, u64>,
);

type Intervals<'py> = (Column<'py, u32>, Column<'py, u8>, Column<'py, u64>, Column<'py, u64>);

/// Number, name, until when in ps, agent, operation.
type Busy = (u32, String, u64, u32, u32);

/// Number, name, busy ps, crossings, waits, waited ps.
type Used = (u32, String, u64, u64, u64, u64);

/// Operation, its start and end in ps (None: never), what the agent does, a number that goes with that, and the operations
/// that it waits for (agent, operation).
type Doing = (u32, u64, Option<u64>, &'static str, u64, Vec<(u32, u32)>);
/// A message: the operation that sent it, when that was over in ps, bytes, and the posted receive that claims it.
type Message = (u32, u64, u64, Option<u32>);
/// A queue: sender, receiver, slots, free ones, messages sent, messages received, and those in it.
type Queue = (u32, u32, u32, u32, u64, u64, Vec<Message>);
/// All agents, queues, and counters.
type AllAt = (Vec<Option<Doing>>, Vec<Queue>, Vec<u64>);

/// Names of tracks, each with the position of the one it stands in; names and origins of slices; and the slices as
/// columns: track, name, origin, depth, message, part in it, start, end.
pub(crate) type AllTracks<'py> = (
    Vec<(String, Option<u32>)>,
    Vec<String>,
    Vec<String>,
    (
        Column<'py, u32>,
        Column<'py, u32>,
        Column<'py, u32>,
        Column<'py, u8>,
        Column<'py, u32>,
        Column<'py, u8>,
        Column<'py, u64>,
        Column<'py, u64>,
    ),
);

/// Tracks as Python has them: what is none is `u32::MAX`.
pub(crate) fn as_columns(py: Python<'_>, tracks: Tracks) -> AllTracks<'_> {
    let part = |s: &Slice| match (s.flow, s.carries) {
        (Flow::Out(number), _) => (number, 1),
        (Flow::In(number), _) => (number, 2),
        (Flow::With(number), _) => (number, 3),
        (Flow::None, Some(number)) => (number, 4),
        (Flow::None, None) => (u32::MAX, 0),
    };
    let slices = &tracks.slices;
    let columns = (
        column(py, slices, |s| s.track),
        column(py, slices, |s| s.name),
        column(py, slices, |s| tracks.shown_origin(s).unwrap_or(u32::MAX)),
        column(py, slices, |s| s.depth),
        column(py, slices, |s| part(s).0),
        column(py, slices, |s| part(s).1),
        column(py, slices, |s| s.start),
        column(py, slices, |s| s.end),
    );
    let named = tracks.tracks.into_iter().map(|track| (track.name, track.parent)).collect();
    (named, tracks.names.into_iter().collect(), tracks.origins, columns)
}

/// Parts of a run that `Timeline.link_load` takes.
const MOST_FRAMES: u32 = 1000;

/// Names of what time is spent on, in the order of the numbers in `Timeline.critical_path`.
#[pyfunction]
pub(crate) fn categories() -> Vec<&'static str> {
    Category::ALL.map(Category::name).to_vec()
}

/// Raises `ConfigError` (AHBM-C149) unless a timeline can be written to a file of this name.
#[pyfunction]
pub(crate) fn check_timeline_name(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    Format::of(&path).map(|_| ()).map_err(|finding| errors::raise_one(py, finding))
}

/// Row (its name in its groups' names), name, origin, start and end in ps, and in a message its number and whether it
/// is sent.
type Stretch = (Vec<String>, String, String, u64, u64, Option<(u32, bool)>);

/// Writes a job's operations as a timeline to look at: for Perfetto (`.pftrace`), or as Chrome's trace-event JSON
/// (`.json`).
///
/// A stretch is the row it stands in (its name in its groups' names), a name, an origin, start and end in ps, and the
/// number of its message and whether that is sent, or None. Stretches of a row that overlap get rows of their own.
/// Raises `ConfigError` (AHBM-C149) for other names, `BudgetError` (AHBM-B122) for a job too long to show,
/// `FormatError` (AHBM-F102) for a file that cannot be written.
#[pyfunction]
pub(crate) fn write_job_timeline(py: Python<'_>, path: PathBuf, name: &str, stretches: Vec<Stretch>) -> PyResult<()> {
    let stretch = |(row, name, origin, start, end, message): Stretch| {
        let flow = match message {
            None => Flow::None,
            Some((number, true)) => Flow::Out(number),
            Some((number, false)) => Flow::In(number),
        };
        tracks::Stretch { row, name, origin, start, end, flow }
    };
    let write = || {
        let format = Format::of(&path)?;
        let tracks = Tracks::of_job(name, stretches.into_iter().map(stretch).collect())?;
        store(&[Output { path, bytes: format.render(&tracks) }])
    };
    interruptible(py, || write().map_err(|finding| vec![finding]))
}

/// When everything happened. Times are integer picoseconds from the common launch time.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Timeline {
    pub(crate) inner: ahbm_emulator::Timeline,
    pub(crate) program: Arc<ahbm_program::Program>,
    pub(crate) machine: Arc<ahbm_machine::Machine>,
}

wanted! { Bound<'_, Timeline>: "a Timeline" }

#[pymethods]
impl Timeline {
    /// Latency of the launch: the last agent's end; of a deadlock, the last progress.
    #[getter]
    fn latency_ps(&self) -> u64 {
        self.inner.latency
    }

    /// The DeadlockError that the run ended in; None when it came to its end (see `Program.simulate`).
    #[getter]
    fn deadlock(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let finding = self.inner.stuck.as_deref()?;
        Some(errors::raise_one(py, finding.clone()).into_value(py).into_any())
    }

    /// Messages delivered.
    #[getter]
    fn messages(&self) -> u64 {
        self.inner.messages
    }

    /// Payload bytes delivered by messages.
    #[getter]
    fn bytes(&self) -> u64 {
        self.inner.bytes
    }

    /// Engine events processed.
    #[getter]
    fn events(&self) -> u64 {
        self.inner.events
    }

    /// Digest of every operation's times; equal inputs give equal digests on every machine.
    #[getter]
    fn hash(&self) -> u64 {
        self.inner.hash
    }

    /// End time of every agent, in the order they were added.
    #[getter]
    fn ends_ps(&self) -> Vec<u64> {
        self.inner.ends.clone()
    }

    /// Start (dispatch included) and end of every operation of an agent in issue order: two arrays of u64, ps.
    ///
    /// Raises `ConfigError` (AHBM-C129), `DataError` (AHBM-V124) for a timeline that did not record them.
    fn spans<'py>(&self, py: Python<'py>, agent: Given<usize>) -> PyResult<(Column<'py, u64>, Column<'py, u64>)> {
        given!(agent);
        within("agent", agent, self.inner.ends.len())?;
        let Some(spans) = self.inner.spans.get(agent) else {
            let what = "the timeline did not record when operations ran";
            return Err(errors::raise_one(py, Diagnostic::new("AHBM-V124", what).hint("simulate with record=True")));
        };
        let times = |of: fn(&Span) -> u64| PyArray1::from_vec(py, spans.iter().map(of).collect());
        Ok((times(|span| span.start), times(|span| span.end)))
    }

    /// The critical path, from launch to the last agent's end: abutting stretches as seven arrays of shape (n,).
    ///
    /// agent, operation (u32), index into `categories()` (u8), link (u32, 2**32 - 1: none), line of the operation
    /// (u32, equal numbers are equal lines), start and end (u64, ps). Raises `DataError` (AHBM-V123) without detail.
    fn critical_path<'py>(&self, py: Python<'py>) -> PyResult<Columns<'py>> {
        let detail = self.detail(py)?;
        let path = py.detach(|| detail.critical_path());
        let lines = py.detach(|| self.program.origins.lines());
        let line = |s: &Segment| {
            let origin = self.program.body(s.agent).origins.get(s.op as usize);
            origin.map_or(u32::MAX, |origin| lines[origin.0 as usize])
        };
        Ok((
            column(py, &path, |s| s.agent.0),
            column(py, &path, |s| s.op),
            column(py, &path, |s| s.category as u8),
            column(py, &path, |s| s.link.map_or(u32::MAX, |l| l.0)),
            column(py, &path, line),
            column(py, &path, |s| s.start),
            column(py, &path, |s| s.end),
        ))
    }

    /// What each chunk that a rank sends another has of the critical path, in ps: u64 of shape (chunks,), in the order of
    /// their senders' ranks, agents and operations. A chunk has the time of the operations that move and that take it;
    /// what computes has none, so the sum is the latency or less. A receive from anybody counts for the chunk that it
    /// would take without time.
    ///
    /// Raises `DataError` (AHBM-V123) without detail, `DeadlockError` (AHBM-D201) for a program that gets stuck.
    fn chunks_ps<'py>(&self, py: Python<'py>) -> PyResult<Column<'py, u64>> {
        let detail = self.detail(py)?;
        let found = interruptible(py, || {
            let chunks = Chunks::of(&self.program, &self.machine).map_err(|finding| vec![finding])?;
            Ok(chunks.credit(&detail.critical_path()))
        })?;
        Ok(PyArray1::from_vec(py, found))
    }

    /// An agent's time from the launch to the end of the run: abutting intervals as four arrays of shape (n,).
    ///
    /// Operation (u32; after the agent's end the last one), index into `categories()` (u8), start and end (u64, ps).
    /// Raises `ConfigError` (AHBM-C129), `DataError` (AHBM-V123) without detail.
    fn intervals<'py>(&self, py: Python<'py>, agent: Given<usize>) -> PyResult<Intervals<'py>> {
        given!(agent);
        within("agent", agent, self.inner.ends.len())?;
        let found = self.detail(py)?.intervals(AgentId(agent as u32));
        Ok((
            column(py, &found, |i| i.op),
            column(py, &found, |i| i.category as u8),
            column(py, &found, |i| i.start),
            column(py, &found, |i| i.end),
        ))
    }

    /// Per agent the time from the launch to the end of the run by category, as an array of shape (agents * categories,), u64 ps.
    ///
    /// Raises `DataError` (AHBM-V123) without detail.
    fn agent_time<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u64>>> {
        let detail = self.detail(py)?;
        let time = py.detach(|| detail.agent_time().concat());
        Ok(PyArray1::from_vec(py, time))
    }

    /// Every link that was used, the one most waited for first: number, name, busy ps, messages that crossed it (flits,
    /// under the flit model), those of them that waited for another, and the sum of their waits in ps.
    ///
    /// Raises `DataError` (AHBM-V123) without detail.
    fn link_use(&self, py: Python<'_>) -> PyResult<Vec<Used>> {
        let detail = self.detail(py)?;
        let named = |l: LinkUse| (l.link.0, self.machine.link_name(l.link), l.busy, l.crossed, l.waits, l.waited);
        Ok(py.detach(|| detail.link_use().into_iter().map(named).collect()))
    }

    /// How busy links are over time: number, name, and busy ps in each of `frames` equal parts of the run.
    ///
    /// Raises `ConfigError` (AHBM-C129), `DataError` (AHBM-V123) without detail.
    fn link_load(&self, py: Python<'_>, frames: Given<u32>) -> PyResult<Vec<(u32, String, Vec<u64>)>> {
        given!(frames);
        let detail = self.detail(py)?;
        if !(1..=MOST_FRAMES).contains(&frames) {
            return Err(errors::raise_one(
                py,
                Diagnostic::new("AHBM-C129", format!("frames is 1 to {MOST_FRAMES}, not {frames}")),
            ));
        }
        let load = py.detach(|| detail.link_load(frames));
        let named = detail.links.iter().zip(load);
        Ok(named.map(|(&link, load)| (link.0, self.machine.link_name(link), load)).collect())
    }

    /// The links that are busy at `at` ps: number, name, until when in ps, and with whose operation (agent, operation).
    ///
    /// Raises `DataError` (AHBM-V123) without detail.
    fn busy_links(&self, py: Python<'_>, at: Given<u64>) -> PyResult<Vec<Busy>> {
        given!(at);
        let detail = self.detail(py)?;
        let busy = py.detach(|| detail.busy_links(at)).into_iter();
        Ok(busy.map(|(link, end, agent, op)| (link.0, self.machine.link_name(link), end, agent.0, op)).collect())
    }

    /// The state of the run at `at` ps; effects at that very time have happened.
    ///
    /// Per agent, None without operations, or: its operation (the last one at the end), its start and end in ps (None for
    /// an operation that a deadlock keeps from its end), what it does (works, ended, or what it waits for: message, slot, counter, barrier), the value of the counter or how many
    /// have arrived at the barrier, and the operations that it waits for (agent, operation). Per queue: sender, receiver,
    /// slots, free slots, messages sent and received until then, and those in it (operation that sent it, since when in
    /// ps, bytes, the posted receive that claims it). The value of every counter. Raises `DataError` (AHBM-D191) for a
    /// timeline that was not recorded.
    fn state(&self, py: Python<'_>, at: Given<u64>) -> PyResult<AllAt> {
        given!(at);
        let found = interruptible(py, || State::at(&self.program, &self.inner, at).map_err(|finding| vec![finding]))?;
        let agents = found.agents.into_iter().map(|doing| {
            let doing = doing?;
            let (phase, number) = match doing.phase {
                Phase::Works => ("works", 0),
                Phase::Message => ("message", 0),
                Phase::Slot => ("slot", 0),
                Phase::Counter(value) => ("counter", value),
                Phase::Barrier(arrived) => ("barrier", arrived.into()),
                Phase::Ended => ("ended", 0),
            };
            let by = doing.by.into_iter().map(|(agent, op)| (agent.0, op)).collect();
            let end = Some(doing.span.end).filter(|&end| end != NEVER);
            Some((doing.op, doing.span.start, end, phase, number, by))
        });
        let queues = found.queues.into_iter().zip(&self.program.channels).map(|(queue, channel)| {
            let held = queue.held.into_iter().map(|m| (m.op, m.since, m.bytes, m.claimed)).collect();
            (channel.sender.0, channel.receiver.0, channel.slots, queue.free, queue.sent, queue.received, held)
        });
        Ok((agents.collect(), queues.collect(), found.counters))
    }

    /// What a timeline file of the run shows, as columns.
    ///
    /// Tracks by name, each with the position of the track that it stands in; the names and the origins of slices; and
    /// per slice: track, name, origin (u32, 2**32 - 1: none), depth (u8; 1 stands inside the last one of its track with
    /// 0), message (u32, 2**32 - 1: none), its part in that (u8; 1 sends it, 2 reads it, 3 is one of several that are
    /// joined, 4 is a resource that it occupies), start and end (u64, ps). Slices of one track are in order of time.
    /// Raises `DataError` (AHBM-V123) without detail, `BudgetError` (AHBM-B122) for a run too long to show.
    fn tracks<'py>(&self, py: Python<'py>) -> PyResult<AllTracks<'py>> {
        let make = || Tracks::of(&self.program, &self.machine, &self.inner).map_err(|finding| vec![finding]);
        Ok(as_columns(py, interruptible(py, make)?))
    }

    /// Writes the run as a timeline to look at: for Perfetto (`.pftrace`), or as Chrome's trace-event JSON (`.json`).
    ///
    /// Returns the number of slices. The interpreter lock is released meanwhile. Raises `ConfigError` (AHBM-C149) for
    /// other names, `DataError` (AHBM-V123) without detail, `BudgetError` (AHBM-B122) for a run too long to show,
    /// `FormatError` (AHBM-F102) for a file that cannot be written.
    fn write(&self, py: Python<'_>, path: Given<PathBuf>) -> PyResult<usize> {
        given!(path);
        let write = || {
            let format = Format::of(&path)?;
            let tracks = Tracks::of(&self.program, &self.machine, &self.inner)?;
            store(&[Output { path, bytes: format.render(&tracks) }])?;
            Ok(tracks.slices.len())
        };
        interruptible(py, || write().map_err(|finding| vec![finding]))
    }

    fn __repr__(&self) -> String {
        format!("<timeline of {}: {} ps, {} messages>", self.program.name, self.inner.latency, self.inner.messages)
    }
}

impl Timeline {
    /// `AHBM-V120` for a timeline of another program.
    pub(crate) fn is_of(&self, program: &Arc<ahbm_program::Program>) -> Result<(), Diagnostic> {
        if Arc::ptr_eq(program, &self.program) {
            return Ok(());
        }
        Err(Diagnostic::new("AHBM-V120", "the timeline belongs to another program"))
    }

    fn detail(&self, py: Python<'_>) -> PyResult<&Detail> {
        self.inner.detail.as_deref().ok_or_else(|| {
            let finding = Diagnostic::new("AHBM-V123", "the timeline was recorded without detail");
            errors::raise_one(py, finding.hint("simulate(detail=True)"))
        })
    }
}

fn column<'py, R, T: Element>(py: Python<'py>, rows: &[R], of: impl Fn(&R) -> T) -> Column<'py, T> {
    PyArray1::from_vec(py, rows.iter().map(of).collect())
}
