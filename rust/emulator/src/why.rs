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

    /// Per agent, the time from launch to its end by category in the order of [`Category::ALL`]; waits count as
    /// what was waited for.
    pub fn agent_time(&self) -> Vec<[Ps; Category::ALL.len()]> {
        self.last
            .iter()
            .map(|&last| {
                let mut time = [0; Category::ALL.len()];
                let mut id = last;
                while id != PieceId::LAUNCH {
                    let piece = self.piece(id);
                    let start = self.start(piece);
                    time[piece.kind.category() as usize] += piece.end - start;
                    time[piece.kind.wait() as usize] += start - self.ready(piece);
                    id = piece.own;
                }
                time
            })
            .collect()
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
