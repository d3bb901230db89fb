//! Which nodes of different ranks are one collective, and whether they agree.
//!
//! The n-th collective node of a process group, in the order of the graph, is the same call on every rank of the group.

use crate::copies::Copies;
use crate::node::{CallSpec, Collective, Work};
use crate::one;
use crate::shares::Shares;
use crate::workload::{Group, Workload};
use ahbm_findings::Diagnostic;
use std::sync::Arc;

/// A collective operation of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Position of its group.
    pub group: u32,
    /// What is performed, as the first rank states it; of unequal shares the largest bytes. It has a root only where the
    /// collective has.
    pub spec: CallSpec,
    /// What the ranks have for each other, where that is stated and not the same.
    pub shares: Option<Shares>,
    /// Most elements that a rank has for one, where ranks say how an all_to_all is split.
    pub longest: Option<u64>,
    /// Ranks of an all_to_all state other bytes or longest chunks, and not how much each has for each.
    pub uneven: bool,
    /// Per rank of the group, in the group's order, the position of its node.
    pub nodes: Box<[u32]>,
    /// The call of the same group before it.
    pub after: Option<u32>,
}

/// Rank and node position.
type Place = (u32, u32);

/// The definition of a collective, for whoever has it wrong.
const ONE_CALL: &str = "the n-th collective node of a group is one call on all of its ranks";

/// Most ranks that a finding lists.
const LISTED: usize = 8;

impl Workload {
    /// The collectives, group by group in the order of first use, those of a group in their order.
    ///
    /// # Errors
    /// `AHBM-F149` a collective that ranks of its group lack or disagree on, with every way in which they do.
    pub fn calls(&self) -> Result<Vec<Call>, Vec<Diagnostic>> {
        self.calls_of(None)
    }

    /// Those in which a rank that leads has a part; all of them without copies. Errors as of [`Workload::calls`].
    pub(crate) fn calls_of(&self, copies: Option<Copies>) -> Result<Vec<Call>, Vec<Diagnostic>> {
        let mut calls = Vec::new();
        let sequences = self.sequences();
        let mut kept = vec![copies.is_none(); self.groups.len()];
        for (_, bound) in (0..).zip(&self.ranks).filter(|(rank, _)| copies.is_some_and(|copies| copies.leads(*rank))) {
            bound.groups.iter().for_each(|&group| kept[group as usize] = true);
        }
        let members = self.members(&sequences, &kept);
        for (group, members) in (0..).zip(&members) {
            let first = calls.len() as u32;
            let ranks = &self.groups[group as usize].ranks;
            let most = members.iter().map(|sequence| sequence.len()).max().unwrap_or(0);
            for number in 0..most {
                let at = |member: usize| members[member].get(number).copied();
                let Some(lead) = (0..ranks.len()).find(|&member| at(member).is_some()) else { continue };
                let spec = |member: usize| at(member).and_then(|node| self.graph(ranks[member]).spec(node));
                let Some(mut joined) = spec(lead).cloned() else { continue };
                let graph_of = |member: usize| self.ranks[ranks[member] as usize].graph;
                let (mut alike, mut uneven, mut longest) = (lead, false, joined.longest());
                for member in lead..ranks.len() {
                    // Ranks of one graph at one node say the same.
                    if member != lead && graph_of(member) == graph_of(alike) && at(member) == at(alike) {
                        continue;
                    }
                    alike = member;
                    match spec(member) {
                        Some(other) if joined.agrees(other) => {
                            uneven |= (joined.bytes, longest) != (other.bytes, other.longest());
                            joined.bytes = joined.bytes.max(other.bytes);
                            longest = longest.max(other.longest());
                        }
                        _ => return Err(self.disagreement(group, number, members)),
                    }
                }
                if at(0).is_none() {
                    return Err(self.disagreement(group, number, members));
                }
                let parts: Vec<&CallSpec> = (0..ranks.len()).filter_map(spec).collect();
                let shares = Shares::of(&parts);
                if uneven && joined.collective == Collective::AllGather && !whole(&parts) {
                    return Err(self.disagreement(group, number, members));
                }
                uneven &= shares.is_none() && joined.collective == Collective::AllToAll;
                longest = shares.as_ref().map(Shares::longest).or(longest);
                joined.collective = joined.collective.performed();
                joined.root = joined.root.filter(|_| joined.collective.is_rooted());
                let after = (calls.len() as u32 > first).then(|| calls.len() as u32 - 1);
                let nodes = (0..ranks.len()).filter_map(at).collect();
                calls.push(Call { group, spec: joined, shares, longest, uneven, nodes, after });
            }
        }
        Ok(calls)
    }

    /// Finds a root that is not in the group of its call (`AHBM-F136`).
    pub(crate) fn check_roots(&self, calls: &[Call]) -> Result<(), Vec<Diagnostic>> {
        for call in calls {
            let ranks = &self.groups[call.group as usize].ranks;
            let Some(root) = call.spec.root.filter(|root| !ranks.contains(root)) else { continue };
            let what = format!("attribute root is {root}, which is not in the group of {}", named(ranks));
            let (rank, node) = (ranks[0], call.nodes[0]);
            let finding = Diagnostic::new("AHBM-F136", what).site(self.label(rank, node), self.origin(rank, node));
            return Err(one(finding.hint("the root is a rank of the job, not a place in the group")));
        }
        Ok(())
    }

    /// Per graph and group slot, the collective nodes in order.
    fn sequences(&self) -> Vec<Vec<Vec<u32>>> {
        let of = |graph: &crate::Graph| {
            let mut sequences: Vec<Vec<u32>> = Vec::new();
            for &at in graph.order() {
                if let Some(spec) = graph.spec(at) {
                    let slot = spec.group as usize;
                    sequences.resize_with(sequences.len().max(slot + 1), Vec::new);
                    sequences[slot].push(at);
                }
            }
            sequences
        };
        self.graphs.iter().map(of).collect()
    }

    /// Per group and member, its collective nodes in order; of groups that are not kept none.
    fn members<'a>(&self, sequences: &'a [Vec<Vec<u32>>], kept: &[bool]) -> Vec<Vec<&'a [u32]>> {
        let ranks = |(group, kept): (&Group, &bool)| if *kept { Arc::clone(&group.ranks) } else { Arc::default() };
        let groups: Vec<Arc<[u32]>> = self.groups.iter().zip(kept).map(ranks).collect();
        let mut members: Vec<Vec<&[u32]>> = groups.iter().map(|ranks| vec![&[][..]; ranks.len()]).collect();
        // Where a rank stands in each group, by a search that does not depend on how many groups there are.
        let places: Vec<rustc_hash::FxHashMap<u32, usize>> =
            groups.iter().map(|ranks| ranks.iter().copied().zip(0..).collect()).collect();
        for (rank, bound) in (0..).zip(&self.ranks) {
            for (slot, &group) in bound.groups.iter().enumerate() {
                let sequence = sequences[bound.graph as usize].get(slot);
                if let (Some(sequence), Some(&place)) = (sequence, places[group as usize].get(&rank)) {
                    members[group as usize][place] = sequence;
                }
            }
        }
        members
    }

    /// The finding about the n-th call of a group: who calls what.
    fn disagreement(&self, group: u32, number: usize, members: &[&[u32]]) -> Vec<Diagnostic> {
        let group = &self.groups[group as usize];
        let mut kinds: Vec<(Option<&CallSpec>, Vec<Place>)> = Vec::new();
        for (&rank, sequence) in group.ranks.iter().zip(members) {
            let at = sequence.get(number).copied();
            let spec = at.and_then(|at| self.graph(rank).spec(at));
            let same = |known: &Option<&CallSpec>| match (known, spec) {
                (Some(a), Some(b)) => a.agrees(b),
                (None, None) => true,
                _ => false,
            };
            let entry = (rank, at.unwrap_or(u32::MAX));
            match kinds.iter_mut().find(|(known, _)| same(known)) {
                Some((_, ranks)) => ranks.push(entry),
                None => kinds.push((spec, vec![entry])),
            }
        }
        let listed = |ranks: &[Place]| named(&ranks.iter().map(|(rank, _)| *rank).collect::<Vec<_>>());
        let lacking = kinds.iter().find(|(spec, _)| spec.is_none());
        let what = match (lacking, kinds.iter().find_map(|(spec, _)| *spec)) {
            (Some((_, ranks)), Some(spec)) => format!(
                "{} {} not take part in {} of group {:?}, its call number {}",
                listed(ranks),
                if ranks.len() == 1 { "does" } else { "do" },
                spec.collective.name(),
                group.name,
                number + 1,
            ),
            _ => format!("the ranks of group {:?} disagree about its call number {}", group.name, number + 1),
        };
        let mut finding = Diagnostic::new("AHBM-F149", what);
        for (spec, ranks) in &kinds {
            if let Some(spec) = spec {
                let label = format!("{}: {} of {} bytes", listed(ranks), spec.collective.name(), spec.bytes);
                finding = finding.site(label, self.origin(ranks[0].0, ranks[0].1));
            }
        }
        one(finding.hint(ONE_CALL))
    }

    /// True where a node is a collective, a message or a part of a collective.
    pub fn communicates(work: &Work) -> bool {
        matches!(work, Work::Call(_) | Work::Send(_) | Work::Recv(_) | Work::Part(_))
    }
}

/// Whether what all ranks have is together what each of them gets.
fn whole(parts: &[&CallSpec]) -> bool {
    let all: Option<u128> = parts.iter().map(|part| part.through.map(|[own, _]| u128::from(own))).sum();
    parts.iter().all(|part| part.through.map(|[_, all]| u128::from(all)) == all)
}

/// Ranks in words.
fn named(ranks: &[u32]) -> String {
    let shown: Vec<String> = ranks.iter().take(LISTED).map(u32::to_string).collect();
    let more = if ranks.len() > LISTED { ", …" } else { "" };
    format!("rank{} {}{more}", if ranks.len() == 1 { "" } else { "s" }, shown.join(", "))
}

impl CallSpec {
    /// Whether nodes of two ranks can be the same call.
    fn agrees(&self, other: &Self) -> bool {
        let uneven = match self.collective {
            Collective::AllToAll => true,
            Collective::AllGather => self.through.is_some() && other.through.is_some(),
            _ => false,
        };
        self.collective == other.collective
            && (uneven || self.bytes == other.bytes)
            && self.dtype == other.dtype
            && self.op == other.op
            && self.root == other.root
    }
}
