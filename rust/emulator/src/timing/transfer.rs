//! Transfers over links, and who is told when they arrive.

use super::Sim;
use super::recorder::Recorder;
use crate::detail::{Kind, PieceId};
use ahbm_engine::Time;
use ahbm_program::{AgentId, ChannelId};

/// Who is told when the last byte has arrived, and a number that the transfer has among those of one channel or agent,
/// whatever the times: that of its operation, or of posted ones their count. Jitter depends on it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arrival {
    Message(ChannelId, u32),
    Transfer(AgentId, u32),
    Posted(AgentId, u32),
    /// Of a meeting, by its leg to the switch.
    Leg(u32, u32),
    /// Of a meeting, at one of the places behind the switch.
    Branch(u32),
}

/// A transfer on its way. `head` and `tail` are when its first flit and its last byte are at the input of
/// the next link; under the flit model they describe one flit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer {
    pub(super) arrival: Arrival,
    pub(super) first: u32,
    pub(super) hop: u32,
    pub(super) last: u32,
    pub(super) bytes: u64,
    pub(super) head: Time,
    pub(super) tail: Time,
    /// Flit model: bytes still to be sent after this flit, and the message's size.
    pub(super) rest: u64,
    pub(super) total: u64,
    /// The piece that ends at `head`, and the piece that ended when the tail left the last link.
    pub(super) head_piece: PieceId,
    pub(super) tail_piece: PieceId,
}

/// Tells whom an arrival concerns.
pub(super) fn arrive(sim: &Sim<'_, impl Recorder>, arrival: Arrival, bytes: u64, at: Time, piece: PieceId) {
    let (stream, number) = match arrival {
        Arrival::Message(channel, number) => (channel.0 << 1, number),
        // The two kinds of numbers of one agent do not meet: operations count from the other end.
        Arrival::Transfer(agent, number) => (agent.0 << 1 | 1, !number),
        Arrival::Posted(agent, number) => (agent.0 << 1 | 1, number),
        Arrival::Branch(meeting) => return sim.at_branch(meeting, (at, piece)),
        // A leg ends in the switch.
        Arrival::Leg(..) => return,
    };
    let late = sim.costs.jitter.latency(stream, number);
    let (at, piece) = (at + late, sim.recorder.plain(Kind::Wire, piece, late));
    match arrival {
        Arrival::Message(channel, _) => sim.deliver(channel, bytes, at, piece),
        Arrival::Transfer(agent, _) => sim.complete(agent, at, piece),
        Arrival::Posted(agent, number) => sim.arrived(agent, number, (at, piece)),
        Arrival::Leg(..) | Arrival::Branch(_) => {}
    }
}
