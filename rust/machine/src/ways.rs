//! Equal ways: which of the shortest ways through a network a flow takes.
//!
//! A flow is what one SIP sends to another. Ways are shortest by latency, then by links. At every vertex where several
//! links lead on, a hash of the flow takes one (equal-cost multipath, RFC 2992), or the number of the destination does
//! (destination modulo k: E. Zahavi et al., "Optimized InfiniBand fat-tree routing for shift all-to-all communication
//! patterns", 2009).

use crate::Ps;
use crate::edge::CustomEdge;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, OnceLock};

/// How one of several equal ways is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The first one.
    First,
    /// By a hash of the flow, which every vertex seeds with its own number.
    Ecmp { seed: u32 },
    /// By the place of the destination.
    Rails,
}

/// Latency and links to a goal.
type Distance = (Ps, u32);

const FAR: Distance = (Ps::MAX, u32::MAX);

/// What says which way a flow takes, and what was found of it.
#[derive(Debug, Clone)]
pub(crate) struct Ways {
    pub(crate) choice: Choice,
    /// Ways that are given, by SIPs: their edges.
    pub(crate) given: BTreeMap<(u32, u32), Box<[u32]>>,
    /// The leaf of each SIP's interface, and its place among all of them, where ways are those between nodes over a fabric.
    pub(crate) fabric: Option<Arc<[(u32, u32)]>>,
    /// Vertices below it pass nothing on.
    lowest: u32,
    /// Edges by the vertex that they enter.
    into: Box<[u32]>,
    distances: Box<[OnceLock<Box<[Distance]>>]>,
}

/// The finalizer of SplitMix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014).
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Ways {
    /// Of a network whose vertices from `lowest` on pass on what is not theirs.
    pub(crate) fn new(
        edges: &[CustomEdge],
        vertices: u32,
        choice: Choice,
        fabric: Option<Arc<[(u32, u32)]>>,
        lowest: u32,
    ) -> Self {
        let mut into: Vec<u32> = (0..edges.len() as u32).collect();
        into.sort_by_key(|&edge| edges[edge as usize].to);
        let distances = (0..vertices).map(|_| OnceLock::new()).collect();
        Self { choice, given: BTreeMap::new(), fabric, lowest, into: into.into(), distances }
    }

    /// The same choice among the edges that are left; what was given may be gone.
    pub(crate) fn among(&self, edges: &[CustomEdge], vertices: u32) -> Self {
        Self::new(edges, vertices, self.choice, self.fabric.clone(), self.lowest)
    }

    /// Distances of all vertices from a goal.
    fn to(&self, edges: &[CustomEdge], goal: u32) -> &[Distance] {
        self.distances[goal as usize].get_or_init(|| {
            let mut best = vec![FAR; self.distances.len()];
            let mut queue = BinaryHeap::from([Reverse(((0, 0), goal))]);
            best[goal as usize] = (0, 0);
            while let Some(Reverse((at, vertex))) = queue.pop() {
                if at > best[vertex as usize] || vertex != goal && vertex < self.lowest {
                    continue;
                }
                let first = self.into.partition_point(|&edge| edges[edge as usize].to < vertex);
                let entering = self.into[first..].iter().map(|&edge| &edges[edge as usize]);
                for edge in entering.take_while(|edge| edge.to == vertex) {
                    // Ways over a fabric begin at a switch of it.
                    if self.fabric.is_some() && edge.from < self.lowest {
                        continue;
                    }
                    let next = (at.0 + edge.latency_ps, at.1 + 1);
                    if next < best[edge.from as usize] {
                        best[edge.from as usize] = next;
                        queue.push(Reverse((next, edge.from)));
                    }
                }
            }
            best.into()
        })
    }

    /// The way of a flow from a vertex to another: its edges; none where there is no way. `chosen` learns of each edge that
    /// was one of several.
    pub(crate) fn walk(
        &self,
        edges: &[CustomEdge],
        flow: (u32, u32),
        (from, goal): (u32, u32),
        chosen: &mut dyn FnMut(u32, &[u32]),
    ) -> Option<Vec<u32>> {
        let best = self.to(edges, goal);
        let leaving = |vertex: u32| {
            let first = |vertex: u32| edges.partition_point(|edge| edge.from < vertex) as u32;
            first(vertex)..first(vertex + 1)
        };
        let mut digits = self.fabric.as_ref().map_or(flow.1, |fabric| fabric[flow.1 as usize].1);
        let (mut at, mut way) = (from, Vec::new());
        while at != goal {
            let left = best[at as usize];
            if left == FAR {
                return None;
            }
            let onward = |&edge: &u32| {
                let edge = &edges[edge as usize];
                let (latency, links) = best[edge.to as usize];
                (edge.to == goal || edge.to >= self.lowest)
                    && latency.checked_add(edge.latency_ps) == Some(left.0)
                    && links.checked_add(1) == Some(left.1)
            };
            let equal: Vec<u32> = leaving(at).filter(onward).collect();
            let count = equal.len() as u64;
            let index = match self.choice {
                _ if count < 2 => 0,
                Choice::First => 0,
                Choice::Ecmp { seed } => {
                    let flow = u64::from(flow.0) << 32 | u64::from(flow.1);
                    mixed(mixed(flow ^ 0x9e37_79b9_7f4a_7c15) ^ (u64::from(seed) << 32 | u64::from(at))) % count
                }
                Choice::Rails => {
                    let index = u64::from(digits) % count;
                    digits /= count as u32;
                    index
                }
            };
            let edge = *equal.get(index as usize)?;
            if count > 1 {
                chosen(edge, &equal);
            }
            way.push(edge);
            at = edges[edge as usize].to;
        }
        Some(way)
    }
}
