//! What one accelerator did in a profiler's trace (kineto), operation by operation: which kernels each operation of the
//! host launched, with the operands that it states (`record_shapes`).

use super::events::{Clock, Event, is_activity, is_call};
use super::facts::number;
use super::stream::{Part, Stream, malformed, owned, parsed};
use ahbm_findings::Diagnostic;
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use serde_json::{Map, Value as Json};

/// What an operation states of its operands.
const STATED: [&str; 4] = ["Input Dims", "Input type", "Input Strides", "Concrete Inputs"];

/// Operations within each other, far more than any script has.
const DEEPEST: usize = 512;

/// An operation of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Name and operands: the place in [`Profile::signatures`].
    pub signature: u32,
    /// The operation of the same thread that it is part of.
    pub parent: Option<u32>,
    /// Its thread, counted in the order in which threads begin.
    pub thread: u32,
    /// Picoseconds from the first event.
    pub start: u64,
    /// How long it took, in picoseconds.
    pub ps: u64,
}

/// A kernel, a copy or a fill of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launched {
    /// The innermost operation that launched it.
    pub operation: Option<u32>,
    /// The place in [`Profile::names`].
    pub name: u32,
    /// Its stream.
    pub stream: u32,
    /// Picoseconds from the first event.
    pub start: u64,
    /// How long it took, in picoseconds.
    pub ps: u64,
    /// Bytes, of a copy or a fill that states them.
    pub bytes: u64,
}

/// What one accelerator did.
#[derive(Debug, Default)]
pub struct Profile {
    /// The name of the accelerator, as its driver has it.
    pub device: Option<String>,
    /// Its units, and the bytes of its memory.
    pub units: Option<u64>,
    /// Bytes of its memory.
    pub memory: Option<u64>,
    /// Whether it recorded stacks of Python, which slow the host down.
    pub stacks: bool,
    /// Names of operations, each with what it states of its operands, as a JSON object.
    pub signatures: IndexSet<(Box<str>, Box<str>), FxBuildHasher>,
    /// In the order of their start, thread by thread.
    pub operations: Vec<Operation>,
    /// Names of kernels.
    pub names: IndexSet<Box<str>, FxBuildHasher>,
    /// In the order of their start.
    pub kernels: Vec<Launched>,
}

/// An operation as it stands in the trace.
struct Spoken {
    signature: u32,
    thread: u32,
    start: Clock,
    ps: u64,
    id: Option<u64>,
}

/// A kernel as it stands in the trace.
struct Ran {
    name: u32,
    stream: u32,
    start: Clock,
    ps: u64,
    bytes: u64,
    id: Option<u64>,
    correlation: Option<u64>,
}

#[derive(Default)]
struct Reader {
    profile: Profile,
    operations: Vec<Spoken>,
    kernels: Vec<Ran>,
    /// By correlation, where and when the runtime was called.
    calls: FxHashMap<u64, (u32, Clock)>,
    threads: IndexSet<Box<str>, FxBuildHasher>,
    devices: FxHashSet<u64>,
    properties: Vec<Json>,
    /// Of a timeline that AHBM has written: its first process with rows of computations, and those rows, each with the
    /// computation that is under way.
    process: Option<Box<str>>,
    rows: FxHashMap<Box<str>, Option<(u32, Clock)>>,
}

/// What rows of computations are called in a timeline that AHBM has written.
const COMPUTING: &str = "computing";

/// Reads a profiler's trace.
pub(super) fn read(file: &str, stream: Stream<'_>) -> Result<Profile, Diagnostic> {
    let mut reader = Reader::default();
    stream.each("traceEvents", |part, offset| match part {
        Part::Element(bytes) => {
            let read = |bytes: &[u8]| Ok(reader.event(&serde_json::from_slice(bytes)?, file, offset));
            parsed(bytes, read).map_err(|error| malformed(file, offset, &error.to_string()))?
        }
        Part::Member("deviceProperties", bytes) => {
            let wrong = |error: serde_json::Error| malformed(file, offset, &error.to_string());
            reader.properties = owned(bytes).map_err(wrong)?;
            Ok(())
        }
        Part::Member("with_stack", bytes) => {
            reader.profile.stacks = bytes != b"0" && bytes != b"false";
            Ok(())
        }
        Part::Member(..) => Ok(()),
    })?;
    if reader.devices.len() > 1 {
        let what = format!("the trace has kernels of {} devices", reader.devices.len());
        return Err(Diagnostic::new("AHBM-F184", what).site("trace", file).hint("record one device"));
    }
    reader.finish().ok_or_else(|| malformed(file, 0, &format!("operations are nested more than {DEEPEST} deep")))
}

impl Reader {
    fn event(&mut self, event: &Event<'_>, file: &str, offset: u64) -> Result<(), Diagnostic> {
        if !event.is_span() {
            return self.written(event, file, offset);
        }
        let category = event.category();
        if is_activity(category) {
            let ((start, ps), args) = (event.span(file, offset)?, event.args(file, offset)?);
            let name = self.profile.names.insert_full(event.name().into()).0 as u32;
            let stream = args.get("stream").or_else(|| args.get("queue")).and_then(number).unwrap_or_default();
            self.devices.extend(args.get("device").and_then(number::<u64>));
            let of = |key: &str| args.get(key).and_then(number::<u64>);
            let (bytes, id, correlation) = (of("bytes").unwrap_or(0), of("External id"), of("correlation"));
            self.kernels.push(Ran { name, stream, start, ps, bytes, id, correlation });
        } else if is_call(category) {
            let ((start, _), args) = (event.span(file, offset)?, event.args(file, offset)?);
            if let Some(correlation) = args.get("correlation").and_then(number) {
                let thread = self.thread(event);
                self.calls.insert(correlation, (thread, start));
            }
        } else if matches!(category, "cpu_op" | "Operator") {
            let ((start, ps), args) = (event.span(file, offset)?, event.args(file, offset)?);
            let stated: Map<String, Json> =
                STATED.iter().filter_map(|&key| Some((key.to_owned(), args.get(key)?.clone()))).collect();
            let signature = (event.name().into(), Json::Object(stated).to_string().into());
            let signature = self.profile.signatures.insert_full(signature).0 as u32;
            let thread = self.thread(event);
            let id = args.get("External id").and_then(number);
            self.operations.push(Spoken { signature, thread, start, ps, id });
        }
        Ok(())
    }

    /// An event of a timeline that AHBM has written: of the first rank, computations begin and end on rows of their own.
    fn written(&mut self, event: &Event<'_>, file: &str, offset: u64) -> Result<(), Diagnostic> {
        match event.phase() {
            "M" if event.name() == "thread_name" => {
                let args = event.args(file, offset)?;
                let is_row = args.get("name").and_then(Json::as_str).is_some_and(|name| name.starts_with(COMPUTING));
                if is_row && **self.process.get_or_insert_with(|| event.process().into()) == *event.process() {
                    self.rows.insert(event.thread().into(), None);
                }
            }
            phase @ ("B" | "E") if !self.rows.is_empty() => {
                let Some(row) = self.rows.get_mut(event.thread().as_str()) else { return Ok(()) };
                let at = event.at(file, offset)?;
                if phase == "B" {
                    *row = Some((self.profile.names.insert_full(event.name().into()).0 as u32, at));
                } else if let Some((name, start)) = row.take() {
                    let ps = u64::try_from(at - start).unwrap_or_default();
                    self.kernels.push(Ran { name, stream: 0, start, ps, bytes: 0, id: None, correlation: None });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn thread(&mut self, event: &Event<'_>) -> u32 {
        self.threads.insert_full(event.thread().into()).0 as u32
    }

    /// Puts operations into those that they are part of, and kernels to what launched them; none where they are nested too
    /// deeply.
    fn finish(mut self) -> Option<Profile> {
        let mut profile = std::mem::take(&mut self.profile);
        self.operations.sort_by_key(|op| (op.thread, op.start, std::cmp::Reverse(op.ps)));
        self.kernels.sort_by_key(|kernel| (kernel.start, kernel.stream, kernel.correlation));
        let starts = self.operations.iter().map(|op| op.start).chain(self.kernels.iter().map(|kernel| kernel.start));
        let first = starts.min().unwrap_or_default();
        let since = |at: Clock| u64::try_from(at - first).unwrap_or(u64::MAX);
        let mut by_id: FxHashMap<u64, u32> = FxHashMap::default();
        let mut open: Vec<u32> = Vec::new();
        for (at, op) in (0u32..).zip(&self.operations) {
            let holds = |outer: &u32| {
                let outer = &self.operations[*outer as usize];
                outer.thread == op.thread && op.start < outer.start + Clock::from(outer.ps.max(1))
            };
            while open.last().is_some_and(|outer| !holds(outer)) {
                open.pop();
            }
            let parent = open.last().copied();
            open.push(at);
            if open.len() > DEEPEST {
                return None;
            }
            if let Some(id) = op.id {
                by_id.insert(id, at);
            }
            let (signature, thread) = (op.signature, op.thread);
            profile.operations.push(Operation { signature, parent, thread, start: since(op.start), ps: op.ps });
        }
        for kernel in &self.kernels {
            let by_call = || {
                let (thread, at) = self.calls.get(&kernel.correlation?)?;
                self.innermost(&profile.operations, *thread, *at)
            };
            let operation = kernel.id.and_then(|id| by_id.get(&id).copied()).or_else(by_call);
            let Ran { name, stream, ps, bytes, .. } = *kernel;
            profile.kernels.push(Launched { operation, name, stream, start: since(kernel.start), ps, bytes });
        }
        let own = self.devices.iter().next().copied();
        let is_own = |entry: &&Json| own.is_none() || entry["id"].as_u64() == own;
        if let Some(entry) = self.properties.iter().find(is_own) {
            profile.device = entry["name"].as_str().map(str::to_owned);
            profile.units = entry["numSms"].as_u64();
            profile.memory = entry["totalGlobalMem"].as_u64();
        }
        Some(profile)
    }

    /// The innermost operation of a thread that was under way.
    fn innermost(&self, known: &[Operation], thread: u32, at: Clock) -> Option<u32> {
        let behind = self.operations.partition_point(|op| (op.thread, op.start) <= (thread, at));
        let mut found = behind.checked_sub(1)?;
        loop {
            let op = &self.operations[found];
            if op.thread == thread && at < op.start + Clock::from(op.ps.max(1)) {
                return Some(found as u32);
            }
            found = known[found].parent? as usize;
        }
    }
}
