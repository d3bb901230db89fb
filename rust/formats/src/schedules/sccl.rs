//! SCCL and TACCL: the algorithm objects that msccl-tools and TACCL store as JSON.
//!
//! `{"msccl_type": "algorithm", "name", "collective": {"name", "nodes", "chunks": [{"pre", "post", "addr"}]}, "steps":
//! [{"rounds", "sends": [[addr, src, dst, ...]]}]}`. Source: `msccl/serialization.py` of msccl-tools and
//! `taccl/serialization.py`; TACCL's sends have a time and a path behind the three numbers. Sends of a step are at once:
//! they read what was there before it. Chunks of one address are reduced when they meet.

use super::malformed;
use super::moves::{Item, Move, Moves};
use crate::scan::scan;
use ahbm_findings::Diagnostic;
use ahbm_plan::{Budget, Limit};
use ahbm_program::Locus;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;

#[derive(Deserialize)]
struct Algorithm {
    #[serde(default)]
    name: String,
    collective: Conditions,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Conditions {
    nodes: u32,
    chunks: Vec<Chunk>,
}

#[derive(Deserialize)]
struct Chunk {
    pre: Vec<u32>,
    post: Vec<u32>,
    addr: u32,
}

#[derive(Deserialize)]
struct Step {
    sends: Vec<Vec<Value>>,
}

/// By item and rank, the ranks whose chunks it holds of the item's address, a bit each.
type Held = FxHashMap<(u32, u32), Box<[u64]>>;

/// A set of one rank.
fn only(rank: u32, ranks: u32) -> Box<[u64]> {
    let mut set = vec![0; ranks.div_ceil(64) as usize];
    set[rank as usize / 64] = 1 << (rank % 64);
    set.into()
}

pub(super) fn read(bytes: &[u8], file: &str, budget: &Budget) -> Result<Moves, Diagnostic> {
    scan(bytes, budget)?;
    let algorithm: Algorithm = serde_json::from_slice(bytes)
        .map_err(|error| malformed(file, format_args!(":{}", error.line()), format!("no SCCL algorithm: {error}")))?;
    let ranks = algorithm.collective.nodes;
    budget.check(Limit::Ranks, ranks.into())?;
    let (items, number, mut held) = conditions(&algorithm.collective, file)?;
    budget.check(Limit::Steps, items.len() as u64 * u64::from(ranks))?;
    let (mut list, mut places) = (Vec::new(), Vec::new());
    for (index, step) in algorithm.steps.iter().enumerate() {
        let first = list.len();
        for (place, send) in step.sends.iter().enumerate() {
            let pointer = format!("/steps/{index}/sends/{place}");
            let bad = |what: String| malformed(file, format_args!("#{pointer}"), what);
            let numbers = |at: usize| send.get(at).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
            let (Some(addr), Some(from), Some(to)) = (numbers(0), numbers(1), numbers(2)) else {
                return Err(bad("a send is an address, a source and a destination".into()));
            };
            let (Some(&item), true) = (number.get(&addr), from.max(to) < ranks && from != to) else {
                return Err(bad(format!("there is no address {addr}, or no link from {from} to {to}")));
            };
            places.push(Locus::Pointer(pointer.into()));
            list.push(Move {
                item,
                from,
                to,
                adds: false,
                copied: false,
                at: index as u64,
                place: places.len() as u32 - 1,
            });
        }
        budget.check(Limit::Steps, list.len() as u64)?;
        follow(&mut list[first..], &mut held, file, &places)?;
        in_order(&mut list, first);
    }
    let name = if algorithm.name.is_empty() { "sccl".to_owned() } else { algorithm.name };
    Ok(Moves { name, ranks, items, list, places, named: None, warnings: Vec::new() })
}

/// The item of an address.
type Numbers = FxHashMap<u32, u32>;

/// The items by address, and who holds what at the start.
fn conditions(given: &Conditions, file: &str) -> Result<(Vec<Item>, Numbers, Held), Diagnostic> {
    let (mut items, mut number, mut held): (Vec<Item>, Numbers, Held) = Default::default();
    for (index, chunk) in given.chunks.iter().enumerate() {
        let bad = |what: &str| malformed(file, format_args!("#/collective/chunks/{index}"), what);
        if chunk.pre.iter().chain(&chunk.post).any(|&rank| rank >= given.nodes) {
            return Err(bad("a chunk of a rank that there is not"));
        }
        let [owner] = chunk.pre[..] else { return Err(bad("a chunk starts at one rank")) };
        let mut post = chunk.post.clone();
        post.sort_unstable();
        post.dedup();
        let item = *number.entry(chunk.addr).or_insert_with(|| {
            items.push(Item { owners: Vec::new(), takers: post.clone() });
            items.len() as u32 - 1
        });
        let of = &mut items[item as usize];
        if of.takers != post {
            return Err(Diagnostic::new("AHBM-U295", "chunks of one address that different ranks are to have")
                .site("chunk", format!("{file}#/collective/chunks/{index}"))
                .hint("a prefix is no collective of plans"));
        }
        if of.owners.contains(&owner) {
            return Err(bad("two chunks of one rank at one address"));
        }
        of.owners.push(owner);
        held.insert((item, owner), only(owner, given.nodes));
    }
    items.iter_mut().for_each(|item| item.owners.sort_unstable());
    Ok((items, number, held))
}

/// Finds out which sends of a step add, and what everybody has after it.
fn follow(step: &mut [Move], held: &mut Held, file: &str, places: &[Locus]) -> Result<(), Diagnostic> {
    let mut after = Vec::with_capacity(step.len());
    for one in step.iter() {
        let Some(sent) = held.get(&(one.item, one.from)) else {
            let what = format!("rank {} sends to {} what it does not have", one.from, one.to);
            return Err(Diagnostic::new("AHBM-F181", what).site("send", place(file, &places[one.place as usize])));
        };
        after.push(((one.item, one.to), sent.clone()));
    }
    for (one, (key, sent)) in step.iter_mut().zip(after) {
        let own = held.entry(key).or_insert_with(|| vec![0; sent.len()].into());
        // What a rank has is replaced by what includes it, and added to what is apart from it.
        if own.iter().zip(&sent).all(|(own, sent)| own & !sent == 0) {
            *own = sent;
        } else if own.iter().zip(&sent).any(|(own, sent)| own & sent != 0) {
            let what = format!("rank {} gets from {} what is partly in its own sum already", one.to, one.from);
            return Err(Diagnostic::new("AHBM-F181", what).site("send", place(file, &places[one.place as usize])));
        } else {
            one.adds = true;
            own.iter_mut().zip(&sent).for_each(|(own, sent)| *own |= sent);
        }
    }
    Ok(())
}

/// Orders the moves of a step so that each reads before another writes. Where ranks exchange an address, one of them
/// copies what it has before the step, and sends the copy.
fn in_order(list: &mut Vec<Move>, first: usize) {
    let mut step = list.split_off(first);
    let mut readers: FxHashMap<(u32, u32), Vec<usize>> = FxHashMap::default();
    for (index, one) in step.iter().enumerate() {
        readers.entry((one.item, one.from)).or_default().push(index);
    }
    let mut writers: FxHashMap<(u32, u32), Vec<usize>> = FxHashMap::default();
    let (mut ready, mut waiting) = (Vec::new(), BTreeSet::new());
    for (index, one) in step.iter().enumerate().rev() {
        if readers.contains_key(&(one.item, one.to)) {
            writers.entry((one.item, one.to)).or_default().push(index);
            waiting.insert(index);
        } else {
            ready.push(index);
        }
    }
    loop {
        while let Some(index) = ready.pop() {
            waiting.remove(&index);
            list.push(step[index]);
            let key = (step[index].item, step[index].from);
            let left = readers.entry(key).or_default();
            left.retain(|&reader| reader != index);
            if left.is_empty() {
                ready.extend(writers.remove(&key).unwrap_or_default());
            }
        }
        let Some(&stuck) = waiting.first() else { return };
        let Move { item, to: from, at, .. } = step[stuck];
        for reader in readers.remove(&(item, from)).unwrap_or_default() {
            step[reader].copied = true;
        }
        list.push(Move { item, from, to: from, adds: false, copied: false, at, place: step[stuck].place });
        ready.extend(writers.remove(&(item, from)).unwrap_or_default());
    }
}

fn place(file: &str, locus: &Locus) -> String {
    ahbm_program::Origin { file: file.into(), locus: locus.clone() }.to_string()
}
