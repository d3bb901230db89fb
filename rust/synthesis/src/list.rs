//! List scheduling: jobs with dependences are put on their links by priority, in event time.

use crate::Graph;
use crate::schedule::Transfer;
use ahbm_machine::Ps;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

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
    let mut ready: Vec<BinaryHeap<Reverse<(u64, u32)>>> = vec![BinaryHeap::new(); graph.links().len()];
    let mut free: Vec<Ps> = vec![0; graph.links().len()];
    // (time, departs, job or link): arrivals before departures of one instant.
    let mut events: BinaryHeap<Reverse<(Ps, bool, u32)>> = BinaryHeap::new();
    for (index, job) in jobs.iter().enumerate() {
        if job.waits == 0 {
            ready[job.transfer.link as usize].push(Reverse((job.priority, index as u32)));
        }
    }
    for (link, ready) in ready.iter().enumerate() {
        if !ready.is_empty() {
            events.push(Reverse((0, true, link as u32)));
        }
    }
    let mut order = Vec::with_capacity(jobs.len());
    while let Some(Reverse((now, departs, index))) = events.pop() {
        if departs {
            let link = graph.link(index);
            if free[index as usize] > now {
                continue;
            }
            let Some(Reverse((_, job))) = ready[index as usize].pop() else { continue };
            let transfer = jobs[job as usize].transfer;
            order.push(transfer);
            let left = now + link.rate.ps(bytes(transfer.chunk()));
            free[index as usize] = left;
            events.push(Reverse((left, true, index)));
            events.push(Reverse((left + link.latency_ps, false, job)));
        } else {
            then(index, &mut |next| {
                let job = &mut jobs[next as usize];
                job.waits -= 1;
                if job.waits == 0 {
                    let link = job.transfer.link;
                    ready[link as usize].push(Reverse((job.priority, next)));
                    if free[link as usize] <= now {
                        events.push(Reverse((now, true, link)));
                    }
                }
            });
        }
    }
    order
}
