//! The graph of a pipeline stage: every pass of every micro-batch, and what keeps data-parallel ranks alike.

use super::costs::{Block, Parameters, Product};
use super::order::Pass;
use super::{Recompute, Role, Transformer};
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
    units: Vec<Unit>,
    /// Per chunk the first of its units, and the end.
    chunks: Vec<(usize, usize)>,
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
    pub(super) fn new(of: &'a Transformer, stage: u32, file: String, groups: [Option<u32>; Role::COUNT]) -> Self {
        let stage = u64::from(stage);
        let (mut units, mut chunks) = (Vec::new(), Vec::new());
        let own = (stage..).step_by(of.pipeline as usize);
        let layers = of.chunks();
        for (first, count) in own.map_while(|at| layers.get(at as usize)) {
            let begin = units.len();
            units.extend((chunks.is_empty() && stage == 0).then_some(Unit::Embedding));
            units.extend((*first..first + count).map(Unit::Layer));
            let last = chunks.len() as u64 + 1 == of.virtual_stages && stage + 1 == of.pipeline;
            units.extend(last.then_some(Unit::Head));
            chunks.push((begin, units.len()));
        }
        Self {
            job: RankBuilder::new((stage * of.members()) as u32, file),
            of,
            stage,
            groups,
            chunks,
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
        let of = self.of;
        for pass in of.schedule.passes(self.stage, of.pipeline, of.virtual_stages, of.micro_batches) {
            match pass {
                Pass::Forward { chunk, micro } => self.forward(chunk, micro),
                Pass::Backward { chunk, micro } => self.backward(chunk, micro),
            }
        }
        self.optimize();
        self.job.finish(false)
    }

    /// Whom the activations of a chunk come from, and the chunk that they come into.
    fn before(&self, chunk: u64) -> Option<(u32, u64)> {
        let stage = if self.stage > 0 { self.stage - 1 } else { self.of.pipeline - 1 };
        (self.stage > 0 || chunk > 0).then(|| ((stage * self.of.members()) as u32, chunk))
    }

    /// To whom they go, and the chunk that they go into there.
    fn behind(&self, chunk: u64) -> Option<(u32, u64)> {
        let (stage, into) = if self.stage + 1 < self.of.pipeline { (self.stage + 1, chunk) } else { (0, chunk + 1) };
        (into < self.of.virtual_stages).then(|| ((stage * self.of.members()) as u32, into))
    }

    /// A number of a border between chunks for a micro-batch.
    fn border(&self, of: Option<(u32, u64)>, micro: u64) -> Option<(u32, u64)> {
        of.map(|(peer, into)| (peer, micro * self.of.virtual_stages + into))
    }

    fn forward(&mut self, chunk: u64, micro: u64) {
        let from = self.border(self.before(chunk), micro);
        let mut at = self.received(from.map(|(peer, at)| (peer, 2 * at)));
        let (first, end) = self.chunks[chunk as usize];
        for unit in first..end {
            at = self.with_parameters(unit, at);
            at = self.unit_forward(self.units[unit], at);
            self.uses.push(at.clone());
        }
        let to = self.border(self.behind(chunk), micro);
        self.sent(to.map(|(peer, at)| (peer, 2 * at)), &at);
        self.ends.push(at);
    }

    fn backward(&mut self, chunk: u64, micro: u64) {
        let from = self.border(self.behind(chunk), micro);
        let mut at = self.received(from.map(|(peer, at)| (peer, 2 * at + 1)));
        let last = micro + 1 == self.of.micro_batches;
        let (first, end) = self.chunks[chunk as usize];
        for unit in (first..end).rev() {
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
        let to = self.border(self.before(chunk), micro);
        self.sent(to.map(|(peer, at)| (peer, 2 * at + 1)), &at);
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
                let at = self.compute("head.logits", of.logits().forward, &at);
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
            at = self.compute(&name("router"), router.forward, &at);
            at = self.exchanged(&name("dispatch"), block.share, at);
        }
        at = self.spread(&name("input"), block.share, at);
        at = self.compute(&name(block.column.0), block.column.1.forward, &at);
        for middle in &block.middle {
            at = self.around(&name(middle.name), middle.forward, block.ring, at);
        }
        at = self.compute(&name(block.row.0), block.row.1.forward, &at);
        at = self.joined(&name("output"), block.share, at);
        if block.router.is_some() {
            at = self.exchanged(&name("combine"), block.share, at);
        }
        if let Some([residual, _]) = self.of.residual() {
            at = self.compute(&name("residual"), residual, &at);
        }
        at
    }

    /// A kernel; among context-parallel ranks with the keys and values of each, which go on while it computes.
    fn around(&mut self, name: &str, kernel: Kernel, elements: u64, at: Vec<u64>) -> Vec<u64> {
        let context = self.of.context;
        if context == 1 || elements == 0 {
            return self.compute(name, kernel, &at);
        }
        let place = |c: u64| (self.stage * self.of.members() + c * self.of.tensor) as u32;
        let (next, previous) = (place(1), place(context - 1));
        let bytes = elements * self.of.dtype.1;
        let (mut here, mut done) = (at.clone(), at);
        for step in 0..context {
            let mut coming = Vec::new();
            if step + 1 < context {
                let spec = MessageSpec { peer: self.job.peer(next), group: None, bytes, tag: 0 };
                self.push("ring.send", Work::Send(spec), &here);
                let spec = MessageSpec { peer: self.job.peer(previous), group: None, bytes, tag: 0 };
                coming = self.push("ring.receive", Work::Recv(spec), &here);
            }
            let mut after = done;
            after.extend(&here);
            done = self.compute(name, kernel, &after);
            here = coming;
        }
        done
    }

    fn layer_backward(&mut self, unit: usize, layer: u64, at: Vec<u64>) -> Vec<u64> {
        let name = format!("layer{layer}");
        let full = self.of.recompute == Recompute::Full && self.again(unit);
        let at = if full { self.unit_forward(self.units[unit], at) } else { at };
        let at = self.block_backward(unit, &name, &self.of.feed_forward(), at);
        self.block_backward(unit, &name, &self.of.attention(), at)
    }

    /// Whether a layer is one of those that are computed again.
    fn again(&self, unit: usize) -> bool {
        let layers = self.units[..unit].iter().filter(|unit| matches!(unit, Unit::Layer(_))).count() as u64;
        self.of.recompute_layers == 0 || layers < self.of.recompute_layers
    }

    fn block_backward(&mut self, unit: usize, layer: &str, block: &Block, at: Vec<u64>) -> Vec<u64> {
        let name = |what: &str| format!("{layer}.{}.{what}", block.name);
        let mut at = at;
        if let Some([_, residual]) = self.of.residual() {
            at = self.compute(&name("residual.backward"), residual, &at);
        }
        if block.router.is_some() {
            at = self.exchanged(&name("combine.backward"), block.share, at);
        }
        // What was given to the columns was not kept, and is gathered again (Korthikanti et al., section 4.2.2).
        let input = self.spread(&name("input.again"), block.share, at.clone());
        at = self.spread(&name("output.backward"), block.share, at);
        let given = at.clone();
        let (row, Product { input: to_input, weight, .. }) = block.row;
        at = self.compute(&name(&format!("{row}.dgrad")), to_input, &at);
        self.gradient(unit, &name(&format!("{row}.wgrad")), weight, &given);
        if block.again && self.again(unit) {
            for middle in &block.middle {
                at = self.compute(&name(&format!("{}.again", middle.name)), middle.forward, &at);
            }
        }
        for middle in block.middle.iter().rev() {
            for kernel in &middle.backward {
                // Keys and values, and their gradients.
                at = self.around(&name(&format!("{}.backward", middle.name)), *kernel, 2 * block.ring, at);
            }
        }
        let mut known = at.clone();
        known.extend(input);
        let (column, Product { input: to_input, weight, .. }) = block.column;
        at = self.compute(&name(&format!("{column}.dgrad")), to_input, &at);
        at = self.joined(&name("input.backward"), block.share, at);
        self.gradient(unit, &name(&format!("{column}.wgrad")), weight, &known);
        if let Some(router) = block.router {
            at = self.exchanged(&name("dispatch.backward"), block.share, at);
            at = self.gradient(unit, &name("router.backward"), router.backward(), &at);
        }
        self.gradient(unit, &name("norm.backward"), self.of.norm_backward(), &at)
    }

    fn embedding_backward(&mut self, unit: usize, at: Vec<u64>) -> Vec<u64> {
        let at = self.spread("embedding.backward", self.of.shard() * self.of.hidden, at);
        self.gradient(unit, "embedding.wgrad", self.of.lookup_backward(), &at)
    }

    fn head_backward(&mut self, unit: usize, at: Vec<u64>) -> Vec<u64> {
        let (of, share) = (self.of, self.of.shard() * self.of.hidden);
        let mut known = at.clone();
        known.extend(self.spread("head.input.again", share, at.clone()));
        let at = self.compute("head.logits.dgrad", of.logits().input, &at);
        let at = self.joined("head.input.backward", share, at);
        self.gradient(unit, "head.logits.wgrad", of.logits().weight, &known);
        self.gradient(unit, "head.norm.backward", of.norm_backward(), &at)
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
        [self.of.data * self.of.context, self.of.data / self.of.expert][sharded]
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

    fn compute(&mut self, name: &str, kernel: Kernel, after: &[u64]) -> Vec<u64> {
        self.push(name, Work::Compute(kernel), after)
    }

    /// A gradient of parameters, which is added to that of the micro-batch before.
    fn gradient(&mut self, unit: usize, name: &str, kernel: Kernel, after: &[u64]) -> Vec<u64> {
        let mut after = after.to_vec();
        after.extend(self.gradients[unit].get(self.fresh.len()));
        let made = self.compute(name, kernel, &after);
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
    fn received(&mut self, from: Option<(u32, u64)>) -> Vec<u64> {
        let mut at = self.ends.last().cloned().unwrap_or_default();
        if let Some((peer, tag)) = from {
            let spec = self.message(peer, tag);
            let ready = self.ends.len().checked_sub(2).map(|pass| self.ends[pass].clone()).unwrap_or_default();
            at.extend(self.push("receive", Work::Recv(spec), &ready));
        }
        at
    }

    fn sent(&mut self, to: Option<(u32, u64)>, after: &[u64]) {
        if let Some((peer, tag)) = to {
            let spec = self.message(peer, tag);
            self.push("send", Work::Send(spec), after);
        }
    }
}
