//! The ledger in which transfers between ranks are written down as transfers over links.

use crate::Graph;
use crate::schedule::{Parcel, Schedule, Transfer};
use ahbm_engine::interrupt::spend;

/// A schedule in the making.
pub(super) struct Ledger<'a> {
    graph: &'a Graph,
    back: Graph,
    schedule: Schedule,
    chunks: u32,
    /// Per destination asked for, links to it from every NPU.
    away: Vec<Option<Vec<u32>>>,
    /// Per link, messages so far.
    load: Vec<u32>,
}

impl<'a> Ledger<'a> {
    pub(super) fn new(graph: &'a Graph, schedule: Schedule) -> Self {
        Self {
            graph,
            back: graph.reversed(),
            chunks: schedule.chunks(),
            schedule,
            away: vec![None; graph.nodes() as usize],
            load: vec![0; graph.links().len()],
        }
    }

    /// Number of ranks.
    pub(super) fn ranks(&self) -> u32 {
        self.schedule.members.len() as u32
    }

    /// Sends a chunk from one rank to another, over a link or over the least used of the shortest ways.
    pub(super) fn send(&mut self, from: u32, to: u32, chunk: u32, adds: bool) {
        spend(16);
        let [from, to] = [from, to].map(|rank| self.schedule.members[rank as usize]);
        let last = if adds { Transfer::add } else { Transfer::copy };
        if let Some(link) = self.graph.between(from, to) {
            self.load[link as usize] += 1;
            self.schedule.transfers.push(last(link, chunk));
            return;
        }
        let number = self.chunks + self.schedule.parcels.len() as u32;
        self.schedule.parcels.push(Parcel { chunk, from, to });
        let away = self.away[to as usize].get_or_insert_with(|| self.back.hops(to));
        let mut node = from;
        while node != to {
            spend(32);
            let nearer = |l: &&u32| away[self.graph.link(**l).to as usize] < away[node as usize];
            let least = self.graph.out(node).iter().filter(nearer).min_by_key(|&&l| self.load[l as usize]);
            let Some(&link) = least else { return };
            self.load[link as usize] += 1;
            node = self.graph.link(link).to;
            self.schedule.transfers.push(if node == to { last(link, number) } else { Transfer::copy(link, number) });
        }
    }

    pub(super) fn finish(self) -> Schedule {
        self.schedule
    }
}
