//! Channels, where the program leaves thread blocks to the compiler.

use super::flows::{self, CHANNELS, Crowded};
use super::order::Order;
use super::record::Op;
use super::refusal::{Kind, Refusal};
use crate::Faith;
use ahbm_findings::Diagnostic;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// What came of an assignment.
pub enum Assigned {
    /// The channels of the language's own compiler.
    Own,
    /// Others: those of the language's own compiler cannot be, first at this operation.
    Other(u32),
    /// Neither those, first at this operation, nor others.
    Crowded(u32, Crowded),
}

/// Gives the operations channels: first to flows, which are chains of fused operations, then so that every queue
/// receives in the order in which it sends. Where that does not come out, every flow has the first channel that fits.
///
/// # Errors
/// `AHBM-A207` as is, when a flow finds none of 32 channels free on all its hops.
pub fn assign(
    ops: &mut [Op],
    order: &Order,
    faith: Faith,
    origin: impl Fn(&Op) -> String,
) -> Result<Assigned, Box<Refusal>> {
    let named: Vec<i64> = ops.iter().map(|op| op.channel).collect();
    let free = share(ops, order);
    if free.is_ok() {
        keep_order(ops, order);
    }
    let misfit = match free {
        Err((send, hops)) if faith == Faith::AsIs => return Err(none_free(&ops[send as usize], hops, origin)),
        Ok(()) if faith == Faith::AsIs => None,
        Err((send, _)) => Some(send),
        Ok(()) => flows::misfit(ops, order, &named),
    };
    let Some(misfit) = misfit else { return Ok(Assigned::Own) };
    ops.iter_mut().zip(named).for_each(|(op, channel)| op.channel = channel);
    Ok(match flows::first_fit(ops, order) {
        Ok(()) => Assigned::Other(misfit),
        Err(crowded) => Assigned::Crowded(misfit, crowded),
    })
}

fn none_free(send: &Op, hops: usize, origin: impl Fn(&Op) -> String) -> Box<Refusal> {
    let message =
        format!("no channel of {CHANNELS} is free on all {hops} hops of a chunk that starts at rank {}", send.rank);
    let finding = Diagnostic::new("AHBM-A207", message)
        .site("min() arg is an empty sequence", origin(send))
        .hint("give the statements channels with ch=");
    Refusal::new(Kind::Value, finding)
}

/// Two flows over the same hops share a channel; else a flow has the first that is free on every hop. If there is none:
/// the flow's first send, and its hops.
fn share(ops: &mut [Op], order: &Order) -> Result<(), (u32, usize)> {
    let mut free: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    let mut known: FxHashMap<Vec<(u32, u32)>, i64> = FxHashMap::default();
    for chain in flows::flows(ops, order).into_iter().filter(|flow| flow.len() > 2) {
        let hop = |pair: &[u32]| (ops[pair[0] as usize].rank, ops[pair[1] as usize].rank);
        let hops: Vec<(u32, u32)> = chain.windows(2).map(hop).collect();
        let last = chain[chain.len() - 2];
        let mut channel = ops[last as usize].channel;
        if channel == -1 {
            let mut flow = hops.clone();
            flow.sort_unstable();
            flow.dedup();
            channel = match known.get(&flow) {
                Some(&channel) => channel,
                None => {
                    let all = hops.iter().fold(u32::MAX, |all, hop| all & free.get(hop).unwrap_or(&u32::MAX));
                    if all == 0 {
                        return Err((chain[0], hops.len()));
                    }
                    let channel = all.trailing_zeros().into();
                    known.insert(flow, channel);
                    channel
                }
            };
        }
        for hop in hops {
            let mask = u32::try_from(channel).ok().and_then(|channel| 1u32.checked_shl(channel)).unwrap_or(0);
            *free.entry(hop).or_insert(u32::MAX) &= !mask;
        }
        chain.iter().for_each(|&op| ops[op as usize].channel = channel);
    }
    Ok(())
}

/// Moves receives that come out of the order of their sends to the next channel, until none does.
fn keep_order(ops: &mut [Op], order: &Order) {
    let mut queues: FxHashMap<(u32, u32, i64), VecDeque<u32>> = FxHashMap::default();
    // The queue in which an operation's message is in this round.
    let mut waiting: Vec<i64> = vec![-1; ops.len()];
    let mut again = true;
    while again {
        again = false;
        queues.clear();
        waiting.fill(-1);
        for &id in &order.ops {
            let Op { action, rank, src, dst, channel, to, from, .. } = ops[id as usize];
            let Some(action) = action else { continue };
            let channel = channel.max(0);
            if action.sends() {
                queues.entry((rank, dst.rank, channel)).or_default().push_back(to);
                waiting[to as usize] = channel;
            }
            if action.receives() && waiting[id as usize] == channel {
                let queue = queues.entry((src.rank, rank, channel)).or_default();
                // What moved elsewhere is no longer there.
                while queue.front().is_some_and(|&head| waiting[head as usize] == -1) {
                    queue.pop_front();
                }
                if queue.front() != Some(&id) {
                    again = true;
                    ops[id as usize].channel += 1;
                    ops[from as usize].channel += 1;
                }
                waiting[id as usize] = -1;
            }
        }
    }
}
