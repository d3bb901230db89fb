//! Channels, where the program leaves thread blocks to the compiler.

use super::order::Order;
use super::record::{NONE, Op};
use super::refusal::{Kind, Refusal};
use ahbm_machine::Diagnostic;
use ahbm_plan::blocks::Action;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Gives the operations channels: first to flows, which are chains of fused operations, then so that every queue
/// receives in the order in which it sends.
///
/// # Errors
/// `AHBM-A207` when a flow finds none of 32 channels free on all its hops.
pub fn assign(ops: &mut [Op], order: &Order, origin: impl Fn(&Op) -> String) -> Result<(), Box<Refusal>> {
    flows(ops, order, origin)?;
    keep_order(ops, order);
    Ok(())
}

/// Two flows over the same hops share a channel; else a flow has the first that is free on every hop.
fn flows(ops: &mut [Op], order: &Order, origin: impl Fn(&Op) -> String) -> Result<(), Box<Refusal>> {
    let mut free: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    let mut known: FxHashMap<Vec<(u32, u32)>, i64> = FxHashMap::default();
    let mut chain = Vec::new();
    for &send in &order.ops {
        let Op { action, to, .. } = ops[send as usize];
        if action != Some(Action::Send) || !is_fused(&ops[to as usize]) {
            continue;
        }
        chain.clear();
        chain.push(send);
        while let to = ops[chain[chain.len() - 1] as usize].to
            && to != NONE
        {
            chain.push(to);
        }
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
                        let message = format!(
                            "no channel of 32 is free on all {} hops of a chunk that starts at rank {}",
                            hops.len(),
                            hops[0].0
                        );
                        let finding = Diagnostic::new("AHBM-A207", message)
                            .site("min() arg is an empty sequence", origin(&ops[send as usize]))
                            .hint("give the statements channels with ch=");
                        return Err(Refusal::new(Kind::Value, finding));
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

pub(super) fn is_fused(op: &Op) -> bool {
    op.action.is_some_and(|action| action.sends() && action.receives())
}
