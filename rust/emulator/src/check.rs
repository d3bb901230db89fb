//! Is a program right, whatever the order? Execution on contributions instead of numbers.
//!
//! Every cell of memory (one element) holds the multiset of contributions `(rank, index)` that went into it;
//! a reduction is the union of multisets. The program runs without time in several orders, agents taking
//! turns as their channels, counters and barriers allow, and
//!
//! 1. each run that ends must give every expected cell exactly its contributions ([`Expectation`]),
//! 2. a run that stops early is a deadlock, which names who waits for whom,
//! 3. two accesses to a cell, one of them a write, that nothing orders are a race even where every run
//!    happened to be right: vector clocks follow channels, queue slots, counters and barriers.
//!
//! | code | finding |
//! |---|---|
//! | `AHBM-B210` | more steps than the budget; refused before the first one |
//! | `AHBM-D201` | deadlock |
//! | `AHBM-U290` | an operation that contributions cannot follow |
//! | `AHBM-V401` | contributions missing, doubled or foreign |
//! | `AHBM-V402` | memory read before anything was written (a warning) |
//! | `AHBM-V403` | two accesses that nothing orders |
//! | `AHBM-V404` | the result depends on the order |
//! | `AHBM-V405` | messages that nobody receives (a warning) |
//! | `AHBM-V406` | ordering not analysed: too many agents share memory (a warning) |
//! | `AHBM-V407` | a message of another size than its receive |
//! | `AHBM-V408` | a run with numbers does not confirm the verdict |
//! | `AHBM-V409` | no run with numbers was possible (a warning) |
//!
//! Reading order: `expectation`, `schedule` (who goes next), `values` (what it does), `clocks` (what orders it),
//! `deadlock` and `compare` (what to say), `proof` (the same with numbers).

mod clocks;
mod compare;
mod deadlock;
mod expectation;
mod proof;
mod schedule;
mod support;
mod values;

pub use expectation::{Expectation, SetId};
pub use proof::Proof;

use ahbm_machine::Diagnostic;
use ahbm_program::Program;
use clocks::Clocks;
use schedule::{Ended, Order, Schedule};
use support::Cells;
use values::Values;

/// Orders in which accesses are also followed by vector clocks.
const CLOCKED: u32 = 2;

/// How a check runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckOptions {
    /// Messages a queue holds, for every channel; `None` keeps the program's own, `u32::MAX` is unbounded.
    pub slots: Option<u32>,
    /// Orders tried, at least one.
    pub orders: u32,
    /// Chooses the random ones among them.
    pub seed: u64,
    /// Most operations and elements handled, over all orders.
    pub max_steps: u64,
    /// Whether to search for the least depth that completes.
    pub min_slots: bool,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { slots: None, orders: 4, seed: 0, max_steps: 1 << 28, min_slots: true }
    }
}

/// What a check found, by gravity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Every order gives the expected result and nothing races.
    Correct,
    /// It runs to the end in every order; what it should compute is not known. Races are among the findings.
    NoExpectation,
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
            Self::Unsupported => "unsupported",
            Self::Malformed => "malformed",
        }
    }
}

/// The answer of [`check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What it comes to.
    pub outcome: Outcome,
    /// Least depth at which every queue lets the program complete; `None` without queues, or when no depth does.
    pub min_slots: Option<u32>,
    /// Why, and warnings.
    pub findings: Vec<Diagnostic>,
    /// What a run with numbers has shown, where one was asked for ([`Verdict::proven`]).
    pub proof: Option<Proof>,
}

impl Verdict {
    /// An outcome and why, nothing else being known.
    pub const fn new(outcome: Outcome, findings: Vec<Diagnostic>) -> Self {
        Self { outcome, min_slots: None, findings, proof: None }
    }
}

/// Checks a program against what it should compute. Deterministic.
pub fn check(program: &Program, expectation: &Expectation, options: &CheckOptions) -> Verdict {
    let unsound = ahbm_program::structure(program);
    if !unsound.is_empty() {
        return Verdict::new(Outcome::Malformed, unsound);
    }
    let cells = match Cells::of(program, options) {
        Ok(cells) => cells,
        Err(finding) => return Verdict::new(Outcome::Unsupported, vec![finding]),
    };
    let mut verdict = explore(program, &cells, expectation, options);
    if options.min_slots && !matches!(verdict.outcome, Outcome::Malformed | Outcome::Unsupported) {
        verdict.min_slots = schedule::min_slots(program);
    }
    verdict
}

fn explore(program: &Program, cells: &Cells, expectation: &Expectation, options: &CheckOptions) -> Verdict {
    let mut warnings = Vec::new();
    let mut races = Vec::new();
    let mut results: Vec<compare::RunResult> = Vec::new();
    for order in 0..options.orders.max(1) {
        let clocks = if order < CLOCKED { Clocks::new(program, cells, options.slots) } else { Ok(None) };
        let (clocks, skipped) = match clocks {
            Ok(clocks) => (clocks, None),
            Err(finding) => (None, Some(finding)),
        };
        let mut effects = Effects { values: Values::new(program, cells, expectation), clocks };
        let mut schedule = Schedule::new(program, options.slots, Order::of(order, program.agents.len(), options.seed));
        match schedule.run(&mut effects) {
            Err(finding) => return Verdict::new(Outcome::Malformed, vec![finding]),
            Ok(Ended::Stuck) => return Verdict::new(Outcome::Deadlock, vec![deadlock::report(&schedule)]),
            Ok(Ended::Complete) => {}
        }
        if let Some(clocks) = effects.clocks
            && races.is_empty()
        {
            races = clocks.findings(expectation);
        }
        if order == 0 {
            warnings.extend(skipped);
            warnings.extend(effects.values.undefined_reads(expectation));
            warnings.extend(schedule.unreceived());
        }
        let result = compare::compare(&effects.values, expectation);
        if results.iter().all(|known| known.prints != result.prints) {
            results.push(result);
        }
    }
    let wrong = results.iter().any(|r| !r.wrong.is_empty());
    let mut findings: Vec<Diagnostic> = Vec::new();
    if results.len() > 1 {
        findings.push(
            Diagnostic::new("AHBM-V404", format!("{} orders of the agents give different results", results.len()))
                .hint("order the accesses that AHBM-V403 names with a dependency, a counter or a barrier"),
        );
    }
    if let Some(first) = results.iter_mut().find(|r| !r.wrong.is_empty()) {
        findings.append(&mut first.wrong);
    }
    let raced = results.len() > 1 || !races.is_empty();
    findings.append(&mut races);
    findings.append(&mut warnings);
    let outcome = if wrong {
        Outcome::Wrong
    } else if !expectation.is_known() {
        Outcome::NoExpectation
    } else if raced {
        Outcome::Race
    } else {
        Outcome::Correct
    };
    Verdict::new(outcome, findings)
}

/// What happens when an operation takes effect.
struct Effects<'p> {
    values: Values<'p>,
    clocks: Option<Clocks<'p>>,
}

impl schedule::Watch for Effects<'_> {
    fn done(&mut self, agent: ahbm_program::AgentId, op: usize) -> Result<(), Diagnostic> {
        if let Some(clocks) = &mut self.clocks {
            clocks.done(agent, op);
        }
        self.values.done(agent, op)
    }

    fn released(&mut self, participants: &[ahbm_program::AgentId]) {
        if let Some(clocks) = &mut self.clocks {
            clocks.meet(participants);
        }
    }
}
