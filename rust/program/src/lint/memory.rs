//! `AHBM-L108`: buffers and slots fit the memories they live in.
//!
//! The launches of a job come and go: each must fit alone. How many of them live at one time is a result of the run.

use super::{Findings, Target, label};
use crate::{AgentId, BufferId, Program};
use ahbm_findings::Diagnostic;
use ahbm_machine::Node;
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

#[derive(Default)]
struct Load {
    buffers: u64,
    buffer_bytes: u64,
    queues: u64,
    queue_bytes: u64,
    largest: Option<BufferId>,
}

pub(super) fn check(program: &Program, target: &Target<'_>, findings: &mut Findings) {
    let mut loads: IndexMap<(Node, Part), Load, FxBuildHasher> = IndexMap::default();
    let parts = parts_of_buffers(program);
    for (index, buffer) in program.buffers.iter().enumerate() {
        let part = parts.get(index).copied().flatten();
        let load = loads.entry((target.memory(buffer.node), part)).or_default();
        load.buffers += 1;
        load.buffer_bytes = load.buffer_bytes.saturating_add(buffer.bytes);
        if load.largest.is_none_or(|b| program.buffers[b.0 as usize].bytes < buffer.bytes) {
            load.largest = Some(BufferId(index as u32));
        }
    }
    for channel in &program.channels {
        let place = program.agents[channel.receiver.0 as usize].place;
        if let Some(node) = target.slots(channel.tier, place) {
            let load = loads.entry((node, part(program, channel.receiver))).or_default();
            load.queues += 1;
            load.queue_bytes = load.queue_bytes.saturating_add(channel.slot_bytes.saturating_mul(channel.slots.into()));
        }
    }
    for (&(node, _), load) in &loads {
        let capacity = (target.capacity)(node);
        let need = load.buffer_bytes.saturating_add(load.queue_bytes);
        if need > capacity {
            findings.add("AHBM-L108", |code| report(program, node, load, need, capacity, code));
        }
    }
}

/// The part of a launch that an agent belongs to, by the counter that starts it; none outside of jobs.
type Part = Option<u32>;

fn part(program: &Program, agent: AgentId) -> Part {
    program.gate(agent).map(|gate| gate.start)
}

/// Per buffer, the part whose agent names it first; empty outside of jobs.
fn parts_of_buffers(program: &Program) -> Vec<Part> {
    if program.duties.is_empty() {
        return Vec::new();
    }
    let mut parts = vec![None; program.buffers.len()];
    for agent in (0..program.agents.len() as u32).map(AgentId) {
        for buffer in program.body(agent).mems.named() {
            let owner = &mut parts[program.buffer(agent, buffer).0 as usize];
            *owner = owner.or(part(program, agent));
        }
    }
    parts
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
        "lower n_slots or slot_size, or keep the slots in a larger memory (buffer_kind: hbm)"
    } else {
        "spread the tensor over more PEs or use fewer bytes per PE"
    })
}

fn first_use(program: &Program, buffer: BufferId) -> Option<(AgentId, usize)> {
    (0..program.agents.len()).map(|a| AgentId(a as u32)).find_map(|agent| {
        let body = program.body(agent);
        let op = body
            .ops
            .iter()
            .position(|op| body.touched(op.kind).any(|(m, _)| program.buffer(agent, body.mems.buffer(m)) == buffer))?;
        Some((agent, op))
    })
}
