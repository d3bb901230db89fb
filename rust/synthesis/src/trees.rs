//! All-reduce by packing spanning trees: each tree reduces its part of the buffer towards its root and broadcasts the
//! result back, so that every link of the tree is used once in each direction.

mod pipeline;
mod product;

use crate::greedy::composed;
use crate::list::dispatch;
use crate::method::{Method, Task};
use crate::random::Random;
use crate::request::{Request, Synthesis, refuse};
use crate::schedule::{Schedule, split};
use crate::translated::Translations;
use crate::{Collective, Graph};
use ahbm_engine::interrupt::spend;
use ahbm_findings::Diagnostic;
use pipeline::Pipeline;
use product::Product;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Most trees of a packing.
const TREES: u32 = 400;
/// Link visits a packing may take.
const WORK: u64 = 1_200_000;
/// Transfers of a schedule (per NPU, at least, and at most), and pieces of one tree's part.
const TRANSFERS_PER_NPU: u64 = 8_000;
const TRANSFERS: std::ops::Range<u64> = 400_000..8_200_000;
const PIECES: u64 = 512;
/// Transfers of the schedules that are compared, if there is more than one.
const COMPARED: u64 = 100_000;
/// Most pieces of a share, where every NPU has one.
const SHARED: u64 = 16;
/// Part of the bound within which nothing else is tried.
const NEAR: u64 = 20;

/// The method.
pub(crate) struct Trees;

impl Method for Trees {
    fn name(&self) -> &'static str {
        "trees"
    }

    fn about(&self) -> &'static str {
        "Spanning trees that load all links equally each carry a part of the buffer to their root and the sum back, in \
         pieces."
    }

    fn applies(&self, request: &Request, _: &Graph) -> Result<(), Diagnostic> {
        let no = |why| Err(refuse(self.name(), request.collective, why));
        match request.collective {
            Collective::AllReduce if request.members.is_empty() => Ok(()),
            Collective::AllReduce => no("spanning trees take all NPUs in"),
            _ => no("spanning trees reduce and broadcast one buffer"),
        }
    }

    fn find(&self, task: &Task<'_>) -> Result<Synthesis, Diagnostic> {
        let (graph, request, limit) = (task.graph, task.request, task.limit);
        let translations = Translations::of(graph);
        let pieces = translations.and_then(|found| translated(graph, &found, request));
        let translated = pieces.map(|pieces| task.found(composed(graph, request, self.name(), pieces)));
        if let Some(found) = translated.as_ref().filter(|found| found.time_ps <= limit.ps + limit.ps / NEAR) {
            return Ok(found.clone());
        }
        let fluid = 1000.0 * limit.cut.demand as f64 / (limit.cut.capacity as f64 * graph.unit_gbs());
        let packing = Packing::new(graph, fluid, request.seed)?;
        let packed = packing.schedule(graph, request.share_bytes, request.unit);
        Ok(translated.filter(|found| found.time_ps <= packed.time_ps).unwrap_or(packed))
    }
}

/// Most transfers of a schedule.
fn transfers(graph: &Graph) -> u64 {
    (TRANSFERS_PER_NPU * u64::from(graph.nodes())).clamp(TRANSFERS.start, TRANSFERS.end)
}

/// On networks that look the same from every NPU, the moved copies of a tree load all links alike, and every NPU is the
/// root of one: it takes in its share and gives it out. This is the number of pieces of a share that is quickest. `None`
/// for too few bytes to be shared by all.
fn translated(graph: &Graph, translations: &Translations<'_>, request: &Request) -> Option<u32> {
    let (n, link) = (u64::from(graph.nodes()), graph.link(0));
    let share = request.share_bytes / n;
    // Pieces far shorter than the latency gain nothing here, and cost messages where queues are short.
    let useful = link.rate.ps(share).saturating_mul(4).checked_div(link.latency_ps).unwrap_or(SHARED);
    let most = (share / request.unit).min(transfers(graph) / (2 * n * (n - 1))).min(useful).clamp(1, SHARED);
    let time = |pieces: &u32| {
        let chunk_bytes = split(request.share_bytes, graph.nodes() * pieces, request.unit);
        translations.spread_ps(&chunk_bytes[..*pieces as usize], request.seed)
    };
    (share >= request.unit).then(|| (1..=most as u32).min_by_key(time).unwrap_or(1))
}

/// A rooted spanning tree.
#[derive(Debug, Clone)]
pub struct Tree {
    /// Nodes from the root outwards.
    order: Vec<u32>,
    /// Per node, the link to its parent; the root has none.
    up: Vec<u32>,
    height: u32,
}

/// A fractional packing of spanning trees with equal weights.
#[derive(Debug, Clone)]
pub struct Packing {
    trees: Vec<Tree>,
    /// Per link, the link the other way.
    partner: Vec<u32>,
    /// The numbers of trees that set a record.
    prefixes: Vec<Prefix>,
}

/// The first trees of a packing.
#[derive(Debug, Clone, Copy)]
struct Prefix {
    trees: u32,
    /// Time of the busiest link per byte of a tree's part, in ps.
    busiest: f64,
    /// Greatest and mean height.
    height: f64,
    mean: f64,
}

impl Packing {
    /// Packs trees one after the other until the busiest link is near `fluid`, the bound in ps per byte of the buffer:
    /// those of a product on regular grids, else each a minimum spanning tree of the load so far.
    ///
    /// # Errors
    /// `AHBM-U405` where a link has no partner the other way.
    pub fn new(graph: &Graph, fluid: f64, seed: u64) -> Result<Self, Diagnostic> {
        let partner = graph.partners().ok_or_else(|| {
            Diagnostic::new("AHBM-U405", "trees need a link back for every link")
                .hint("use the method `greedy`, which composes reduce-scatter and all-gather")
        })?;
        let per_byte: Vec<f64> = graph.links().iter().map(|l| l.rate.ps(1 << 30) as f64 / f64::from(1 << 30)).collect();
        // By port: two NPUs at a switch share theirs with all others.
        let mut load = vec![0u32; graph.ports() as usize];
        let mut packing = Self { trees: Vec::new(), partner, prefixes: Vec::new() };
        let mut random = Random::new(seed);
        let mut product = graph.grid().filter(|_| graph.regular().is_some()).map(Product::new);
        let center = if product.is_some() { 0 } else { center(graph) };
        // Trees of a product are quickly made, and some number of them is perfect.
        let (limit, enough) = match product {
            Some(_) => (TREES, fluid * 1.0001),
            None => (u64::from(TREES).min(WORK / graph.links().len() as u64).max(1) as u32, fluid * 1.005),
        };
        let (mut best, mut height, mut heights) = (f64::INFINITY, 0, 0);
        for count in 1..=limit {
            // At a switch every NPU in turn is the root, near to all others.
            let root = if graph.switch().is_some() { (count - 1) % graph.nodes() } else { center };
            let tree = match &mut product {
                Some(product) => Tree::of(graph, &packing.partner, &product.next()),
                None => packing.grow(graph, root, &per_byte, &load, &mut random),
            };
            for &link in tree.up.iter().filter(|&&l| l != u32::MAX) {
                for way in [link, packing.partner[link as usize]] {
                    load[graph.port(way) as usize] += 1;
                }
            }
            height = height.max(tree.height);
            heights += tree.height;
            packing.trees.push(tree);
            let busy = |(link, b): (u32, &f64)| f64::from(load[graph.port(link) as usize]) * b;
            let busiest = (0..).zip(&per_byte).map(busy).fold(0.0, f64::max);
            if busiest / f64::from(count) < best {
                best = busiest / f64::from(count);
                let mean = f64::from(heights) / f64::from(count);
                packing.prefixes.push(Prefix { trees: count, busiest, height: height.into(), mean });
            }
            if best <= enough {
                break;
            }
        }
        Ok(packing)
    }

    /// Time of the busiest link per byte of the buffer, in ps.
    pub fn ps_per_byte(&self) -> f64 {
        self.prefixes.iter().map(|p| p.busiest / f64::from(p.trees)).fold(f64::INFINITY, f64::min)
    }

    /// Prim's algorithm on (load, depth).
    fn grow(&self, graph: &Graph, root: u32, per_byte: &[f64], load: &[u32], random: &mut Random) -> Tree {
        let n = graph.nodes() as usize;
        let (mut depth, mut up, mut order) = (vec![u32::MAX; n], vec![u32::MAX; n], Vec::with_capacity(n));
        let mut heap = BinaryHeap::new();
        depth[root as usize] = 0;
        let mut next = Some((root, u32::MAX));
        while let Some((node, link)) = next {
            spend(32 * graph.out(node).len() as u64);
            up[node as usize] = link;
            order.push(node);
            for &link in graph.out(node) {
                let to = graph.link(link).to;
                if depth[to as usize] == u32::MAX {
                    // Loads are compared as times, in 1/1024 ps per byte.
                    // A link of its own is as loaded as its partner, a port may be less than that of the other end.
                    let mut most = load[graph.port(link) as usize];
                    if graph.switch().is_some() {
                        most = most.max(load[to as usize]);
                    }
                    let busy = (f64::from(most + 1) * per_byte[link as usize] * 1024.0) as u64;
                    heap.push(Reverse((busy, depth[node as usize] + 1, random.next() as u32, link)));
                }
            }
            next = None;
            while let Some(Reverse((_, level, _, link))) = heap.pop() {
                let to = graph.link(link).to;
                if depth[to as usize] == u32::MAX {
                    depth[to as usize] = level;
                    next = Some((to, self.partner[link as usize]));
                    break;
                }
            }
        }
        Tree { height: depth.into_iter().max().unwrap_or(0), order, up }
    }

    /// The all-reduce of `bytes`, in whole `unit`s, over as many trees and pieces as are estimated to be quickest.
    pub fn schedule(&self, graph: &Graph, bytes: u64, unit: u64) -> Synthesis {
        let latency = graph.links().iter().map(|l| l.latency_ps).max().unwrap_or(0) as f64;
        let slowest = graph.links().iter().map(|l| l.rate.ps(1 << 20) as f64 / f64::from(1 << 20)).fold(0.0, f64::max);
        let per_tree = 2 * (u64::from(graph.nodes()) - 1);
        let budget = transfers(graph);
        let units = (bytes / unit).max(1);
        let plans = self.prefixes.iter().filter(|p| p.trees == 1 || u64::from(p.trees) <= units).map(|prefix| {
            let &Prefix { trees, busiest, height, mean } = prefix;
            let most = (budget / (per_tree * u64::from(trees))).clamp(1, PIECES);
            let part = bytes as f64 / f64::from(trees);
            // Pieces far shorter than the latency gain nothing.
            let useful = if latency > 0.0 { (4.0 * slowest * part / latency) as u64 } else { PIECES };
            // Nor do pieces whose way up and down a tree takes a two-thousandth of the time of all.
            let enough = (4000.0 * height * slowest / busiest).ceil() as u64;
            let pieces = most.min(units / u64::from(trees)).min(useful.max(1)).min(enough.max(1));
            // Equal chunks make a plan for more sizes, and cost little where almost as many do.
            let equal = |pieces: &u64| units.is_multiple_of(u64::from(trees) * pieces);
            let pieces = (pieces / 2 + 1..=pieces).rev().find(equal).unwrap_or(pieces);
            // The first piece of a tree goes all the way up and down; those of many trees fill each other's gaps.
            let hop = latency + slowest * part / pieces as f64;
            let estimate = (busiest * part + 2.0 * mean * hop).max(2.0 * height * hop);
            (estimate, trees, pieces as u32)
        });
        let mut plans: Vec<(f64, u32, u32)> = plans.collect();
        plans.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Where pieces are many, an estimate is good and trees go in turn, but at a switch, where they share all ports.
        // Where pieces are few, the schedules themselves are compared.
        let orders: &[bool] = if graph.switch().is_none() { &[true, false] } else { &[false] };
        let ways =
            plans.into_iter().flat_map(|(_, trees, pieces)| orders.iter().map(move |&order| (trees, pieces, order)));
        let mut work = 0;
        let tried = ways.take_while(|&(trees, pieces, _)| {
            let first = work == 0;
            work += per_tree * u64::from(trees * pieces);
            first || work <= COMPARED
        });
        let made = tried.map(|(trees, pieces, in_turn)| {
            let chunk_bytes = split(bytes, trees * pieces, unit);
            let trees = &self.trees[..trees as usize];
            Synthesis::of(graph, self.pipelined(graph, trees, chunk_bytes, pieces, in_turn))
        });
        made.min_by_key(|found| found.time_ps).expect("the first tree sets a record")
    }

    /// All pieces of all trees, those first that have the least time left.
    fn pipelined(&self, graph: &Graph, trees: &[Tree], chunk_bytes: Vec<u64>, pieces: u32, in_turn: bool) -> Schedule {
        let pipeline = Pipeline::new(graph, &self.partner, trees, pieces, chunk_bytes[0], in_turn);
        let transfers = if graph.switch().is_none() {
            pipeline.in_time(chunk_bytes[0])
        } else {
            let then = |job: u32, wake: &mut dyn FnMut(u32)| pipeline.then(job, wake);
            dispatch(graph, pipeline.jobs(), |chunk| chunk_bytes[chunk as usize], then)
        };
        Schedule {
            collective: Collective::AllReduce,
            method: Trees.name(),
            members: (0..graph.nodes()).collect(),
            root: 0,
            shares: 1,
            chunk_bytes,
            parcels: Vec::new(),
            transfers,
        }
    }
}

impl Tree {
    /// The tree of these pairs of neighbours, with the root in its middle.
    fn of(graph: &Graph, partner: &[u32], pairs: &[(u32, u32)]) -> Self {
        spend(64 * pairs.len() as u64);
        let mut links: Vec<Vec<u32>> = vec![Vec::new(); graph.nodes() as usize];
        for link in pairs.iter().filter_map(|&(a, b)| graph.between(a, b)) {
            links[graph.link(link).from as usize].push(link);
            links[graph.link(link).to as usize].push(partner[link as usize]);
        }
        let from = |root: u32| {
            let (mut order, mut up, mut depth) = (vec![root], vec![u32::MAX; links.len()], vec![0; links.len()]);
            let mut at = 0;
            while let Some(&node) = order.get(at) {
                at += 1;
                let back = up[node as usize];
                for &link in links[node as usize].iter().filter(|&&link| link != back) {
                    let to = graph.link(link).to;
                    up[to as usize] = partner[link as usize];
                    depth[to as usize] = depth[node as usize] + 1;
                    order.push(to);
                }
            }
            (order, up, depth)
        };
        let last = |order: &[u32]| order.last().copied().unwrap_or(0);
        // The middle of a longest way, half of it above one of its ends.
        let (order, up, depth) = from(last(&from(0).0));
        let end = last(&order);
        let mut root = end;
        for _ in 0..depth[end as usize] / 2 {
            root = graph.link(up[root as usize]).to;
        }
        let (order, up, depth) = from(root);
        Self { height: depth[last(&order) as usize], order, up }
    }

    /// Per node: links to the root, and links to the farthest node below.
    fn depths(&self, graph: &Graph) -> (Vec<u32>, Vec<u32>) {
        let (mut depth, mut below) = (vec![0; self.up.len()], vec![0; self.up.len()]);
        for &node in &self.order[1..] {
            depth[node as usize] = depth[graph.link(self.up[node as usize]).to as usize] + 1;
        }
        for &node in self.order[1..].iter().rev() {
            let parent = graph.link(self.up[node as usize]).to as usize;
            below[parent] = below[parent].max(below[node as usize] + 1);
        }
        (depth, below)
    }
}

/// The node whose farthest node is nearest, in links.
fn center(graph: &Graph) -> u32 {
    let far = |v: u32| graph.hops(v).into_iter().max().unwrap_or(0);
    (0..graph.nodes()).min_by_key(|&v| far(v)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound;
    use crate::shapes::{grid, hypercube};

    /// Percent of the fluid bound that the packing attains.
    fn percent(graph: &Graph) -> f64 {
        let cut = bound(graph, Collective::AllReduce, 1 << 30, 0).cut;
        let fluid = 1000.0 * cut.demand as f64 / (cut.capacity as f64 * graph.unit_gbs());
        100.0 * fluid / Packing::new(graph, fluid, 1).unwrap().ps_per_byte()
    }

    #[test]
    fn packings_come_within_two_percent_of_the_strength_bound() {
        let meshes = [[4, 4].as_slice(), &[8, 8], &[16, 16], &[32, 32], &[4, 4, 4]].map(|extents| grid(extents, false));
        for graph in meshes.into_iter().chain([grid(&[8, 8], true), hypercube(6)]) {
            let reached = percent(&graph);
            assert!((98.0..100.001).contains(&reached), "{} NPUs: {reached} %", graph.nodes());
        }
    }

    #[test]
    fn trees_of_grids_are_low_and_load_all_links_alike() {
        for (sips, height) in [
            ("count: 256, topology: mesh_2d_no_wrap", 24),
            ("count: 1024, topology: mesh_2d_no_wrap", 48),
            ("count: 128, topology: mesh_2d_no_wrap, w: 16, h: 8", 20),
            ("count: 1024, topology: torus_2d", 32),
            ("count: 64, topology: torus_2d, w: 4, h: 16", 10),
            ("count: 32, topology: ring_1d", 16),
            ("count: 64, topology: mesh_3d", 8),
            ("count: 128, topology: mesh_3d, w: 4, h: 4, d: 8", 12),
            ("count: 512, topology: mesh_3d", 18),
            ("count: 64, topology: torus_3d", 6),
        ] {
            let machine =
                ahbm_machine::Machine::from_yaml(&format!("system: {{sips: {{{sips}}}}}"), "grid", &[]).unwrap();
            let graph = Graph::of(&machine).unwrap();
            let cut = bound(&graph, Collective::AllReduce, 1 << 30, 0).cut;
            let fluid = 1000.0 * cut.demand as f64 / (cut.capacity as f64 * graph.unit_gbs());
            let packing = Packing::new(&graph, fluid, 1).unwrap();
            assert!(packing.ps_per_byte() <= fluid * 1.005, "{sips}: {}", packing.ps_per_byte() / fluid);
            assert!(packing.trees.iter().all(|tree| tree.height <= height), "{sips}: {:?}", packing.prefixes);
        }
    }
}
