//! Calls along some dimensions of a network, as ASTRA-sim's traces name them (`involved_dim`).
//!
//! Only calls of all ranks have dimensions: the ranks of a named group are its own, whatever its nodes say.

use crate::graph::Graph;
use crate::node::CallSpec;
use crate::workload::{Group, Workload};
use ahbm_findings::Diagnostic;
use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::sync::Arc;

/// Of dimensions with so many NPUs, those that take part in a call. One of a single NPU does, as that says the same.
fn involved(flags: &[bool], npus: &[u32]) -> Vec<bool> {
    npus.iter().enumerate().map(|(at, &count)| count == 1 || flags.get(at).copied().unwrap_or(true)).collect()
}

/// The first of the ranks that differ from a rank in the dimensions that take part alone; the first dimension varies
/// fastest.
fn first(rank: u32, involved: &[bool], npus: &[u32]) -> u32 {
    let (mut first, mut stride) = (rank, 1);
    for (&count, &takes) in npus.iter().zip(involved) {
        if takes {
            first -= rank / stride % count * stride;
        }
        stride *= count;
    }
    first
}

/// "dimensions 0 and 2".
fn named(involved: &[bool]) -> String {
    let taking: Vec<String> =
        (0..).zip(involved).filter(|(_, takes)| **takes).map(|(at, _): (u32, _)| at.to_string()).collect();
    match &taking[..] {
        [] => "no dimension".into(),
        [only] => format!("dimension {only}"),
        [before @ .., last] => format!("dimensions {} and {last}", before.join(", ")),
    }
}

/// Adds the groups of ranks that differ in the dimensions that take part alone, in the order of their first ranks; gives
/// their positions by these.
fn slices(involved: &[bool], npus: &[u32], ranks: u32, groups: &mut Vec<Group>) -> FxHashMap<u32, u32> {
    let name: Arc<str> = named(involved).into();
    let mut lists: IndexMap<u32, Vec<u32>, FxBuildHasher> = IndexMap::default();
    for rank in 0..ranks {
        lists.entry(first(rank, involved, npus)).or_default().push(rank);
    }
    let places = (groups.len() as u32..).zip(lists.keys()).map(|(group, &first)| (first, group)).collect();
    groups.extend(lists.into_values().map(|ranks| Group { name: Arc::clone(&name), ranks: ranks.into() }));
    places
}

impl Workload {
    /// The job on a network with so many NPUs per dimension: a call along some of them is one call for every group of
    /// ranks that differ in these alone. Nothing changes where the network has another number of NPUs than ranks.
    pub fn on_network(&self, npus: &[u32]) -> Self {
        let mut job = self.clone();
        if npus.iter().map(|&count| u64::from(count)).product::<u64>() != self.ranks.len() as u64 {
            return job;
        }
        // Slices of one group in the same dimensions are the same groups on all ranks.
        let mut known: FxHashMap<(u32, Vec<bool>), FxHashMap<u32, u32>> = FxHashMap::default();
        let mut graphs: IndexMap<(u32, Vec<CallSpec>), Graph, FxBuildHasher> = IndexMap::default();
        for (rank, bound) in (0..).zip(&mut job.ranks) {
            let from = &self.graphs[bound.graph as usize];
            let mut specs: Vec<CallSpec> = from.specs().iter().cloned().collect();
            let mut slots = bound.groups.to_vec();
            for spec in &mut specs {
                let group = bound.groups[spec.group as usize];
                let flags = spec.dimensions.take().filter(|_| self.is_anonymous(group));
                let Some(involved) = flags.map(|flags| involved(&flags, npus)).filter(|all| all.contains(&false))
                else {
                    continue;
                };
                let key = (group, involved);
                let place = first(rank, &key.1, npus);
                let made = known.entry(key).or_insert_with_key(|(_, involved)| {
                    slices(involved, npus, self.ranks.len() as u32, &mut job.groups)
                });
                let slot = slots.iter().position(|&slot| slot == made[&place]).unwrap_or(slots.len());
                if slot == slots.len() {
                    slots.push(made[&place]);
                }
                spec.group = slot as u32;
            }
            bound.groups = slots.into();
            let entry = graphs.entry((bound.graph, specs));
            bound.graph = entry.index() as u32;
            entry.or_insert_with_key(
                |(_, specs)| {
                    if from.specs().iter().eq(specs) { from.clone() } else { from.with_specs(specs) }
                },
            );
        }
        job.graphs = graphs.into_values().collect();
        job
    }

    /// A warning (`AHBM-U238`) for calls along some dimensions of a network, where there is none: they are of all ranks.
    pub fn without_dimensions(&self) -> Option<Diagnostic> {
        let mut told = vec![false; self.graphs.len()];
        let (mut nodes, mut example) = (0u64, None);
        for (rank, bound) in (0..).zip(&self.ranks) {
            let graph = &self.graphs[bound.graph as usize];
            if std::mem::replace(&mut told[bound.graph as usize], true) {
                continue;
            }
            for at in 0..graph.nodes().len() as u32 {
                let Some(spec) = graph.spec(at) else { continue };
                let some = spec.dimensions.as_ref().is_some_and(|flags| flags.contains(&false));
                if some && self.is_anonymous(bound.groups[spec.group as usize]) {
                    nodes += 1;
                    example = example.or(Some((rank, at, spec)));
                }
            }
        }
        let (rank, at, spec) = example?;
        let flags = spec.dimensions.as_deref().unwrap_or_default();
        let others = match nodes - 1 {
            0 => String::new(),
            1 => ", and 1 other node".into(),
            more => format!(", and {more} other nodes"),
        };
        let what = format!(
            "involved_dim of {} is {flags:?}{others}: without a network it runs among all ranks",
            spec.collective.name()
        );
        let finding = Diagnostic::new("AHBM-U238", what).site(self.label(rank, at), self.origin(rank, at));
        Some(finding.hint("ahbm astra takes the network's dimensions from its file"))
    }

    /// Whether a group is that of all ranks, which no node names.
    fn is_anonymous(&self, group: u32) -> bool {
        let group = &self.groups[group as usize];
        matches!(&*group.name, "" | "0") && group.ranks.len() == self.ranks.len()
    }
}
