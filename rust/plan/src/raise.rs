//! Plans from programs: a captured kernel as thread blocks over the chunks of its array.
//!
//! A kernel computes in memory of its own what a plan computes in buffers. So every value gets a home: where it was
//! loaded from, where it will be stored, or scratch. A step follows for each message, for each sum, and for each store
//! of a value whose home is elsewhere.
//!
//! What survives: the messages of every queue and their order, the order of the sums of every element, and the order of
//! the operations of a kernel. Every step waits for the one before it where that is another thread block's, so a kernel
//! that stops is a plan that stops. No two messages become one step: such a step holds a slot until it has the next.
//! A posted receive has a thread block of its own, which waits for nothing but the step before it was posted.

mod queues;
mod scratch;
mod script;
mod writer;

use crate::collective::Extent;
use crate::{Budget, Collective, Goal, Limit, Plan, PlanBuilder, Space};
use ahbm_findings::Diagnostic;
use ahbm_program::{AgentId, Dtype, Locus, Origin, OriginId, Program};
use queues::Queues;
use script::Script;
use writer::Writer;

/// Findings listed.
const LISTED: usize = 8;

/// A program of kernels, and what its memory means.
#[derive(Debug, Clone, Copy)]
pub struct Captured<'a> {
    /// One agent per rank, whose only buffer is the rank's array, in place.
    pub program: &'a Program,
    /// Name of the plan.
    pub name: &'a str,
    /// The computation that the kernels perform, and its root.
    pub collective: (Collective, u32),
    /// Number of ranks.
    pub ranks: u32,
    /// Bytes of a rank's array.
    pub bytes: u64,
    /// Type of its elements.
    pub dtype: Dtype,
}

impl Plan {
    /// The plan of captured kernels that do nothing but move pieces of their arrays and add them. It works in place, on
    /// chunks of the greatest size that divides everything that the kernels touch.
    ///
    /// A plan leaves the operator of its reductions to the run: capture the kernels for a sum.
    ///
    /// # Errors
    /// `AHBM-U294` for every operation that a plan has no step for, and several agents of a rank;
    /// `AHBM-B204`, `AHBM-B206`, `AHBM-B209`, `AHBM-B211` over the budget, and those of [`Plan::verify`].
    pub fn from_program(given: &Captured<'_>, budget: &Budget) -> Result<Self, Vec<Diagnostic>> {
        let one = |finding| vec![finding];
        let program = given.program;
        budget.check(Limit::Ops, program.ops()).map_err(one)?;
        let agents = agents(given).map_err(one)?;
        let mut scripts = Vec::with_capacity(agents.len());
        let mut findings: Vec<Diagnostic> = Vec::new();
        for &agent in &agents {
            match Script::of(given, agent) {
                Ok(script) => scripts.push(script),
                Err(finding) => {
                    let told = |other: &Diagnostic| {
                        other.message == finding.message && other.sites[0].origin == finding.sites[0].origin
                    };
                    if findings.len() < LISTED && !findings.iter().any(told) {
                        findings.push(*finding);
                    }
                }
            }
        }
        if !findings.is_empty() {
            return Err(findings);
        }
        if given.bytes == 0 {
            return Err(vec![Diagnostic::new("AHBM-U294", format!("{} of no bytes has no chunks", given.name))]);
        }
        let goal = Goal::new(given.collective.0, given.collective.1);
        let relation = given.collective.0.relation(given.collective.1);
        let whole = if relation.operand == Extent::Whole { Space::Input } else { Space::Output };
        let part = if relation.is_chunked() { given.bytes / u64::from(given.ranks) } else { given.bytes };
        let chunk = scripts.iter().fold(part, |chunk, script| gcd(chunk, script.granule));
        let chunks = chunks(given, chunk, budget).map_err(one)?;
        let at = Origin { locus: Locus::Whole, ..origin(given, OriginId(0)) };
        let mut plan = PlanBuilder::new(given.name, goal, given.ranks, chunks, *budget, at).map_err(one)?;
        plan.in_place();
        let [input, output] = [relation.operand, relation.result].map(|extent| extent.of(chunks, chunks / given.ranks));
        let queues = Queues::of(program);
        for (script, &agent) in scripts.iter().zip(&agents) {
            let blocks = queues.blocks(given, agent, script, &mut plan).map_err(one)?;
            let writer = Writer::new(given, agent, script, (whole, chunk), blocks, budget);
            let scratch = writer.write(&mut plan).map_err(one)?;
            let rank = program.agents[agent.0 as usize].rank;
            plan.declare(rank, [input, output, scratch]).map_err(one)?;
        }
        plan.finish()
    }
}

/// The agents by rank.
fn agents(given: &Captured<'_>) -> Result<Vec<AgentId>, Diagnostic> {
    let mut agents: Vec<AgentId> = (0..given.program.agents.len() as u32).map(AgentId).collect();
    let rank = |agent: &AgentId| given.program.agents[agent.0 as usize].rank;
    agents.sort_by_key(rank);
    match agents.windows(2).find(|pair| rank(&pair[0]) == rank(&pair[1])) {
        None => Ok(agents),
        Some(pair) => {
            let text = format!("{} runs on several PEs of rank {}, a plan on one", given.name, rank(&pair[0]));
            Err(Diagnostic::new("AHBM-U294", text).hint("capture it for one PE per SIP"))
        }
    }
}

/// The chunks of the array.
fn chunks(given: &Captured<'_>, chunk: u64, budget: &Budget) -> Result<u32, Diagnostic> {
    let chunks = given.bytes / chunk;
    let what = format!("{} cuts {} bytes into {chunks} chunks of {chunk} bytes", given.name, given.bytes);
    let hint = "choose a size that splits evenly";
    let fits = budget.check(Limit::Cells, chunks.saturating_mul(given.ranks.into()));
    fits.map_err(|finding| finding.site(&what, ""))?;
    u32::try_from(chunks).map_err(|_| Diagnostic::new("AHBM-U294", what).hint(hint))
}

/// The place of an operation; the kernels as a whole where it is not known.
fn origin(given: &Captured<'_>, id: OriginId) -> Origin {
    let whole = || Origin { file: given.name.into(), locus: Locus::Whole };
    given.program.origins.get(id).cloned().unwrap_or_else(whole)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
