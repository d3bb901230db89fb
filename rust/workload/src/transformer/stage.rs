//! The graph of a pipeline stage: every pass of every micro-batch, and what keeps data-parallel ranks alike.

use super::costs::{Block, Cost, Parameters};
use super::order::Pass;
use super::{Role, Transformer};
use crate::Kernel;
use crate::build::{NodeBuilder, RankBuilder, RankGraph};
use crate::node::{CallSpec, Collective, MessageSpec, Work};
use ahbm_findings::Diagnostic;

/// What is gathered and reduced as one where parameters are sharded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Embedding,
    Layer(u64),
    Head,
}

/// Gradients that wait to be reduced.
#[derive(Debug, Default)]
struct Bucket {
    elements: u64,
    after: Vec<u64>,
}

/// The roles over which parameters are sharded, in the order of [`Parameters`].
const SHARDED: [Role; 2] = [Role::Data, Role::ExpertData];

pub(super) struct Stage<'a> {
    of: &'a Transformer,
    stage: u64,
    job: RankBuilder,
    groups: [Option<u32>; Role::COUNT],
    previous: Option<u32>,
    next: Option<u32>,
    units: Vec<Unit>,
    /// Id of the node that is made next.
    id: u64,
    /// Ends of the passes so far.
    ends: Vec<Vec<u64>>,
    /// Ends of the uses of units so far.
    uses: Vec<Vec<u64>>,
    /// Per unit the last gradients of its parameters: later ones are added to them.
    gradients: Vec<Vec<u64>>,
    /// Gradients of the unit of this pass.
    fresh: Vec<u64>,
    buckets: [Bucket; 2],
    /// What the optimizer waits for.
    reduced: Vec<u64>,
    /// Elements of the buckets that were reduced in the last pass, as the position in `SHARDED`.
    sizes: Vec<(usize, u64)>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        of: &'a Transformer,
        stage: u32,
        file: String,
        groups: [Option<u32>; Role::COUNT],
        previous: Option<u32>,
        next: Option<u32>,
    ) -> Self {
        let (stage, per) = (u64::from(stage), of.layers / of.pipeline);
        let mut units: Vec<Unit> = (stage * per..(stage + 1) * per).map(Unit::Layer).collect();
        if previous.is_none() {
            units.insert(0, Unit::Embedding);
        }
        if next.is_none() {
            units.push(Unit::Head);
        }
        Self {
            job: RankBuilder::new((stage * of.tensor * of.data) as u32, file),
            of,
            stage,
            groups,
            previous,
            next,
            gradients: vec![Vec::new(); units.len()],
            units,
            id: 0,
            ends: Vec::new(),
            uses: Vec::new(),
            fresh: Vec::new(),
            buckets: Default::default(),
            reduced: Vec::new(),
            sizes: Vec::new(),
        }
    }

    pub(super) fn finish(mut self) -> Result<RankGraph, Vec<Diagnostic>> {
        for pass in self.of.schedule.passes(self.stage, self.of.pipeline, self.of.micro_batches) {
            match pass {
                Pass::Forward(micro) => self.forward(micro),
                Pass::Backward(micro) => self.backward(micro),
            }
        }
        self.optimize();
        self.job.finish(false)
    }

    fn forward(&mut self, micro: u64) {
        let mut at = self.received(self.previous, 2 * micro);
        for unit in 0..self.units.len() {
            at = self.with_parameters(unit, at);
            at = self.unit_forward(self.units[unit], at);
            self.uses.push(at.clone());
        }
        self.sent(self.next, 2 * micro, &at);
        self.ends.push(at);
    }

    fn backward(&mut self, micro: u64) {
        let mut at = self.received(self.next, 2 * micro + 1);
        let last = micro + 1 == self.of.micro_batches;
        for unit in (0..self.units.len()).rev() {
            at = self.with_parameters(unit, at);
            at = match self.units[unit] {
                Unit::Embedding => self.embedding_backward(unit, at),
                Unit::Layer(layer) => self.layer_backward(unit, layer, at),
                Unit::Head => self.head_backward(unit, at),
            };
            self.uses.push(at.clone());
            self.gradients[unit] = std::mem::take(&mut self.fresh);
            if last || self.of.zero >= 2 {
                self.fill(unit, last);
            }
        }
        for sharded in 0..SHARDED.len() {
            self.reduce(sharded, last);
        }
        self.sent(self.previous, 2 * micro + 1, &at);
        self.ends.push(at);
    }

    fn unit_forward(&mut self, unit: Unit, at: Vec<u64>) -> Vec<u64> {
        let of = self.of;
        match unit {
            Unit::Embedding => {
                let at = self.compute("embedding", of.lookup(), &at);
                self.joined("embedding", of.shard() * of.hidden, at)
            }
            Unit::Layer(layer) => {
                let name = format!("layer{layer}");
                let at = self.block_forward(&name, &of.attention(), at);
                self.block_forward(&name, &of.feed_forward(), at)
            }
            Unit::Head => {
                let at = self.compute("head.norm", of.norm(), &at);
                let at = self.spread("head.logits", of.shard() * of.hidden, at);
                let at = self.compute("head.logits", of.logits(), &at);
                let at = self.over_words("head.largest", "max", at);
                let at = self.compute("head.softmax", of.softmax(), &at);
                let at = self.over_words("head.target", "sum", at);
                self.over_words("head.total", "sum", at)
            }
        }
    }

    fn block_forward(&mut self, layer: &str, block: &Block, at: Vec<u64>) -> Vec<u64> {
        let name = |what: &str| format!("{layer}.{}.{what}", block.name);
        let mut at = self.compute(&name("norm"), self.of.norm(), &at);
        if let Some(router) = block.router {
            at = self.compute(&name("router"), router, &at);
            at = self.exchanged(&name("dispatch"), block.share, at);
        }
        at = self.spread(&name("input"), block.share, at);
        at = self.compute(&name(block.column.0), block.column.1, &at);
        if let Some((middle, cost, _)) = block.middle {
            at = self.compute(&name(middle), cost, &at);
        }
        at = self.compute(&name(block.row.0), block.row.1, &at);
        at = self.joined(&name("output"), block.share, at);
        if block.router.is_some() {
            at = self.exchanged(&name("combine"), block.share, at);
        }
        at
    }

    fn layer_backward(&mut self, unit: usize, layer: u64, at: Vec<u64>) -> Vec<u64> {
        let name = format!("layer{layer}");
        let at = if self.of.recompute { self.unit_forward(self.units[unit], at) } else { at };
        let at = self.block_backward(unit, &name, &self.of.feed_forward(), at);
        self.block_backward(unit, &name, &self.of.attention(), at)
    }

    fn block_backward(&mut self, unit: usize, layer: &str, block: &Block, at: Vec<u64>) -> Vec<u64> {
        let name = |what: &str| format!("{layer}.{}.{what}", block.name);
        let mut at = at;
        if block.router.is_some() {
            at = self.exchanged(&name("combine.backward"), block.share, at);
        }
        // What was given to the columns was not kept, and is gathered again (Korthikanti et al., section 4.2.2).
        let input = self.spread(&name("input.again"), block.share, at.clone());
        at = self.spread(&name("output.backward"), block.share, at);
        let given = at.clone();
        at = self.compute(&name(&format!("{}.dgrad", block.row.0)), block.row.1, &at);
        self.gradient(unit, &name(&format!("{}.wgrad", block.row.0)), block.row.1, &given);
        if let Some((middle, _, cost)) = block.middle {
            at = self.compute(&name(&format!("{middle}.backward")), cost, &at);
        }
        let mut known = at.clone();
        known.extend(input);
        at = self.compute(&name(&format!("{}.dgrad", block.column.0)), block.column.1, &at);
        at = self.joined(&name("input.backward"), block.share, at);
        self.gradient(unit, &name(&format!("{}.wgrad", block.column.0)), block.column.1, &known);
        if let Some(router) = block.router {
            at = self.exchanged(&name("dispatch.backward"), block.share, at);
            at = self.gradient(unit, &name("router.backward"), router.times(2), &at);
        }
        self.gradient(unit, &name("norm.backward"), self.of.norm().times(2), &at)
    }

    fn embedding_backward(&mut self, unit: usize, at: Vec<u64>) -> Vec<u64> {
        let at = self.spread("embedding.backward", self.of.shard() * self.of.hidden, at);
        self.gradient(unit, "embedding.wgrad", self.of.lookup(), &at)
    }

    fn head_backward(&mut self, unit: usize, at: Vec<u64>) -> Vec<u64> {
        let (of, share) = (self.of, self.of.shard() * self.of.hidden);
        let mut known = at.clone();
        known.extend(self.spread("head.input.again", share, at.clone()));
        let at = self.compute("head.logits.dgrad", of.logits(), &at);
        let at = self.joined("head.input.backward", share, at);
        self.gradient(unit, "head.logits.wgrad", of.logits(), &known);
        self.gradient(unit, "head.norm.backward", of.norm().times(2), &at)
    }

    /// The parameters of a unit are gathered before each use, while the use before is computed.
    fn with_parameters(&mut self, unit: usize, mut at: Vec<u64>) -> Vec<u64> {
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
        self.call("parameters", Collective::AllGather, SHARDED[sharded], chunk, after.to_vec())
    }

    /// Data-parallel ranks that hold the same parameters.
    fn degree(&self, sharded: usize) -> u64 {
        [self.of.data, self.of.data / self.of.expert][sharded]
    }

    fn parameters(&self, unit: usize) -> Parameters {
        match self.units[unit] {
            Unit::Embedding => self.of.embedding_parameters(),
            Unit::Layer(_) => self.of.layer_parameters(),
            Unit::Head => self.of.head_parameters(),
        }
    }

    fn fill(&mut self, unit: usize, last: bool) {
        for (sharded, elements) in self.parameters(unit).into_iter().enumerate() {
            if elements > 0 {
                self.buckets[sharded].elements += elements;
                self.buckets[sharded].after.extend_from_slice(&self.gradients[unit]);
                let whole = self.buckets[sharded].elements * self.of.dtype.1 >= self.of.bucket_bytes;
                if whole || self.of.zero == 3 {
                    self.reduce(sharded, last);
                }
            }
        }
    }

    /// Adds the gradients in a bucket over the ranks that hold the same parameters.
    fn reduce(&mut self, sharded: usize, last: bool) {
        let Bucket { elements, after } = std::mem::take(&mut self.buckets[sharded]);
        if elements == 0 {
            return;
        }
        let (role, degree) = (SHARDED[sharded], self.degree(sharded));
        let done = if self.of.zero == 0 {
            self.call("gradients", Collective::AllReduce, role, elements, after)
        } else {
            self.call("gradients", Collective::ReduceScatter, role, elements.div_ceil(degree) * degree, after)
        };
        self.reduced.extend(done);
        if last {
            self.sizes.push((sharded, elements));
        }
    }

    fn optimize(&mut self) {
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
        if matches!(self.of.zero, 1 | 2) {
            for (sharded, elements) in std::mem::take(&mut self.sizes) {
                self.gather_parameters(sharded, elements, &done);
            }
        }
    }

    fn push(&mut self, name: &str, work: Work, after: &[u64]) -> Vec<u64> {
        self.job.push(NodeBuilder::new(self.id, name).work(work).after(after));
        self.id += 1;
        vec![self.id - 1]
    }

    fn compute(&mut self, name: &str, cost: Cost, after: &[u64]) -> Vec<u64> {
        self.push(name, Work::Compute(Kernel::new(cost.operations, cost.bytes)), after)
    }

    /// A gradient of parameters, which is added to that of the micro-batch before.
    fn gradient(&mut self, unit: usize, name: &str, cost: Cost, after: &[u64]) -> Vec<u64> {
        let mut after = after.to_vec();
        after.extend(self.gradients[unit].get(self.fresh.len()));
        let made = self.compute(name, cost, &after);
        self.fresh.extend(&made);
        made
    }

    /// A collective of `elements` elements; nothing in a group of one.
    fn call(&mut self, name: &str, collective: Collective, role: Role, elements: u64, after: Vec<u64>) -> Vec<u64> {
        let sums = matches!(collective, Collective::AllReduce | Collective::ReduceScatter);
        let (dtype, bytes) = self.of.dtype.clone();
        self.call_of(name, collective, role, (dtype, elements * bytes), sums.then_some("sum"), after)
    }

    fn call_of(
        &mut self,
        name: &str,
        collective: Collective,
        role: Role,
        (dtype, bytes): (Box<str>, u64),
        op: Option<&str>,
        after: Vec<u64>,
    ) -> Vec<u64> {
        let Some(group) = self.groups[role as usize] else { return after };
        let group = self.job.group(group);
        let op = op.map(Into::into);
        let spec = CallSpec {
            collective,
            group,
            bytes,
            sends: None,
            receives: None,
            through: None,
            dtype: Some(dtype),
            op,
            root: None,
            dimensions: None,
        };
        let work = self.job.call_of(spec);
        self.push(name, work, &after)
    }

    /// Before a product that is cut by columns: every rank needs all tokens.
    fn spread(&mut self, name: &str, share: u64, after: Vec<u64>) -> Vec<u64> {
        if !self.of.sequence_parallel {
            return after;
        }
        self.call(name, Collective::AllGather, Role::Tensor, share, after)
    }

    /// Behind a product that is cut by rows: the parts are added.
    fn joined(&mut self, name: &str, share: u64, after: Vec<u64>) -> Vec<u64> {
        if !self.of.sequence_parallel {
            return self.call(name, Collective::AllReduce, Role::Tensor, share, after);
        }
        self.call(name, Collective::ReduceScatter, Role::Tensor, share * self.of.tensor, after)
    }

    /// A number per token, over the parts of the vocabulary.
    fn over_words(&mut self, name: &str, op: &str, after: Vec<u64>) -> Vec<u64> {
        let size = ("f32".into(), 4 * self.of.tokens());
        self.call_of(name, Collective::AllReduce, Role::Tensor, size, Some(op), after)
    }

    /// Tokens go to their experts, or come back.
    fn exchanged(&mut self, name: &str, share: u64, after: Vec<u64>) -> Vec<u64> {
        self.call(name, Collective::AllToAll, Role::Expert, share, after)
    }

    fn message(&mut self, peer: u32, tag: u64) -> MessageSpec {
        let bytes = self.of.shard() * self.of.hidden * self.of.dtype.1;
        MessageSpec { peer: self.job.peer(peer), group: None, bytes, tag: tag as u32 }
    }

    /// What a pass begins with: the end of the pass before, and the message of another stage. The receive stands ready
    /// one pass ahead.
    fn received(&mut self, from: Option<u32>, tag: u64) -> Vec<u64> {
        let mut at = self.ends.last().cloned().unwrap_or_default();
        if let Some(peer) = from {
            let spec = self.message(peer, tag);
            let ready = self.ends.len().checked_sub(2).map(|pass| self.ends[pass].clone()).unwrap_or_default();
            at.extend(self.push("receive", Work::Recv(spec), &ready));
        }
        at
    }

    fn sent(&mut self, to: Option<u32>, tag: u64, after: &[u64]) {
        if let Some(peer) = to {
            let spec = self.message(peer, tag);
            self.push("send", Work::Send(spec), after);
        }
    }
}
