//! Thread blocks: as the program says, or one per pair of peers and channel.

use super::flows::{Joined, Port};
use super::order::Order;
use super::record::Op;
use super::refusal::{Kind, Refusal};
use crate::Faith;
use ahbm_findings::Diagnostic;
use ahbm_plan::blocks::Action;
use rustc_hash::FxHashMap;

/// A thread block.
#[derive(Debug, Clone, Default)]
pub struct Block {
    /// The rank it sends to.
    pub send: Option<u32>,
    /// The rank it receives from.
    pub recv: Option<u32>,
    /// Channel; -1 until an operation has one.
    pub channel: i64,
    /// Its operations.
    pub ops: Vec<u32>,
}

/// The thread blocks of a program.
pub struct Blocks {
    /// By rank, in the order of first use.
    pub ranks: Vec<Vec<Block>>,
    /// Of every operation: the thread block and the step in it. Operations that are not done are in none.
    pub places: Vec<Option<(u32, u32)>>,
    /// Channels of one instance.
    pub channels: i64,
    /// The first operation for which the language's own compiler makes a thread block although a later one, which is
    /// fused, needs its peer in another.
    pub joined: Option<u32>,
}

impl Blocks {
    fn new(ranks: u32, ops: usize) -> Self {
        Self { ranks: vec![Vec::new(); ranks as usize], places: vec![None; ops], channels: 1, joined: None }
    }

    fn put(&mut self, id: u32, op: &Op, block: u32) {
        let there = &mut self.ranks[op.rank as usize][block as usize];
        self.places[id as usize] = Some((block, there.ops.len() as u32));
        there.ops.push(id);
        let (send, recv) = peers(op);
        (there.send, there.recv) = (send.or(there.send), recv.or(there.recv));
    }
}

/// The rank an operation sends to, and the one it receives from.
pub fn peers(op: &Op) -> (Option<u32>, Option<u32>) {
    let action = op.action.unwrap_or(Action::Nop);
    (action.sends().then_some(op.dst.rank), action.receives().then_some(op.src.rank))
}

fn agrees(block: &Block, op: &Op) -> bool {
    let (send, recv) = peers(op);
    let same = |has: Option<u32>, wants: Option<u32>| has.is_none() || wants.is_none() || has == wants;
    let channel = block.channel == -1 || op.channel == -1 || block.channel == op.channel;
    same(block.send, send) && same(block.recv, recv) && channel
}

/// The thread blocks that the program names.
///
/// # Errors
/// `AHBM-A207` for an operation whose peer or channel its thread block cannot have.
pub fn manual(
    ops: &[Op],
    order: &Order,
    ranks: u32,
    refuse: impl Fn(u32, u32, &Block) -> Diagnostic,
) -> Result<Blocks, Box<Refusal>> {
    let mut blocks = Blocks::new(ranks, ops.len());
    let mut known: FxHashMap<(u32, i64), u32> = FxHashMap::default();
    for &id in &order.ops {
        let op = &ops[id as usize];
        let list = &mut blocks.ranks[op.rank as usize];
        let block = *known.entry((op.rank, op.tb)).or_insert_with(|| {
            list.push(Block { channel: -1, ..Block::default() });
            list.len() as u32 - 1
        });
        let there = &mut list[block as usize];
        if !agrees(there, op) {
            let first = *there.ops.first().unwrap_or(&id);
            return Err(Refusal::new(Kind::Runtime, refuse(id, first, there)));
        }
        if there.channel == -1 {
            there.channel = op.channel.max(0);
        }
        blocks.channels = blocks.channels.max(op.channel + 1);
        blocks.put(id, op, block);
    }
    Ok(blocks)
}

/// A thread block per pair of peers and channel; local operations join the one of their channel that is behind. Ends that
/// a fused operation joins are in one thread block from the start, unless as is.
///
/// # Errors
/// `AHBM-A207` for an operation that needs two thread blocks at once.
pub fn automatic(
    ops: &mut [Op],
    order: &Order,
    ranks: u32,
    faith: Faith,
    refuse: impl Fn(&[Op], u32, u32, &Block) -> Diagnostic,
) -> Result<Blocks, Box<Refusal>> {
    let joined = if faith == Faith::Meant { Joined::of(ops, order) } else { Joined::default() };
    let mut blocks = Blocks::new(ranks, ops.len());
    // The first block of a rank that sends to (or receives from) a peer on a channel, and whether it did so already.
    let mut by_peer: FxHashMap<Port, (u32, bool)> = FxHashMap::default();
    let mut latest: Vec<Vec<u32>> = vec![Vec::new(); ranks as usize];
    for &id in &order.ops {
        let op = ops[id as usize];
        let (send, recv) = peers(&op);
        let channel = op.channel.max(0);
        let end = |sends, peer: Option<u32>| by_peer.get(&(op.rank, sends, peer?, channel)).copied();
        let held = [end(true, send), end(false, recv)].into_iter().flatten().min();
        if let (Some((_, false)), true) = (held, send.is_none() || recv.is_none()) {
            blocks.joined.get_or_insert(id);
        }
        let list = &mut blocks.ranks[op.rank as usize];
        let steps = &mut latest[op.rank as usize];
        let found = match held {
            Some((block, _)) => Some(block),
            None if send.is_none() && recv.is_none() => (0..list.len() as u32)
                .filter(|&block| list[block as usize].channel == channel)
                .min_by_key(|&block| (steps[block as usize], block)),
            None => None,
        };
        let block = found.unwrap_or_else(|| {
            let mate = |sends, peer: Option<u32>| joined.mate((op.rank, sends, peer?, channel));
            let (send, recv) = (send.or_else(|| mate(false, recv)), recv.or_else(|| mate(true, send)));
            list.push(Block { send, recv, channel, ops: Vec::new() });
            steps.push(0);
            list.len() as u32 - 1
        });
        let there = &list[block as usize];
        for (sends, peer) in [(true, there.send), (false, there.recv)] {
            let Some(peer) = peer else { continue };
            by_peer.entry((op.rank, sends, peer, channel)).or_insert((block, false));
        }
        if !agrees(there, &op) {
            let first = *there.ops.first().unwrap_or(&id);
            return Err(Refusal::new(Kind::Assertion, refuse(ops, id, first, there)));
        }
        blocks.channels = blocks.channels.max(channel + 1);
        for (sends, peer) in [(true, send), (false, recv)] {
            let Some(peer) = peer else { continue };
            let (first, used) = by_peer.entry((op.rank, sends, peer, channel)).or_insert((block, true));
            (*first, *used) = (block.min(*first), true);
        }
        steps[block as usize] = order.steps[id as usize];
        blocks.put(id, &op, block);
        ops[id as usize].tb = block.into();
    }
    Ok(blocks)
}
