//! Spanning trees of rings and grids that load all links alike.
//!
//! A tree has all lines of one dimension, those of a second dimension in one layer across the first, those of a third in
//! one line of layers, and so on. It has all links of its first dimension (of a cycle all but one), and few of the others.
//! The dimension whose links are least loaded so far comes first, so loads stay together, and the layers take turns. When
//! all links are loaded alike no packing is better, as each tree has `n - 1` links. A line that is a cycle lacks one link,
//! opposite to the layer that joins it to the others.

use crate::Grid;
use crate::graph::gcd;

/// The trees, one after the other; a few more or less load the links a little unevenly.
#[derive(Debug, Clone)]
pub(super) struct Product {
    extents: Vec<u32>,
    wrap: bool,
    /// Per dimension, how often the trees so far have its links.
    used: Vec<u64>,
    /// Trees so far by their first dimension.
    made: Vec<u32>,
}

impl Product {
    pub(super) fn new(grid: &Grid) -> Self {
        let count = grid.extents.len();
        Self { extents: grid.extents.clone(), wrap: grid.wrap, used: vec![0; count], made: vec![0; count] }
    }

    /// The next tree: the pairs of nodes that it joins.
    pub(super) fn next(&mut self) -> Vec<(u32, u32)> {
        let first = self.least_loaded();
        let mut count = self.made[first];
        self.made[first] += 1;
        // The bases of the lines: first all nodes, then those of the layers so far.
        let n: u32 = self.extents.iter().product();
        let mut bases: Vec<u32> = (0..n).collect();
        let mut pairs = Vec::with_capacity(n as usize - 1);
        let mut turns = 0;
        let dimensions = self.extents.len();
        for dimension in (first..first + dimensions).map(|dimension| dimension % dimensions) {
            let extent = self.extents[dimension];
            let stride: u32 = self.extents[..dimension].iter().product();
            // Sums of digits: centers pass through all combinations, and no dimension stands still for long.
            turns += count % extent;
            count /= extent;
            // The first trees are the lowest.
            let center = (turn(turns, extent) + extent / 2) % extent;
            let starts: Vec<u32> =
                bases.iter().copied().filter(|node| (node / stride).is_multiple_of(extent)).collect();
            let before = pairs.len();
            for (a, b) in self.line(extent, center) {
                pairs.extend(starts.iter().map(|node| (node + a * stride, node + b * stride)));
            }
            self.used[dimension] += (pairs.len() - before) as u64;
            bases.retain(|node| node / stride % extent == center);
        }
        pairs
    }

    /// The dimension whose links are least loaded.
    fn least_loaded(&self) -> usize {
        // Links of a dimension are those of a line for each of the `n / extent` lines; `n` is common to all.
        let load = |&dimension: &usize| {
            let extent = self.extents[dimension];
            (u128::from(self.used[dimension]) * u128::from(extent), u128::from(self.pairs(extent)))
        };
        let less = |a: &usize, b: &usize| {
            let ((used_a, pairs_a), (used_b, pairs_b)) = (load(a), load(b));
            (used_a * pairs_b).cmp(&(used_b * pairs_a))
        };
        (0..self.extents.len()).min_by(less).unwrap_or(0)
    }

    /// The links of a line but, on a cycle, the one opposite to its center.
    fn line(&self, extent: u32, center: u32) -> impl Iterator<Item = (u32, u32)> + use<> {
        let cut = if self.wrap && extent > 2 { (center + extent / 2) % extent } else { extent - 1 };
        (0..extent).filter(move |&from| from != cut).map(move |from| (from, (from + 1) % extent))
    }

    /// Pairs of neighbours in a line.
    fn pairs(&self, extent: u32) -> u64 {
        u64::from(if self.wrap && extent > 2 { extent } else { extent - 1 })
    }
}
/// The `count`-th of `0..among` in an order in which all take turns and neighbours are apart.
fn turn(count: u32, among: u32) -> u32 {
    // From the golden section on, the first step that has no divisor with `among` in common.
    let golden = (f64::from(among) * 0.618) as u32;
    let coprime = |step: &u32| gcd((*step).into(), among.into()) == 1;
    let step = (golden.max(1)..=among).find(coprime).unwrap_or(1);
    (u64::from(count) * u64::from(step) % u64::from(among)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn joins_all(nodes: u32, tree: &[(u32, u32)]) -> bool {
        let mut part: Vec<u32> = (0..nodes).collect();
        for &(a, b) in tree {
            let (from, to) = (part[a as usize], part[b as usize]);
            part.iter_mut().filter(|p| **p == from).for_each(|p| *p = to);
        }
        tree.len() as u32 == nodes - 1 && part.iter().all(|&p| p == part[0])
    }

    #[test]
    fn trees_span_and_load_all_links_alike() {
        // As many trees as make the loads equal.
        let cases: [(&[u32], bool, u32); 14] = [
            (&[4, 4], false, 8),
            (&[16, 16], false, 32),
            (&[8, 4], false, 52),
            (&[2, 5], false, 13),
            (&[7], false, 1),
            (&[6], true, 6),
            (&[5, 5], true, 50),
            (&[2, 2], true, 4),
            (&[4, 4], true, 32),
            (&[4, 4, 4], false, 48),
            (&[5, 5, 5], false, 75),
            (&[3, 3, 3], true, 81),
            (&[4, 4, 4], true, 192),
            (&[2, 2, 2, 2], false, 32),
        ];
        for (extents, wrap, trees) in cases {
            let nodes: u32 = extents.iter().product();
            let mut product = Product::new(&Grid { extents: extents.to_vec(), wrap });
            let mut load: BTreeMap<(u32, u32), u32> = BTreeMap::new();
            for _ in 0..trees {
                let tree = product.next();
                assert!(joins_all(nodes, &tree), "{extents:?} {tree:?}");
                for (a, b) in tree {
                    *load.entry((a.min(b), a.max(b))).or_default() += 1;
                }
            }
            let (least, most) = (load.values().min().unwrap(), load.values().max().unwrap());
            assert_eq!(least, most, "{extents:?} {load:?}");
        }
    }

    #[test]
    fn all_take_turns() {
        for among in 1..100 {
            let mut seen: Vec<u32> = (0..among).map(|count| turn(count, among)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..among));
        }
    }
}
