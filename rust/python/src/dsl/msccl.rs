//! The recorder behind `ahbm.dsl.msccl.MSCCLProgram`.

use super::iterations::Sites;
use super::msccl_arguments::{bind, number, raise, refuse};
use crate::errors;
use crate::formats::PyDocument;
use crate::origin::Here;
use ahbm_dsl::Faith;
use ahbm_dsl::msccl::record::{INPUT, OUTPUT};
use ahbm_dsl::msccl::values::{Given, Value};
use ahbm_dsl::msccl::{Kind, Lowered, Options, Place, Recording, Refusal, Start, lower};
use ahbm_formats::msccl_xml::{Dialect, warnings_as, write_as};
use ahbm_plan::{Budget, Collective, Goal, Protocol};
use ahbm_program::{Origin, Origins};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};
use rustc_hash::FxHashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Chunks of which a sum is made that are shown, or handed to Python.
const SHOWN: u64 = 1 << 20;

/// The variable that holds the program of the context.
static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The chunk that a collective's buffer names.
type Four = (i64, i64, i64, i64);

/// Where a collective keeps a buffer that is a part of another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mapping {
    Same,
    OutputIsInput,
    InputInOutput,
    OutputInInput,
    /// Its `get_buffer_index` says.
    Asked,
}

/// What does not change once a program has begun.
struct Fixed {
    input: Py<PyAny>,
    output: Py<PyAny>,
    ids: Py<PyDict>,
    topology: Py<PyAny>,
    collective: Py<PyAny>,
    mapping: Mapping,
    factor: u32,
    ranks: u32,
    quirks: bool,
}

struct State {
    recording: Recording,
    origins: Origins,
    names: Vec<Py<PyAny>>,
    links: FxHashMap<(u32, u32), bool>,
}

/// Records the statements of a MSCCLang program, of which `ahbm.dsl.msccl.MSCCLProgram` is the public face.
#[pyclass(frozen, subclass, module = "ahbm._core")]
pub struct MscclRecorder {
    fixed: PyOnceLock<Fixed>,
    sites: Sites,
    state: Mutex<Option<State>>,
}

/// A reference to `size` slots of a buffer of a rank, from `index` on.
///
/// Raises `ProgramError`, which is also the exception that upstream raises: AHBM-A202 to A206.
#[pyclass(frozen, name = "Ref", module = "ahbm.dsl.msccl")]
pub struct Ref {
    pub(super) program: Py<MscclRecorder>,
    pub(super) place: Place,
}

#[pymethods]
impl MscclRecorder {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self { fixed: PyOnceLock::new(), sites: Sites::default(), state: Mutex::new(None) }
    }

    /// Starts the recording: the two buffers that every rank has, ranks, and where the collective keeps buffers that are
    /// a part of others (`"same"`, `"output is input"`, `"input in output"`, `"output in input"`, `"asked"`).
    #[allow(clippy::too_many_arguments)]
    fn _begin(
        &self,
        py: Python<'_>,
        input: Py<PyAny>,
        output: Py<PyAny>,
        ranks: u32,
        mapping: &str,
        factor: u32,
        topology: Py<PyAny>,
        collective: Py<PyAny>,
        quirks: bool,
    ) -> PyResult<()> {
        let mapping = match mapping {
            "same" => Mapping::Same,
            "output is input" => Mapping::OutputIsInput,
            "input in output" => Mapping::InputInOutput,
            "output in input" => Mapping::OutputInInput,
            _ => Mapping::Asked,
        };
        let recording = Recording::new(ranks, Budget::default()).map_err(|finding| errors::raise_one(py, finding))?;
        let names = vec![input.clone_ref(py), output.clone_ref(py)];
        let ids = PyDict::new(py).unbind();
        let mut origins = Origins::default();
        let here = Here::now(py)?;
        // The caller is the class in Python; the program stands where that was called.
        origins.intern(here.back()?.as_ref().unwrap_or(&here).origin());
        *self.lock() = Some(State { recording, origins, names, links: FxHashMap::default() });
        let fixed = Fixed { input, output, ids, topology, collective, mapping, factor, ranks, quirks };
        self.fixed.set(py, fixed).map_err(|_| refuse(py, Kind::Runtime, "AHBM-A201", "the program has begun already"))
    }

    /// A buffer of a rank: `"list"` and `"slice"` (which grows) of chunks, `"same"` as another buffer.
    #[pyo3(signature = (rank, buffer, kind, chunks, other=None))]
    fn _buffer(
        &self,
        rank: u32,
        buffer: &Bound<'_, PyAny>,
        kind: &str,
        chunks: Vec<Option<Four>>,
        other: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = buffer.py();
        let rank = self.rank(py, rank.into())?;
        let id = self.id(buffer)?;
        let chunks = chunks.into_iter().map(|chunk| chunk.map(given)).collect();
        let start = match (kind, other) {
            ("same", Some(other)) => Start::Same(self.id(other)?),
            ("slice", _) => Start::Slice(chunks),
            _ => Start::List(chunks),
        };
        self.with(py, |state| state.recording.add_buffer(rank, id, start))?
            .map_err(|finding| errors::raise_one(py, finding))
    }

    /// The first `count` slots of every rank's input hold an input of the program.
    fn _starts(&self, py: Python<'_>, rank: u32, count: u32) -> PyResult<()> {
        let rank = self.rank(py, rank.into())?;
        for index in 0..count {
            let (buffer, index) = self.mapped(py, rank, INPUT, index.into())?;
            let index = u32::try_from(index).map_err(|_| outside(py, index))?;
            self.with(py, |state| state.recording.start(rank, buffer, index, 0))?;
        }
        Ok(())
    }

    /// Keys of a rank's buffers.
    fn _names(&self, py: Python<'_>, rank: u32) -> PyResult<Vec<Py<PyAny>>> {
        let rank = self.rank(py, rank.into())?;
        self.with(py, |state| {
            let recording = &state.recording;
            let fixed = [INPUT, OUTPUT].into_iter().filter(|&buffer| recording.length(rank, buffer).is_some());
            let all = fixed.chain(recording.slices(rank).iter().copied());
            all.map(|buffer| state.names[buffer as usize].clone_ref(py)).collect()
        })
    }

    /// Slots of a buffer; None: the rank has no such buffer.
    fn _length(&self, rank: u32, buffer: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
        let py = buffer.py();
        let Some(id) = self.known(buffer)? else { return Ok(None) };
        self.with(py, |state| state.recording.length(rank, id))
    }

    /// What is in a slot: None, or the rank that made the sum (None: no sum) and chunks of inputs.
    fn _value(&self, rank: u32, buffer: &Bound<'_, PyAny>, index: u32) -> PyResult<Option<(Option<u32>, Vec<Four>)>> {
        let py = buffer.py();
        let Some(id) = self.known(buffer)? else { return Ok(None) };
        let found = self.with(py, |state| {
            let value = state.recording.value(rank, id, index).filter(|value| !value.is_none())?;
            Some(parts(&state.recording, value))
        })?;
        let too_many = || {
            let message = format!("a sum of more than {SHOWN} chunks");
            refuse(py, Kind::Value, "AHBM-A210", message)
        };
        found.map(|parts| parts.ok_or_else(too_many)).transpose()
    }

    /// Slots (rank, index) of the result that do not hold what the collective promises.
    fn _wrong(
        &self,
        py: Python<'_>,
        collective: &str,
        factor: u32,
        in_place: bool,
        root: u32,
    ) -> PyResult<Vec<(u32, u32)>> {
        self.with(py, |state| wrong(&state.recording, collective, factor, in_place, root))
    }

    /// A reference to slots. `prog.get_ref` of upstream.
    fn get_ref(
        slf: &Bound<'_, Self>,
        rank: &Bound<'_, PyAny>,
        buffer: &Bound<'_, PyAny>,
        index: &Bound<'_, PyAny>,
        size: &Bound<'_, PyAny>,
    ) -> PyResult<Ref> {
        let this = slf.get();
        let rank = this.rank(slf.py(), number(Some(rank), 0, "rank")?)?;
        let (buffer, index) = this.mapped(slf.py(), rank, this.id(buffer)?, number(Some(index), 0, "index")?)?;
        Self::refer(slf, rank, buffer, index, number(Some(size), 1, "size")?)
    }

    /// The plan, its text, and the notes about it.
    #[pyo3(signature = (*, name, goal, root, factor, in_place, protocol, instances, interleaved, fusion, manual, check,
                        gathered, collective, sizes))]
    #[allow(clippy::too_many_arguments)]
    fn _lower<'py>(
        &self,
        py: Python<'py>,
        name: String,
        goal: &str,
        root: u32,
        factor: u32,
        in_place: bool,
        protocol: &str,
        instances: u32,
        interleaved: bool,
        fusion: bool,
        manual: bool,
        check: bool,
        gathered: bool,
        collective: String,
        sizes: bool,
    ) -> PyResult<(PyDocument, String, Bound<'py, PyList>)> {
        let goal = match goal {
            "send_recv" => Goal::SendRecv { shift: 1 },
            name => Collective::parse(name).map_or(Goal::Custom, |collective| Goal::new(collective, root)),
        };
        let faith = if self.fixed(py)?.quirks { Faith::AsIs } else { Faith::Meant };
        let (origins, names) = self.with(py, |state| {
            let origins: Vec<Origin> = state.origins.iter().cloned().collect();
            let names: Vec<Py<PyAny>> = state.names.iter().map(|name| name.clone_ref(py)).collect();
            (origins, names)
        })?;
        let buffers = names.iter().map(|name| Ok(name.bind(py).str()?.to_string())).collect::<PyResult<_>>()?;
        let options = Options {
            name,
            goal,
            factor,
            in_place,
            protocol: Protocol::parse(protocol).unwrap_or(Protocol::Simple),
            instances,
            interleaved,
            fusion,
            manual,
            check_order: check,
            gathered,
            faith,
            buffers,
        };
        let outcome = py.detach(|| {
            let guarded = errors::guard(|| {
                // The lock is given back before the interpreter's is taken again.
                let state = self.lock();
                let State { recording, .. } = state.as_ref().expect("a program that has begun");
                Ok(lower(recording, &origins, &options).map(|mut lowered| {
                    let dialect = Dialect::Compiler { collective: &collective, sizes };
                    let text = write_as(&lowered.plan, dialect);
                    lowered.plan.warnings = warnings_as(&lowered.plan, dialect);
                    (lowered, text)
                }))
            });
            guarded.unwrap_or_else(|findings| Err(Box::new(Refusal { kind: Kind::Runtime, findings })))
        });
        let (Lowered { plan, notes }, text) = outcome.map_err(|refusal| raise(py, *refusal))?;
        let notes = errors::to_list(py, &notes)?;
        Ok((PyDocument::lowered(plan, Budget::default()), text, notes))
    }
}

impl MscclRecorder {
    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, py: Python<'_>, work: impl FnOnce(&mut State) -> T) -> PyResult<T> {
        match self.lock().as_mut() {
            Some(state) => Ok(work(state)),
            None => Err(not_begun(py)),
        }
    }

    fn fixed(&self, py: Python<'_>) -> PyResult<&Fixed> {
        self.fixed.get(py).ok_or_else(|| not_begun(py))
    }

    pub(super) fn quirks(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.fixed(py)?.quirks)
    }

    /// The number of a buffer; a new one for a name that is new.
    pub(super) fn id(&self, buffer: &Bound<'_, PyAny>) -> PyResult<u32> {
        if let Some(id) = self.known(buffer)? {
            return Ok(id);
        }
        let py = buffer.py();
        let id = self.with(py, |state| {
            state.names.push(buffer.clone().unbind());
            state.names.len() as u32 - 1
        })?;
        self.fixed(py)?.ids.bind(py).set_item(buffer, id)?;
        Ok(id)
    }

    fn known(&self, buffer: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
        let py = buffer.py();
        let fixed = self.fixed(py)?;
        if buffer.is(&fixed.input) {
            return Ok(Some(INPUT));
        }
        if buffer.is(&fixed.output) {
            return Ok(Some(OUTPUT));
        }
        match fixed.ids.bind(py).get_item(buffer) {
            Ok(found) => found.map(|id| id.extract()).transpose(),
            Err(error) => Err(refuse(py, Kind::Type, "AHBM-A202", format!("no name of a buffer: {}", error.value(py)))),
        }
    }

    pub(super) fn name(&self, py: Python<'_>, buffer: u32) -> PyResult<Py<PyAny>> {
        self.with(py, |state| state.names[buffer as usize].clone_ref(py))
    }

    pub(super) fn rank(&self, py: Python<'_>, rank: i64) -> PyResult<u32> {
        let ranks = self.fixed(py)?.ranks;
        match u32::try_from(rank) {
            Ok(rank) if rank < ranks => Ok(rank),
            _ => Err(refuse(py, Kind::Index, "AHBM-A203", format!("rank {rank} of {ranks} ranks"))),
        }
    }

    /// Where the collective keeps a slot.
    pub(super) fn mapped(&self, py: Python<'_>, rank: u32, buffer: u32, index: i64) -> PyResult<(u32, i64)> {
        let fixed = self.fixed(py)?;
        let block = i64::from(rank) * i64::from(fixed.factor);
        Ok(match (fixed.mapping, buffer) {
            (Mapping::OutputIsInput, OUTPUT) => (INPUT, index),
            (Mapping::InputInOutput, INPUT) => (OUTPUT, index.saturating_add(block)),
            (Mapping::OutputInInput, OUTPUT) => (INPUT, index.saturating_add(block)),
            (Mapping::Asked, _) => {
                let name = self.name(py, buffer)?;
                let answer = fixed.collective.bind(py).call_method1("get_buffer_index", (rank, name, index))?;
                let Ok((buffer, index)) = answer.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
                    let message = format!("get_buffer_index() gave {answer}, no pair of a buffer and an index");
                    return Err(refuse(py, Kind::Type, "AHBM-A210", message));
                };
                (self.id(&buffer)?, number(Some(&index), 0, "index")?)
            }
            _ => (buffer, index),
        })
    }

    /// True when the topology has a link; each pair is asked once.
    pub(super) fn link(&self, py: Python<'_>, src: u32, dst: u32) -> PyResult<bool> {
        if src == dst {
            return Ok(true);
        }
        if let Some(known) = self.with(py, |state| state.links.get(&(src, dst)).copied())? {
            return Ok(known);
        }
        let answer = self.fixed(py)?.topology.bind(py).call_method1("link", (src, dst))?.is_truthy()?;
        self.with(py, |state| state.links.insert((src, dst), answer))?;
        Ok(answer)
    }

    /// Changes the recording at the line of the caller.
    pub(super) fn record(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Recording, u32) -> Result<(), Box<Refusal>>,
    ) -> PyResult<()> {
        let origin = self.sites.origin(&Here::now(py)?)?;
        let outcome = self.with(py, |state| {
            let origin = state.origins.intern(origin);
            work(&mut state.recording, origin.0)
        })?;
        outcome.map_err(|refusal| raise(py, *refusal))
    }

    pub(super) fn read<T>(&self, py: Python<'_>, work: impl FnOnce(&Recording) -> T) -> PyResult<T> {
        self.with(py, |state| work(&state.recording))
    }

    /// A reference to slots that the collective maps to themselves.
    pub(super) fn refer(slf: &Bound<'_, Self>, rank: u32, buffer: u32, index: i64, size: i64) -> PyResult<Ref> {
        let py = slf.py();
        let index = u32::try_from(index).map_err(|_| outside(py, index))?;
        let size = match u32::try_from(size) {
            Ok(size) if size > 0 => size,
            _ => return Err(refuse(py, Kind::Value, "AHBM-A206", format!("a reference to {size} chunks"))),
        };
        Ok(Ref { program: slf.clone().unbind(), place: Place { rank, buffer, index, size } })
    }
}

/// A reference to `size` slots of a buffer of a rank, in the program of the context.
///
/// A slot that was never written gives an object that is false and fails when it is used, as None does upstream. Raises
/// `ProgramError`: AHBM-A201 outside a program, AHBM-A202 for other arguments, AHBM-A203 outside a buffer.
#[pyfunction]
#[pyo3(name = "msccl_chunk", signature = (*args, **kwargs), text_signature = "(rank, buffer, index, size=1)")]
pub(crate) fn chunk<'py>(
    py: Python<'py>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let [rank, buffer, index, size] = bind("chunk", ["rank", "buffer", "index", "size"], 3, args, kwargs)?;
    let program = current(py)?;
    let this = program.get();
    let rank = this.rank(py, number(rank.as_ref(), 0, "rank")?)?;
    let Some(buffer) = buffer else { return Err(not_begun(py)) };
    let asked = number(index.as_ref(), 0, "index")?;
    let Some(id) = this.known(&buffer)? else { return Err(no_buffer(py, &buffer, rank)) };
    let (id, at) = this.mapped(py, rank, id, asked)?;
    let slot = u32::try_from(at).map_err(|_| outside(py, asked))?;
    let (length, value) = this.read(py, |recording| (recording.length(rank, id), recording.value(rank, id, slot)))?;
    match (length, value) {
        (None, _) => Err(no_buffer(py, &buffer, rank)),
        (Some(length), None) => {
            let message = format!("list index out of range: slot {slot} of a buffer that has {length} on rank {rank}");
            Err(refuse(py, Kind::Index, "AHBM-A203", message))
        }
        (_, Some(value)) if value.is_none() && this.quirks(py)? => Ok(py.None().into_bound(py)),
        (_, Some(value)) if value.is_none() => {
            let place = Here::now(py)?.origin().to_string();
            py.import("ahbm.dsl.msccl.refusals")?.getattr("Nothing")?.call1((rank, buffer, asked, place))
        }
        _ => {
            let size = number(size.as_ref(), 1, "size")?;
            Ok(Bound::new(py, MscclRecorder::refer(&program, rank, id, at, size)?)?.into_any())
        }
    }
}

fn current(py: Python<'_>) -> PyResult<Bound<'_, MscclRecorder>> {
    let variable = CURRENT.get_or_try_init(py, || -> PyResult<Py<PyAny>> {
        Ok(py.import("ahbm.dsl.msccl.program")?.getattr("CURRENT")?.getattr("get")?.unbind())
    })?;
    let program = variable.bind(py).call0()?;
    program.cast_into::<MscclRecorder>().map_err(|_| not_begun(py))
}

fn not_begun(py: Python<'_>) -> PyErr {
    refuse(py, Kind::Runtime, "AHBM-A201", "No Program in context")
}

fn no_buffer(py: Python<'_>, buffer: &Bound<'_, PyAny>, rank: u32) -> PyErr {
    let name = buffer.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string());
    refuse(py, Kind::Key, "AHBM-A203", format!("rank {rank} has no buffer {name}"))
}

pub(super) fn outside(py: Python<'_>, index: i64) -> PyErr {
    refuse(py, Kind::Index, "AHBM-A203", format!("slot {index} of a buffer"))
}

fn given((origin_rank, origin_index, dst_rank, dst_index): Four) -> Given {
    Given { origin_rank, origin_index, dst_rank, dst_index }
}

/// The rank that made a sum, and its chunks; `None` for more than are handed out.
pub(super) fn parts(recording: &Recording, value: Value) -> Option<(Option<u32>, Vec<Four>)> {
    let values = recording.values();
    if values.parts(value) > SHOWN {
        return None;
    }
    let four = |given: Given| (given.origin_rank, given.origin_index, given.dst_rank, given.dst_index);
    Some((values.creator(value), values.chunks(value).into_iter().map(four).collect()))
}

fn wrong(recording: &Recording, collective: &str, factor: u32, in_place: bool, root: u32) -> Vec<(u32, u32)> {
    let ranks = recording.ranks();
    let values = recording.values();
    let result = if in_place && matches!(collective, "allreduce" | "reducescatter" | "sendrecv" | "broadcast") {
        INPUT
    } else {
        OUTPUT
    };
    let mut found = Vec::new();
    // Equal slots of several ranks are often one value.
    let mut sums: FxHashMap<(Value, u32), bool> = FxHashMap::default();
    for rank in 0..ranks {
        let slots = match collective {
            "allgather" | "alltoall" => ranks.saturating_mul(factor),
            _ => factor,
        };
        for i in 0..slots {
            let (block, within) = (i / factor.max(1), i % factor.max(1));
            let index = match collective {
                "reducescatter" if in_place => rank * factor + i,
                _ => i,
            };
            let value = recording.value(rank, result, index).unwrap_or(Value::NONE);
            let mut sum = |index: u32| {
                let known = sums.entry((value, index));
                *known.or_insert_with(|| values.is_whole_sum(value, index.into(), ranks))
            };
            let right = match collective {
                "allreduce" => sum(i),
                "reducescatter" => sum(rank * factor + i),
                "allgather" => values.is_chunk(value, block, within.into()),
                "alltoall" => values.is_chunk(value, block, (within + rank * factor).into()),
                "broadcast" => values.is_chunk(value, root, i.into()),
                _ => values.is_chunk(value, 1 - rank.min(1), i.into()),
            };
            if !right {
                found.push((rank, index));
            }
        }
    }
    found
}
