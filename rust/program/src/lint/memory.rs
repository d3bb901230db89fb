//! `AHBM-L108`: buffers and slots fit the memories they live in.

use super::{Findings, label};
use crate::{AgentId, BufferId, Program};
use ahbm_machine::{Coord, Diagnostic, Machine, Node, PeId};
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// What the check asks of a machine.
pub(super) struct Memories<'a> {
    /// Capacity of a memory in bytes.
    pub(super) capacity: Box<dyn Fn(Node) -> u64 + 'a>,
    /// The first PE of the cube a PE sits in, which stands for the cube's shared memory.
    pub(super) cube: Box<dyn Fn(PeId) -> PeId + 'a>,
    /// Name of a slot tier.
    pub(super) tier: Box<dyn Fn(u32) -> Option<&'a str> + 'a>,
}

impl<'a> Memories<'a> {
    pub(super) fn of(machine: &'a Machine) -> Self {
        Self {
            capacity: Box::new(|node| machine.memory_bytes(node)),
            cube: Box::new(|pe| machine.pe(Coord { pe: 0, ..machine.coord(pe) }).unwrap_or(pe)),
            tier: Box::new(|tier| machine.costs().tiers.get_index(tier as usize).map(|(name, _)| name.as_str())),
        }
    }

    /// One name per memory: every PE of a cube names the same SRAM.
    fn memory(&self, node: Node) -> Node {
        match node {
            Node::Sram(pe) => Node::Sram((self.cube)(pe)),
            other => other,
        }
    }

    /// Where the slots of a receiver live; `None` for tiers that stand for no memory of the machine.
    fn slots(&self, tier: u32, place: PeId) -> Option<Node> {
        match (self.tier)(tier)? {
            "tcm" => Some(Node::Pe(place)),
            "sram" => Some(self.memory(Node::Sram(place))),
            "hbm" => Some(Node::Hbm(place)),
            _ => None,
        }
    }
}

#[derive(Default)]
struct Load {
    buffers: u64,
    buffer_bytes: u64,
    queues: u64,
    queue_bytes: u64,
    largest: Option<BufferId>,
}

pub(super) fn check(program: &Program, machine: &Memories<'_>, findings: &mut Findings) {
    let mut loads: IndexMap<Node, Load, FxBuildHasher> = IndexMap::default();
    for (index, buffer) in program.buffers.iter().enumerate() {
        let load = loads.entry(machine.memory(buffer.node)).or_default();
        load.buffers += 1;
        load.buffer_bytes = load.buffer_bytes.saturating_add(buffer.bytes);
        if load.largest.is_none_or(|b| program.buffers[b.0 as usize].bytes < buffer.bytes) {
            load.largest = Some(BufferId(index as u32));
        }
    }
    for channel in &program.channels {
        let place = program.agents[channel.receiver.0 as usize].place;
        if let Some(node) = machine.slots(channel.tier, place) {
            let load = loads.entry(node).or_default();
            load.queues += 1;
            load.queue_bytes = load.queue_bytes.saturating_add(channel.slot_bytes.saturating_mul(channel.slots.into()));
        }
    }
    for (&node, load) in &loads {
        let capacity = (machine.capacity)(node);
        let need = load.buffer_bytes.saturating_add(load.queue_bytes);
        if need > capacity {
            findings.add("AHBM-L108", |code| report(program, node, load, need, capacity, code));
        }
    }
}

fn report(program: &Program, node: Node, load: &Load, need: u64, capacity: u64, code: &'static str) -> Diagnostic {
    let name = match node {
        Node::Pe(pe) => format!("the TCM of PE {}", pe.0),
        Node::Hbm(pe) => format!("the HBM slice of PE {}", pe.0),
        Node::Sram(pe) => format!("the SRAM of the cube of PE {}", pe.0),
        Node::Io(sip) => format!("the I/O chiplet of SIP {sip}"),
    };
    let mut found = Diagnostic::new(code, format!("{name} holds {capacity} bytes, the program needs {need}")).site(
        format!(
            "{} buffers with {} bytes, slots of {} queues with {} bytes",
            load.buffers, load.buffer_bytes, load.queues, load.queue_bytes
        ),
        "",
    );
    if let Some(buffer) = load.largest {
        let bytes = program.buffers[buffer.0 as usize].bytes;
        found = match first_use(program, buffer) {
            Some((agent, op)) => found.site(
                format!("largest buffer, {bytes} bytes, first used by {}", label(program, agent, op)),
                program.origin_text(agent, op),
            ),
            None => found.site(format!("largest buffer, {bytes} bytes"), ""),
        };
    }
    found.hint(if load.queue_bytes > load.buffer_bytes {
        "lower n_slots or slot_size, or keep the slots in a larger memory with buffer_kind"
    } else {
        "spread the tensor over more PEs or use fewer bytes per PE"
    })
}

fn first_use(program: &Program, buffer: BufferId) -> Option<(AgentId, usize)> {
    (0..program.agents.len()).map(|a| AgentId(a as u32)).find_map(|agent| {
        let body = program.body(agent);
        let op = body.ops.iter().position(|op| {
            let operands = op.kind.operands();
            let mut mems = operands.mem_read.into_iter().chain(operands.mem_written);
            mems.any(|m| program.buffer(agent, body.mems[m as usize].buffer) == buffer)
        })?;
        Some((agent, op))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;

    fn fake() -> Memories<'static> {
        Memories {
            capacity: Box::new(|node| if matches!(node, Node::Hbm(_)) { 1 << 30 } else { 1 << 20 }),
            cube: Box::new(|pe| PeId(pe.0 / 8 * 8)),
            tier: Box::new(|tier| ["tcm", "sram", "hbm", "far"].get(tier as usize).copied()),
        }
    }

    fn codes(program: &Program) -> Vec<String> {
        let mut findings = Findings::default();
        check(program, &fake(), &mut findings);
        findings.finish(program).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn buffers_of_one_memory_add_up() {
        let mut program =
            Program { buffers: vec![Buffer { node: Node::Sram(PeId(1)), bytes: 600 << 10 }; 2], ..Program::default() };
        program.buffers[1].node = Node::Sram(PeId(7));
        let found = codes(&program);
        assert!(found.len() == 1 && found[0].contains("SRAM of the cube of PE 0"), "{found:?}");
        program.buffers[1].node = Node::Sram(PeId(8));
        assert!(codes(&program).is_empty());
    }

    #[test]
    fn a_buffer_larger_than_anything_does_not_overflow() {
        let program =
            Program { buffers: vec![Buffer { node: Node::Hbm(PeId(0)), bytes: u64::MAX }; 3], ..Program::default() };
        assert_eq!(codes(&program).len(), 1);
    }
}
