//! Streams: the chunks of a collective at a rank, which go through phases and wait for their turn in queues.

use super::exchange::{Exchange, Members, Op, Packet, Ring};
use super::mail::{Key, Then};
use super::tree::{Branch, Event, Orders, Tree};
use super::{PASS, REDUCE, Simulation};
use crate::config::Native;
use std::collections::VecDeque;

/// Most queues over all ranks.
pub(super) const MAX_QUEUES: u64 = 1 << 24;
/// Delay before each send where the system file states none, and always in groups that are not the world, in ns.
pub(super) const DEFAULT_DELAY: u64 = 10;

/// A part of a stream in one dimension.
#[derive(Debug, Clone, Copy)]
pub(super) struct Phase {
    pub(super) native: Native,
    pub(super) op: Op,
    pub(super) bytes: u64,
    pub(super) queue: u32,
    pub(super) forth: bool,
    pub(super) ring: Ring,
    /// A group that is not the world.
    pub(super) local: bool,
    /// Of two trees, the one whose root is its first rank.
    pub(super) root_first: bool,
}

/// What a stream is doing.
#[derive(Debug)]
pub(super) enum Machine {
    Waits,
    Exchange(Exchange),
    Tree(Tree),
}

/// A chunk at a rank.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) rank: u32,
    pub(super) tag: u32,
    pub(super) priority: i64,
    pub(super) phase: Phase,
    /// Phases to come, the next one last.
    pub(super) rest: Vec<Phase>,
    pub(super) machine: Machine,
}

/// Streams of a dimension that take turns.
#[derive(Debug, Default)]
pub(super) struct Queue {
    running: u64,
    /// By priority, highest first, then by arrival.
    waiting: VecDeque<(i64, u32)>,
}

/// Which queues of a dimension a phase may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    Both,
    First,
    Last,
}

/// The queues of a dimension that are taken next.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Level {
    next: u32,
    first: u32,
    last: u32,
}

impl Level {
    /// The next queue, and whether its streams go upwards.
    pub(super) fn next(&mut self, half: Half, queues: u32) -> (u32, bool) {
        let middle = queues / 2;
        let turn = |next: &mut u32, many: u32| {
            let taken = *next;
            *next = (taken + 1) % many.max(1);
            taken
        };
        match half {
            Half::Both => {
                let queue = turn(&mut self.next, queues);
                (queue, queues == 1 || queue < middle)
            }
            Half::First => (turn(&mut self.first, middle), true),
            Half::Last => (middle + turn(&mut self.last, queues - middle), false),
        }
    }
}

impl Ring {
    /// The rank so many places ahead.
    fn ahead(&self, steps: u32, groups: &[ahbm_workload::Group]) -> u32 {
        let place = (self.place + steps) % self.size;
        match self.members {
            Members::Strided { first, stride } => first + place * stride,
            Members::Group(group) => groups[group as usize].ranks[place as usize],
        }
    }

    fn at(&self, place: u32, groups: &[ahbm_workload::Group]) -> u32 {
        self.ahead((place + self.size - self.place) % self.size, groups)
    }
}

impl Simulation<'_> {
    /// A stream joins the queue of its phase, and whoever may start there does.
    pub(super) fn enter(&mut self, stream: u32) {
        let queue = self.join(stream);
        self.admit(self.streams[stream].rank, queue);
    }

    /// A stream waits behind those of its priority or a higher one.
    fn join(&mut self, stream: u32) -> u32 {
        let Stream { rank, priority, phase, .. } = &self.streams[stream];
        let waiting = &mut self.ranks[*rank as usize].queues[phase.queue as usize].waiting;
        let behind = waiting.partition_point(|(other, _)| other >= priority);
        waiting.insert(behind, (*priority, stream));
        phase.queue
    }

    /// Starts waiting streams while fewer run than may.
    fn admit(&mut self, rank: u32, queue: u32) {
        loop {
            let limit = self.limit;
            let queue = &mut self.ranks[rank as usize].queues[queue as usize];
            if queue.running >= limit {
                return;
            }
            let Some((_, stream)) = queue.waiting.pop_front() else { return };
            queue.running += 1;
            self.start(stream);
        }
    }

    fn start(&mut self, at: u32) {
        let stream = &mut self.streams[at];
        let Phase { native, op, bytes, forth, ring, local, root_first, .. } = stream.phase;
        if native == Native::DoubleBinaryTree {
            stream.machine = Machine::Tree(Tree::new(Branch::of(ring.place, ring.size, root_first)));
            return self.run_tree(at, Event::Start);
        }
        // What has no machine is refused before the run.
        let Some(mut exchange) = Exchange::new(native, op, &ring, forth, local, bytes) else { return };
        for _ in 0..exchange.start() {
            let reduces = exchange.begin();
            self.pass(at, reduces);
        }
        self.streams[at].machine = Machine::Exchange(exchange);
    }

    /// A pass over the bus begins.
    fn pass(&mut self, at: u32, reduces: bool) {
        let Phase { local, native, .. } = self.streams[at].phase;
        let fast = local && native != Native::DoubleBinaryTree;
        let delay = if fast { DEFAULT_DELAY } else { self.endpoint_delay };
        self.post(delay, if reduces { REDUCE } else { PASS }, at);
    }

    /// What came over the bus is reduced: two reads and a write.
    pub(super) fn reduce(&mut self, at: u32) {
        let bytes = match &self.streams[at].machine {
            Machine::Exchange(exchange) => exchange.reduced(),
            Machine::Tree(_) | Machine::Waits => self.streams[at].phase.bytes,
        };
        let access = (bytes as f64 / self.setup.system.memory_bandwidth) as u64;
        self.post(access.saturating_mul(3), PASS, at);
    }

    /// A pass is over.
    pub(super) fn passed(&mut self, at: u32) {
        let Machine::Exchange(exchange) = &mut self.streams[at].machine else {
            return self.run_tree(at, Event::Passed);
        };
        for _ in 0..exchange.passed() {
            let stream = &mut self.streams[at];
            let Machine::Exchange(exchange) = &mut stream.machine else { return };
            let Some(Packet { to, from, bytes }) = exchange.leave() else { break };
            let (rank, tag, ring) = (stream.rank, stream.tag, stream.phase.ring);
            let (to, from) = (ring.ahead(to, &self.job.groups), ring.ahead(from, &self.job.groups));
            self.send(Key { src: rank, dst: to, tag, bytes }, Then::Nothing);
            self.receive(Key { src: from, dst: rank, tag, bytes }, Then::Stream(at));
        }
        if matches!(&self.streams[at].machine, Machine::Exchange(exchange) if exchange.done()) {
            self.proceed(at);
        }
    }

    /// A message has come.
    pub(super) fn received(&mut self, at: u32) {
        let Machine::Exchange(exchange) = &mut self.streams[at].machine else {
            return self.run_tree(at, Event::Received);
        };
        let reduces = exchange.receive();
        self.pass(at, reduces);
    }

    fn run_tree(&mut self, at: u32, event: Event) {
        let Stream { rank, tag, phase, machine, .. } = &mut self.streams[at];
        let Machine::Tree(tree) = machine else { return };
        let (rank, tag, phase) = (*rank, *tag, *phase);
        let Orders { pass, send, receive, end } = tree.run(event);
        let peer = |place: u32| phase.ring.at(place, &self.job.groups);
        let sends = send.map(|place| place.map(peer));
        let receives = receive.map(|place| place.map(peer));
        if let Some(reduces) = pass {
            self.pass(at, reduces);
        }
        for dst in sends.into_iter().flatten() {
            self.send(Key { src: rank, dst, tag, bytes: phase.bytes }, Then::Nothing);
        }
        for src in receives.into_iter().flatten() {
            self.receive(Key { src, dst: rank, tag, bytes: phase.bytes }, Then::Stream(at));
        }
        if end {
            self.proceed(at);
        }
    }

    /// A stream leaves its phase: the last one is reported first, which may begin other nodes.
    fn proceed(&mut self, at: u32) {
        let stream = &mut self.streams[at];
        let (rank, left) = (stream.rank, stream.phase.queue);
        let next = stream.rest.pop();
        match next {
            Some(phase) => {
                stream.phase = phase;
                stream.machine = Machine::Waits;
            }
            None => {
                self.streams.remove(at);
                self.stream_ended(rank);
            }
        }
        let entered = next.map(|_| self.join(at));
        self.ranks[rank as usize].queues[left as usize].running -= 1;
        self.admit(rank, left);
        if let Some(queue) = entered {
            self.admit(rank, queue);
        }
    }

    /// A stream of the collective that a rank takes part in is over.
    pub(super) fn stream_ended(&mut self, rank: u32) {
        let taking = &mut self.ranks[rank as usize].taking;
        taking.ended += 1;
        if taking.ended == taking.streams {
            let node = taking.node;
            self.end(rank, node);
        }
    }
}
