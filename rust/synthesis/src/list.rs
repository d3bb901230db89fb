//! List scheduling: jobs with dependences are put on their ports by priority, in event time.

use crate::Graph;
use crate::graph::Clock;
use crate::schedule::{Schedule, Transfer};
use ahbm_machine::Ps;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

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

/// Puts the jobs in order of departure. `then` calls its second argument with every job that waits for the first.
pub(crate) fn dispatch(
    graph: &Graph,
    mut jobs: Vec<Job>,
    bytes: impl Fn(u32) -> u64,
    then: impl Fn(u32, &mut dyn FnMut(u32)),
) -> Vec<Transfer> {
    let mut ready: Vec<BinaryHeap<Reverse<(u64, u32)>>> = vec![BinaryHeap::new(); graph.ports() as usize];
    let mut clock = Clock::new(graph);
    // (time, departs, job or port): arrivals before departures of one instant.
    let mut events: BinaryHeap<Reverse<(Ps, bool, u32)>> = BinaryHeap::new();
    for (index, job) in jobs.iter().enumerate() {
        if job.waits == 0 {
            ready[graph.port(job.transfer.link) as usize].push(Reverse((job.priority, index as u32)));
        }
    }
    for (port, ready) in ready.iter().enumerate() {
        if !ready.is_empty() {
            events.push(Reverse((0, true, port as u32)));
        }
    }
    let mut order = Vec::with_capacity(jobs.len());
    while let Some(Reverse((now, departs, index))) = events.pop() {
        if departs {
            let Some(&Reverse((_, job))) = ready[index as usize].peek() else { continue };
            let transfer = jobs[job as usize].transfer;
            if clock.free(transfer.link) > now {
                continue;
            }
            ready[index as usize].pop();
            order.push(transfer);
            let (left, arrival) = clock.send(transfer.link, now, bytes(transfer.chunk()));
            events.push(Reverse((left, true, index)));
            events.push(Reverse((arrival, false, job)));
        } else {
            then(index, &mut |next| {
                let job = &mut jobs[next as usize];
                job.waits -= 1;
                if job.waits == 0 {
                    let link = job.transfer.link;
                    ready[graph.port(link) as usize].push(Reverse((job.priority, next)));
                    if clock.free(link) <= now {
                        events.push(Reverse((now, true, graph.port(link))));
                    }
                }
            });
        }
    }
    order
}

/// The same where all jobs take equally long, without events: in each round every port serves one job, which has arrived
/// `lag` rounds later: no fewer than the latency takes, or links stall on what is still under way. Rounds only decide
/// the order; what departs early departs early.
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
