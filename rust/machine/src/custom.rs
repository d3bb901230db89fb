//! Custom SIP networks: a declared edge list. Neighbours use their link, all others a shortest path by latency.

use crate::Ps;
pub(crate) use crate::edge::{CustomEdge, Wire};
use crate::ways::{Choice, Ways};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, OnceLock};

/// An edge list and, per source, the tree of shortest paths. A tree is computed when it is first asked
/// for; it is a function of the edges alone, so it makes no difference who asks first.
#[derive(Debug, Clone)]
pub(crate) struct Custom {
    /// Sorted by (from, to).
    pub(crate) edges: Arc<[CustomEdge]>,
    /// `first[s]..first[s + 1]` are the edges that leave SIP s.
    first: Arc<[u32]>,
    trees: Arc<[OnceLock<Box<[u32]>>]>,
    /// SIPs, and those of a node, where ways are those of nodes: over a switch, or out, over the spine, and in.
    nodes: Option<(u32, u32)>,
    /// What takes one of several equal ways; none where the first one is taken.
    ways: Option<Arc<Ways>>,
}

const NONE: u32 = u32::MAX;

impl Custom {
    /// `edges` must be sorted by (from, to) and stay within `sips`.
    pub(crate) fn new(sips: u32, edges: Vec<CustomEdge>) -> Self {
        let first = (0..=sips).map(|sip| edges.partition_point(|e| e.from < sip) as u32).collect();
        let trees = (0..sips).map(|_| OnceLock::new()).collect();
        Self { edges: edges.into(), first, trees, nodes: None, ways: None }
    }

    /// As [`Self::new`], of `sips` SIPs in nodes of `size`, numbered as `topology: nodes` does: the ways need no search
    /// where that over the switch of a node is the quicker one inside it.
    pub(crate) fn of_nodes(vertices: u32, edges: Vec<CustomEdge>, sips: u32, size: u32) -> Self {
        let made = Self::new(vertices, edges);
        let took =
            |way: Option<Vec<u32>>| way.map(|way| way.iter().map(|&at| made.edges[at as usize].latency_ps).sum::<Ps>());
        let way = |vertices: &[u32]| made.along(vertices);
        let nodes = sips / size.max(1);
        let own = took(way(&[0, sips, 1]));
        let out = took(way(&[0, sips + nodes, sips + 3 * nodes, sips + 2 * nodes, 1]));
        let plain = nodes > 1 && size > 1 && matches!((own, out), (Some(own), Some(out)) if own <= out);
        Self { nodes: plain.then_some((sips, size)), ..made }
    }

    /// The same with ways that are chosen otherwise; those between nodes of `sips` SIPs, `size` each, over their fabric.
    pub(crate) fn with_ways(self, ways: Ways, nodes: Option<(u32, u32)>) -> Self {
        Self { ways: Some(Arc::new(ways)), nodes, ..self }
    }

    /// The same with ways that are given; what has none takes the first of equal ways.
    pub(crate) fn with_given(mut self, given: std::collections::BTreeMap<(u32, u32), Box<[u32]>>) -> Self {
        let ways = self.ways.take().map(Arc::unwrap_or_clone);
        let mut ways = ways.unwrap_or_else(|| Ways::new(&self.edges, self.vertices(), Choice::First, None, 0));
        ways.given = given;
        Self { ways: Some(Arc::new(ways)), ..self }
    }

    /// The network with these edges alone.
    pub(crate) fn left(&self, edges: Vec<CustomEdge>) -> Self {
        let left = Self::new(self.vertices(), edges);
        match self.ways.as_ref().map(|ways| ways.among(&left.edges, left.vertices())) {
            // Ways between nodes over a spine are searched for.
            Some(ways) => left.with_ways(ways, self.nodes),
            None => left,
        }
    }

    /// Whether nodes are joined by a fabric of switches.
    pub(crate) fn has_fabric(&self) -> bool {
        self.ways.as_ref().is_some_and(|ways| ways.fabric.is_some())
    }

    /// Whether messages are spread over equal ways.
    pub(crate) fn spreads(&self) -> bool {
        self.ways.as_ref().is_some_and(|ways| ways.choice != Choice::First)
    }

    /// The edges along these vertices.
    pub(crate) fn along(&self, vertices: &[u32]) -> Option<Vec<u32>> {
        vertices.windows(2).map(|pair| self.direct(pair[0], pair[1])).collect()
    }

    /// SIPs and relays.
    pub(crate) fn vertices(&self) -> u32 {
        self.trees.len() as u32
    }

    /// The first edge that joins two vertices, if there is one.
    pub(crate) fn direct(&self, from: u32, to: u32) -> Option<u32> {
        self.between(from, to).next()
    }

    /// All edges that join two vertices.
    pub(crate) fn between(&self, from: u32, to: u32) -> std::ops::Range<u32> {
        let at = |ends: (u32, u32)| self.edges.partition_point(|e| (e.from, e.to) < ends) as u32;
        at((from, to))..at((from, to.saturating_add(1)))
    }

    /// Edge indices from one SIP to another: the edge that joins them, else the way of least latency; `None` when there
    /// is no way.
    pub(crate) fn path(&self, from: u32, to: u32) -> Option<Vec<u32>> {
        self.path_with(from, to, &mut |_, _| {})
    }

    /// The same; `chosen` learns of each edge that was one of several that are as near.
    pub(crate) fn path_with(&self, from: u32, to: u32, chosen: &mut dyn FnMut(u32, &[u32])) -> Option<Vec<u32>> {
        if let Some(given) = self.ways.as_ref().and_then(|ways| ways.given.get(&(from, to))) {
            return Some(given.to_vec());
        }
        let direct = self.between(from, to);
        if direct.len() == 1 || !direct.is_empty() && self.ways.is_none() {
            return Some(vec![direct.start]);
        }
        let between = self.nodes.filter(|&(sips, _)| from.max(to) < sips && from != to);
        match (between, &self.ways) {
            (Some((sips, size)), _) if from / size == to / size => {
                if let Some(way) = self.along(&[from, sips + from / size, to]) {
                    return Some(way);
                }
            }
            (Some((sips, size)), None) => {
                let (nodes, a, b) = (sips / size, from / size, to / size);
                return self.along(&[from, sips + nodes + a, sips + 3 * nodes, sips + 2 * nodes + b, to]);
            }
            (Some((sips, size)), Some(ways)) => {
                if let Some(way) = self.over_fabric(ways, (sips, size), (from, to), chosen) {
                    return Some(way);
                }
            }
            (None, Some(ways)) if ways.fabric.is_none() && from != to => {
                return ways.walk(&self.edges, (from, to), (from, to), chosen);
            }
            _ => {}
        }
        let tree = self.trees.get(from as usize)?.get_or_init(|| self.tree(from));
        let mut path = Vec::new();
        let mut at = to;
        while at != from {
            let edge = *tree.get(at as usize)?;
            path.push(edge);
            at = self.edges.get(edge as usize)?.from;
        }
        path.reverse();
        Some(path)
    }

    /// The way between two nodes over their fabric. What goes to another rail crosses its node first, to the SIP whose
    /// interface is on that rail (NCCL's PXN), where rails are kept apart or no switch joins them.
    fn over_fabric(
        &self,
        ways: &Ways,
        (sips, size): (u32, u32),
        (from, to): (u32, u32),
        chosen: &mut dyn FnMut(u32, &[u32]),
    ) -> Option<Vec<u32>> {
        let leaves = ways.fabric.as_ref()?;
        let mut over = |at: u32| {
            let (out, leaf) = (leaves[at as usize].0, leaves[to as usize].0);
            let first = self.direct(at, out)?;
            let mut way = vec![first];
            way.extend(ways.walk(&self.edges, (from, to), (out, leaf), chosen)?);
            way.push(self.direct(leaf, to)?);
            Some(way)
        };
        let node = from / size;
        let there = node * size + to % size;
        let inside = self.along(&[from, sips + node, there]).filter(|_| there != from);
        let crossing = |inside: Option<Vec<u32>>, rest: Option<Vec<u32>>| Some([inside?, rest?].concat());
        if ways.choice == Choice::Rails && inside.is_some() {
            return crossing(inside, over(there)).or_else(|| over(from));
        }
        over(from).or_else(|| crossing(inside, over(there)))
    }

    /// For each SIP the edge that enters it on the best way from `source`: least latency, then fewest
    /// links, then the lowest edge index.
    fn tree(&self, source: u32) -> Box<[u32]> {
        let sips = self.trees.len();
        let mut best = vec![(Ps::MAX, u32::MAX); sips];
        let mut entry = vec![NONE; sips];
        let mut queue = BinaryHeap::from([Reverse(((0, 0), source))]);
        best[source as usize] = (0, 0);
        while let Some(Reverse((cost, sip))) = queue.pop() {
            if cost > best[sip as usize] {
                continue;
            }
            for index in self.first[sip as usize]..self.first[sip as usize + 1] {
                let edge = &self.edges[index as usize];
                let next = (cost.0 + edge.latency_ps, cost.1 + 1);
                let to = edge.to as usize;
                if next < best[to] || (next == best[to] && index < entry[to]) {
                    if next < best[to] {
                        queue.push(Reverse((next, edge.to)));
                    }
                    best[to] = next;
                    entry[to] = index;
                }
            }
        }
        // Ways back to the source would never end.
        entry[source as usize] = NONE;
        entry.into()
    }
}
