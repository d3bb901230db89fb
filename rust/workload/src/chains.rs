//! A graph as chains: each runs in order, and waits for others only where a dependency crosses.

/// A place in a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// The chain.
    pub chain: u32,
    /// Position in it.
    pub index: u32,
}

/// The chains of a rank.
#[derive(Debug, Default)]
pub struct Chains {
    /// Node positions per chain, in order.
    pub chains: Vec<Vec<u32>>,
    /// The place of each node.
    pub links: Vec<Link>,
    /// Per node, the links of other chains it waits for.
    pub waits: Vec<Vec<Link>>,
    /// Per node, whether a node of another chain waits for it.
    pub awaited: Vec<bool>,
}

impl Chains {
    /// The node at a place.
    pub fn node(&self, link: Link) -> u32 {
        self.chains[link.chain as usize][link.index as usize]
    }

    /// Every two neighbours of a chain are joined by a dependency, so chains add no order of their own. `order` has
    /// every node once, dependencies first.
    pub fn of<'a>(order: &[u32], deps: impl Fn(u32) -> &'a [u32]) -> Self {
        let count = order.len();
        let unplaced = Link { chain: u32::MAX, index: 0 };
        let mut cover = Self {
            links: vec![unplaced; count],
            waits: vec![Vec::new(); count],
            awaited: vec![false; count],
            ..Self::default()
        };
        for &at in order {
            let is_tail = |dep: &&u32| {
                let link = cover.links[**dep as usize];
                cover.chains[link.chain as usize].len() == link.index as usize + 1
            };
            let chain = match deps(at).iter().filter(is_tail).max_by_key(|dep| cover.links[**dep as usize].index) {
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
                deps(at).iter().map(|&dep| cover.links[dep as usize]).filter(|l| l.chain != chain).collect();
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

    /// Per node, how many awaited nodes of its chain have ended once it has.
    pub fn posts(&self) -> Vec<u32> {
        let mut posts = vec![0; self.links.len()];
        for chain in &self.chains {
            let mut posted = 0;
            for &at in chain {
                posted += u32::from(self.awaited[at as usize]);
                posts[at as usize] = posted;
            }
        }
        posts
    }
}
