//! Dependencies between steps as counters.

use super::{Dep, Rank};
use ahbm_program::ProgramBuilder;

/// Which counter every thread block of a rank signals, and how often it does.
pub(super) struct Posts {
    /// Per block: its counter, and how many of its steps before each step post.
    blocks: Vec<(u32, Vec<u32>)>,
}

impl Posts {
    pub(super) fn of(builder: &mut ProgramBuilder, work: &Rank) -> Self {
        let mut blocks = Vec::with_capacity(work.blocks.len());
        for block in &work.blocks {
            let mut before = Vec::with_capacity(block.steps.len() + 1);
            let mut posted = 0;
            for step in &block.steps {
                before.push(posted);
                posted += u32::from(step.posts);
            }
            before.push(posted);
            blocks.push((builder.counter(), before));
        }
        Self { blocks }
    }

    /// The counter that a block's posting steps signal.
    pub(super) fn counter(&self, block: usize) -> u32 {
        self.blocks[block].0
    }

    /// Counter and value by which `step` of `block` has run in the given slice. A step that does not post is
    /// known to have run once a later one has posted, in this slice or the next.
    pub(super) fn goal(&self, dep: Dep, slice: u32) -> (u32, u32) {
        let (counter, before) = &self.blocks[dep.block as usize];
        let all = before.last().copied().unwrap_or(0);
        let sooner = before.get(dep.step as usize).copied().unwrap_or(all);
        (*counter, slice.saturating_mul(all).saturating_add(sooner).saturating_add(1))
    }
}
