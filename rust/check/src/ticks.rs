//! Vector clocks that share what is equal.
//!
//! A clock is a tree whose leaves are times of some components, and whose inner nodes are children. Equal nodes are one
//! node, so equal clocks are one number, a clock that grows makes one path, and a join looks at what differs. Agents that
//! know almost the same share almost everything, however many there are.

use ahbm_engine::interrupt::spend;

/// Components of a leaf, and children of an inner node.
const LEAF: usize = 32;
const INNER: usize = 16;
const NONE: u32 = u32::MAX;
/// Joins remembered.
const JOINS: usize = 1 << 14;
/// Bytes of nodes made before the first look at which of them are still in use, and most between two looks.
const FIRST_LOOK: usize = 1 << 24;
const LAST_LOOK: usize = 1 << 28;
/// Elementary steps for a node ([`spend`]).
const STEPS: u64 = 8;

/// What somebody knows of everybody's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clock(u32);

/// All clocks over the same components.
pub(crate) struct Ticks {
    leaves: Pool<LEAF>,
    /// By level, from below.
    inner: Vec<Pool<INNER>>,
    /// Level, two nodes of it, and their join.
    joins: Vec<(usize, u32, u32, u32)>,
    zero: Clock,
    /// Bytes in use when they were last counted.
    used: usize,
    /// Nodes looked at or made so far.
    pub(crate) work: u64,
}

/// Nodes of one level, each once.
#[derive(Default)]
struct Pool<const WIDTH: usize> {
    nodes: Vec<[u32; WIDTH]>,
    free: Vec<u32>,
    /// A part of the hash of a node, and its number; `NONE` where there is none. The length is a power of two, twice that
    /// of `nodes` or more.
    table: Vec<(u32, u32)>,
}

impl Ticks {
    pub(crate) fn new(components: u32) -> Self {
        let mut ticks = Self {
            leaves: Pool::default(),
            inner: Vec::new(),
            joins: vec![(0, NONE, NONE, NONE); JOINS],
            zero: Clock(NONE),
            used: 0,
            work: 0,
        };
        let mut zero = ticks.leaves.node([0; LEAF]);
        let mut held = LEAF as u64;
        while held < u64::from(components) {
            let mut pool = Pool::default();
            zero = pool.node([zero; INNER]);
            ticks.inner.push(pool);
            held *= INNER as u64;
        }
        ticks.zero = Clock(zero);
        ticks
    }

    /// Nobody has begun.
    pub(crate) const fn zero(&self) -> Clock {
        self.zero
    }

    /// A component's time.
    pub(crate) fn at(&self, clock: Clock, component: u32) -> u32 {
        let levels = self.inner.iter().enumerate().rev();
        let leaf = levels.fold(clock.0, |node, (level, pool)| pool.nodes[node as usize][slot(component, level)]);
        self.leaves.nodes[leaf as usize][component as usize % LEAF]
    }

    /// The clock with another time of a component.
    pub(crate) fn with(&mut self, clock: Clock, component: u32, time: u32) -> Clock {
        Clock(self.replaced(clock.0, self.inner.len(), component, time))
    }

    fn replaced(&mut self, node: u32, height: usize, component: u32, time: u32) -> u32 {
        self.work += 1;
        spend(STEPS);
        let Some(level) = height.checked_sub(1) else {
            let mut leaf = self.leaves.nodes[node as usize];
            leaf[component as usize % LEAF] = time;
            return self.leaves.node(leaf);
        };
        let (mut grown, slot) = (self.inner[level].nodes[node as usize], slot(component, level));
        grown[slot] = self.replaced(grown[slot], level, component, time);
        self.inner[level].node(grown)
    }

    /// What two know together.
    pub(crate) fn join(&mut self, one: Clock, other: Clock) -> Clock {
        Clock(self.joined(one.0, other.0, self.inner.len()))
    }

    fn joined(&mut self, one: u32, other: u32, height: usize) -> u32 {
        if one == other {
            return one;
        }
        let (one, other) = (one.min(other), one.max(other));
        // Any mixture serves: an entry says itself what it is about.
        let entry = (one.wrapping_mul(0x9E37_79B1) ^ other.wrapping_mul(0x85EB_CA77)) as usize >> 7 & (JOINS - 1);
        if let (level, a, b, joined) = self.joins[entry]
            && (level, a, b) == (height, one, other)
        {
            return joined;
        }
        self.work += 1;
        spend(STEPS);
        let joined = match height.checked_sub(1) {
            None => {
                let (a, b) = (self.leaves.nodes[one as usize], self.leaves.nodes[other as usize]);
                self.leaves.either(one, other, std::array::from_fn(|slot| a[slot].max(b[slot])))
            }
            Some(level) => {
                let mut both = self.inner[level].nodes[one as usize];
                for (slot, child) in both.iter_mut().enumerate() {
                    *child = self.joined(*child, self.inner[level].nodes[other as usize][slot], level);
                }
                self.inner[level].either(one, other, both)
            }
        };
        self.joins[entry] = (height, one, other, joined);
        joined
    }

    fn bytes(&self) -> usize {
        self.leaves.bytes() + self.inner.iter().map(Pool::bytes).sum::<usize>()
    }

    /// Whether [`Ticks::keep`] may find much to throw away, which is worth it from so many bytes on.
    pub(crate) fn is_crowded(&self, worth: usize) -> bool {
        self.bytes() >= FIRST_LOOK.max(self.used + LAST_LOOK.min(worth.max(2 * self.used)))
    }

    /// Throws away what these clocks do not need; the bytes that are left.
    pub(crate) fn keep(&mut self, clocks: impl Iterator<Item = Clock>) -> usize {
        let mut kept = vec![false; self.inner.last().map_or(self.leaves.nodes.len(), |pool| pool.nodes.len())];
        for Clock(root) in clocks.chain([self.zero]) {
            kept[root as usize] = true;
        }
        for level in (0..self.inner.len()).rev() {
            let below = level.checked_sub(1).map_or(self.leaves.nodes.len(), |below| self.inner[below].nodes.len());
            let mut children = vec![false; below];
            for (node, _) in self.inner[level].nodes.iter().zip(&kept).filter(|(_, kept)| **kept) {
                node.iter().for_each(|&child| children[child as usize] = true);
            }
            self.inner[level].keep(&kept);
            kept = children;
        }
        self.leaves.keep(&kept);
        self.joins.fill((0, NONE, NONE, NONE));
        self.used = self.bytes();
        self.used
    }
}

impl<const WIDTH: usize> Pool<WIDTH> {
    /// The node with these contents.
    fn node(&mut self, contents: [u32; WIDTH]) -> u32 {
        if self.free.is_empty() && self.nodes.len() * 2 >= self.table.len() {
            let grown = vec![(0, NONE); (self.table.len() * 2).max(64)];
            let old = std::mem::replace(&mut self.table, grown);
            old.into_iter().filter(|&(_, node)| node != NONE).for_each(|entry| self.enter(entry));
        }
        let hash = hash(&contents);
        let mut place = hash as usize & (self.table.len() - 1);
        while let (found, node) = self.table[place]
            && node != NONE
        {
            if found == hash && self.nodes[node as usize] == contents {
                return node;
            }
            place = (place + 1) & (self.table.len() - 1);
        }
        let node = if let Some(node) = self.free.pop() {
            self.nodes[node as usize] = contents;
            node
        } else {
            self.nodes.push(contents);
            self.nodes.len() as u32 - 1
        };
        self.table[place] = (hash, node);
        node
    }

    /// One of two nodes, or else the node with these contents.
    fn either(&mut self, one: u32, other: u32, contents: [u32; WIDTH]) -> u32 {
        match &contents {
            same if *same == self.nodes[one as usize] => one,
            same if *same == self.nodes[other as usize] => other,
            _ => self.node(contents),
        }
    }

    /// Enters a node into the table, which has room and not this node.
    fn enter(&mut self, entry: (u32, u32)) {
        let mut place = entry.0 as usize & (self.table.len() - 1);
        while self.table[place].1 != NONE {
            place = (place + 1) & (self.table.len() - 1);
        }
        self.table[place] = entry;
    }

    fn keep(&mut self, kept: &[bool]) {
        spend(kept.len() as u64);
        self.free = (0u32..).zip(kept).filter(|(_, kept)| !**kept).map(|(node, _)| node).collect();
        let empty = vec![(0, NONE); self.table.len()];
        let old = std::mem::replace(&mut self.table, empty);
        let used = old.into_iter().filter(|&(_, node)| node != NONE && kept[node as usize]);
        used.for_each(|entry| self.enter(entry));
    }

    fn bytes(&self) -> usize {
        (self.nodes.len() - self.free.len()) * size_of::<[u32; WIDTH]>()
    }
}

fn slot(component: u32, level: usize) -> usize {
    (component as usize / LEAF / INNER.pow(level as u32)) % INNER
}

fn hash(contents: &[u32]) -> u32 {
    const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
    // Four at a time, which do not wait for each other.
    let mut lanes = [1u64, 2, 3, 4];
    for eight in contents.chunks_exact(8) {
        for (lane, two) in lanes.iter_mut().zip(eight.chunks_exact(2)) {
            *lane = (lane.rotate_left(29) ^ (u64::from(two[0]) << 32 | u64::from(two[1]))).wrapping_mul(MIX);
        }
    }
    let hash = lanes.into_iter().fold(0u64, |hash, lane| (hash.rotate_left(23) ^ lane).wrapping_mul(MIX));
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Trees and plain arrays agree, also after what is not needed was thrown away.
        #[test]
        fn clocks_are_arrays(
            components in prop_oneof![1..20u32, 1..600u32],
            acts in prop::collection::vec(any::<(u8, u8, u8, u16)>(), 1..200),
        ) {
            let mut ticks = Ticks::new(components);
            let mut clocks = vec![(ticks.zero(), vec![0; components as usize]); 8];
            for (act, one, other, further) in acts {
                let (one, other, component) = (one as usize % 8, other as usize % 8, u32::from(further) % components);
                if act % 3 == 0 {
                    let (clock, times) = &mut clocks[one];
                    times[component as usize] += u32::from(act);
                    *clock = ticks.with(*clock, component, times[component as usize]);
                } else if act % 7 == 0 {
                    ticks.keep(clocks.iter().map(|&(clock, _)| clock));
                } else {
                    let (clock, times) = clocks[other].clone();
                    clocks[one].0 = ticks.join(clocks[one].0, clock);
                    clocks[one].1.iter_mut().zip(times).for_each(|(mine, theirs)| *mine = theirs.max(*mine));
                }
            }
            for (clock, times) in &clocks {
                for (component, &time) in (0u32..).zip(times) {
                    prop_assert_eq!(ticks.at(*clock, component), time);
                }
                for (other, theirs) in &clocks {
                    prop_assert_eq!(clock == other, times == theirs);
                }
            }
        }
    }

    #[test]
    fn what_everybody_knows_is_kept_once() {
        let mut ticks = Ticks::new(4096);
        let mut clocks: Vec<Clock> = (0..4096).map(|me| ticks.with(ticks.zero(), me, 1)).collect();
        for round in 0..12 {
            clocks = (0..4096).map(|me| ticks.join(clocks[me], clocks[(me + 4096 - (1 << round)) % 4096])).collect();
            ticks.keep(clocks.iter().copied());
        }
        assert!(clocks.iter().all(|&clock| clock == clocks[0]));
        assert!(ticks.bytes() <= 2 * (256 + 2 * 64));
    }
}
