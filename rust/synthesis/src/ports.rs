//! The bound that the ports of PEs set to an all-reduce by messages.
//!
//! Each of n PEs, one per cube, holds a tile of S bytes. Its agents touch no memory but its own; all else travels in
//! messages.
//!
//! Every element needs 2 (n - 1) messages (gossip one way: F. Harary and A. J. Schwenk, "The communication problem on
//! graphs and digraphs", 1974). For take the messages that hold something of an element in the order of their arrival.
//! The first PE that depends on all n contributions does so after n - 1 of them, since each brings together no more
//! than two sets of PEs that knew of each other. No other PE depends on all of them yet, so each of the n - 1 others
//! takes one more. Over all elements, 2 (n - 1) S bytes leave the n PEs, and 2 (n - 1) S / n bytes the busiest.
//!
//! A message occupies the DMA write channel of its sender for its bytes over the first link, out of the PE. So does a
//! store for its bytes over the memory's write port; every element of a tile is stored, by its own PE, since no other
//! touches that memory. The channel does one thing at a time, so the two times add up.

use ahbm_machine::{Machine, Node, PeId, Ps, Rate};
use ahbm_program::{BufferId, OpKind, Program};
use std::collections::BTreeMap;

/// The quickest ports of the PEs that exchange messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ports {
    /// Out of a PE.
    pub out: Rate,
    /// Into its memory.
    pub memory: Rate,
}

impl Ports {
    /// Those of a program's PEs. None where the bound does not hold: a cube has two PEs with agents, an agent reaches
    /// memory that is not its PE's, or the ports out of the PEs are unlimited.
    pub fn of(program: &Program, machine: &Machine) -> Option<Self> {
        if program.bodies.iter().any(|body| body.ops.iter().any(|op| is_copied_by_others(&op.kind))) {
            return None;
        }
        let mut pes: BTreeMap<(u32, u32), PeId> = BTreeMap::new();
        for agent in &program.agents {
            let pe = agent.place;
            let of = |buffer: u16| program.buffer_table[agent.buffers as usize + usize::from(buffer)];
            let is_own = |BufferId(at): BufferId| {
                let node = program.buffers[at as usize].node;
                node == Node::Hbm(pe) || node == Node::Pe(pe)
            };
            let at = machine.coord(pe);
            let body = &program.bodies[agent.body as usize];
            if *pes.entry((at.sip, at.cube)).or_insert(pe) != pe || !body.mems.iter().all(|mem| is_own(of(mem.buffer)))
            {
                return None;
            }
        }
        let ports = pes.into_values().map(|pe| machine.ports(pe)).map(|[out, memory]| Self { out, memory });
        let quickest = |a: Self, b: Self| Self { out: a.out.quicker(b.out), memory: a.memory.quicker(b.memory) };
        ports.reduce(quickest).filter(|ports| !ports.out.is_unlimited())
    }

    /// Least time of an all-reduce among `parties` PEs with tiles of `bytes` bytes.
    pub fn ps(&self, parties: u32, bytes: u64) -> Ps {
        let n = u128::from(parties.max(1));
        let sent = 2 * (n - 1) * u128::from(bytes) / n;
        self.out.ps(u64::try_from(sent).unwrap_or(u64::MAX)).saturating_add(self.memory.ps(bytes))
    }
}

/// Whether an operation moves data without its PE's channel: from or to a group, or from memory to memory.
fn is_copied_by_others(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Copy { .. } | OpKind::ReducingLoad { .. } | OpKind::Multicast { .. })
}
