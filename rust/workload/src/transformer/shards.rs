//! What keeps data-parallel ranks alike: parameters that are gathered, gradients that are reduced, the optimizer.

use super::Role;
use super::costs::{Parameters, SHARDED};
use super::stage::{Bucket, Stage, Unit};
use crate::node::Collective;

impl Stage<'_> {
    /// The parameters that the optimizer of the step before has updated, a bucket after the other.
    pub(super) fn prefetch(&mut self) {
        let mut waiting = [(0, 0); SHARDED];
        let mut before = Vec::new();
        for unit in 0..self.units.len() {
            for (sharded, elements) in self.parameters(unit).into_iter().enumerate() {
                let (first, held) = &mut waiting[sharded];
                *held += elements;
                let (first, held) = (*first, *held);
                let whole = held * self.of.dtype.1 >= self.of.bucket_bytes || unit + 1 == self.units.len();
                if held > 0 && whole {
                    before = self.gather_parameters(sharded, held, &before);
                    for unit in first..=unit {
                        self.prefetched[unit].extend(&before);
                    }
                    waiting[sharded] = (unit + 1, 0);
                }
            }
        }
    }

    /// The parameters of a unit are gathered before each use, while the use before is computed.
    pub(super) fn with_parameters(&mut self, unit: usize, mut at: Vec<u64>) -> Vec<u64> {
        at.append(&mut self.prefetched[unit]);
        if self.of.zero == 3 {
            let earlier = self.uses.len().checked_sub(2).map(|use_| self.uses[use_].clone()).unwrap_or_default();
            for (sharded, elements) in self.parameters(unit).into_iter().enumerate() {
                at.extend(self.gather_parameters(sharded, elements, &earlier));
            }
        }
        at
    }

    fn gather_parameters(&mut self, sharded: usize, elements: u64, after: &[u64]) -> Vec<u64> {
        let chunk = elements.div_ceil(self.degree(sharded));
        if chunk == 0 {
            return Vec::new();
        }
        self.call("parameters", Collective::AllGather, self.role(sharded), chunk, after.to_vec())
    }

    /// The ranks over which parameters of a kind are sharded, or, where nothing is, that hold the same ones.
    fn role(&self, sharded: usize) -> Role {
        [if self.of.is_hybrid() { Role::Shard } else { Role::Data }, Role::ExpertData][sharded]
    }

    /// Their number.
    fn degree(&self, sharded: usize) -> u64 {
        let all = self.of.data * self.of.context;
        [if self.of.is_hybrid() { self.of.shard } else { all }, self.of.data / self.of.expert][sharded]
    }

    fn parameters(&self, unit: usize) -> Parameters {
        match self.units[unit] {
            Unit::Embedding => self.of.embedding_parameters(),
            Unit::Layer(_) => self.of.layer_parameters(),
            Unit::Head => self.of.head_parameters(),
        }
    }

    pub(super) fn fill(&mut self, unit: usize, last: bool) {
        for (sharded, elements) in self.parameters(unit).into_iter().enumerate() {
            if elements > 0 {
                self.buckets[sharded].elements += elements;
                self.buckets[sharded].after.extend(self.gradients[unit].iter().flatten());
                let whole = self.buckets[sharded].elements * self.of.dtype.1 >= self.of.bucket_bytes;
                if whole || self.of.zero == 3 {
                    self.reduce(sharded, last);
                }
            }
        }
    }

    pub(super) fn reduce_all(&mut self, last: bool) {
        for sharded in 0..SHARDED {
            self.reduce(sharded, last);
        }
    }

    /// Adds the gradients in a bucket over the ranks that hold the same parameters.
    fn reduce(&mut self, sharded: usize, last: bool) {
        let Bucket { elements, after } = std::mem::take(&mut self.buckets[sharded]);
        if elements == 0 {
            return;
        }
        let (role, degree) = (self.role(sharded), self.degree(sharded));
        let done = if self.of.zero == 0 {
            self.call("gradients", Collective::AllReduce, role, elements, after)
        } else {
            let shard = elements.div_ceil(degree);
            let done = self.call("gradients", Collective::ReduceScatter, role, shard * degree, after);
            if sharded == 0 { self.call("gradients", Collective::AllReduce, Role::Replica, shard, done) } else { done }
        };
        self.reduced.extend(done);
        if last {
            self.sizes.push((sharded, elements));
        }
    }

    pub(super) fn optimize(&mut self) {
        let mut held = 0;
        for unit in 0..self.units.len() {
            for (sharded, elements) in self.parameters(unit).into_iter().enumerate() {
                held += if self.of.zero == 0 { elements } else { elements.div_ceil(self.degree(sharded)) };
            }
        }
        let mut after = std::mem::take(&mut self.reduced);
        after.extend(self.ends.last().into_iter().flatten());
        after.sort_unstable();
        after.dedup();
        let done = self.compute("optimizer", self.of.optimizer(held), &after);
        if matches!(self.of.zero, 1 | 2) && !self.of.prefetch {
            for (sharded, elements) in std::mem::take(&mut self.sizes) {
                self.gather_parameters(sharded, elements, &done);
            }
        }
    }
}
