//! One training step of a transformer as a workload: a generator of jobs from a few numbers.
//!
//! Ranks are numbered as Megatron-LM numbers them: tensor-parallel neighbours first, then data-parallel, then pipeline
//! stages, `rank = t + tensor * (d + data * p)`. Ranks of one stage share their graph. Every computation states
//! operations and bytes and no duration.
//!
//! Sources: Narayanan et al., *Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM* (SC 2021);
//! Korthikanti et al., *Reducing Activation Recomputation in Large Transformer Models* (MLSys 2023); Rajbhandari et al.,
//! *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models* (SC 2020).

mod costs;
mod order;
mod shards;
mod stage;

pub use order::Schedule;

use crate::kernel::Arithmetic;
use crate::one;
use crate::workload::{Gather, Groups, Workload};
use ahbm_findings::Diagnostic;
use stage::Stage;

/// A transformer, how a step of its training is cut, and how its state is sharded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transformer {
    /// Layers of all stages.
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Attention heads.
    pub heads: u64,
    /// Heads of keys and values, each of which several heads of queries share.
    pub kv_heads: u64,
    /// Width between the two products of the feed-forward part, of one expert where there are experts.
    pub ffn: u64,
    /// The first of the two products has twice the columns: one half is the gate of the other.
    pub gated: bool,
    /// Tokens of a sequence.
    pub sequence: u64,
    /// Tokens that exist; each tensor-parallel rank has an equal part of them, rounded up.
    pub vocabulary: u64,
    /// Sequences of a micro-batch.
    pub micro_batch: u64,
    /// Micro-batches of a step and data-parallel rank.
    pub micro_batches: u64,
    /// Element type of parameters, activations and gradients, and its bytes.
    pub dtype: (Box<str>, u64),
    /// The type that products are computed in.
    pub arithmetic: Arithmetic,
    /// Tensor-parallel ranks.
    pub tensor: u64,
    /// Context-parallel ranks, each of which has a part of every sequence; keys and values go around them in a ring.
    pub context: u64,
    /// Pipeline stages.
    pub pipeline: u64,
    /// Chunks of layers of a pipeline rank, which stand apart (interleaved).
    pub virtual_stages: u64,
    /// Layers that the embedding, and the head, count as where layers are divided over stages.
    pub end_layers: u64,
    /// Data-parallel ranks.
    pub data: u64,
    /// Expert-parallel ranks, out of the data-parallel ones.
    pub expert: u64,
    /// Experts of a layer; 0 for a dense model.
    pub experts: u64,
    /// Experts that a token visits.
    pub top_k: u64,
    /// What the first of the expert-parallel ranks gets of the tokens, in percent of an even share; the others share the
    /// rest.
    pub skew: u64,
    /// Order of micro-batches in a stage.
    pub schedule: Schedule,
    /// What data-parallel ranks shard: 0 nothing, 1 optimizer states, 2 also gradients, 3 also parameters.
    pub zero: u64,
    /// Data-parallel ranks that shard among themselves; others have the same shards, and gradients are added over them
    /// (hybrid sharding). 0 for all.
    pub shard: u64,
    /// Parameters that an optimizer of shards has updated are gathered while the first micro-batch of the next step
    /// computes, and not behind the optimizer.
    pub prefetch: bool,
    /// Norms work on parts of the sequence; all_gather and reduce_scatter take the place of all_reduce.
    pub sequence_parallel: bool,
    /// What is computed again in the backward pass.
    pub recompute: Recompute,
    /// Of a rank so many layers are computed again, the first ones; 0 for all.
    pub recompute_layers: u64,
    /// The scores of attention lie in memory: products, softmax and dropout are kernels of their own.
    pub materialized: bool,
    /// Activations, and residuals with dropout, are kernels of their own.
    pub unfused: bool,
    /// Gradients that are reduced together, at least; of stages 0 to 2.
    pub bucket_bytes: u64,
}

/// What a layer does not keep for its backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Recompute {
    /// All is kept.
    None,
    /// What lies between the products of attention is not (Korthikanti et al.); a fused attention never keeps it.
    Selective,
    /// Nothing but its input is.
    Full,
}

impl Recompute {
    /// Each.
    pub const ALL: [Self; 3] = [Self::None, Self::Selective, Self::Full];

    /// As the field writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Selective => "selective",
            Self::Full => "full",
        }
    }
}

/// Ranks that a job may have.
const MAX_RANKS: u128 = 1 << 17;
/// Bound on layers times micro-batches: each takes at most about 60 nodes, held once per stage.
const MAX_HELD: u128 = 1 << 17;
/// The same over all ranks.
const MAX_PLACES: u128 = 1 << 24;
/// No count of operations or bytes may reach this.
const MAX_COUNT: u128 = 1 << 62;

impl Transformer {
    /// The step as a job called `name`.
    ///
    /// # Errors
    /// `AHBM-C157` numbers out of range, that do not divide each other as they must, or that make too large a job; all of
    /// them at once.
    pub fn workload(&self, name: &str) -> Result<Workload, Vec<Diagnostic>> {
        self.check()?;
        let (tensor, context) = (self.tensor as u32, self.context as u32);
        let members = self.members() as u32;
        let mut gather = Gather::new(name, members * self.pipeline as u32, Groups::default());
        for stage in 0..self.pipeline as u32 {
            let bound = self.groups(&mut gather, stage)?;
            let lead = stage * members;
            let file = |rank: u32| format!("{name} rank {rank}");
            for offset in 0..members {
                // The first rank of the stage that does the same.
                let first = tensor * u32::from(self.is_skewed() && offset / tensor % self.expert as u32 > 0);
                if offset == first {
                    gather.add(Stage::new(self, stage, offset, file(lead + offset), bound(offset)).finish()?);
                    continue;
                }
                let (of, own) = (bound(first), bound(offset));
                let group =
                    |known: u32| own[of.iter().position(|&role| role == Some(known)).unwrap_or(0)].unwrap_or(known);
                // Of the own stage only neighbours in the ring of context-parallel ranks are peers.
                let peer = |peer: u32| {
                    if !(lead..lead + members).contains(&peer) {
                        return peer + offset - first;
                    }
                    let (t, c, d) = (offset % tensor, offset / tensor % context, offset / tensor / context);
                    lead + t + tensor * ((c + (peer - lead) / tensor) % context + context * d)
                };
                gather.add_like(lead + first, file(lead + offset), group, peer);
            }
        }
        Ok(gather.finish())
    }

    /// Whether expert-parallel ranks get different numbers of tokens.
    fn is_skewed(&self) -> bool {
        self.experts > 0 && self.expert > 1 && self.skew > 100
    }

    /// Whether some data-parallel ranks shard, and others have the same shards.
    fn is_hybrid(&self) -> bool {
        self.zero > 0 && self.shard > 0 && self.shard < self.data * self.context
    }

    /// Ranks of a pipeline stage.
    fn members(&self) -> u64 {
        self.tensor * self.context * self.data
    }

    /// First layer and number of layers of each chunk, in the order of the model.
    fn chunks(&self) -> Vec<(u64, u64)> {
        let count = self.pipeline * self.virtual_stages;
        let all = self.layers + 2 * self.end_layers;
        let mut first = 0;
        let chunk = |at: u64| {
            let mut layers = all / count + u64::from(at < all % count);
            for end in [0, count - 1] {
                layers = if at == end { layers.saturating_sub(self.end_layers) } else { layers };
            }
            first += layers;
            (first - layers, layers)
        };
        (0..count).map(chunk).collect()
    }

    /// Makes the groups of a stage; the answer gives those of a rank by its position in the stage, by [`Role`].
    fn groups(
        &self,
        gather: &mut Gather,
        stage: u32,
    ) -> Result<impl Fn(u32) -> [Option<u32>; Role::COUNT] + use<>, Vec<Diagnostic>> {
        // Context-parallel ranks have the same parameters, too.
        let (tensor, data, expert) = (self.tensor as u32, (self.data * self.context) as u32, self.expert as u32);
        let hybrid = self.is_hybrid();
        let shard = if hybrid { self.shard as u32 } else { data };
        let first = stage * tensor * data;
        let mut made: [Vec<u32>; Role::COUNT] = Default::default();
        for role in Role::ALL {
            let (size, count) = match role {
                Role::Tensor => (tensor, data),
                Role::Data => (data, tensor),
                Role::Shard => (shard, tensor * data / shard),
                Role::Replica => (data / shard, tensor * shard),
                Role::Expert => (expert, tensor * data / expert),
                Role::ExpertData => (data / expert, tensor * expert),
            };
            // Without experts, their groups are nobody's.
            let of_experts = matches!(role, Role::Expert | Role::ExpertData);
            let of_shards = matches!(role, Role::Shard | Role::Replica);
            let nobodys = (of_experts && self.experts == 0) || of_shards != hybrid && (of_shards || role == Role::Data);
            if size == 1 || nobodys {
                continue;
            }
            for at in 0..count {
                let (t, block) = (at % tensor, at / tensor);
                let member = |i: u32| match role {
                    Role::Tensor => at * tensor + i,
                    Role::Data => at + i * tensor,
                    Role::Shard => t + tensor * (block * shard + i),
                    Role::Replica => t + tensor * (block + i * shard),
                    Role::Expert => t + tensor * (block * expert + i),
                    Role::ExpertData => t + tensor * (block + i * expert),
                };
                let ranks: Vec<u32> = (0..size).map(|i| first + member(i)).collect();
                let name = format!("{}{}", role.name(), stage * count + at);
                made[role as usize].push(gather.group(ranks[0], &name, Some(ranks), String::new)?);
            }
        }
        Ok(move |offset: u32| {
            let (t, d) = (offset % tensor, offset / tensor);
            let at = |role: Role| match role {
                Role::Tensor => d,
                Role::Data => t,
                Role::Shard => t + tensor * (d / shard),
                Role::Replica => t + tensor * (d % shard),
                Role::Expert => t + tensor * (d / expert),
                Role::ExpertData => t + tensor * (d % expert),
            };
            Role::ALL.map(|role| made[role as usize].get(at(role) as usize).copied())
        })
    }

    fn check(&self) -> Result<(), Vec<Diagnostic>> {
        let wrong = |what: String| Diagnostic::new("AHBM-C157", what);
        let routed = self.experts > 0;
        let ranges = [
            ("layers", self.layers, 1, 1 << 16),
            ("hidden", self.hidden, 1, 1 << 20),
            ("heads", self.heads, 1, 1 << 16),
            ("kv_heads", self.kv_heads, 1, 1 << 16),
            ("ffn", self.ffn, 1, 1 << 24),
            ("sequence", self.sequence, 1, 1 << 24),
            ("vocabulary", self.vocabulary, 1, 1 << 24),
            ("micro_batch", self.micro_batch, 1, 1 << 16),
            ("micro_batches", self.micro_batches, 1, 1 << 16),
            ("tp", self.tensor, 1, 1 << 16),
            ("cp", self.context, 1, 1 << 16),
            ("pp", self.pipeline, 1, 1 << 16),
            ("virtual_stages", self.virtual_stages, 1, 1 << 16),
            ("end_layers", self.end_layers, 0, 1 << 16),
            ("recompute_layers", self.recompute_layers, 0, 1 << 16),
            ("dp", self.data, 1, 1 << 16),
            ("ep", self.expert, 1, 1 << 16),
            ("experts", self.experts, 0, 1 << 16),
            ("skew in percent", self.skew, 100, 100 * self.expert.max(1)),
            ("top_k", self.top_k, 1, if routed { self.experts } else { 1 << 16 }),
            ("zero", self.zero, 0, 3),
            ("shard", self.shard, 0, 1 << 16),
            ("bucket_bytes", self.bucket_bytes, 1, 1 << 40),
            ("bytes of dtype", self.dtype.1, 1, 8),
        ];
        let outside = |&&(_, value, least, most): &&(&str, u64, u64, u64)| !(least..=most).contains(&value);
        let told = |&(name, value, least, most): &(&str, u64, u64, u64)| {
            wrong(format!("{name} is {value}, it goes from {least} to {most}"))
        };
        let mut findings: Vec<Diagnostic> = ranges.iter().filter(outside).map(told).collect();
        if !findings.is_empty() {
            return Err(findings);
        }
        let mut divides = vec![
            ("tp", self.tensor, "heads", self.heads),
            ("heads", self.heads, "hidden", self.hidden),
            ("tp", self.tensor, "ffn", self.ffn),
            ("ep", self.expert, "dp", self.data),
        ];
        if self.kv_heads != self.heads {
            divides.push(("tp", self.tensor, "kv_heads", self.kv_heads));
            divides.push(("kv_heads", self.kv_heads, "heads", self.heads));
        }
        divides.extend((self.context > 1).then_some(("cp", self.context, "sequence", self.sequence)));
        if self.sequence_parallel {
            divides.push(("tp", self.tensor, "sequence", self.sequence / self.context));
        }
        let chunks = self.pipeline.saturating_mul(self.virtual_stages);
        if self.end_layers == 0 {
            let name = if self.virtual_stages > 1 { "pp times virtual_stages" } else { "pp" };
            divides.insert(0, (name, chunks, "layers", self.layers));
        }
        let misfit = self.schedule.misfit(self.pipeline, self.virtual_stages, self.micro_batches);
        findings.extend(misfit.map(wrong));
        if self.virtual_stages > 1 && !self.schedule.is_v() {
            divides.push(("pp", self.pipeline, "micro_batches", self.micro_batches));
        }
        if self.context > 1 && (self.materialized || routed) {
            findings.push(wrong("cp above 1 needs a fused attention, and a model without experts".into()));
        }
        if self.shard > 0 {
            divides.push(("shard", self.shard, "dp times cp", self.data * self.context));
            if self.zero == 0 || routed {
                findings.push(wrong("shard needs zero above 0, and a model without experts".into()));
            }
        }
        if self.prefetch && !matches!(self.zero, 1 | 2) {
            findings.push(wrong(format!("prefetch needs zero of 1 or 2, and zero is {}", self.zero)));
        }
        if routed {
            divides.push(("ep", self.expert, "experts", self.experts));
        } else if self.expert > 1 {
            findings.push(wrong(format!("ep is {}, but there are no experts", self.expert)));
        }
        for (name, by, other, number) in divides {
            if number % by != 0 {
                findings.push(wrong(format!("{name} is {by}, which does not divide {other}, {number}")));
            }
        }
        if routed && self.tensor > 1 && !self.sequence_parallel {
            let what = "experts with tp above 1 need sequence_parallel: else tp ranks would send the same tokens";
            findings.push(wrong(what.into()));
        }
        if !findings.is_empty() {
            return Err(findings);
        }
        let wide = u128::from;
        let few = |&(_, layers): &(u64, u64)| layers == 0 && self.end_layers > 0;
        if u128::from(chunks) > wide(self.layers) + 2 * wide(self.end_layers)
            || self.chunks().iter().filter(|c| few(c)).count() > 2
        {
            return Err(one(wrong(format!("{} layers are too few for {chunks} chunks of layers", self.layers))));
        }
        let ranks = wide(self.tensor) * wide(self.pipeline) * wide(self.data) * wide(self.context);
        if ranks > MAX_RANKS {
            return Err(one(wrong(format!("{ranks} ranks, at most {MAX_RANKS}"))));
        }
        let held = wide(self.layers) * wide(self.micro_batches);
        if held > MAX_HELD {
            let what = format!("{held} layers times micro_batches, at most {MAX_HELD}");
            return Err(one(wrong(what).hint("a step repeats: fewer micro-batches show the same")));
        }
        let places = held * ranks / wide(self.pipeline);
        if places > MAX_PLACES {
            let what = format!("{places} layers times micro_batches over all ranks, at most {MAX_PLACES}");
            return Err(one(wrong(what).hint("a step repeats: fewer micro-batches show the same")));
        }
        let width = wide(self.sequence)
            + wide(4 * self.hidden)
            + wide(self.ffn) * wide(self.top_k)
            + wide(self.vocabulary)
            + wide(self.experts);
        let tokens = wide(self.micro_batch) * wide(self.sequence);
        let matrices = wide(4 * self.hidden) + wide(2 * self.ffn) * wide(self.experts.max(1)) + wide(self.experts);
        let parameters = wide(self.hidden + 1)
            * (wide(self.layers) * (matrices + 16) + wide(2 * self.vocabulary + self.sequence) + 16);
        // The largest numbers are operations of a backward pass and bytes of an optimizer.
        if tokens * width * wide(self.hidden) * 64 > MAX_COUNT || parameters * 64 > MAX_COUNT {
            let what = format!("{tokens} tokens of a micro-batch and {parameters} parameters are too many to count");
            return Err(one(wrong(what)));
        }
        Ok(())
    }
}

/// What the ranks of a group have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Each has a part of every matrix.
    Tensor,
    /// Each has the same parameters and other sequences.
    Data,
    /// Of those, each has another shard.
    Shard,
    /// Of those, each has the same shard.
    Replica,
    /// Each has other experts of a layer.
    Expert,
    /// Each has the same experts and other tokens.
    ExpertData,
}

impl Role {
    const COUNT: usize = 6;
    const ALL: [Self; Self::COUNT] =
        [Self::Tensor, Self::Data, Self::Shard, Self::Replica, Self::Expert, Self::ExpertData];

    const fn name(self) -> &'static str {
        match self {
            Self::Tensor => "tp",
            Self::Data => "dp",
            Self::Shard => "shard",
            Self::Replica => "replica",
            Self::Expert => "ep",
            Self::ExpertData => "edp",
        }
    }
}
