//! A run as a post-execution trace: every operation with the time it was measured to take.

use ahbm_emulator::Timeline;
use ahbm_findings::Diagnostic;
use ahbm_program::{AgentId, Body, ChannelId, Comm, Move, OpKind, Program};
use ahbm_wire::chakra::{Arm, Attribute, Metadata, Node, NodeKind, Value, encode, of_rank, refuse_foreign};
use ahbm_wire::store::Output;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The bytes of one file per rank: one node per operation, in order by control dependencies along each agent.
///
/// Beside whole microseconds, `start_ns` and `duration_ns` are exact to the picosecond, on one clock for all ranks. A
/// message's `comm_tag` is the number of its queue, and `send_node` of a receive is the node in the file of rank
/// `comm_src` that sent what it received: the traces of all ranks are joined message by message. The node that receives
/// what was claimed without waiting is the first wait for it; where nobody waits, the claim, which nothing depends on.
///
/// # Errors
/// `AHBM-D191` when the timeline was not recorded or belongs to another program.
pub fn executed(program: &Program, timeline: &Timeline) -> Result<Vec<Vec<u8>>, Diagnostic> {
    let fits = |(agent, spans): (u32, &Vec<_>)| program.body(AgentId(agent)).ops.len() == spans.len();
    if timeline.spans.len() != program.agents.len() || !(0..).zip(&timeline.spans).all(fits) {
        return Err(Diagnostic::new("AHBM-D191", "the timeline was not recorded or belongs to another program"));
    }
    let names = Names::default();
    let ranks = program.agents.iter().map(|a| a.rank + 1).max().unwrap_or(0);
    let mut files: Vec<Vec<Node>> = vec![Vec::new(); ranks as usize];
    // A queue has one sender and one receiver, and is first in, first out: the k-th receive has what the k-th send sent.
    let mut sends: Vec<Vec<u64>> = vec![Vec::new(); program.channels.len()];
    let mut receives: Vec<(u32, u64, ChannelId)> = Vec::new();
    for (agent, spans) in (0..).zip(&timeline.spans) {
        let agent = AgentId(agent);
        let mut choices = timeline.choices.get(agent.0 as usize).into_iter().flatten().copied();
        let body = program.body(agent);
        let rank = program.agents[agent.0 as usize].rank;
        let file = &mut files[rank as usize];
        let mut previous = None;
        let taken = taken(body);
        // Per claim, its place in `receives`.
        let mut claimed = BTreeMap::new();
        for (index, (op, span)) in body.ops.iter().zip(spans).enumerate() {
            let (kind, channel, tile) = match op.kind {
                OpKind::Comm(Comm::Send { dir, tile, .. }) => {
                    (NodeKind::Send, Some(program.tx(agent, dir)), Some(tile))
                }
                OpKind::Comm(Comm::Recv { dir, tile, .. }) => {
                    (NodeKind::Recv, Some(program.rx(agent, dir)), Some(tile))
                }
                OpKind::Comm(Comm::RecvAny { tile, .. }) => (NodeKind::Recv, choices.next(), Some(tile)),
                OpKind::Comm(Comm::PostRecv { .. } | Comm::Await { .. }) => {
                    match taken[index].map(|claim| body.ops[claim].kind) {
                        Some(OpKind::Comm(Comm::PostRecv { dir, tile, .. })) => {
                            (NodeKind::Recv, Some(program.rx(agent, dir)), Some(tile))
                        }
                        _ => (NodeKind::Comp, None, None),
                    }
                }
                OpKind::Move(Move::Load { tile, .. } | Move::ReducingLoad { tile, .. }) => {
                    (NodeKind::MemLoad, None, Some(tile))
                }
                OpKind::Move(Move::Store { tile, .. } | Move::Multicast { tile, .. }) => {
                    (NodeKind::MemStore, None, Some(tile))
                }
                _ => (NodeKind::Comp, None, None),
            };
            let id = file.len() as u64;
            let mut node = Node::new(id, program.describe(agent, index), kind);
            node.ctrl_deps.extend(previous);
            if taken[index] != Some(index) {
                previous = Some(id);
            }
            node.start_micros = span.start / 1_000_000;
            // Both ends rounded down, so that what abuts in time abuts in microseconds.
            node.duration_micros = span.end / 1_000_000 - node.start_micros;
            let bytes = tile.map(|t| body.tiles[t as usize].bytes());
            names.describe(&mut node, program, channel, bytes);
            names.time(&mut node, span.start, span.end - span.start);
            if let OpKind::Comm(Comm::PostRecv { dir, .. }) = op.kind {
                // Messages are claimed in this order, whatever the order of the waits.
                claimed.insert(index, receives.len());
                receives.push((rank, id, program.rx(agent, dir)));
            } else if let Some(place) = taken[index].and_then(|claim| claimed.get(&claim)) {
                receives[*place].1 = id;
            } else if let (NodeKind::Send, Some(channel)) = (kind, channel) {
                sends[channel.0 as usize].push(id);
            } else if let (NodeKind::Recv, Some(channel)) = (kind, channel) {
                receives.push((rank, id, channel));
            }
            file.push(node);
        }
    }
    let mut sent: Vec<_> = sends.iter().map(|ids| ids.iter()).collect();
    let send_node: Arc<str> = Arc::from("send_node");
    for (rank, id, channel) in receives {
        if let Some(&from) = sent.get_mut(channel.0 as usize).and_then(Iterator::next) {
            files[rank as usize][id as usize].attributes.push(Attribute::integer(&send_node, Arm::Int64, from));
        }
    }
    let metadata = Metadata {
        version: "0.0.4".into(),
        attributes: vec![Attribute::text(&Arc::from("schema"), "1.0.2-chakra.0.0.4")],
    };
    Ok(files.iter().map(|nodes| encode(&metadata, nodes)).collect())
}

/// Per operation, the claim of the message that it takes: of the first wait for a claim that claim, of a claim that
/// nobody waits for its own.
fn taken(body: &Body) -> Vec<Option<usize>> {
    let mut found = vec![None; body.ops.len()];
    let mut claims = BTreeMap::new();
    for (index, op) in body.ops.iter().enumerate() {
        match op.kind {
            OpKind::Comm(Comm::PostRecv { dst, .. }) => {
                found[index] = Some(index);
                claims.insert(dst, index);
            }
            OpKind::Comm(Comm::Await { value }) => {
                if let Some(claim) = claims.remove(&value) {
                    found[claim] = None;
                    found[index] = Some(claim);
                }
            }
            _ => {
                op.defines().and_then(|value| claims.remove(&value));
            }
        }
    }
    found
}

/// The files of [`executed`], `<prefix>.<rank>.et`, where `path` is the prefix, with or without `.et`.
///
/// # Errors
/// As [`executed`]; `AHBM-F139` where a file of a rank that the run does not have is there.
pub fn render(program: &Program, timeline: &Timeline, path: &Path) -> Result<Vec<Output>, Diagnostic> {
    let files = executed(program, timeline)?;
    refuse_foreign(path, files.len())?;
    let output = |(rank, bytes)| Output { path: of_rank(path, rank), bytes };
    Ok(files.into_iter().enumerate().map(output).collect())
}

/// The attribute names of a run, shared by all its nodes.
struct Names([Arc<str>; 8]);

impl Default for Names {
    fn default() -> Self {
        let names =
            ["is_cpu_op", "comm_size", "comm_src", "comm_dst", "comm_tag", "tensor_size", "start_ns", "duration_ns"];
        Self(names.map(Arc::from))
    }
}

impl Names {
    fn describe(&self, node: &mut Node, program: &Program, channel: Option<ChannelId>, bytes: Option<u64>) {
        let [cpu, comm_size, src, dst, tag, tensor_size, ..] = &self.0;
        node.attributes.push(Attribute::integer(cpu, Arm::Bool, 0));
        let channel = channel.and_then(|c| Some((c, program.channels.get(c.0 as usize)?)));
        match (channel, bytes) {
            (Some((id, channel)), Some(bytes)) => {
                let rank = |agent: AgentId| program.agents[agent.0 as usize].rank;
                node.attributes.extend([
                    Attribute::integer(comm_size, Arm::Int64, bytes),
                    Attribute::integer(src, Arm::Int32, rank(channel.sender)),
                    Attribute::integer(dst, Arm::Int32, rank(channel.receiver)),
                    Attribute::integer(tag, Arm::Int32, id.0),
                ]);
            }
            (None, Some(bytes)) => node.attributes.push(Attribute::integer(tensor_size, Arm::Uint64, bytes)),
            _ => {}
        }
    }

    fn time(&self, node: &mut Node, start_ps: u64, ps: u64) {
        let [.., start, duration] = &self.0;
        for (name, ps) in [(start, start_ps), (duration, ps)] {
            let value = Value::Double(ps as f64 / 1000.0);
            node.attributes.push(Attribute { name: Arc::clone(name), value, doc: None });
        }
    }
}
