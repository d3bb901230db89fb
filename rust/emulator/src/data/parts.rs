//! The parts of a program that know nothing of each other.

use super::liveness::{buffers, shares_memory};
use crate::disjoint::Disjoint;
use ahbm_program::{AgentId, Program, Tile};
use std::num::NonZero;
use std::thread;

/// Elements in the operations of a program from which threads are worth their start, some 50 us.
const WORTH: u64 = 1 << 20;

/// The parts of a program.
#[derive(Debug)]
pub(super) struct Parts {
    /// The agents of each part in their order. The parts have the order of their first agents, and are replayed so.
    pub(super) agents: Vec<Vec<AgentId>>,
    /// Elements in all operations.
    elements: u64,
    /// The part of each buffer.
    pub(super) buffers: Vec<u32>,
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
