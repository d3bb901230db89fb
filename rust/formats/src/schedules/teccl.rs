//! TE-CCL: `"8-Chunk paths"`, a path of hops for every demand.
//!
//! A key is `Demand at D for chunk C from S met by epoch K`; its value lists `A->B in epoch E` with, maybe, `with volume
//! V` and `via switches X->Y`, as text or as a pair of epoch and text. Source: outputs that microsoft/TE-CCL publishes
//! under `teccl/examples/experiments/output_provided`. Numbers of nodes count switches too: the GPUs among them are the
//! ranks, in order.

use super::malformed;
use super::moves::{Item, Move, Moves};
use crate::scan::scan;
use ahbm_findings::Diagnostic;
use ahbm_plan::{Budget, Goal, Limit};
use ahbm_program::Locus;
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "0-Collective", default)]
    collective: Option<String>,
    #[serde(rename = "8-Chunk paths")]
    paths: IndexMap<String, Vec<Path>, FxBuildHasher>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Path {
    Hop(String),
    Timed(IgnoredAny, String),
    Several(Vec<Path>),
}

pub(super) fn read(bytes: &[u8], file: &str, budget: &Budget) -> Result<Moves, Diagnostic> {
    scan(bytes, budget)?;
    let document: Document = serde_json::from_slice(bytes)
        .map_err(|error| malformed(file, format_args!(":{}", error.line()), format!("no TE-CCL schedule: {error}")))?;
    // (source, chunk) -> destinations; (source, chunk, from, to) -> epoch and place.
    let mut demands: BTreeMap<(u32, u32), BTreeSet<u32>> = BTreeMap::new();
    let mut hops: BTreeMap<(u32, u32, u32, u32), (u64, u32)> = BTreeMap::new();
    let mut places = Vec::with_capacity(document.paths.len());
    for (place, (key, paths)) in (0u32..).zip(&document.paths) {
        let pointer = format!("#/8-Chunk paths/{key}");
        let bad = |what: String| malformed(file, &pointer, what);
        let [to, chunk, from, _] = between(key, ["Demand at ", " for chunk ", " from ", " met by epoch "])
            .ok_or_else(|| bad(format!("{key:?} is no demand")))?;
        demands.entry((from, chunk)).or_default().insert(to);
        let mut open: Vec<&Path> = paths.iter().collect();
        while let Some(path) = open.pop() {
            let text = match path {
                Path::Several(paths) => {
                    open.extend(paths);
                    continue;
                }
                Path::Hop(text) | Path::Timed(_, text) => text,
            };
            let (a, b, epoch) = hop(text).ok_or_else(|| bad(format!("{text:?} is no hop")))?;
            if text.contains(" with volume ") && !whole(text) {
                let what = format!("{text:?}: a part of a chunk; plans move whole chunks");
                return Err(Diagnostic::new("AHBM-U295", what).site("schedule", format!("{file}{pointer}")));
            }
            let known = hops.entry((from, chunk, a, b)).or_insert((epoch, place));
            if epoch < known.0 {
                *known = (epoch, place);
            }
        }
        places.push(Locus::Pointer(pointer.trim_start_matches('#').into()));
        budget.check(Limit::Steps, hops.len() as u64)?;
    }
    let mut nodes: BTreeSet<u32> =
        demands.iter().flat_map(|(&(from, _), to)| to.iter().copied().chain([from])).collect();
    nodes.extend(hops.keys().flat_map(|&(_, _, a, b)| [a, b]));
    budget.check(Limit::Ranks, nodes.len() as u64)?;
    let rank: BTreeMap<u32, u32> = nodes.iter().copied().zip(0..).collect();
    let mut numbers: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    let mut items = Vec::with_capacity(demands.len());
    for (&(from, chunk), takers) in &demands {
        numbers.insert((from, chunk), items.len() as u32);
        // The owner of a piece has it: its own copy is demanded of nobody.
        items.push(Item { owners: vec![rank[&from]], takers: takers.iter().map(|to| rank[to]).collect() });
    }
    budget.check(Limit::Steps, items.len() as u64 * nodes.len() as u64)?;
    let mut list: Vec<Move> = Vec::with_capacity(hops.len());
    for (&(from, chunk, a, b), &(at, place)) in &hops {
        let item = numbers[&(from, chunk)];
        list.push(Move { item, from: rank[&a], to: rank[&b], adds: false, copied: false, at, place });
    }
    list.sort_by_key(|one| (one.at, one.item, one.from, one.to));
    causal(&list, &items, &nodes, file)?;
    let named = document.collective.and_then(|name| Goal::parse(&name).collective());
    Ok(Moves { name: "teccl".into(), ranks: nodes.len() as u32, items, list, places, named, warnings: Vec::new() })
}

/// Every hop starts where the piece is.
fn causal(list: &[Move], items: &[Item], nodes: &BTreeSet<u32>, file: &str) -> Result<(), Diagnostic> {
    let ranks = nodes.len();
    let mut has = vec![false; ranks * items.len()];
    (0..).zip(items).for_each(|(item, of): (usize, _)| has[item * ranks + of.owners[0] as usize] = true);
    for one in list {
        let base = one.item as usize * ranks;
        if !has[base + one.from as usize] {
            let node = |rank: u32| nodes.iter().nth(rank as usize).copied().unwrap_or(rank);
            let (from, to) = (node(one.from), node(one.to));
            let what = format!("GPU {from} sends to {to} in epoch {} what it does not have", one.at);
            return Err(Diagnostic::new("AHBM-F181", what).site("schedule", file));
        }
        has[base + one.to as usize] = true;
    }
    Ok(())
}

/// The numbers behind each of the words.
fn between<const N: usize>(text: &str, words: [&str; N]) -> Option<[u32; N]> {
    let mut rest = text;
    let mut found = [0; N];
    for (word, number) in words.into_iter().zip(&mut found) {
        rest = rest.strip_prefix(word)?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        *number = rest[..end].parse().ok()?;
        rest = &rest[end..];
    }
    rest.is_empty().then_some(found)
}

/// Both ends and the epoch of a hop.
fn hop(text: &str) -> Option<(u32, u32, u64)> {
    let (ends, rest) = text.split_once(' ')?;
    let (a, b) = ends.split_once("->")?;
    let epoch = rest.split_once("in epoch ")?.1;
    let end = epoch.find(|c: char| !c.is_ascii_digit()).unwrap_or(epoch.len());
    Some((a.parse().ok()?, b.parse().ok()?, epoch[..end].parse().ok()?))
}

/// Whether a stated volume is that of a chunk, but for rounding.
fn whole(text: &str) -> bool {
    let volume = text.split_once(" with volume ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
    volume.is_some_and(|volume| (volume - 1.0).abs() < 1e-6)
}
