//! Results against expectations: which contributions are missing, doubled or foreign.

use super::expectation::{Contribution, Expectation, Observed};
use super::support;
use super::values::{self, Contents, Values};
use ahbm_machine::Diagnostic;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Wrong cells that are explained; the rest is counted.
const EXPLAINED: usize = 256;
/// Findings listed.
const LISTED: usize = 8;
/// Ranks named in a list before it only counts the rest.
const NAMED: usize = 6;

/// How a run came out.
pub(super) struct RunResult {
    /// The print of every observed cell.
    pub(super) prints: Vec<u128>,
    /// What is wrong with it.
    pub(super) wrong: Vec<Diagnostic>,
}

/// A run of neighbouring cells that are wrong in the same way.
struct Group {
    first: Observed,
    last: u64,
    why: String,
    cell: usize,
}

pub(super) fn compare(values: &Values<'_>, expectation: &Expectation) -> RunResult {
    let sets: Vec<u128> = expectation
        .sets()
        .map(|set| set.iter().fold(0u128, |sum, &contribution| sum.wrapping_add(values::print(contribution))))
        .collect();
    let mut prints = Vec::with_capacity(expectation.observed.len());
    let mut groups: Vec<Group> = Vec::new();
    let mut wrong = 0usize;
    for observed in &expectation.observed {
        let cell = values.cells.at(observed.cell.buffer, observed.cell.element);
        let print = cell.map_or(0, |c| values.print(c));
        prints.push(print);
        let Some(set) = observed.set else { continue };
        if cell.is_some() && print == sets[set.index()] {
            continue;
        }
        wrong += 1;
        if wrong > EXPLAINED {
            continue;
        }
        let why = match cell {
            Some(cell) => explain(&values.contents(cell), expectation.contributions(set)),
            None => "the buffer ends before it".into(),
        };
        match groups.last_mut() {
            Some(group) if group.extends_to(observed, &why) => group.last += 1,
            _ => groups.push(Group { first: *observed, last: observed.cell.element, why, cell: cell.unwrap_or(0) }),
        }
    }
    let mut findings: Vec<Diagnostic> = groups.iter().take(LISTED).map(|g| report(values, expectation, g)).collect();
    if let Some(first) = findings.first_mut() {
        let _ = write!(first.message, " ({wrong} of {} elements are wrong)", expectation.observed.len());
    }
    RunResult { prints, wrong: findings }
}

impl Group {
    fn extends_to(&self, observed: &Observed, why: &str) -> bool {
        let next = observed.cell.element.checked_sub(1) == Some(self.last);
        next && self.first.rank == observed.rank && self.first.cell.buffer == observed.cell.buffer && self.why == why
    }
}

fn report(values: &Values<'_>, expectation: &Expectation, group: &Group) -> Diagnostic {
    let (rank, start, end) = (group.first.rank, group.first.cell.element, group.last + 1);
    let buffer = expectation.buffer_name(group.first.cell.buffer);
    let what = format!("rank {rank}, elements [{start}, {end}) of {buffer}: {}", group.why);
    let finding = Diagnostic::new("AHBM-V401", what);
    match values.writer(group.cell) {
        Some((agent, op)) => {
            let who = support::name(values.program, agent);
            let what = values.program.describe(agent, op);
            finding.site(format!("last written by {who}: {what}"), values.program.origin_text(agent, op))
        }
        None => finding.hint("nothing wrote the first of these elements"),
    }
}

/// `rank 6 missing; rank 1 twice`. Contributions are named by rank alone unless their index is a foreign one.
fn explain(found: &Contents, expected: &[Contribution]) -> String {
    let mut balance: BTreeMap<Contribution, (u64, u64)> = BTreeMap::new();
    for &contribution in expected {
        balance.entry(contribution).or_default().0 += 1;
    }
    for (&contribution, &times) in &found.counts {
        balance.entry(contribution).or_default().1 = times;
    }
    let mut missing = Vec::new();
    let mut often: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut foreign = Vec::new();
    for (&(rank, index), &(wanted, there)) in &balance {
        if wanted == 0 {
            foreign.push(format!("element {index} of rank {rank}"));
        } else if there == 0 {
            missing.push(format!("rank {rank}"));
        } else if there != wanted {
            often.entry(there).or_default().push(format!("rank {rank}"));
        }
    }
    let mut parts = Vec::new();
    if !missing.is_empty() {
        parts.push(format!("{} missing", list(&missing)));
    }
    for (times, ranks) in &often {
        let times = if *times == 2 { "twice".into() } else { format!("{times} times") };
        parts.push(format!("{} {times}", list(ranks)));
    }
    if !foreign.is_empty() {
        parts.push(format!("{} foreign", list(&foreign)));
    }
    if found.undefined {
        parts.push("memory that nobody wrote went into it".into());
    }
    parts.join("; ")
}

fn list(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
