//! Queues as channel ends and slots.

use super::{cannot_express, too_large};
use ahbm_findings::Diagnostic;
use ahbm_plan::execution::{End, Kind};
use ahbm_plan::{Plan, Protocol};
use std::collections::BTreeMap;

/// A queue that messages go through.
pub(super) struct Queue {
    /// The sender's and the receiver's end of its channel.
    pub(super) ends: [u32; 2],
    /// The rank that receives.
    pub(super) to: u32,
    /// First chunk of every slot, in the receiver's scratch.
    first: Vec<u32>,
    /// Messages that are sent and that are received.
    pub(super) sent: u32,
    pub(super) taken: u32,
}

impl Queue {
    /// First chunk of the slot of message `n`.
    pub(super) fn slot(&self, n: u32) -> u32 {
        self.first[n as usize % self.first.len()]
    }

    /// Number of slots.
    pub(super) fn depth(&self) -> u32 {
        self.first.len() as u32
    }
}

/// All queues by sender, receiver and channel.
pub(super) struct Queues {
    by_name: BTreeMap<(u32, u32, u32), Queue>,
    pub(super) ends: Vec<End>,
}

/// Messages of a queue as its two thread blocks see them: chunks of each, and the line of the block.
#[derive(Default)]
struct Traffic {
    sent: Option<(Vec<u32>, u32)>,
    taken: Option<(Vec<u32>, u32)>,
}

impl Queues {
    /// `scratch` is the number of chunks of every rank's scratch; slots are added behind them.
    pub(super) fn of(plan: &Plan, slots: u32, scratch: &mut [u32]) -> Result<Self, Diagnostic> {
        let mut traffic: BTreeMap<(u32, u32, u32), Traffic> = BTreeMap::new();
        for (rank, block) in
            (0u32..).zip(&plan.ranks).flat_map(|(rank, work)| work.blocks.iter().map(move |b| (rank, b)))
        {
            let counts = |moves: fn(ahbm_plan::blocks::Action) -> bool| -> Vec<u32> {
                block.steps.iter().filter(|step| moves(step.action)).map(|step| step.count).collect()
            };
            let (sent, taken) = (counts(|action| action.sends()), counts(|action| action.receives()));
            if let Some(peer) = block.send.filter(|_| !sent.is_empty()) {
                traffic.entry((rank, peer, block.channel)).or_default().sent = Some((sent, block.line));
            }
            if let Some(peer) = block.recv.filter(|_| !taken.is_empty()) {
                traffic.entry((peer, rank, block.channel)).or_default().taken = Some((taken, block.line));
            }
        }
        let mut by_name = BTreeMap::new();
        let mut of_rank: Vec<Vec<(u32, u32, u32)>> = vec![Vec::new(); plan.ranks.len()];
        for (&name, messages) in &traffic {
            let (from, to, _) = name;
            let none = (Vec::new(), 0);
            let (sent, line) = messages.sent.as_ref().unwrap_or(&none);
            let (taken, there) = messages.taken.as_ref().unwrap_or(&none);
            if let Some((k, (a, b))) = sent.iter().zip(taken).enumerate().find(|(_, (a, b))| a != b) {
                let what = format!("message {k} to rank {to}, sent as {a} chunks and received as {b}");
                return Err(cannot_express(plan, from, *line, what));
            }
            if plan.protocol == Protocol::Ll && sent.contains(&0) {
                return Err(cannot_express(plan, from, *line, "a message without chunks under LL"));
            }
            let longer = if sent.len() < taken.len() { taken } else { sent };
            let widths: Vec<u32> = match plan.protocol {
                Protocol::Ll => longer.clone(),
                _ => {
                    let widest = longer.iter().copied().max().unwrap_or(0);
                    vec![widest; slots.min(longer.len() as u32) as usize]
                }
            };
            let mut first = Vec::with_capacity(widths.len());
            for width in widths {
                let next = &mut scratch[to as usize];
                first.push(*next);
                *next = next.checked_add(width).ok_or_else(|| too_large(plan, to, *there))?;
            }
            of_rank[from as usize].push(name);
            of_rank[to as usize].push(name);
            let (sent, taken) = (sent.len() as u32, taken.len() as u32);
            by_name.insert(name, Queue { ends: [0; 2], to, first, sent, taken });
        }
        // Both ranks list their common queues in one order: that is how channels are paired.
        let mut ends = Vec::new();
        for (rank, names) in (0u32..).zip(&of_rank) {
            for name in names {
                let (from, to, _) = *name;
                let receives = u32::from(rank == to);
                if let Some(queue) = by_name.get_mut(name) {
                    queue.ends[receives as usize] = ends.len() as u32;
                }
                ends.push(End { rank, kind: Kind::Memory, peer: if receives == 1 { from } else { to } });
            }
        }
        if plan.protocol == Protocol::Ll {
            ends.clear();
        }
        Ok(Self { by_name, ends })
    }

    pub(super) fn get(&self, from: u32, to: u32, channel: u32) -> Option<&Queue> {
        self.by_name.get(&(from, to, channel))
    }

    /// Slots of all queues.
    pub(super) fn slots(&self) -> u64 {
        self.by_name.values().map(|queue| queue.first.len() as u64).sum()
    }
}
