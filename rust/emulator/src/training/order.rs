//! What a rank may do next: dependencies, the order of calls, and lanes.

use ahbm_workload::{Graph, Work};
use rustc_hash::FxHashMap;

/// Which nodes of a rank may run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lanes {
    /// All that are ready.
    Unlimited,
    /// One computation of the accelerator and one of the host at a time; communication beside them.
    #[default]
    Device,
    /// As ASTRA-sim: one computation of the accelerator, one of the host, and one communication at a time; receives
    /// beside them.
    Astra,
    /// Nodes of a recorded stream one after the other, in their order; others as [`Lanes::Device`].
    Streams,
}

impl Lanes {
    /// Every policy.
    pub const ALL: [Self; 4] = [Self::Unlimited, Self::Device, Self::Astra, Self::Streams];

    /// The name that `--lanes` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unlimited => "unlimited",
            Self::Device => "device",
            Self::Astra => "astra",
            Self::Streams => "streams",
        }
    }
}

/// No lane: a node that is issued as soon as it is ready.
pub(super) const FREE: u8 = u8::MAX;

/// Lanes of a rank.
pub(super) const LANES: usize = 3;

const HOST: u8 = 0;
const DEVICE: u8 = 1;
const COMMUNICATION: u8 = 2;

/// The order of a graph's nodes.
#[derive(Debug)]
pub(super) struct Order {
    deps: (Vec<u32>, Vec<u32>),
    users: (Vec<u32>, Vec<u32>),
    pub(super) lanes: Vec<u8>,
}

impl Order {
    /// Calls of one group come one after the other, as do nodes of one stream where streams count: in the order of the
    /// graph, so this closes no circle.
    pub(super) fn new(graph: &Graph, policy: Lanes) -> Self {
        let mut before: Vec<Vec<u32>> = (0..graph.nodes().len() as u32).map(|at| graph.deps(at).to_vec()).collect();
        let mut group: FxHashMap<u32, u32> = FxHashMap::default();
        let mut stream: FxHashMap<u32, u32> = FxHashMap::default();
        for &at in graph.order() {
            let node = graph.node(at);
            let last = graph.spec(at).and_then(|spec| group.insert(spec.group, at));
            let stream = node.stream.filter(|_| policy == Lanes::Streams).and_then(|number| stream.insert(number, at));
            let own = &mut before[at as usize];
            own.extend(last.into_iter().chain(stream));
            own.sort_unstable();
            own.dedup();
        }
        let lane = |node: &ahbm_workload::Node| match (policy, &node.work) {
            (Lanes::Unlimited, _) | (_, Work::Nothing | Work::Part(_) | Work::Recv(_)) => FREE,
            (Lanes::Streams, Work::Compute(_)) if node.stream.is_some() => FREE,
            (_, Work::Compute(_)) if node.cpu => HOST,
            (_, Work::Compute(_)) => DEVICE,
            (Lanes::Astra, _) if node.cpu => HOST,
            (Lanes::Astra, _) => COMMUNICATION,
            _ => FREE,
        };
        let lanes = graph.nodes().iter().map(lane).collect();
        Self { users: turned(&before), deps: packed(&before), lanes }
    }

    /// What a node waits for.
    pub(super) fn deps(&self, at: u32) -> &[u32] {
        &self.deps.0[self.deps.1[at as usize] as usize..self.deps.1[at as usize + 1] as usize]
    }

    /// What waits for a node, ascending.
    pub(super) fn users(&self, at: u32) -> &[u32] {
        &self.users.0[self.users.1[at as usize] as usize..self.users.1[at as usize + 1] as usize]
    }
}

fn packed(lists: &[Vec<u32>]) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0];
    let mut all = Vec::with_capacity(lists.iter().map(Vec::len).sum());
    for list in lists {
        all.extend_from_slice(list);
        starts.push(all.len() as u32);
    }
    (all, starts)
}

fn turned(lists: &[Vec<u32>]) -> (Vec<u32>, Vec<u32>) {
    let mut users = vec![Vec::new(); lists.len()];
    for (at, list) in (0..).zip(lists) {
        list.iter().for_each(|&dep| users[dep as usize].push(at));
    }
    packed(&users)
}
