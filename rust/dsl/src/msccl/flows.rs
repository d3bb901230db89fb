//! Flows, and the channels on which they do not meet.
//!
//! A flow is a message and all that fused steps pass on of it. A thread block has one channel, one rank to send to and
//! one to receive from. So a flow has one channel on all its hops, and there a rank passes what comes from a peer to one
//! other peer, which gets nothing passed on from a third. A queue delivers in the order in which it is sent to.

use super::order::Order;
use super::record::{NONE, Op};
use ahbm_plan::blocks::Action;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Channels from which flows choose.
pub const CHANNELS: u32 = 32;

/// The operations of every flow, by the turns of their first sends.
pub fn flows(ops: &[Op], order: &Order) -> Vec<Vec<u32>> {
    let starts = order.ops.iter().filter(|&&op| ops[op as usize].action == Some(Action::Send));
    let chain = |&send: &u32| {
        let next = |&op: &u32| Some(ops[op as usize].to).filter(|&to| to != NONE);
        std::iter::successors(Some(send), next).collect()
    };
    starts.map(chain).collect()
}

/// What does not fit, wherever it is.
pub enum Crowded {
    /// These flows; they have fused steps.
    Flows(Vec<Vec<u32>>),
    /// A message alone: it is received in another turn than is sent before and after it.
    Message,
}

/// Gives every flow the first channel where it fits, from the one that the program names on. Those of the program go
/// first; where steps are fused, the program's channel is the only one.
///
/// # Errors
/// What fits nowhere.
pub fn first_fit(ops: &mut [Op], order: &Order) -> Result<(), Crowded> {
    let mut flows = flows(ops, order);
    flows.sort_by_key(|flow| ops[flow[0] as usize].channel == -1);
    let mut taken = Taken::new(ops.len(), order);
    let mut left = Vec::new();
    for flow in flows {
        let (named, fused) = (ops[flow[0] as usize].channel, flow.len() > 2);
        let choices = if named >= 0 && fused { 1 } else { CHANNELS.into() };
        let first = named.max(0);
        let Some(channel) = (first..first.saturating_add(choices)).find(|&channel| taken.take(ops, &flow, channel))
        else {
            if !fused {
                return Err(Crowded::Message);
            }
            left.push(flow);
            continue;
        };
        flow.iter().for_each(|&op| ops[op as usize].channel = channel);
    }
    if left.is_empty() { Ok(()) } else { Err(Crowded::Flows(left)) }
}

/// The first operation whose channel is not that of its flow, or where its flow does not fit. A channel above the last
/// does not either, unless it is `named`.
pub fn misfit(ops: &[Op], order: &Order, named: &[i64]) -> Option<u32> {
    let mut taken = Taken::new(ops.len(), order);
    let mut misfit = |flow: &Vec<u32>| {
        let channel = |op: u32| ops[op as usize].channel.max(0);
        let all = channel(flow[0]);
        let above = all >= CHANNELS.into() && all != named[flow[0] as usize];
        let other = flow.iter().copied().find(|&op| above || channel(op) != all);
        other.or_else(|| (!taken.take(ops, flow, all)).then(|| flow[1]))
    };
    flows(ops, order).iter().find_map(&mut misfit)
}

/// A rank, true for what it sends, the peer, and the channel.
pub type Port = (u32, bool, u32, i64);

/// The ports that fused steps join.
#[derive(Debug, Default)]
pub struct Joined(FxHashMap<Port, u32>);

impl Joined {
    /// Those of all operations. Where two steps join a port with different peers, the first counts.
    pub fn of(ops: &[Op], order: &Order) -> Self {
        let mut joined = Self::default();
        for &op in &order.ops {
            let op = &ops[op as usize];
            joined.add(op, op.channel.max(0));
        }
        joined
    }

    /// The peer to which is sent what comes through a port, or from which comes what is sent.
    pub fn mate(&self, port: Port) -> Option<u32> {
        self.0.get(&port).copied()
    }

    /// False when a port of a fused step belongs to another peer.
    fn add(&mut self, op: &Op, channel: i64) -> bool {
        let action = op.action.unwrap_or(Action::Nop);
        let fused = action.sends() && action.receives();
        let (from, to) = (op.src.rank, op.dst.rank);
        let mut join = |sends, peer, mate| *self.0.entry((op.rank, sends, peer, channel)).or_insert(mate) == mate;
        !fused || (join(false, from, to) & join(true, to, from))
    }

    fn admits(&self, op: &Op, channel: i64) -> bool {
        let is = |sends, peer, mate| self.mate((op.rank, sends, peer, channel)).is_none_or(|known| known == mate);
        is(false, op.src.rank, op.dst.rank) && is(true, op.dst.rank, op.src.rank)
    }
}

/// Flows that have their channels.
struct Taken {
    /// The turn of every operation.
    turns: Vec<u32>,
    joined: Joined,
    /// By sender, receiver and channel: the turn of a send, and that of its receive.
    queues: FxHashMap<(u32, u32, i64), BTreeMap<u32, u32>>,
}

impl Taken {
    fn new(ops: usize, order: &Order) -> Self {
        Self { turns: order.turns(ops), joined: Joined::default(), queues: FxHashMap::default() }
    }

    /// Gives a flow the channel, if it fits there.
    fn take(&mut self, ops: &[Op], flow: &[u32], channel: i64) -> bool {
        let mut alone = Joined::default();
        let inner = || flow[1..flow.len() - 1].iter().map(|&op| &ops[op as usize]);
        let passes = inner().all(|op| alone.add(op, channel) && self.joined.admits(op, channel));
        let hops = || {
            flow.windows(2).map(|hop| {
                let [from, to] = [hop[0], hop[1]].map(|op| ops[op as usize].rank);
                ((from, to, channel), self.turns[hop[0] as usize], self.turns[hop[1] as usize])
            })
        };
        let in_order = |(queue, send, recv): ((u32, u32, i64), u32, u32)| {
            let Some(queue) = self.queues.get(&queue) else { return true };
            let before = queue.range(..send).next_back().is_none_or(|(_, &other)| other < recv);
            before && queue.range(send..).next().is_none_or(|(_, &other)| other > recv)
        };
        if !passes || !hops().all(in_order) {
            return false;
        }
        for op in inner() {
            self.joined.add(op, channel);
        }
        for (queue, send, recv) in hops().collect::<Vec<_>>() {
            self.queues.entry(queue).or_default().insert(send, recv);
        }
        true
    }
}
