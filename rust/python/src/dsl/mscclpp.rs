//! The MSCCL++ DSL: the recorder behind the classes of `ahbm.dsl.mscclpp`.
//!
//! The classes read what the author passed. [`Program::make`] makes what statements name, [`Program::statement`] records
//! one: its kind and its operands, at the author's line.

use super::iterations::Sites;
use super::raise;
use crate::errors;
use crate::formats::PyDocument;
use crate::origin::Here;
use ahbm_dsl::mscclpp::{Barriers, Channel, Chunk, Meet, Recorder, Settings, Transfer, Workers, text};
use ahbm_dsl::{Faith, Fault, Raised};
use ahbm_findings::Diagnostic;
use ahbm_formats::mscclpp::schema::{Kind, Protocol, ReduceOp};
use ahbm_formats::mscclpp::{ReadOptions, resolve};
use ahbm_plan::{Budget, Space};
use ahbm_program::{Origin, OriginId, Origins};
use indexmap::IndexMap;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;
use rustc_hash::FxBuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The package whose own frames are no statements of an author.
const PACKAGE: &str = "ahbm.dsl.mscclpp";

static DIRECTORY: PyOnceLock<String> = PyOnceLock::new();

/// Consecutive chunks: rank, number of the space, first chunk, how many, and which of the author's objects says so.
type Piece = (u32, usize, u32, u32, u32);

const SPACES: [Space; 3] = [Space::Input, Space::Output, Space::Scratch];
const FUNCTIONS: [ReduceOp; 3] = [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max];

/// A program of the MSCCL++ DSL under construction.
///
/// `chunks` are those of each rank's input and output. `quirks` does what the language's own compiler does, its defects
/// included; `earlier` is the program before in the same process then, whose barriers it counts on.
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
        chunks: Vec<[u32; 2]>,
        in_place: bool,
        instances: u32,
        protocol: &str,
        instr_fusion: bool,
        auto_sync: bool,
        reuse_resources: bool,
        num_threads_per_block: u64,
        use_double_scratch_buffer: bool,
        buffer_alignment: u64,
        min_message_size: u64,
        max_message_size: u64,
        quirks: bool,
        earlier: Option<Bound<'_, Self>>,
    ) -> PyResult<Self> {
        let settings = Settings {
            name,
            collective,
            protocol: if protocol == "LL" { Protocol::Ll } else { Protocol::Simple },
            in_place,
            instances,
            fuse: instr_fusion,
            auto_sync,
            reuse_resources,
            threads: num_threads_per_block,
            double_scratch: use_double_scratch_buffer,
            alignment: buffer_alignment,
            min_bytes: min_message_size,
            max_bytes: max_message_size,
        };
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

    /// The loop ends.
    fn leave_loop(&self) {
        self.lock().recorder.leave_loop();
    }

    /// A rank, and the chunks of its input and output. Raises `ProgramError` (AHBM-A102).
    fn rank(&self, py: Python<'_>, rank: i64) -> PyResult<(u32, u32, u32)> {
        let state = self.lock();
        let known = state.recorder.rank(rank);
        let sizes = known.map(|rank| {
            let [input, output] = [Space::Input, Space::Output].map(|space| state.recorder.chunks(rank, space));
            (rank, input, output)
        });
        drop(state);
        sizes.map_err(|fault| match mscclpp_statement(py) {
            Ok(origin) => placed(py, fault, &origin),
            Err(error) => error,
        })
    }

    /// What statements name, by `kind`: a `memory` or `port` channel of (destination, source) gives its number, source
    /// and destination; a `switch` over (space, ranks ...) its ranks, each with its number there; a `semaphore` of
    /// (rank, value) the rank and its number; `scratch` of (rank, size) the rank, the first chunk and the one after the
    /// last; a `loop` of (unit, chunks) opens. Raises `ProgramError` (AHBM-A101, AHBM-A102).
    fn make(&self, py: Python<'_>, kind: &str, numbers: Vec<i64>) -> PyResult<Vec<u32>> {
        self.record(py, |recorder, place| {
            Ok(match (kind, &numbers[..]) {
                ("memory" | "port", &[dst, src]) => {
                    let made = recorder.channel(medium(u32::from(kind == "port")), dst, src)?;
                    vec![made.id, made.src, made.dst]
                }
                ("switch", [space, ranks @ ..]) => {
                    recorder.switch(ranks, SPACES[*space as usize])?.into_iter().flat_map(|at| [at.0, at.1]).collect()
                }
                ("semaphore", &[rank, value]) => recorder.semaphore(rank, value).map(|(rank, id)| vec![rank, id])?,
                ("scratch", &[rank, size]) => {
                    recorder.scratch(rank, size).map(|(rank, first, end)| vec![rank, first, end])?
                }
                ("loop", &[unit, chunks]) => recorder.enter_loop(unit, chunks, place).map(|()| Vec::new())?,
                _ => unreachable!("the classes make nothing else"),
            })
        })
    }

    /// Records a statement, by the author's name for it. `at` is who executes it: of a channel 0 for memory or 1 for a
    /// port, number, source and destination; of a switch the rank, its number, first chunk and chunks; of a semaphore
    /// the rank and its number; of a barrier the rank and its thread blocks; else the rank. `workers` are the thread
    /// blocks: one, several, or None. `sync` is the value of `SyncType`, `function` the position in sum, min, max.
    /// Raises `ProgramError` (AHBM-A101, AHBM-A102).
    #[allow(clippy::too_many_arguments)] // A statement has them.
    fn statement(
        &self,
        py: Python<'_>,
        kind: &str,
        at: Vec<i64>,
        workers: &Bound<'_, PyAny>,
        pieces: Vec<Piece>,
        sync: u8,
        function: usize,
    ) -> PyResult<()> {
        let blocks: Vec<u32>;
        let workers = if workers.is_none() {
            Workers::Unsaid
        } else if let Ok(block) = workers.extract() {
            Workers::Block(block)
        } else {
            blocks = workers.extract()?;
            Workers::Group(&blocks)
        };
        self.record(py, |recorder, place| {
            let pieces = pieces.into_iter().map(chunk).collect();
            Said { at, workers, pieces, sync, function }.record(recorder, kind, place)
        })
    }

    /// Notes that the author used an older name.
    fn older(&self, py: Python<'_>, name: String, now: String) -> PyResult<()> {
        let origin = statement(py)?.origin();
        let mut state = self.lock();
        let place = state.origins.intern(origin).0;
        state.older.entry(name).or_insert((now, place));
        Ok(())
    }
}

impl Program {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a statement of the author's, which a fault names.
    fn record<T>(&self, py: Python<'_>, work: impl FnOnce(&mut Recorder, u32) -> Result<T, Fault>) -> PyResult<T> {
        let origin = self.sites.origin(&statement(py)?)?;
        let mut state = self.lock();
        let place = state.origins.intern(origin);
        let done = if state.open {
            let recorder = &mut state.recorder;
            errors::guard(|| Ok(work(recorder, place.0))).map_err(|findings| errors::raise(py, &findings))?
        } else {
            Err(no_program())
        };
        done.map_err(|fault| {
            let origin = state.origins.text(place);
            drop(state);
            placed(py, fault, &origin)
        })
    }
}

/// The operands of a statement.
struct Said<'a> {
    at: Vec<i64>,
    workers: Workers<'a>,
    pieces: Vec<Chunk>,
    sync: u8,
    function: usize,
}

impl Said<'_> {
    fn record(&self, recorder: &mut Recorder, kind: &str, place: u32) -> Result<(), Fault> {
        let (workers, function) = (self.workers, FUNCTIONS[self.function]);
        let meet = Meet { before: self.sync & 1 > 0, after: self.sync & 2 > 0 };
        let channel =
            || Channel { kind: medium(self.number(0)), id: self.number(1), src: self.number(2), dst: self.number(3) };
        let put = |recorder: &mut Recorder, how| recorder.put(channel(), how, self.two(), workers, place);
        let block = if let Workers::Block(block) = workers { block } else { -1 };
        let here = (self.number(0), self.number(1));
        let extent = || [self.at[2], self.at[3]];
        match kind {
            "signal" | "relaxed_signal" => recorder.signal(channel(), kind != "signal", block, meet, place),
            "wait" | "relaxed_wait" => recorder.wait(channel(), kind != "wait", block, meet, place),
            "flush" => recorder.flush(channel(), block, meet, place),
            "put" => put(recorder, Transfer::Put),
            "put_with_signal" => put(recorder, Transfer::PutSignal),
            "put_with_signal_and_flush" => put(recorder, Transfer::PutSignalFlush),
            "put_packets" => put(recorder, Transfer::PutPackets),
            "read_put_packets" => put(recorder, Transfer::ReadPutPackets),
            "get" => recorder.get(channel(), self.two(), workers, place),
            "read_reduce" => recorder.read_reduce(channel(), self.two(), &self.pieces[2..], function, workers, place),
            "copy" => recorder.copy(here.0, None, self.two(), workers, place),
            "copy_packets" => recorder.copy(here.0, Some(true), self.two(), workers, place),
            "unpack_packets" => recorder.copy(here.0, Some(false), self.two(), workers, place),
            "reduce" | "reduce_packets" => {
                let (others, packets) = (&self.pieces[2..], kind != "reduce");
                recorder.reduce(here.0, self.two(), others, packets, function, workers, place)
            }
            "barrier" => recorder.barrier(here.0, &self.at[1..], place),
            "acquire" | "release" => recorder.semaphored(here, kind == "acquire", block, meet, place),
            "switch_reduce" => recorder.switch_reduce(here, extent(), self.pieces[0], function, workers, place),
            "switch_broadcast" | "switch_broadcast_packets" => {
                let packets = kind != "switch_broadcast";
                recorder.switch_broadcast(here, self.pieces[0], extent(), packets, workers, place)
            }
            _ => unreachable!("the classes say nothing else"),
        }
    }

    fn number(&self, at: usize) -> u32 {
        self.at.get(at).map_or(0, |&number| number as u32)
    }

    fn two(&self) -> [Chunk; 2] {
        [self.pieces[0], self.pieces[1]]
    }
}

const fn medium(number: u32) -> Kind {
    if number == 0 { Kind::Memory } else { Kind::Port }
}

fn chunk((rank, space, index, size, object): Piece) -> Chunk {
    Chunk { rank, space: SPACES[space], index, size, object }
}

/// The author's statement, `file:line` with the values of the loops around it.
#[pyfunction]
pub(crate) fn mscclpp_statement(py: Python<'_>) -> PyResult<String> {
    Ok(Sites::default().origin(&statement(py)?)?.to_string())
}

fn no_program() -> Fault {
    Fault::new(Raised::Runtime, "AHBM-A101", "No Program in context: the statement stands outside of a program")
        .hint("with CollectiveProgram(…): opens one; channels, buffers and semaphores belong to theirs")
}

/// The exception for a fault of the statement at `origin`.
fn placed(py: Python<'_>, mut fault: Fault, origin: &str) -> PyErr {
    for finding in fault.findings.iter_mut().filter(|finding| finding.sites.is_empty()) {
        *finding = finding.clone().site("statement", origin);
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
