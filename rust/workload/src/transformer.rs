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
mod stage;

pub use order::Schedule;

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
    /// Width between the two products of the feed-forward part, of one expert where there are experts.
    pub ffn: u64,
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
    /// Tensor-parallel ranks.
    pub tensor: u64,
    /// Pipeline stages.
    pub pipeline: u64,
    /// Data-parallel ranks.
    pub data: u64,
    /// Expert-parallel ranks, out of the data-parallel ones.
    pub expert: u64,
    /// Experts of a layer; 0 for a dense model.
    pub experts: u64,
    /// Experts that a token visits.
    pub top_k: u64,
    /// Order of micro-batches in a stage.
    pub schedule: Schedule,
    /// What data-parallel ranks shard: 0 nothing, 1 optimizer states, 2 also gradients, 3 also parameters.
    pub zero: u64,
    /// Norms work on parts of the sequence; all_gather and reduce_scatter take the place of all_reduce.
    pub sequence_parallel: bool,
    /// The backward pass of a layer begins with its forward pass.
    pub recompute: bool,
    /// Gradients that are reduced together, at least; of stages 0 to 2.
    pub bucket_bytes: u64,
}

/// Ranks that a job may have.
const MAX_RANKS: u128 = 1 << 16;
/// Bound on layers times micro-batches: each takes at most about 60 nodes, held once per stage.
const MAX_HELD: u128 = 1 << 17;
/// The same over all ranks.
const MAX_PLACES: u128 = 1 << 22;
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
        let (tensor, data) = (self.tensor as u32, self.data as u32);
        let mut gather = Gather::new(name, tensor * data * self.pipeline as u32, Groups::default());
        for stage in 0..self.pipeline as u32 {
            let bound = self.groups(&mut gather, stage)?;
            let lead = stage * tensor * data;
            let neighbour = |by: i64| u32::try_from(i64::from(lead) + by * i64::from(tensor * data)).ok();
            let previous = neighbour(-1);
            let next = neighbour(1).filter(|&rank| rank < gather.size());
            let file = |rank: u32| format!("{name} rank {rank}");
            gather.add(Stage::new(self, stage, file(lead), bound(0), previous, next).finish()?);
            for offset in 1..tensor * data {
                let (of, own) = (bound(0), bound(offset));
                let group =
                    |known: u32| own[of.iter().position(|&role| role == Some(known)).unwrap_or(0)].unwrap_or(known);
                gather.add_like(lead, file(lead + offset), group, |peer| peer + offset);
            }
        }
        Ok(gather.finish())
    }

    /// Makes the groups of a stage; the answer gives those of a rank by its position in the stage, by [`Role`].
    fn groups(
        &self,
        gather: &mut Gather,
        stage: u32,
    ) -> Result<impl Fn(u32) -> [Option<u32>; Role::COUNT] + use<>, Vec<Diagnostic>> {
        let (tensor, data, expert) = (self.tensor as u32, self.data as u32, self.expert as u32);
        let first = stage * tensor * data;
        let mut made: [Vec<u32>; Role::COUNT] = Default::default();
        for role in Role::ALL {
            let (size, count) = match role {
                Role::Tensor => (tensor, data),
                Role::Data => (data, tensor),
                Role::Expert => (expert, tensor * data / expert),
                Role::ExpertData => (data / expert, tensor * expert),
            };
            // Without experts, their groups are nobody's.
            let of_experts = matches!(role, Role::Expert | Role::ExpertData);
            if size == 1 || (of_experts && self.experts == 0) {
                continue;
            }
            for at in 0..count {
                let (t, block) = (at % tensor, at / tensor);
                let member = |i: u32| match role {
                    Role::Tensor => at * tensor + i,
                    Role::Data => at + i * tensor,
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
            ("ffn", self.ffn, 1, 1 << 24),
            ("sequence", self.sequence, 1, 1 << 24),
            ("vocabulary", self.vocabulary, 1, 1 << 24),
            ("micro_batch", self.micro_batch, 1, 1 << 16),
            ("micro_batches", self.micro_batches, 1, 1 << 16),
            ("tp", self.tensor, 1, 1 << 16),
            ("pp", self.pipeline, 1, 1 << 16),
            ("dp", self.data, 1, 1 << 16),
            ("ep", self.expert, 1, 1 << 16),
            ("experts", self.experts, 0, 1 << 16),
            ("top_k", self.top_k, 1, if routed { self.experts } else { 1 << 16 }),
            ("zero", self.zero, 0, 3),
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
            ("pp", self.pipeline, "layers", self.layers),
            ("tp", self.tensor, "heads", self.heads),
            ("heads", self.heads, "hidden", self.hidden),
            ("tp", self.tensor, "ffn", self.ffn),
            ("ep", self.expert, "dp", self.data),
        ];
        if self.sequence_parallel {
            divides.push(("tp", self.tensor, "sequence", self.sequence));
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
        let ranks = wide(self.tensor) * wide(self.pipeline) * wide(self.data);
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
    /// Each has other experts of a layer.
    Expert,
    /// Each has the same experts and other tokens.
    ExpertData,
}

impl Role {
    const COUNT: usize = 4;
    const ALL: [Self; Self::COUNT] = [Self::Tensor, Self::Data, Self::Expert, Self::ExpertData];

    const fn name(self) -> &'static str {
        match self {
            Self::Tensor => "tp",
            Self::Data => "dp",
            Self::Expert => "ep",
            Self::ExpertData => "edp",
        }
    }
}
