//! List scheduling: jobs with dependences are put on their ports by priority, in event time.

use crate::Graph;
use crate::graph::Clock;
use crate::schedule::{Schedule, Transfer};
use ahbm_machine::Ps;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// How many jobs are looked at for one that need not wait inside a switch.
const PASSING: usize = 32;

/// Behind the last of a chain.
const END: u32 = u32::MAX;

/// One transfer to be scheduled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub(crate) transfer: Transfer,
    /// Among the jobs that are ready for a link the least one goes first.
    pub(crate) priority: u64,
    /// Number of jobs that must have arrived before.
    pub(crate) waits: u32,
}

/// What happens at one instant: arrivals, then heads at a switch by the ports they come from, then departures by port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Of a job.
    Arrival(u32),
    /// Port, job, and when the job's last byte left the port.
    Head(u32, u32, Ps),
    /// Of something from a port that may be free.
    Departure(u32),
}

/// Puts the jobs in order of departure, at a switch in the order in which they reach the ports that lead out of it.
/// `then` calls its second argument with every job that waits for the first.
pub(crate) fn dispatch(
    graph: &Graph,
    mut jobs: Vec<Job>,
    bytes: impl Fn(u32) -> u64,
    then: impl Fn(u32, &mut dyn FnMut(u32)),
) -> Vec<Transfer> {
    let mut ready: Vec<BinaryHeap<Reverse<(u64, u32)>>> = vec![BinaryHeap::new(); graph.ports() as usize];
    let mut clock = Clock::new(graph);
    // Per NPU at a switch, until when the port that leads to it will be busy with what is under way.
    let mut promised = vec![0; graph.nodes() as usize];
    let mut events: BinaryHeap<Reverse<(Ps, Event)>> = BinaryHeap::new();
    for (index, job) in jobs.iter().enumerate() {
        if job.waits == 0 {
            ready[graph.port(job.transfer.link) as usize].push(Reverse((job.priority, index as u32)));
        }
    }
    for (port, ready) in ready.iter().enumerate() {
        if !ready.is_empty() {
            events.push(Reverse((0, Event::Departure(port as u32))));
        }
    }
    let mut order = Vec::with_capacity(jobs.len());
    while let Some(Reverse((now, event))) = events.pop() {
        let arrived = match event {
            Event::Arrival(job) => job,
            Event::Head(_, job, left) => {
                let transfer = jobs[job as usize].transfer;
                order.push(transfer);
                let arrival = clock.arrive(transfer.link, left, bytes(transfer.chunk()));
                events.push(Reverse((arrival, Event::Arrival(job))));
                continue;
            }
            Event::Departure(port) => {
                let ready = &mut ready[port as usize];
                let Some(&Reverse((_, job))) = ready.peek() else { continue };
                if clock.free(jobs[job as usize].transfer.link) > now {
                    continue;
                }
                let passes = |&Reverse((_, job)): &Reverse<(u64, u32)>| {
                    let Transfer { link, .. } = jobs[job as usize].transfer;
                    let size = bytes(jobs[job as usize].transfer.chunk());
                    let left = now + graph.link(link).rate.ps(size);
                    let head = clock.head(link, left, size);
                    head.is_none_or(|head| promised[graph.link(link).to as usize] <= head)
                };
                let mut first: Vec<_> = Vec::new();
                while first.len() < PASSING && !first.last().is_some_and(passes) {
                    let Some(next) = ready.pop() else { break };
                    first.push(next);
                }
                let chosen = first.iter().position(passes).unwrap_or(0);
                let Reverse((_, job)) = first.swap_remove(chosen);
                ready.extend(first);
                let transfer = jobs[job as usize].transfer;
                let size = bytes(transfer.chunk());
                let left = clock.leave(transfer.link, now, size);
                events.push(Reverse((left, Event::Departure(port))));
                if let Some(head) = clock.head(transfer.link, left, size) {
                    let promised = &mut promised[graph.link(transfer.link).to as usize];
                    *promised = head.max(*promised) + (left - now);
                    events.push(Reverse((head, Event::Head(port, job, left))));
                } else {
                    order.push(transfer);
                    let arrival = clock.arrive(transfer.link, left, size);
                    events.push(Reverse((arrival, Event::Arrival(job))));
                }
                continue;
            }
        };
        then(arrived, &mut |next| {
            let job = &mut jobs[next as usize];
            job.waits -= 1;
            if job.waits == 0 {
                let link = job.transfer.link;
                ready[graph.port(link) as usize].push(Reverse((job.priority, next)));
                if clock.free(link) <= now {
                    events.push(Reverse((now, Event::Departure(graph.port(link)))));
                }
            }
        });
    }
    order
}

/// The same where all jobs take equally long, without events: in each round every port serves one job, which has
/// arrived `lag` rounds later: no fewer than the latency takes, or links stall on what is still under way. Rounds only
/// decide the order; what departs early departs early.
pub(crate) fn dispatch_in_rounds(
    graph: &Graph,
    mut jobs: Vec<Job>,
    lag: usize,
    then: impl Fn(u32, &mut dyn FnMut(u32)),
) -> Vec<Transfer> {
    let mut ready: Vec<BinaryHeap<Reverse<(u64, u32)>>> = vec![BinaryHeap::new(); graph.ports() as usize];
    let mut busy: Vec<u32> = Vec::new();
    for (index, job) in jobs.iter().enumerate().filter(|j| j.1.waits == 0) {
        let port = graph.port(job.transfer.link);
        if ready[port as usize].is_empty() {
            busy.push(port);
        }
        ready[port as usize].push(Reverse((job.priority, index as u32)));
    }
    let mut order = Vec::with_capacity(jobs.len());
    let mut arriving: VecDeque<Vec<u32>> = vec![Vec::new(); lag].into();
    while order.len() < jobs.len() && (!busy.is_empty() || arriving.iter().any(|jobs| !jobs.is_empty())) {
        let mut served = Vec::with_capacity(busy.len());
        busy.retain(|&port| {
            let Some(Reverse((_, job))) = ready[port as usize].pop() else { return false };
            order.push(jobs[job as usize].transfer);
            served.push(job);
            !ready[port as usize].is_empty()
        });
        arriving.push_back(served);
        for job in arriving.pop_front().into_iter().flatten() {
            then(job, &mut |next| {
                let job = &mut jobs[next as usize];
                job.waits -= 1;
                if job.waits == 0 {
                    let port = graph.port(job.transfer.link);
                    if ready[port as usize].is_empty() {
                        busy.push(port);
                    }
                    ready[port as usize].push(Reverse((job.priority, next)));
                }
            });
        }
    }
    order
}

/// The same schedule with its transfers in the order in which they can depart, earlier ones of the list first.
pub(crate) fn arrange(graph: &Graph, mut schedule: Schedule) -> Schedule {
    let (n, chunks) = (graph.nodes(), schedule.chunks());
    // Per register, the transfers that make up what it holds; per transfer, the first of those that wait for it, which
    // `chain` goes on from: (transfer, next).
    let mut made: Vec<Vec<u32>> = vec![Vec::new(); schedule.registers(n)];
    let mut after = vec![END; schedule.transfers.len()];
    let mut chain: Vec<(u32, u32)> = Vec::with_capacity(schedule.transfers.len());
    let mut jobs = Vec::with_capacity(schedule.transfers.len());
    for (index, &transfer) in schedule.transfers.iter().enumerate() {
        let ends = graph.link(transfer.link);
        let source = &made[schedule.register(n, chunks, ends.from, transfer.chunk())];
        jobs.push(Job { transfer, priority: index as u64, waits: source.len() as u32 });
        for &before in source {
            chain.push((index as u32, after[before as usize]));
            after[before as usize] = chain.len() as u32 - 1;
        }
        let target = &mut made[schedule.register(n, chunks, ends.to, transfer.chunk())];
        if !transfer.adds() {
            target.clear();
        }
        target.push(index as u32);
    }
    let bytes = |chunk| schedule.bytes(chunk);
    schedule.transfers = dispatch(graph, jobs, bytes, |job, wake| {
        let mut at = after[job as usize];
        while let Some(&(next, then)) = chain.get(at as usize) {
            wake(next);
            at = then;
        }
    });
    schedule
}
