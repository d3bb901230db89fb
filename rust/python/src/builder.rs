//! Writes a program: groups, buffers, captured bodies, agents.

use crate::classes::Everywhere;
use crate::draft::{Draft, Subject};
use crate::errors;
use crate::given::{Given, given};
use crate::interrupt::interruptible;
use crate::logs::{self, Part};
use crate::machine::Machine;
use crate::network;
use crate::operand;
use crate::program::Program;
use ahbm_findings::Diagnostic;
use ahbm_machine::{Coord, Node, Sfr};
use ahbm_program::class::View;
use ahbm_program::{BufferId, ChannelSettings};
use log::debug;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// `tl` calls that a launch may make at all places, where nothing else is said.
const ALL_OPS: u64 = 1 << 32;

/// Writes a `Program` for one machine.
///
/// `n_slots` messages of `slot_bytes` (None: the largest message of each queue) fit a queue; slots live in the
/// memory `tier`; credits are messages of `credit_bytes`. A kernel may make `op_budget` `tl` calls, and a
/// launch at all places together `all_ops`.
/// Raises `ConfigError` for an unknown tier.
#[pyclass(frozen, module = "ahbm._core")]
pub struct ProgramBuilder {
    machine: Py<Machine>,
    settings: ChannelSettings,
    draft: Draft,
}

type Place = (u32, u32, u32);

fn coord((sip, cube, pe): Place) -> Coord {
    Coord { sip, cube, pe }
}

#[pymethods]
impl ProgramBuilder {
    #[new]
    #[pyo3(signature = (machine, name, *, n_slots, slot_bytes, tier, credit_bytes, op_budget, all_ops=Given::ok(ALL_OPS), call_lines=false),
           text_signature = "(machine, name, *, n_slots, slot_bytes, tier, credit_bytes, op_budget, all_ops=..., call_lines=False)")]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn new(
        py: Python<'_>,
        machine: Py<Machine>,
        name: String,
        n_slots: u32,
        slot_bytes: Option<u64>,
        tier: &str,
        credit_bytes: u64,
        op_budget: u64,
        all_ops: Given<u64>,
        call_lines: bool,
    ) -> PyResult<Self> {
        given!(all_ops);
        let tiers = &machine.get().inner.costs().tiers;
        let Some(tier) = tiers.get_index_of(tier) else {
            let names: Vec<&str> = tiers.keys().map(String::as_str).collect();
            return Err(errors::raise_one(py, *operand::unknown("AHBM-C202", "memory tier", tier, &names)));
        };
        let settings = ChannelSettings { slots: n_slots, slot_bytes, tier: tier as u32, credit_bytes };
        let builder = ahbm_program::ProgramBuilder::new(name);
        Ok(Self { machine, settings, draft: Draft::new(builder, op_budget, all_ops, call_lines) })
    }

    /// Opens a group of agents that see each other, over virtual coordinates; returns its id.
    ///
    /// Every default is the machine's own shape. `w`, `h`, `d` are the extents of a SIP grid (0: a square or
    /// cube of `sips`). Raises `TopologyError` when the shape does not work out.
    #[pyo3(signature = (*, topology=None, sips=None, w=0, h=0, d=0, cube_w=None, cube_h=None, pes=None))]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn group(
        &self,
        py: Python<'_>,
        topology: Option<&str>,
        sips: Option<u32>,
        w: u32,
        h: u32,
        d: u32,
        cube_w: Option<u32>,
        cube_h: Option<u32>,
        pes: Option<u32>,
    ) -> PyResult<u32> {
        let machine = &self.machine.get().inner;
        let own = machine.sfr();
        self.draft.with(py, |state| {
            let sips = sips.unwrap_or(own.sips);
            let network = match topology {
                None if (w, h, d) == (0, 0, 0) && sips == own.sips => own.network.clone(),
                None => network::by_name(machine.topology_name(), sips, (w, h, d))?,
                Some(name) => network::by_name(name, sips, (w, h, d))?,
            };
            let sfr = Sfr {
                network,
                sips,
                cube_w: cube_w.unwrap_or(own.cube_w),
                cube_h: cube_h.unwrap_or(own.cube_h),
                pes: pes.unwrap_or(own.pes),
            };
            sfr.validate()?;
            state.groups += 1;
            Ok(state.builder.group(sfr))
        })
    }

    /// A buffer of `nbytes` at a physical `(sip, cube, pe)`; returns its id.
    ///
    /// `space` is `"hbm"` (the PE's slice), `"tcm"` (the PE's own), `"sram"` (the cube's) or `"host"` (behind the
    /// SIP's I/O chiplet). Raises `TopologyError` for a place that is not on the machine.
    #[pyo3(signature = (place, nbytes, space="hbm"))]
    fn buffer(&self, py: Python<'_>, place: Place, nbytes: u64, space: &str) -> PyResult<u32> {
        self.draft.with(py, |state| {
            let pe = self.machine.get().place(place)?;
            let node = match space {
                "hbm" => Node::Hbm(pe),
                "tcm" => Node::Pe(pe),
                "sram" => Node::Sram(pe),
                "host" => Node::Io(place.0),
                _ => return Err(*operand::unknown("AHBM-C203", "space", space, &["hbm", "tcm", "sram", "host"])),
            };
            state.buffers += 1;
            Ok(state.builder.buffer(node, nbytes).0)
        })
    }

    /// Calls `kernel(*args, tl=tl)` once and records it; returns the id of its body. Equal bodies have one id.
    ///
    /// `coord` is the virtual `(sip, cube, pe)` the kernel sees, `num_programs` the extents of axes 0 (PEs) and 1
    /// (cubes). `views[i]` = (virtual address, bytes) is where the kernel finds the body's buffer `i`, which
    /// holds elements of `dtype`. That of SIP `s` in a call for several is buffer `(1 + s) * len(views) + i`. Raises `KernelError` or `BudgetError` with the kernel's file and line;
    /// KeyboardInterrupt and errors of `ahbm.errors` raised by the kernel pass through.
    #[allow(clippy::too_many_arguments)]
    fn capture(
        &self,
        py: Python<'_>,
        kernel: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        coord: Place,
        num_programs: (u32, u32),
        views: Vec<(u64, u64)>,
        dtype: &str,
    ) -> PyResult<u32> {
        let ranks = self.machine.get().inner.sfr().sips;
        let subject = self.subject(py, kernel, num_programs, ranks, views, dtype)?;
        let recorded = self.draft.record(py, &subject, self::coord(coord), None, |_| Ok(args.clone()))?;
        self.draft.with(py, |state| {
            state.calls += recorded.calls;
            let body = subject.body(recorded, self::coord(coord), &mut state.builder.origins);
            Ok(state.intern(body))
        })
    }

    /// Calls `kernel(*before, rank, *after, tl=tl)` for every cube of every rank, or for some that stand for the others,
    /// and returns the ids of the bodies: those of rank 0's cubes, then those of rank 1's, and so on.
    ///
    /// Virtual coordinates are `(rank, cube, 0)`; `views` and `dtype` are as in `capture`, and so are the bodies.
    /// `again` is the arguments for the calls that repeat one. With `by_class`, ranks and cubes that take the same path
    /// through the kernel are captured by one call, and one of them by a second call, which must record the same.
    ///
    /// Raises `KernelError` (AHBM-K216) with both lines when the kernel does something else the second time, and as
    /// `capture`.
    #[pyo3(signature = (kernel, before, again, after, ranks, cubes, views, dtype, *, by_class=true))]
    #[allow(clippy::too_many_arguments)]
    fn capture_all(
        &self,
        py: Python<'_>,
        kernel: &Bound<'_, PyAny>,
        before: &Bound<'_, PyTuple>,
        again: &Bound<'_, PyTuple>,
        after: &Bound<'_, PyTuple>,
        ranks: u32,
        cubes: u32,
        views: Vec<(u64, u64)>,
        dtype: &str,
        by_class: bool,
    ) -> PyResult<Vec<u32>> {
        let subject = self.subject(py, kernel, (1, cubes), ranks, views, dtype)?;
        let launch = Everywhere { draft: &self.draft, subject, before, again, after, ranks, cubes };
        let (bodies, calls) = launch.capture(py, by_class)?;
        self.draft.with(py, |state| {
            state.calls += calls;
            Ok(bodies.into_iter().map(|body| state.intern(body)).collect())
        })
    }

    /// Calls a kernel again, as `capture` did when it returned `body`, and compares; the program stays as it is.
    ///
    /// Raises `KernelError` (AHBM-K216) with both lines when the kernel does something else this time, and as `capture`.
    #[allow(clippy::too_many_arguments)]
    fn recapture(
        &self,
        py: Python<'_>,
        kernel: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        coord: Place,
        num_programs: (u32, u32),
        views: Vec<(u64, u64)>,
        dtype: &str,
        body: u32,
    ) -> PyResult<()> {
        let ranks = self.machine.get().inner.sfr().sips;
        let subject = self.subject(py, kernel, num_programs, ranks, views, dtype)?;
        let recorded = self.draft.record(py, &subject, self::coord(coord), None, |_| Ok(args.clone()))?;
        self.draft.with(py, |state| {
            let again = subject.body(recorded, self::coord(coord), &mut state.builder.origins);
            let Some(first) = state.builder.body_at(body) else {
                return Err(Diagnostic::new("AHBM-C204", format!("body {body} of {}", state.bodies.len())));
            };
            if *first == again {
                return Ok(());
            }
            Err(subject.unlike(self::coord(coord), [first, &again], &state.builder.origins))
        })
    }

    /// Adds an agent: the PE at physical `place` runs `body`, seen by its group at virtual `coord`.
    ///
    /// `buffers[i]` is the buffer behind the body's view `i`. Raises `TopologyError` for places and coordinates
    /// that do not exist, `LintError` when two agents of a group stand at one coordinate, `ConfigError` for
    /// ids this builder did not hand out.
    fn agent(
        &self,
        py: Python<'_>,
        group: u32,
        coord: Place,
        place: Place,
        body: u32,
        buffers: Vec<u32>,
    ) -> PyResult<()> {
        self.draft.with(py, |state| {
            if let Some(buffer) = buffers.iter().find(|&&buffer| buffer >= state.buffers) {
                let what = format!("buffer {buffer} of {}", state.buffers);
                return Err(Diagnostic::new("AHBM-C204", what).site(self::coord(coord).to_string(), ""));
            }
            let buffers: Vec<BufferId> = buffers.into_iter().map(BufferId).collect();
            state.agent(group, self::coord(coord), self.machine.get().place(place)?, body, &buffers)
        })
    }

    /// Adds the agents of a launch, those of rank 0's cubes first, and a buffer of `nbytes` for each of them in the HBM
    /// slice of its PE; returns the id of the first buffer, which the others follow in order of the agents.
    ///
    /// The agent that its group sees at `(rank, i, 0)` runs `bodies[rank * len(cubes) + i]` at the physical place of its
    /// rank, `cubes[i]` cubes further; the body's view `k` is the buffer of the rank's agent `k`. Raises as `agent`, and
    /// `TopologyError` (AHBM-T019) with the kernel's line for a call for several ranks between which no switch reduces.
    fn agents(
        &self,
        py: Python<'_>,
        group: u32,
        bodies: Vec<u32>,
        places: Vec<Place>,
        cubes: Vec<u32>,
        nbytes: u64,
    ) -> PyResult<u32> {
        self.draft.with(py, |state| {
            let first = state.buffers;
            if bodies.len() != places.len() * cubes.len() {
                let what = format!("{} bodies for {} ranks of {} cubes", bodies.len(), places.len(), cubes.len());
                return Err(Diagnostic::new("AHBM-C204", what));
            }
            let machine = self.machine.get();
            let mut pes = Vec::with_capacity(bodies.len());
            for &(sip, start, pe) in &places {
                for cube in &cubes {
                    pes.push(machine.place((sip, start.saturating_add(*cube), pe))?);
                }
            }
            let all: Vec<BufferId> = pes.iter().map(|&pe| state.builder.buffer(Node::Hbm(pe), nbytes)).collect();
            state.buffers += all.len() as u32;
            for ((rank, own), (pes, bodies)) in
                (0..).zip(all.chunks(cubes.len())).zip(pes.chunks(cubes.len()).zip(bodies.chunks(cubes.len())))
            {
                for ((cube, &pe), &body) in (0..).zip(pes).zip(bodies) {
                    let at = Coord { sip: rank, cube, pe: 0 };
                    if state.bodies.get(body as usize).is_some_and(|&views| views as usize > own.len()) {
                        state.check_groups(&machine.inner, at, body, &places, own.len())?;
                        state.agent(group, at, pe, body, &[own, &all].concat())?;
                    } else {
                        state.agent(group, at, pe, body, own)?;
                    }
                }
            }
            Ok(first)
        })
    }

    /// Resolves directions into queues and checks everything that can be checked before a run.
    ///
    /// With `unmatched`, messages without a partner may stay (`AHBM-L104`, `L107`): a run ends in the deadlock that
    /// they are. The builder is used up. Raises `LintError` with all findings.
    #[pyo3(signature = (*, unmatched=Given::ok(false)))]
    fn finish(&self, py: Python<'_>, unmatched: Given<bool>) -> PyResult<Program> {
        given!(unmatched);
        let state = self.draft.take();
        let Some(state) = state else { return self.draft.with(py, |_| unreachable!("the program is finished")) };
        let settings = self.settings;
        let builder = state.builder;
        let program = interruptible(py, || builder.finish(settings))?;
        let check = if unmatched { Program::unmatched } else { Program::checked };
        let program = check(py, program, self.machine.get(), state.calls)?;
        logs::refresh(py, &[Part::Capture]);
        let ahbm_program::Program { name, agents, bodies, .. } = &*program.inner;
        let (agents, bodies, ops) = (agents.len(), bodies.len(), program.inner.ops());
        debug!(
            target: "ahbm::capture",
            "{name}: {} tl calls of {bodies} bodies recorded, {ops} operations of {agents} agents", state.calls
        );
        Ok(program)
    }
}

impl ProgramBuilder {
    fn subject<'a, 'py>(
        &self,
        py: Python<'py>,
        kernel: &'a Bound<'py, PyAny>,
        num_programs: (u32, u32),
        ranks: u32,
        views: Vec<(u64, u64)>,
        dtype: &str,
    ) -> PyResult<Subject<'a, 'py>> {
        let dtype = operand::dtype(dtype).map_err(|fault| errors::raise_one(py, *fault))?;
        if views.len() > usize::from(u16::MAX) {
            let what = format!("{} views, at most {}", views.len(), u16::MAX);
            return Err(errors::raise_one(py, Diagnostic::new("AHBM-B103", what)));
        }
        let views = views.into_iter().map(|(address, bytes)| View { address, bytes }).collect();
        Ok(Subject { kernel, num_programs, ranks, views, dtype, sfr: self.machine.get().inner.sfr().clone() })
    }
}
