//! All-gather and broadcast at the bandwidth of the tightest cut: spanning trees directed away from their roots are
//! packed into the links' capacities (Edmonds; Bang-Jensen, Frank, Jackson 1995; as in ForestColl, 2024).
//!
//! With the certificate `capacity / shares = q / p` in lowest terms and `d` the greatest common divisor of `q` and all
//! capacities, every root has `q / d` trees, and a link of capacity `c` has room for `p c / d` of them.

use crate::bound::bound;
use crate::flow::Flow;
use crate::graph::gcd;
use crate::list::arrange;
use crate::method::{Method, Task};
use crate::request::{Request, Synthesis, refuse};
use crate::schedule::{Schedule, Transfer, split};
use crate::{Collective, Cut, Graph};
use ahbm_engine::interrupt::spend;
use ahbm_findings::Diagnostic;

/// Most links that maximum flows run over: one flow over all links for every link of a tree of every root.
const WORK: u64 = 1 << 24;
/// The same for `auto`.
const AUTO: u64 = 1 << 18;
/// Most trees of a root, and transfers (as far as pieces are free to choose).
const TREES: u64 = 64;
const TRANSFERS: u64 = 200_000;
const PIECES: u64 = 512;

/// The method.
pub(crate) struct Arborescences;

impl Method for Arborescences {
    fn name(&self) -> &'static str {
        "arborescences"
    }

    fn about(&self) -> &'static str {
        "Directed trees from every root are packed so that no link carries more than the tight cut demands, in pieces."
    }

    fn applies(&self, request: &Request, graph: &Graph) -> Result<(), Diagnostic> {
        use Collective::{AllGather, Broadcast, Reduce, ReduceScatter};
        let no = |why| Err(refuse(self.name(), request.collective, why));
        if !matches!(request.collective, AllGather | Broadcast | Reduce | ReduceScatter) {
            return no("they carry one NPU's chunks to all");
        }
        let n = u64::from(graph.nodes());
        let work = n * n * graph.links().len() as u64;
        if (request.group(graph).len() as u64) < n || work > WORK {
            return no("the exact packing is for whole networks of about 128 NPUs, 64 at a switch");
        }
        if request.method == "auto" && work > AUTO {
            return no("on so large a network the packing takes long: it is worth it only when asked for");
        }
        Ok(())
    }

    fn find(&self, task: &Task<'_>) -> Result<Synthesis, Diagnostic> {
        let pack = |graph: &Graph, base| arborescences(graph, task.request, base, &task.limit.cut);
        Ok(task.found(task.outwards(self, pack)?))
    }
}

/// Equal trees in the making, or made.
#[derive(Debug, Clone)]
struct Batch {
    root: u32,
    count: u64,
    /// From the root outwards.
    links: Vec<u32>,
    /// Nodes reached, in order, and per node its distance from the root; `u32::MAX` where it is not reached.
    nodes: Vec<u32>,
    depth: Vec<u32>,
}

/// Packs `count` trees of every root into links that have room for so many. `None` when they do not fit, which a
/// certificate excludes.
///
/// A link is added to as many trees of a batch as leave every cut enough room for the trees that have yet to cross it;
/// the others are split off.
fn pack(graph: &Graph, roots: &[u32], count: u64, mut room: Vec<u64>) -> Option<Vec<Batch>> {
    let n = graph.nodes() as usize;
    let begun = |&root: &u32| {
        let mut depth = vec![u32::MAX; n];
        depth[root as usize] = 0;
        Batch { root, count, links: Vec::new(), nodes: vec![root], depth }
    };
    let mut pending: Vec<Batch> = roots.iter().rev().map(begun).collect();
    let mut done = Vec::new();
    while let Some(mut batch) = pending.pop() {
        // A link that is too full now stays too full: room only shrinks.
        let mut full = vec![false; graph.links().len()];
        let mut at = 0;
        while batch.nodes.len() < n {
            spend(16);
            let node = *batch.nodes.get(at)?;
            let open = |&&l: &&u32| !full[l as usize] && batch.depth[graph.link(l).to as usize] == u32::MAX;
            let Some(&link) = graph.out(node).iter().filter(open).max_by_key(|&&l| room[l as usize]) else {
                at += 1;
                continue;
            };
            let fits = slack(graph, &room, &pending, link, room[link as usize].min(batch.count));
            if fits == 0 {
                full[link as usize] = true;
                continue;
            }
            if fits < batch.count {
                pending.push(Batch { count: batch.count - fits, ..batch.clone() });
                batch.count = fits;
            }
            room[link as usize] -= fits;
            let to = graph.link(link).to;
            batch.depth[to as usize] = batch.depth[node as usize] + 1;
            batch.nodes.push(to);
            batch.links.push(link);
        }
        done.push(batch);
    }
    Some(done)
}

/// How many trees, `most` at most, `link` can be added to so that the `others` still fit: the maximum flow between its
/// ends, helped by what the others bring to the nodes they have reached, less what they need.
fn slack(graph: &Graph, room: &[u64], others: &[Batch], link: u32, most: u64) -> u64 {
    let ends = graph.link(link);
    let mut flow = Flow::new(graph.nodes() as usize + others.len());
    for (index, link) in graph.links().iter().enumerate().filter(|l| room[l.0] > 0) {
        flow.arc(link.from, link.to, room[index] as i64);
    }
    let mut needed = 0;
    for (index, other) in others.iter().enumerate() {
        spend(8 * other.nodes.len() as u64);
        needed += other.count;
        let helper = graph.nodes() + index as u32;
        flow.arc(ends.from, helper, other.count as i64);
        for &node in &other.nodes {
            flow.arc(helper, node, i64::MAX / 4);
        }
    }
    (flow.run(ends.from, ends.to, (needed + most) as i64) as u64).saturating_sub(needed)
}

/// The schedule of `base`, an all-gather or a broadcast whose certificate is `cut`; pieces of the trees follow each
/// other without a pause.
fn arborescences(ports: &Graph, request: &Request, base: Schedule, cut: &Cut) -> Result<Schedule, Diagnostic> {
    let no = |why| refuse(base.method, request.collective, why);
    // Packed are direct links; the transfers over them take turns at the ports.
    let direct = ports.split();
    let graph = direct.as_ref();
    let of_direct;
    let mut cut = cut;
    if ports.switch().is_some() {
        of_direct = bound(graph, base.collective, request.share_bytes, base.root).cut;
        cut = &of_direct;
    }
    let links = 0..graph.links().len() as u32;
    let divisor = gcd(cut.capacity, cut.demand);
    let (q, p) = (cut.capacity / divisor, cut.demand / divisor);
    let common = links.clone().fold(q, |d, l| gcd(d, graph.capacity(l)));
    let count = q / common;
    let roots = if base.collective == Collective::Broadcast { vec![base.root] } else { base.members.clone() };
    let units = request.share_bytes / request.unit;
    if count > TREES || count > units {
        return Err(no("bandwidths are so uneven that the trees carry too little each"));
    }
    let room = links.map(|l| p * graph.capacity(l) / common).collect();
    let batches = pack(graph, &roots, count, room).ok_or_else(|| no("the trees of the certificate do not fit"))?;

    let edges = roots.len() as u64 * count * u64::from(graph.nodes() - 1);
    let latency = graph.links().iter().map(|l| l.latency_ps).max().unwrap_or(0).max(1);
    let busy = graph.links().iter().map(|l| l.rate.ps(request.share_bytes / count)).max().unwrap_or(0);
    // Pieces far shorter than the latency gain nothing.
    let pieces = (4 * busy / latency).clamp(1, PIECES).min((TRANSFERS / edges).max(1)).min(units / count) as u32;
    let jobs = jobs(graph, &batches, (roots.len() > 1).then_some(count as u32), pieces);
    let chunk_bytes = split(request.share_bytes, count as u32 * pieces, request.unit);
    let piece = |piece| jobs.iter().map(move |&(_, chunk, link)| Transfer::copy(link, chunk + piece));
    let transfers = (0..pieces).flat_map(piece).collect();
    Ok(arrange(ports, Schedule { chunk_bytes, transfers, ..base }))
}

/// Every edge of every tree as (links below, chunk of the first piece, link): longest ways come first. `trees` is how
/// many of them each root has, where every root has a share.
fn jobs(graph: &Graph, batches: &[Batch], trees: Option<u32>, pieces: u32) -> Vec<(u32, u32, u32)> {
    let n = graph.nodes() as usize;
    let mut jobs = Vec::new();
    let mut made = vec![0; n];
    for batch in batches {
        let mut below = vec![0u32; n];
        for &link in batch.links.iter().rev() {
            let ends = graph.link(link);
            below[ends.from as usize] = below[ends.from as usize].max(below[ends.to as usize] + 1);
        }
        let first = trees.map_or(0, |trees| batch.root * trees);
        for _ in 0..batch.count {
            let chunk = (first + made[batch.root as usize]) * pieces;
            made[batch.root as usize] += 1;
            jobs.extend(batch.links.iter().map(|&l| (below[graph.link(l).to as usize], chunk, l)));
        }
    }
    jobs.sort_by_key(|&(below, ..)| std::cmp::Reverse(below));
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::grid;
    use crate::synthesize;

    #[test]
    fn packings_attain_the_certificate() {
        let rate = |gbs| ahbm_machine::Rate::from_gbs(gbs).unwrap();
        let uneven = [(0, 1, 50.0), (1, 2, 25.0), (2, 3, 50.0), (3, 4, 25.0), (4, 0, 75.0), (1, 3, 25.0)];
        let both = uneven.iter().flat_map(|&(a, b, gbs)| [(a, b, gbs), (b, a, gbs)]);
        let links =
            both.map(|(from, to, gbs)| crate::Link { from, to, rate: rate(gbs), latency_ps: 500_000 }).collect();
        let graphs = [
            grid(&[4, 4], false),
            grid(&[5, 3], false),
            grid(&[4, 4], true),
            grid(&[3, 3, 2], false),
            Graph::new(5, links).unwrap(),
        ];
        for graph in graphs {
            for collective in
                [Collective::AllGather, Collective::ReduceScatter, Collective::Broadcast, Collective::Reduce]
            {
                let request = Request {
                    collective,
                    share_bytes: 16 << 20,
                    chunks: 1,
                    unit: 4,
                    members: Vec::new(),
                    root: 1,
                    method: "arborescences".into(),
                    seed: 0,
                };
                let limit = bound(&graph, collective, request.share_bytes, 1);
                let found = synthesize(&graph, &request, &limit).unwrap();
                found.schedule.check(&graph).unwrap();
                // The busiest link carries no more than the cut asks for.
                let mut load = vec![0u64; graph.links().len()];
                for transfer in &found.schedule.transfers {
                    load[transfer.link as usize] += found.schedule.bytes(transfer.chunk());
                }
                let ps = |l: usize| graph.link(l as u32).rate.ps(load[l]);
                let busiest = (0..load.len()).map(ps).max().unwrap();
                let allowed = limit.bandwidth_ps - graph.min_latency_ps();
                assert!(busiest as f64 <= allowed as f64 * 1.001, "{collective:?}: {busiest} {allowed}");
                let percent = 100.0 * limit.ps as f64 / found.time_ps as f64;
                assert!(percent > 90.0, "{} NPUs, {collective:?}: {percent} %", graph.nodes());
            }
        }
    }
}
