//! What is wrong with a set-up before it runs: what stops ASTRA-sim, and what never ends there.

use crate::config::{Choice, Expansion, Native, Setup, place};
use crate::engine::{Cut, choices, chosen, chunks};
use ahbm_findings::Diagnostic;
use ahbm_workload::{CallSpec, Collective, Group, Node, Work, Workload};
use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap};

/// Findings that one answer lists.
const LISTED: usize = 50;

/// Runs there, with another meaning than the files have: told behind the run.
pub(crate) const TOLD: &str = "AHBM-U232";

/// The findings; an empty list where the set-up runs.
pub(crate) fn findings(setup: &Setup) -> Vec<Diagnostic> {
    let sent: Vec<u64> = setup.algorithms.iter().map(sent).collect();
    let mut found: IndexMap<String, Diagnostic, FxBuildHasher> = IndexMap::default();
    let mut known = vec![false; setup.job.graphs.len()];
    for (rank, bound) in (0..).zip(&setup.job.ranks) {
        let graph = &setup.job.graphs[bound.graph as usize];
        // What depends on the graph alone is said of the first rank that has it.
        let first = !std::mem::replace(&mut known[bound.graph as usize], true);
        let mut seen = vec![false; graph.specs().len()];
        for (at, node) in (0..).zip(graph.nodes()) {
            let finding = match &node.work {
                Work::Call(spec) => {
                    let own = setup.per_node.contains_key(&node.id);
                    if std::mem::replace(&mut seen[*spec as usize], true) && !own {
                        continue;
                    }
                    match graph.spec(at) {
                        Some(spec) => of_call(setup, spec, setup.job.group(rank, spec.group), node, &sent),
                        None => None,
                    }
                }
                _ if first => of_node(setup, node),
                _ => continue,
            };
            if let Some(finding) = finding
                && !found.contains_key(&finding.message)
            {
                let finding = finding.site(setup.job.label(rank, at), setup.job.origin(rank, at));
                found.insert(finding.message.clone(), finding);
                if found.len() == LISTED {
                    return found.into_values().collect();
                }
            }
        }
    }
    found.into_values().collect()
}

/// Whether every receive has its send, of the same size.
pub(crate) fn all_received(job: &Workload) -> bool {
    let mut balance: FxHashMap<(u32, u32, u32, u64), i64> = FxHashMap::default();
    for (rank, bound) in (0..).zip(&job.ranks) {
        for node in job.graph(rank).nodes() {
            let (message, sends) = match &node.work {
                Work::Send(message) => (message, true),
                Work::Recv(message) => (message, false),
                _ => continue,
            };
            let peer = bound.peers[message.peer as usize];
            let (src, dst) = if sends { (rank, peer) } else { (peer, rank) };
            *balance.entry((src, dst, message.tag, message.bytes)).or_default() += if sends { 1 } else { -1 };
        }
    }
    balance.values().all(|&balance| balance >= 0)
}

/// ASTRA-sim does not go on.
fn stops(what: impl Into<String>) -> Option<Diagnostic> {
    Some(Diagnostic::new("AHBM-U235", what))
}

/// ASTRA-sim does not come to an end.
fn endless(what: &str) -> Option<Diagnostic> {
    Some(Diagnostic::new("AHBM-D103", format!("never ends there: {what}")))
}

fn of_node(setup: &Setup, node: &Node) -> Option<Diagnostic> {
    match &node.work {
        Work::Part(_) => stops("a node that waits for a part of a collective, which ASTRA-sim does not know"),
        Work::Memory { .. } if setup.memory.expansion == Expansion::None => {
            stops("a memory node, but the remote memory file says NO_MEMORY_EXPANSION")
        }
        Work::Send(_) | Work::Recv(_) if node.cpu => stops("a communication node on the host"),
        _ => None,
    }
}

/// Bytes that the ranks of a graph send.
fn sent(algorithm: &Workload) -> u64 {
    let of_node = |node: &Node| if let Work::Send(message) = &node.work { message.bytes } else { 0 };
    let of_graph = |graph: &ahbm_workload::Graph| graph.nodes().iter().map(of_node).fold(0, u64::saturating_add);
    let graphs: Vec<u64> = algorithm.graphs.iter().map(of_graph).collect();
    algorithm.ranks.iter().map(|rank| graphs[rank.graph as usize]).fold(0, u64::saturating_add)
}

/// Bytes that any algorithm sends at least: every rank needs what it has not, and what is reduced comes back.
fn least(collective: Collective, bytes: u64, members: u64) -> u64 {
    let others = (members - 1).saturating_mul(bytes);
    match collective {
        Collective::AllReduce => others.saturating_mul(2),
        Collective::AllGather => others.saturating_mul(members),
        _ => others,
    }
}

fn of_call(setup: &Setup, spec: &CallSpec, group: &Group, node: &Node, sent: &[u64]) -> Option<Diagnostic> {
    let (name, members) = (spec.collective.name(), group.ranks.len() as u32);
    if setup.system.replay_only {
        return None;
    }
    if node.cpu {
        return stops("a communication node on the host");
    }
    if spec.collective == Collective::Broadcast {
        return None;
    }
    let Some(kind) = place(spec.collective) else {
        return stops(format!(
            "{name}: ASTRA-sim has all_reduce, all_gather, reduce_scatter, all_to_all and broadcast"
        ));
    };
    if setup.system.splits == 0 {
        let what = format!("{}: preferred-dataset-splits is missing, or 0", setup.system.file);
        return Some(Diagnostic::new("AHBM-C190", what));
    }
    let cut = chunks(setup, spec.collective, spec.bytes, setup.world());
    if cut.streams == 0 {
        let (bytes, splits) = (spec.bytes, setup.system.splits);
        return endless(&format!("{name} of {bytes} bytes in {splits} splits, which makes chunks of no byte for ever"));
    }
    if let Some(algorithm) = chosen(setup, spec.collective, node.id) {
        return of_graph(setup, algorithm, cut, spec, group, sent[algorithm as usize]);
    }
    if members == 1 {
        return endless(&format!(
            "{name} in group {:?} of one rank, which waits for a stream that nobody makes",
            group.name
        ));
    }
    if setup.system.implementations[kind].native.is_none() && members == setup.world() {
        let key = spec.collective.name().replace('_', "-");
        let what = format!("{}: {key}-implementation is missing", setup.system.file);
        return Some(Diagnostic::new("AHBM-C190", what));
    }
    let listed = choices(setup, spec.collective, members);
    let whole = members == setup.world();
    let sizes = setup.network.iter().map(|dimension| dimension.npus);
    for (choice, size) in listed.iter().zip(sizes) {
        let size = if !whole || choice.one { members } else { size };
        let finding = of_choice(setup, choice, spec.collective, size, whole);
        if finding.is_some() {
            return finding;
        }
    }
    None
}

fn of_choice(setup: &Setup, choice: &Choice, collective: Collective, size: u32, whole: bool) -> Option<Diagnostic> {
    let name = collective.name();
    let reduces = matches!(collective, Collective::AllReduce | Collective::ReduceScatter);
    if setup.system.memory_bandwidth == 0.0 && (reduces || choice.native == Native::DoubleBinaryTree) {
        let what = format!("{}: local-mem-bw is missing, or 0, and {name} reduces", setup.system.file);
        return Some(Diagnostic::new("AHBM-C190", what));
    }
    match choice.native {
        Native::HalvingDoubling if collective == Collective::AllToAll => {
            stops("all_to_all by halvingDoubling, which ASTRA-sim does not have")
        }
        Native::DoubleBinaryTree if !whole => {
            stops("doubleBinaryTree in a group that is not the world, which ASTRA-sim reads as a ring")
        }
        Native::DoubleBinaryTree if !size.is_power_of_two() => {
            stops(format!("doubleBinaryTree of {size} ranks, which is no power of two"))
        }
        _ => None,
    }
}

fn of_graph(setup: &Setup, algorithm: u32, cut: Cut, spec: &CallSpec, group: &Group, sent: u64) -> Option<Diagnostic> {
    let graph = &setup.algorithms[algorithm as usize];
    let (ranks, members) = (graph.ranks.len(), group.ranks.len());
    if ranks != members {
        return stops(format!("algorithm graph {} of {ranks} ranks for a group of {members}", graph.name));
    }
    if cut.streams != 1 {
        let what = format!(
            "{} by algorithm graph {}, which is one stream where {} are waited for: preferred-dataset-splits must be 1",
            spec.collective.name(),
            graph.name,
            cut.streams
        );
        return endless(&what);
    }
    let idle = graph.ranks.iter().any(|rank| graph.graphs[rank.graph as usize].nodes().is_empty());
    let other = |node: &Node| !matches!(node.work, Work::Send(_) | Work::Recv(_) | Work::Compute(_));
    if idle || graph.graphs.iter().any(|graph| graph.nodes().iter().any(other)) {
        let what = format!(
            "algorithm graph {}: a rank has no node, or one that neither sends, receives nor computes",
            graph.name
        );
        return endless(&what);
    }
    let least = least(spec.collective, spec.bytes, members as u64);
    if sent < least {
        let (name, bytes) = (spec.collective.name(), spec.bytes);
        let what = format!(
            "algorithm graph {} sends {sent} bytes, {name} of {bytes} bytes needs {least}: a smaller one is simulated",
            graph.name
        );
        return Some(Diagnostic::new(TOLD, what).hint("a graph with sizes has one size; write one of this size"));
    }
    None
}
