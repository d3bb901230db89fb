//! Traces that PyTorch writes, as jobs: the profiler's (kineto), host execution traces, and dumps of the Flight Recorder.
//!
//! A file is the trace of one rank, plain, gzip or Zstandard. The duration of a communication kernel contains waiting for other
//! ranks, so it is dropped: the kernel becomes a call of its collective, size and group. Computations keep their
//! durations. Clocks of ranks are never compared.
//!
//! | code | finding |
//! |---|---|
//! | `AHBM-F132` | broken gzip or Zstandard stream |
//! | `AHBM-F139` | files that cannot be read |
//! | `AHBM-F183` | bytes that are no such trace, with the offset |
//! | `AHBM-F184` | a communication of which the trace does not state what it needs |
//! | `AHBM-F185` | ranks without a trace, or with several; dumps of some ranks are judged among them |
//! | `AHBM-F186` | a note: what the trace leaves open, and how it is taken |
//! | `AHBM-F187` | a step that the trace does not have |
//! | `AHBM-U234` | a process group of unknown ranks |
//!
//! Reading order: [`read`], `stream` (elements of a JSON array), `events`, `lone` and `kineto` (the profiler's trace), `profile`
//! (one device's operations), `cpu` (a trace in which no device computes), `host`, `facts` and `comms` (what is stated
//! about a communication).

mod comms;
mod cpu;
mod events;
mod facts;
mod files;
mod flight;
mod host;
mod kineto;
mod lone;
mod profile;
mod stream;

pub use files::{Kind, kind};
pub use profile::{Launched, Operation, Profile};

use crate::chakra::one;
use ahbm_findings::Diagnostic;
use ahbm_plan::{Budget, Limit};
use ahbm_workload::{Gather, Groups, RankBuilder, Workload};
use comms::note;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use stream::Stream;

/// The most that a node may take: eleven days, far below the end of simulated time.
const LONGEST_PS: u64 = 1_000_000_000_000_000_000;

/// How to read a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Limits, over all ranks together; a step is an event.
    pub budget: Budget,
    /// The step to take, by its number; all by default.
    pub step: Option<u64>,
    /// Keeps the time that the host takes between launches, as computations of the host.
    pub host_gaps: bool,
    /// Ranks without a trace do what the one rank with a trace does.
    pub symmetric: bool,
    /// The job will have other numbers of replicas ([`Workload::replicated`]): communications of groups of one rank stay.
    pub scaled: bool,
}

/// The part of the budget that has been taken so far.
#[derive(Debug, Default)]
struct Usage {
    file_bytes: u64,
    inflated_bytes: u64,
    elements: u64,
}

/// The trace of a rank.
enum Trace {
    Kineto(Box<events::Recorded>),
    Host(host::Hosted),
    Flight(flight::Dumped),
}

impl Trace {
    fn read(kind: Kind, file: &str, stream: Stream<'_>, scaled: bool) -> Result<Self, Diagnostic> {
        Ok(match kind {
            Kind::Kineto => {
                let mut recorded = events::read(file, stream)?;
                if scaled {
                    lone::keep(&mut recorded);
                }
                Self::Kineto(Box::new(recorded))
            }
            Kind::Host => Self::Host(host::read(file, stream)?),
            Kind::Flight => Self::Flight(flight::read(file, stream)?),
        })
    }

    fn rank(&self) -> Option<u32> {
        match self {
            Self::Kineto(recorded) => recorded.rank,
            Self::Host(_) | Self::Flight(_) => None,
        }
    }

    /// Number of ranks of the job, as far as the trace says.
    fn world(&self) -> u32 {
        let size = |facts: &facts::Facts| facts.group_size.unwrap_or(0);
        match self {
            Self::Kineto(recorded) => {
                let stated = recorded.activities.iter().filter_map(|activity| activity.facts.as_deref()).map(size);
                stated.chain(recorded.world).max().unwrap_or(0)
            }
            Self::Host(hosted) => hosted.communications.iter().map(|(_, facts)| size(facts)).max().unwrap_or(0),
            Self::Flight(dumped) => dumped.world(),
        }
    }
}

/// The files of the job that `path` names, as [`read`] takes them.
///
/// # Errors
/// As [`read`], as far as it finds files.
pub fn files(path: &Path, options: &Options) -> Result<Vec<PathBuf>, Diagnostic> {
    Ok(files::find(path, options)?.files.into_iter().map(|(_, file)| file).collect())
}

/// Reads the job that `path` names: the file of a rank, and those of the other ranks beside it, by their names
/// (`rank3_trace.json.gz`, `step.3.json`) or else by the rank and the number of ranks that they state; or a folder of
/// them. `groups` has the ranks of process groups that traces name without listing them.
///
/// # Errors
/// The table of this module; `AHBM-F136` a process group that lacks the rank, `AHBM-B201` to `B208` over budget.
pub fn read(path: &Path, options: &Options, groups: Groups) -> Result<Workload, Vec<Diagnostic>> {
    let found = files::find(path, options).map_err(one)?;
    let mut usage = Usage::default();
    let mut traces = Vec::new();
    for (named, path) in found.files {
        let shown = path.to_string_lossy().into_owned();
        let unreadable = |e: std::io::Error| one(files::unreadable(&path, &e));
        let size = fs::metadata(&path).map_err(unreadable)?.len();
        let file = File::open(&path).map_err(unreadable)?;
        let stream = Stream::new(&shown, file, size, options, &mut usage).map_err(one)?;
        traces.push((named, shown.clone(), Trace::read(found.kind, &shown, stream, options.scaled).map_err(one)?));
    }
    let mut workload = job(&files::name_of(path), traces, options, groups)?;
    workload.notes.extend(found.chosen.map(note));
    Ok(workload)
}

/// Reads what one accelerator did, operation by operation, from a profiler's trace.
///
/// # Errors
/// `AHBM-F183` no such trace, `AHBM-F184` kernels of several devices; as [`read`].
pub fn profile(path: &Path, budget: Budget) -> Result<Profile, Diagnostic> {
    if files::kind(path) != Some(Kind::Kineto) || path.is_dir() {
        let what = format!("{} is no trace of PyTorch's profiler", path.display());
        return Err(Diagnostic::new("AHBM-F183", what));
    }
    let (mut usage, options) = (Usage::default(), Options { budget, ..Options::default() });
    let shown = path.to_string_lossy();
    let unreadable = |e: std::io::Error| files::unreadable(path, &e);
    let size = fs::metadata(path).map_err(unreadable)?.len();
    let file = File::open(path).map_err(unreadable)?;
    profile::read(&shown, Stream::new(&shown, file, size, &options, &mut usage)?)
}

/// Reads a job from memory: per rank its file name and its bytes.
///
/// # Errors
/// As [`read`].
pub fn parse(
    name: &str,
    kind: Kind,
    files: &[(&str, &[u8])],
    options: &Options,
    groups: Groups,
) -> Result<Workload, Vec<Diagnostic>> {
    let mut usage = Usage::default();
    let mut traces = Vec::new();
    for (file, bytes) in files {
        let stream = Stream::new(file, *bytes, bytes.len() as u64, options, &mut usage);
        let trace = Trace::read(kind, file, stream.map_err(one)?, options.scaled).map_err(one)?;
        traces.push((files::numbered(file).map(|(_, rank, _)| rank), (*file).to_owned(), trace));
    }
    job(name, traces, options, groups)
}

/// Joins the traces of ranks: the number in the file's name, its name, and what it says.
fn job(
    name: &str,
    traces: Vec<(Option<u32>, String, Trace)>,
    options: &Options,
    groups: Groups,
) -> Result<Workload, Vec<Diagnostic>> {
    let alone = traces.len() == 1;
    let mut ranked = Vec::with_capacity(traces.len());
    for (named, file, trace) in traces {
        let Some(rank) = trace.rank().or(named).or(alone.then_some(0)) else {
            let finding =
                Diagnostic::new("AHBM-F185", "neither the trace nor its file's name says which rank it is of");
            return Err(one(finding.site("trace", file).hint("name the files rank0_trace.json, rank1_trace.json, …")));
        };
        ranked.push((rank, file, trace));
    }
    ranked.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    if let Some(pair) = ranked.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let finding = Diagnostic::new("AHBM-F185", format!("rank {} has several traces", pair[0].0));
        let finding = finding.site("first", &*pair[0].1).site("second", &*pair[1].1);
        return Err(one(
            finding.hint("keep the traces of one recording in a folder, or name a file with a time in its name")
        ));
    }
    let highest = ranked.last().map_or(0, |(rank, ..)| rank.saturating_add(1));
    let world = ranked.iter().map(|(.., trace)| trace.world()).max().unwrap_or(0).max(highest);
    options.budget.check(Limit::Ranks, world.into()).map_err(one)?;
    let mut gather = Gather::new(name, world, groups);
    let symmetric = options.symmetric && alone && world > 1;
    let partial = ranked.len() < world as usize && !symmetric;
    if partial && !ranked.iter().all(|(.., trace)| matches!(trace, Trace::Flight(_))) {
        return Err(one(missing(&ranked, world)));
    }
    if symmetric {
        let what = format!("all {world} ranks do what rank {} did: only its trace is there", ranked[0].0);
        gather.note(note(what));
    }
    let mut dumps: Vec<(u32, &str, &flight::Dumped)> = Vec::new();
    for (rank, file, trace) in &ranked {
        if let Trace::Flight(dumped) = trace {
            dumps.push((*rank, file, dumped));
        }
    }
    let joined = (!dumps.is_empty()).then(|| flight::joined(&mut gather, &dumps));
    let mut cut = 0;
    let absent = |rank: u32| RankBuilder::new(rank, "no dump").finish(false);
    let mut next = 0;
    for (rank, file, trace) in &ranked {
        while partial && next < *rank {
            gather.add(absent(next)?);
            next += 1;
        }
        let rank = next;
        next += 1;
        let graph = match trace {
            Trace::Kineto(recorded) if cpu::is_all(recorded) => cpu::graph(&mut gather, rank, file, recorded, options)?,
            Trace::Kineto(recorded) => {
                let (graph, gone) = kineto::graph(&mut gather, rank, file, recorded, options)?;
                cut += gone;
                graph
            }
            Trace::Host(hosted) => host::graph(&mut gather, rank, file, hosted, options.scaled)?,
            Trace::Flight(dumped) => flight::graph(&mut gather, rank, file, dumped, joined.as_ref())?,
        };
        gather.add(graph);
    }
    while partial && next < world {
        gather.add(absent(next)?);
        next += 1;
    }
    // Those of a step that is asked for are left out as those of other steps are.
    if cut > 0 && options.step.is_none() {
        let (them, their) = if cut == 1 { ("1 kernel is", "its") } else { (&*format!("{cut} kernels are"), "their") };
        let what = format!("{them} left out: {their} launch is not in the recording, which began later");
        gather.note(note(what).hint("--step takes a whole step; or start the profiler while the device is idle"));
    }
    if symmetric {
        options.budget.check(Limit::Steps, gather.nodes().saturating_mul(world.into())).map_err(one)?;
        (1..world).try_for_each(|_| gather.repeat())?;
    }
    let mut workload = gather.finish();
    if let Some(joined) = &joined {
        flight::judged(&mut workload, &dumps, joined)?;
    }
    Ok(workload)
}

fn missing(ranked: &[(u32, String, Trace)], world: u32) -> Diagnostic {
    let there: Vec<u32> = ranked.iter().map(|(rank, ..)| *rank).collect();
    let lacking: Vec<u32> = (0..world).filter(|rank| there.binary_search(rank).is_err()).collect();
    let listed: Vec<String> = lacking.iter().take(8).map(u32::to_string).collect();
    let more = if lacking.len() > 8 { ", …" } else { "" };
    let what = format!("the job has {world} ranks; {} have no trace: {}{more}", lacking.len(), listed.join(", "));
    let finding = Diagnostic::new("AHBM-F185", what).site("the trace that is there", &*ranked[0].1);
    match ranked {
        [(rank, ..)] => finding.hint(format!(
            "give the folder with the traces of all ranks; or --symmetric: the others do what rank {rank} does"
        )),
        _ => finding.hint("record every rank, one file each, in one folder"),
    }
}
