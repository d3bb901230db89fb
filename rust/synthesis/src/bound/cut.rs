//! Cuts: what divides the nodes of a network, and what has to cross.

use crate::{Graph, Link};
use ahbm_engine::interrupt::spend;
use ahbm_machine::Ps;
use std::ops::Range;

/// How a cut divides nodes `0..n`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parts {
    /// Every node is a part.
    Each(u32),
    /// A set against all other nodes: ranges of node numbers, ascending, none empty, none that touch.
    Side(Vec<Range<u32>>),
    /// Sets that hold every node once.
    Blocks(Vec<Vec<u32>>),
}

impl Parts {
    /// The nodes for which `inside` is true, among `nodes`, against the others.
    pub(crate) fn side(nodes: u32, inside: impl Fn(u32) -> bool) -> Self {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for node in (0..nodes).filter(|&node| inside(node)) {
            match runs.last_mut() {
                Some(run) if run.end == node => run.end += 1,
                _ => runs.push(node..node + 1),
            }
        }
        Self::Side(runs)
    }

    /// One node against all others.
    pub(crate) fn one(node: u32) -> Self {
        Self::Side(std::iter::once(node..node + 1).collect())
    }

    /// All of `nodes` but one.
    pub(crate) fn all_but(nodes: u32, node: u32) -> Self {
        Self::Side([0..node, node + 1..nodes].into_iter().filter(|run| !run.is_empty()).collect())
    }

    /// Number of parts; 1 for a set against the others.
    pub fn count(&self) -> usize {
        match self {
            Self::Each(nodes) => *nodes as usize,
            Self::Side(_) => 1,
            Self::Blocks(blocks) => blocks.len(),
        }
    }

    /// The node numbers of every part.
    pub fn lists(&self) -> Vec<Vec<u32>> {
        match self {
            Self::Each(nodes) => (0..*nodes).map(|node| vec![node]).collect(),
            Self::Side(runs) => vec![runs.iter().cloned().flatten().collect()],
            Self::Blocks(blocks) => blocks.clone(),
        }
    }
}

/// A set of NPUs, or a partition of them, and what crosses its borders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The parts.
    pub parts: Parts,
    /// Capacity of the links that cross, in units of the graph: out of the part, or between all parts, both ways.
    pub capacity: u64,
    /// Number of links that cross.
    pub links: u32,
    /// How many buffers' worth of data must cross: `demand / capacity` is what the cut costs per byte and unit.
    pub demand: u64,
}

impl Cut {
    /// What crosses out of the nodes for which `inside` is true.
    pub(crate) fn out_of(graph: &Graph, inside: impl Fn(u32) -> bool, demand: u64) -> Self {
        spend(4 * graph.links().len() as u64);
        let (mut capacity, mut links) = (0, 0);
        for (index, link) in graph.links().iter().enumerate() {
            if inside(link.from) && !inside(link.to) {
                capacity += graph.capacity(index as u32);
                links += 1;
            }
        }
        Self { parts: Parts::side(graph.nodes(), inside), capacity, links, demand }
    }

    /// What leaves the nodes of a set, ascending, or with `enters` what enters them; looks at their links alone.
    pub(crate) fn of_set(graph: &Graph, set: &[u32], enters: bool, demand: u64) -> Self {
        let across = |&link: &u32| {
            let Link { from, to, .. } = graph.link(link);
            set.binary_search(if enters { from } else { to }).is_err()
        };
        let own = |&node: &u32| if enters { graph.incoming(node) } else { graph.out(node) };
        spend(set.iter().map(|node| 4 * own(node).len() as u64).sum());
        let (mut capacity, mut links) = (0, 0);
        for &link in set.iter().flat_map(own).filter(|link| across(link)) {
            capacity += graph.capacity(link);
            links += 1;
        }
        let mut runs: Vec<Range<u32>> = Vec::new();
        for &node in set {
            match runs.last_mut() {
                Some(run) if run.end == node => run.end += 1,
                _ => runs.push(node..node + 1),
            }
        }
        let cut = Self { parts: Parts::Side(runs), capacity, links, demand };
        if enters { cut.turned(graph.nodes()) } else { cut }
    }

    /// What crosses out of all nodes but one.
    pub(crate) fn into(graph: &Graph, node: u32, demand: u64) -> Self {
        let links = graph.incoming(node);
        Self {
            parts: Parts::all_but(graph.nodes(), node),
            capacity: links.iter().map(|&l| graph.capacity(l)).sum(),
            links: links.len() as u32,
            demand,
        }
    }

    /// What leaves one node.
    pub(crate) fn from(graph: &Graph, node: u32, demand: u64) -> Self {
        let links = graph.out(node);
        Self {
            parts: Parts::one(node),
            capacity: links.iter().map(|&l| graph.capacity(l)).sum(),
            links: links.len() as u32,
            demand,
        }
    }

    /// A partition, given as the number of each node's block: what crosses between all blocks, for an all-reduce.
    pub(crate) fn between(graph: &Graph, block: &[u32]) -> Self {
        let mut parts: Vec<Vec<u32>> = Vec::new();
        let mut number = vec![u32::MAX; block.iter().max().map_or(0, |&m| m as usize + 1)];
        for (node, &block) in block.iter().enumerate() {
            if number[block as usize] == u32::MAX {
                number[block as usize] = parts.len() as u32;
                parts.push(Vec::new());
            }
            parts[number[block as usize] as usize].push(node as u32);
        }
        let (mut capacity, mut links) = (0, 0);
        for (index, link) in graph.links().iter().enumerate() {
            if block[link.from as usize] != block[link.to as usize] {
                capacity += graph.capacity(index as u32);
                links += 1;
            }
        }
        let demand = 2 * (parts.len() as u64 - 1);
        let parts = if parts.len() == block.len() { Parts::Each(graph.nodes()) } else { Parts::Blocks(parts) };
        Self { parts, capacity, links, demand }
    }

    /// This cut of a network with every link turned round, as one of the network itself: what crosses out of the others.
    #[must_use]
    pub(crate) fn turned(self, nodes: u32) -> Self {
        let Parts::Side(runs) = &self.parts else { return self };
        let starts = std::iter::once(0).chain(runs.iter().map(|run| run.end));
        let ends = runs.iter().map(|run| run.start).chain(std::iter::once(nodes));
        let others = starts.zip(ends).map(|(start, end)| start..end).filter(|run| !run.is_empty());
        Self { parts: Parts::Side(others.collect()), ..self }
    }

    /// Time that `bytes` times the demand take over the cut, its capacity counted in `unit_gbs`.
    pub fn fluid_ps(&self, bytes: u64, unit_gbs: f64) -> Ps {
        (bytes as f64 * 1000.0 * self.demand as f64 / (self.capacity as f64 * unit_gbs)) as Ps
    }

    /// Demand and capacity.
    pub(crate) fn ratio(&self) -> Ratio {
        Ratio { demand: self.demand, capacity: self.capacity }
    }

    /// True when the cut allows less than `other`.
    pub(crate) fn tighter(&self, other: &Self) -> bool {
        self.ratio().above(other.ratio())
    }
}

/// Demand over capacity, in units of the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ratio {
    pub(crate) demand: u64,
    pub(crate) capacity: u64,
}

impl Ratio {
    /// Strictly greater; a capacity of 0 counts as without end.
    pub(crate) fn above(self, other: Self) -> bool {
        u128::from(self.demand) * u128::from(other.capacity) > u128::from(other.demand) * u128::from(self.capacity)
    }
}

/// The first of the tightest.
pub(crate) fn tightest(cuts: impl Iterator<Item = Cut>) -> Cut {
    let none = Cut { parts: Parts::Side(Vec::new()), capacity: 1, links: 0, demand: 0 };
    cuts.fold(none, |best, cut| if cut.tighter(&best) { cut } else { best })
}
