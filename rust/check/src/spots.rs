//! Memory that may be contended, cut into spots.

use crate::support::{Subject, touches};
use ahbm_program::{AgentId, BufferId};
use std::collections::BTreeMap;
use std::ops::Range;

/// No agent, no rank, no history.
pub(crate) const NONE: u32 = u32::MAX;

/// Shared memory, cut where any access begins or ends.
#[derive(Debug, Default)]
pub(crate) struct Spots {
    /// Per buffer: its first spot; none of its own where nobody shares it.
    pub(crate) base: Vec<usize>,
    /// Per spot: first byte, and where it ends.
    pub(crate) starts: Vec<u64>,
    pub(crate) ends: Vec<u64>,
    /// Per spot: the index of its history, `NONE` where nothing can race.
    pub(crate) history: Vec<u32>,
    /// By rank: spots of its operands and results that agents of other ranks touch.
    pub(crate) foreign: BTreeMap<u32, Vec<usize>>,
}

impl Spots {
    /// The spots of every buffer that two agents touch and one writes, or that is some rank's `memory` and touched by
    /// agents of another; those contended have a history.
    pub(crate) fn contended(subject: Subject<'_>, memory: impl Iterator<Item = (u32, BufferId, Range<u64>)>) -> Self {
        const SHARED: u32 = u32::MAX - 1;
        let program = subject.program;
        let owned = |owner: u32, agent: u32| if owner == NONE || owner == agent { agent } else { SHARED };
        let mut owners = vec![(NONE, false); program.buffers.len()];
        let mut ranks = vec![NONE; program.buffers.len()];
        let each = |f: &mut dyn FnMut(u32, BufferId, Range<u64>, bool)| {
            for program in subject.programs() {
                for agent in 0..program.agents.len() as u32 {
                    for op in &program.body(AgentId(agent)).ops {
                        for (buffer, range, writes) in touches(program, AgentId(agent), op.kind) {
                            f(agent, buffer, range, writes);
                        }
                    }
                }
            }
        };
        let rank = |agent: u32| program.agents[agent as usize].rank;
        each(&mut |agent, buffer, _, writes| {
            let (owner, written) = &mut owners[buffer.0 as usize];
            *owner = owned(*owner, agent);
            *written |= writes;
            ranks[buffer.0 as usize] = owned(ranks[buffer.0 as usize], rank(agent));
        });
        let memory: Vec<_> =
            memory.filter(|(rank, buffer, _)| ![NONE, *rank].contains(&ranks[buffer.0 as usize])).collect();
        let mut edges: Vec<Vec<u64>> = vec![Vec::new(); program.buffers.len()];
        let mut open: Vec<bool> = owners.iter().map(|&owner| owner == (SHARED, true)).collect();
        for (_, buffer, range) in &memory {
            open[buffer.0 as usize] = true;
            edges[buffer.0 as usize].extend([range.start, range.end]);
        }
        if open.contains(&true) {
            each(&mut |_, buffer, range, _| {
                if open[buffer.0 as usize] && !range.is_empty() {
                    edges[buffer.0 as usize].extend([range.start, range.end]);
                }
            });
        }
        let mut spots = Self { base: vec![0], ..Self::default() };
        for list in &mut edges {
            list.sort_unstable();
            list.dedup();
            for pair in list.windows(2) {
                spots.starts.push(pair[0]);
                spots.ends.push(pair[1]);
            }
            spots.base.push(spots.starts.len());
        }
        let mut touched = vec![(NONE, NONE, false); spots.starts.len()];
        if !touched.is_empty() {
            each(&mut |agent, buffer, range, writes| {
                for spot in spots.of(buffer, &range) {
                    let (owner, of, written) = &mut touched[spot];
                    (*owner, *of) = (owned(*owner, agent), owned(*of, rank(agent)));
                    *written |= writes;
                }
            });
        }
        let mut contended: Vec<bool> = touched.iter().map(|&(owner, _, written)| owner == SHARED && written).collect();
        for (rank, buffer, range) in memory {
            for spot in spots.of(buffer, &range) {
                if ![NONE, rank].contains(&touched[spot].1) {
                    contended[spot] = true;
                    spots.foreign.entry(rank).or_default().push(spot);
                }
            }
        }
        for list in spots.foreign.values_mut() {
            list.sort_unstable();
            list.dedup();
        }
        let mut histories = 0;
        for &contended in &contended {
            spots.history.push(if contended { histories } else { NONE });
            histories += u32::from(contended);
        }
        spots
    }

    /// Whether nothing is contended.
    pub(crate) fn is_empty(&self) -> bool {
        self.history.iter().all(|&history| history == NONE)
    }

    /// The spots of some bytes, which are those of an access; none where nobody shares the buffer.
    pub(crate) fn of(&self, buffer: BufferId, range: &Range<u64>) -> Range<usize> {
        let (first, last) = (self.base[buffer.0 as usize], self.base[buffer.0 as usize + 1]);
        let at = |byte: u64| first + self.starts[first..last].partition_point(|&start| start < byte);
        if first == last { 0..0 } else { at(range.start)..at(range.end) }
    }

    /// Buffer and bytes of a spot.
    pub(crate) fn place(&self, spot: usize) -> (BufferId, Range<u64>) {
        let buffer = self.base.partition_point(|&first| first <= spot) - 1;
        (BufferId(buffer as u32), self.starts[spot]..self.ends[spot])
    }
}
