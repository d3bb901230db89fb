//! Pieces of a buffer on their way up spanning trees and down again.

use super::Tree;
use crate::Graph;
use crate::list::Job;
use crate::schedule::Transfer;
use ahbm_engine::interrupt::spend;

/// The jobs of pieces that go up trees and come down again.
///
/// A job is numbered by (tree, piece, way, node): jobs up, then jobs down, by the node at the outer end; roots have
/// none.
pub(super) struct Pipeline<'a> {
    graph: &'a Graph,
    partner: &'a [u32],
    trees: &'a [Tree],
    pieces: u32,
    /// Edges of a tree.
    edges: u32,
    /// Per tree and node, its place among the jobs of one way.
    place: Vec<Vec<u32>>,
    children: Vec<Vec<Vec<u32>>>,
}

impl<'a> Pipeline<'a> {
    pub(super) fn new(graph: &'a Graph, partner: &'a [u32], trees: &'a [Tree], pieces: u32) -> Self {
        let n = graph.nodes();
        let mut place = Vec::with_capacity(trees.len());
        let mut children: Vec<Vec<Vec<u32>>> = Vec::with_capacity(trees.len());
        for tree in trees {
            let mut at = vec![u32::MAX; n as usize];
            let mut below = vec![Vec::new(); n as usize];
            for (index, &node) in tree.order[1..].iter().enumerate() {
                at[node as usize] = index as u32;
                below[graph.link(tree.up[node as usize]).to as usize].push(node);
            }
            place.push(at);
            children.push(below);
        }
        Self { graph, partner, trees, pieces, edges: n - 1, place, children }
    }

    /// One piece of all trees after the other takes as many rounds as the busiest port has transfers of it, and a piece
    /// moves on by a link in `hop` rounds. A job is the more urgent, the earlier its piece is due and the more links are
    /// left.
    pub(super) fn jobs(&self, hop: u64) -> Vec<Job> {
        let all = self.trees.len() * self.pieces as usize * 2 * self.edges as usize;
        let mut jobs = Vec::with_capacity(all);
        let period = self.busiest();
        let longest = 2 * hop * self.trees.iter().map(|tree| u64::from(tree.height)).max().unwrap_or(0);
        for (t, tree) in self.trees.iter().enumerate() {
            let (depth, below) = tree.depths(self.graph);
            for piece in 0..self.pieces {
                spend(16 * tree.order.len() as u64);
                let chunk = t as u32 * self.pieces + piece;
                let rank = |left: u32| u64::from(piece) * period + longest - u64::from(left) * hop;
                jobs.extend(tree.order[1..].iter().map(|&node| Job {
                    transfer: Transfer::add(tree.up[node as usize], chunk),
                    priority: rank(depth[node as usize] + tree.height),
                    waits: self.children[t][node as usize].len() as u32,
                }));
                jobs.extend(tree.order[1..].iter().map(|&node| {
                    let up = tree.up[node as usize];
                    let parent = self.graph.link(up).to;
                    let at_root = parent == tree.order[0];
                    Job {
                        transfer: Transfer::copy(self.partner[up as usize], chunk),
                        priority: rank(below[node as usize] + 1),
                        waits: if at_root { self.children[t][parent as usize].len() as u32 } else { 1 },
                    }
                }));
            }
        }
        jobs
    }

    /// Transfers of one piece of all trees over the busiest port.
    fn busiest(&self) -> u64 {
        let mut load = vec![0u64; self.graph.ports() as usize];
        for link in self.trees.iter().flat_map(|tree| &tree.up).copied().filter(|&link| link != u32::MAX) {
            for way in [link, self.partner[link as usize]] {
                load[self.graph.port(way) as usize] += 1;
            }
        }
        load.into_iter().max().unwrap_or(0)
    }

    /// Wakes the jobs that wait for `job`: the parent's, up the tree; from the root on the children's, down.
    pub(super) fn then(&self, job: u32, wake: &mut dyn FnMut(u32)) {
        let (chunk, way) = (job / (2 * self.edges), job % (2 * self.edges));
        let t = (chunk / self.pieces) as usize;
        let base = chunk * 2 * self.edges;
        let tree = &self.trees[t];
        let node = tree.order[1 + (way % self.edges) as usize];
        let down = |from: u32, wake: &mut dyn FnMut(u32)| {
            for &child in &self.children[t][from as usize] {
                wake(base + self.edges + self.place[t][child as usize]);
            }
        };
        if way < self.edges {
            let parent = self.graph.link(tree.up[node as usize]).to;
            if parent == tree.order[0] { down(parent, wake) } else { wake(base + self.place[t][parent as usize]) }
        } else {
            down(node, wake);
        }
    }
}
