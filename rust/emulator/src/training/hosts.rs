//! The hosts of a job: they issue nodes that are ready, lane by lane, and learn when nodes end.

use super::order::{FREE, LANES};
use super::{Replay, Times};
use crate::timing::driven::{Driver, Orders};
use crate::{Span, Timeline};
use ahbm_engine::Time;
use ahbm_findings::Diagnostic;
use ahbm_workload::{Share, Work};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NEVER: Time = Time::MAX;

const CHUNK: u32 = u32::MAX;

/// A rank's lanes.
#[derive(Default)]
struct Rank {
    /// Ready nodes, those of higher priority and then of lower id first.
    ready: [BinaryHeap<(i32, Reverse<u32>)>; LANES],
    busy: [bool; LANES],
}

/// All hosts.
pub(super) struct Hosts<'a> {
    replay: &'a Replay<'a>,
    ranks: Vec<Rank>,
    /// Per place, how many nodes it still waits for.
    open: Vec<u32>,
    nodes: Vec<Span>,
    issued: Vec<u32>,
    count: u32,
    ended: usize,
    /// Per counter of a part's end, the place of its node; [`CHUNK`] for the counter of a chunk.
    of_counter: Vec<u32>,
    /// Per counter of a chunk, whether it is complete and the places that wait for it.
    chunks: FxHashMap<u32, (bool, Vec<u32>)>,
    /// Places that are to be issued, and places that have ended, at this moment.
    pending: Vec<u32>,
    over: Vec<u32>,
}

impl<'a> Hosts<'a> {
    pub(super) fn new(replay: &'a Replay<'a>) -> Self {
        let job = replay.job;
        let mut open = vec![0; job.nodes()];
        let mut of_counter = vec![CHUNK; replay.assembly.program.counters as usize];
        for &rank in &replay.ranks {
            let order = replay.order(rank);
            for at in 0..order.lanes.len() as u32 {
                let place = job.place(rank, at);
                open[place as usize] = order.deps(at).len() as u32;
                if let Some(share) = job.share(place) {
                    let part = replay.assembly.parts[share.launch as usize][share.part as usize];
                    of_counter[part.end as usize] = place;
                }
            }
        }
        Self {
            replay,
            chunks: replay.chunks.iter().map(|(counter, _)| (*counter, Default::default())).collect(),
            ranks: (0..job.workload.ranks.len()).map(|_| Rank::default()).collect(),
            open,
            nodes: vec![Span { start: NEVER, end: NEVER }; job.nodes()],
            issued: vec![u32::MAX; job.nodes()],
            count: 0,
            ended: 0,
            of_counter,
            pending: Vec::new(),
            over: Vec::new(),
        }
    }

    /// Per counter, the value at which its node has ended.
    pub(super) fn watched(&self) -> Vec<u32> {
        let mut watched = vec![0; self.of_counter.len()];
        for part in self.replay.assembly.parts.iter().flatten() {
            watched[part.end as usize] = part.agents;
        }
        for (chunk, (counter, signals)) in self.replay.job.chunks.iter().zip(&self.replay.chunks) {
            watched[*counter as usize] = if chunk.completes { (*signals).max(1) } else { 0 };
        }
        watched
    }

    /// Whether every node has ended.
    pub(super) fn done(&self) -> bool {
        self.ended == self.replay.ranks.iter().map(|&rank| self.replay.order(rank).lanes.len()).sum::<usize>()
    }

    /// The times of all ranks, also of those that another stands for.
    pub(super) fn times(mut self, timeline: &Timeline) -> Times {
        let job = self.replay.job;
        for rank in (0..self.ranks.len() as u32).filter(|rank| job.leads(*rank)) {
            let stand = self.replay.stand(rank);
            if stand != rank {
                let [to, from] = [rank, stand].map(|rank| job.place(rank, 0) as usize);
                let count = self.replay.order(rank).lanes.len();
                self.nodes.copy_within(from..from + count, to);
                self.issued.copy_within(from..from + count, to);
            }
        }
        let (messages, bytes) = self.replay.traffic;
        Times { nodes: self.nodes, issued: self.issued, messages, bytes, events: timeline.events }
    }

    /// Nothing moves any more: which ranks wait in which calls, and for whom.
    pub(super) fn stuck(&self, cause: Option<Diagnostic>) -> Diagnostic {
        let job = self.replay.job;
        let waits = |place: &u32| {
            let span = self.nodes[*place as usize];
            span.start != NEVER && span.end == NEVER && job.share(*place).is_some()
        };
        let waiting: Vec<u32> = (0..self.nodes.len() as u32).filter(waits).collect();
        let late = |place: u32| -> Option<u32> {
            let share = job.share(place)?;
            job.places(share.launch).iter().copied().find(|&other| !self.is_there(other))
        };
        let Some(&first) = waiting.iter().find(|&&place| late(place).is_some()) else {
            return cause.unwrap_or_else(|| Diagnostic::new("AHBM-D102", "the job cannot go on: no node is ready"));
        };
        // From a call to a rank that has not entered it, and on to the call that this rank is in.
        let (mut chain, mut place) = (Vec::new(), first);
        while !chain.contains(&place) {
            chain.push(place);
            let Some(missing) = late(place) else { break };
            let (rank, _) = job.node(missing);
            match waiting.iter().find(|&&other| job.node(other).0 == rank) {
                Some(&next) => place = next,
                None => break,
            }
        }
        let ranks = waiting.iter().map(|&place| job.node(place).0).collect::<std::collections::BTreeSet<_>>().len();
        let mut finding = Diagnostic::new(
            "AHBM-D102",
            format!(
                "the job cannot go on: {ranks} of {} ranks wait in calls that others do not enter",
                self.ranks.len()
            ),
        );
        for place in chain {
            let (rank, at) = job.node(place);
            let missing = late(place).map(|other| job.node(other).0);
            let what = match job.share(place).and_then(|share| job.calls.get(share.launch as usize)) {
                Some(call) => {
                    let group = &job.workload.groups[call.group as usize];
                    format!("{} of group {:?}", call.spec.collective.name(), &*group.name)
                }
                None => "a message".to_owned(),
            };
            let for_whom = missing.map(|rank| format!(", for rank {rank}")).unwrap_or_default();
            finding = finding.site(format!("rank {rank} waits in {what}{for_whom}"), job.workload.origin(rank, at));
        }
        finding.hint("ranks that are in several groups must enter their collectives in orders that fit together")
    }

    /// Issues what is ready at `now` and ends what takes no time, until nothing is left for this moment.
    fn settle(&mut self, now: Time, orders: &mut Orders) {
        loop {
            if let Some(place) = self.over.pop() {
                self.end(place, now);
            } else if let Some(place) = self.pending.pop() {
                self.issue(place, now, orders);
            } else {
                return;
            }
        }
    }

    /// A node has become ready.
    fn ready(&mut self, rank: u32, at: u32) {
        let lane = self.replay.order(rank).lanes[at as usize];
        if lane == FREE {
            return self.pending.push(self.replay.job.place(rank, at));
        }
        let priority = self.replay.job.workload.graph(rank).node(at).priority;
        self.ranks[rank as usize].ready[lane as usize].push((priority, Reverse(at)));
    }

    /// Starts the next node of every free lane of a rank.
    fn fill(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        for lane in 0..LANES {
            if !state.busy[lane]
                && let Some((_, Reverse(at))) = state.ready[lane].pop()
            {
                state.busy[lane] = true;
                self.pending.push(self.replay.job.place(rank, at));
            }
        }
    }

    fn issue(&mut self, place: u32, now: Time, orders: &mut Orders) {
        let (rank, at) = self.replay.job.node(place);
        self.nodes[place as usize].start = now;
        self.issued[place as usize] = self.count;
        self.count += 1;
        let job = self.replay.job;
        let share = job.share(place);
        if let Some(share) = share {
            orders.add.extend(self.replay.given(share));
        }
        if let Some(number) = job.chunk(place) {
            let (counter, _) = self.replay.chunks[number];
            let completes = job.chunks[number].completes;
            match self.chunks.get_mut(&counter) {
                Some((false, waiting)) if completes => waiting.push(place),
                _ if completes => self.over.push(place),
                _ => {
                    orders.add.push(counter);
                    self.over.push(place);
                }
            }
            return;
        }
        if let Some(share) = share.filter(|share| self.replay.is_empty(share.launch)) {
            return self.meet(place, share);
        }
        let part = share.map(|s| self.replay.assembly.parts[s.launch as usize][s.part as usize]);
        match (part, &self.replay.job.workload.graph(rank).node(at).work) {
            (Some(part), _) if part.agents > 0 => orders.add.push(part.start),
            (None, Work::Compute(_) | Work::Memory { .. }) => match self.replay.cost(rank, at) {
                0 => self.over.push(place),
                ps => orders.alarms.push((now.saturating_add(ps), place)),
            },
            _ => self.over.push(place),
        }
    }

    /// A rank arrives at a launch that has nothing to run: all leave once the last is there, whoever sends at once.
    fn meet(&mut self, place: u32, share: Share) {
        let mut places = self.replay.job.places(share.launch).into_vec();
        for place in &mut places {
            let (rank, at) = self.replay.job.node(*place);
            *place = self.replay.job.place(self.replay.stand(rank), at);
        }
        if self.replay.job.is_message(share.launch) && share.part == 0 {
            self.over.push(place);
            let waits = places[1];
            if self.is_there(waits) {
                self.over.push(waits);
            }
        } else if places.iter().all(|&place| self.is_there(place)) {
            let message = self.replay.job.is_message(share.launch);
            let mut seen = FxHashSet::default();
            let leave = places.iter().rev().filter(|&&other| !message || other == place);
            self.over.extend(leave.filter(|&&other| seen.insert(other)));
        }
    }

    fn is_there(&self, place: u32) -> bool {
        self.nodes[place as usize].start != NEVER
    }

    fn end(&mut self, place: u32, now: Time) {
        let (rank, at) = self.replay.job.node(place);
        self.nodes[place as usize].end = now;
        self.ended += 1;
        let order = self.replay.order(rank);
        let lane = order.lanes[at as usize];
        if lane != FREE {
            self.ranks[rank as usize].busy[lane as usize] = false;
        }
        // The lowest is issued first: `pending` is a stack.
        for &user in order.users(at).iter().rev() {
            let open = &mut self.open[self.replay.job.place(rank, user) as usize];
            *open -= 1;
            if *open == 0 {
                self.ready(rank, user);
            }
        }
        self.fill(rank);
    }
}

impl Driver for Hosts<'_> {
    fn begin(&mut self, orders: &mut Orders) {
        for &rank in &self.replay.ranks {
            let count = self.replay.job.workload.graph(rank).nodes().len() as u32;
            for at in (0..count).rev().filter(|&at| self.replay.order(rank).deps(at).is_empty()) {
                self.ready(rank, at);
            }
            self.fill(rank);
            self.settle(0, orders);
        }
    }

    fn reached(&mut self, counter: u32, now: Time, orders: &mut Orders) {
        match self.of_counter[counter as usize] {
            CHUNK => {
                if let Some((complete, waiting)) = self.chunks.get_mut(&counter) {
                    *complete = true;
                    self.over.extend(waiting.drain(..).rev());
                }
            }
            place => {
                // A call of one rank that takes no time follows what let it start, and meets nothing of other ranks.
                let share = self.replay.job.share(place);
                let follows = share.is_some_and(|share| self.replay.job.parts(share.launch) == 1);
                if !follows || self.nodes[place as usize].start != now {
                    orders.concerned = Some(self.replay.job.node(place).0);
                }
                self.over.push(place);
            }
        }
        self.settle(now, orders);
    }

    fn alarm(&mut self, alarm: u32, now: Time, orders: &mut Orders) {
        orders.concerned = Some(self.replay.job.node(alarm).0);
        self.over.push(alarm);
        self.settle(now, orders);
    }
}
