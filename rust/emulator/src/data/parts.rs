//! The parts of a program that know nothing of each other, and their replay on several threads.

use super::liveness::{buffers, shares_memory};
use super::memory::Memory;
use super::replay::Prepared;
use crate::Timeline;
use crate::disjoint::Disjoint;
use ahbm_engine::interrupt::{spend, watched};
use ahbm_findings::Diagnostic;
use ahbm_program::{AgentId, Program, Tile};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Elements in the operations of a program from which threads are worth their start, some 50 us.
const WORTH: u64 = 1 << 20;
/// Time between two looks at whether the work of other threads is still wanted.
const PERIOD: Duration = Duration::from_millis(40);

/// The parts of a program.
#[derive(Debug)]
pub(super) struct Parts {
    /// The agents of each part in their order. The parts have the order of their first agents, and are replayed so.
    pub(super) agents: Vec<Vec<AgentId>>,
    /// Elements in all operations.
    elements: u64,
    /// The part of each buffer.
    buffers: Vec<u32>,
    /// Whether the order of the agents' operations matters; then there is one part.
    pub(super) ordered: bool,
}

impl Parts {
    /// Agents are in one part if a channel joins them or both touch a buffer; all are in one where they meet at counters
    /// or barriers.
    pub(super) fn of(program: &Program) -> Self {
        const NOBODY: u32 = u32::MAX;
        let ordered = shares_memory(program);
        let together = ordered || program.counters > 0 || !program.barriers.is_empty();
        let mut sets = Disjoint::new(program.agents.len());
        let mut owner = vec![NOBODY; program.buffers.len()];
        let touched: Vec<Vec<(u16, bool)>> = program.bodies.iter().map(|body| buffers(body)).collect();
        for (index, agent) in program.agents.iter().enumerate() {
            for &(buffer, _) in &touched[agent.body as usize] {
                let first = &mut owner[program.buffer(AgentId(index as u32), buffer).0 as usize];
                match *first {
                    NOBODY => *first = index as u32,
                    first => sets.join(first, index as u32),
                }
            }
            if together {
                sets.join(0, index as u32);
            }
        }
        for channel in &program.channels {
            sets.join(channel.sender.0, channel.receiver.0);
        }
        let mut agents: Vec<Vec<AgentId>> = Vec::new();
        let mut parts = vec![NOBODY; program.agents.len()];
        for index in 0..program.agents.len() as u32 {
            let part = &mut parts[sets.of(index) as usize];
            if *part == NOBODY {
                *part = agents.len() as u32;
                agents.push(Vec::new());
            }
            agents[*part as usize].push(AgentId(index));
        }
        let mut part_of = |owner: u32| if owner == NOBODY { 0 } else { parts[sets.of(owner) as usize] };
        let buffers = owner.into_iter().map(&mut part_of).collect();
        let of_bodies: Vec<u64> = program.bodies.iter().map(|body| elements(body)).collect();
        let elements = program.agents.iter().map(|agent| of_bodies[agent.body as usize]).fold(0, u64::saturating_add);
        Self { agents, elements, buffers, ordered }
    }

    /// Threads that a replay is worth.
    pub(super) fn threads(&self) -> usize {
        if self.agents.len() < 2 || self.elements < WORTH {
            return 1;
        }
        thread::available_parallelism().map_or(1, NonZero::get).min(self.agents.len())
    }
}

fn elements(body: &ahbm_program::Body) -> u64 {
    let tiles = body.ops.iter().filter_map(|op| body.tiles.get(op.kind.operands().tile? as usize));
    tiles.map(Tile::elements).fold(0, u64::saturating_add)
}

/// Memory that is divided among threads, and put together again at the end, however that comes.
struct Divided<'m> {
    whole: &'m mut Memory,
    pieces: Vec<Memory>,
}

impl Drop for Divided<'_> {
    fn drop(&mut self) {
        self.whole.unite(std::mem::take(&mut self.pieces));
    }
}

/// Tells the other threads that this one unwinds.
struct Unwanted(Arc<AtomicBool>);

impl Drop for Unwanted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Prepared {
    /// Replays all parts on `threads` threads. The error is that of the first part that has one, whatever their number.
    pub(super) fn on_threads(
        &self,
        program: &Program,
        timeline: &Timeline,
        memory: &mut Memory,
        threads: usize,
    ) -> Result<(), Diagnostic> {
        let parts = &self.parts.agents;
        if threads <= 1 {
            return self.in_turn(parts, program, timeline, memory, &mut None);
        }
        let each = parts.len().div_ceil(threads).max(1);
        let piece_of = |buffer: usize| self.parts.buffers[buffer] as usize / each;
        let pieces = memory.divide(parts.len().div_ceil(each), piece_of);
        let mut divided = Divided { whole: memory, pieces };
        let mut work = parts.chunks(each).zip(&mut divided.pieces);
        let unwanted = Unwanted(Arc::default());
        thread::scope(|scope| {
            let first = work.next();
            let (sender, results) = mpsc::channel();
            for (number, (parts, memory)) in work.enumerate() {
                let (unwanted, sender) = (Arc::clone(&unwanted.0), sender.clone());
                scope.spawn(move || {
                    let work = || self.in_turn(parts, program, timeline, memory, &mut None);
                    let done = watched(move || unwanted.load(Ordering::Relaxed), work);
                    // Whoever waits for it may be unwinding.
                    sender.send((number, done)).unwrap_or_default();
                });
            }
            drop(sender);
            // Dropped before the scope waits for its threads.
            let _unwanted = unwanted;
            let mut done =
                first.map_or(Ok(()), |(parts, memory)| self.in_turn(parts, program, timeline, memory, &mut None));
            let mut others: Vec<(usize, Result<(), Diagnostic>)> = Vec::new();
            loop {
                match results.recv_timeout(PERIOD) {
                    Ok(result) => others.push(result),
                    Err(RecvTimeoutError::Timeout) => spend(u64::MAX),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            others.sort_by_key(|(number, _)| *number);
            for (_, other) in others {
                done = done.and(other);
            }
            done
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_agents_have_one_root_whatever_the_order() {
        let mut sets = Disjoint::new(6);
        for (a, b) in [(4, 5), (1, 4), (2, 3)] {
            sets.join(a, b);
        }
        assert_eq!([0, 1, 2, 3, 4, 5].map(|agent| sets.of(agent)), [0, 1, 2, 2, 1, 1]);
    }
}
