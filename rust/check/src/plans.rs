//! Whether an algorithm is right, in whatever model, and whatever the order of its thread blocks.

mod blocks;
mod execution;
mod steps;

use crate::{CheckOptions, Outcome, Verdict, check};
use ahbm_findings::{Diagnostic, codes};
use ahbm_machine::Machine;
use ahbm_plan::execution::{ExecutionPlan, Launch, Places};
use ahbm_plan::{Algorithm, BY_PROTOCOL, Budget, Goal, Limit, Lowered, Plan};
use ahbm_program::Origin;
use std::borrow::Cow;

/// How an algorithm is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanCheck {
    /// Bounds what a check may take.
    pub budget: Budget,
    /// Messages a queue holds; [`BY_PROTOCOL`] as the runtimes have it, `u32::MAX` is unbounded.
    pub slots: u32,
    /// Orders of the agents that are tried.
    pub orders: u32,
    /// Chooses the random ones among them.
    pub seed: u64,
    /// Times a program is issued in a row.
    pub calls: u32,
}

impl Default for PlanCheck {
    fn default() -> Self {
        let CheckOptions { orders, seed, .. } = CheckOptions::default();
        Self { budget: Budget::default(), slots: BY_PROTOCOL, orders, seed, calls: 2 }
    }
}

/// Whether it computes what it says, whatever the order of its thread blocks.
///
/// An execution plan whose launches alternate between two halves of scratch is checked for both; the gravest
/// verdict counts.
pub fn check_plan(algorithm: &Algorithm, options: &PlanCheck) -> Verdict {
    match algorithm {
        Algorithm::Blocks(plan) => blocks::check(plan, options),
        Algorithm::Execution(plan) => launched(plan, options),
        Algorithm::Messages(messages) => {
            let lowered = messages.lower_for_check(options.slots, &options.budget);
            let lowered = lowered.map(|program| Lowered::without_buffers(program, ELEMENT));
            // Only how many bytes travel is known, not which: nothing to expect of memory.
            verdict(lowered, Goal::Custom, 1, options)
        }
    }
}

/// As a thread-block plan, the form through which formats are converted.
///
/// # Errors
/// `AHBM-U292` for what thread blocks and queues cannot express, `AHBM-U233` for messages whose bytes are not known.
pub fn as_blocks<'a>(algorithm: &'a Algorithm, options: &PlanCheck) -> Result<Cow<'a, Plan>, Vec<Diagnostic>> {
    match algorithm {
        Algorithm::Blocks(plan) => Ok(Cow::Borrowed(plan)),
        Algorithm::Execution(plan) => {
            ordered(plan, options)?;
            execution::to_blocks(plan, &options.budget).map(Cow::Owned)
        }
        Algorithm::Messages(messages) => Err(vec![messages.without_buffers()]),
    }
}

impl Verdict {
    /// The verdict on a file that could not be read or lowered: unsupported when all that is wrong is support.
    pub fn refused(findings: Vec<Diagnostic>) -> Self {
        let unsupported = |finding: &Diagnostic| matches!(finding.family(), codes::UNSUPPORTED | codes::BUDGET);
        let outcome = if findings.iter().all(unsupported) { Outcome::Unsupported } else { Outcome::Malformed };
        Self::new(outcome, findings)
    }

    /// What nobody wrote is missing: the program as a whole, at `whole`, is to blame.
    #[must_use]
    pub fn blaming(mut self, whole: &Origin) -> Self {
        for finding in self.findings.iter_mut().filter(|finding| finding.sites.is_empty()) {
            *finding = finding.clone().site("program", whole.to_string());
        }
        self
    }
}

fn launched(plan: &ExecutionPlan, options: &PlanCheck) -> Verdict {
    let lower = |launch| {
        let lowered = plan.lower_for_check(LOOP_ITERATIONS, launch, &options.budget)?;
        affordable(&lowered, &options.budget).map_err(|finding| vec![finding])?;
        Ok(lowered)
    };
    let launch = |launch| verdict(plan.in_turn(launch, lower), plan.goal, plan.chunks, options);
    let first = launch(Launch::ODD);
    let gravest = match plan.double_scratch.then(|| launch(Launch::EVEN)) {
        Some(second) if second.outcome > first.outcome => second,
        _ => first,
    };
    match &plan.places {
        Places::Listed { whole, .. } => gravest.blaming(whole),
        Places::Positions => gravest,
    }
}

/// Whether an execution plan computes the same in every order: only then one order says it all.
fn ordered(plan: &ExecutionPlan, options: &PlanCheck) -> Result<(), Vec<Diagnostic>> {
    let verdict = launched(plan, &PlanCheck { calls: 1, ..*options });
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

/// The verdict on a program made for a check.
fn verdict(lowered: Result<Lowered, Vec<Diagnostic>>, goal: Goal, chunks: u32, options: &PlanCheck) -> Verdict {
    let expected = lowered.and_then(|lowered| {
        let one = |finding| vec![finding];
        affordable(&lowered, &options.budget).map_err(one)?;
        let whole = u64::from(chunks).saturating_mul(lowered.chunk_bytes / ELEMENT);
        let expectation = goal.expectation(&lowered.ranks, whole, ELEMENT, &options.budget).map_err(one)?;
        Ok((lowered, expectation))
    });
    let (Lowered { program, later, .. }, expectation) = match expected {
        Err(findings) => return Verdict::refused(findings),
        Ok(expected) => expected,
    };
    let options = CheckOptions {
        orders: options.orders,
        seed: options.seed,
        calls: options.calls,
        later: &later,
        max_steps: options.budget.get(Limit::CheckSteps),
        ..CheckOptions::default()
    };
    let verdict = check(&program, &expectation, &options);
    // One rank that has nothing to do has no agent, and stands on a SIP all the same.
    let sips = program.agents.iter().map(|agent| agent.coord.sip + 1).max().unwrap_or(1);
    verdict.proven(&program, &expectation, || plain_machine(sips))
}

/// Refuses more elements than the budget.
fn affordable(lowered: &Lowered, budget: &Budget) -> Result<(), Diagnostic> {
    let cells = lowered.program.buffers.iter().fold(0u64, |n, buffer| n.saturating_add(buffer.bytes / ELEMENT));
    budget.check(Limit::Cells, cells)
}

/// The machine of [`ahbm_plan::Site::abstract_of`]: one cube with one PE per rank, all joined by a switch.
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
