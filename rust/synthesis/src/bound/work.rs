//! The work that a search may do, counted rather than timed: the same network has the same bound everywhere.

use crate::Graph;
use crate::flow::Flow;
use std::collections::BTreeMap;

/// Elementary steps of all searches of one bound together, about a second.
const STEPS: u64 = 400_000_000;

/// A budget of steps, and which nodes are alike.
#[derive(Debug, Clone)]
pub(super) struct Work {
    left: u64,
    /// Per node the first node with the same neighbours over the same links. To exchange the two changes nothing, so
    /// that whatever holds for the cuts around one of them holds for the other.
    pub(super) alike: Vec<u32>,
}

impl Work {
    pub(super) fn on(graph: &Graph) -> Self {
        Self::of(graph, STEPS)
    }

    pub(super) fn of(graph: &Graph, steps: u64) -> Self {
        let mut first = BTreeMap::new();
        let ends = |links: &[u32], end: fn(&crate::Link) -> u32| {
            let end = |&link: &u32| (end(graph.link(link)), graph.capacity(link), graph.link(link).latency_ps);
            let mut ends: Vec<_> = links.iter().map(end).collect();
            ends.sort_unstable();
            ends
        };
        let alike = (0..graph.nodes()).map(|node| {
            let links = (ends(graph.out(node), |link| link.to), ends(graph.incoming(node), |link| link.from));
            *first.entry(links).or_insert(node)
        });
        Self { left: steps, alike: alike.collect() }
    }

    /// Takes so many steps; false, and none are taken, where fewer are left.
    pub(super) fn take(&mut self, steps: u64) -> bool {
        let enough = steps <= self.left;
        self.left -= if enough { steps } else { 0 };
        enough
    }

    /// A flow that works no longer than is left.
    pub(super) fn flow(&self, nodes: usize) -> Flow {
        let mut flow = Flow::new(nodes);
        flow.limit = self.left;
        flow
    }

    /// Takes what a flow has worked; false when nothing is left, so that its last run may have ended before its time.
    pub(super) fn took(&mut self, flow: &mut Flow) -> bool {
        self.left = self.left.saturating_sub(std::mem::take(&mut flow.work));
        flow.limit = self.left;
        self.left > 0
    }
}
