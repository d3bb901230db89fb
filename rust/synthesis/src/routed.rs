//! Collectives whose chunks have one destination each: scatter, gather and all-to-all, over shortest ways whose load
//! is balanced, longest remaining way first.

use crate::list::{Job, dispatch};
use crate::method::{Method, Task};
use crate::random::Random;
use crate::request::{Request, Synthesis, refuse};
use crate::schedule::{Schedule, Transfer};
use crate::{Collective, Graph};
use ahbm_engine::interrupt::spend;
use ahbm_findings::Diagnostic;

/// Times every way is taken back and chosen anew under the load of the others.
const PASSES: u32 = 4;

/// The method.
pub(crate) struct Routed;

impl Method for Routed {
    fn name(&self) -> &'static str {
        "routed"
    }

    fn about(&self) -> &'static str {
        "Every chunk takes a shortest way, the load of the links is balanced, and the longest remaining way goes first."
    }

    fn applies(&self, request: &Request, _: &Graph) -> Result<(), Diagnostic> {
        use Collective::{AllToAll, Gather, Scatter};
        match request.collective {
            AllToAll | Gather | Scatter => Ok(()),
            other => Err(refuse(self.name(), other, "its chunks have more than one destination; see greedy")),
        }
    }

    fn find(&self, task: &Task<'_>) -> Result<Synthesis, Diagnostic> {
        let seed = task.request.seed;
        Ok(task.found(task.outwards(self, |graph, base| Ok(route(graph, base, seed)))?))
    }
}

/// Fills in the transfers of `base`, whose chunks have one holder and one taker each.
fn route(graph: &Graph, mut base: Schedule, seed: u64) -> Schedule {
    let n = graph.nodes();
    let back = graph.reversed();
    // Per destination, links to it from every node.
    let away: Vec<Vec<u32>> = (0..n).map(|to| back.hops(to)).collect();
    let mut load = vec![0u64; graph.links().len()];
    let mut random = Random::new(seed);
    let mut chunks: Vec<u32> = (0..base.chunks()).collect();
    random.shuffle(&mut chunks);
    let mut ways: Vec<Vec<u32>> = vec![Vec::new(); chunks.len()];
    for _ in 0..PASSES {
        for &chunk in &chunks {
            let (from, to) = (base.holders(chunk)[0], base.takers(chunk)[0]);
            let way = &mut ways[chunk as usize];
            for link in way.drain(..) {
                load[link as usize] -= base.bytes(chunk);
            }
            let mut node = from;
            while node != to {
                spend(32 + 4 * graph.out(node).len() as u64);
                let nearer =
                    |&&l: &&u32| away[to as usize][graph.link(l).to as usize] < away[to as usize][node as usize];
                let busy = |l: u32| (u128::from(load[l as usize]) << 32) / u128::from(graph.capacity(l));
                let steps: Vec<u32> = graph.out(node).iter().filter(nearer).copied().collect();
                let turn = random.below(steps.len().max(1) as u32) as usize;
                let pick = steps[turn..].iter().chain(&steps[..turn]).min_by_key(|&&l| busy(l));
                let Some(&link) = pick else { break };
                load[link as usize] += base.bytes(chunk);
                way.push(link);
                node = graph.link(link).to;
            }
        }
    }
    let mut jobs = Vec::new();
    let mut last = Vec::new();
    for (chunk, way) in ways.iter().enumerate() {
        for (step, &link) in way.iter().enumerate() {
            let priority = (u64::from(u32::MAX - (way.len() - step) as u32) << 32) | u64::from(random.next() as u32);
            jobs.push(Job { transfer: Transfer::copy(link, chunk as u32), priority, waits: u32::from(step > 0) });
            last.push(step + 1 == way.len());
        }
    }
    let sizes = base.chunk_bytes.clone();
    base.transfers = dispatch(
        graph,
        jobs,
        |chunk| sizes[chunk as usize % sizes.len()],
        |job, wake| {
            if !last[job as usize] {
                wake(job + 1);
            }
        },
    );
    base
}
