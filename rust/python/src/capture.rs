//! The recording behind `tl`: one kernel call becomes one body.

use crate::errors;
use crate::operand::{self, Fault, MADE_BYTES, Shape, fault};
use crate::origin::{Here, Lines};
use crate::peer::Toward;
use crate::symbolic::{Operand, Path, SymbolicInt, Walked};
use ahbm_findings::Diagnostic;
use ahbm_machine::{Coord, Direction, Sfr};
use ahbm_program::class::{Access, Group, View, Way};
use ahbm_program::formula::Axis;
use ahbm_program::{
    BodyBuilder, Class, Control, Dtype, Formulas, OpKind, OriginId, Origins, Scalar, Term, Tile, ValueId,
};
use indexmap::{Equivalent, IndexSet};
use pyo3::prelude::*;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The inputs of a kernel's call besides its arguments.
pub(crate) struct Launch {
    /// Kernel name for people.
    pub(crate) kernel: String,
    /// Virtual coordinates.
    pub(crate) coord: Coord,
    /// Extents behind `num_programs`, by axis.
    pub(crate) num_programs: [u32; 2],
    /// SIPs of the launch.
    pub(crate) ranks: u32,
    pub(crate) views: Vec<View>,
    /// Element type of the tensor behind the views.
    pub(crate) dtype: Dtype,
    /// Limit on `tl` calls and on operations.
    pub(crate) budget: u64,
    /// Spells directions.
    pub(crate) sfr: Sfr,
    /// Whether the kernel sees its place as symbolic integers.
    pub(crate) symbolic: bool,
}

/// A launch and its recording.
pub(crate) struct Capture {
    pub(crate) launch: Launch,
    pub(crate) path: Arc<Path>,
    recorder: Mutex<Recorder>,
}

/// The recording of a kernel call that has returned. The origins of the class's body index the table beside it.
pub(crate) struct Recorded {
    pub(crate) class: Class,
    pub(crate) origins: Origins,
    /// Number of `tl` calls.
    pub(crate) calls: u64,
    pub(crate) formulas: Formulas,
    /// Line of every condition of the class.
    pub(crate) asked: Vec<String>,
}

/// A byte address, with its formula where it depends on the place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address {
    pub(crate) value: u64,
    pub(crate) term: Option<Term>,
}

/// The body so far. Only the methods of [`Capture`] hand it out, under its lock.
pub(crate) struct Recorder {
    /// `None` once the kernel has returned.
    body: Option<BodyBuilder>,
    lines: Lines,
    /// Origin of the call being recorded.
    origin: OriginId,
    calls: u64,
    /// Calls not yet carried by an operation.
    pending: u16,
    /// Mirrors the body's tiles, to look one up without building it.
    tiles: IndexSet<Tile, FxBuildHasher>,
    /// Ranges of memory that were named, and those that operations use.
    accesses: IndexSet<Access, FxBuildHasher>,
    mems: IndexSet<u32, FxBuildHasher>,
    groups: IndexSet<Group, FxBuildHasher>,
    ways: IndexSet<Way, FxBuildHasher>,
    /// By text.
    directions: FxHashMap<Box<str>, u16>,
}

impl Capture {
    /// A recording whose formulas are added to `formulas`, and whose origins are those of `lines`.
    pub(crate) fn new(launch: Launch, formulas: Formulas, lines: Lines) -> Self {
        let recorder = Recorder {
            body: Some(BodyBuilder::new()),
            lines,
            origin: OriginId(0),
            calls: 0,
            pending: 0,
            tiles: IndexSet::default(),
            accesses: IndexSet::default(),
            mems: IndexSet::default(),
            groups: IndexSet::default(),
            ways: IndexSet::default(),
            directions: FxHashMap::default(),
        };
        Self { launch, path: Arc::new(Path::new(formulas)), recorder: Mutex::new(recorder) }
    }

    fn lock(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One `tl` call: counts it and records what `record` pushes. `record` must not run Python code.
    #[inline]
    pub(crate) fn call<T>(
        &self,
        py: Python<'_>,
        record: impl FnOnce(&mut Recorder) -> Result<T, Fault>,
    ) -> PyResult<T> {
        let here = Here::now(py)?;
        let mut recorder = self.lock();
        let outcome = recorder.count(&self.launch).and_then(|()| {
            recorder.origin = recorder.lines.origin(&here);
            record(&mut recorder)
        });
        drop(recorder);
        outcome.map_err(|fault| self.raise_at(py, &here, *fault))
    }

    /// One `tl` call that records no operation.
    pub(crate) fn count(&self, py: Python<'_>) -> PyResult<()> {
        let mut recorder = self.lock();
        if recorder.calls == 0 {
            // The operation that will carry this call may be the only one: it needs an origin.
            drop(recorder);
            return self.call(py, |_| Ok(()));
        }
        let outcome = recorder.count(&self.launch);
        drop(recorder);
        outcome.map_err(|fault| self.raise(py, *fault))
    }

    /// The exception for a fault of the kernel's current line.
    #[cold]
    pub(crate) fn raise(&self, py: Python<'_>, fault: Diagnostic) -> PyErr {
        match Here::now(py) {
            Ok(here) => self.raise_at(py, &here, fault),
            Err(error) => error,
        }
    }

    fn raise_at(&self, py: Python<'_>, here: &Here<'_>, fault: Diagnostic) -> PyErr {
        let origin = self.lock().lines.calls(here);
        errors::raise_one(py, fault.site(self.launch.label(), origin.to_string()))
    }

    /// The tile behind an index, also after the kernel has returned.
    pub(crate) fn tile(&self, index: u32) -> Tile {
        self.lock().tiles[index as usize].clone()
    }

    /// Gives a dead value's slot back.
    pub(crate) fn release(&self, value: ValueId) {
        self.lock().release(value);
    }

    /// Ends the recording; `tl` and its handles are inert from here on.
    pub(crate) fn finish(&self) -> Option<Recorded> {
        let mut recorder = self.lock();
        recorder.flush();
        let body = recorder.body.take()?.finish();
        let Walked { formulas, conditions, asked } = self.path.close();
        let class = Class {
            body,
            conditions,
            accesses: std::mem::take(&mut recorder.accesses).into_iter().collect(),
            mems: std::mem::take(&mut recorder.mems).into_iter().collect(),
            groups: std::mem::take(&mut recorder.groups).into_iter().collect(),
            ways: std::mem::take(&mut recorder.ways).into_iter().collect(),
        };
        let (lines, calls) = (std::mem::take(&mut recorder.lines), recorder.calls);
        drop(recorder);
        Some(Recorded { class, origins: lines.into_origins(), calls, formulas, asked })
    }

    /// A coordinate of the place, which runs over `count` values at the places of the launch.
    pub(crate) fn coordinate<'py>(&self, py: Python<'py>, axis: Axis, count: u32) -> PyResult<Bound<'py, PyAny>> {
        let value = axis.of(self.launch.coord);
        if self.launch.symbolic && count > 1 {
            return Ok(Bound::new(py, SymbolicInt::axis(&self.path, axis, value))?.into_any());
        }
        Ok(value.into_pyobject(py)?.into_any())
    }
}

/// A kernel at a place, for people.
pub(crate) fn label(kernel: &str, at: Coord) -> String {
    format!("kernel {kernel} at {at}")
}

impl Launch {
    /// Who is being captured.
    pub(crate) fn label(&self) -> String {
        label(&self.kernel, self.coord)
    }

    /// Checks that `bytes` at a virtual address are the kernel's to touch.
    fn inside(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        let end = address.saturating_add(bytes);
        if self.views.iter().any(|view| view.address <= address && end <= view.end()) {
            return Ok(());
        }
        let views: Vec<String> = self.views.iter().map(|v| format!("[{:#x}, {:#x})", v.address, v.end())).collect();
        Err(operand::fault(
            "AHBM-K204",
            format!("bytes [{address:#x}, {end:#x}) are not inside one shard of the tensor"),
        )
        .hint(format!("this PE may touch {}; check pointer, shape and dtype", views.join(", ")))
        .into())
    }

    /// Checks the dtype of an access against the tensor's.
    pub(crate) fn access(&self, dtype: Dtype) -> Result<(), Fault> {
        if dtype == self.dtype {
            return Ok(());
        }
        Err(operand::fault("AHBM-K205", format!("access as {dtype} to a tensor of {}", self.dtype))
            .hint(format!("pass dtype=\"{}\", or convert the value with tl.cast", self.dtype))
            .into())
    }
}

impl Recorder {
    fn count(&mut self, launch: &Launch) -> Result<(), Fault> {
        let Some(body) = &self.body else {
            return Err(operand::fault("AHBM-K201", "tl was used after its kernel had returned")
                .hint("tl and handles live as long as one kernel call; do not keep them")
                .into());
        };
        let reached = self.calls.max(body.len() as u64);
        if reached >= launch.budget {
            return Err(operand::fault(
                "AHBM-B101",
                format!(
                    "recorded {} operations in {} tl calls, the budget is {}",
                    body.len(),
                    self.calls,
                    launch.budget
                ),
            )
            .hint("does the kernel's loop end? Raise op_budget if it is meant to be this long")
            .into());
        }
        if self.pending == u16::MAX {
            self.flush();
        }
        self.calls += 1;
        self.pending += 1;
        Ok(())
    }

    /// Charges pending calls to an operation of their own.
    fn flush(&mut self) {
        if self.pending > 0 {
            self.push(Control::Delay { ps: 0 });
        }
    }

    fn body(&mut self) -> &mut BodyBuilder {
        self.body.as_mut().expect("count() lets nobody past a closed recording")
    }

    /// Appends an operation that carries the pending calls.
    pub(crate) fn push(&mut self, kind: impl Into<OpKind>) {
        let calls = std::mem::take(&mut self.pending);
        let origin = self.origin;
        self.body().push(kind, calls, origin);
    }

    /// Appends an operation that defines a value.
    pub(crate) fn define<K: Into<OpKind>>(&mut self, kind: impl FnOnce(ValueId) -> K) -> ValueId {
        let value = self.body().value();
        self.push(kind(value));
        value
    }

    /// Declares a value dead.
    pub(crate) fn release(&mut self, value: ValueId) {
        if let Some(body) = &mut self.body {
            body.release(value);
        }
    }

    /// The tile behind an index.
    pub(crate) fn tile_at(&self, index: u32) -> &Tile {
        &self.tiles[index as usize]
    }

    /// Interns a tile.
    pub(crate) fn tile(&mut self, dtype: Dtype, shape: &[u64]) -> u32 {
        if let Some(index) = self.tiles.get_index_of(&TileKey { dtype, shape }) {
            return index as u32;
        }
        let tile = Tile::new(dtype, shape);
        self.tiles.insert(tile.clone());
        self.body().tile(tile)
    }

    /// Interns the tile of a value that a kernel makes instead of reading it, and which is as large as it says.
    pub(crate) fn made(&mut self, dtype: Dtype, shape: &[u64]) -> Result<u32, Fault> {
        let known = self.tiles.contains(&TileKey { dtype, shape });
        let bytes = shape.iter().fold(dtype.bytes(), |bytes, &extent| bytes.saturating_mul(extent));
        if known || bytes <= MADE_BYTES {
            return Ok(self.tile(dtype, shape));
        }
        let text = format!("a value of shape {shape:?} of {dtype}: {bytes} bytes, made by the kernel");
        Err(fault("AHBM-B102", text)
            .hint(format!("at most {MADE_BYTES} bytes, or as large as a value it has read"))
            .into())
    }

    /// Interns the tile of an argument pair.
    pub(crate) fn shaped(&mut self, dtype: Dtype, shape: &Shape) -> u32 {
        self.tile(dtype, shape.extents())
    }

    /// Names `bytes` at an address; returns the number of the access.
    pub(crate) fn access(&mut self, capture: &Capture, address: Address, bytes: u64) -> Result<u32, Fault> {
        capture.launch.inside(address.value, bytes)?;
        let constant = || capture.path.formulas(|formulas| formulas.constant(address.value as i64));
        let address = address.term.unwrap_or_else(constant);
        Ok(self.accesses.insert_full(Access { address, bytes }).0 as u32)
    }

    /// Interns the memory operand of an access.
    pub(crate) fn mem(&mut self, access: u32) -> u32 {
        self.mems.insert_full(access).0 as u32
    }

    /// Interns the group of an access at several SIPs.
    pub(crate) fn group(&mut self, capture: &Capture, access: u32, sips: &[Operand]) -> Result<u32, Fault> {
        let launch = &capture.launch;
        let wrong =
            |what: String| Err(fault("AHBM-K209", what).hint("sips= names each SIP of the launch at most once").into());
        for (position, sip) in sips.iter().enumerate() {
            if !(0..i64::from(launch.ranks)).contains(&sip.value) {
                return wrong(format!("SIP {} of {}", sip.value, launch.ranks));
            }
            if sips[..position].iter().any(|other| other.value == sip.value) {
                return wrong(format!("SIP {} twice in one group", sip.value));
            }
        }
        if sips.is_empty() {
            return wrong("a group of no SIPs".to_owned());
        }
        let views = launch.views.len() * (1 + launch.ranks as usize);
        if views > usize::from(u16::MAX) {
            let what = format!("{views} views of {} SIPs, at most {}", launch.ranks, u16::MAX);
            return Err(fault("AHBM-B103", what).hint("fewer ranks").into());
        }
        let sips = sips.iter().map(|&sip| capture.path.term(sip)).collect();
        Ok(self.groups.insert_full(Group { access, sips }).0 as u32)
    }

    /// Interns a scalar.
    pub(crate) fn scalar(&mut self, scalar: Scalar) -> u32 {
        self.body().scalar(scalar)
    }

    /// Interns a direction.
    pub(crate) fn direction(&mut self, launch: &Launch, toward: &Toward<'_>) -> Result<u16, Fault> {
        if let Toward::Text(text) = toward
            && let Some(&index) = self.directions.get(&**text)
        {
            return Ok(index);
        }
        let (direction, way) = toward.known()?;
        if launch.sfr.canonical(launch.coord, direction) == (Direction::Peer { sip: None, cube: None, pe: None }) {
            return Err(operand::fault("AHBM-K208", format!("\"{toward}\" is the PE that runs the kernel itself"))
                .hint("a PE has no queue to itself; keep the value, or skip the call")
                .into());
        }
        let index = self.ways.insert_full(way).0 as u16;
        if let Toward::Text(text) = toward {
            self.directions.insert((**text).into(), index);
        }
        Ok(index)
    }
}

/// Looks up a [`Tile`] by its parts; hashes like one.
struct TileKey<'a> {
    dtype: Dtype,
    shape: &'a [u64],
}

impl Hash for TileKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.dtype.hash(state);
        self.shape.hash(state);
    }
}

impl Equivalent<Tile> for TileKey<'_> {
    fn equivalent(&self, tile: &Tile) -> bool {
        self.dtype == tile.dtype && self.shape == &*tile.shape
    }
}
