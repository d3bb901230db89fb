//! Dependencies as semaphores.

use ahbm_plan::blocks::Rank;
use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap};

/// The semaphores of a rank: one from each thread block that posts to each that waits for it.
///
/// Both run in order, so the k-th time that one takes the semaphore is the k-th time that the other gives it. What
/// an earlier wait of a thread block already implies needs none.
#[derive(Default)]
pub(super) struct Order {
    ids: IndexMap<(u32, u32), u32, FxBuildHasher>,
    acquire: FxHashMap<(u32, u32), u32>,
    release: FxHashMap<(u32, u32), Vec<u32>>,
}

impl Order {
    pub(super) fn of(work: &Rank) -> Self {
        let posts: Vec<Vec<u32>> = work
            .blocks
            .iter()
            .map(|block| (0u32..).zip(&block.steps).filter(|(_, step)| step.posts).map(|(s, _)| s).collect())
            .collect();
        let mut order = Self::default();
        for (waiter, block) in (0u32..).zip(&work.blocks) {
            let mut awaited: FxHashMap<u32, usize> = FxHashMap::default();
            for (s, step) in (0u32..).zip(&block.steps) {
                let Some(dep) = step.wait else { continue };
                let posts = &posts[dep.block as usize];
                // The first step from there on that posts.
                let goal = posts.partition_point(|&at| at < dep.step);
                let known = awaited.entry(dep.block).or_default();
                let own = dep.block == waiter && posts.get(goal).is_some_and(|&at| at < s);
                if *known > goal || own {
                    continue;
                }
                *known = goal + 1;
                let next = order.ids.len() as u32;
                let id = *order.ids.entry((dep.block, waiter)).or_insert(next);
                order.acquire.insert((waiter, s), id);
                if let Some(&at) = posts.get(goal) {
                    order.release.entry((dep.block, at)).or_default().push(id);
                }
            }
        }
        order
    }

    /// Number of semaphores.
    pub(super) fn semaphores(&self) -> usize {
        self.ids.len()
    }

    /// The semaphore that a step takes before it runs.
    pub(super) fn acquire(&self, block: u32, step: u32) -> Option<u32> {
        self.acquire.get(&(block, step)).copied()
    }

    /// The semaphores that a step gives once it has run.
    pub(super) fn release(&self, block: u32, step: u32) -> &[u32] {
        self.release.get(&(block, step)).map_or(&[], Vec::as_slice)
    }
}
