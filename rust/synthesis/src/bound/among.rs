//! Cuts among some of the nodes: around each of them, around each node of several NPUs, and between all of these.

use super::cut::{Cut, Parts, tightest};
use crate::graph::Relayed;
use crate::{Collective, Graph};

/// The tightest cut among `members` that is looked at.
pub(super) fn cut(graph: &Graph, members: &[u32], collective: Collective, root: u32) -> Cut {
    let part = |&v: &u32| Part { members: 1, rooted: v == root, inside: vec![v] };
    let mut parts: Vec<Part> = members.iter().map(part).collect();
    // Of equal cuts the first is named: one around a leaf, or around the root that has all of it to do.
    match collective {
        Collective::Broadcast | Collective::Reduce => parts.sort_by_key(|part| part.rooted),
        Collective::Scatter | Collective::Gather => parts.sort_by_key(|part| !part.rooted),
        _ => {}
    }
    let nodes = graph.relayed().map_or_else(Vec::new, |relayed| of_nodes(graph, relayed, members, root));
    let around = parts.iter().chain(&nodes).flat_map(|part| part.cuts(graph, members.len() as u64, collective));
    let between = graph.relayed().filter(|_| collective == Collective::AllReduce).map_or_else(Vec::new, |relayed| {
        // NPUs beside the members could add and copy as well.
        let whole = members.len() as u32 == relayed.npus;
        let [in_nodes, between_nodes] = relayed.reduces;
        let passed_on = [(&parts, !in_nodes && !between_nodes), (&nodes, !between_nodes)];
        passed_on
            .into_iter()
            .filter(|(parts, only)| whole && *only && parts.len() > 1)
            .map(|(p, _)| each(graph, p))
            .collect()
    });
    tightest(around.chain(between))
}

/// A set of nodes with members, some of which may relay.
struct Part {
    members: u64,
    rooted: bool,
    inside: Vec<u32>,
}

/// The nodes of several NPUs that have members, where not all are of one.
fn of_nodes(graph: &Graph, relayed: &Relayed, members: &[u32], root: u32) -> Vec<Part> {
    if relayed.size < 2 {
        return Vec::new();
    }
    let count = relayed.npus / relayed.size;
    let mut parts: Vec<Part> = (0..count)
        .map(|node| Part { members: 0, rooted: relayed.node(root) == Some(node), inside: Vec::new() })
        .collect();
    for vertex in 0..graph.nodes() {
        if let Some(node) = relayed.node(vertex) {
            parts[node as usize].inside.push(vertex);
        }
    }
    members.iter().filter_map(|&v| relayed.node(v)).for_each(|node| parts[node as usize].members += 1);
    parts.retain(|part| part.members > 0 && part.members < members.len() as u64);
    parts
}

impl Part {
    /// What has to leave it, and to enter it, in shares of `n` members.
    fn cuts(&self, graph: &Graph, n: u64, collective: Collective) -> Vec<Cut> {
        use Collective::{AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
        let (own, others) = (self.members, n - self.members);
        let (leaves, enters) = match collective {
            AllGather => (own, others),
            ReduceScatter => (others, own),
            AllToAll => (own * others, own * others),
            // Everything leaves it, and the result enters it.
            AllReduce => (1, 1),
            Broadcast => (u64::from(self.rooted), u64::from(!self.rooted)),
            Reduce => (u64::from(!self.rooted), u64::from(self.rooted)),
            Scatter => {
                if self.rooted {
                    (others, 0)
                } else {
                    (0, own)
                }
            }
            Gather => {
                if self.rooted {
                    (0, others)
                } else {
                    (own, 0)
                }
            }
        };
        let mut cuts = Vec::with_capacity(2);
        if enters > 0 {
            cuts.push(self.one(graph, enters, Cut::into, true));
        }
        if leaves > 0 {
            cuts.push(self.one(graph, leaves, Cut::from, false));
        }
        if collective == ReduceScatter {
            // Of equal ones the first is named: what leaves.
            cuts.reverse();
        }
        cuts
    }

    fn one(&self, graph: &Graph, demand: u64, single: fn(&Graph, u32, u64) -> Cut, enters: bool) -> Cut {
        match self.inside[..] {
            [node] => single(graph, node, demand),
            _ => Cut::of_set(graph, &self.inside, enters, demand),
        }
    }
}

/// An all-reduce between parts behind what passes on messages and neither adds nor copies: each of the 2 (k - 1) messages
/// that an element takes leaves one of the k parts (see `ports`).
fn each(graph: &Graph, parts: &[Part]) -> Cut {
    let mut block = vec![u32::MAX; graph.nodes() as usize];
    for (number, part) in (0..).zip(parts) {
        part.inside.iter().for_each(|&v| block[v as usize] = number);
    }
    let (mut capacity, mut links) = (0, 0);
    for (index, link) in (0..).zip(graph.links()) {
        if block[link.from as usize] != u32::MAX && block[link.from as usize] != block[link.to as usize] {
            capacity += graph.capacity(index);
            links += 1;
        }
    }
    let parts = Parts::Blocks(parts.iter().map(|part| part.inside.clone()).collect());
    Cut { demand: 2 * (parts.count() as u64 - 1), parts, capacity, links }
}
