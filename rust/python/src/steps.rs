//! The numbers of a generated step, as Python hands them over.

use ahbm_workload::{Arithmetic, Recompute, Schedule, Transformer};
use std::collections::HashMap;

/// A schedule by its name, or what is wrong with the name.
pub(crate) fn schedule(name: &str) -> Result<Schedule, String> {
    let known = Schedule::ALL.into_iter().find(|known| known.name() == name);
    known.ok_or_else(|| format!("schedule {name:?} is none of {}", Schedule::ALL.map(Schedule::name).join(", ")))
}

/// A transformer of its numbers, its element type, and what is said in words; or what is wrong with them.
pub(crate) fn transformer(
    mut sizes: HashMap<String, u64>,
    dtype: (String, u64),
    words: &HashMap<String, String>,
) -> Result<Transformer, String> {
    let word = |name: &str| words.get(name).map_or("", String::as_str);
    let none = |name: &str, known: &[&str]| format!("{name} {:?} is none of {}", word(name), known.join(", "));
    let schedule = schedule(word("schedule"))?;
    let recompute = Recompute::ALL.into_iter().find(|known| known.name() == word("recompute"));
    let recompute = recompute.ok_or_else(|| none("recompute", &Recompute::ALL.map(Recompute::name)))?;
    let arithmetic = Arithmetic::named(word("arithmetic"));
    let arithmetic = arithmetic.ok_or_else(|| none("arithmetic", &Arithmetic::ALL.map(Arithmetic::name)))?;
    let mut take = |name: &str| sizes.remove(name).ok_or_else(|| format!("{name} is missing"));
    let made = Transformer {
        layers: take("layers")?,
        hidden: take("hidden")?,
        heads: take("heads")?,
        kv_heads: take("kv_heads")?,
        ffn: take("ffn")?,
        gated: take("gated")? != 0,
        sequence: take("sequence")?,
        vocabulary: take("vocabulary")?,
        micro_batch: take("micro_batch")?,
        micro_batches: take("micro_batches")?,
        dtype: (dtype.0.into(), dtype.1),
        arithmetic,
        tensor: take("tp")?,
        context: take("cp")?,
        pipeline: take("pp")?,
        virtual_stages: take("virtual_stages")?,
        end_layers: take("end_layers")?,
        data: take("dp")?,
        expert: take("ep")?,
        experts: take("experts")?,
        top_k: take("top_k")?,
        skew: take("skew")?,
        schedule,
        zero: take("zero")?,
        shard: take("shard")?,
        prefetch: take("prefetch")? != 0,
        sequence_parallel: take("sequence_parallel")? != 0,
        recompute,
        recompute_layers: take("recompute_layers")?,
        materialized: take("materialized")? != 0,
        unfused: take("unfused")? != 0,
        bucket_bytes: take("bucket_bytes")?,
    };
    if let Some(unknown) = sizes.keys().min() {
        return Err(format!("{unknown} is no number of a transformer"));
    }
    Ok(made)
}
