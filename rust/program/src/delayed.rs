//! Programs with pauses in them: the same work at other times.

use crate::{AgentId, Body, Control, Op, OpKind, OriginId, Program};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Program {
    /// The program with pauses: before operation `op` of `agent`, `ps` picoseconds. Pauses at one place add up; a pause
    /// at or behind an agent's end is left out. Queues, memory and results are those of the program, times are not.
    pub fn delayed(&self, pauses: &[(AgentId, u32, u64)]) -> Program {
        let mut by_agent: FxHashMap<u32, BTreeMap<u32, u64>> = FxHashMap::default();
        for &(agent, op, ps) in pauses {
            let total = by_agent.entry(agent.0).or_default().entry(op).or_default();
            *total = total.saturating_add(ps);
        }
        let mut program = self.clone();
        for (index, agent) in program.agents.iter_mut().enumerate() {
            if let Some(pauses) = by_agent.get(&(index as u32)) {
                program.bodies.push(Arc::new(paused(&self.bodies[agent.body as usize], pauses)));
                agent.body = program.bodies.len() as u32 - 1;
            }
        }
        program
    }
}

fn paused(body: &Body, pauses: &BTreeMap<u32, u64>) -> Body {
    let mut ops = Vec::with_capacity(body.ops.len() + pauses.len());
    let mut origins: Vec<OriginId> = Vec::with_capacity(ops.capacity());
    for (index, (op, &origin)) in body.ops.iter().zip(&body.origins).enumerate() {
        if let Some(&ps) = pauses.get(&(index as u32)) {
            ops.push(Op { kind: OpKind::Control(Control::Delay { ps }), calls: 0 });
            origins.push(origin);
        }
        ops.push(*op);
        origins.push(origin);
    }
    Body { ops: ops.into(), origins: origins.into(), ..body.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BodyBuilder, ChannelSettings, Locus, Origin, ProgramBuilder};
    use ahbm_machine::{Coord, PeId};

    #[test]
    fn pauses_stand_where_they_are_asked_for() {
        let mut builder = ProgramBuilder::new("two");
        let origin = builder.origins.intern(Origin { file: "k.py".into(), locus: Locus::Line(1) });
        let mut body = BodyBuilder::new();
        for ps in [1, 2] {
            body.push(Control::Delay { ps }, 1, origin);
        }
        let body = builder.body(body.finish());
        for rank in 0..2 {
            builder.thread_block(rank, Coord { sip: rank, cube: 0, pe: 0 }, PeId(rank), body, &[]);
        }
        let settings = ChannelSettings { slots: 1, slot_bytes: None, tier: 0, credit_bytes: 16 };
        let program = builder.finish(settings).expect("sound");
        let slow = program.delayed(&[(AgentId(1), 1, 7), (AgentId(1), 1, 8), (AgentId(0), 9, 1)]);
        let times = |agent| {
            let delay = |op: &Op| match op.kind {
                OpKind::Control(Control::Delay { ps }) => ps,
                _ => 0,
            };
            slow.body(AgentId(agent)).ops.iter().map(delay).collect::<Vec<_>>()
        };
        assert_eq!((times(0), times(1)), (vec![1, 2], vec![1, 15, 2]));
        assert!(crate::structure(&slow).is_empty());
    }
}
