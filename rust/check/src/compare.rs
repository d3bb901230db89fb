//! Results against expectations: which contributions are missing, doubled or foreign.

use crate::nodes::{By, Contents};
use crate::print::Print;
use crate::support::{Step, Subject};
use crate::values::{self, Found, Values};
use ahbm_findings::Diagnostic;
use ahbm_plan::{Contribution, Expectation, Held, Observed, Reduced};
use ahbm_program::{BinaryFn, BufferId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;

/// Wrong runs of elements that are explained; the rest is counted.
const EXPLAINED: usize = 256;
/// A factor that differs by no more is the same: it was put together of several.
const EXACT: f64 = 1e-9;
/// A factor that differs by more is no rounding of the right one, in any type.
const ROUNDED: f64 = 0.25;
/// Findings listed.
const LISTED: usize = 8;
/// Ranks named in a list before it only counts the rest.
const NAMED: usize = 6;

/// What every rank has before a call and must have after it.
pub(crate) struct Terms<'e> {
    pub(crate) expectation: &'e Expectation,
    /// Prints of the sets, of the first call's contributions.
    sets: Vec<Print>,
    /// By the rank that owns the memory: its operands, and what is looked at when its call ends.
    operands: BTreeMap<u32, Vec<&'e Held>>,
    results: BTreeMap<u32, Vec<&'e Observed>>,
    /// Elements looked at after a call, of all ranks.
    total: u64,
}

impl<'e> Terms<'e> {
    pub(crate) fn new(expectation: &'e Expectation) -> Self {
        let print = |set: &[Contribution]| {
            set.iter().fold(Print::default(), |sum, &contribution| sum.plus(values::print(contribution)))
        };
        let mut terms = Self {
            expectation,
            sets: expectation.sets().map(print).collect(),
            operands: BTreeMap::new(),
            results: BTreeMap::new(),
            total: expectation.observed().iter().map(|o| o.elements.end - o.elements.start).sum(),
        };
        for held in expectation.initial() {
            let owner = expectation.owner(held.buffer).unwrap_or(held.first.0);
            terms.operands.entry(owner).or_default().push(held);
        }
        for observed in expectation.observed() {
            let owner = expectation.owner(observed.buffer).unwrap_or(observed.rank);
            terms.results.entry(owner).or_default().push(observed);
        }
        terms
    }

    /// The operands of a rank.
    pub(crate) fn operands(&self, rank: u32) -> impl Iterator<Item = &'e Held> + '_ {
        self.operands.get(&rank).into_iter().flatten().copied()
    }

    fn results(&self, rank: u32) -> impl Iterator<Item = &'e Observed> + '_ {
        self.results.get(&rank).into_iter().flatten().copied()
    }

    /// Every rank that has memory of its own.
    pub(crate) fn ranks(&self) -> BTreeSet<u32> {
        self.operands.keys().chain(self.results.keys()).copied().collect()
    }

    /// Per rank and buffer, the bytes that are its operands and results.
    pub(crate) fn memory(&self) -> impl Iterator<Item = (u32, BufferId, Range<u64>)> + '_ {
        let operands =
            self.operands.iter().flat_map(|(&rank, list)| list.iter().map(move |h| (rank, h.buffer, &h.elements)));
        let results =
            self.results.iter().flat_map(|(&rank, list)| list.iter().map(move |o| (rank, o.buffer, &o.elements)));
        let unit = self.expectation.element();
        operands.chain(results).map(move |(rank, buffer, elements)| {
            (rank, buffer, elements.start.saturating_mul(unit)..elements.end.saturating_mul(unit))
        })
    }
}

/// How a run came out: the results that ranks found when their calls ended.
#[derive(Default)]
pub(crate) struct RunResult {
    /// By call and rank, the observed prints, each with its place. Equal results are equal lists.
    pub(crate) prints: BTreeMap<(u32, u32), Vec<(u64, Print)>>,
    /// Operations that contributions cannot follow and that elements depend on whose contents is expected.
    pub(crate) undecided: Vec<Step>,
    groups: Vec<Group>,
    /// By call, wrong elements and the ranks that have them.
    wrong: BTreeMap<u32, (u64, BTreeSet<u32>)>,
    runs: usize,
    mixes_calls: bool,
    /// The function that the first expected element was reduced with.
    by: Option<BinaryFn>,
}

/// A run of neighbouring elements that are wrong in the same way.
struct Group {
    call: u32,
    first: Observed,
    fault: Fault,
}

/// Why an element is wrong.
struct Fault {
    why: String,
    writer: Option<Step>,
    /// Where it lost bits, if its contributions are right.
    cast: Option<Step>,
}

/// The bytes of an observation that its buffer has.
fn bytes(subject: Subject<'_>, expectation: &Expectation, observed: &Observed) -> Range<u64> {
    let size = subject.program.buffers[observed.buffer.0 as usize].bytes;
    let at = |element: u64| element.saturating_mul(expectation.element()).min(size);
    at(observed.elements.start)..at(observed.elements.end)
}

impl RunResult {
    /// The first call that some rank ended with a wrong result.
    pub(crate) fn first_wrong(&self) -> Option<u32> {
        self.wrong.keys().next().copied()
    }

    /// True when contributions of another call went into a wrong element.
    pub(crate) fn mixes_calls(&self) -> bool {
        self.mixes_calls
    }

    /// The prints of one call.
    pub(crate) fn of_call(&self, call: u32) -> impl Iterator<Item = (&(u32, u32), &Vec<(u64, Print)>)> {
        self.prints.range((call, 0)..=(call, u32::MAX))
    }

    /// Looks at the results of `rank`, whose `call` ends.
    pub(crate) fn look(&mut self, subject: Subject<'_>, values: &Values<'_>, terms: &Terms<'_>, rank: u32, call: u32) {
        let expectation = terms.expectation;
        let unit = expectation.element();
        let mut prints = Vec::new();
        for observed in terms.results(rank) {
            let size = subject.program.buffers[observed.buffer.0 as usize].bytes;
            let mut last: Option<Print> = None;
            for found in values.found(observed.buffer, bytes(subject, expectation, observed)) {
                let elements = found.start / unit..found.end.div_ceil(unit);
                // The cuts between runs depend on their writers; the contents must not.
                if last != Some(found.print) {
                    prints.push((found.start, found.print));
                }
                let count = elements.end - elements.start;
                last = Some(found.print.shifted(if found.flat { 0 } else { count as i64 }));
                let Some(set) = observed.set else { continue };
                let further = elements.start - observed.elements.start;
                let wanted = terms.sets[set.index()].of_call(call).shifted(further as i64);
                let why = if found.unit == unit && found.print == wanted {
                    None
                } else if let Some(step) = found.function {
                    self.open(step);
                    continue;
                } else {
                    self.mixes_calls |= values.mixes(&found, call);
                    if !expectation.is_idempotent() && !self.explains(observed, &elements, call) {
                        self.count(observed, &elements, call);
                        continue;
                    }
                    let (contents, wanted) = (values.contents(&found), expectation.contributions(set));
                    explain(&contents, wanted, call, further, expectation.is_idempotent())
                };
                let why = why.or_else(|| self.mixed(found.by, expectation.reduction()));
                let scaled = expectation.reduction().and_then(|reduction| scaled(&found, reduction.factor));
                if let (None, Some((None, step))) = (&why, &scaled) {
                    self.open(*step);
                    continue;
                }
                if let Some(why) = why.or_else(|| scaled.and_then(|(why, _)| why)) {
                    self.note(observed, elements, call, Fault { why, writer: found.writer, cast: None });
                } else if let Some((cast, dtype)) = found.narrowed.zip(expectation.dtype()) {
                    let why = format!("cast on the way to a type narrower than {dtype}");
                    self.note(observed, elements, call, Fault { why, writer: found.writer, cast: Some(cast) });
                }
            }
            if observed.set.is_some() && observed.elements.end.saturating_mul(unit) > size {
                let start = observed.elements.start.max(size / unit);
                let fault = Fault { why: "the buffer ends before it".into(), writer: None, cast: None };
                self.note(observed, start..observed.elements.end, call, fault);
            }
        }
        self.prints.insert((call, rank), prints);
    }

    /// Notes what keeps an element from being decided.
    fn open(&mut self, step: Step) {
        if !self.undecided.contains(&step) && self.undecided.len() < LISTED {
            self.undecided.push(step);
        }
    }

    /// Why right contributions were reduced wrongly: everybody reduces with one function, that of the request where it
    /// is known.
    fn mixed(&mut self, by: By, wanted: Option<Reduced>) -> Option<String> {
        let name = |f: BinaryFn| format!("{f:?}").to_lowercase();
        match by {
            By::Nothing => None,
            By::Several => Some("reduced with more than one function".into()),
            By::One(f) => {
                if let Some(asked) = wanted.and_then(|reduction| reduction.function).filter(|&asked| asked != f) {
                    return Some(format!("reduced with {}, asked for is {}", name(f), name(asked)));
                }
                let first = *self.by.get_or_insert(f);
                (first != f).then(|| format!("reduced with {}, other elements with {}", name(f), name(first)))
            }
        }
    }

    fn count(&mut self, observed: &Observed, elements: &Range<u64>, call: u32) {
        let (wrong, ranks) = self.wrong.entry(call).or_default();
        *wrong += elements.end - elements.start;
        ranks.insert(observed.rank);
        self.runs += 1;
    }

    /// Whether a wrong run may be told of: it is among the first few, or may continue the last of these.
    fn explains(&self, observed: &Observed, elements: &Range<u64>, call: u32) -> bool {
        self.runs < EXPLAINED || self.groups.last().is_some_and(|group| group.is_before(observed, elements, call))
    }

    fn note(&mut self, observed: &Observed, elements: Range<u64>, call: u32, fault: Fault) {
        self.count(observed, &elements, call);
        let first = Observed { elements, ..observed.clone() };
        let here = Group { call, first, fault };
        match self.groups.last_mut() {
            Some(group) if group.extends_to(&here) => group.first.elements.end = here.first.elements.end,
            _ if self.runs <= EXPLAINED => self.groups.push(here),
            _ => {}
        }
    }

    /// The faults of the first call that has any.
    pub(crate) fn report(&self, subject: Subject<'_>, terms: &Terms<'_>) -> Vec<Diagnostic> {
        let Some(call) = self.first_wrong() else { return Vec::new() };
        let mut groups: Vec<&Group> = self.groups.iter().filter(|group| group.call == call).collect();
        groups.sort_by_key(|group| group.first.rank);
        let mut found: Vec<Diagnostic> =
            groups.iter().take(LISTED).map(|group| report(subject, terms.expectation, group)).collect();
        if let Some(first) = found.first_mut() {
            let (wrong, ranks) = &self.wrong[&call];
            let listed: BTreeSet<u32> = groups.iter().take(LISTED).map(|group| group.first.rank).collect();
            let on = match ranks.len() {
                1 => "1 rank".into(),
                many if many == listed.len() => format!("{many} ranks"),
                many => format!("{many} ranks, {} of which are listed", listed.len()),
            };
            let _ = write!(first.message, " ({wrong} of {} elements are wrong, on {on})", terms.total);
        }
        found
    }
}

/// Whether right contributions were scaled by something else than `wanted`, and where: why that is wrong, or nothing
/// where only numbers tell.
fn scaled(found: &Found, wanted: f64) -> Option<(Option<String>, Step)> {
    let factor = found.scale.factor();
    // An average of one contribution, or one that nobody divides: no step, and still another factor.
    let step = found.scale.step.or(found.writer)?;
    let off = (factor / wanted - 1.0).abs();
    if off <= EXACT {
        None
    } else if off > ROUNDED {
        let why = format!("every contribution is there, times {factor} in place of {wanted}");
        Some((Some(why), step))
    } else {
        Some((None, step))
    }
}

impl Group {
    fn is_before(&self, observed: &Observed, elements: &Range<u64>, call: u32) -> bool {
        let follows = self.call == call && self.first.elements.end == elements.start;
        follows && self.first.rank == observed.rank && self.first.buffer == observed.buffer
    }

    fn extends_to(&self, next: &Self) -> bool {
        let follows = self.call == next.call && self.first.elements.end == next.first.elements.start;
        follows
            && self.first.rank == next.first.rank
            && self.first.buffer == next.first.buffer
            && self.fault.extends_to(&next.fault)
    }
}

impl Fault {
    fn extends_to(&self, next: &Self) -> bool {
        self.why == next.why && self.cast == next.cast
    }
}

fn report(subject: Subject<'_>, expectation: &Expectation, group: &Group) -> Diagnostic {
    let Observed { rank, buffer, elements, .. } = &group.first;
    let buffer = expectation.buffer_name(*buffer);
    let when = if group.call > 0 { format!("call {}: ", group.call + 1) } else { String::new() };
    let what =
        format!("{when}rank {rank}, elements [{}, {}) of {buffer}: {}", elements.start, elements.end, group.fault.why);
    let mut finding = Diagnostic::new("AHBM-V401", what);
    finding = match &group.fault.cast {
        Some(cast) => {
            subject.site(finding, cast).hint("leave the cast out, cast to a wider type, or ask for the narrower type")
        }
        None => finding.hint("`ahbm inspect` with --element RANK:INDEX shows what an element was made of"),
    };
    match &group.fault.writer {
        Some(step) => finding.site(
            format!("last written by {}", subject.describe(step)),
            subject.launch(step.call).origin_text(step.agent, step.op as usize),
        ),
        None => finding.hint("nothing wrote the first of these elements"),
    }
}

/// `rank 6 missing; rank 1 twice`, nothing when all is well. Contributions are named by rank alone unless their
/// index is a foreign one.
fn explain(found: &Contents, expected: &[Contribution], call: u32, further: u64, idempotent: bool) -> Option<String> {
    let mut balance: BTreeMap<Contribution, (u64, u64)> = BTreeMap::new();
    for &(rank, index) in expected {
        balance.entry((rank, index.wrapping_add(further))).or_default().0 += 1;
    }
    // Names are made of those alone that are told.
    let mut missing: Vec<u32> = Vec::new();
    let mut often: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let mut foreign: Vec<Contribution> = Vec::new();
    let mut stale: BTreeSet<(u32, u32)> = BTreeSet::new();
    for (&(of, contribution), &times) in &found.counts {
        if of == call {
            balance.entry(contribution).or_default().1 = times;
        } else {
            stale.insert((of, contribution.0));
        }
    }
    for (&(rank, index), &(wanted, there)) in &balance {
        if wanted == 0 {
            foreign.push((rank, index));
        } else if there == 0 {
            missing.push(rank);
        } else if there != wanted && !idempotent {
            often.entry(there).or_default().push(rank);
        }
    }
    let mut parts = Vec::new();
    if !missing.is_empty() {
        let arrived: Vec<u32> = balance
            .iter()
            .filter(|(_, (wanted, there))| *wanted > 0 && there == wanted)
            .map(|((rank, _), _)| *rank)
            .collect();
        // The shorter of the two lists.
        parts.push(match arrived.len() {
            0 if missing.len() > 1 && stale.is_empty() && often.is_empty() && foreign.is_empty() => {
                "nothing arrived".into()
            }
            n @ 1..=2 if n < missing.len() => {
                format!("only {} arrived", list(&arrived, |rank| format!("rank {rank}")))
            }
            _ => format!("{} missing", list(&missing, |rank| format!("rank {rank}"))),
        });
    }
    for (times, ranks) in &often {
        let times = if *times == 2 { "twice".into() } else { format!("{times} times") };
        parts.push(format!("{} {times}", list(ranks, |rank| format!("rank {rank}"))));
    }
    let stale: Vec<(u32, u32)> = stale.into_iter().collect();
    if !stale.is_empty() {
        parts.push(format!("{} instead", list(&stale, |(of, rank)| format!("rank {rank}'s of call {}", of + 1))));
    }
    if !foreign.is_empty() {
        parts.push(format!("{} foreign", list(&foreign, |(rank, index)| format!("element {index} of rank {rank}"))));
    }
    if found.undefined {
        parts.push("memory that nobody wrote went into it".into());
    }
    if parts.is_empty() && !idempotent {
        parts.push("elements of another size".into());
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn list<T: Copy>(all: &[T], name: impl Fn(T) -> String) -> String {
    let shown = all.iter().take(NAMED).map(|&one| name(one)).collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
