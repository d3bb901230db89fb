//! A graph as chains: each runs in order, and waits for others only where a dependency crosses.

use super::Graph;

/// A place in a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Link {
    pub(super) chain: u32,
    pub(super) index: u32,
}

/// The chains of a rank.
#[derive(Debug, Default)]
pub(super) struct Chains {
    /// Node positions per chain, in order.
    pub(super) chains: Vec<Vec<u32>>,
    /// The place of each node.
    pub(super) links: Vec<Link>,
    /// Per node, the links of other chains it waits for.
    pub(super) waits: Vec<Vec<Link>>,
    /// Per node, whether a node of another chain waits for it.
    pub(super) awaited: Vec<bool>,
}

impl Chains {
    /// The node at a place.
    pub(super) fn node(&self, link: Link) -> u32 {
        self.chains[link.chain as usize][link.index as usize]
    }

    /// Every two neighbours of a chain are joined by a dependency, so chains add no order of their own.
    pub(super) fn of(graph: &Graph) -> Self {
        let count = graph.nodes.len();
        let unplaced = Link { chain: u32::MAX, index: 0 };
        let mut cover = Self {
            links: vec![unplaced; count],
            waits: vec![Vec::new(); count],
            awaited: vec![false; count],
            ..Self::default()
        };
        for &at in graph.order() {
            let is_tail = |dep: &&u32| {
                let link = cover.links[**dep as usize];
                cover.chains[link.chain as usize].len() == link.index as usize + 1
            };
            let chain = match graph.deps(at).iter().filter(is_tail).max_by_key(|dep| cover.links[**dep as usize].index)
            {
                Some(&dep) => cover.links[dep as usize].chain,
                None => {
                    cover.chains.push(Vec::new());
                    cover.chains.len() as u32 - 1
                }
            };
            let own = &mut cover.chains[chain as usize];
            cover.links[at as usize] = Link { chain, index: own.len() as u32 };
            own.push(at);
            // The last awaited node of another chain stands for those before it.
            let mut others: Vec<Link> =
                graph.deps(at).iter().map(|&dep| cover.links[dep as usize]).filter(|l| l.chain != chain).collect();
            others.sort_unstable_by(|a, b| b.cmp(a));
            others.dedup_by_key(|l| l.chain);
            for &link in &others {
                let node = cover.node(link);
                cover.awaited[node as usize] = true;
            }
            cover.waits[at as usize] = others;
        }
        cover
    }
}
