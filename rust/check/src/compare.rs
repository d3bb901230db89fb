//! Results against expectations: which contributions are missing, doubled or foreign.

use crate::print::Print;
use crate::support::{Step, Subject};
use crate::values::{self, Contents, Values};
use ahbm_machine::Diagnostic;
use ahbm_plan::{Contribution, Expectation, Observed};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

/// Wrong runs of elements that are explained; the rest is counted.
const EXPLAINED: usize = 256;
/// Findings listed.
const LISTED: usize = 8;
/// Ranks named in a list before it only counts the rest.
const NAMED: usize = 6;

/// How a run came out.
pub(crate) struct RunResult {
    /// The observed prints, each with its place. Equal results are equal lists.
    pub(crate) prints: Vec<(u64, Print)>,
    /// The faults of the result.
    pub(crate) wrong: Vec<Diagnostic>,
    /// Operations that contributions cannot follow and that elements depend on whose contents is expected.
    pub(crate) undecided: Vec<Step>,
}

/// A run of neighbouring elements that are wrong in the same way.
struct Group {
    first: Observed,
    why: String,
    writer: Option<Step>,
}

/// The prints in the observed memory, each with its place, right or wrong.
pub(crate) fn prints(subject: Subject<'_>, values: &Values<'_>, expectation: &Expectation) -> Vec<(u64, Print)> {
    let mut prints = Vec::new();
    for observed in expectation.observed() {
        let mut last: Option<Print> = None;
        for found in values.found(observed.buffer, bytes(subject, expectation, observed)) {
            // The cuts between runs depend on their writers; the contents must not.
            if last != Some(found.print) {
                prints.push((found.start, found.print));
            }
            let elements = found.end.div_ceil(expectation.element()) - found.start / expectation.element();
            last = Some(found.print.shifted(if found.flat { 0 } else { elements as i64 }));
        }
    }
    prints
}

/// The bytes of an observation that its buffer has.
fn bytes(subject: Subject<'_>, expectation: &Expectation, observed: &Observed) -> Range<u64> {
    let size = subject.program.buffers[observed.buffer.0 as usize].bytes;
    let at = |element: u64| element.saturating_mul(expectation.element()).min(size);
    at(observed.elements.start)..at(observed.elements.end)
}

pub(crate) fn compare(subject: Subject<'_>, values: &Values<'_>, expectation: &Expectation) -> RunResult {
    let sets: Vec<Print> = expectation
        .sets()
        .map(|set| set.iter().fold(Print::default(), |sum, &contribution| sum.plus(values::print(contribution))))
        .collect();
    let prints = prints(subject, values, expectation);
    let mut result = RunResult { prints, wrong: Vec::new(), undecided: Vec::new() };
    let mut groups: Vec<Group> = Vec::new();
    let (mut wrong, mut runs, mut total) = (0, 0, 0);
    for observed in expectation.observed() {
        let unit = expectation.element();
        let size = subject.program.buffers[observed.buffer.0 as usize].bytes;
        total += observed.elements.end - observed.elements.start;
        let Some(set) = observed.set else { continue };
        let mut note = |elements: Range<u64>, why: String, writer| {
            wrong += elements.end - elements.start;
            runs += 1;
            let here = Observed { elements, ..observed.clone() };
            match groups.last_mut() {
                Some(group) if group.extends_to(&here, &why) => group.first.elements.end = here.elements.end,
                _ if runs <= EXPLAINED => groups.push(Group { first: here, why, writer }),
                _ => {}
            }
        };
        for found in values.found(observed.buffer, bytes(subject, expectation, observed)) {
            let elements = found.start / unit..found.end.div_ceil(unit);
            let further = elements.start - observed.elements.start;
            let right = found.unit == unit && found.print == sets[set.index()].shifted(further as i64);
            if right {
                continue;
            }
            if let Some(step) = found.function {
                if !result.undecided.contains(&step) && result.undecided.len() < LISTED {
                    result.undecided.push(step);
                }
                continue;
            }
            let wanted = expectation.contributions(set);
            if let Some(why) = explain(&values.contents(&found), wanted, further, expectation.is_idempotent()) {
                note(elements, why, found.writer);
            }
        }
        if observed.elements.end.saturating_mul(unit) > size {
            let start = observed.elements.start.max(size / unit);
            note(start..observed.elements.end, "the buffer ends before it".into(), None);
        }
    }
    let report = |g: &Group| report(subject, expectation, g);
    result.wrong = groups.iter().take(LISTED).map(report).collect();
    if let Some(first) = result.wrong.first_mut() {
        let _ = write!(first.message, " ({wrong} of {total} elements are wrong)");
    }
    result
}

impl Group {
    fn extends_to(&self, next: &Observed, why: &str) -> bool {
        let follows = self.first.elements.end == next.elements.start;
        follows && self.first.rank == next.rank && self.first.buffer == next.buffer && self.why == why
    }
}

fn report(subject: Subject<'_>, expectation: &Expectation, group: &Group) -> Diagnostic {
    let Observed { rank, buffer, elements, .. } = &group.first;
    let buffer = expectation.buffer_name(*buffer);
    let what = format!("rank {rank}, elements [{}, {}) of {buffer}: {}", elements.start, elements.end, group.why);
    let finding = Diagnostic::new("AHBM-V401", what);
    match &group.writer {
        Some(step) => finding.site(
            format!("last written by {}", subject.describe(step)),
            subject.launch(step.call).origin_text(step.agent, step.op as usize),
        ),
        None => finding.hint("nothing wrote the first of these elements"),
    }
}

/// `rank 6 missing; rank 1 twice`, nothing when all is well. Contributions are named by rank alone unless their
/// index is a foreign one.
fn explain(found: &Contents, expected: &[Contribution], further: u64, idempotent: bool) -> Option<String> {
    let mut balance: BTreeMap<Contribution, (u64, u64)> = BTreeMap::new();
    for &(rank, index) in expected {
        balance.entry((rank, index.wrapping_add(further))).or_default().0 += 1;
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
        } else if there != wanted && !idempotent {
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
    if parts.is_empty() && !idempotent {
        parts.push("elements of another size".into());
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn list(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
