//! Where the time of a job went: exposed communication by call, and the critical path through all ranks.

use super::order::LANES;
use super::{Replay, Times};
use ahbm_machine::Ps;
use ahbm_workload::Work;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The part of a rank's time that a launch exposes: the rank's device does not compute, and what it does next waits for
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exposure {
    /// The call or message; none for other nodes.
    pub launch: Option<u32>,
    /// Exposed time.
    pub exposed: Ps,
    /// The part of it in which some other rank had not arrived yet.
    pub waiting: Ps,
}

/// What a stretch of the critical path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// A node computes.
    Compute,
    /// The host issues what follows.
    Host,
    /// A node moves bytes to or from remote memory.
    Memory,
    /// A call or a message runs, all its ranks being there.
    Launch(u32),
}

/// A stretch of the critical path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The rank.
    pub rank: u32,
    /// Position of the node.
    pub node: u32,
    /// From when.
    pub start: Ps,
    /// Until when.
    pub end: Ps,
    /// What it is.
    pub why: Why,
}

/// Where the time went.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answers {
    /// Per rank, the end of its last node.
    pub ends: Vec<Ps>,
    /// Per rank, the time in which its device computed; computations side by side count once.
    pub computed: Vec<Ps>,
    /// Per rank, the time in which its device did not, and what it does next waited for its host.
    pub hosted: Vec<Ps>,
    /// Per rank, what its exposed time is made of, in order of first appearance: the parts sum to
    /// `ends - computed - hosted`. Copies share theirs.
    pub exposures: Vec<Arc<[Exposure]>>,
    /// The critical path from the start of the job to its end; the stretches sum to the job's time.
    pub path: Vec<Segment>,
}

pub(super) fn answers(replay: &Replay<'_>, times: &Times) -> Answers {
    let walk = Walk::new(replay, times);
    let count = replay.job.workload.ranks.len();
    let mut answers = Answers {
        ends: vec![0; count],
        computed: vec![0; count],
        hosted: vec![0; count],
        exposures: vec![Arc::default(); count],
        path: walk.path(),
    };
    for &rank in &replay.ranks {
        let at = rank as usize;
        let exposures;
        (answers.ends[at], answers.computed[at], answers.hosted[at], exposures) = walk.rank(rank);
        answers.exposures[at] = exposures.into();
    }
    for rank in 0..count as u32 {
        let (at, stand) = (rank as usize, replay.stand(rank));
        if stand != rank {
            answers.ends[at] = answers.ends[stand as usize];
            answers.computed[at] = answers.computed[stand as usize];
            answers.hosted[at] = answers.hosted[stand as usize];
            let lead = replay.job.copies.map_or(rank, |copies| copies.lead(rank));
            answers.exposures[at] = if lead == rank {
                answers.exposures[stand as usize].iter().map(|of| walk.instead(*of, stand, rank)).collect()
            } else {
                Arc::clone(&answers.exposures[lead as usize])
            };
        }
    }
    answers
}

struct Walk<'a> {
    replay: &'a Replay<'a>,
    times: &'a Times,
    /// Per place of a rank that was simulated, the node before it in its lane.
    before: Vec<u32>,
    /// The node of each launch at each rank that was simulated, where others do the same.
    at: FxHashMap<(u32, u32), u32>,
    /// Per launch, when its last rank arrived, and the place of that rank's node.
    latest: Vec<(Ps, u32)>,
}

impl<'a> Walk<'a> {
    fn new(replay: &'a Replay<'a>, times: &'a Times) -> Self {
        let job = replay.job;
        let mut before = vec![u32::MAX; job.nodes()];
        let mut at = FxHashMap::default();
        for &rank in &replay.ranks {
            let order = replay.order(rank);
            let mut sequence: Vec<u32> = (0..order.lanes.len() as u32).collect();
            sequence.sort_unstable_by_key(|&at| times.issued[job.place(rank, at) as usize]);
            let mut last = [u32::MAX; LANES];
            for node in sequence {
                let place = job.place(rank, node);
                if let Some(last) = last.get_mut(order.lanes[node as usize] as usize) {
                    before[place as usize] = std::mem::replace(last, node);
                }
                if let Some(share) = job.share(place).filter(|_| replay.fold.is_some()) {
                    at.insert((rank, share.launch), node);
                }
            }
        }
        let arrival = |&place: &u32| (times.nodes[place as usize].start, place);
        let latest = |launch| {
            // The first of those that arrived last.
            let places = job.places(launch);
            places
                .iter()
                .map(arrival)
                .max_by_key(|&(at, place)| (at, std::cmp::Reverse(place)))
                .unwrap_or((0, u32::MAX))
        };
        Self { replay, times, before, at, latest: (0..job.launches() as u32).map(latest).collect() }
    }

    fn span(&self, place: u32) -> crate::Span {
        self.times.nodes[place as usize]
    }

    /// The node whose end let a node start; none for one that started with the job.
    fn cause(&self, place: u32) -> Option<u32> {
        let (rank, at) = self.replay.job.node(place);
        let deps = self.replay.order(rank).deps(at).iter().map(|&dep| self.replay.job.place(rank, dep));
        let before = self.before[self.replay.job.place(self.replay.stand(rank), at) as usize];
        let lane = (before != u32::MAX).then(|| self.replay.job.place(rank, before));
        deps.chain(lane).max_by_key(|&dep| (self.span(dep).end, self.times.issued[dep as usize]))
    }

    /// The call or message that a node takes part in, or waits for a chunk of.
    fn launch(&self, place: u32) -> Option<u32> {
        let job = self.replay.job;
        let chunk = || job.chunk(place).map(|chunk| job.chunks[chunk].share);
        job.share(place).or_else(chunk).map(|share| share.launch)
    }

    /// What a rank exposes where the one that stands for it exposes this.
    fn instead(&self, of: Exposure, stand: u32, rank: u32) -> Exposure {
        let job = self.replay.job;
        let node = of.launch.and_then(|launch| self.at.get(&(stand, launch)));
        Exposure { launch: node.and_then(|&at| job.share(job.place(rank, at))).map(|share| share.launch), ..of }
    }

    /// Whether a node computes: on the host, or on the device.
    fn computes(&self, place: u32, host: bool) -> bool {
        let (rank, at) = self.replay.job.node(place);
        let node = self.replay.job.workload.graph(rank).node(at);
        node.cpu == host && matches!(node.work, Work::Compute(_))
    }

    /// End of a rank, computing time of its device, the time in which that waited for the host, and for what else it
    /// waited.
    fn rank(&self, rank: u32) -> (Ps, Ps, Ps, Vec<Exposure>) {
        let job = self.replay.job;
        let count = self.replay.order(rank).lanes.len() as u32;
        let places: Vec<u32> = (0..count).map(|at| job.place(rank, at)).collect();
        let last =
            places.iter().copied().max_by_key(|&place| (self.span(place).end, self.times.issued[place as usize]));
        let Some(last) = last else { return (0, 0, 0, Vec::new()) };
        let end = self.span(last).end;
        let mut computing: Vec<u32> = places
            .into_iter()
            .filter(|&place| self.computes(place, false) && self.span(place).end > self.span(place).start)
            .collect();
        computing.sort_unstable_by_key(|&place| (self.span(place).start, place));
        let (mut reached, mut computed, mut hosted) = (0, 0, 0);
        let mut found: Vec<Exposure> = Vec::new();
        let mut index: rustc_hash::FxHashMap<Option<u32>, usize> = Default::default();
        let mut file = |launch: Option<u32>, exposed: Ps, waiting: Ps| {
            let at = *index.entry(launch).or_insert_with(|| {
                found.push(Exposure { launch, exposed: 0, waiting: 0 });
                found.len() - 1
            });
            found[at].exposed += exposed;
            found[at].waiting += waiting;
        };
        for place in computing {
            let span = self.span(place);
            if span.start > reached {
                hosted += self.gap(reached, span.start, self.cause(place), &mut file);
            }
            computed += span.end.saturating_sub(span.start.max(reached));
            reached = reached.max(span.end);
        }
        if end > reached {
            hosted += self.gap(reached, end, Some(last), &mut file);
        }
        (end, computed, hosted, found)
    }

    /// Files what the time from `from` to `until` was spent on, going back from the node that ended it; gives the part
    /// in which the host was busy.
    fn gap(&self, from: Ps, until: Ps, mut place: Option<u32>, file: &mut impl FnMut(Option<u32>, Ps, Ps)) -> Ps {
        let (mut until, mut hosted) = (until, 0);
        while until > from {
            let Some(at) = place else {
                file(None, until - from, 0);
                break;
            };
            let span = self.span(at);
            let start = span.start.clamp(from, until);
            if self.computes(at, true) {
                hosted += until - start;
            } else {
                let launch = self.launch(at);
                let arrived = launch.map_or(start, |launch| self.latest[launch as usize].0.clamp(start, until));
                file(launch, until - start, arrived - start);
            }
            until = start;
            place = self.cause(at);
        }
        hosted
    }

    /// Back from the last node: through a call to the rank that arrived last, else to what let the node start.
    fn path(&self) -> Vec<Segment> {
        let job = self.replay.job;
        let mut path = Vec::new();
        let last = (0..job.nodes() as u32).max_by_key(|&place| (self.span(place).end, std::cmp::Reverse(place)));
        let Some(mut place) = last else { return path };
        let mut until = self.span(place).end;
        loop {
            let (rank, node) = job.node(place);
            let mut from = self.span(place).start;
            let launch = self.launch(place);
            let mut cause = place;
            if let Some((arrived, by)) = launch.map(|launch| self.latest[launch as usize])
                // Back in time, so that the walk ends: where moments are equal, each may seem to have waited for the other.
                && from < arrived
                && arrived < until
                && !self.replay.job.is_sender(place)
            {
                (from, cause) = (arrived, by);
            }
            let why = match (launch, job.work(place)) {
                (Some(launch), _) => Why::Launch(launch),
                (None, Work::Memory { .. }) => Why::Memory,
                _ if self.computes(place, true) => Why::Host,
                _ => Why::Compute,
            };
            if until > from {
                path.push(Segment { rank, node, start: from, end: until, why });
            }
            until = from;
            match self.cause(cause) {
                Some(next) => place = next,
                None => break,
            }
        }
        path.reverse();
        path
    }
}
