//! Bounds of regular networks in closed form: their cuts and distances follow from the declared shape, and no list of
//! links is made.
//!
//! A network of `n` nodes is a grid (a product of paths, or of cycles), a full mesh or a switch, with one bandwidth and
//! one latency. `c` is the capacity of a link, 1 here. What the cuts rest on:
//!
//! - **Least cut.** The edge connectivity of each of these graphs is its least degree `d`: for vertex-transitive ones by
//!   Mader (1971), for products of paths because `min(d(G) + d(H), d(G) |H|, d(H) |G|)` is that of a product (Xu, Yang
//!   2006). So `out(S) >= d` for every set `S`, and of all ratios `demand(S) / out(S)` whose demand is greatest for a
//!   single node, that of a node of degree `d` is the greatest: all-gather (`|S| <= n - 1` shares leave), broadcast
//!   (one), scatter from such a node (`n - |S|`), and their opposites.
//! - **All-reduce.** No partition is tighter than the one into single nodes. Where all degrees are `d`, the parts of a
//!   partition have `out >= d` each, so the ratio `2 (|P| - 1) / sum of out` is at most `2 (|P| - 1) / (d |P|)`, which
//!   grows with `|P|`. In general it is enough that no set `S` has more edges per `|S| - 1` than the whole network,
//!   `r = e / (n - 1)`, since then `e - sum e(S_i) >= r (|P| - 1)`. A product of paths is so: let `H` be such a graph of
//!   `h` nodes with ratio `q`, and let `S` in the product of `H` and a path have `m` slices that are not empty. Then
//!   `e(S) <= q (|S| - m) + |S| - |S| / m`, which is linear in `|S|`. At `|S| = m` it is `m - 1 <= r (m - 1)`, and at
//!   `|S| = m h` it is the number of edges of `H` times a path of `m`, whose ratio grows with `m` as `e(H) <= h (h - 1)`.
//! - **All to all.** Let every message go along one dimension after the other, along each the short way, and halve it
//!   where both are short. No link carries more than one in the middle of a line, and all that cross the middle of
//!   a dimension of extent `a` carry that much: `(n / a) floor(a^2 / 4)`, half of it on a cycle. What a cut demands is
//!   at most what its links carry, so the middle of the dimension with the greatest load is the tightest of all cuts.

use super::Bound;
use super::cut::{Cut, Parts};
use crate::Collective;
use crate::graph::{Regular, Shape};
use std::ops::Range;

impl Regular {
    /// The bound among the first `ranks` nodes; `None` where no closed form is known, which is a scatter or a gather
    /// whose root is inside a mesh.
    pub(crate) fn bound(&self, ranks: u32, collective: Collective, bytes: u64, root: u32) -> Option<Bound> {
        let (cut, tightest) = match &self.shape {
            &Shape::Switch { nodes, reduces } => star(nodes, ranks, collective, root, reduces),
            _ if ranks == self.nodes() => (self.cut(collective, root)?, true),
            _ => (self.cut_among(ranks, collective, root), false),
        };
        let hops = u64::from(self.hops(ranks, collective.is_rooted().then_some(root)));
        let latency_ps = hops * self.latency_ps;
        let bandwidth_ps = cut.fluid_ps(bytes, self.unit_gbs()) + self.latency_ps;
        let ps = bandwidth_ps.max(latency_ps);
        Some(Bound { ps, bandwidth_ps, latency_ps, cut, hops: Some(hops), tightest })
    }

    /// The bound of a message from one node to another; `None` where the least cut between them is not one of them.
    pub(crate) fn between(&self, from: u32, to: u32) -> Option<Bound> {
        let capacity = self.degree(to);
        let cut = match self.shape {
            Shape::Switch { .. } => self.alone(from, 1),
            _ if capacity == self.least_degree() => self.but(to, 1),
            _ => return None,
        };
        let hops = u64::from(self.farthest(&[self.place(from)], &[self.place(to)]));
        let (latency_ps, bandwidth_ps) = (hops * self.latency_ps, self.latency_ps);
        let ps = latency_ps.max(bandwidth_ps);
        Some(Bound { ps, bandwidth_ps, latency_ps, cut, hops: Some(hops), tightest: true })
    }

    /// The tightest cut among all nodes.
    fn cut(&self, collective: Collective, root: u32) -> Option<Cut> {
        let others = u64::from(self.nodes()) - 1;
        Some(match collective {
            Collective::AllGather => self.but(0, others),
            Collective::ReduceScatter => self.alone(0, others),
            Collective::Broadcast => self.but(self.weakest(self.nodes(), Some(root)), 1),
            Collective::Reduce => self.alone(self.weakest(self.nodes(), Some(root)), 1),
            Collective::Scatter | Collective::Gather if self.degree(root) > self.least_degree() => return None,
            Collective::Scatter => self.alone(root, others),
            Collective::Gather => self.but(root, others),
            Collective::AllReduce => {
                let links = self.links();
                Cut { parts: Parts::Each(self.nodes()), capacity: links, links: links as u32, demand: 2 * others }
            }
            Collective::AllToAll => self.middle(),
        })
    }

    /// The tightest cut around one node, among the first `ranks`.
    fn cut_among(&self, ranks: u32, collective: Collective, root: u32) -> Cut {
        let others = u64::from(ranks) - 1;
        let weakest = || self.weakest(ranks, None);
        let leaf = || self.weakest(ranks, Some(root));
        let is_root_weaker = |leaf: u32| self.degree(root) < self.degree(leaf);
        let is_leaf_weaker = |leaf: u32| others * u64::from(self.degree(leaf)) < u64::from(self.degree(root));
        match collective {
            Collective::AllGather | Collective::AllToAll => self.but(weakest(), others),
            Collective::ReduceScatter => self.alone(weakest(), others),
            Collective::AllReduce => self.but(weakest(), 1),
            Collective::Broadcast if is_root_weaker(leaf()) => self.alone(root, 1),
            Collective::Broadcast => self.but(leaf(), 1),
            Collective::Reduce if is_root_weaker(leaf()) => self.but(root, 1),
            Collective::Reduce => self.alone(leaf(), 1),
            Collective::Scatter if is_leaf_weaker(leaf()) => self.but(leaf(), 1),
            Collective::Scatter => self.alone(root, others),
            Collective::Gather if is_leaf_weaker(leaf()) => self.alone(leaf(), 1),
            Collective::Gather => self.but(root, others),
        }
    }

    fn but(&self, node: u32, demand: u64) -> Cut {
        let links = self.degree(node);
        Cut { parts: Parts::all_but(self.nodes(), node), capacity: links.into(), links, demand }
    }

    fn alone(&self, node: u32, demand: u64) -> Cut {
        let links = self.degree(node);
        Cut { parts: Parts::one(node), capacity: links.into(), links, demand }
    }

    /// The middle of the dimension with the greatest load; of the last of those, whose sides are single ranges.
    fn middle(&self) -> Cut {
        let nodes = self.nodes();
        let Shape::Grid { extents, wrap } = &self.shape else { return self.alone(0, u64::from(nodes) - 1) };
        let mut best: Option<Cut> = None;
        let mut stride = nodes;
        for &extent in extents.iter().rev() {
            stride /= extent;
            let (lines, half) = (nodes / extent, extent / 2);
            let links = lines * if *wrap && extent > 2 { 2 } else { 1 };
            let demand = u64::from(lines * half) * u64::from(lines * (extent - half));
            let cut = Cut { parts: Parts::Side(Vec::new()), capacity: links.into(), links, demand };
            if best.as_ref().is_none_or(|best| cut.tighter(best)) {
                let sides = (0..nodes).step_by((stride * extent) as usize).map(|low| low..low + half * stride);
                best = Some(Cut { parts: Parts::Side(sides.collect()), ..cut });
            }
        }
        best.unwrap_or_else(|| self.alone(0, u64::from(nodes) - 1))
    }

    /// The first of `0..ranks`, but for `except`, with the fewest links.
    fn weakest(&self, ranks: u32, except: Option<u32>) -> u32 {
        let mut best = (u32::MAX, 0);
        for node in (0..ranks).filter(|&node| Some(node) != except) {
            best = best.min((self.degree(node), node));
            if best.0 == self.least_degree() {
                break;
            }
        }
        best.1
    }

    /// Links on the longest shortest way among the first `ranks` nodes; with a root, of those from it.
    fn hops(&self, ranks: u32, root: Option<u32>) -> u32 {
        let all = self.boxes(ranks);
        match root {
            Some(root) => self.farthest(&[self.place(root)], &all),
            None => self.farthest(&all, &all),
        }
    }

    /// The greatest distance between a node of the boxes `from` and one of the boxes `to`; a box is a range of
    /// coordinates along every dimension, and the distance is the sum of those along the dimensions.
    fn farthest(&self, from: &[Vec<Range<u32>>], to: &[Vec<Range<u32>>]) -> u32 {
        let Shape::Grid { extents, wrap } = &self.shape else { return 1 };
        let apart = |a: &[Range<u32>], b: &[Range<u32>]| -> u32 {
            a.iter().zip(b).zip(extents).map(|((a, b), &extent)| along(a, b, extent, *wrap)).sum()
        };
        from.iter().flat_map(|a| to.iter().map(move |b| apart(a, b))).max().unwrap_or(0)
    }

    /// Boxes that hold nodes `0..ranks`: for every dimension those that agree with `ranks` in the higher ones, and are
    /// less than it in this one.
    fn boxes(&self, ranks: u32) -> Vec<Vec<Range<u32>>> {
        let Shape::Grid { extents, .. } = &self.shape else { return vec![Vec::new()] };
        let whole: Vec<Range<u32>> = extents.iter().map(|&extent| 0..extent).collect();
        if ranks >= self.nodes() {
            return vec![whole];
        }
        let end = self.place(ranks);
        let below = |k: usize| {
            let mut found = whole.clone();
            found[k] = 0..end[k].start;
            found[k + 1..].clone_from_slice(&end[k + 1..]);
            found
        };
        (0..extents.len()).filter(|&k| end[k].start > 0).map(below).collect()
    }
}

/// The greatest distance between positions of two ranges on a line or, with `wrap`, on a cycle.
fn along(a: &Range<u32>, b: &Range<u32>, extent: u32, wrap: bool) -> u32 {
    let (low, high) = (i64::from(a.start) - i64::from(b.end - 1), i64::from(a.end - 1) - i64::from(b.start));
    let apart = |difference: i64| {
        let straight = difference.unsigned_abs() as u32;
        if wrap { straight.min(extent - straight) } else { straight }
    };
    // On a cycle the distance grows up to half of it.
    let half = i64::from(extent / 2);
    let peaks = [half, -half].into_iter().filter(|peak| wrap && (low..=high).contains(peak));
    peaks.chain([low, high]).map(apart).max().unwrap_or(0)
}

/// At a switch between equal ports: those of one NPU; all that send, for an all-reduce. And whether no cut is tighter.
///
/// A switch that reduces changes the all-reduce alone: each NPU's buffer leaves it once, and the result enters it once.
/// So it is, too, where some NPUs are left to reduce for the others. Elsewhere one NPU has to send or receive that much
/// whatever the switch does.
fn star(nodes: u32, ranks: u32, collective: Collective, root: u32, reduces: bool) -> (Cut, bool) {
    let others = u64::from(ranks) - 1;
    if collective == Collective::AllReduce && !reduces && ranks == nodes {
        let cut = Cut { parts: Parts::Each(nodes), capacity: nodes.into(), links: nodes, demand: 2 * others };
        return (cut, true);
    }
    let once = matches!(collective, Collective::Broadcast | Collective::Reduce | Collective::AllReduce);
    let demand = if once { 1 } else { others };
    let parts = match collective {
        Collective::AllGather => Parts::all_but(nodes, 0),
        Collective::Reduce | Collective::Gather => Parts::all_but(nodes, root),
        Collective::Broadcast | Collective::Scatter => Parts::one(root),
        Collective::AllReduce | Collective::ReduceScatter | Collective::AllToAll => Parts::one(0),
    };
    let cut = Cut { parts, capacity: 1, links: 1, demand };
    (cut, ranks == nodes || collective != Collective::AllReduce)
}
