//! The time of a run, credited to the chunks that ranks sent each other: what each of them has of the critical path.
//!
//! A *chunk* is what `docs/features.md` calls so: a message between ranks, or an access to another rank's memory.

use crate::features::is_far;
use ahbm_check::{Walker, walk};
use ahbm_emulator::Segment;
use ahbm_findings::Diagnostic;
use ahbm_machine::{Machine, Ps};
use ahbm_program::{AgentId, ChannelId, Comm, Move, OpKind, Program};

/// An operation of an agent.
type Place = (AgentId, u32);

/// The chunks of a program, in the order of their senders' ranks, agents and operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunks {
    /// How many there are.
    count: usize,
    /// The operations that move a chunk and those that take it, each with the chunk's number; sorted.
    owners: Vec<(Place, u32)>,
}

impl Chunks {
    /// Reads the chunks off a structurally sound program.
    ///
    /// # Errors
    /// `AHBM-D201` for a program that gets stuck.
    pub fn of(program: &Program, machine: &Machine) -> Result<Self, Diagnostic> {
        let messages = vec![Vec::new(); program.channels.len()];
        let mut finder = Finder { program, machine, moved: Vec::new(), taken: Vec::new(), messages };
        if !walk(program, &mut finder) {
            return Err(super::features::stuck(program));
        }
        let Finder { moved, taken, .. } = finder;
        let mut order: Vec<u32> = (0..moved.len() as u32).collect();
        order.sort_by_key(|&chunk| {
            let (agent, op) = moved[chunk as usize];
            (program.agents[agent.0 as usize].rank, agent, op)
        });
        let mut number = vec![0; order.len()];
        for (at, &chunk) in order.iter().enumerate() {
            number[chunk as usize] = at as u32;
        }
        let all = moved.iter().copied().zip(0..).chain(taken);
        let mut owners: Vec<(Place, u32)> =
            all.map(|(place, chunk): (Place, u32)| (place, number[chunk as usize])).collect();
        owners.sort_unstable();
        Ok(Self { count: moved.len(), owners })
    }

    /// What each chunk has of a critical path of the program: the time of the operations that move it and that take it.
    /// Chunks of one operation share its time. All else on the path, such as computing, is nobody's.
    pub fn credit(&self, path: &[Segment]) -> Vec<Ps> {
        let mut found = vec![0; self.count];
        for segment in path {
            let place = (segment.agent, segment.op);
            let first = self.owners.partition_point(|(owner, _)| *owner < place);
            let own: Vec<u32> =
                self.owners[first..].iter().take_while(|(owner, _)| *owner == place).map(|(_, chunk)| *chunk).collect();
            let (ps, parts) = (segment.end - segment.start, own.len() as Ps);
            for (at, &chunk) in (0..).zip(&own) {
                found[chunk as usize] += ps * (at + 1) / parts - ps * at / parts;
            }
        }
        found
    }
}

/// Follows a program to its chunks.
struct Finder<'a> {
    program: &'a Program,
    machine: &'a Machine,
    /// Per chunk, the operation that moves it.
    moved: Vec<Place>,
    /// Operations that take a chunk.
    taken: Vec<(Place, u32)>,
    /// Per channel, the chunk of every message; none within a rank.
    messages: Vec<Vec<Option<u32>>>,
}

impl Walker for Finder<'_> {
    fn done(&mut self, agent: AgentId, op: u32, message: Option<(ChannelId, u64)>) {
        let body = self.program.body(agent);
        let kind = body.ops[op as usize].kind;
        match kind {
            OpKind::Comm(Comm::Send { .. }) => {
                let Some((channel, _)) = message else { return };
                let ends = &self.program.channels[channel.0 as usize];
                let rank = |agent: AgentId| self.program.agents[agent.0 as usize].rank;
                let leaves = rank(ends.sender) != rank(ends.receiver);
                self.messages[channel.0 as usize].push(leaves.then_some(self.moved.len() as u32));
                if leaves {
                    self.moved.push((agent, op));
                }
            }
            OpKind::Comm(Comm::Recv { .. } | Comm::RecvAny { .. } | Comm::Await { .. }) => {
                let Some((channel, number)) = message else { return };
                let chunk = self.messages[channel.0 as usize][number as usize];
                self.taken.extend(chunk.map(|chunk| ((agent, op), chunk)));
            }
            OpKind::Move(
                Move::Load { .. }
                | Move::ReducingLoad { .. }
                | Move::Store { .. }
                | Move::Copy { .. }
                | Move::Multicast { .. },
            ) => {
                let far = body.touched(kind).filter(|&(mem, _)| is_far(self.program, self.machine, agent, body, mem));
                self.moved.extend(far.map(|_| (agent, op)));
            }
            _ => {}
        }
    }

    fn met(&mut self, _: &[AgentId]) {}
}
