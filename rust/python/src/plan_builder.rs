//! Writes a plan step by step.

use crate::formats::{PyDocument, budget};
use crate::given::{Given, given};
use crate::interrupt::interruptible;
use crate::origin::Here;
use crate::{errors, operand};
use ahbm_findings::Diagnostic;
use ahbm_plan::blocks::{Action, Slot};
use ahbm_plan::{Collective, Goal, Protocol, Space, StepSpec};
use ahbm_program::{Locus, Origin};
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// A buffer and a chunk of it.
type Chunk = (String, u32);

/// The place at which something is written: a file and a line.
type Place = (String, u32);

/// Writes a `Plan` for `ranks` ranks. The larger of operand and result has `chunks` chunks.
///
/// `collective` is one of `collectives()` but barrier, `"all_to_next"`, or `"custom"` for what no check can know;
/// in a send_recv every rank sends to the rank `shift` after it. `scratch`
/// chunks belong to every rank; `custom` plans also say how large `input` and `output` are. `limits` are those of
/// `read_plan`. Thread blocks, steps and copies remember the caller's line, or the `place` (file, line) they are given:
/// findings name it. Raises `ConfigError` (AHBM-C205, C120, C210), `FormatError` (AHBM-F119), `BudgetError`.
#[pyclass(frozen, module = "ahbm._core")]
pub struct PlanBuilder {
    state: Mutex<Option<ahbm_plan::PlanBuilder>>,
    budget: ahbm_plan::Budget,
}

#[pymethods]
impl PlanBuilder {
    #[new]
    #[pyo3(
        signature = (name, collective, *, ranks, chunks, root=Given::ok(0), shift=Given::ok(1),
            in_place=Given::ok(false), protocol=Given::ok("Simple"), input=Given::ok(0), output=Given::ok(0),
            scratch=Given::ok(0), limits=Given::ok(Vec::new()), place=Given::ok(None)),
        text_signature = "(name, collective, *, ranks, chunks, root=0, shift=1, in_place=False, protocol='Simple', \
                          input=0, output=0, scratch=0, limits=(), place=None)"
    )]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn new(
        py: Python<'_>,
        name: Given<&str>,
        collective: Given<&str>,
        ranks: Given<u32>,
        chunks: Given<u32>,
        root: Given<u32>,
        shift: Given<u32>,
        in_place: Given<bool>,
        protocol: Given<&str>,
        input: Given<u32>,
        output: Given<u32>,
        scratch: Given<u32>,
        limits: Given<Vec<(String, u64)>>,
        place: Given<Option<Place>>,
    ) -> PyResult<Self> {
        given!(name, collective, ranks, chunks, root, shift, in_place, protocol, input, output, scratch, limits, place);
        let at = origin(py, place)?;
        let make = || -> Result<Self, Diagnostic> {
            let goal = goal(collective, root, shift).map_err(|fault| *fault)?;
            let budget = budget(&limits)?;
            let mut builder = ahbm_plan::PlanBuilder::new(name, goal, ranks, chunks, budget, at)?;
            if in_place {
                builder.in_place();
            }
            builder.protocol(Protocol::parse(protocol).ok_or_else(|| {
                *operand::unknown("AHBM-C210", "protocol", protocol, &Protocol::ALL.map(Protocol::name))
            })?);
            for rank in 0..ranks {
                builder.declare(rank, [input, output, scratch])?;
            }
            Ok(Self { state: Mutex::new(Some(builder)), budget })
        };
        make().map_err(|finding| errors::raise_one(py, finding))
    }

    /// A thread block of `rank`, which may send to one rank and receive from one, over a channel; returns its id.
    ///
    /// One thread block sends, and one receives, on each channel between two ranks. Raises `ConfigError` (AHBM-C120).
    #[pyo3(signature = (rank, *, send=Given::ok(None), recv=Given::ok(None), channel=Given::ok(0),
            place=Given::ok(None)),
           text_signature = "($self, rank, *, send=None, recv=None, channel=0, place=None)")]
    fn thread_block(
        &self,
        py: Python<'_>,
        rank: Given<u32>,
        send: Given<Option<u32>>,
        recv: Given<Option<u32>>,
        channel: Given<u32>,
        place: Given<Option<Place>>,
    ) -> PyResult<u32> {
        given!(rank, send, recv, channel, place);
        let at = origin(py, place)?;
        self.with(py, |plan| plan.block(rank, send, recv, channel, at).map(u32::from))
    }

    /// The next step of a thread block; returns its id.
    ///
    /// `action` is a step type of MSCCL-IR: s, r, rcs, rrc, rrs, rrcs, cpy, re, nop. `src` and `dst` are a buffer
    /// (i, o or s for scratch) and a chunk; without one of them both are the same. `after` are steps of the rank's other
    /// thread blocks that have to have run. Raises `UnsupportedError` (AHBM-U201), `ConfigError` (AHBM-C203, C204),
    /// `FormatError` (AHBM-F115).
    #[pyo3(signature = (thread_block, action, src=Given::ok(None), dst=Given::ok(None), *, count=Given::ok(1),
            after=Given::ok(Vec::new()), place=Given::ok(None)),
           text_signature = "($self, thread_block, action, src=None, dst=None, *, count=1, after=(), place=None)")]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn step(
        &self,
        py: Python<'_>,
        thread_block: Given<u32>,
        action: Given<&str>,
        src: Given<Option<Chunk>>,
        dst: Given<Option<Chunk>>,
        count: Given<u32>,
        after: Given<Vec<u32>>,
        place: Given<Option<Place>>,
    ) -> PyResult<u32> {
        given!(thread_block, action, src, dst, count, after, place);
        let at = origin(py, place)?;
        self.with(py, |plan| {
            let Some(action) = Action::ALL.into_iter().find(|known| known.name() == action) else {
                return Err(*operand::unknown("AHBM-U201", "step type", action, &Action::ALL.map(Action::name)));
            };
            let (src, dst) = (slot(src)?, slot(dst)?);
            let first = Slot { space: Space::Input, chunk: 0 };
            let spec = StepSpec {
                action,
                src: src.or(dst).unwrap_or(first),
                dst: dst.or(src).unwrap_or(first),
                count,
                after: after.into_iter().map(Into::into).collect(),
            };
            plan.step(thread_block.into(), &spec, at).map(u32::from)
        })
    }

    /// A copy of `count` chunks from input to output that no thread block does: before all of them start, or, `after`,
    /// once all have ended. In place nothing happens. Raises `ConfigError` (AHBM-C120).
    #[pyo3(signature = (rank, input, output, count=Given::ok(1), *, after=Given::ok(false), place=Given::ok(None)),
           text_signature = "($self, rank, input, output, count=1, *, after=False, place=None)")]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn copy(
        &self,
        py: Python<'_>,
        rank: Given<u32>,
        input: Given<u32>,
        output: Given<u32>,
        count: Given<u32>,
        after: Given<bool>,
        place: Given<Option<Place>>,
    ) -> PyResult<()> {
        given!(rank, input, output, count, after, place);
        let at = origin(py, place)?;
        self.with(py, |plan| plan.copy(rank, [input, output, count], after, at))
    }

    /// The plan. Raises `FormatError` (AHBM-F115 to F119) for one that cannot be followed; either way nothing can be
    /// added any more.
    fn finish(&self, py: Python<'_>) -> PyResult<PyDocument> {
        let builder = self.state.lock().unwrap_or_else(PoisonError::into_inner).take();
        let builder = builder.ok_or_else(|| errors::raise_one(py, finished()))?;
        interruptible(py, || builder.finish()).map(|plan| PyDocument::authored(plan, self.budget))
    }
}

impl PlanBuilder {
    /// Runs `work` on the unfinished plan.
    fn with<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut ahbm_plan::PlanBuilder) -> Result<T, Diagnostic>,
    ) -> PyResult<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = state.as_mut().ok_or_else(finished).and_then(work);
        drop(state);
        outcome.map_err(|finding| errors::raise_one(py, finding))
    }
}

fn finished() -> Diagnostic {
    Diagnostic::new("AHBM-C201", "the plan is finished").hint("make a new PlanBuilder")
}

fn goal(name: &str, root: u32, shift: u32) -> Result<Goal, operand::Fault> {
    match name {
        "custom" => Ok(Goal::Custom),
        "all_to_next" => Ok(Goal::AllToNext),
        "send_recv" => Ok(Goal::SendRecv { shift }),
        _ => Collective::parse(name).map(|collective| Goal::new(collective, root)).ok_or_else(|| {
            let names = Collective::ALL.map(|known| known.0);
            operand::unknown(
                "AHBM-C205",
                "collective",
                name,
                &[&names[..], &["send_recv", "all_to_next", "custom"]].concat(),
            )
        }),
    }
}

fn slot(chunk: Option<Chunk>) -> Result<Option<Slot>, Diagnostic> {
    let Some((name, chunk)) = chunk else { return Ok(None) };
    let spaces = [Space::Input, Space::Output, Space::Scratch];
    match spaces.into_iter().find(|space| space.name() == name) {
        Some(space) => Ok(Some(Slot { space, chunk })),
        None => Err(*operand::unknown("AHBM-C203", "buffer", &name, &spaces.map(Space::name))),
    }
}

/// The place that was given, or the caller's line.
fn origin(py: Python<'_>, place: Option<Place>) -> PyResult<Origin> {
    match place {
        Some((file, line)) => Ok(Origin { file: file.into(), locus: Locus::Line(line) }),
        None => Ok(Here::now(py)?.origin()),
    }
}
