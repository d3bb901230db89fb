//! Pieces of a buffer on their way up spanning trees and down again.

use super::Tree;
use crate::Graph;
use crate::list::Job;
use crate::schedule::Transfer;
use ahbm_engine::EventQueue;
use ahbm_engine::interrupt::spend;
use ahbm_machine::Ps;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Ticks of the clock that the order of departure is made by, in the time of a piece on the quickest link.
const TICKS: u64 = 8;
/// So many ticks count as endless: no sum of them is beyond the clock.
const LONGEST: u64 = 1 << 36;

/// What crosses a link of a tree in one direction: all pieces of the tree's part, one after the other.
///
/// Streams are numbered by (tree, way, node): those up, then those down, by the node at the outer end; roots have none.
#[derive(Debug, Clone, Copy)]
struct Stream {
    /// Its link.
    link: u32,
    /// When its first piece is due: the more of its way is left, the earlier.
    due: Ps,
}

/// How far a stream has come.
#[derive(Debug, Clone, Copy)]
struct Progress {
    /// When its next piece is due.
    due: Ps,
    link: u32,
    /// Pieces that may be sent, have been sent, and have arrived.
    ready: u32,
    served: u32,
    arrived: u32,
}

impl Progress {
    fn of(stream: Stream) -> Self {
        Self { due: stream.due, link: stream.link, ready: 0, served: 0, arrived: 0 }
    }
}

/// The links, and what will happen: arrivals of streams, and departures from links, whose numbers are behind those of
/// the streams.
struct Links {
    events: EventQueue,
    streams: u32,
    idle: Vec<bool>,
    /// Per link, streams with a piece that is ready, the most urgent first.
    waiting: Vec<BinaryHeap<Reverse<(Ps, u32)>>>,
}

/// At one instant, what arrives comes before what departs.
fn arrives(at: Ps) -> Ps {
    2 * at
}

fn departs(at: Ps) -> Ps {
    2 * at + 1
}

impl Links {
    fn new(graph: &Graph, streams: u32) -> Self {
        let count = graph.links().len();
        Self { events: EventQueue::new(), streams, idle: vec![true; count], waiting: vec![BinaryHeap::new(); count] }
    }

    /// A stream has a piece for the link.
    fn offer(&mut self, link: u32, due: Ps, stream: u32, now: Ps) {
        self.waiting[link as usize].push(Reverse((due, stream)));
        if std::mem::replace(&mut self.idle[link as usize], false) {
            self.events.push(departs(now), self.streams + link);
        }
    }

    /// The most urgent of what waits for the link, which is idle without.
    fn take(&mut self, link: u32) -> Option<PeekMut<'_, Reverse<(Ps, u32)>>> {
        let first = self.waiting[link as usize].peek_mut();
        self.idle[link as usize] = first.is_none();
        first
    }
}

/// The streams of some trees.
pub(super) struct Pipeline<'a> {
    graph: &'a Graph,
    pieces: u32,
    streams: Vec<Stream>,
    /// Streams of a tree up, and as many down.
    edges: usize,
    /// Per stream, those that must have brought a piece before it goes on, and those that wait for it.
    sources: Lists,
    targets: Lists,
    /// Time in which the busiest port passes one piece of all trees.
    period: Ps,
}

/// A list of numbers per number.
#[derive(Default)]
struct Lists {
    ends: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    fn push(&mut self, items: impl Iterator<Item = u32>) {
        self.items.extend(items);
        self.ends.push(self.items.len() as u32);
    }

    #[inline]
    fn of(&self, at: u32) -> &[u32] {
        let first = if at == 0 { 0 } else { self.ends[at as usize - 1] };
        &self.items[first as usize..self.ends[at as usize] as usize]
    }
}

impl<'a> Pipeline<'a> {
    /// Pieces of up to `bytes` each, of which all trees have one in a period, one tree after the other if `in_turn`.
    pub(super) fn new(
        graph: &'a Graph,
        partner: &[u32],
        trees: &[Tree],
        pieces: u32,
        bytes: u64,
        in_turn: bool,
    ) -> Self {
        let edges = graph.nodes() as usize - 1;
        let slowest = graph.links().iter().map(|l| l.rate.ps(bytes)).max().unwrap_or(0).max(1);
        let latency = graph.links().iter().map(|l| l.latency_ps).max().unwrap_or(0);
        // A piece waits at each link, too. Of 1, 1.25, .. 2.5 times its hop, this is the quickest on meshes of all sizes;
        // at a switch, what is under way takes whole turns of a port.
        let hop = match graph.switch() {
            None => slowest.saturating_add(latency).saturating_mul(7) / 4,
            Some(_) => slowest.saturating_mul(1 + latency.div_ceil(slowest)),
        };
        let mut pipeline = Self {
            graph,
            pieces,
            streams: Vec::with_capacity(2 * edges * trees.len()),
            edges,
            sources: Lists::default(),
            targets: Lists::default(),
            period: 0,
        };
        for tree in trees {
            spend(64 * edges as u64);
            pipeline.add(tree, partner, hop);
        }
        let mut load = vec![0u64; graph.ports() as usize];
        pipeline.streams.iter().for_each(|stream| load[graph.port(stream.link) as usize] += 1);
        pipeline.period = slowest.saturating_mul(load.into_iter().max().unwrap_or(0));
        let longest = pipeline.streams.iter().map(|stream| stream.due).max().unwrap_or(0);
        let step = if in_turn { pipeline.period } else { 0 };
        for (tree, streams) in (0..).zip(pipeline.streams.chunks_mut(2 * edges)) {
            let start = longest.saturating_add((step / trees.len() as u64).saturating_mul(tree));
            streams.iter_mut().for_each(|stream| stream.due = start - stream.due);
        }
        pipeline
    }

    fn add(&mut self, tree: &Tree, partner: &[u32], hop: Ps) {
        let (first, root) = (self.streams.len() as u32, tree.order[0]);
        let mut place = vec![u32::MAX; tree.up.len()];
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); tree.up.len()];
        for (index, &node) in (0..).zip(&tree.order[1..]) {
            place[node as usize] = index;
            children[self.parent(tree, node) as usize].push(index);
        }
        let (depth, below) = tree.depths(self.graph);
        let ups = |of: u32| children[of as usize].iter().map(move |&child| first + child);
        let downs = |of: u32| ups(of).map(|up| up + self.edges as u32);
        for &node in &tree.order[1..] {
            let parent = self.parent(tree, node);
            let left = hop.saturating_mul(Ps::from(depth[node as usize] + tree.height));
            self.streams.push(Stream { link: tree.up[node as usize], due: left });
            self.sources.push(ups(node));
            if parent == root {
                self.targets.push(downs(root));
            } else {
                self.targets.push(std::iter::once(first + place[parent as usize]));
            }
        }
        for &node in &tree.order[1..] {
            let parent = self.parent(tree, node);
            let left = hop.saturating_mul(Ps::from(below[node as usize] + 1));
            self.streams.push(Stream { link: partner[tree.up[node as usize] as usize], due: left });
            if parent == root {
                self.sources.push(ups(root));
            } else {
                self.sources.push(std::iter::once(first + self.edges as u32 + place[parent as usize]));
            }
            self.targets.push(downs(node));
        }
    }

    fn parent(&self, tree: &Tree, node: u32) -> u32 {
        self.graph.link(tree.up[node as usize]).to
    }

    fn transfer(&self, stream: u32, piece: u32) -> Transfer {
        let (tree, way) = (stream as usize / (2 * self.edges), stream as usize % (2 * self.edges));
        let (link, chunk) = (self.streams[stream as usize].link, tree as u32 * self.pieces + piece);
        if way < self.edges { Transfer::add(link, chunk) } else { Transfer::copy(link, chunk) }
    }

    /// All transfers in the order of their departure, over links of their own. Every link carries the most urgent of
    /// what is ready. Pieces of a stream never overtake each other, so a count of those that came is enough.
    pub(super) fn in_time(&self, bytes: u64) -> Vec<Transfer> {
        let count = self.streams.len() as u32;
        let mut streams: Vec<Progress> = self.streams.iter().map(|&stream| Progress::of(stream)).collect();
        let mut links = Links::new(self.graph, count);
        // Only the order counts: coarse ticks do, and are quicker to sort.
        let links_of = self.graph.links();
        let quickest = links_of.iter().map(|l| l.rate.ps(bytes)).min().unwrap_or(0);
        let ticks = |ps: Ps| ps.div_ceil((quickest / TICKS).max(1)).min(LONGEST);
        let times: Vec<(u64, u64)> = links_of.iter().map(|l| (ticks(l.rate.ps(bytes)), ticks(l.latency_ps))).collect();
        for (number, stream) in (0..).zip(&mut streams) {
            if self.sources.of(number).is_empty() {
                stream.ready = self.pieces;
                links.offer(stream.link, stream.due, number, 0);
            }
        }
        let mut order = Vec::with_capacity(streams.len() * self.pieces as usize);
        while let Some((key, event)) = links.events.pop() {
            let now = key / 2;
            if event < count {
                streams[event as usize].arrived += 1;
                for &target in self.targets.of(event) {
                    let there = |&source: &u32| streams[source as usize].arrived;
                    let ready = self.sources.of(target).iter().map(there).min().unwrap_or(0);
                    let stream = &mut streams[target as usize];
                    let before = std::mem::replace(&mut stream.ready, ready);
                    if before < ready && before == stream.served {
                        links.offer(stream.link, stream.due, target, now);
                    }
                }
                continue;
            }
            spend(64);
            let link = event - count;
            let Some(mut first) = links.take(link) else { continue };
            let number = first.0.1;
            let stream = &mut streams[number as usize];
            let transfer = self.transfer(number, stream.served);
            stream.served += 1;
            stream.due = stream.due.saturating_add(self.period);
            if stream.served < stream.ready {
                *first = Reverse((stream.due, number));
                drop(first);
            } else {
                PeekMut::pop(first);
            }
            order.push(transfer);
            let (busy, latency) = times[link as usize];
            links.events.push(arrives(now + busy + latency), number);
            links.events.push(departs(now + busy), event);
        }
        order
    }

    /// The same as jobs for [`dispatch`](crate::list::dispatch), numbered by (tree, piece, way, node).
    pub(super) fn jobs(&self) -> Vec<Job> {
        let of_tree = 2 * self.edges as u32;
        let mut jobs = Vec::with_capacity(self.streams.len() * self.pieces as usize);
        for first in (0..self.streams.len() as u32).step_by(of_tree as usize) {
            for piece in 0..self.pieces {
                spend(16 * u64::from(of_tree));
                jobs.extend((first..first + of_tree).map(|stream| Job {
                    transfer: self.transfer(stream, piece),
                    priority:
                        self.streams[stream as usize].due.saturating_add(self.period.saturating_mul(piece.into())),
                    waits: self.sources.of(stream).len() as u32,
                }));
            }
        }
        jobs
    }

    /// Wakes the jobs that wait for `job`.
    pub(super) fn then(&self, job: u32, wake: &mut dyn FnMut(u32)) {
        let of_tree = 2 * self.edges as u32;
        let (chunk, way) = (job / of_tree, job % of_tree);
        let (tree, first) = (chunk / self.pieces, chunk * of_tree);
        self.targets.of(tree * of_tree + way).iter().for_each(|target| wake(first + target - tree * of_tree));
    }
}
