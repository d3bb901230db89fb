//! Is a program right, whatever the order? Execution on contributions instead of numbers.
//!
//! Every element of memory holds the multiset of contributions `(rank, index)` that went into it; a reduction is the
//! union of multisets, any other function something of its own. Runs of elements are handled as one, so that the cost
//! follows the number of operations and not the size of what they move. The program runs without time in several
//! orders, agents taking turns as their channels, counters and barriers allow, and
//!
//! 1. when a rank's agents have ended, every expected element of that rank must have exactly its contributions
//!    ([`Expectation`]),
//! 2. a run that stops early is a deadlock, which names who waits for whom,
//! 3. two accesses to an element, one of them a write, that nothing orders are a race even where every run
//!    happened to be right: vector clocks follow channels, queue slots, counters and barriers. The rank that owns an
//!    operand or a result touches it, too: it writes before its call starts and after its call has ended,
//! 4. the same holds for calls that follow each other at once ([`CheckOptions::calls`]). A rank that has ended a call
//!    gets other operands and starts the next one, whatever the other ranks do.
//!
//! ```
//! use ahbm_check::{CheckOptions, Outcome, check};
//! use ahbm_plan::blocks::{Action, Slot};
//! use ahbm_plan::{Budget, Collective, PlanBuilder, Space, StepSpec};
//! use ahbm_program::{Locus, Origin};
//!
//! // Both ranks send what they have, and keep what they get instead of adding it.
//! let at = |line| Origin { file: "pair.py".into(), locus: Locus::Line(line) };
//! let mut plan = PlanBuilder::new("pair", Collective::AllReduce.into(), 2, 1, Budget::default(), at(1))?;
//! for rank in 0..2 {
//!     let block = plan.block(rank, Some(1 - rank), Some(1 - rank), 0, at(2))?;
//!     let [input, output] = [Space::Input, Space::Output].map(|space| Slot { space, chunk: 0 });
//!     plan.step(block, &StepSpec::new(Action::Send, input, input), at(3))?;
//!     plan.step(block, &StepSpec::new(Action::Recv, output, output), at(4))?;
//! }
//! let plan = plan.finish().expect("a plan");
//! let lowered = plan.lower_for_check(2, &Budget::default()).expect("a program");
//! let expected = plan.goal.expectation(&lowered.ranks, 1, 8, &Budget::default())?;
//!
//! let verdict = check(&lowered.program, &expected, &CheckOptions::default());
//! assert_eq!(verdict.outcome, Outcome::Wrong);
//! assert!(verdict.findings[0].message.starts_with("rank 0, elements [0, 1) of the output of rank 0: rank 0 missing"));
//! # Ok::<(), ahbm_findings::Diagnostic>(())
//! ```
//!
//! | code | finding |
//! |---|---|
//! | `AHBM-B210` | more steps than the budget; refused before the first one |
//! | `AHBM-D201` | deadlock |
//! | `AHBM-U290` | not decided: a result depends on an operation that contributions cannot follow |
//! | `AHBM-V401` | contributions missing, doubled or foreign |
//! | `AHBM-V402` | memory read before anything was written (a warning) |
//! | `AHBM-V403` | two accesses that nothing orders |
//! | `AHBM-V404` | the result depends on the order |
//! | `AHBM-V405` | messages that nobody receives (a warning) |
//! | `AHBM-V406` | ordering not analysed to the end: too much to compare (a warning) |
//! | `AHBM-V407` | a message of another size than its receive |
//! | `AHBM-V408` | a run with numbers does not confirm the verdict |
//! | `AHBM-V409` | no run with numbers was possible (a warning) |
//! | `AHBM-V410` | signals that nobody waits for (a warning) |
//! | `AHBM-V411` | calls that follow each other at once compute something else than calls with a pause between |
//! | `AHBM-V414` | a rank's operand or result is touched before its call starts or after it has ended |
//! | `AHBM-V415` | a rank leaves a barrier that another may not have entered |
//!
//! Reading order: [`Expectation`], `schedule` (who goes next), `print`, `nodes` and `values` (what it does), `spots`, `clocks`, `underway` and `ticks`
//! (what orders it), `deadlock` and `compare` (what to say), `proof` (the same with numbers). `walk` is one order, for other crates;
//! `orders` is another question, in which order a sum adds; `plans` asks all this of an algorithm that has no program yet.

#[cfg(test)]
mod agreement;
mod clocks;
mod compare;
mod counters;
mod deadlock;
mod nodes;
mod orders;
mod plans;
mod print;
mod proof;
mod schedule;
mod spots;
mod support;
mod ticks;
mod underway;
mod values;
mod walk;

use ahbm_plan::Expectation;
pub use orders::{Orders, Part, Stretch, orders};
pub use plans::{PlanCheck, as_blocks, check_plan};
pub use proof::Proof;
pub use walk::{Walker, needed_slots, walk};

use ahbm_findings::{Diagnostic, codes};
use ahbm_machine::Machine;
use ahbm_program::{AgentId, Comm, Control, OpKind, Program};
use clocks::Clocks;
use compare::{RunResult, Terms};
use log::{Level, debug, log_enabled};
use schedule::{Ended, Fence, Nobody, Order, Schedule};
use spots::Spots;
use std::collections::BTreeSet;
use std::time::Instant;
use support::{Step, Subject};
use values::Values;

/// The target the check logs to.
const LOG: &str = "ahbm::check";

/// Orders in which accesses are also followed by vector clocks.
const CLOCKED: u32 = 2;

/// How a check runs.
#[derive(Debug, Clone, Copy)]
pub struct CheckOptions<'p> {
    /// Messages a queue holds, for every channel; `None` keeps the program's own, `u32::MAX` is unbounded.
    pub slots: Option<u32>,
    /// Orders tried, at least one.
    pub orders: u32,
    /// Chooses the random ones among them.
    pub seed: u64,
    /// Times the program is issued in a row, at least one. A rank starts its next call when it has ended this one,
    /// whatever the others do.
    pub calls: u32,
    /// The programs that the calls after the first launch, in turn, if they differ: each has the same agents, buffers,
    /// queues and counters as the first. Empty when every call is the same.
    pub later: &'p [Program],
    /// Names agents by their place on it.
    pub machine: Option<&'p Machine>,
    /// Most operations and operands handled, over all orders and calls.
    pub max_steps: u64,
    /// Whether to search for the least depth that completes.
    pub min_slots: bool,
}

impl Default for CheckOptions<'_> {
    fn default() -> Self {
        Self {
            slots: None,
            orders: 4,
            seed: 0,
            calls: 1,
            later: &[],
            machine: None,
            max_steps: 1 << 28,
            min_slots: true,
        }
    }
}

/// The results of a check, by gravity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Every order gives the expected result and nothing races.
    Correct,
    /// It runs to the end in every order; what it should compute is not known. Races are among the findings.
    NoExpectation,
    /// Nothing wrong was found, but not everything could be looked at.
    Undecided,
    /// Every order that was tried is right, but nothing orders some accesses.
    Race,
    /// Some order gives a wrong result.
    Wrong,
    /// Some order stops before the end.
    Deadlock,
    /// It uses what cannot be checked, or costs too much.
    Unsupported,
    /// It is no sound program.
    Malformed,
}

impl Outcome {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Correct => "correct",
            Self::Wrong => "wrong",
            Self::Deadlock => "deadlock",
            Self::Race => "race",
            Self::NoExpectation => "no_expectation",
            Self::Undecided => "undecided",
            Self::Unsupported => "unsupported",
            Self::Malformed => "malformed",
        }
    }
}

/// The answer of [`check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The outcome.
    pub outcome: Outcome,
    /// Least depth at which every queue lets the program complete; `None` without queues, or when no depth does.
    pub min_slots: Option<u32>,
    /// Why, and warnings.
    pub findings: Vec<Diagnostic>,
    /// The result of a run with numbers, if one was asked for ([`Verdict::proven`]).
    pub proof: Option<Proof>,
}

impl Verdict {
    /// An outcome and why, nothing else being known.
    pub const fn new(outcome: Outcome, findings: Vec<Diagnostic>) -> Self {
        Self { outcome, min_slots: None, findings, proof: None }
    }
}

/// Checks a program against what it should compute. Deterministic.
pub fn check(program: &Program, expectation: &Expectation, options: &CheckOptions<'_>) -> Verdict {
    let subject = Subject { program, later: options.later, machine: options.machine, calls: options.calls.max(1) };
    let mut unsound: Vec<Diagnostic> = subject.programs().flat_map(ahbm_program::structure).collect();
    if subject.programs().any(|launch| shape(launch) != shape(program)) {
        unsound.push(Diagnostic::new("AHBM-D191", "a later call launches another program's agents"));
    }
    if !unsound.is_empty() {
        return Verdict::new(Outcome::Malformed, unsound);
    }
    if let Err(finding) = subject.affordable(options) {
        return Verdict::new(Outcome::Undecided, vec![finding]);
    }
    let begin = log_enabled!(target: LOG, Level::Debug).then(Instant::now);
    let mut verdict = explore(subject, expectation, options);
    let unawaited = verdict.findings.iter().any(|finding| finding.code == codes::UNAWAITED);
    if verdict.outcome == Outcome::Correct && subject.calls > 1 && unawaited {
        // What a signal too many lets through may take one call more to be wrong.
        let longer = explore(Subject { calls: subject.calls + 1, ..subject }, expectation, options);
        if longer.outcome > verdict.outcome {
            verdict = longer;
        }
    }
    if options.min_slots && !matches!(verdict.outcome, Outcome::Malformed | Outcome::Unsupported) {
        verdict.min_slots = schedule::min_slots(Subject { calls: 1, ..subject });
    }
    if let Some(begin) = begin {
        let (name, outcome, ms) = (&program.name, verdict.outcome.name(), begin.elapsed().as_secs_f64() * 1e3);
        debug!(target: LOG, "{name}: {outcome}; checked in {ms:.3} ms");
    }
    verdict
}

/// The properties that programs launched after each other have in common.
fn shape(program: &Program) -> [usize; 5] {
    let Program { agents, buffers, channels, counters, barriers, .. } = program;
    [agents.len(), buffers.len(), channels.len(), *counters as usize, barriers.len()]
}

/// What the runs in several orders have shown.
#[derive(Default)]
struct Shown {
    /// Different results.
    results: Vec<RunResult>,
    races: Vec<Diagnostic>,
    gaps: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    /// Whether accesses are ordered is not known.
    unordered: bool,
}

fn explore(subject: Subject<'_>, expectation: &Expectation, options: &CheckOptions<'_>) -> Verdict {
    let terms = Terms::new(expectation);
    let ranks: BTreeSet<u32> = subject.program.agents.iter().map(|agent| agent.rank).collect();
    // The memory of a rank without agents has no call whose end it could be renewed at.
    let idle: Vec<u32> = terms.ranks().difference(&ranks).copied().collect();
    let subject = if idle.is_empty() { subject } else { Subject { calls: 1, ..subject } };
    let mut shown = Shown::default();
    let spots = Spots::contended(subject, terms.memory());
    let determinate = subject.programs().all(|program| determinate(program, !spots.is_empty()));
    for order in 0..options.orders.max(1) {
        let follow = order < CLOCKED && !shown.unordered;
        let (mut effects, schedule) = match run(subject, &terms, &spots, options, order, Fence::Rank, follow) {
            Err(verdict) => return verdict,
            Ok(ended) => ended,
        };
        for &rank in &idle {
            effects.result.look(subject, &effects.values, &terms, rank, 0);
        }
        if let Some(clocks) = effects.clocks {
            if shown.gaps.is_empty() {
                shown.gaps.extend(clocks.gaps());
            }
            if let Some(finding) = clocks.gave_up() {
                shown.unordered = true;
                shown.warnings.push(finding);
            }
            if shown.races.is_empty() {
                shown.races = clocks.findings(expectation);
            }
        }
        if order == 0 {
            shown.warnings.extend(effects.values.undefined_reads(expectation));
            shown.warnings.extend(schedule.unreceived());
            shown.warnings.extend(schedule.untaken());
        }
        if shown.results.iter().all(|known| known.prints != effects.result.prints) {
            shown.results.push(effects.result);
        }
        if determinate && shown.races.is_empty() && !shown.unordered {
            break;
        }
    }
    // What a later call should give is known from calls with a pause between them.
    let calm = || run(subject, &terms, &spots, options, 0, Fence::World, false).map(|(effects, _)| effects.result);
    judge(subject, &terms, shown, calm).unwrap_or_else(|verdict| verdict)
}

/// The verdict on what was shown; `calm` is the result of calls with a pause between them.
fn judge(
    subject: Subject<'_>,
    terms: &Terms<'_>,
    shown: Shown,
    calm: impl FnOnce() -> Result<RunResult, Verdict>,
) -> Result<Verdict, Verdict> {
    let Shown { results, mut races, mut gaps, mut warnings, unordered } = shown;
    let expectation = terms.expectation;
    let mut findings: Vec<Diagnostic> = Vec::new();
    let wrong = results.iter().filter_map(RunResult::first_wrong).min();
    let interfere = wrong.is_some_and(|call| call > 0) || results.iter().any(RunResult::mixes_calls);
    let first = wrong.and_then(|call| results.iter().find(|result| result.first_wrong() == Some(call)));
    let mut told = first.map(|result| result.report(subject, terms)).unwrap_or_default();
    findings.extend(interfere.then(|| interfering(subject, races.first().or(told.first()))));
    // What differs in a later call only, the call before it has caused.
    let firsts: BTreeSet<_> = results.iter().map(|result| result.of_call(0).collect::<Vec<_>>()).collect();
    if firsts.len() > 1 && !interfere {
        findings.push(
            Diagnostic::new("AHBM-V404", format!("{} orders of the agents give different results", firsts.len()))
                .hint("order the accesses that AHBM-V403 names with a dependency, a counter or a barrier"),
        );
    }
    let undecided = results.iter().find_map(|result| undecided(subject, &result.undecided));
    findings.append(&mut told);
    let mut failed = wrong.is_some() || !gaps.is_empty();
    if !failed && races.is_empty() && subject.calls > 1 && (undecided.is_some() || !expectation.is_known()) {
        let calm = calm()?;
        let alike = |result: &RunResult, call: u32| result.of_call(call).eq(calm.of_call(call));
        if results.iter().any(|result| alike(result, 0) && result.prints != calm.prints) {
            findings.push(interfering(subject, races.first()));
            failed = true;
        }
    }
    let raced = firsts.len() > 1 || !races.is_empty();
    findings.append(&mut gaps);
    findings.append(&mut races);
    let outcome = if failed {
        Outcome::Wrong
    } else if !expectation.is_known() && !expectation.synchronises() {
        Outcome::NoExpectation
    } else if raced {
        Outcome::Race
    } else if undecided.is_some() || unordered {
        Outcome::Undecided
    } else {
        Outcome::Correct
    };
    findings.extend(undecided);
    findings.append(&mut warnings);
    Ok(Verdict::new(outcome, findings))
}

/// Says that a call is wrong because of the one before it, where `evidence` says.
fn interfering(subject: Subject<'_>, evidence: Option<&Diagnostic>) -> Diagnostic {
    let message = format!("{} calls in a row compute something else than with a pause between them", subject.calls);
    let finding = Diagnostic::new("AHBM-V411", message);
    let sites = evidence.into_iter().flat_map(|evidence| &evidence.sites);
    sites.fold(finding, |finding, site| finding.site(site.label.clone(), site.origin.clone())).hint(
        "a rank that is ahead reuses memory or a queue that another still reads, or leaves a signal or a message over: \
         end with a signal or a barrier, or alternate between two buffers",
    )
}

/// One run in one order, and what came of it. Clocks `follow` accesses if that is asked for.
fn run<'p, 't>(
    subject: Subject<'p>,
    terms: &'t Terms<'t>,
    spots: &'p Spots,
    options: &CheckOptions<'_>,
    order: u32,
    fence: Fence,
    follow: bool,
) -> Result<(Effects<'p, 't>, Schedule<'p>), Verdict> {
    let clocks = if follow { Clocks::new(subject, options.slots, spots, terms) } else { None };
    let mut effects = Effects {
        subject,
        terms,
        values: Values::new(subject, terms.expectation),
        clocks,
        result: RunResult::default(),
    };
    let agents = subject.program.agents.len();
    let mut schedule = Schedule::new(subject, options.slots, Order::of(order, agents, options.seed), fence);
    match schedule.run(&mut effects) {
        Err(finding) => Err(Verdict::new(Outcome::Malformed, vec![finding])),
        Ok(Ended::Stuck) => {
            // Ranks that the first call does not hold wait for those that it does: these say more.
            let once = Subject { calls: 1, ..subject };
            let mut first = Schedule::new(once, options.slots, Order::of(order, agents, options.seed), fence);
            let stuck = if first.run(&mut Nobody) == Ok(Ended::Stuck) { &first } else { &schedule };
            Err(Verdict::new(Outcome::Deadlock, vec![deadlock::report(stuck)]))
        }
        Ok(Ended::Complete) => Ok((effects, schedule)),
    }
}

/// Whether what orders the agents is the same in every order of execution: each message and each semaphore has one
/// taker and, where agents share memory, each counter one giver. Such a program without a race computes the same, stops
/// in the same place and ends its calls in the same state in every order: one says it all.
fn determinate(program: &Program, shares: bool) -> bool {
    let mut takers = vec![None; program.counters as usize];
    let mut givers = takers.clone();
    program.agents.iter().enumerate().all(|(index, agent)| {
        program.bodies[agent.body as usize].ops.iter().all(|op| match op.kind {
            OpKind::Comm(Comm::RecvAny { .. }) => false,
            OpKind::Control(Control::Acquire { counter, .. }) => {
                *takers[counter as usize].get_or_insert(index) == index
            }
            OpKind::Control(Control::Signal { counter, .. }) => {
                !shares || *givers[counter as usize].get_or_insert(index) == index
            }
            _ => true,
        })
    })
}

/// Says which operations keep a result from being decided.
fn undecided(subject: Subject<'_>, steps: &[Step]) -> Option<Diagnostic> {
    let first = steps.first()?;
    let what = subject.launch(first.call).describe(first.agent, first.op as usize);
    let finding = Diagnostic::new(
        "AHBM-U290",
        format!("not decided whether the result is right: contributions cannot follow `{what}`"),
    )
    .hint("only copies, messages and reductions have a meaning for contributions; races and deadlocks were looked for");
    Some(steps.iter().fold(finding, |finding, step| subject.site(finding, step)))
}

/// The effects of operations, and of the ends of calls.
struct Effects<'p, 't> {
    subject: Subject<'p>,
    terms: &'t Terms<'t>,
    values: Values<'p>,
    clocks: Option<Clocks<'p>>,
    result: RunResult,
}

impl schedule::Watch for Effects<'_, '_> {
    fn done(&mut self, step: &Step) -> Result<(), Diagnostic> {
        if let Some(clocks) = &mut self.clocks {
            clocks.done(step);
        }
        self.values.done(step)
    }

    fn released(&mut self, participants: &[AgentId]) {
        if let Some(clocks) = &mut self.clocks {
            clocks.meet(participants);
        }
    }

    /// A rank whose call has ended takes its result, and has other operands for the next call.
    fn ended(&mut self, participants: &[AgentId], call: u32) {
        if let Some(clocks) = &mut self.clocks {
            clocks.ended(participants, call);
        }
        let agents = &self.subject.program.agents;
        let ranks: BTreeSet<u32> = participants.iter().map(|agent| agents[agent.0 as usize].rank).collect();
        for rank in ranks {
            self.result.look(self.subject, &self.values, self.terms, rank, call);
            if call + 1 < self.subject.calls {
                for held in self.terms.operands(rank) {
                    self.values.give(held, self.terms.expectation.element(), call + 1);
                }
            }
        }
    }
}
