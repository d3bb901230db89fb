//! Proof by numbers: a verdict on contributions, confirmed by a run with times and data.
//!
//! Every contribution becomes a number, the program runs on a machine as any other, and every expected element is
//! compared with its definition. Integers wrap, so sums and products are exact in any order.

use crate::{Outcome, Verdict, values};
use ahbm_emulator::{Memory, Options, replay, simulate};
use ahbm_findings::{Diagnostic, codes};
use ahbm_machine::{Machine, Ps};
use ahbm_plan::{Contribution, Expectation};
use ahbm_program::{BinaryFn, Dtype, Math, OpKind, Program};

/// The result of a run with numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// Elements that were compared.
    pub elements: u64,
    /// Time of the run on the machine it ran on.
    pub time_ps: Ps,
}

/// Elements that contributions stand for.
const ELEMENT: Dtype = Dtype::I64;

impl Verdict {
    /// Confirms a correct verdict by a run with numbers on the machine that `machine` makes; any other verdict stays as
    /// it is.
    ///
    /// | code | finding |
    /// |---|---|
    /// | `AHBM-V408` | contributions and numbers disagree, a defect of this program: the verdict becomes wrong |
    /// | `AHBM-V409` | no run with numbers was possible (a warning) |
    #[must_use]
    pub fn proven(
        mut self,
        program: &Program,
        expectation: &Expectation,
        machine: impl FnOnce() -> Result<Machine, Vec<Diagnostic>>,
    ) -> Self {
        if self.outcome != Outcome::Correct {
            return self;
        }
        let found = match (machine(), reduction(program)) {
            (Ok(machine), Some(function)) => prove(program, expectation, &machine, function),
            (Err(mut findings), _) => Err(skipped(&findings.swap_remove(0).message)),
            (_, None) => Err(skipped("it reduces with more than one function, or not in 64-bit integers")),
        };
        match found {
            Ok(proof) => self.proof = Some(proof),
            Err(finding) => {
                if finding.code == codes::CHECKS_DISAGREE {
                    self.outcome = Outcome::Wrong;
                }
                self.findings.insert(0, finding);
            }
        }
        self
    }
}

fn skipped(why: &str) -> Diagnostic {
    Diagnostic::new("AHBM-V409", format!("not confirmed by a run with numbers: {why}"))
        .hint("the verdict rests on contributions alone")
}

fn disagree(why: &str) -> Diagnostic {
    Diagnostic::new(codes::CHECKS_DISAGREE, format!("by contributions this is correct, by numbers it is not: {why}"))
        .hint("one of the two checks is broken; please report it with this file")
}

/// The function by which the program reduces, when its elements are numbers for which that is exact.
fn reduction(program: &Program) -> Option<BinaryFn> {
    let mut found = None;
    for body in &program.bodies {
        if body.tiles.iter().any(|tile| tile.dtype != ELEMENT) {
            return None;
        }
        for op in &body.ops {
            if let OpKind::Math(Math::Binary { f, .. }) = op.kind
                && *found.get_or_insert(f) != f
            {
                return None;
            }
        }
    }
    Some(found.unwrap_or(BinaryFn::Add))
}

/// A contribution as a number: positive, so that empty memory is not the largest; odd, so that products do not vanish.
fn number(contribution: Contribution) -> i64 {
    (values::print(contribution).words()[0] << 1 >> 1 | 1) as i64
}

fn reduce(function: BinaryFn, contributions: &[Contribution], further: u64) -> i64 {
    let join = match function {
        BinaryFn::Mul => i64::wrapping_mul,
        BinaryFn::Max => i64::max,
        BinaryFn::Min => i64::min,
        _ => i64::wrapping_add,
    };
    contributions.iter().map(|&(rank, index)| number((rank, index + further))).reduce(join).unwrap_or(0)
}

fn prove(
    program: &Program,
    expectation: &Expectation,
    machine: &Machine,
    function: BinaryFn,
) -> Result<Proof, Diagnostic> {
    let told = |error: Diagnostic| match error.family() == codes::BUDGET {
        true => skipped(&error.message),
        false => error.sites.iter().fold(disagree(&error.message), |d, s| d.site(s.label.clone(), s.origin.clone())),
    };
    let mut memory = Memory::new(program);
    let buffers = expectation.initial().iter().map(|h| h.buffer).chain(expectation.observed().iter().map(|o| o.buffer));
    for buffer in buffers {
        memory.reserve(buffer).map_err(told)?;
    }
    let size = ELEMENT.bytes() as usize;
    for held in expectation.initial() {
        let (rank, first) = held.first;
        for (element, index) in held.elements.clone().zip(first..) {
            let at = element as usize * size;
            if let Some(element) = memory.bytes_mut(held.buffer).get_mut(at..at + size) {
                element.copy_from_slice(&number((rank, index)).to_le_bytes());
            }
        }
    }
    let timeline = simulate(program, machine, &Options::default()).map_err(told)?;
    replay(program, &timeline, &mut memory).map_err(told)?;
    let mut elements = 0;
    // Ranks that get the same result share its computation.
    let mut known: (&[Contribution], Vec<i64>) = (&[], Vec::new());
    for observed in expectation.observed() {
        let Some(set) = observed.set else { continue };
        let contributions = expectation.contributions(set);
        let count = observed.elements.end - observed.elements.start;
        if (known.0, known.1.len() as u64) != (contributions, count) {
            known = (contributions, (0..count).map(|further| reduce(function, contributions, further)).collect());
        }
        for (element, &wanted) in observed.elements.clone().zip(&known.1) {
            let at = element as usize * size;
            let found = memory.bytes(observed.buffer).get(at..at + size).and_then(|bytes| bytes.try_into().ok());
            let found = found.map(i64::from_le_bytes);
            if found != Some(wanted) {
                let (rank, buffer) = (observed.rank, expectation.buffer_name(observed.buffer));
                return Err(disagree(&format!(
                    "rank {rank}, element {element} of {buffer} is {found:?} instead of {wanted}"
                )));
            }
            elements += 1;
        }
    }
    Ok(Proof { elements, time_ps: timeline.latency })
}
