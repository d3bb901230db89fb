//! Jobs: what the ranks of a program compute and call, and when all of it happens.

use crate::errors;
use crate::interrupt::interruptible;
use crate::logs::{self, Part};
use crate::machine::Machine;
use crate::program::Program;
use ahbm_emulator::Options;
use ahbm_emulator::job::{self, Launch};
use ahbm_findings::Diagnostic;
use ahbm_program::job::Step;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use std::sync::Arc;

/// A collective of a recorded job, or a send and its receive.
#[pyclass(frozen, get_all, module = "ahbm._core")]
pub struct JobCall {
    /// Name; `"send_recv"` for a send.
    pub(crate) collective: String,
    /// Name of its process group, `""` where the trace names none.
    pub(crate) group: String,
    /// Name of its node at the first of its ranks.
    pub(crate) node: String,
    /// Its ranks in the order of the group; of a send, sender and receiver.
    pub(crate) ranks: Vec<u32>,
    /// One chunk for all_gather and gather, else all that a rank has.
    pub(crate) bytes: u64,
    /// Longest chunk of an all_to_all in elements, where the trace says how it is split.
    pub(crate) longest: Option<u64>,
    /// Elements that the ranks have for each other, where that is not the same: of an all_to_all a row per rank, else
    /// one row. In the order of `ranks`.
    pub(crate) shares: Option<Vec<Vec<u64>>>,
    /// The rows are sums, spread in proportion.
    pub(crate) spread: bool,
    /// Ranks of an all_to_all state other bytes or longest chunks, and not how much each has for each.
    pub(crate) uneven: bool,
    /// Element type, where the trace has one.
    pub(crate) dtype: Option<String>,
    /// Reduction operator, where the trace has one.
    pub(crate) op: Option<String>,
    /// Global rank of the root, where the trace has one.
    pub(crate) root: Option<u32>,
    /// Position of the first call that says the same of the same ranks.
    pub(crate) alike: u32,
    /// How many calls of the job it is: itself, and its copies among ranks that are copies of these.
    pub(crate) copies: u32,
    /// The place at which it was written.
    pub(crate) origin: String,
}

/// When everything in a job happened; picoseconds from its start.
#[pyclass(frozen, get_all, module = "ahbm._core")]
pub struct JobTimes {
    /// Per launch, the common start of its agents.
    starts_ps: Vec<u64>,
    /// Per launch, the end of the last of them.
    ends_ps: Vec<u64>,
    /// Per host, when its last step was over.
    hosts_ps: Vec<u64>,
    /// Per host, its time at each arrival.
    entered_ps: Vec<Vec<u64>>,
    /// Per host, start and end of every step it computed in.
    computed_ps: Vec<Vec<(u64, u64)>>,
    /// Launches that overlapped others, so that they were simulated together.
    together: usize,
}

/// The computations of hosts, the launches they enter and those they wait for. Immutable.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Job {
    hosts: Vec<(u32, Vec<Step>)>,
    after: Vec<Option<u32>>,
}

#[pymethods]
impl Job {
    /// A job of hosts, host r of rank r, that take their steps in order. A step is a u64: its two lowest bits are 0 to
    /// compute for as many picoseconds as the others say, 1 to arrive at the launch of that number, 2 to wait for its
    /// end. A launch starts when all hosts that arrive at it have, and the launch of `after` has ended.
    ///
    /// Raises `DataError` (AHBM-V125) for other steps and for launches that `after` has no entry for.
    #[new]
    fn new(py: Python<'_>, hosts: Vec<PyReadonlyArray1<'_, u64>>, after: Vec<Option<u32>>) -> PyResult<Self> {
        let wrong = |what: String| errors::raise_one(py, Diagnostic::new("AHBM-V125", what));
        let known = |launch: u64| match u32::try_from(launch) {
            Ok(launch) if (launch as usize) < after.len() => Ok(launch),
            _ => Err(wrong(format!("there is no launch {launch} of {}", after.len()))),
        };
        let step = |&step: &u64| match step & 3 {
            0 => Ok(Step::Advance(step >> 2)),
            1 => known(step >> 2).map(Step::Arrive),
            2 => known(step >> 2).map(Step::Wait),
            _ => Err(wrong(format!("there is no step {step}"))),
        };
        let steps = |host: &PyReadonlyArray1<'_, u64>| host.as_array().iter().map(step).collect::<PyResult<_>>();
        let hosts = (0..).zip(&hosts).map(|(rank, host)| Ok((rank, steps(host)?))).collect::<PyResult<_>>()?;
        after.iter().flatten().try_for_each(|&launch| known(launch.into()).map(|_| ()))?;
        Ok(Self { hosts, after })
    }

    /// The rank of every host; in a trace, independent chains of a rank's nodes are hosts of their own.
    #[getter]
    fn ranks(&self) -> Vec<u32> {
        self.hosts.iter().map(|(rank, _)| *rank).collect()
    }

    /// Number of launches.
    #[getter]
    fn launches(&self) -> usize {
        self.after.len()
    }

    /// When everything happens, given per launch its program and the time in ps that it takes alone, None where nothing
    /// runs.
    ///
    /// Launches that overlap in time are simulated together on `machine` and contend for its links and engines; the
    /// interpreter lock is released meanwhile. Raises `DeadlockError` (AHBM-D102) when hosts wait for each other,
    /// `DataError` (AHBM-V125) unless there is an entry per launch, `BudgetError`, and KeyboardInterrupt.
    #[pyo3(signature = (machine, programs, *, max_events=Options::default().max_events))]
    fn times(
        &self,
        py: Python<'_>,
        machine: &Machine,
        programs: Vec<Option<(PyRef<'_, Program>, u64)>>,
        max_events: u64,
    ) -> PyResult<JobTimes> {
        self.check_count(py, programs.len())?;
        logs::refresh(py, &[Part::Engine]);
        let times: Vec<u64> = programs.iter().map(|entry| entry.as_ref().map_or(0, |(_, ps)| *ps)).collect();
        let made = programs.iter().map(|entry| entry.as_ref().map(|(program, _)| &**program));
        let programs = with_costs(py, machine, made)?;
        let times = interruptible(py, || {
            let timed = programs.iter().zip(&times);
            let programs = timed.map(|(program, ps)| program.as_ref().map(|program| (&**program, *ps)));
            let launches: Vec<_> =
                programs.zip(&self.after).map(|(program, &after)| Launch { program, after }).collect();
            let hosts: Vec<_> = self.hosts.iter().map(|(_, steps)| &steps[..]).collect();
            let options = Options { max_events, ..Options::default() };
            job::schedule(&hosts, &launches, &machine.inner, &options).map_err(|finding| vec![finding])
        })?;
        Ok(JobTimes {
            starts_ps: times.launches.iter().map(|span| span.start).collect(),
            ends_ps: times.launches.iter().map(|span| span.end).collect(),
            hosts_ps: times.hosts,
            entered_ps: times.entered,
            computed_ps: times.computed.iter().map(|spans| spans.iter().map(|s| (s.start, s.end)).collect()).collect(),
            together: times.together,
        })
    }
}

impl Job {
    fn check_count(&self, py: Python<'_>, programs: usize) -> PyResult<()> {
        if programs == self.after.len() {
            return Ok(());
        }
        let what = format!("{programs} programs for {} launches", self.after.len());
        Err(errors::raise_one(py, Diagnostic::new("AHBM-V125", what)))
    }
}

/// The programs of a job on `machine`, none where nothing runs: each with the costs of its call.
///
/// # Errors
/// `AHBM-V125` for programs of other machines.
pub(crate) fn with_costs<'a>(
    py: Python<'_>,
    machine: &Machine,
    programs: impl Iterator<Item = Option<&'a Program>>,
) -> PyResult<Vec<Option<Arc<ahbm_program::Program>>>> {
    let hash = machine.inner.hash();
    let mut other = None;
    let programs: Vec<_> = programs
        .map(|program| {
            let program = program?;
            if !Arc::ptr_eq(&program.machine, &machine.inner) && program.machine.hash() != hash {
                other.get_or_insert(&program.inner.name);
            }
            Some((&program.inner, program.machine.call()))
        })
        .collect();
    let made = match other {
        Some(name) => Err(Diagnostic::new("AHBM-V125", format!("{name} was made for another machine"))),
        None => ahbm_program::job::with_costs(programs.into_iter()),
    };
    made.map_err(|finding| errors::raise_one(py, finding))
}
