//! Any plan: which format it has, what it says, and whether it is right.

mod blocks;

use crate::schedules::Producer;
use crate::{Format, chakra, msccl_xml, mscclpp, pytorch};
use ahbm_check::{CheckOptions, Outcome, Verdict};
use ahbm_findings::{Diagnostic, codes};
use ahbm_machine::Machine;
use ahbm_plan::blocks::Places as Lines;
use ahbm_plan::execution::{ExecutionPlan, Launch, Places};
use ahbm_plan::{BY_PROTOCOL, Budget, Goal, Limit, LowerOptions, Lowered, Plan, Protocol};
use ahbm_program::Origin;
use ahbm_wire::load::load;
use log::{Level, debug, log_enabled};
use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The target to which readers log.
const LOG: &str = "ahbm::formats";

/// How files are read and checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Bounds what a file may ask for.
    pub budget: Budget,
    /// Follows the defects of the runtime a format belongs to, instead of what was meant.
    pub quirks: bool,
    /// Leaves out what a trace of a real run may have lost: see [`chakra::ReadOptions`].
    pub lenient: bool,
    /// Messages a queue holds; [`BY_PROTOCOL`] as the runtimes have it, `u32::MAX` is unbounded.
    pub slots: u32,
    /// Orders of the agents that a check tries.
    pub orders: u32,
    /// Chooses the random ones among them.
    pub seed: u64,
    /// Times a program is issued in a row.
    pub calls: u32,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            budget: Budget::default(),
            quirks: false,
            lenient: false,
            slots: BY_PROTOCOL,
            orders: CheckOptions::default().orders,
            seed: 0,
            calls: 2,
        }
    }
}

/// A file that was read, or a plan that was made.
#[derive(Debug, Clone)]
pub enum Document {
    /// A plan that was made in memory, by a synthesizer or an author; no file holds it.
    Made(Plan),
    /// MSCCL-IR.
    Msccl(Plan),
    /// A synthesizer's schedule.
    Schedule(Plan, Producer),
    /// An MSCCL++ execution plan.
    Mscclpp(ExecutionPlan),
    /// A Chakra execution trace.
    Chakra {
        /// The trace.
        trace: chakra::Trace,
        /// The trace's statements about memory, if it makes any.
        plan: Option<Plan>,
        /// Why it is not followed as a plan.
        warnings: Vec<Diagnostic>,
    },
}

impl Document {
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

    /// The sizes in bytes that it is meant for, as it says: the least, and the most, `None` for any.
    pub fn sizes(&self) -> (u64, Option<u64>) {
        let (least, most) = match self {
            Self::Made(plan) | Self::Msccl(plan) | Self::Schedule(plan, _) => {
                (plan.min_bytes.unwrap_or(0), plan.max_bytes)
            }
            Self::Mscclpp(plan) => (plan.min_bytes, Some(plan.max_bytes)),
            Self::Chakra { .. } => (0, None),
        };
        // 0 and the greatest number are how files say that there is no limit.
        (least, most.filter(|&most| most != 0 && most != u64::MAX))
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
                msccl_xml::read(&bytes(path, &budget).map_err(one)?, &name, &budget).map(Self::Msccl)
            }
            Some(Format::Mscclpp) => {
                let content = bytes(path, &budget).map_err(one)?;
                if let Some(producer) = Producer::of_json(&content) {
                    return producer.read(&content, &name, &budget).map(|p| Self::Schedule(p, producer)).map_err(one);
                }
                let options = mscclpp::ReadOptions { budget, quirks: reading.quirks };
                mscclpp::read(&content, &name, &options).map(Self::Mscclpp).map_err(one)
            }
            None if path.extension().is_some_and(|suffix| suffix.eq_ignore_ascii_case("csv")) => {
                let content = bytes(path, &budget).map_err(one)?;
                let read = Producer::Tacos.read(&content, &name, &budget);
                read.map(|plan| Self::Schedule(plan, Producer::Tacos)).map_err(one)
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

    /// A trace, and the plan it holds. One that lists thread blocks must be the plan it says; one that only numbers
    /// its chunks may be no plan.
    ///
    /// # Errors
    /// The errors of [`chakra::Trace::to_plan`] for a trace that lists thread blocks.
    pub fn of_trace(trace: chakra::Trace, budget: &Budget) -> Result<Self, Vec<Diagnostic>> {
        let mut warnings: Vec<Diagnostic> = trace.unknown_version().into_iter().collect();
        if trace.is_plan() {
            let plan = trace.to_plan(budget)?;
            return Ok(Self::Chakra { trace, plan: Some(plan), warnings });
        }
        let dangling: usize = trace.graphs.iter().map(|g| g.dangling).sum();
        if dangling > 0 {
            let message = format!("{dangling} dependencies on nodes that do not exist were left out");
            warnings.push(Diagnostic::new("AHBM-F164", message).site("trace", &*trace.name));
        }
        let plan = match trace.is_symbolic().then(|| trace.symbolic_plan(budget)) {
            Some(Err(mut findings)) => {
                let why = findings.swap_remove(0);
                let message = format!("not followed through memory: {}", why.message);
                let finding = Diagnostic { sites: why.sites, ..Diagnostic::new("AHBM-F163", message) };
                warnings.push(finding.hint("messages and their order are checked, not which bytes they carry"));
                None
            }
            plan => plan.and_then(Result::ok),
        };
        Ok(Self::Chakra { trace, plan, warnings })
    }

    /// Name of the format; `"plan"` where no file holds it.
    pub const fn format(&self) -> &'static str {
        match self {
            Self::Made(_) => "plan",
            Self::Schedule(_, producer) => producer.name(),
            Self::Msccl(_) => "msccl_xml",
            Self::Mscclpp(_) => "mscclpp_json",
            Self::Chakra { .. } => "chakra",
        }
    }

    /// The computation that the document describes.
    pub fn goal(&self) -> Goal {
        match self {
            Self::Made(plan) | Self::Msccl(plan) | Self::Schedule(plan, _) => plan.goal,
            Self::Mscclpp(plan) => plan.goal,
            Self::Chakra { plan: Some(plan), .. } => plan.goal,
            Self::Chakra { trace, .. } => trace.goal(),
        }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u64 {
        match self {
            Self::Made(plan) | Self::Msccl(plan) | Self::Schedule(plan, _) => plan.ranks.len() as u64,
            Self::Mscclpp(plan) => plan.ranks.len() as u64,
            Self::Chakra { trace, .. } => trace.graphs.len() as u64,
        }
    }

    /// Steps of all ranks, as the file counts them.
    pub fn steps(&self) -> u64 {
        match self {
            Self::Made(plan) | Self::Msccl(plan) | Self::Schedule(plan, _) => plan.steps(),
            Self::Mscclpp(plan) => plan.ops(),
            Self::Chakra { trace, .. } => trace.nodes(),
        }
    }

    /// Whether queues of a fixed depth connect its thread blocks.
    pub const fn has_queues(&self) -> bool {
        match self {
            Self::Made(_) | Self::Msccl(_) | Self::Schedule(..) | Self::Chakra { .. } => true,
            Self::Mscclpp(_) => false,
        }
    }

    /// Messages that a queue holds where `slots` are asked for, under the plan's own protocol or another; `None` without
    /// queues.
    pub fn depth(&self, slots: u32, protocol: Option<Protocol>) -> Option<u32> {
        let own = match self {
            Self::Made(plan) | Self::Msccl(plan) | Self::Schedule(plan, _) | Self::Chakra { plan: Some(plan), .. } => {
                plan.protocol
            }
            Self::Chakra { .. } => Protocol::Simple,
            Self::Mscclpp(_) => return None,
        };
        Some(protocol.unwrap_or(own).depth(slots))
    }

    /// The protocol of a library that its messages were written for; none where they are no library's.
    pub const fn protocol(&self) -> Option<Protocol> {
        match self {
            Self::Made(plan) | Self::Msccl(plan) => Some(plan.protocol),
            _ => None,
        }
    }

    /// Whether it runs with input and output in one memory.
    pub const fn in_place(&self) -> bool {
        match self {
            Self::Made(plan) | Self::Msccl(plan) | Self::Schedule(plan, _) => plan.in_place,
            Self::Mscclpp(plan) => plan.in_place,
            Self::Chakra { plan, .. } => matches!(plan, Some(plan) if plan.in_place),
        }
    }

    /// Sizes, in bytes of the larger of operand and result, are multiples of this for elements of `item` bytes.
    pub fn unit(&self, item: u64) -> u64 {
        match self {
            Self::Made(plan) | Self::Msccl(plan) | Self::Schedule(plan, _) | Self::Chakra { plan: Some(plan), .. } => {
                u64::from(plan.chunks).saturating_mul(item)
            }
            Self::Mscclpp(plan) => plan.alignment.saturating_mul(plan.chunks.into()),
            Self::Chakra { .. } => 1,
        }
    }

    /// The trace, where it is one.
    pub const fn trace(&self) -> Option<&chakra::Trace> {
        match self {
            Self::Chakra { trace, .. } => Some(trace),
            _ => None,
        }
    }

    /// Why a real runtime would not load it or would misread it.
    pub fn warnings(&self) -> &[Diagnostic] {
        match self {
            Self::Made(plan) | Self::Msccl(plan) | Self::Schedule(plan, _) => &plan.warnings,
            Self::Mscclpp(plan) => &plan.warnings,
            Self::Chakra { warnings, .. } => warnings,
        }
    }

    /// As a thread-block plan, the form through which formats are converted.
    ///
    /// # Errors
    /// `AHBM-U292` for what thread blocks and queues cannot express.
    pub fn to_plan(&self, reading: &Reading) -> Result<Cow<'_, Plan>, Vec<Diagnostic>> {
        match self {
            Self::Made(plan) | Self::Msccl(plan) | Self::Schedule(plan, _) => Ok(Cow::Borrowed(plan)),
            Self::Mscclpp(plan) => {
                self.ordered(plan, reading)?;
                mscclpp::to_plan(plan, &reading.budget).map(Cow::Owned)
            }
            Self::Chakra { plan: Some(plan), .. } => Ok(Cow::Borrowed(plan)),
            Self::Chakra { trace, .. } => Err(vec![trace.without_buffers()]),
        }
    }

    /// True when it says which bytes go where; a trace may say only how many.
    pub const fn has_buffers(&self) -> bool {
        !matches!(self, Self::Chakra { plan: None, .. })
    }

    /// Whether an execution plan computes the same in every order: only then one order says it all.
    fn ordered(&self, plan: &ExecutionPlan, reading: &Reading) -> Result<(), Vec<Diagnostic>> {
        let verdict = self.check(&Reading { calls: 1, ..*reading });
        let unordered = |finding: &Diagnostic| finding.code == codes::ORDER_UNDECIDED;
        let raced = |finding: &&Diagnostic| matches!(finding.code, codes::RACE | codes::ORDER_DEPENDENT);
        let what = match (verdict.outcome, verdict.findings.iter().find(raced)) {
            (Outcome::Unsupported | Outcome::Malformed, _) => return Err(verdict.findings),
            (Outcome::Undecided, _) if !verdict.findings.iter().any(unordered) => return Err(verdict.findings),
            (Outcome::Deadlock, _) => "a plan that gets stuck".to_owned(),
            (_, Some(finding)) => format!("a plan that races: {}", finding.message),
            // Several passes over a loop are wrong in a way that one is not.
            (Outcome::Wrong, _) if plan.loops() => "a plan with loops that is wrong".to_owned(),
            _ => return Ok(()),
        };
        let hint = format!("ahbm check {} says more", plan.file);
        let finding = Diagnostic::new("AHBM-U292", format!("{what} cannot be converted"));
        Err(vec![finding.site("plan", &*plan.file).hint(hint)])
    }

    /// As a program on a machine. One without buffers has messages of zeros, no operands and no results.
    ///
    /// # Errors
    /// The errors of lowering the format.
    pub fn lower(&self, machine: &Machine, options: &LowerOptions) -> Result<Lowered, Vec<Diagnostic>> {
        match self {
            Self::Made(plan) | Self::Msccl(plan) | Self::Schedule(plan, _) => plan.lower(machine, options),
            Self::Mscclpp(plan) => launches(plan, Launch::ODD, |launch| plan.lower(machine, options, launch)),
            Self::Chakra { plan: Some(plan), .. } => plan.lower(machine, options),
            Self::Chakra { trace, .. } => {
                let program = trace.lower(machine, options)?;
                Ok(Lowered { program, ranks: Vec::new(), chunk_bytes: 0, later: Vec::new() })
            }
        }
    }

    /// Whether it computes what it says, whatever the order of its thread blocks.
    ///
    /// An execution plan whose launches alternate between two halves of scratch is checked for both; the gravest
    /// verdict counts.
    pub fn check(&self, reading: &Reading) -> Verdict {
        match self {
            Self::Made(plan) | Self::Msccl(plan) | Self::Schedule(plan, _) | Self::Chakra { plan: Some(plan), .. } => {
                let verdict = blocks::check(plan, reading);
                match (self, &plan.places) {
                    // The first place of a program is its own.
                    (Self::Msccl(_), Lines::Listed(places)) if !places.is_empty() => blamed(verdict, &places[0]),
                    _ => verdict,
                }
            }
            Self::Chakra { trace, .. } => {
                let program = trace.lower_for_check(reading.slots, &reading.budget);
                let lowered = program.map(|program| Lowered {
                    program,
                    ranks: Vec::new(),
                    chunk_bytes: ELEMENT,
                    later: Vec::new(),
                });
                // A trace says how many bytes travel, not which: nothing to expect of memory.
                verdict(lowered, Goal::Custom, 1, reading)
            }
            Self::Mscclpp(plan) => {
                let lower = |launch| plan.lower_for_check(LOOP_ITERATIONS, launch, &reading.budget);
                let launch = |launch| verdict(launches(plan, launch, lower), plan.goal, plan.chunks, reading);
                let first = launch(Launch::ODD);
                let gravest = match plan.double_scratch.then(|| launch(Launch::EVEN)) {
                    Some(second) if second.outcome > first.outcome => second,
                    _ => first,
                };
                match &plan.places {
                    Places::Listed { whole, .. } => blamed(gravest, whole),
                    Places::Positions => gravest,
                }
            }
        }
    }
}

/// Nobody wrote what is missing: the program as a whole, at `whole`, is to blame.
fn blamed(mut verdict: Verdict, whole: &Origin) -> Verdict {
    for finding in verdict.findings.iter_mut().filter(|finding| finding.sites.is_empty()) {
        *finding = finding.clone().site("program", whole.to_string());
    }
    verdict
}

/// A launch of an execution plan, and what follows it.
fn launches(
    plan: &ExecutionPlan,
    launch: Launch,
    lower: impl Fn(Launch) -> Result<Lowered, Vec<Diagnostic>>,
) -> Result<Lowered, Vec<Diagnostic>> {
    let first = lower(launch)?;
    let later = plan.after(launch).into_iter().map(|launch| Ok(lower(launch)?.program));
    Ok(Lowered { later: later.collect::<Result<_, Vec<Diagnostic>>>()?, ..first })
}

/// The verdict on a program made for a check.
fn verdict(lowered: Result<Lowered, Vec<Diagnostic>>, goal: Goal, chunks: u32, reading: &Reading) -> Verdict {
    let expected = lowered.and_then(|lowered| {
        let one = |finding| vec![finding];
        let cells = lowered.program.buffers.iter().fold(0u64, |n, buffer| n.saturating_add(buffer.bytes / ELEMENT));
        reading.budget.check(Limit::Cells, cells).map_err(one)?;
        let whole = u64::from(chunks).saturating_mul(lowered.chunk_bytes / ELEMENT);
        let expectation = goal.expectation(&lowered.ranks, whole, ELEMENT, &reading.budget).map_err(one)?;
        Ok((lowered, expectation))
    });
    match expected {
        Err(findings) => Verdict::new(outcome_of(&findings), findings),
        Ok((Lowered { program, later, .. }, expectation)) => {
            let options = CheckOptions {
                orders: reading.orders,
                seed: reading.seed,
                calls: reading.calls,
                later: &later,
                max_steps: reading.budget.get(Limit::CheckSteps),
                ..CheckOptions::default()
            };
            let verdict = ahbm_check::check(&program, &expectation, &options);
            // One rank that has nothing to do has no agent, and stands on a SIP all the same.
            let sips = program.agents.iter().map(|agent| agent.coord.sip + 1).max().unwrap_or(1);
            verdict.proven(&program, &expectation, || plain_machine(sips))
        }
    }
}

/// The machine of [`plan::Site::abstract_of`]: one cube with one PE per rank, all joined by a switch.
fn plain_machine(ranks: u32) -> Result<Machine, Vec<Diagnostic>> {
    let text = format!(
        "system: {{sips: {{count: {ranks}, topology: switch}}}}\n\
         sip: {{cube_mesh: {{w: 1, h: 1}}}}\n\
         cube: {{pe_layout: {{corners: 1, pe_per_corner: 1}}}}\n"
    );
    Machine::from_yaml(&text, "plain machine", &[])
}

/// Bytes of an element in programs that are checked.
const ELEMENT: u64 = 8;

/// Iterations of loops in programs that are checked: enough to come back to a buffer that two stages share.
const LOOP_ITERATIONS: u32 = 3;

/// The verdict on a file that could not be read or lowered: unsupported when all that is wrong is support.
pub fn outcome_of(findings: &[Diagnostic]) -> Outcome {
    let unsupported = |finding: &Diagnostic| matches!(finding.family(), codes::UNSUPPORTED | codes::BUDGET);
    if findings.iter().all(unsupported) { Outcome::Unsupported } else { Outcome::Malformed }
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
