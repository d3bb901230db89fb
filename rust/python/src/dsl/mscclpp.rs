//! The MSCCL++ DSL: a program under construction, and the objects with which its author writes it.
//!
//! Every statement is one call of a native method. It looks up the author's line, records, and returns. [`arguments`]
//! reads what the author passed, [`chunks`] has buffers and slices, [`local`] the statements of one rank, [`channels`]
//! those between ranks, [`switch`] those of a switch.

mod arguments;
pub(crate) mod channels;
pub(crate) mod chunks;
pub(crate) mod local;
pub(crate) mod switch;

use super::iterations::Sites;
use super::raise;
use crate::errors;
use crate::formats::PyDocument;
use crate::origin::Here;
use ahbm_dsl::mscclpp::{Barriers, Recorder, Settings, text};
use ahbm_dsl::{Faith, Fault, Raised};
use ahbm_findings::Diagnostic;
use ahbm_formats::mscclpp::schema::Protocol;
use ahbm_formats::mscclpp::{ReadOptions, resolve};
use ahbm_plan::Budget;
use ahbm_program::{Origin, OriginId, Origins};
use arguments::{Int, wrong};
use indexmap::IndexMap;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;
use rustc_hash::FxBuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The package whose own frames are no statements of an author.
const PACKAGE: &str = "ahbm.dsl.mscclpp";

static DIRECTORY: PyOnceLock<String> = PyOnceLock::new();
static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A program of the MSCCL++ DSL under construction.
///
/// `chunks` are those of each rank's input and output. `quirks` does what the language's own compiler does, its defects
/// included; `earlier` is the program before in the same process then, whose barriers it counts on. Raises
/// `ProgramError` (AHBM-A103).
#[pyclass(frozen, module = "ahbm._core", name = "MscclppProgram")]
pub struct Program {
    whole: Origin,
    faith: Faith,
    sites: Sites,
    state: Mutex<State>,
}

struct State {
    recorder: Recorder,
    origins: Origins,
    open: bool,
    /// Older names that were used, what they are called now, and the place of the first use.
    older: IndexMap<String, (String, u32), FxBuildHasher>,
}

#[pymethods]
impl Program {
    #[new]
    #[pyo3(
        signature = (name, collective, chunks, *, in_place, instances, protocol, instr_fusion, auto_sync,
                     reuse_resources, num_threads_per_block, use_double_scratch_buffer, buffer_alignment,
                     min_message_size, max_message_size, quirks=false, earlier=None),
        text_signature = "(name, collective, chunks, *, in_place, instances, protocol, instr_fusion, auto_sync, \
                          reuse_resources, num_threads_per_block, use_double_scratch_buffer, buffer_alignment, \
                          min_message_size, max_message_size, quirks=False, earlier=None)"
    )]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn new(
        py: Python<'_>,
        name: String,
        collective: String,
        chunks: Vec<(Int, Int)>,
        in_place: bool,
        instances: Int,
        protocol: &str,
        instr_fusion: bool,
        auto_sync: bool,
        reuse_resources: bool,
        num_threads_per_block: Int,
        use_double_scratch_buffer: bool,
        buffer_alignment: Int,
        min_message_size: Int,
        max_message_size: Int,
        quirks: bool,
        earlier: Option<Bound<'_, Self>>,
    ) -> PyResult<Self> {
        let small = |what: &str, Int(value): Int, least: u32| {
            u32::try_from(value).ok().filter(|&value| value >= least && value <= 1 << 24).ok_or_else(|| {
                faulty(py, wrong(Raised::Value, format!("{what} is {value}: it must be between {least} and 2**24")))
            })
        };
        let large = |what: &str, Int(value): Int| {
            let fits = u64::try_from(value);
            fits.map_err(|_| faulty(py, wrong(Raised::Value, format!("{what} is {value}: it must fit 64 bits"))))
        };
        let protocol = match protocol {
            "Simple" => Protocol::Simple,
            "LL" => Protocol::Ll,
            other => {
                let fault = wrong(Raised::Assertion, format!("protocol {other:?}: it must be \"Simple\" or \"LL\""));
                return Err(faulty(py, fault));
            }
        };
        let settings = Settings {
            name,
            collective,
            protocol,
            in_place,
            instances: small("instances", instances, 1)?,
            fuse: instr_fusion,
            auto_sync,
            reuse_resources,
            threads: large("num_threads_per_block", num_threads_per_block)?,
            double_scratch: use_double_scratch_buffer,
            alignment: u64::from(small("buffer_alignment", buffer_alignment, 1)?),
            min_bytes: large("min_message_size", min_message_size)?,
            max_bytes: large("max_message_size", max_message_size)?,
        };
        let extent = |(input, output)| Ok([small("the input's chunks", input, 0)?, small("the output's", output, 0)?]);
        let chunks = chunks.into_iter().map(extent).collect::<PyResult<Vec<[u32; 2]>>>()?;
        let faith = if quirks { Faith::AsIs } else { Faith::Meant };
        let barriers = match earlier {
            Some(earlier) if quirks => earlier.get().lock().recorder.barriers(),
            _ => Barriers::default(),
        };
        let recorder = Recorder::new(settings, &chunks, faith, barriers);
        let whole = statement(py)?.origin();
        let mut origins = Origins::default();
        origins.intern(whole.clone());
        let state = State { recorder, origins, open: true, older: IndexMap::default() };
        Ok(Self { whole, faith, sites: Sites::default(), state: Mutex::new(state) })
    }

    /// Base name of the file, and the line, where the program begins.
    #[getter]
    fn origin(&self) -> String {
        self.whole.to_string()
    }

    /// The plan as text, as the language's own compiler prints it, and notes: dicts with the keys of `Finding.to_json`.
    ///
    /// Raises `ProgramError` (AHBM-A103, AHBM-A104).
    fn text<'py>(&self, py: Python<'py>) -> PyResult<(String, Bound<'py, PyList>)> {
        let done = py.detach(|| {
            errors::guard(|| {
                let state = self.lock();
                let State { recorder, origins, older, .. } = &*state;
                let told = |(name, (now, place)): (&String, &(String, u32))| {
                    let site = origins.text(OriginId(*place));
                    let message = format!("{name} is an older name: {now}");
                    Diagnostic::new("AHBM-A120", message).site("statement", site)
                };
                Ok(recorder.lower(origins).map(|lowered| {
                    let notes: Vec<Diagnostic> = older.iter().map(told).chain(lowered.notes).collect();
                    (text(&lowered.document), notes)
                }))
            })
        });
        let done = done.map_err(|findings| errors::raise(py, &findings))?;
        let (text, notes) = done.map_err(|fault| raise(py, &fault))?;
        Ok((text, errors::to_list(py, &notes)?))
    }

    /// The plan, with the author's lines. Raises as `text`, and as `read_plan`.
    fn plan(&self, py: Python<'_>) -> PyResult<PyDocument> {
        let budget = Budget::default();
        let options = ReadOptions { budget, quirks: self.faith == Faith::AsIs };
        let done = py.detach(|| {
            errors::guard(|| {
                let state = self.lock();
                let State { recorder, origins, .. } = &*state;
                Ok(recorder.lower(origins).map(|lowered| {
                    let places = lowered.statements.places(origins.iter());
                    resolve(&lowered.document, self.whole.clone(), places.into(), &options)
                }))
            })
        });
        let plan = done.map_err(|findings| errors::raise(py, &findings))?.map_err(|fault| raise(py, &fault))?;
        plan.map(|plan| PyDocument::program(plan, budget)).map_err(|finding| errors::raise_one(py, finding))
    }

    /// Whether every signal has a wait. Raises `ProgramError` (AHBM-A104).
    fn count_signals(&self, py: Python<'_>) -> PyResult<()> {
        let state = self.lock();
        let counted = state.recorder.count_signals(&state.origins);
        drop(state);
        counted.map_err(|fault| raise(py, &fault))
    }

    /// Takes no statements any more.
    fn close(&self) {
        self.lock().open = false;
    }

    /// Statements are repeated from now on. Raises `ProgramError` (AHBM-A102) inside another loop.
    fn enter_loop(&self, py: Python<'_>, unit: Int, num_chunks: Int) -> PyResult<()> {
        self.record(py, |recorder, place| recorder.enter_loop(unit.0 as i64, num_chunks.0 as i64, place))
    }

    /// The loop ends.
    fn leave_loop(&self) {
        self.lock().recorder.leave_loop();
    }

    /// `size` more chunks of scratch of a rank: the rank, the first chunk and the one after the last. Raises
    /// `ProgramError` (AHBM-A102).
    fn scratch(&self, py: Python<'_>, rank: Int, size: Int) -> PyResult<(u32, u32, u32)> {
        self.record(py, |recorder, _| recorder.scratch(rank.small(), size.small()))
    }

    /// Notes that the author used an older name.
    fn older(&self, py: Python<'_>, name: String, now: String) -> PyResult<()> {
        self.note(py, &name, &now)
    }
}

impl Program {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a statement of the author's, which a fault names.
    fn record<T>(&self, py: Python<'_>, work: impl FnOnce(&mut Recorder, u32) -> Result<T, Fault>) -> PyResult<T> {
        let mut here = Here::now(py)?;
        if !self.sites.knows(&here) {
            here = outside(py, here)?;
        }
        let origin = self.sites.origin(&here)?;
        let mut state = self.lock();
        let place = state.origins.intern(origin);
        let done = if state.open { work(&mut state.recorder, place.0) } else { Err(no_program()) };
        done.map_err(|mut fault| {
            let origin = state.origins.text(place);
            drop(state);
            for finding in fault.findings.iter_mut().filter(|finding| finding.sites.is_empty()) {
                *finding = finding.clone().site("statement", &*origin);
            }
            raise(py, &fault)
        })
    }

    fn note(&self, py: Python<'_>, name: &str, now: &str) -> PyResult<()> {
        let origin = statement(py)?.origin();
        let mut state = self.lock();
        let place = state.origins.intern(origin).0;
        if !state.older.contains_key(name) {
            state.older.insert(name.to_owned(), (now.to_owned(), place));
        }
        Ok(())
    }
}

/// The program that the author is writing. Raises `ProgramError` (AHBM-A101) outside of one.
fn current(py: Python<'_>) -> PyResult<Bound<'_, Program>> {
    let variable = CURRENT.get_or_try_init(py, || -> PyResult<_> {
        Ok(py.import("ahbm.dsl.mscclpp.internal.globals")?.getattr("RECORDER")?.unbind())
    })?;
    let program = variable.bind(py).call_method0(pyo3::intern!(py, "get"))?;
    match program.cast_into::<Program>() {
        Ok(program) => Ok(program),
        Err(_) => Err(faulty(py, no_program())),
    }
}

fn no_program() -> Fault {
    Fault::new(Raised::Runtime, "AHBM-A101", "No Program in context: the statement stands outside of a program")
        .hint("with CollectiveProgram(…): opens one; channels, buffers and semaphores belong to theirs")
}

/// The exception for a fault outside of any program, with the author's line.
fn faulty(py: Python<'_>, mut fault: Fault) -> PyErr {
    let origin = statement(py).and_then(|here| Sites::default().origin(&here));
    let origin = origin.map(|origin| origin.to_string()).unwrap_or_default();
    for finding in fault.findings.iter_mut().filter(|finding| finding.sites.is_empty()) {
        *finding = finding.clone().site("statement", &*origin);
    }
    raise(py, &fault)
}

/// The author's statement.
fn statement(py: Python<'_>) -> PyResult<Here<'_>> {
    outside(py, Here::now(py)?)
}

/// The innermost frame outside of the package; the innermost of all where there is none.
fn outside<'py>(py: Python<'py>, first: Here<'py>) -> PyResult<Here<'py>> {
    let directory = DIRECTORY.get_or_try_init(py, || -> PyResult<String> {
        let file: String = py.import(PACKAGE)?.getattr("__file__")?.extract()?;
        Ok(file.trim_end_matches("__init__.py").to_owned())
    })?;
    let mut here = first;
    while here.path()?.starts_with(&**directory) {
        match here.back()? {
            Some(back) => here = back,
            None => break,
        }
    }
    Ok(here)
}
