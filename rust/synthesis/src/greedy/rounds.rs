//! Greedy search in rounds, for links that are equal.

use super::state::{Search, State, start};
use crate::schedule::Transfer;
use ahbm_engine::interrupt::spend;

/// Rounds in which every link carries at most one chunk; what arrives in a round can be sent on in the next.
///
/// With latency, what has just arrived is second choice: it counts as had a round later.
pub(super) fn in_rounds(search: &Search<'_>, seed: u64, rarest: bool, limit: u64) -> Option<(u64, Vec<Transfer>)> {
    let total = search.total as usize;
    let mut round = Rounds::new(search, seed, rarest);
    // Behind those that were made, room for what a round may bring.
    let mut transfers = vec![Transfer::copy(0, 0); total + round.carried.len()];
    let (mut made, mut rounds) = (0, 0);
    while made < total {
        if rounds == limit {
            return None;
        }
        spend(64 * round.carried.len() as u64);
        let begun = made;
        round.choose();
        for (link, &chunk) in (0..).zip(&round.carried) {
            // An entry that is no transfer is written over by the next.
            transfers[made] = Transfer::copy(link, chunk);
            made += usize::from(chunk != round.state.none);
        }
        if made == begun {
            return None;
        }
        round.end();
        rounds += 1;
    }
    transfers.truncate(made);
    Some((rounds, transfers))
}

/// A round in the making, and what it needs to know of those before it.
struct Rounds<'a> {
    state: State<'a>,
    /// Per link, from and to.
    ends: Vec<[u32; 2]>,
    /// Links that may still carry something, in the order in which they choose.
    order: Vec<u32>,
    /// Per link, what it carries in this round: written down link by link, which keeps later passes near one place.
    carried: Vec<u32>,
    /// Per link: what it brought in the last round and in the one before.
    brought: [Vec<u32>; 2],
    /// Per link, nothing was left to carry: only what its sender has come to have since then can change that.
    dry: Vec<bool>,
    /// Per NPU at a switch, its ports out and in are taken in this round.
    taken: [Vec<bool>; 2],
    /// Pairs of NPUs at a switch share ports.
    shared: bool,
    /// A chunk that arrives in a round is had a round later.
    latent: bool,
    /// NPUs that lacked something when `order` was last thinned out.
    lacking: u32,
}

impl<'a> Rounds<'a> {
    fn new(search: &Search<'a>, seed: u64, rarest: bool) -> Self {
        let graph = search.graph;
        let state = start(search, seed, rarest);
        let (links, n) = (graph.links().len(), graph.nodes() as usize);
        let carried = vec![state.none; links];
        Self {
            ends: graph.links().iter().map(|link| [link.from, link.to]).collect(),
            order: (0..links as u32).collect(),
            brought: [carried.clone(), carried.clone()],
            dry: vec![false; links],
            taken: [vec![false; n], vec![false; n]],
            shared: graph.switch().is_some(),
            latent: graph.min_latency_ps() > 0,
            lacking: 0,
            carried,
            state,
        }
    }

    /// Every link in turn, in a random order, takes a chunk.
    fn choose(&mut self) {
        let Self { state, ends, order, carried, brought, dry, taken, .. } = self;
        let (shared, latent) = (self.shared, self.latent);
        // Nothing will ever cross a link into an NPU that lacks nothing.
        if self.lacking != state.lacking {
            self.lacking = state.lacking;
            order.retain(|&link| state.missing[ends[link as usize][1] as usize] > 0);
        }
        state.random.shuffle(order);
        let [last, before] = &*brought;
        let since = if latent { before } else { last };
        if shared {
            taken.iter_mut().for_each(|ports| ports.fill(false));
        }
        for &link in &*order {
            let [from, to] = ends[link as usize];
            if shared && (taken[0][from as usize] || taken[1][to as usize]) {
                continue;
            }
            let mut chosen = None;
            if !dry[link as usize] {
                chosen = state.choose(from, to);
                dry[link as usize] = chosen.is_none() && !shared;
            } else if let Some(chunk) = state.one_of(from, to, since) {
                chosen = Some(chunk);
                dry[link as usize] = false;
            }
            if chosen.is_none() && latent {
                chosen = state.one_of(from, to, last);
            }
            if let Some(chunk) = chosen {
                state.claim(to, chunk);
                carried[link as usize] = chunk;
                if shared {
                    (taken[0][from as usize], taken[1][to as usize]) = (true, true);
                }
            }
        }
    }

    /// The chunks that were carried arrive.
    fn end(&mut self) {
        for (&[_, to], &chunk) in self.ends.iter().zip(if self.latent { &self.brought[0] } else { &self.carried }) {
            self.state.have.insert(to, chunk);
        }
        self.brought.rotate_right(1);
        std::mem::swap(&mut self.brought[0], &mut self.carried);
        self.carried.fill(self.state.none);
    }
}
