//! Distances: the longest shortest way.

use super::work::Work;
use crate::Graph;
use ahbm_machine::Ps;

/// The longest shortest way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Far {
    pub(super) ps: Ps,
    pub(super) hops: u64,
    /// Every source was looked at.
    pub(super) exact: bool,
}

/// Sources that are looked at where all would take longer than is allowed.
const SAMPLE: usize = 64;

/// The longest shortest way from one of `sources` to one of `targets` (empty: all nodes).
///
/// Sources that are alike have alike distances; the first of a class stands for all.
pub(super) fn farthest(graph: &Graph, sources: &[u32], targets: &[u32], work: &mut Work) -> Far {
    let mut met = vec![false; graph.nodes() as usize];
    let mut is_first = |&&source: &&u32| !std::mem::replace(&mut met[work.alike[source as usize] as usize], true);
    let distinct: Vec<u32> = sources.iter().filter(&mut is_first).copied().collect();
    // A heap costs more than a queue.
    let each = 4 * (graph.links().len() as u64 + u64::from(graph.nodes()));
    let exact = work.take(each * distinct.len() as u64);
    let step = if exact { 1 } else { (distinct.len() / SAMPLE).max(1) };
    let mut far = Far { ps: 0, hops: 0, exact: exact || step == 1 };
    let alike = graph.uniform().then(|| graph.link(0).latency_ps);
    for &source in distinct.iter().step_by(step) {
        let hops = greatest(&graph.hops(source), targets);
        far.hops = far.hops.max(u64::from(hops));
        let ps = match alike {
            Some(latency_ps) => u64::from(hops) * latency_ps,
            None => greatest(&graph.distances_ps(source), targets),
        };
        far.ps = far.ps.max(ps);
    }
    far
}

fn greatest<T: Copy + Ord + Default>(all: &[T], targets: &[u32]) -> T {
    match targets {
        [] => all.iter().copied().max(),
        _ => targets.iter().map(|&target| all[target as usize]).max(),
    }
    .unwrap_or_default()
}
