//! What a builder has so far of its program, and the calls of kernels that it records.

use crate::capture::{Capture, Launch, Recorded, label};
use crate::errors;
use crate::kernel;
use crate::origin::{Here, Lines};
use ahbm_findings::Diagnostic;
use ahbm_machine::{Coord, PeId, Sfr};
use ahbm_program::class::{Surroundings, View};
use ahbm_program::{Body, BufferId, Dtype, Formulas, Op, OriginId, Origins};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A program that is being written.
pub(crate) struct Draft {
    op_budget: u64,
    /// `tl` calls that all places of a launch may make together.
    pub(crate) all_ops: u64,
    /// Whether an operation's origin has the lines of all calls from the kernel's on.
    call_lines: bool,
    state: Mutex<Option<State>>,
}

/// The program until [`Draft::take`].
pub(crate) struct State {
    pub(crate) builder: ahbm_program::ProgramBuilder,
    pub(crate) groups: u32,
    pub(crate) buffers: u32,
    /// Per body id: buffers its memory operands index.
    pub(crate) bodies: Vec<u32>,
    pub(crate) calls: u64,
    /// The last kernel whose signature was found to fit, and the number of arguments it fits.
    fitting: Option<(Py<PyAny>, usize)>,
}

impl Draft {
    /// Kernels may make `op_budget` `tl` calls, and a launch at all places together `all_ops`.
    pub(crate) fn new(builder: ahbm_program::ProgramBuilder, op_budget: u64, all_ops: u64, call_lines: bool) -> Self {
        let state = State { builder, groups: 0, buffers: 0, bodies: Vec::new(), calls: 0, fitting: None };
        Self { op_budget, all_ops, call_lines, state: Mutex::new(Some(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on the unfinished program.
    pub(crate) fn with<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut State) -> Result<T, Diagnostic>,
    ) -> PyResult<T> {
        let finished = || Diagnostic::new("AHBM-C201", "the program is finished").hint("make a new ProgramBuilder");
        let outcome = match self.lock().as_mut() {
            Some(state) => work(state),
            None => Err(finished()),
        };
        outcome.map_err(|finding| errors::raise_one(py, finding))
    }

    /// Ends it.
    pub(crate) fn take(&self) -> Option<State> {
        self.lock().take()
    }

    /// Works with the program's origins.
    pub(crate) fn origins<T>(&self, py: Python<'_>, work: impl FnOnce(&mut Origins) -> T) -> PyResult<T> {
        self.with(py, |state| Ok(work(&mut state.builder.origins)))
    }

    /// Calls a kernel once at a place. With `formulas`, which it adds to, the kernel sees its place as symbolic integers.
    pub(crate) fn record<'py>(
        &self,
        py: Python<'py>,
        subject: &Subject<'_, 'py>,
        at: Coord,
        formulas: Option<Formulas>,
        args: impl FnOnce(&Capture) -> PyResult<Bound<'py, PyTuple>>,
    ) -> PyResult<Recorded> {
        let launch = Launch {
            kernel: kernel::name_of(subject.kernel),
            coord: at,
            num_programs: [subject.num_programs.0, subject.num_programs.1],
            ranks: subject.ranks,
            views: subject.views.clone(),
            dtype: subject.dtype,
            budget: self.op_budget,
            sfr: subject.sfr.clone(),
            symbolic: formulas.is_some(),
        };
        let lines = Lines::of_kernel(&Here::now(py)?, self.call_lines);
        let capture = Arc::new(Capture::new(launch, formulas.unwrap_or_default(), lines));
        let args = args(&capture)?;
        self.check_signature(py, &capture.launch, subject.kernel, &args)?;
        let outcome = kernel::run(py, subject.kernel, &args, &capture);
        let recorded = capture.finish();
        outcome?;
        let Some(recorded) = recorded else { unreachable!("a capture is finished once") };
        Ok(recorded)
    }

    /// Checks the kernel's parameters once per kernel and number of arguments.
    fn check_signature(
        &self,
        py: Python<'_>,
        launch: &Launch,
        kernel: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        let fits = |(known, count): &(Py<PyAny>, usize)| known.is(kernel) && *count == args.len();
        if self.with(py, |state| Ok(state.fitting.as_ref().is_some_and(fits)))? {
            return Ok(());
        }
        kernel::check_signature(py, launch, kernel, args)?;
        let known = (kernel.clone().unbind(), args.len());
        // The old kernel is let go outside the lock: its end may run Python code.
        self.with(py, |state| Ok(state.fitting.replace(known))).map(drop)
    }
}

/// A kernel that is captured, and what all its calls have in common.
pub(crate) struct Subject<'a, 'py> {
    pub(crate) kernel: &'a Bound<'py, PyAny>,
    pub(crate) num_programs: (u32, u32),
    /// SIPs of the launch.
    pub(crate) ranks: u32,
    pub(crate) views: Vec<View>,
    pub(crate) dtype: Dtype,
    pub(crate) sfr: Sfr,
}

impl Subject<'_, '_> {
    /// The surroundings of agents at these coordinates.
    pub(crate) fn around<'a>(&'a self, coord: &'a dyn Fn(u32) -> Coord) -> Surroundings<'a> {
        Surroundings { views: &self.views, sips: self.ranks, sfr: &self.sfr, coord }
    }

    /// The body of the call at a place, with the origins of the program.
    pub(crate) fn body(&self, mut recorded: Recorded, at: Coord, origins: &mut Origins) -> Body {
        renumber(&mut recorded.class.body, &recorded.origins, origins);
        let here = |_| at;
        let around = self.around(&here);
        let known = recorded.class.conditions.len();
        let split = recorded.class.split(&recorded.formulas, &around, &[0], known);
        let (_, body) = split.members.into_iter().next().expect("a call is of its own class");
        body
    }

    /// The finding for two calls with equal arguments that recorded two bodies.
    pub(crate) fn unlike(&self, at: Coord, bodies: [&Body; 2], origins: &Origins) -> Diagnostic {
        kernel::unlike(&label(&kernel::name_of(self.kernel), at), &kernel::origin_of(self.kernel), bodies, origins)
    }
}

impl State {
    /// Adds an agent with buffers that exist.
    pub(crate) fn agent(
        &mut self,
        group: u32,
        at: Coord,
        pe: PeId,
        body: u32,
        buffers: &[BufferId],
    ) -> Result<(), Diagnostic> {
        let wrong = |what: String| Diagnostic::new("AHBM-C204", what).site(at.to_string(), "");
        if group >= self.groups {
            return Err(wrong(format!("group {group} of {}", self.groups)));
        }
        let Some(&views) = self.bodies.get(body as usize) else {
            return Err(wrong(format!("body {body} of {}", self.bodies.len())));
        };
        if buffers.len() < views as usize {
            return Err(wrong(format!("{} buffers for a body that uses {views}", buffers.len())));
        }
        let sfr = self.builder.sfr(group);
        if !sfr.contains(at) {
            return Err(Diagnostic::new("AHBM-T202", format!("{at} is outside its group of {}", shape(sfr))));
        }
        self.builder.agent(group, at, pe, body, buffers).map(drop)
    }

    /// Whether a switch reduces what the groups of a body take from the SIPs behind them: buffer `(1 + s) * views + k` is
    /// at rank `s`.
    pub(crate) fn check_groups(
        &self,
        machine: &ahbm_machine::Machine,
        at: Coord,
        body: u32,
        places: &[(u32, u32, u32)],
        views: usize,
    ) -> Result<(), Diagnostic> {
        let Some(body) = self.builder.body_at(body) else { return Ok(()) };
        let sip = |mem: u32| places.get(usize::from(body.mems.buffer(mem)) / views - 1).map(|place| place.0);
        for (number, group) in (0..).zip(&body.groups) {
            let members = group.iter().filter_map(|&mem| sip(mem)).chain([places[at.sip as usize].0]);
            if let Err(finding) = machine.reducing_switch(members) {
                let uses =
                    |op: &Op| [op.kind.operands().group_read, op.kind.operands().group_written].contains(&Some(number));
                let line = body.ops.iter().position(uses).map(|op| self.builder.origins.text(body.origins[op]));
                return Err(finding.site(at.to_string(), line.unwrap_or_default()));
            }
        }
        Ok(())
    }

    pub(crate) fn intern(&mut self, body: Body) -> u32 {
        let views = body.mems.buffers();
        let id = self.builder.body(body);
        if id as usize == self.bodies.len() {
            self.bodies.push(views);
        }
        id
    }
}

/// Numbers the origins of a body by `to`.
pub(crate) fn renumber(body: &mut Body, from: &Origins, to: &mut Origins) {
    let map: Vec<OriginId> =
        (0..).map_while(|id| from.get(OriginId(id))).map(|origin| to.intern(origin.clone())).collect();
    body.origins = body.origins.iter().map(|id| map[id.0 as usize]).collect();
}

fn shape(sfr: &Sfr) -> String {
    format!("{} SIPs of {}x{} cubes of {} PEs", sfr.sips, sfr.cube_w, sfr.cube_h, sfr.pes)
}
