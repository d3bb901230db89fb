//! List scheduling: jobs with dependences are put on their ports by priority, in event time.

use crate::Graph;
use crate::graph::Clock;
use crate::schedule::{Schedule, Transfer};
use ahbm_engine::interrupt::spend;
use ahbm_machine::Ps;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

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

/// The events of one instant: arrivals, then heads at a switch by the ports they come from, then departures by port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Of a job.
    Arrival(u32),
    /// Port, job, and when the job's last byte left the port.
    Head(u32, u32, Ps),
    /// Of something from a port that may be free.
    Departure(u32),
}

/// Jobs on their way, and the ports they wait for.
struct Ports<'a, B> {
    graph: &'a Graph,
    jobs: Vec<Job>,
    bytes: B,
    /// Per port, jobs that have nothing to wait for but the port: (priority, job).
    ready: Vec<BTreeSet<(u64, u32)>>,
    clock: Clock<'a>,
    /// Per NPU at a switch, until when the port that leads to it will be busy with what is under way.
    promised: Vec<Ps>,
    events: BinaryHeap<Reverse<(Ps, Event)>>,
    /// Transfers in the order that is made.
    order: Vec<Transfer>,
}

/// Puts the jobs in order of departure, at a switch in the order in which they reach the ports that lead out of it.
/// `then` calls its second argument with every job that waits for the first.
pub(crate) fn dispatch(
    graph: &Graph,
    jobs: Vec<Job>,
    bytes: impl Fn(u32) -> u64,
    then: impl Fn(u32, &mut dyn FnMut(u32)),
) -> Vec<Transfer> {
    let mut ports = Ports::new(graph, jobs, bytes);
    while let Some(Reverse((now, event))) = ports.events.pop() {
        spend(32);
        match event {
            Event::Arrival(job) => then(job, &mut |next| ports.release(next, now)),
            Event::Head(_, job, left) => ports.pass(job, left),
            Event::Departure(port) => ports.depart(port, now),
        }
    }
    ports.order
}

impl<'a, B: Fn(u32) -> u64> Ports<'a, B> {
    fn new(graph: &'a Graph, jobs: Vec<Job>, bytes: B) -> Self {
        let mut ready = vec![BTreeSet::new(); graph.ports() as usize];
        for (index, job) in jobs.iter().enumerate().filter(|j| j.1.waits == 0) {
            ready[graph.port(job.transfer.link) as usize].insert((job.priority, index as u32));
        }
        let busy = (0..).zip(&ready).filter(|(_, ready)| !ready.is_empty());
        let events = busy.map(|(port, _)| Reverse((0, Event::Departure(port)))).collect();
        let order = Vec::with_capacity(jobs.len());
        let (clock, promised) = (Clock::new(graph), vec![0; graph.nodes() as usize]);
        Self { graph, jobs, bytes, ready, clock, promised, events, order }
    }

    /// One of the jobs that `job` waits for has arrived.
    fn release(&mut self, job: u32, now: Ps) {
        let waiting = &mut self.jobs[job as usize];
        waiting.waits -= 1;
        if waiting.waits == 0 {
            let link = waiting.transfer.link;
            self.ready[self.graph.port(link) as usize].insert((waiting.priority, job));
            if self.clock.free(link) <= now {
                self.events.push(Reverse((now, Event::Departure(self.graph.port(link)))));
            }
        }
    }

    /// The port sends the job that is its turn, unless it is busy or nothing is ready.
    fn depart(&mut self, port: u32, now: Ps) {
        let Some(&(_, first)) = self.ready[port as usize].first() else { return };
        if self.clock.free(self.jobs[first as usize].transfer.link) > now {
            return;
        }
        let Some(job) = self.choose(port, now) else { return };
        let transfer = self.jobs[job as usize].transfer;
        let size = (self.bytes)(transfer.chunk());
        let left = self.clock.leave(transfer.link, now, size);
        self.events.push(Reverse((left, Event::Departure(port))));
        if let Some(head) = self.clock.head(transfer.link, left, size) {
            let promised = &mut self.promised[self.graph.link(transfer.link).to as usize];
            *promised = head.max(*promised) + (left - now);
            self.events.push(Reverse((head, Event::Head(port, job, left))));
        } else {
            self.pass(job, left);
        }
    }

    /// Takes the first of the ready jobs that need not wait inside a switch, else the first.
    fn choose(&mut self, port: u32, now: Ps) -> Option<u32> {
        let ready = &self.ready[port as usize];
        let passes = |&&(_, job): &&(u64, u32)| {
            let transfer = self.jobs[job as usize].transfer;
            let (link, size) = (transfer.link, (self.bytes)(transfer.chunk()));
            let left = now + self.graph.link(link).rate.ps(size);
            let head = self.clock.head(link, left, size);
            head.is_none_or(|head| self.promised[self.graph.link(link).to as usize] <= head)
        };
        let chosen = *ready.iter().take(PASSING).find(passes).or_else(|| ready.first())?;
        self.ready[port as usize].remove(&chosen);
        Some(chosen.1)
    }

    /// The job, whose last byte has `left` its port, is on its last way.
    fn pass(&mut self, job: u32, left: Ps) {
        let transfer = self.jobs[job as usize].transfer;
        self.order.push(transfer);
        let arrival = self.clock.arrive(transfer.link, left, (self.bytes)(transfer.chunk()));
        self.events.push(Reverse((arrival, Event::Arrival(job))));
    }
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
        spend(16);
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
