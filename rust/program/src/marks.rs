//! Marks in a program: the moment at which a piece of memory has its last byte, and the moment it is first needed.

use crate::{AgentId, Body, BufferId, Control, Move, Op, OpKind, Program};
use std::sync::Arc;

/// A range of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The buffer, of the program.
    pub buffer: u32,
    /// First byte.
    pub from: u64,
    /// The byte behind the last one.
    pub to: u64,
}

/// A piece of memory that somebody outside waits for, or delivers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    /// Its ranges.
    pub regions: Vec<Region>,
    /// A signal stands behind the last operation of every agent that writes it; else a wait stands before the first
    /// operation of every agent that reads it.
    pub completes: bool,
}

/// The program with a counter for each mark, the first of them being `program.counters`; and per mark how many agents
/// signal or wait.
pub fn marked(program: &Program, marks: &[Mark]) -> (Program, Vec<u32>) {
    let first = program.counters;
    let mut counts = vec![0; marks.len()];
    let mut result = Program { counters: first + marks.len() as u32, ..program.clone() };
    for index in 0..program.agents.len() {
        let body = program.body(AgentId(index as u32));
        let mut inserted: Vec<(usize, Control)> = Vec::new();
        for (counter, (mark, count)) in (first..).zip(marks.iter().zip(&mut counts)) {
            let touches = |op: &Op| {
                body.touched(op.kind).any(|(mem, writes)| {
                    writes == mark.completes && mark.touches(program, AgentId(index as u32), body, op, mem)
                })
            };
            let found =
                if mark.completes { body.ops.iter().rposition(touches) } else { body.ops.iter().position(touches) };
            let Some(at) = found else { continue };
            *count += 1;
            inserted.push(if mark.completes {
                let posted = matches!(
                    body.ops[at].kind,
                    OpKind::Move(
                        Move::Store { posted: true, .. } | Move::Copy { posted: true, .. } | Move::Multicast { .. }
                    )
                );
                (at + 1, Control::Signal { counter, add: 1, posted })
            } else {
                (at, Control::WaitCounter { counter, at_least: 1 })
            });
        }
        if inserted.is_empty() {
            continue;
        }
        // Stable: marks at one place keep their order.
        inserted.sort_by_key(|(at, _)| *at);
        result.bodies.push(Arc::new(with(body, &inserted)));
        result.agents[index].body = result.bodies.len() as u32 - 1;
    }
    (result, counts)
}

impl Mark {
    fn touches(&self, program: &Program, agent: AgentId, body: &Body, op: &Op, mem: u32) -> bool {
        let mem = body.mems.at(mem);
        let BufferId(buffer) = program.buffer(agent, mem.buffer);
        let bytes = match op.kind {
            OpKind::Move(
                Move::Load { tile, .. }
                | Move::Store { tile, .. }
                | Move::ReducingLoad { tile, .. }
                | Move::Multicast { tile, .. }
                | Move::Copy { tile, .. },
            ) => body.tiles[tile as usize].bytes(),
            _ => 0,
        };
        let (from, to) = (mem.offset, mem.offset + bytes);
        self.regions.iter().any(|region| region.buffer == buffer && region.from < to && from < region.to)
    }
}

fn with(body: &Body, inserted: &[(usize, Control)]) -> Body {
    let (mut ops, mut origins) = (Vec::new(), Vec::new());
    let mut next = inserted.iter().peekable();
    for at in 0..=body.ops.len() {
        while let Some((_, kind)) = next.next_if(|(place, _)| *place == at) {
            // An operation of its own has the origin of its neighbour.
            ops.push(Op { kind: (*kind).into(), calls: 0 });
            origins.push(body.origins[at.min(body.ops.len() - 1)]);
        }
        if let Some(op) = body.ops.get(at) {
            ops.push(*op);
            origins.push(body.origins[at]);
        }
    }
    Body { ops: ops.into(), origins: origins.into(), ..body.clone() }
}
