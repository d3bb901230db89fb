//! Spanning trees of rings and of grids of two dimensions that load all links alike.
//!
//! A tree has either all columns and one row, or all rows and one column. The first loads the links of columns fully and
//! those of the rows in turn, the second the other way round. Mixed in the right proportion they load all links alike,
//! and then no packing is better, as each tree has `n - 1` links. Where lines are cycles, each lacks one link, opposite
//! to the row or column that joins them, so that all lack one in turn.

use crate::Grid;
use crate::graph::gcd;

/// The trees, one after the other; a few more or less load the links a little unevenly.
#[derive(Debug, Clone)]
pub(super) struct Product {
    w: u32,
    h: u32,
    wrap: bool,
    /// Trees with all columns so far, and with all rows.
    columns: u32,
    rows: u32,
}

impl Product {
    /// `None` for grids of more dimensions.
    pub(super) fn new(grid: &Grid) -> Option<Self> {
        let (w, h) = match grid.extents[..] {
            [w] => (w, 1),
            [w, h] => (w, h),
            _ => return None,
        };
        Some(Self { w, h, wrap: grid.wrap, columns: 0, rows: 0 })
    }

    /// The next tree: the pairs of nodes that it joins.
    pub(super) fn next(&mut self) -> Vec<(u32, u32)> {
        let (w, h) = (self.w, self.h);
        let (columns, rows) = self.shares();
        let row = |y: u32, center: u32| self.line(w, center).map(move |(a, b)| (y * w + a, y * w + b));
        let column = |x: u32, center: u32| self.line(h, center).map(move |(a, b)| (a * w + x, b * w + x));
        // Both centers pass through all pairs.
        if u64::from(self.columns) * (columns + rows) < columns * u64::from(self.columns + self.rows + 1) {
            let (y, x) = (turn(self.columns, h), turn(self.columns + self.columns / h, w));
            let tree = row(y, x).chain((0..w).flat_map(|x| column(x, y))).collect();
            self.columns += 1;
            tree
        } else {
            let (x, y) = (turn(self.rows, w), turn(self.rows + self.rows / w, h));
            let tree = column(x, y).chain((0..h).flat_map(|y| row(y, x))).collect();
            self.rows += 1;
            tree
        }
    }

    /// The links of a line but, on a cycle, the one opposite to its center.
    fn line(&self, extent: u32, center: u32) -> impl Iterator<Item = (u32, u32)> + use<> {
        let cut = if self.wrap && extent > 2 { (center + extent / 2) % extent } else { extent - 1 };
        (0..extent).filter(move |&from| from != cut).map(move |from| (from, (from + 1) % extent))
    }

    /// Weights of the trees with all columns and of those with all rows. With `p` pairs of neighbours in a row and `q` in
    /// a column, a pair of a row is in `(w - 1) / p / h` of the first trees and in `(w - 1) / p` of the second, one of a
    /// column in `(h - 1) / q` and `(h - 1) / q / w`.
    fn shares(&self) -> (u64, u64) {
        let pairs = |extent: u32| u64::from(if self.wrap && extent > 2 { extent } else { extent - 1 });
        let (w, h, p, q) = (u64::from(self.w), u64::from(self.h), pairs(self.w), pairs(self.h));
        (h * (w * (w - 1) * q - (h - 1) * p), w * (h * (h - 1) * p - (w - 1) * q))
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
        let cases: [(&[u32], bool, u32); 9] = [
            (&[4, 4], false, 8),
            (&[16, 16], false, 32),
            (&[8, 4], false, 52),
            (&[2, 5], false, 13),
            (&[7], false, 1),
            (&[6], true, 6),
            (&[5, 5], true, 50),
            (&[2, 2], true, 4),
            (&[4, 4], true, 32),
        ];
        for (extents, wrap, trees) in cases {
            let nodes: u32 = extents.iter().product();
            let mut product = Product::new(&Grid { extents: extents.to_vec(), wrap }).unwrap();
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
