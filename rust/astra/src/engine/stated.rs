//! What a set-up states about its nodes and collectives, before anything runs.

use crate::config::{Choice, Native, Setup, place};
use ahbm_workload::{Collective, Node};

/// What carries out the collectives of a group and a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// Built-in algorithms: of the world, by dimension, or of a group, as one dimension.
    Native { choices: Vec<Choice>, world: bool },
    /// An algorithm graph: its position.
    Graph(u32),
}

/// How a collective is cut into streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Bytes of a stream.
    pub(crate) bytes: u64,
    /// Number of streams; 0 where ASTRA-sim would make them for ever, or none.
    pub(crate) streams: u64,
}

/// The streams of a collective of `bytes` in a world of so many ranks: at least a byte per rank each, but of
/// all_gather.
pub(crate) fn chunks(setup: &Setup, collective: Collective, bytes: u64, world: u32) -> Cut {
    let splits = setup.system.splits.max(1);
    let (mut chunk, mut size) = (bytes / splits, bytes);
    if collective != Collective::AllGather && u64::from(world) > chunk {
        chunk = world.into();
        size = splits * chunk;
    }
    Cut { bytes: chunk, streams: if chunk == 0 { 0 } else { size.div_ceil(chunk) } }
}

/// What carries out a collective: the graph of the node, the graph of the type, or what is built in.
pub(crate) fn chosen(setup: &Setup, collective: Collective, id: u64) -> Option<u32> {
    setup.per_node.get(&id).copied().or_else(|| setup.custom[place(collective)?])
}

/// What carries out a collective of so many ranks.
pub(super) fn plan(setup: &Setup, collective: Collective, id: u64, members: u32) -> Plan {
    if let Some(graph) = chosen(setup, collective, id) {
        return Plan::Graph(graph);
    }
    Plan::Native { choices: choices(setup, collective, members), world: members == setup.world() }
}

/// The built-in algorithms of a collective of so many ranks: of a group that is not the world, that of the only
/// dimension that the system file lists, else ring.
pub(crate) fn choices(setup: &Setup, collective: Collective, members: u32) -> Vec<Choice> {
    let listed = place(collective).and_then(|at| setup.system.implementations[at].native.clone()).unwrap_or_default();
    if members == setup.world() || listed.len() == 1 {
        listed
    } else {
        vec![Choice { native: Native::Ring, one: false }]
    }
}

/// The time that a node states, in ns: whole microseconds, and 1 ns for none.
pub(super) fn stated(node: &Node) -> u64 {
    match node.ps / 1_000_000 {
        0 => 1,
        micros => micros * 1000,
    }
}

/// True where a collective takes the time that its node states.
pub(super) fn is_stated(collective: Collective) -> bool {
    collective == Collective::Broadcast
}
