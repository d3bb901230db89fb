//! Writes a program: groups, buffers, captured bodies, agents.

use crate::capture::{Capture, Launch, View};
use crate::errors;
use crate::machine::{Machine, network_name};
use crate::operand;
use crate::origin;
use crate::program::Program;
use crate::tl::Tl;
use ahbm_machine::{Coord, Diagnostic, Node, Sfr, SipNetwork};
use ahbm_program::{Body, BufferId, ChannelSettings, OriginId, Origins};
use pyo3::exceptions::{PyException, PyRecursionError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{ffi, intern};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Writes a `Program` for one machine.
///
/// `n_slots` messages of `slot_bytes` (None: the largest message of each queue) fit a queue; slots live in the
/// memory `tier`; credits are messages of `credit_bytes`. A kernel may make `op_budget` `tl` calls.
/// Raises `ConfigError` for an unknown tier.
#[pyclass(frozen, module = "ahbm._core")]
pub struct ProgramBuilder {
    machine: Py<Machine>,
    settings: ChannelSettings,
    op_budget: u64,
    state: Mutex<Option<State>>,
}

struct State {
    builder: ahbm_program::ProgramBuilder,
    groups: u32,
    buffers: u32,
    /// Per body id: buffers its memory operands index.
    bodies: Vec<u32>,
    calls: u64,
    /// The last kernel whose signature was found to fit, and the number of arguments it fits.
    fitting: Option<(Py<PyAny>, usize)>,
}

type Place = (u32, u32, u32);

fn coord((sip, cube, pe): Place) -> Coord {
    Coord { sip, cube, pe }
}

impl ProgramBuilder {
    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on the unfinished program.
    fn with<T>(&self, py: Python<'_>, work: impl FnOnce(&mut State) -> Result<T, Diagnostic>) -> PyResult<T> {
        let finished = || Diagnostic::new("AHBM-C201", "the program is finished").hint("make a new ProgramBuilder");
        let outcome = match self.lock().as_mut() {
            Some(state) => work(state),
            None => Err(finished()),
        };
        outcome.map_err(|finding| errors::raise_one(py, finding))
    }
}

#[pymethods]
impl ProgramBuilder {
    #[new]
    #[pyo3(signature = (machine, name, *, n_slots, slot_bytes, tier, credit_bytes, op_budget))]
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
    ) -> PyResult<Self> {
        let tiers = &machine.get().inner.costs().tiers;
        let Some(tier) = tiers.get_index_of(tier) else {
            let names: Vec<&str> = tiers.keys().map(String::as_str).collect();
            return Err(errors::raise_one(py, *operand::unknown("AHBM-C202", "memory tier", tier, &names)));
        };
        let settings = ChannelSettings { slots: n_slots, slot_bytes, tier: tier as u32, credit_bytes };
        let builder = ahbm_program::ProgramBuilder::new(name);
        let state = State { builder, groups: 0, buffers: 0, bodies: Vec::new(), calls: 0, fitting: None };
        Ok(Self { machine, settings, op_budget, state: Mutex::new(Some(state)) })
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
        let own = self.machine.get().inner.sfr();
        self.with(py, |state| {
            let sips = sips.unwrap_or(own.sips);
            let network = match topology {
                None if (w, h, d) == (0, 0, 0) && sips == own.sips => own.network.clone(),
                None => network(network_name(&own.network), sips, (w, h, d))?,
                Some(name) => network(name, sips, (w, h, d))?,
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
        self.with(py, |state| {
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
    /// holds elements of `dtype`. Raises `KernelError` or `BudgetError` with the kernel's file and line;
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
        let dtype = operand::dtype(dtype).map_err(|fault| errors::raise_one(py, *fault))?;
        if views.len() > usize::from(u16::MAX) {
            let what = format!("{} views, at most {}", views.len(), u16::MAX);
            return Err(errors::raise_one(py, Diagnostic::new("AHBM-B103", what)));
        }
        let capture = Arc::new(Capture::new(Launch {
            kernel: name_of(kernel),
            coord: self::coord(coord),
            num_programs: [num_programs.0, num_programs.1],
            views: views.into_iter().map(|(address, bytes)| View { address, bytes }).collect(),
            dtype,
            budget: self.op_budget,
            sfr: self.machine.get().inner.sfr().clone(),
        }));
        self.check_signature(py, &capture.launch, kernel, args)?;
        let returned = run(py, kernel, args, &capture);
        let recorded = capture.finish();
        let returned = returned?;
        check_returned(py, &capture.launch, kernel, &returned)?;
        let Some((body, origins, calls)) = recorded else { unreachable!("a capture is finished once") };
        self.with(py, |state| {
            state.calls += calls;
            let views = body.mems.iter().map(|mem| u32::from(mem.buffer) + 1).max().unwrap_or(0);
            let body = with_origins(body, &origins, &mut state.builder.origins);
            let id = state.builder.body(body);
            if id as usize == state.bodies.len() {
                state.bodies.push(views);
            }
            Ok(id)
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
        self.with(py, |state| {
            let at = self::coord(coord);
            let pe = self.machine.get().place(place)?;
            let wrong = |what: String| Diagnostic::new("AHBM-C204", what).site(at.to_string(), "");
            if group >= state.groups {
                return Err(wrong(format!("group {group} of {}", state.groups)));
            }
            let Some(&views) = state.bodies.get(body as usize) else {
                return Err(wrong(format!("body {body} of {}", state.bodies.len())));
            };
            if buffers.len() < views as usize {
                return Err(wrong(format!("{} buffers for a body that uses {views}", buffers.len())));
            }
            if let Some(buffer) = buffers.iter().find(|&&buffer| buffer >= state.buffers) {
                return Err(wrong(format!("buffer {buffer} of {}", state.buffers)));
            }
            let sfr = state.builder.sfr(group);
            if at.sip >= sfr.sips || at.cube >= sfr.cube_w * sfr.cube_h || at.pe >= sfr.pes {
                return Err(Diagnostic::new("AHBM-T202", format!("{at} is outside its group of {}", shape(sfr))));
            }
            let buffers: Vec<BufferId> = buffers.into_iter().map(BufferId).collect();
            state.builder.agent(group, at, pe, body, &buffers).map(drop)
        })
    }

    /// Resolves directions into queues and checks everything that can be checked before a run.
    ///
    /// The builder is used up. Raises `LintError` with all findings.
    fn finish(&self, py: Python<'_>) -> PyResult<Program> {
        let state = self.lock().take();
        let Some(state) = state else { return self.with(py, |_| unreachable!("the program is finished")) };
        let settings = self.settings;
        let builder = state.builder;
        let program = py
            .detach(|| errors::guard(|| builder.finish(settings)))
            .map_err(|findings| errors::raise(py, &findings))?;
        Program::checked(py, program, self.machine.get(), state.calls)
    }
}

impl ProgramBuilder {
    /// Checks the kernel's parameters against the call, once per kernel and number of arguments.
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
        let signature = py.import(intern!(py, "inspect"))?.call_method1(intern!(py, "signature"), (kernel,))?;
        let keywords = PyDict::new(py);
        keywords.set_item(intern!(py, "tl"), py.None())?;
        if let Err(error) = signature.getattr("bind")?.call(args, Some(&keywords)) {
            if !error.is_instance_of::<PyTypeError>(py) {
                return Err(error);
            }
            let expected = format!("{}{}", launch.kernel, signature);
            let why = error.value(py).to_string();
            let message =
                format!("{expected} cannot be called with {} positional arguments and tl=: {why}", args.len());
            let finding = Diagnostic::new("AHBM-K212", message)
                .site(launch.label(), kernel_origin(kernel))
                .hint("a kernel takes t_ptr, what kernel_args returns, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, and tl");
            return Err(errors::raise_one(py, finding));
        }
        let known = (kernel.clone().unbind(), args.len());
        // The old kernel is let go outside the lock: its end may run Python code.
        self.with(py, |state| Ok(state.fitting.replace(known))).map(drop)
    }
}

/// Calls the kernel. Garbage collection pauses meanwhile: when a cycle's handles die must not depend on
/// what else the process allocates.
#[allow(unsafe_code)] // The collector's switch has no safe wrapper.
fn run<'py>(
    py: Python<'py>,
    kernel: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    capture: &Arc<Capture>,
) -> PyResult<Bound<'py, PyAny>> {
    let keywords = PyDict::new(py);
    keywords.set_item(intern!(py, "tl"), Bound::new(py, Tl { capture: Arc::clone(capture) })?)?;
    // SAFETY: the interpreter lock is held.
    let collecting = unsafe { ffi::PyGC_Disable() } == 1;
    let outcome = kernel.call(args, Some(&keywords));
    if collecting {
        // SAFETY: the interpreter lock is held.
        unsafe { ffi::PyGC_Enable() };
    }
    outcome.map_err(|error| explain(py, &capture.launch, kernel, error))
}

/// What the kernel raised, as a `KernelError` that says where; what is typed already, and what is no error
/// of the kernel (KeyboardInterrupt, SystemExit), as it is.
fn explain(py: Python<'_>, launch: &Launch, kernel: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyException>(py) || errors::is_typed(py, &error) {
        return error;
    }
    let kind = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
    let what = error.value(py).to_string();
    let code = kernel.getattr("__code__").ok();
    let finding = if error.is_instance_of::<PyRecursionError>(py) {
        Diagnostic::new("AHBM-K211", "the kernel recursed too deep").hint("use a loop, or end the recursion")
    } else {
        Diagnostic::new("AHBM-K210", format!("the kernel raised {kind}: {what}"))
    };
    let typed = errors::raise_one(py, finding.site(launch.label(), origin::of_error(py, &error, code.as_ref())));
    typed.set_cause(py, Some(error));
    typed
}

/// Generators and coroutines have not run at all.
fn check_returned(
    py: Python<'_>,
    launch: &Launch,
    kernel: &Bound<'_, PyAny>,
    returned: &Bound<'_, PyAny>,
) -> PyResult<()> {
    if returned.is_none() {
        return Ok(());
    }
    let kind = returned.get_type().name()?.to_string();
    if returned.hasattr("close")? {
        // Spares the user a warning about a coroutine nobody awaited.
        returned.call_method0("close")?;
    }
    let finding = Diagnostic::new("AHBM-K213", format!("the kernel returned a {kind}"))
        .site(launch.label(), kernel_origin(kernel))
        .hint(
            "a kernel is a plain function that returns nothing: no yield, no async, results go to memory by tl.store",
        );
    Err(errors::raise_one(py, finding))
}

fn name_of(kernel: &Bound<'_, PyAny>) -> String {
    let name = kernel.getattr("__name__").and_then(|name| name.extract());
    name.unwrap_or_else(|_| kernel.get_type().to_string())
}

/// `file:line` of a kernel's definition, empty when it has none.
fn kernel_origin(kernel: &Bound<'_, PyAny>) -> String {
    kernel.getattr("__code__").map_or_else(|_| String::new(), |code| origin::of_code(&code))
}

/// The body with its origins numbered by `to`.
fn with_origins(mut body: Body, from: &Origins, to: &mut Origins) -> Body {
    let map: Vec<OriginId> =
        (0..).map_while(|id| from.get(OriginId(id))).map(|origin| to.intern(origin.clone())).collect();
    for id in &mut body.origins {
        *id = map[id.0 as usize];
    }
    body
}

fn shape(sfr: &Sfr) -> String {
    format!("{} SIPs of {}x{} cubes of {} PEs", sfr.sips, sfr.cube_w, sfr.cube_h, sfr.pes)
}

/// A network by name. Extents of 0 are worked out from the number of SIPs.
fn network(name: &str, sips: u32, (w, h, d): (u32, u32, u32)) -> Result<SipNetwork, Diagnostic> {
    const NAMES: [&str; 9] = [
        "ring_1d",
        "torus_2d",
        "mesh_2d_no_wrap",
        "torus_3d",
        "mesh_3d",
        "hypercube",
        "fully_connected",
        "switch",
        "custom",
    ];
    let grid = |dims: u32, wrap: bool| {
        let side = (sips as f64).powf(1.0 / f64::from(dims)).round() as u32;
        let (w, h, d) = match ((w, h, d), dims) {
            ((0, 0, 0), 2) if side.checked_pow(2) == Some(sips) => (side, side, 1),
            ((0, 0, 0), 3) if side.checked_pow(3) == Some(sips) => (side, side, side),
            ((w, h, 0), 2) => (w, h, 1),
            (given, _) => given,
        };
        if u64::from(w) * u64::from(h) * u64::from(d) == u64::from(sips) {
            return Ok(SipNetwork::Grid { w, h, d, wrap });
        }
        Err(Diagnostic::new("AHBM-T203", format!("{sips} SIPs do not fill a {name} of {w} x {h} x {d}"))
            .hint("give w and h (and d) whose product is the number of SIPs"))
    };
    Ok(match name {
        "ring_1d" => SipNetwork::Ring,
        "torus_2d" => grid(2, true)?,
        "mesh_2d_no_wrap" => grid(2, false)?,
        "torus_3d" => grid(3, true)?,
        "mesh_3d" => grid(3, false)?,
        "hypercube" if sips.is_power_of_two() => SipNetwork::Hypercube { dims: sips.trailing_zeros() },
        "hypercube" => {
            return Err(
                Diagnostic::new("AHBM-T203", format!("{sips} SIPs do not fill a hypercube")).hint("use a power of two")
            );
        }
        "fully_connected" => SipNetwork::FullyConnected,
        "switch" => SipNetwork::Switch,
        "custom" => SipNetwork::Custom,
        _ => return Err(*operand::unknown("AHBM-T204", "topology", name, &NAMES)),
    })
}
