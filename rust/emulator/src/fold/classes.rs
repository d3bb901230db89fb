//! Ranks that may be alike: colours that are refined until they tell no more ranks apart.
//!
//! A colour of a rank says what the rank does, the colours of whom it talks to, and those of the links in between; a
//! colour of a link says who uses it. This is colour refinement (B. Weisfeiler, A. Leman, 1968). Colours are hashes, so
//! what comes of them is a proposal, to be checked.

use super::sites::Sites;
use super::{Parties, mix};
use rustc_hash::{FxHashMap, FxHashSet};

/// Rounds after which ranks count as different: classes of what is symmetric are found in few. What tells ranks of a long
/// ring apart goes round it rank by rank, so as many more are made as cost little.
const ROUNDS: usize = 64;
/// Agents that these further rounds look at in all.
const LOOKS: usize = 1 << 23;

fn all(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, mix)
}

/// Per rank the lowest rank of the same colour; none where there are more colours than are worth it.
pub(super) fn classes(job: &impl Parties, sites: &Sites) -> Option<Vec<u32>> {
    let mut colours: Vec<u64> = job.graphs().into_iter().map(u64::from).collect();
    let count = |colours: &[u64]| colours.iter().collect::<FxHashSet<_>>().len();
    let mut known = count(&colours);
    let agents: usize = (0..sites.list.len() as u32).map(|site| sites.shape(site).actors.len()).sum();
    for _ in 0..ROUNDS.max(LOOKS / agents.max(1)) {
        if known > job.most() {
            return None;
        }
        colours = refined(sites, &colours);
        let found = count(&colours);
        if found == known {
            let mut first: FxHashMap<u64, u32> = FxHashMap::default();
            return Some((0..).zip(colours).map(|(rank, colour)| *first.entry(colour).or_insert(rank)).collect());
        }
        known = found;
    }
    None
}

/// The colours of a round, from those of the round before.
fn refined(sites: &Sites, colours: &[u64]) -> Vec<u64> {
    let mut links = vec![0u64; sites.links.len()];
    // Sums do not depend on an order.
    each(sites, colours, |_, own, ways| {
        for (flow, way) in (0..).zip(ways) {
            for (hop, &link) in (0..).zip(way) {
                let sum = &mut links[link as usize];
                *sum = sum.wrapping_add(all([own, flow, hop]));
            }
        }
    });
    let mut next: Vec<u64> = colours.iter().map(|&colour| mix(colour, 1)).collect();
    each(sites, colours, |rank, own, ways| {
        let met = ways.flatten().fold(own, |hash, &link| mix(hash, links[link as usize]));
        let sum = &mut next[rank as usize];
        *sum = sum.wrapping_add(met);
    });
    next
}

/// Visits all agents: rank, a colour of what the agent does and talks to, and its links.
fn each<'a>(sites: &'a Sites, colours: &[u64], mut visit: impl FnMut(u32, u64, &mut dyn Iterator<Item = &'a [u32]>)) {
    for (site, place) in (0..).zip(&sites.list) {
        let shape = sites.shape(site);
        let colour = |member: u32| colours[place.members[member as usize].0 as usize];
        let together =
            (0..place.members.len() as u32).fold(0u64, |sum, member| sum.wrapping_add(mix(colour(member), 2)));
        let mut next = 0;
        for (at, actor) in shape.actors.iter().enumerate() {
            let (rank, node) = place.members[actor.member as usize];
            let fixed = if shape.counts { u64::from(actor.member) } else { 0 };
            let [shape_of, node, number, kind] = [place.shape, node, actor.number, actor.kind].map(u64::from);
            let own = all([colours[rank as usize], together, shape_of, node, number, kind, fixed]);
            let ends = actor.ends.iter().map(|end| match *end {
                Some((other, table)) => {
                    let other = &shape.actors[other as usize];
                    all([colour(other.member), u64::from(other.number), u64::from(table)])
                }
                None => 0,
            });
            let own = ends.chain(actor.owners.iter().map(|&owner| colour(owner))).fold(own, mix);
            visit(rank, own, &mut sites.ways(site, at, &mut next));
        }
        if shape.actors.is_empty() {
            for &(rank, node) in &place.members {
                visit(rank, all([colours[rank as usize], together, u64::from(node)]), &mut std::iter::empty());
            }
        }
    }
}
