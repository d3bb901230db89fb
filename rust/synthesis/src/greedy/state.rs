//! The start of a search, the holdings of every NPU on the way, and the choice that a link makes.

use super::sets::{Counts, Sets, lowest};
use crate::random::Random;
use crate::{Graph, Schedule};

/// How many candidates a link compares.
const RAREST_OF: u32 = 32;

/// Who has what while a schedule is made.
pub(super) struct State<'a> {
    graph: &'a Graph,
    /// Stands for no chunk; claimed by every NPU.
    pub(super) none: u32,
    /// Chunks an NPU can send on.
    pub(super) have: Sets,
    /// Chunks an NPU has or is being sent.
    claimed: Sets,
    /// Per chunk, NPUs that have claimed it; kept when the rarest chunk is what is chosen.
    copies: Option<Counts>,
    /// Per NPU, chunks it has not claimed.
    pub(super) missing: Vec<u32>,
    /// NPUs that miss some.
    pub(super) lacking: u32,
    pub(super) random: Random,
}

impl State<'_> {
    /// The chunk a link from one NPU to another should carry now.
    #[inline]
    pub(super) fn choose(&mut self, from: u32, to: u32) -> Option<u32> {
        let (have, claimed) = (self.have.of(from), self.claimed.of(to));
        let start = self.random.next();
        let turn = (start % 64) as u32;
        if self.have.words == 2 && self.copies.is_none() {
            // The order from there on is that of both words turned round.
            let whole = |set: &[u64]| u128::from(set[1]) << 64 | u128::from(set[0]);
            let turn = (start >> 32) as u32 % 2 * 64 + turn;
            let open = (whole(have) & !whole(claimed)).rotate_right(turn);
            return (open != 0).then(|| (open.trailing_zeros() + turn) % 128);
        }
        if self.have.words > 1 {
            return self.choose_from(have, claimed, (start >> 32) as usize % self.have.words, turn);
        }
        // The order from `turn` on is that of the word turned round.
        let mut open = (have[0] & !claimed[0]).rotate_right(turn);
        if let Some(copies) = &self.copies {
            let among = lowest(open, RAREST_OF).rotate_left(turn);
            open = copies.least(0, among).1.rotate_right(turn);
        }
        (open != 0).then(|| (open.trailing_zeros() + turn) % 64)
    }

    /// The same among many words, from one bit of the `first` on.
    fn choose_from(&self, have: &[u64], claimed: &[u64], first: usize, turn: u32) -> Option<u32> {
        let words = self.have.words;
        let mut best = None;
        let mut left = RAREST_OF;
        for step in 0..=words {
            let at = if first + step >= words { first + step - words } else { first + step };
            let mut open = have[at] & !claimed[at];
            // The first word is begun in the middle and finished at the end.
            if step == 0 {
                open &= u64::MAX << turn;
            } else if step == words {
                open &= !(u64::MAX << turn);
            }
            if open == 0 {
                continue;
            }
            let chunk = |bits: u64| at as u32 * 64 + bits.trailing_zeros();
            let Some(copies) = &self.copies else { return Some(chunk(open)) };
            open = lowest(open, left);
            let (least, rarest) = copies.least(at, open);
            if best.is_none_or(|(copies, _)| least < copies) {
                best = Some((least, chunk(rarest)));
            }
            left -= open.count_ones();
            if left == 0 {
                break;
            }
        }
        best.map(|b| b.1)
    }

    /// A chunk for `to` among those that links `brought` to `from`.
    pub(super) fn one_of(&self, from: u32, to: u32, brought: &[u32]) -> Option<u32> {
        let claimed = self.claimed.of(to);
        let open = |chunk: &u32| claimed[*chunk as usize / 64] >> (chunk % 64) & 1 == 0;
        self.graph.incoming(from).iter().map(|&l| brought[l as usize]).find(open)
    }

    pub(super) fn claim(&mut self, node: u32, chunk: u32) {
        self.claimed.insert(node, chunk);
        let missing = &mut self.missing[node as usize];
        *missing -= 1;
        self.lacking -= u32::from(*missing == 0);
        if let Some(copies) = &mut self.copies {
            copies.add_one(chunk);
        }
    }
}

/// A search's input: which chunks there are, who has them, and which NPUs are to have them all.
pub(super) struct Search<'a> {
    pub(super) graph: &'a Graph,
    pub(super) base: &'a Schedule,
    /// Per NPU, true where chunks go.
    open: Vec<bool>,
    /// Transfers to be made.
    pub(super) total: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(graph: &'a Graph, base: &'a Schedule, open: Vec<bool>) -> Self {
        let takers = open.iter().filter(|&&o| o).count() as u64;
        let total = u64::from(base.chunks()) * takers.saturating_sub(1);
        Self { graph, base, open, total }
    }
}

/// Everybody has what the schedule says it begins with.
pub(super) fn start<'a>(search: &Search<'a>, seed: u64, rarest: bool) -> State<'a> {
    let (graph, base) = (search.graph, search.base);
    let chunks = base.chunks();
    let have = Sets::new(graph.nodes(), chunks);
    let words = have.words;
    let mut state = State {
        graph,
        none: words as u32 * 64,
        have,
        claimed: Sets::new(graph.nodes(), chunks),
        copies: rarest.then(|| Counts::new(words, graph.nodes() - 1)),
        missing: search.open.iter().map(|&open| if open { chunks } else { 0 }).collect(),
        lacking: search.open.iter().map(|&open| u32::from(open)).sum(),
        random: Random::new(seed),
    };
    for (node, &open) in (0..).zip(&search.open) {
        state.claimed.insert(node, state.none);
        if !open {
            (0..chunks).for_each(|chunk| state.claimed.insert(node, chunk));
        }
    }
    for chunk in 0..chunks {
        for node in base.holders(chunk) {
            state.have.insert(node, chunk);
            state.claim(node, chunk);
        }
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::{gather, grid};

    /// One word, or two, are a case of many.
    #[test]
    fn words_turned_round_have_their_order() {
        let mut random = Random::new(5);
        for (extents, rarest) in [([8, 8], false), ([8, 8], true), ([10, 10], false), ([10, 10], true)] {
            let (graph, n) = (grid(&extents, false), extents.iter().product());
            let base = gather(n);
            let search = Search::new(&graph, &base, vec![true; n as usize]);
            let mut state = start(&search, 9, rarest);
            for _ in 0..2500 {
                let (from, to) = (random.below(n), random.below(n));
                let next = state.random.clone().next();
                let (first, turn) = ((next >> 32) as usize % state.have.words, (next % 64) as u32);
                let wanted = state.choose_from(state.have.of(from), state.claimed.of(to), first, turn);
                assert_eq!(state.choose(from, to), wanted);
                if let Some(chunk) = wanted {
                    state.claim(to, chunk);
                    state.have.insert(to, chunk);
                }
            }
        }
    }
}
