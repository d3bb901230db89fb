//! `AHBM-L110`, `AHBM-L111`: indices in range, queues with slots.

use super::{Findings, Target, first_users};
use crate::{AgentId, Body, ChannelId, Comm, Control, Math, Move, OpKind, Program, Set};
use ahbm_findings::Diagnostic;
use ahbm_machine::{Node, PeId};

const CODE: &str = "AHBM-L110";
const HINT: &str = "the source that wrote this program is at fault; please report it with the program's text form";

/// Checks everything the other lints and the run index by.
pub(super) fn check(program: &Program, alike: &[u32], findings: &mut Findings) {
    for (index, user) in first_users(program, alike).into_iter().enumerate() {
        if let Some(user) = user {
            check_body(program, &program.bodies[index], user, findings);
        }
    }
    let mut needs: Vec<Needs> = Vec::with_capacity(program.bodies.len());
    for (index, (body, &first)) in program.bodies.iter().zip(alike).enumerate() {
        let entries = if first as usize == index { entries(body) } else { Vec::new() };
        let (channels, buffers) = (2 * body.directions.len(), body.mems.buffers() as usize);
        needs.push(Needs { channels, buffers, first, entries });
    }
    for index in 0..program.agents.len() {
        check_agent(program, AgentId(index as u32), &needs, findings);
    }
    check_channels(program, findings);
}

/// Entries that a body needs in its agents' channel and buffer tables.
struct Needs {
    channels: usize,
    buffers: usize,
    /// The first body with the same operations.
    first: u32,
    /// Of that one, the entries of the table of channels that operations use, in order of first use.
    entries: Vec<usize>,
}

fn entries(body: &Body) -> Vec<usize> {
    let mut seen = Set::default();
    for op in &body.ops {
        if let Some(dir) = op.kind.direction() {
            let sends = matches!(op.kind, OpKind::Comm(Comm::Send { .. } | Comm::AwaitSlot { .. }));
            seen.insert(2 * usize::from(dir) + usize::from(!sends));
        }
    }
    seen.into_iter().collect()
}

fn check_body(program: &Program, body: &Body, user: AgentId, findings: &mut Findings) {
    for (op, what) in body.ops.iter().enumerate() {
        if let Err(why) = check_op(program, body, &what.kind) {
            findings.add(CODE, |code| {
                let at = program.agents[user.0 as usize].coord;
                // `describe` indexes the tables that are in doubt here.
                let origin = body.origins.get(op).map(|&o| program.origins.text(o)).unwrap_or_default();
                Diagnostic::new(code, format!("malformed operation: {why}"))
                    .site(format!("{at}: operation {op}, {:?}", what.kind), origin)
                    .hint(HINT)
            });
        }
    }
}

fn check_op(program: &Program, body: &Body, kind: &OpKind) -> Result<(), String> {
    let within = |what: &str, index: u32, len: usize| {
        if (index as usize) < len { Ok(()) } else { Err(format!("{what} {index} of {len}")) }
    };
    let operands = kind.operands();
    for value in operands.reads.into_iter().flatten().chain(crate::Op { kind: *kind, calls: 0 }.defines()) {
        within("value", value.0, body.values as usize)?;
    }
    for mem in operands.mem_read.into_iter().chain(operands.mem_written) {
        within("memory operand", mem, body.mems.len())?;
    }
    for group in operands.group_read.into_iter().chain(operands.group_written) {
        within("group", group, body.groups.len())?;
        let members = &body.groups[group as usize];
        members.iter().try_for_each(|&mem| within("memory operand", mem, body.mems.len()))?;
        if members.is_empty() {
            return Err("an empty group".to_owned());
        }
    }
    for scalar in operands.scalars.into_iter().flatten() {
        within("scalar", scalar, body.scalars.len())?;
    }
    if let Some(dir) = kind.direction() {
        within("direction", dir.into(), body.directions.len())?;
    }
    let mut rank = 0;
    if let Some(tile) = operands.tile {
        within("tile", tile, body.tiles.len())?;
        rank = body.tiles[tile as usize].shape.len();
    }
    let extents = |n: usize| if rank == n { Ok(()) } else { Err(format!("a tile of {rank} extents instead of {n}")) };
    match *kind {
        OpKind::Comm(Comm::Await { value }) => within("value", value.0, body.values as usize),
        OpKind::Control(
            Control::Signal { counter, .. } | Control::WaitCounter { counter, .. } | Control::Acquire { counter, .. },
        ) => within("counter", counter, program.counters as usize),
        OpKind::Move(Move::ReducingLoad { f, .. }) if !f.reduces() => Err(format!("{f:?} is no reduction")),
        OpKind::Control(Control::Barrier { id }) => within("barrier", id, program.barriers.len()),
        OpKind::Math(Math::Dot { .. }) => extents(3),
        OpKind::Math(Math::Transpose { .. }) => extents(2),
        OpKind::Math(Math::Reduce { axis, .. }) if axis >= 0 => within("axis", axis as u32, rank),
        OpKind::Math(Math::Softmax { axis, .. }) if axis >= 0 => within("axis", axis as u32, rank),
        OpKind::Math(Math::Softmax { axis, .. }) => {
            within("axis from the end", u32::from(axis.unsigned_abs()) - 1, rank)
        }
        _ => Ok(()),
    }
}

fn check_agent(program: &Program, id: AgentId, needs: &[Needs], findings: &mut Findings) {
    if let Err(why) = agent_tables(program, id, needs) {
        findings.add(CODE, |code| {
            let at = program.agents[id.0 as usize].coord;
            Diagnostic::new(code, format!("malformed agent {}: {why}", id.0)).site(at.to_string(), "").hint(HINT)
        });
    }
}

fn agent_tables(program: &Program, id: AgentId, needs: &[Needs]) -> Result<(), String> {
    let agent = &program.agents[id.0 as usize];
    let Some(&Needs { channels, buffers, first, .. }) = needs.get(agent.body as usize) else {
        return Err(format!("body {} of {}", agent.body, program.bodies.len()));
    };
    let table =
        program.channel_table.get(agent.channels as usize..).and_then(|t| t.get(..channels)).ok_or_else(|| {
            format!("{channels} channel entries from {} on of {}", agent.channels, program.channel_table.len())
        })?;
    let list = program.buffer_table.get(agent.buffers as usize..).and_then(|t| t.get(..buffers)).ok_or_else(|| {
        format!("{buffers} buffer entries from {} on of {}", agent.buffers, program.buffer_table.len())
    })?;
    if let Some(bad) = list.iter().find(|b| b.0 as usize >= program.buffers.len()) {
        return Err(format!("buffer {} of {}", bad.0, program.buffers.len()));
    }
    for (entry, &channel) in table.iter().enumerate() {
        if channel == ChannelId::NONE {
            continue;
        }
        let Some(c) = program.channels.get(channel.0 as usize) else {
            return Err(format!("channel {} of {}", channel.0, program.channels.len()));
        };
        let (end, way) = if entry % 2 == 0 { (c.sender, "sends") } else { (c.receiver, "receives") };
        if end != id {
            return Err(format!("it {way} on channel {}, which is agent {}'s", channel.0, end.0));
        }
    }
    // A direction out of range is the body's finding.
    let missing = |&&entry: &&usize| table.get(entry) == Some(&ChannelId::NONE);
    match needs[first as usize].entries.iter().find(missing) {
        Some(entry) => Err(format!("no channel behind direction {}, which its body uses", entry / 2)),
        None => Ok(()),
    }
}

fn check_channels(program: &Program, findings: &mut Findings) {
    let agents = program.agents.len();
    for (index, channel) in program.channels.iter().enumerate() {
        if channel.sender.0 as usize >= agents || channel.receiver.0 as usize >= agents {
            findings.add(CODE, |code| {
                let (s, r) = (channel.sender.0, channel.receiver.0);
                Diagnostic::new(code, format!("malformed channel {index}: agents {s} and {r} of {agents}")).hint(HINT)
            });
        } else if channel.slots == 0 {
            findings.add("AHBM-L111", |code| {
                let (s, r) = (&program.agents[channel.sender.0 as usize], &program.agents[channel.receiver.0 as usize]);
                Diagnostic::new(code, "a queue without slots can never take a message")
                    .site(format!("{} sends in direction {}", s.coord, channel.sender_direction), "")
                    .site(format!("{} receives from direction {}", r.coord, channel.receiver_direction), "")
                    .hint("set n_slots to at least 1")
            });
        }
    }
}

/// Checks that every place, memory and slot tier named by the program exists on the machine.
pub(super) fn check_places(program: &Program, target: &Target<'_>, findings: &mut Findings) {
    let pes = target.pes;
    let has = |pe: PeId| u64::from(pe.0) < pes;
    for (index, agent) in program.agents.iter().enumerate() {
        if !has(agent.place) {
            findings.add(CODE, |code| {
                Diagnostic::new(code, format!("agent {index} runs on PE {} of {pes}", agent.place.0))
                    .site(agent.coord.to_string(), "")
                    .hint("the program was placed for a larger machine; capture it again for this topology")
            });
        }
    }
    for (index, buffer) in program.buffers.iter().enumerate() {
        let exists = match buffer.node {
            Node::Pe(pe) | Node::Hbm(pe) | Node::Sram(pe) => has(pe),
            Node::Io(sip) => sip < target.sips,
        };
        if !exists {
            findings.add(CODE, |code| {
                Diagnostic::new(
                    code,
                    format!("buffer {index} lives on {:?}, beyond the machine's {pes} PEs", buffer.node),
                )
                .hint("the program was placed for a larger machine; capture it again for this topology")
            });
        }
    }
    for (index, channel) in program.channels.iter().enumerate().filter(|(_, c)| (target.tier)(c.tier).is_none()) {
        findings.add(CODE, |code| {
            Diagnostic::new(
                code,
                format!("channel {index} keeps its slots in tier {}, which the machine does not have", channel.tier),
            )
            .hint("declare the tier under ipcq.tiers or pick another buffer_kind")
        });
    }
}
