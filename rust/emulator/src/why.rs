//! Views of a [`Detail`]: the critical path, what each agent's time went into, and who queued for which link.

use crate::detail::{Category, Detail, Kind, PieceId};
use ahbm_machine::{LinkId, Ps};
use ahbm_program::AgentId;

/// A stretch of the critical path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Whose operation it belongs to.
    pub agent: AgentId,
    /// Index of the operation.
    pub op: u32,
    /// The use of its time.
    pub category: Category,
    /// The link that was busy, that was waited for while this operation had it, or that got its bytes from DMA.
    pub link: Option<LinkId>,
    /// First picosecond.
    pub start: Ps,
    /// End; the next segment's start.
    pub end: Ps,
}

/// A stretch of an agent's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Index of its operation; after its end the last one.
    pub op: u32,
    /// The use of the time.
    pub category: Category,
    /// First picosecond.
    pub start: Ps,
    /// End; the next interval's start.
    pub end: Ps,
}

/// How much a link was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkUse {
    /// Which.
    pub link: LinkId,
    /// Time it was occupied.
    pub busy: Ps,
    /// Messages (flits, under the flit model) that crossed it.
    pub crossed: u64,
    /// Those of them that had to wait for another.
    pub waits: u64,
    /// Sum of these waits.
    pub waited: Ps,
}

impl Detail {
    /// The parts of the run's latency: abutting segments from 0 to the end of the agent that ends last.
    ///
    /// After a wait, the path goes on with the awaited thing: a receive's with the message's links and
    /// its send, a claimed slot's with the credit and the receive that emitted it, a link's with the operation that
    /// had it. The time of the holder during which the link was wanted counts as contention.
    pub fn critical_path(&self) -> Vec<Segment> {
        let mut path = Path { segments: Vec::new(), links: &self.links };
        // The first of those that end last.
        let end = |id: &PieceId| self.piece(*id).end;
        let mut id = self.last.iter().copied().rev().max_by_key(end).unwrap_or_default();
        // The link that the piece before had to wait for, and since when it was wanted.
        let mut wanted: Option<(u32, Ps)> = None;
        while id != PieceId::LAUNCH {
            let piece = self.piece(id);
            let (ready, other) = (self.ready(piece), self.piece(piece.other).end);
            let start = ready.max(other);
            let held = match (wanted, piece.kind) {
                (Some((wanted, since)), Kind::Link(link) | Kind::Tail(link)) if link == wanted => {
                    since.clamp(start, piece.end)
                }
                _ => piece.end,
            };
            path.push(piece.agent, piece.op, Category::LinkContention, piece.kind.link(), held, piece.end);
            path.push(piece.agent, piece.op, piece.kind.category(), self.link(id), start, held);
            let queued = other > ready;
            wanted = match (queued, piece.kind) {
                (true, Kind::Head(link) | Kind::Link(link)) => {
                    let earlier = wanted.filter(|w| w.0 == link).map_or(ready, |w| w.1);
                    Some((link, ready.min(earlier)))
                }
                _ => None,
            };
            id = if queued { piece.other } else { piece.own };
        }
        path.segments.reverse();
        path.segments
    }

    /// An agent's time from the launch to the end of the run: abutting intervals, each with the use of it. A wait counts
    /// as what was waited for.
    pub fn intervals(&self, agent: AgentId) -> Vec<Interval> {
        self.intervals_until(self.latency(), agent)
    }

    /// The same in a run that ends at `latency`, which is found once for all agents.
    fn intervals_until(&self, latency: Ps, agent: AgentId) -> Vec<Interval> {
        let mut id = self.last[agent.0 as usize];
        let mut found = Vec::new();
        // Latest first.
        let mut add = |op, category, start, end| match found.last_mut() {
            _ if start == end => {}
            Some(Interval { op: o, category: c, start: later, .. }) if (*o, *c) == (op, category) => *later = start,
            _ => found.push(Interval { op, category, start, end }),
        };
        let last = self.piece(id);
        add(last.op, Category::Ended, last.end, latency);
        while id != PieceId::LAUNCH {
            let piece = self.piece(id);
            let start = self.start(piece);
            add(piece.op, piece.kind.category(), start, piece.end);
            add(piece.op, piece.kind.wait(), self.ready(piece), start);
            id = piece.own;
        }
        found.reverse();
        found
    }

    /// The sums of [`Detail::intervals`], per agent in the order of [`Category::ALL`].
    pub fn agent_time(&self) -> Vec<[Ps; Category::ALL.len()]> {
        let (latency, agents) = (self.latency(), (0..self.last.len() as u32).map(AgentId));
        agents
            .map(|agent| {
                let mut time = [0; Category::ALL.len()];
                for interval in self.intervals_until(latency, agent) {
                    time[interval.category as usize] += interval.end - interval.start;
                }
                time
            })
            .collect()
    }

    /// The end of the agent that ends last.
    fn latency(&self) -> Ps {
        self.last.iter().map(|&id| self.piece(id).end).max().unwrap_or(0)
    }

    /// The links that are busy at a time: until when, and with whose operation.
    pub fn busy_links(&self, at: Ps) -> Vec<(LinkId, Ps, AgentId, u32)> {
        let mut busy: Vec<Option<(Ps, AgentId, u32)>> = vec![None; self.links.len()];
        for piece in &self.pieces {
            let Some(link) = piece.kind.link() else { continue };
            if piece.end <= at || self.start(piece) > at {
                continue;
            }
            let entry = busy[link as usize].get_or_insert((piece.end, piece.agent, piece.op));
            if piece.end > entry.0 {
                *entry = (piece.end, piece.agent, piece.op);
            }
        }
        let busy = busy.iter().zip(&self.links);
        busy.filter_map(|(until, &link)| until.map(|(end, agent, op)| (link, end, agent, op))).collect()
    }

    /// How busy links are over time: ps by link, in the order of [`Detail::links`], for each of `frames` equal parts of
    /// the time from the launch to the end of the run. A part that ends between picoseconds ends at the one before.
    pub fn link_load(&self, frames: u32) -> Vec<Vec<Ps>> {
        let (latency, count) = (u128::from(self.latency().max(1)), u128::from(frames.max(1)));
        let border = |frame: u128| (latency * frame / count) as Ps;
        let mut load = vec![vec![0; count as usize]; self.links.len()];
        let mut ends = vec![0; self.links.len()];
        for piece in &self.pieces {
            let start = match piece.kind {
                Kind::Link(_) => self.start(piece),
                Kind::Tail(link) => ends[link as usize],
                _ => continue,
            };
            let Some(link) = piece.kind.link() else { continue };
            ends[link as usize] = piece.end;
            let mut frame = u128::from(start) * count / latency;
            while frame < count && border(frame) < piece.end {
                let part = piece.end.min(border(frame + 1)).saturating_sub(start.max(border(frame)));
                load[link as usize][frame as usize] += part;
                frame += 1;
            }
        }
        load
    }

    /// Every link that was used, the one most waited for first.
    pub fn link_use(&self) -> Vec<LinkUse> {
        let fresh = |&link| LinkUse { link, busy: 0, crossed: 0, waits: 0, waited: 0 };
        let mut links: Vec<LinkUse> = self.links.iter().map(fresh).collect();
        let mut ends = vec![0; links.len()];
        for piece in &self.pieces {
            let (Kind::Link(link) | Kind::Tail(link)) = piece.kind else { continue };
            let (entry, end) = (&mut links[link as usize], &mut ends[link as usize]);
            let start = self.start(piece);
            if let Kind::Link(_) = piece.kind {
                let waited = start - self.ready(piece);
                entry.crossed += 1;
                entry.waits += u64::from(waited > 0);
                entry.waited += waited;
                entry.busy += piece.end - start;
            } else {
                // The link was held from the end of the same message's occupation.
                entry.busy += piece.end - *end;
            }
            *end = piece.end;
        }
        links.retain(|l| l.crossed > 0);
        links.sort_by_key(|l| (std::cmp::Reverse((l.waited, l.busy)), l.link));
        links
    }
}

struct Path<'a> {
    /// Latest first.
    segments: Vec<Segment>,
    links: &'a [LinkId],
}

impl Path<'_> {
    fn push(&mut self, agent: AgentId, op: u32, category: Category, link: Option<u32>, start: Ps, end: Ps) {
        let segment = Segment { agent, op, category, link: link.map(|l| self.links[l as usize]), start, end };
        match self.segments.last_mut() {
            _ if start == end => {}
            Some(later) if Segment { start, end: later.end, ..segment } == (Segment { start, ..*later }) => {
                later.start = start;
            }
            _ => self.segments.push(segment),
        }
    }
}
