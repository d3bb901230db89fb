//! Any algorithm that a file holds: which format it has, and what it says.

use crate::schedules::Producer;
use crate::{Format, chakra, msccl_xml, mscclpp, pytorch};
use ahbm_findings::Diagnostic;
use ahbm_plan::execution::ExecutionPlan;
use ahbm_plan::{Algorithm, Budget, Limit, Plan, Protocol};
use ahbm_wire::load::load;
use log::{Level, debug, log_enabled};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The target to which readers log.
const LOG: &str = "ahbm::formats";

/// How files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// Bounds what a file may ask for.
    pub budget: Budget,
    /// Follows the defects of the runtime a format belongs to, instead of what was meant.
    pub quirks: bool,
    /// Leaves out what a trace of a real run may have lost: see [`chakra::ReadOptions`].
    pub lenient: bool,
}

/// The form that an algorithm has where it was found.
#[derive(Debug, Clone)]
pub enum Source {
    /// No file holds it: it was made in memory, by a synthesizer or an author.
    Made,
    /// MSCCL-IR.
    Msccl,
    /// A synthesizer's schedule.
    Schedule(Producer),
    /// An MSCCL++ execution plan.
    Mscclpp,
    /// A Chakra execution trace.
    Chakra(Arc<chakra::Trace>),
}

/// A file that was read, or an algorithm that was made.
#[derive(Debug, Clone)]
pub struct Document {
    /// Its form.
    pub source: Source,
    /// What it says.
    pub algorithm: Algorithm,
}

impl Document {
    /// A plan that was made in memory.
    pub const fn made(plan: Plan) -> Self {
        Self { source: Source::Made, algorithm: Algorithm::Blocks(plan) }
    }

    /// What MSCCL-IR says.
    pub const fn msccl(plan: Plan) -> Self {
        Self { source: Source::Msccl, algorithm: Algorithm::Blocks(plan) }
    }

    /// What a synthesizer's schedule says.
    pub const fn schedule(plan: Plan, producer: Producer) -> Self {
        Self { source: Source::Schedule(producer), algorithm: Algorithm::Blocks(plan) }
    }

    /// What an MSCCL++ execution plan says.
    pub const fn mscclpp(plan: ExecutionPlan) -> Self {
        Self { source: Source::Mscclpp, algorithm: Algorithm::Execution(plan) }
    }

    /// Reads a file of any supported format, by its extension.
    ///
    /// # Errors
    /// `AHBM-F101` a file that cannot be read, `AHBM-U291` an unknown format, and what the reader of the format
    /// finds.
    pub fn read(path: &Path, reading: &Reading) -> Result<Self, Vec<Diagnostic>> {
        let begin = log_enabled!(target: LOG, Level::Debug).then(Instant::now);
        let read = Self::read_as_named(path, reading);
        if let (Some(begin), Ok(document)) = (begin, &read) {
            let ms = begin.elapsed().as_secs_f64() * 1e3;
            debug!(target: LOG, "{} is {}; read in {ms:.3} ms", path.display(), document.format());
        }
        read
    }

    fn read_as_named(path: &Path, reading: &Reading) -> Result<Self, Vec<Diagnostic>> {
        let name = path.to_string_lossy();
        let budget = reading.budget;
        let one = |finding| vec![finding];
        if pytorch::kind(path).is_some() {
            let what = format!("{name} is a trace of PyTorch: that of a job, where an algorithm is asked for");
            return Err(one(Diagnostic::new("AHBM-U231", what).hint("`ahbm run` replays a job")));
        }
        if is_trace(path) {
            let options = chakra::ReadOptions { budget, lenient: reading.lenient };
            return chakra::read(path, &options).and_then(|trace| Self::of_trace(trace, &budget));
        }
        match Format::named(path) {
            Some(Format::Msccl) => {
                msccl_xml::read(&bytes(path, &budget).map_err(one)?, &name, &budget).map(Self::msccl)
            }
            Some(Format::Mscclpp) => {
                let content = bytes(path, &budget).map_err(one)?;
                if let Some(producer) = Producer::of_json(&content) {
                    return producer.read(&content, &name, &budget).map(|p| Self::schedule(p, producer)).map_err(one);
                }
                let options = mscclpp::ReadOptions { budget, quirks: reading.quirks };
                mscclpp::read(&content, &name, &options).map(Self::mscclpp).map_err(one)
            }
            None if path.extension().is_some_and(|suffix| suffix.eq_ignore_ascii_case("csv")) => {
                let content = bytes(path, &budget).map_err(one)?;
                let read = Producer::Tacos.read(&content, &name, &budget);
                read.map(|plan| Self::schedule(plan, Producer::Tacos)).map_err(one)
            }
            _ => Err(vec![Diagnostic::new("AHBM-U291", format!("{name} is of no format that can be read")).hint(
                "MSCCL-IR (.xml), MSCCL++ execution plans (.json), Chakra traces (PREFIX.0.et, …) and schedules of TACOS \
                 (.csv), TE-CCL, SCCL and TACCL (.json) can be read",
            )]),
        }
    }

    /// The files that make it up: those of all ranks for a trace, else itself.
    ///
    /// # Errors
    /// As [`chakra::find`].
    pub fn files(path: &Path, budget: &Budget) -> Result<Vec<PathBuf>, Diagnostic> {
        if !is_trace(path) {
            return Ok(vec![path.to_path_buf()]);
        }
        chakra::find(path, &chakra::ReadOptions { budget: *budget, lenient: false })
    }

    /// A trace, as the plan that it holds, else as messages. One that lists thread blocks must be the plan it says; one
    /// that only numbers its chunks may be no plan.
    ///
    /// # Errors
    /// The errors of [`chakra::Trace::to_plan`] for a trace that lists thread blocks.
    pub fn of_trace(mut trace: chakra::Trace, budget: &Budget) -> Result<Self, Vec<Diagnostic>> {
        trace.warnings.extend(trace.unknown_version());
        let plan = if trace.is_plan() { Some(trace.to_plan(budget)?) } else { symbolic(&mut trace, budget) };
        let trace = Arc::new(trace);
        let algorithm = match plan {
            Some(plan) => Algorithm::Blocks(plan),
            None => Algorithm::Messages(trace.clone()),
        };
        Ok(Self { source: Source::Chakra(trace), algorithm })
    }

    /// Name of the format; `"plan"` where no file holds it.
    pub const fn format(&self) -> &'static str {
        match self.source {
            Source::Made => "plan",
            Source::Schedule(producer) => producer.name(),
            Source::Msccl => "msccl_xml",
            Source::Mscclpp => "mscclpp_json",
            Source::Chakra(_) => "chakra",
        }
    }

    /// Steps of all ranks, as the file counts them.
    pub fn steps(&self) -> u64 {
        match (&self.source, &self.algorithm) {
            (Source::Chakra(trace), _) => trace.nodes(),
            (_, Algorithm::Blocks(plan)) => plan.steps(),
            (_, Algorithm::Execution(plan)) => plan.ops(),
            (_, Algorithm::Messages(_)) => 0,
        }
    }

    /// The protocol of a library that its messages were written for; none where they are no library's.
    pub const fn protocol(&self) -> Option<Protocol> {
        match (&self.source, &self.algorithm) {
            (Source::Made | Source::Msccl, Algorithm::Blocks(plan)) => Some(plan.protocol),
            _ => None,
        }
    }

    /// Why a real runtime would not load it or would misread it.
    pub fn warnings(&self) -> &[Diagnostic] {
        match (&self.source, &self.algorithm) {
            (Source::Chakra(trace), _) => &trace.warnings,
            (_, Algorithm::Blocks(plan)) => &plan.warnings,
            (_, Algorithm::Execution(plan)) => &plan.warnings,
            (_, Algorithm::Messages(_)) => &[],
        }
    }
}

/// The plan of a trace that numbers its chunks, where it is one; the trace is warned of what keeps it from being followed.
fn symbolic(trace: &mut chakra::Trace, budget: &Budget) -> Option<Plan> {
    let dangling: usize = trace.graphs.iter().map(|g| g.dangling).sum();
    if dangling > 0 {
        let message = format!("{dangling} dependencies on nodes that do not exist were left out");
        trace.warnings.push(Diagnostic::new("AHBM-F164", message).site("trace", &*trace.name));
    }
    if !trace.is_symbolic() {
        return None;
    }
    trace
        .symbolic_plan(budget)
        .map_err(|mut findings| {
            let why = findings.swap_remove(0);
            let message = format!("not followed through memory: {}", why.message);
            let finding = Diagnostic { sites: why.sites, ..Diagnostic::new("AHBM-F163", message) };
            trace.warnings.push(finding.hint("messages and their order are checked, not which bytes they carry"));
        })
        .ok()
}

/// Whether a path names a Chakra trace. JSON is told apart by content: execution plans have the same ending.
fn is_trace(path: &Path) -> bool {
    chakra::is_trace(path) || (path.extension().is_some_and(|e| e == "json") && chakra::is_json_trace(path))
}

/// A file's bytes, never more than the budget allows.
fn bytes(path: &Path, budget: &Budget) -> Result<Vec<u8>, Diagnostic> {
    let failed = |error| Diagnostic::new("AHBM-F101", format!("cannot read {}: {error}", path.display()));
    let size = fs::metadata(path).map_err(failed)?.len();
    budget.check(Limit::FileBytes, size)?;
    let bytes = load(path, budget.get(Limit::FileBytes)).map_err(failed)?;
    // A growing file.
    budget.check(Limit::FileBytes, bytes.len() as u64)?;
    Ok(bytes)
}
