//! Who sends to whom.

use ahbm_machine::{Machine, Node};
use ahbm_program::{AgentId, ChannelId, Comm, Move, OpKind, Program};
use std::collections::BTreeSet;

/// The pairs of SIPs between which bytes of a program go, by sender and receiver.
pub fn flows(program: &Program, machine: &Machine) -> Vec<(u32, u32)> {
    let sip = |node: Node| match node {
        Node::Pe(pe) | Node::Hbm(pe) | Node::Sram(pe) => machine.coord(pe).sip,
        Node::Io(sip) => sip,
    };
    let mut found = BTreeSet::new();
    for (index, agent) in program.agents.iter().enumerate() {
        let (id, body) = (AgentId(index as u32), program.body(AgentId(index as u32)));
        let own = machine.coord(agent.place).sip;
        let of = |mem: u32| sip(program.buffers[program.buffer(id, body.mems.buffer(mem)).0 as usize].node);
        let mut sent = BTreeSet::new();
        for op in &body.ops {
            match op.kind {
                OpKind::Comm(Comm::Send { dir, .. }) => _ = sent.insert(dir),
                OpKind::Move(Move::Load { mem, .. }) => _ = found.insert((of(mem), own)),
                OpKind::Move(Move::Store { mem, .. }) => _ = found.insert((own, of(mem))),
                OpKind::Move(Move::Copy { src, dst, .. }) => _ = found.insert((of(src), of(dst))),
                _ => {}
            }
        }
        for dir in sent {
            let channel = program.channel_table[agent.channels as usize + 2 * usize::from(dir)];
            if channel != ChannelId::NONE {
                let receiver = program.channels[channel.0 as usize].receiver;
                found.insert((own, machine.coord(program.agents[receiver.0 as usize].place).sip));
            }
        }
    }
    found.into_iter().filter(|(from, to)| from != to).collect()
}
