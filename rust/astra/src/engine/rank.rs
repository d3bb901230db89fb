//! A rank's nodes: one computation, one communication and one host operation at a time, ready nodes by ascending id.

use super::Simulation;
use super::mail::{Key, Then};
use super::stated::stated;
use super::stream::Level;
use super::{COLLECTIVE_TAGS, stream};
use crate::config::{Expansion, Setup};
use crate::report::{CallKind, RankTimes};
use ahbm_workload::{Kernel, MessageSpec, Node, Work};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What nodes share, each for one node at a time; receives share nothing.
const CPU: usize = 0;
const GPU: usize = 1;
const COMM: usize = 2;
const UNLIMITED: usize = 3;

/// Marks of a node beyond the number of nodes it waits for.
const ENDED: u32 = u32::MAX;
pub(super) const RUNNING: u32 = u32::MAX - 1;

/// A collective that a rank takes part in.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Taking {
    pub(super) node: u32,
    pub(super) started: u64,
    /// Streams that must end, and that have.
    pub(super) streams: u64,
    pub(super) ended: u64,
}

/// The state of a rank.
#[derive(Debug)]
pub(super) struct Rank {
    /// Per node the number of nodes it waits for, or [`RUNNING`], or [`ENDED`].
    pub(super) open: Box<[u32]>,
    /// Ready nodes per lane.
    ready: [BinaryHeap<Reverse<u32>>; 4],
    /// Nodes that became ready since the ready ones were last looked at.
    fresh: Vec<u32>,
    busy: [bool; 3],
    pub(super) running: u32,
    ended: Option<u64>,
    /// Computation on the GPU, as it is taken off the total to give exposed communication.
    gpu_ops: u64,
    gpu: Busy,
    comm: Busy,
    pub(super) taking: Taking,
    /// Priority of the next collective.
    pub(super) priority: i64,
    /// Streams so far: of calls of all ranks, and by slot of a group.
    streams: u64,
    group_streams: Box<[u64]>,
    pub(super) queues: Vec<stream::Queue>,
    pub(super) levels: Vec<Level>,
    /// Trees taken so far, by collective and dimension.
    pub(super) trees: Vec<u32>,
    /// Algorithm that was looked up first, by slot of a group and collective.
    pub(super) plans: Vec<[Option<super::stated::Plan>; 4]>,
    /// When the rank's own remote memory is free.
    memory_free: u64,
}

/// The union of intervals of which several may run.
#[derive(Debug, Default)]
struct Busy {
    now: u32,
    since: u64,
    total: u64,
}

impl Busy {
    fn begin(&mut self, now: u64) {
        if self.now == 0 {
            self.since = now;
        }
        self.now += 1;
    }

    fn end(&mut self, now: u64) {
        self.now -= 1;
        if self.now == 0 {
            self.total += now - self.since;
        }
    }
}

fn lane(node: &Node) -> usize {
    match node.work {
        _ if node.cpu => CPU,
        Work::Compute(_) => GPU,
        Work::Recv(_) => UNLIMITED,
        _ => COMM,
    }
}

impl Rank {
    pub(super) fn new(setup: &Setup, rank: u32, queues: usize) -> Self {
        let graph = setup.job.graph(rank);
        let slots = setup.job.ranks[rank as usize].groups.len();
        let open: Box<[u32]> = (0..graph.nodes().len() as u32).map(|at| graph.deps(at).len() as u32).collect();
        let fresh = (0..).zip(&open).filter(|(_, open)| **open == 0).map(|(at, _)| at).collect();
        let numbers = setup.job.ranks[rank as usize].groups.iter();
        let first = |&group: &u32| setup.group_number(&setup.job.groups[group as usize].name) * 1_000_000;
        Self {
            open,
            ready: Default::default(),
            fresh,
            busy: [false; 3],
            running: 0,
            ended: None,
            gpu_ops: 0,
            gpu: Busy::default(),
            comm: Busy::default(),
            taking: Taking::default(),
            priority: 0,
            streams: 0,
            group_streams: numbers.map(first).collect(),
            queues: std::iter::repeat_with(stream::Queue::default).take(queues).collect(),
            levels: vec![Level::default(); setup.network.len()],
            trees: vec![0; 4 * setup.network.len()],
            plans: vec![[const { None }; 4]; slots],
            memory_free: 0,
        }
    }

    pub(super) fn times(&self) -> RankTimes {
        RankTimes {
            cycles: self.ended,
            exposed: self.ended.map(|end| end.wrapping_sub(self.gpu_ops)),
            comm_ns: self.comm.total,
            gpu_ns: self.gpu.total,
        }
    }

    /// The number of the first of so many streams, of all ranks or of a slot's group.
    pub(super) fn number(&mut self, slot: u32, anonymous: bool, many: u64) -> u64 {
        let counter = if anonymous { &mut self.streams } else { &mut self.group_streams[slot as usize] };
        let first = *counter;
        *counter += many;
        first
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }
}

impl Simulation<'_> {
    /// A node ends; what waited for it may begin.
    pub(super) fn end(&mut self, rank: u32, node: u32) {
        let graph = self.job.graph(rank);
        self.finish(rank, node);
        debug_assert!(graph.node(node).id < u64::MAX, "ids are those of the file");
        self.issue(rank);
    }

    /// A node is over; its users become ready, but nobody looks at them yet.
    fn finish(&mut self, rank: u32, node: u32) {
        let graph = self.job.graph(rank);
        let state = &mut self.ranks[rank as usize];
        let lane = lane(graph.node(node));
        if lane != UNLIMITED {
            state.busy[lane] = false;
        }
        state.running -= 1;
        state.open[node as usize] = ENDED;
        match graph.node(node).work {
            Work::Compute(_) if lane == GPU => state.gpu.end(self.now),
            Work::Call(_) | Work::Send(_) | Work::Recv(_) => state.comm.end(self.now),
            _ => {}
        }
        if let Some(spec) = graph.spec(node) {
            let members = self.job.group(rank, spec.group).ranks.len() as u32;
            let took = self.now - state.taking.started;
            let kind = self.kinds.entry((spec.collective, spec.bytes, members));
            kind.or_insert_with(|| CallKind::new(spec.collective, spec.bytes, members)).add(took);
        }
        if let Some(times) = &mut self.times {
            times[rank as usize][node as usize].1 = self.now;
        }
        for &user in graph.users(node) {
            let open = &mut state.open[user as usize];
            *open -= 1;
            if *open == 0 {
                state.fresh.push(user);
            }
        }
    }

    /// Looks at the ready nodes once, by ascending id, and begins those whose lane is free.
    pub(super) fn issue(&mut self, rank: u32) {
        let graph = self.job.graph(rank);
        let state = &mut self.ranks[rank as usize];
        for node in std::mem::take(&mut state.fresh) {
            state.ready[lane(graph.node(node))].push(Reverse(node));
        }
        loop {
            let state = &mut self.ranks[rank as usize];
            let open = |lane: &usize| *lane == UNLIMITED || !state.busy[*lane];
            let next = |lane: usize| Some((state.ready[lane].peek()?.0, lane));
            let Some((node, lane)) = [CPU, GPU, COMM, UNLIMITED].into_iter().filter(open).filter_map(next).min() else {
                break;
            };
            state.ready[lane].pop();
            if lane != UNLIMITED {
                state.busy[lane] = true;
            }
            state.running += 1;
            state.open[node as usize] = RUNNING;
            if let Some(times) = &mut self.times {
                times[rank as usize][node as usize].0 = self.now;
            }
            self.begin(rank, node);
        }
        let state = &mut self.ranks[rank as usize];
        let idle = state.running == 0 && state.fresh.is_empty() && state.ready.iter().all(BinaryHeap::is_empty);
        if idle && state.ended.is_none() {
            state.ended = Some(self.now);
        }
    }

    fn begin(&mut self, rank: u32, node: u32) {
        let graph = self.job.graph(rank);
        let now = self.now;
        let spec = graph.node(node);
        let state = &mut self.ranks[rank as usize];
        match spec.work {
            Work::Compute(_) if lane(spec) == GPU => state.gpu.begin(now),
            Work::Call(_) | Work::Send(_) | Work::Recv(_) => state.comm.begin(now),
            _ => {}
        }
        if self.setup.system.replay_only {
            state.taking.started = now;
            return self.compute(rank, node, stated(spec));
        }
        match spec.work {
            Work::Compute(Kernel { operations, bytes, .. }) => match self.setup.system.roofline {
                Some(peak) if !spec.cpu => {
                    if bytes == 0 {
                        return self.finish(rank, node);
                    }
                    let (operations, memory) = (operations as f64, self.setup.system.memory_bandwidth * 1e9);
                    let rate = (memory * (operations / bytes as f64)).min(peak);
                    self.compute(rank, node, (operations / rate * 1e9) as u64);
                }
                _ => self.compute(rank, node, stated(spec)),
            },
            Work::Memory { bytes, .. } => {
                let delay = self.access(rank, bytes);
                self.after(delay, Then::Node(rank, node));
            }
            Work::Call(_) => self.call(rank, node),
            Work::Send(message) => {
                let key = self.key(rank, &message, true);
                self.send(key, Then::Node(rank, node));
            }
            Work::Recv(message) => {
                let key = self.key(rank, &message, false);
                self.receive(key, Then::Node(rank, node));
            }
            Work::Nothing | Work::Part(_) => self.finish(rank, node),
        }
    }

    /// A node computes for a time.
    pub(super) fn compute(&mut self, rank: u32, node: u32, ns: u64) {
        if !self.job.graph(rank).node(node).cpu {
            let state = &mut self.ranks[rank as usize];
            state.gpu_ops = state.gpu_ops.saturating_add(ns);
        }
        self.after(ns, Then::Node(rank, node));
    }

    /// Time until an access to the remote memory is over; accesses to a shared port follow one another.
    fn access(&mut self, rank: u32, bytes: u64) -> u64 {
        let memory = &self.setup.memory;
        let port = match memory.expansion {
            Expansion::None | Expansion::PerNpu => return memory.access(bytes),
            Expansion::Pool => 0,
            // The first rank of a node keeps its port.
            Expansion::PerNode(npus) => rank / npus * npus,
        };
        let free = &mut self.ranks[port as usize].memory_free;
        *free = (*free).max(self.now).saturating_add(memory.access(bytes));
        *free - self.now
    }

    fn key(&self, rank: u32, message: &MessageSpec, sends: bool) -> Key {
        let peer = self.job.ranks[rank as usize].peers[message.peer as usize];
        let (src, dst) = if sends { (rank, peer) } else { (peer, rank) };
        Key { src, dst, tag: message.tag % COLLECTIVE_TAGS, bytes: message.bytes }
    }
}
