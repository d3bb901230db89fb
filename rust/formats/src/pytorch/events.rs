//! The events of a profiler's trace (kineto) that say what a rank did.

use super::facts::{self, Facts, kind};
use super::stream::{Part, Stream, malformed, owned, parsed};
use ahbm_findings::Diagnostic;
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashSet};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Categories that an error names.
const CATEGORIES: usize = 24;

/// Picoseconds of the profiler's clock, which begins anywhere.
pub(super) type Clock = i128;

/// Something that ran on the accelerator.
#[derive(Debug)]
pub(super) struct Activity {
    pub(super) start: Clock,
    pub(super) ps: u64,
    pub(super) stream: u32,
    pub(super) correlation: Option<u64>,
    pub(super) name: u32,
    /// Of a kernel that communicates: what it says itself.
    pub(super) facts: Option<Box<Facts>>,
}

impl Activity {
    pub(super) fn end(&self) -> Clock {
        self.start + Clock::from(self.ps)
    }
}

/// What the host did.
#[derive(Debug)]
pub(super) enum Doing {
    /// Called the runtime; most calls launch something of the same correlation.
    Call,
    /// Marked the end of what a stream has.
    Record,
    /// Let a stream wait for a mark.
    Wait,
    /// Waited itself, for everything or for a stream.
    Synchronize { all: bool },
    /// Issued a communication.
    Issue(Box<Facts>),
    /// Performed a communication itself, as libraries of the host do.
    Perform(Box<Facts>),
}

/// A stretch of a thread of the host.
#[derive(Debug)]
pub(super) struct HostEvent {
    pub(super) start: Clock,
    pub(super) end: Clock,
    pub(super) thread: u32,
    pub(super) correlation: Option<u64>,
    pub(super) doing: Doing,
}

/// An operator of the host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operator {
    pub(super) start: Clock,
    pub(super) ps: u64,
    pub(super) thread: u32,
    pub(super) name: u32,
}

impl Operator {
    pub(super) fn end(&self) -> Clock {
        self.start + Clock::from(self.ps)
    }
}

/// A wait of a stream that says for what it waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamWait {
    pub(super) stream: u32,
    pub(super) on: u32,
    /// Correlation of the mark.
    pub(super) mark: u64,
    pub(super) correlation: u64,
}

/// A step of training that the profiler was told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) number: u64,
    pub(super) start: Clock,
    pub(super) end: Clock,
}

/// What the trace of a rank says.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) rank: Option<u32>,
    pub(super) world: Option<u32>,
    /// Ranks of the process groups by name, empty for all.
    pub(super) groups: Vec<(String, Vec<u32>)>,
    pub(super) activities: Vec<Activity>,
    pub(super) host: Vec<HostEvent>,
    /// Start of the first call of the runtime, and the lowest correlation of any: the runtime numbers its calls upwards.
    pub(super) began: Option<(Clock, u64)>,
    pub(super) waits: Vec<StreamWait>,
    pub(super) steps: Vec<Step>,
    /// Operators of the host, where nothing ran on a device.
    pub(super) operators: Vec<Operator>,
    /// Categories of what took time, each once.
    pub(super) categories: BTreeSet<Box<str>>,
    pub(super) names: IndexSet<Box<str>, FxBuildHasher>,
}

/// Whether a category is of what ran on the accelerator.
pub(super) fn is_activity(category: &str) -> bool {
    matches!(
        category,
        "kernel" | "Kernel" | "gpu_memcpy" | "Memcpy" | "gpu_memset" | "Memset" | "mtia_ccp_events" | "hpu_op"
    )
}

/// Whether a category is of calls of the runtime or of the driver.
pub(super) fn is_call(category: &str) -> bool {
    category == "Runtime" || category.ends_with("_runtime") || category.ends_with("_driver")
}

/// An event as the profiler writes it.
#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, default)]
    ph: Cow<'a, str>,
    #[serde(borrow, default)]
    cat: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    pid: Option<&'a RawValue>,
    #[serde(borrow)]
    tid: Option<&'a RawValue>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    #[serde(borrow)]
    dur: Option<&'a RawValue>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

impl Event<'_> {
    /// Whether it has a duration.
    pub(super) fn is_span(&self) -> bool {
        self.ph == "X"
    }

    pub(super) fn phase(&self) -> &str {
        &self.ph
    }

    /// Its process, as it is spelled.
    pub(super) fn process(&self) -> &str {
        self.pid.map_or("", RawValue::get)
    }

    /// When it begins.
    pub(super) fn at(&self, file: &str, offset: u64) -> Result<Clock, Diagnostic> {
        let wrong = || malformed(file, offset, &format!("{:?} has no time", self.name));
        self.ts.and_then(|value| picoseconds(value.get())).ok_or_else(wrong)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn category(&self) -> &str {
        &self.cat
    }

    /// Process and thread as they are spelled.
    pub(super) fn thread(&self) -> String {
        let text = |value: Option<&RawValue>| value.map_or("", RawValue::get).to_owned();
        text(self.pid) + "/" + &text(self.tid)
    }

    /// Start and duration.
    pub(super) fn span(&self, file: &str, offset: u64) -> Result<(Clock, u64), Diagnostic> {
        let read = |value: Option<&RawValue>| value.and_then(|value| picoseconds(value.get()));
        let ps = read(self.dur).and_then(|ps| u64::try_from(ps).ok()).filter(|&ps| ps < super::LONGEST_PS);
        let wrong = || malformed(file, offset, &format!("{:?} has no duration", self.name));
        Ok((self.at(file, offset)?, ps.ok_or_else(wrong)?))
    }

    pub(super) fn args(&self, file: &str, offset: u64) -> Result<Map<String, Json>, Diagnostic> {
        let Some(args) = self.args else { return Ok(Map::new()) };
        serde_json::from_str(args.get()).map_err(|error| malformed(file, offset, &error.to_string()))
    }
}

/// Reads the events of a file.
pub(super) fn read(file: &str, stream: Stream<'_>) -> Result<Recorded, Diagnostic> {
    let mut reader =
        Reader { file, recorded: Recorded::default(), threads: IndexSet::default(), devices: FxHashSet::default() };
    stream.each("traceEvents", |part, offset| match part {
        Part::Element(bytes) => {
            let read = |bytes: &[u8]| Ok(reader.event(&serde_json::from_slice(bytes)?, offset));
            parsed(bytes, read).map_err(|error| malformed(file, offset, &error.to_string()))?
        }
        Part::Member("distributedInfo", bytes) => reader.distributed(bytes, offset),
        Part::Member(..) => Ok(()),
    })?;
    let Reader { mut recorded, devices, .. } = reader;
    if devices.len() > 1 {
        let what = format!("the trace has kernels of {} devices; a rank has one", devices.len());
        return Err(Diagnostic::new("AHBM-F184", what)
            .site("trace", file)
            .hint("record each rank in a process of its own"));
    }
    let calls = recorded.host.iter().filter(|event| !matches!(event.doing, Doing::Issue(_) | Doing::Perform(_)));
    recorded.began = calls
        .map(|event| (event.start, event.correlation.unwrap_or(u64::MAX)))
        .reduce(|a, b| (a.0.min(b.0), a.1.min(b.1)));
    let launched: FxHashSet<u64> = recorded.activities.iter().filter_map(|activity| activity.correlation).collect();
    recorded.host.retain(|event| match event.doing {
        Doing::Call => event.correlation.is_some_and(|correlation| launched.contains(&correlation)),
        _ => true,
    });
    Ok(recorded)
}

struct Reader<'a> {
    file: &'a str,
    recorded: Recorded,
    /// Process and thread as they are spelled.
    threads: IndexSet<Box<str>, FxBuildHasher>,
    devices: FxHashSet<u64>,
}

impl Reader<'_> {
    /// Rank, world and groups: `{"rank": 0, "world_size": 8, "pg_config": [{"pg_name", "ranks", ...}]}`.
    fn distributed(&mut self, bytes: &[u8], offset: u64) -> Result<(), Diagnostic> {
        let info: Json = owned(bytes).map_err(|error| malformed(self.file, offset, &error.to_string()))?;
        self.recorded.rank = facts::number(&info["rank"]);
        self.recorded.world = facts::number(&info["world_size"]);
        self.recorded.groups = groups_of(&info["pg_config"], self.recorded.world);
        Ok(())
    }

    fn event(&mut self, event: &Event<'_>, offset: u64) -> Result<(), Diagnostic> {
        if !event.is_span() {
            return Ok(());
        }
        let name = &*event.name;
        if self.recorded.categories.len() < CATEGORIES && !self.recorded.categories.contains(&*event.cat) {
            self.recorded.categories.insert((&*event.cat).into());
        }
        match &*event.cat {
            category if is_activity(category) => self.activity(event, offset),
            category if is_call(category) => {
                let doing = match name {
                    _ if name.contains("StreamWaitEvent") => Doing::Wait,
                    _ if name.contains("EventRecord") => Doing::Record,
                    _ if name.contains("Synchronize") => Doing::Synchronize { all: name.contains("DeviceSync") },
                    _ => Doing::Call,
                };
                let args = event.args(self.file, offset)?;
                let correlation = args.get("correlation").and_then(facts::number);
                self.host(event, correlation, doing, offset)
            }
            "cuda_sync" if name == "Stream Wait Event" => {
                let args = event.args(self.file, offset)?;
                let of = |name: &str| args.get(name).and_then(facts::number::<u64>);
                let stream = |name: &str| of(name).and_then(|n| u32::try_from(n).ok());
                if let (Some(stream), Some(on), Some(mark), Some(correlation)) = (
                    stream("stream"),
                    stream("wait_on_stream"),
                    of("wait_on_cuda_event_record_corr_id"),
                    of("correlation"),
                ) {
                    self.recorded.waits.push(StreamWait { stream, on, mark, correlation });
                }
                Ok(())
            }
            "cpu_op" | "Operator" | "user_annotation" => match name.strip_prefix("ProfilerStep#") {
                Some(number) => {
                    let (start, ps) = event.span(self.file, offset)?;
                    if let Ok(number) = number.parse() {
                        self.recorded.steps.push(Step { number, start, end: start + Clock::from(ps) });
                    }
                    Ok(())
                }
                None if performs(name) => {
                    let args = event.args(self.file, offset)?;
                    let dtype = args.get("Input type").and_then(facts::type_of);
                    let ranks =
                        args.get("Concrete Inputs").and_then(|inputs| facts::numbers(inputs.as_array()?.last()?));
                    // AHBM's calls state what they write before what they read: their operators say how much that is.
                    let dims = args.get("Input Dims").filter(|_| !name.starts_with("ahbm:"));
                    let inputs = dims.and_then(|dims| facts::input_of(name, dims));
                    let ranks = ranks.filter(|ranks: &Vec<u32>| !ranks.is_empty()).map(Into::into);
                    let facts = Facts { kind: kind(name), inputs, dtype, ranks, ..Facts::default() };
                    self.host(event, None, Doing::Perform(facts.into()), offset)
                }
                None if name == "record_param_comms" || name.starts_with("c10d::") || name.starts_with("nccl:") => {
                    let args = event.args(self.file, offset)?;
                    let mut stated = stated(&args);
                    stated.kind = stated.kind.or_else(|| kind(name));
                    if stated.inputs.is_none() {
                        stated.inputs = args.get("Input Dims").and_then(|dims| facts::input_of(name, dims));
                    }
                    stated.dtype = stated.dtype.or_else(|| args.get("Input type").and_then(facts::type_of));
                    let concrete = || args.get("Concrete Inputs").and_then(|inputs| facts::other_in(name, inputs));
                    stated.other = stated.other.or_else(concrete).or_else(|| facts::other_of(name));
                    self.host(event, None, Doing::Issue(stated.into()), offset)
                }
                None if self.recorded.activities.is_empty() && &*event.cat != "user_annotation" => {
                    let (start, ps) = event.span(self.file, offset)?;
                    let thread = self.threads.insert_full(event.thread().into()).0 as u32;
                    let name = self.recorded.names.insert_full(name.into()).0 as u32;
                    self.recorded.operators.push(Operator { start, ps, thread, name });
                    Ok(())
                }
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn activity(&mut self, event: &Event<'_>, offset: u64) -> Result<(), Diagnostic> {
        let (start, ps) = event.span(self.file, offset)?;
        let args = event.args(self.file, offset)?;
        let stream = args.get("stream").or_else(|| args.get("queue")).and_then(facts::number);
        // Other devices than GPUs have a row for what GPUs call a stream.
        let row = || !matches!(&*event.cat, "kernel" | "Kernel") || args.contains_key("device");
        let Some(stream) = stream.or_else(|| row().then(|| self.threads.insert_full(event.thread().into()).0 as u32))
        else {
            return Err(malformed(self.file, offset, &format!("{:?} states no stream", event.name)));
        };
        self.recorded.operators = Vec::new();
        self.devices.extend(args.get("device").and_then(facts::number::<u64>));
        let lower = event.name.to_ascii_lowercase();
        let communicates = args.contains_key("Collective name") || facts::is_kernel(&lower);
        let facts = communicates.then(|| stated(&args).into());
        let correlation = args.get("correlation").and_then(facts::number);
        let name = self.recorded.names.insert_full((&*event.name).into()).0 as u32;
        self.recorded.activities.push(Activity { start, ps, stream, correlation, name, facts });
        Ok(())
    }

    fn host(
        &mut self,
        event: &Event<'_>,
        correlation: Option<u64>,
        doing: Doing,
        offset: u64,
    ) -> Result<(), Diagnostic> {
        let (start, ps) = event.span(self.file, offset)?;
        let thread = self.threads.insert_full(event.thread().into()).0 as u32;
        self.recorded.host.push(HostEvent { start, end: start + Clock::from(ps), thread, correlation, doing });
        Ok(())
    }
}

/// Whether an event is of a library of the host that performs a communication itself: `gloo:all_reduce`.
fn performs(name: &str) -> bool {
    let library = name.split_once(':').map(|(library, _)| library);
    library.is_some_and(|library| matches!(library, "gloo" | "mpi" | "ucc" | "ahbm")) && kind(name).is_some()
}

/// What the arguments of an event state about a communication.
fn stated(args: &Map<String, Json>) -> Facts {
    let text = |name: &str| args.get(name).and_then(Json::as_str).filter(|text| !text.is_empty());
    let of = |name: &str| args.get(name).and_then(facts::number::<u64>);
    let small = |name: &str| of(name).and_then(|n| u32::try_from(n).ok());
    let (inputs, outputs) = (of("In msg nelems"), of("Out msg nelems"));
    let split = |name: &str, elements: Option<u64>| facts::split(args.get(name)?, elements?);
    let group_size = small("Group size").filter(|&n| n > 0);
    let kind = text("Collective name").and_then(kind);
    Facts {
        kind,
        inputs,
        outputs,
        dtype: text("dtype").map(Into::into),
        splits: [split("In split size", inputs), split("Out split size", outputs)],
        group: text("Process Group Name").map(Into::into),
        title: text("Process Group Description").filter(|&title| title != "undefined").map(Into::into),
        group_size,
        ranks: args
            .get("Process Group Ranks")
            .and_then(facts::numbers)
            .filter(|ranks| !ranks.is_empty())
            .map(Into::into),
        other: match kind {
            Some(facts::Kind::Send) => small("Dst Rank"),
            Some(facts::Kind::Recv) => small("Src Rank"),
            _ => small("Root rank"),
        },
    }
}

/// Ranks by name in a list `[{"pg_name", "ranks", "pg_size"}]`; an empty list of ranks is that of all.
pub(super) fn groups_of(list: &Json, world: Option<u32>) -> Vec<(String, Vec<u32>)> {
    let entry = |entry: &Json| {
        let name = match &entry["pg_name"] {
            Json::String(name) => name.clone(),
            other => other.as_u64()?.to_string(),
        };
        let ranks: Vec<u32> = facts::numbers(&entry["ranks"]).unwrap_or_default();
        let size = facts::number(&entry["pg_size"]).or_else(|| facts::number(&entry["group_size"]));
        // Without ranks a list is that of all, unless it says that they are fewer.
        let whole = size.is_none() || world.is_none() || size == world;
        (!ranks.is_empty() || whole).then_some((name, ranks))
    };
    list.as_array().into_iter().flatten().filter_map(entry).collect()
}

/// Microseconds as whole picoseconds, rounded down, without the detour of a float, which lacks the digits.
fn picoseconds(text: &str) -> Option<Clock> {
    let text = text.trim_matches('"');
    if text.contains(['e', 'E']) {
        let us: f64 = text.parse().ok()?;
        return (us.abs() < 1e20).then_some((us * 1e6) as Clock);
    }
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let ascii = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 20 || !ascii(whole) || !ascii(fraction) {
        return None;
    }
    let fraction: String = fraction.chars().chain(std::iter::repeat('0')).take(6).collect();
    let ps = whole.parse::<Clock>().ok()? * 1_000_000 + fraction.parse::<Clock>().ok()?;
    Some(if negative { -ps } else { ps })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_keep_their_digits() {
        assert_eq!(picoseconds("1706850122846038.125"), Some(1_706_850_122_846_038_125_000));
        assert_eq!(picoseconds("4.35"), Some(4_350_000));
        assert_eq!(picoseconds("-1"), Some(-1_000_000));
        assert_eq!(picoseconds("\"7.5\""), Some(7_500_000));
        assert_eq!(picoseconds("1e3"), Some(1_000_000_000));
        for none in ["", "null", "1e300", "123456789012345678901", "1.x", "[]", "-"] {
            assert_eq!(picoseconds(none), None, "{none}");
        }
    }
}
