//! All-gather on networks that look the same from every NPU: the way of one NPU's share, carried over to all others.
//!
//! Where the numbers of the NPUs form a group (a ring, a torus, a hypercube, a full mesh) and a link leads by the same
//! step from every one of them, the share of NPU `x` can go wherever that of NPU 0 goes, moved on by `x`. If the share
//! of NPU 0 crosses one link of each step at a time, no two shares ever meet on a link. So it is enough to spread one
//! share with one port per step: `n - 1` jobs instead of `n (n - 1)` transfers.

use crate::random::Random;
use crate::schedule::{Schedule, Transfer};
use crate::{Graph, Synthesis};
use ahbm_engine::interrupt::spend;
use ahbm_machine::Ps;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::RangeInclusive;

/// Jobs that all starts together may try, and numbers of starts.
const WORK: u64 = 2_000;
const STARTS: RangeInclusive<u64> = 4..=50;

/// The links of a network that looks the same from every NPU.
pub(crate) struct Translations<'a> {
    graph: &'a Graph,
    /// Numbers are added digit by digit, each modulo its extent.
    extents: Vec<u32>,
    /// Per step and NPU, the link by which the step leads on from the NPU.
    links: Vec<Vec<u32>>,
}

impl<'a> Translations<'a> {
    /// `None` where links differ or the network does not look the same from everywhere.
    pub(crate) fn of(graph: &'a Graph) -> Option<Self> {
        if graph.switch().is_some() || !graph.uniform() {
            return None;
        }
        Self::among(graph, graph.grid().map_or_else(|| vec![graph.nodes()], |grid| grid.extents.clone()))
    }

    fn among(graph: &'a Graph, extents: Vec<u32>) -> Option<Self> {
        let mut found = Self { graph, extents, links: Vec::new() };
        let steps = found.steps_from(0);
        found.links = steps.iter().map(|&(_, link)| Vec::from([link])).collect();
        for node in 1..graph.nodes() {
            spend(16 * steps.len() as u64);
            let here = found.steps_from(node);
            if here.len() != steps.len() || here.iter().zip(&steps).any(|(a, b)| a.0 != b.0) {
                return None;
            }
            for (links, (_, link)) in found.links.iter_mut().zip(here) {
                links.push(link);
            }
        }
        Some(found)
    }

    /// The links from a node with the step of each, in the order of the steps.
    fn steps_from(&self, node: u32) -> Vec<(u32, u32)> {
        let step = |&link: &u32| (self.minus(self.graph.link(link).to, node), link);
        let mut steps: Vec<(u32, u32)> = self.graph.out(node).iter().map(step).collect();
        steps.sort_unstable();
        steps
    }

    fn minus(&self, mut a: u32, mut b: u32) -> u32 {
        let (mut difference, mut stride) = (0, 1);
        for &extent in &self.extents {
            difference += (a % extent + extent - b % extent) % extent * stride;
            (a, b, stride) = (a / extent, b / extent, stride * extent);
        }
        difference
    }

    /// The sums of `by` and every number, in order.
    fn sums(&self, mut by: u32, sums: &mut Vec<u32>) {
        sums.clear();
        sums.push(0);
        for &extent in &self.extents {
            let (digit, stride) = (by % extent, sums.len());
            by /= extent;
            sums.resize(stride * extent as usize, 0);
            for turn in (0..extent).rev() {
                let shift = (turn + digit) % extent * stride as u32;
                for at in 0..stride {
                    sums[turn as usize * stride + at] = sums[at] + shift;
                }
            }
        }
    }

    /// The quickest of many all-gathers, of which `base` says the chunks.
    pub(crate) fn spread(&self, base: Schedule, seed: u64) -> Synthesis {
        let (pieces, n) = (base.chunk_bytes.len(), self.graph.nodes() as usize);
        let Share { end, rounds, jobs } = self.quickest(&base.chunk_bytes, seed);
        let mut transfers = Vec::with_capacity(jobs.len() * n);
        let mut senders = Vec::new();
        for job in jobs {
            spend(8 * n as u64);
            self.sums(job.from, &mut senders);
            let links = &self.links[job.step as usize];
            let chunks = (job.piece..).step_by(pieces);
            transfers.extend(senders.iter().zip(chunks).map(|(&v, chunk)| Transfer::copy(links[v as usize], chunk)));
        }
        Synthesis { schedule: Schedule { transfers, ..base }, time_ps: end, rounds }
    }

    /// The time of an all-gather of shares of these chunks, at least as long as that of [`Self::spread`].
    pub(crate) fn spread_ps(&self, chunk_bytes: &[u64], seed: u64) -> Ps {
        self.share(chunk_bytes, seed, false).end
    }

    fn quickest(&self, chunk_bytes: &[u64], seed: u64) -> Share {
        let (pieces, n) = (chunk_bytes.len() as u64, u64::from(self.graph.nodes()));
        let (floor, starts) = (self.floor_ps(chunk_bytes), (WORK / (pieces * n)).clamp(*STARTS.start(), *STARTS.end()));
        let mut best: Option<Share> = None;
        for turn in 0..starts {
            spend(256 * pieces * n);
            let found = self.share(chunk_bytes, seed.wrapping_add(turn), turn % 2 == 1);
            best = best.filter(|best| best.end <= found.end).or(Some(found));
            if best.as_ref().is_some_and(|best| best.end <= floor) {
                break;
            }
        }
        best.unwrap_or_default()
    }

    /// Every port is busy from the first moment to the last, but while it waits for something other than the share.
    fn floor_ps(&self, chunk_bytes: &[u64]) -> Ps {
        let (pieces, steps) = (chunk_bytes.len() as u64, self.links.len() as u64);
        let rounds = (pieces * u64::from(self.graph.nodes() - 1)).div_ceil(steps);
        let link = self.graph.link(0);
        let piece = link.rate.ps(chunk_bytes.iter().copied().min().unwrap_or(0));
        let latency = link.latency_ps;
        let wait = if rounds > pieces { latency.saturating_sub((pieces - 1).saturating_mul(piece)) } else { 0 };
        let hops = self.graph.hops(0).into_iter().max().map_or(0, u64::from);
        let far = piece.saturating_add(latency).saturating_mul(hops);
        piece.saturating_mul(rounds).saturating_add(latency).saturating_add(wait).max(far)
    }

    /// The share of NPU 0 goes to everybody. A port takes what has waited for longest, so that latencies are waited for
    /// while there is something else to do, or `any` of what waits.
    fn share(&self, chunk_bytes: &[u64], seed: u64, any: bool) -> Share {
        let (pieces, n) = (chunk_bytes.len() as u32, self.graph.nodes());
        let link = self.graph.link(0);
        let busy: Vec<Ps> = chunk_bytes.iter().map(|&bytes| link.rate.ps(bytes)).collect();
        let leads = |step: u32, from: u32| self.graph.link(self.links[step as usize][from as usize]).to;
        let register = |node: u32, piece: u32| (node * pieces + piece) as usize;
        let mut random = Random::new(seed);
        let mut share = Share::default();
        // Per register, whether the piece is there or on its way, and the round in which it came.
        let mut claimed = vec![false; register(n, 0)];
        let mut round = vec![0; claimed.len()];
        let mut ports = vec![Port { idle: true, ..Port::default() }; self.links.len()];
        let mut events: BinaryHeap<Reverse<(Ps, Event)>> = BinaryHeap::new();
        for piece in 0..pieces {
            claimed[register(0, piece)] = true;
            events.push(Reverse((0, Event::Arrival(random.next(), 0, piece))));
        }
        while let Some(Reverse((now, event))) = events.pop() {
            match event {
                Event::Arrival(_, node, piece) => {
                    for (step, port) in (0..).zip(&mut ports) {
                        if claimed[register(leads(step, node), piece)] {
                            continue;
                        }
                        port.waiting.push_back((node, piece));
                        if std::mem::replace(&mut port.idle, false) {
                            events.push(Reverse((now, Event::Departure(random.next(), step))));
                        }
                    }
                }
                Event::Departure(_, step) => {
                    let port = &mut ports[step as usize];
                    let open = |&(from, piece): &(u32, u32)| !claimed[register(leads(step, from), piece)];
                    while port.waiting.front().is_some_and(|job| !open(job)) {
                        port.waiting.pop_front();
                    }
                    let all = port.waiting.len();
                    let first = if any { random.below(all as u32) as usize } else { 0 };
                    let next = (first..all).chain(0..first).find(|&at| open(&port.waiting[at]));
                    let Some((from, piece)) = next.and_then(|at| port.waiting.swap_remove_front(at)) else {
                        port.idle = true;
                        continue;
                    };
                    let to = leads(step, from);
                    claimed[register(to, piece)] = true;
                    port.served = port.served.max(round[register(from, piece)]) + 1;
                    round[register(to, piece)] = port.served;
                    share.rounds = share.rounds.max(port.served);
                    share.jobs.push(Job { from, step, piece });
                    let left = now.saturating_add(busy[piece as usize]);
                    let arrival = left.saturating_add(link.latency_ps);
                    share.end = share.end.max(arrival);
                    events.push(Reverse((left, Event::Departure(random.next(), step))));
                    events.push(Reverse((arrival, Event::Arrival(random.next(), to, piece))));
                }
            }
        }
        share
    }
}

/// What serves the links of a step, at NPU 0's share.
#[derive(Debug, Clone, Default)]
struct Port {
    idle: bool,
    /// Nodes and pieces that came there, the earliest first; some have been sent on by other steps meanwhile.
    waiting: VecDeque<(u32, u32)>,
    /// The round in which it last served something.
    served: u64,
}

/// What happens to the share of NPU 0: at one instant, arrivals before departures, each in random order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// At a node, of a piece.
    Arrival(u64, u32, u32),
    /// By a step whose port is free.
    Departure(u64, u32),
}

/// A piece of NPU 0's share goes on from a node by a step.
#[derive(Debug, Clone, Copy)]
struct Job {
    from: u32,
    step: u32,
    piece: u32,
}

/// The ways of NPU 0's share to everybody.
#[derive(Debug, Clone, Default)]
struct Share {
    end: Ps,
    rounds: u64,
    /// In the order in which they depart.
    jobs: Vec<Job>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::{full, gather, grid, hypercube};
    use crate::{Collective, Link, bound, split};

    fn ring(n: u32) -> Graph {
        grid(&[n], true)
    }

    fn symmetric() -> impl Iterator<Item = (Graph, Vec<u32>)> {
        let tori = [[4, 4].as_slice(), &[5, 3], &[8, 4], &[8, 8], &[3, 4, 5]];
        let tori = tori.into_iter().map(|extents| (grid(extents, true), extents.to_vec()));
        let others = [(ring(7), vec![7]), (ring(8), vec![8]), (hypercube(5), vec![2; 5]), (full(6), vec![6])];
        tori.chain(others)
    }

    fn base(graph: &Graph, bytes: u64, pieces: u32) -> Schedule {
        Schedule { chunk_bytes: split(bytes, pieces, 1), ..gather(graph.nodes()) }
    }

    /// The times that are known from one share are those of all transfers.
    #[test]
    fn every_share_goes_like_the_first() {
        for (graph, extents) in symmetric() {
            let translations = Translations::among(&graph, extents.clone()).unwrap();
            for (bytes, pieces) in [(1_000_000, 1), (4096, 3), (64, 2)] {
                let base = base(&graph, bytes, pieces);
                let found = translations.spread(base.clone(), 3);
                found.schedule.check(&graph).unwrap();
                let times = found.schedule.times(&graph, false);
                assert_eq!((found.time_ps, found.rounds), (times.total_ps, times.rounds), "{extents:?}");
                assert!(found.time_ps >= translations.floor_ps(&base.chunk_bytes));
                assert_eq!(translations.spread(base, 3), found);
                // Moved on by any NPU, the schedule is the same one in another order.
                let n = graph.nodes();
                for by in [1, n / 2, n - 1] {
                    let mut moved = Vec::new();
                    translations.sums(by, &mut moved);
                    let key = |from: u32, to: u32, chunk: u32| (from, to, chunk / pieces, chunk % pieces);
                    let ends = |t: &Transfer| (graph.link(t.link).from, graph.link(t.link).to, t.chunk());
                    let mut here: Vec<_> = found
                        .schedule
                        .transfers
                        .iter()
                        .map(ends)
                        .map(|(from, to, chunk)| key(from, to, chunk))
                        .collect();
                    let mut there: Vec<_> = here
                        .iter()
                        .map(|t| (moved[t.0 as usize], moved[t.1 as usize], moved[t.2 as usize], t.3))
                        .collect();
                    here.sort_unstable();
                    there.sort_unstable();
                    assert_eq!(here, there);
                }
            }
        }
    }

    /// As many rounds as the bound says, which no search over all transfers found on 8 x 4 or 16 x 16.
    #[test]
    fn the_bound_is_attained() {
        let large = [(grid(&[16, 16], true), vec![16, 16]), (hypercube(7), vec![2; 7])];
        for (graph, extents) in symmetric().chain(large) {
            let limit = bound(&graph, Collective::AllGather, 1_000_000, 0).rounds(1).unwrap();
            let found = Translations::among(&graph, extents.clone()).unwrap().spread(gather(graph.nodes()), 0);
            assert_eq!(found.rounds, limit, "{extents:?}");
        }
    }

    #[test]
    fn what_does_not_look_the_same_from_everywhere_is_left_to_the_search() {
        let links = ring(6).links().to_vec();
        let of = |links: Vec<Link>| Graph::new(6, links).unwrap();
        assert!(Translations::of(&of(links.clone())).is_some());
        assert!(Translations::of(&grid(&[4, 4], false)).is_none());
        let mut slower = links.clone();
        slower[0].latency_ps += 1;
        assert!(Translations::of(&of(slower)).is_none());
        let more = [links.clone(), vec![Link { to: 3, ..links[0] }]].concat();
        assert!(Translations::of(&of(more)).is_none());
        assert!(Translations::of(&of(links[1..].to_vec())).is_none());
        // Two links side by side are two steps.
        let twice = of([links.clone(), links].concat());
        let found = Translations::of(&twice).unwrap().spread(gather(6), 0);
        found.schedule.check(&twice).unwrap();
        assert_eq!(found.rounds, 3, "the distance of the farthest");
    }
}
