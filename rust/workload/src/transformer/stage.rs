//! The graph of a pipeline stage: every pass of every micro-batch, and what keeps data-parallel ranks alike.

use super::costs::{Block, Product, SHARDED};
use super::order::{Pass, Turn};
use super::{Recompute, Role, Transformer};
use crate::Kernel;
use crate::build::{NodeBuilder, RankBuilder, RankGraph};
use crate::node::{CallSpec, Collective, MessageSpec, Work};
use ahbm_findings::Diagnostic;

/// What is gathered and reduced as one where parameters are sharded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Embedding,
    Layer(u64),
    Head,
}

/// Gradients that wait to be reduced.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    pub(super) elements: u64,
    pub(super) after: Vec<u64>,
}

/// A gradient of weights that is computed later than that of its input.
#[derive(Debug)]
struct Left {
    turn: Turn,
    unit: usize,
    name: String,
    kernel: Kernel,
    after: Vec<u64>,
}

pub(super) struct Stage<'a> {
    pub(super) of: &'a Transformer,
    stage: u64,
    /// The rank's position in the stage.
    offset: u64,
    /// The rank's position among the expert-parallel ones.
    expert: u64,
    job: RankBuilder,
    groups: [Option<u32>; Role::COUNT],
    pub(super) units: Vec<Unit>,
    /// Per chunk the first of its units, and the end.
    chunks: Vec<(usize, usize)>,
    /// Id of the node that is made next.
    id: u64,
    /// Ends of the passes so far.
    pub(super) ends: Vec<Vec<u64>>,
    /// Ends of the uses of units so far.
    pub(super) uses: Vec<Vec<u64>>,
    /// Per unit the last gradients of its parameters, those that a backward pass goes through and those of weights:
    /// later ones are added to them.
    pub(super) gradients: Vec<[Vec<u64>; 2]>,
    /// Gradients of the unit of this pass.
    fresh: [Vec<u64>; 2],
    /// Per unit what has to be there before its parameters are used first.
    pub(super) prefetched: Vec<Vec<u64>>,
    /// The pass that leaves gradients of weights, and what was left so far.
    leaves: Option<Turn>,
    left: Vec<Left>,
    pub(super) buckets: [Bucket; SHARDED],
    /// What the optimizer waits for.
    pub(super) reduced: Vec<u64>,
    /// Kind and elements of the buckets that were reduced in the last pass.
    pub(super) sizes: Vec<(usize, u64)>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        of: &'a Transformer,
        stage: u32,
        offset: u32,
        file: String,
        groups: [Option<u32>; Role::COUNT],
    ) -> Self {
        let (stage, offset) = (u64::from(stage), u64::from(offset));
        let (mut units, mut chunks) = (Vec::new(), Vec::new());
        let layers = of.chunks();
        for chunk in 0..of.virtual_stages {
            let place = of.schedule.place(stage, of.pipeline, chunk) as usize;
            let Some(&(first, count)) = layers.get(place) else { break };
            let begin = units.len();
            units.extend((place == 0).then_some(Unit::Embedding));
            units.extend((first..first + count).map(Unit::Layer));
            units.extend((place + 1 == layers.len()).then_some(Unit::Head));
            chunks.push((begin, units.len()));
        }
        Self {
            job: RankBuilder::new((stage * of.members() + offset) as u32, file),
            offset,
            expert: offset / of.tensor % of.expert,
            of,
            stage,
            groups,
            chunks,
            gradients: vec![Default::default(); units.len()],
            prefetched: vec![Vec::new(); units.len()],
            units,
            id: 0,
            ends: Vec::new(),
            uses: Vec::new(),
            fresh: Default::default(),
            leaves: None,
            left: Vec::new(),
            buckets: Default::default(),
            reduced: Vec::new(),
            sizes: Vec::new(),
        }
    }

    pub(super) fn finish(mut self) -> Result<RankGraph, Vec<Diagnostic>> {
        let of = self.of;
        if of.prefetch {
            self.prefetch();
        }
        for pass in of.schedule.passes(self.stage, of.pipeline, of.virtual_stages, of.micro_batches) {
            let ends = match pass {
                Pass::Forward(turn) => self.forward(turn),
                Pass::Backward(turn) => self.backward(turn),
                Pass::Inputs(turn) => {
                    self.leaves = Some(turn);
                    let ends = self.backward(turn);
                    self.leaves = None;
                    ends
                }
                Pass::Weights(turn) => self.weights(turn),
                Pass::Both(forward, backward) => {
                    let mut ends = self.forward(forward);
                    ends.extend(self.backward(backward));
                    ends
                }
            };
            self.ends.push(ends);
        }
        self.optimize();
        self.job.finish(false)
    }

    /// Whom the activations of a chunk come from, and the chunk that they come into.
    fn before(&self, chunk: u64) -> Option<(u32, u64)> {
        let place = self.of.schedule.place(self.stage, self.of.pipeline, chunk);
        let (stage, _) = self.of.schedule.at(place.checked_sub(1)?, self.of.pipeline);
        (stage != self.stage).then(|| (self.lead(stage), chunk))
    }

    /// To whom they go, and the chunk that they go into there.
    fn behind(&self, chunk: u64) -> Option<(u32, u64)> {
        let place = self.of.schedule.place(self.stage, self.of.pipeline, chunk) + 1;
        let (stage, into) = self.of.schedule.at(place, self.of.pipeline);
        let other = stage != self.stage && into < self.of.virtual_stages;
        other.then(|| (self.lead(stage), into))
    }

    /// The rank at the own position of a stage.
    fn lead(&self, stage: u64) -> u32 {
        (stage * self.of.members() + self.offset) as u32
    }

    /// A number of a border between chunks for a micro-batch.
    fn border(&self, of: Option<(u32, u64)>, micro: u64) -> Option<(u32, u64)> {
        of.map(|(peer, into)| (peer, micro * self.of.virtual_stages + into))
    }

    fn forward(&mut self, Turn { chunk, micro }: Turn) -> Vec<u64> {
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
        at
    }

    fn backward(&mut self, Turn { chunk, micro }: Turn) -> Vec<u64> {
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
            self.added(unit, last);
        }
        if self.leaves.is_none() {
            self.reduce_all(last);
        }
        let to = self.border(self.before(chunk), micro);
        self.sent(to.map(|(peer, at)| (peer, 2 * at + 1)), &at);
        at
    }

    /// The gradients of weights that a pass has left, one after the other.
    fn weights(&mut self, turn: Turn) -> Vec<u64> {
        let left = std::mem::take(&mut self.left);
        let (mine, others): (Vec<Left>, _) = left.into_iter().partition(|left| left.turn == turn);
        self.left = others;
        let last = turn.micro + 1 == self.of.micro_batches;
        let mut at = self.ends.last().cloned().unwrap_or_default();
        let (first, end) = self.chunks[turn.chunk as usize];
        let mut mine = mine.into_iter().peekable();
        for unit in (first..end).rev() {
            while let Some(Left { name, kernel, mut after, .. }) = mine.next_if(|left| left.unit == unit) {
                after.extend(at);
                at = self.weight(unit, &name, kernel, &after);
            }
            self.added(unit, last);
        }
        self.reduce_all(last);
        at
    }

    /// What a pass has computed of the gradients of a unit's parameters is theirs.
    fn added(&mut self, unit: usize, last: bool) {
        for (known, fresh) in self.gradients[unit].iter_mut().zip(&mut self.fresh) {
            if !fresh.is_empty() {
                *known = std::mem::take(fresh);
            }
        }
        if self.leaves.is_none() && (last || self.of.zero >= 2) {
            self.fill(unit, last);
        }
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
                self.block_forward(&name, &of.feed_forward(self.expert), at)
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
            at = self.exchanged(&name("dispatch"), block.sent, true, at);
        }
        at = self.spread(&name("input"), block.share, at);
        at = self.compute(&name(block.column.0), block.column.1.forward, &at);
        for middle in &block.middle {
            at = self.around(&name(middle.name), middle.forward, block.ring, at);
        }
        at = self.compute(&name(block.row.0), block.row.1.forward, &at);
        at = self.joined(&name("output"), block.share, at);
        if block.router.is_some() {
            at = self.exchanged(&name("combine"), block.sent, false, at);
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
        let at = self.block_backward(unit, &name, &self.of.feed_forward(self.expert), at);
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
            at = self.exchanged(&name("combine.backward"), block.sent, true, at);
        }
        // What was given to the columns was not kept, and is gathered again (Korthikanti et al., section 4.2.2).
        let input = self.spread(&name("input.again"), block.share, at.clone());
        at = self.spread(&name("output.backward"), block.share, at);
        let given = at.clone();
        let (row, Product { input: to_input, weight, .. }) = block.row;
        at = self.compute(&name(&format!("{row}.dgrad")), to_input, &at);
        self.weight(unit, &name(&format!("{row}.wgrad")), weight, &given);
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
        self.weight(unit, &name(&format!("{column}.wgrad")), weight, &known);
        if let Some(router) = block.router {
            at = self.exchanged(&name("dispatch.backward"), block.sent, false, at);
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
        self.weight(unit, "head.logits.wgrad", of.logits().weight, &known);
        self.gradient(unit, "head.norm.backward", of.norm_backward(), &at)
    }

    fn push(&mut self, name: &str, work: Work, after: &[u64]) -> Vec<u64> {
        self.job.push(NodeBuilder::new(self.id, name).work(work).after(after));
        self.id += 1;
        vec![self.id - 1]
    }

    pub(super) fn compute(&mut self, name: &str, kernel: Kernel, after: &[u64]) -> Vec<u64> {
        self.push(name, Work::Compute(kernel), after)
    }

    /// A gradient of parameters that is one of the input, too.
    fn gradient(&mut self, unit: usize, name: &str, kernel: Kernel, after: &[u64]) -> Vec<u64> {
        self.summed(0, unit, name, kernel, after)
    }

    /// A gradient of weights, which the backward pass need not wait for; nothing in a pass that leaves it.
    fn weight(&mut self, unit: usize, name: &str, kernel: Kernel, after: &[u64]) -> Vec<u64> {
        if let Some(turn) = self.leaves {
            self.left.push(Left { turn, unit, name: name.into(), kernel, after: after.to_vec() });
            return Vec::new();
        }
        self.summed(1, unit, name, kernel, after)
    }

    /// A gradient of parameters, which is added to that of the micro-batch before.
    fn summed(&mut self, kind: usize, unit: usize, name: &str, kernel: Kernel, after: &[u64]) -> Vec<u64> {
        let mut after = after.to_vec();
        after.extend(self.gradients[unit][kind].get(self.fresh[kind].len()));
        let made = self.compute(name, kernel, &after);
        self.fresh[kind].extend(&made);
        made
    }

    /// A collective of `elements` elements; nothing in a group of one.
    pub(super) fn call(
        &mut self,
        name: &str,
        collective: Collective,
        role: Role,
        elements: u64,
        after: Vec<u64>,
    ) -> Vec<u64> {
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
        let spec = CallSpec { bytes, dtype: Some(dtype), op: op.map(Into::into), ..CallSpec::new(collective, 0) };
        self.say(name, role, spec, after)
    }

    /// A call in the group of a role; nothing in a group of one.
    fn say(&mut self, name: &str, role: Role, mut spec: CallSpec, after: Vec<u64>) -> Vec<u64> {
        let Some(group) = self.groups[role as usize] else { return after };
        spec.group = self.job.group(group);
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
    fn exchanged(&mut self, name: &str, sent: u64, out: bool, after: Vec<u64>) -> Vec<u64> {
        if !self.of.is_skewed() {
            return self.call(name, Collective::AllToAll, Role::Expert, sent, after);
        }
        let routes: Vec<u64> = self.of.routes().into_iter().map(|rows| rows * self.of.hidden).collect();
        let own = vec![routes[self.expert as usize]; routes.len()];
        let (sends, receives) = if out { (routes, own) } else { (own, routes) };
        let (dtype, element) = self.of.dtype.clone();
        let spec = CallSpec {
            bytes: sends.iter().sum::<u64>() * element,
            sends: Some(sends.into()),
            receives: Some(receives.into()),
            dtype: Some(dtype),
            ..CallSpec::new(Collective::AllToAll, 0)
        };
        self.say(name, Role::Expert, spec, after)
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
