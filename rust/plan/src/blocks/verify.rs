//! The conditions that every plan must meet, whatever file it came from.

use super::{Plan, Rank};
use crate::{Budget, Limit, Space};
use ahbm_findings::Diagnostic;
use rustc_hash::FxHashSet;

impl Plan {
    /// Whether the plan can be followed: peers that exist, one thread block per end of a queue, steps inside their
    /// buffers, dependencies on steps that exist, chunks in one block per rank where the collective has such.
    ///
    /// # Errors
    /// `AHBM-F115` to `AHBM-F119`, at most one per rank; `AHBM-B205` too many dependencies.
    pub fn verify(&self, budget: &Budget) -> Result<(), Vec<Diagnostic>> {
        let ranks = self.members();
        if self.goal.in_blocks() && !self.chunks.is_multiple_of(ranks) {
            let message = format!("{} chunks do not split into one block for each of {ranks} ranks", self.chunks);
            return Err(vec![Diagnostic::new("AHBM-F119", message).site("plan", self.whole().to_string())]);
        }
        let mut findings = Vec::new();
        let mut deps = 0;
        for (id, rank) in (0..).zip(&self.ranks) {
            deps += rank.blocks.iter().flat_map(|b| &b.steps).filter(|s| s.wait.is_some()).count() as u64;
            findings.extend(self.verify_rank(id, rank).err());
        }
        findings.extend(budget.check(Limit::Deps, deps).err());
        if findings.is_empty() { Ok(()) } else { Err(findings) }
    }

    fn verify_rank(&self, id: u32, rank: &Rank) -> Result<(), Diagnostic> {
        let extents = self.extents(id);
        let finding = |code, line, message: String| {
            Err(Diagnostic::new(code, message).site("plan", self.origin(id, line).to_string()))
        };
        let outside = |space: Space, chunk: u32, count: u32, line: u32| {
            let end = u64::from(chunk) + u64::from(count);
            let (name, has) = (space.name(), extents.of(space));
            if end <= u64::from(has) {
                return Ok(());
            }
            let message = format!("chunks [{chunk}, {end}) of buffer {name}, which has {has} on rank {id}");
            finding("AHBM-F117", line, message)
        };
        for copy in rank.before.iter().chain(&rank.after) {
            outside(Space::Input, copy.input, copy.count, copy.line)?;
            outside(Space::Output, copy.output, copy.count, copy.line)?;
        }
        let ranks = self.ranks.len() as u32;
        let mut ends = FxHashSet::default();
        for (index, block) in rank.blocks.iter().enumerate() {
            for (way, peer) in [("sends to", block.send), ("receives from", block.recv)] {
                let Some(peer) = peer else { continue };
                if peer >= ranks || peer == id {
                    let message = format!("thread block {index} of rank {id} {way} rank {peer} of {ranks}");
                    return finding("AHBM-F118", block.line, message);
                }
                if !ends.insert((way, peer, block.channel)) {
                    let channel = block.channel;
                    let message = format!("a second thread block of rank {id} {way} rank {peer} on channel {channel}");
                    return finding("AHBM-F116", block.line, message);
                }
            }
            for step in &block.steps {
                for (way, needs, peer) in
                    [("send", step.action.sends(), block.send), ("recv", step.action.receives(), block.recv)]
                {
                    if needs && peer.is_none() {
                        let message = format!("thread block {index} of rank {id} has no {way} peer for this step");
                        return finding("AHBM-F118", step.line, message);
                    }
                }
                if step.action.reads() {
                    outside(step.src.space, step.src.chunk, step.count, step.line)?;
                }
                if step.action.writes() {
                    outside(step.dst.space, step.dst.chunk, step.count, step.line)?;
                }
                if let Some(dep) = step.wait {
                    let there = rank.blocks.get(dep.block as usize).map_or(0, |b| b.steps.len());
                    if dep.step as usize >= there {
                        let message =
                            format!("waits for step {} of thread block {}, which does not exist", dep.step, dep.block);
                        return finding("AHBM-F115", step.line, message);
                    }
                }
            }
        }
        Ok(())
    }
}
