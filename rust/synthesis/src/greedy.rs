//! Greedy time-expanded synthesis of collectives in which every chunk goes to everybody.
//!
//! A link that is free takes a chunk its sender has and its receiver neither has nor is being sent; among the chunks
//! it meets first, starting at a random place, the one that the fewest NPUs have. Time advances from event to event,
//! so a chunk is never sent before it has arrived, whatever the bandwidths and latencies.

use crate::list::arrange;
use crate::random::Random;
use crate::schedule::Transfer;
use crate::{Graph, Schedule, Synthesis};
use ahbm_machine::Ps;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How many candidates a link compares.
const RAREST_OF: u32 = 32;
/// Transfers that all starts together may try.
const WORK: u64 = 1_000_000;
const STARTS: u64 = 400;
/// From this many transfers on, the plain choice is the only one.
const PLAIN: u64 = 4_000_000;

/// A set of chunks per NPU, in `words` of 64, and behind them a word for the number that stands for no chunk.
struct Sets {
    words: usize,
    bits: Vec<u64>,
}

impl Sets {
    fn new(nodes: u32, chunks: u32) -> Self {
        let words = (chunks as usize).div_ceil(64);
        Self { words, bits: vec![0; (words + 1) * nodes as usize] }
    }

    fn of(&self, node: u32) -> &[u64] {
        &self.bits[node as usize * (self.words + 1)..][..=self.words]
    }

    fn insert(&mut self, node: u32, chunk: u32) {
        self.bits[node as usize * (self.words + 1) + chunk as usize / 64] |= 1 << (chunk % 64);
    }
}

/// A number per chunk, up to some `most`, kept as planes of bits: 64 chunks are compared at a time.
struct Counts {
    planes: usize,
    bits: Vec<u64>,
}

impl Counts {
    fn new(words: usize, most: u32) -> Self {
        let planes = (u32::BITS - most.leading_zeros()) as usize;
        Self { planes, bits: vec![0; words * planes] }
    }

    fn of(&self, word: usize) -> &[u64] {
        &self.bits[word * self.planes..][..self.planes]
    }

    fn add_one(&mut self, chunk: u32) {
        let mut carry = 1 << (chunk % 64);
        for plane in &mut self.bits[chunk as usize / 64 * self.planes..][..self.planes] {
            *plane ^= carry;
            carry &= !*plane;
        }
    }

    /// The least number among some chunks of a word, and those that have it.
    fn least(&self, word: usize, mut among: u64) -> (u32, u64) {
        let mut least = 0;
        for plane in self.of(word).iter().rev() {
            let without = among & !plane;
            least = 2 * least + u32::from(without == 0);
            among = if without == 0 { among } else { without };
        }
        (least, among)
    }
}

/// The `count` lowest of the bits.
fn lowest(bits: u64, count: u32) -> u64 {
    if bits.count_ones() <= count {
        return bits;
    }
    bits & !(0..count).fold(bits, |rest, _| rest & (rest - 1))
}

struct State<'a> {
    graph: &'a Graph,
    /// Stands for no chunk; claimed by every NPU.
    none: u32,
    /// Chunks an NPU can send on.
    have: Sets,
    /// Chunks an NPU has or is being sent.
    claimed: Sets,
    /// Per chunk, NPUs that have claimed it; kept when the rarest chunk is what is chosen.
    copies: Option<Counts>,
    /// Per NPU, chunks it has not claimed.
    missing: Vec<u32>,
    /// NPUs that miss some.
    lacking: u32,
    random: Random,
}

impl State<'_> {
    /// The chunk a link from one NPU to another should carry now.
    #[inline]
    fn choose(&mut self, from: u32, to: u32) -> Option<u32> {
        let (have, claimed) = (self.have.of(from), self.claimed.of(to));
        let start = self.random.next();
        let turn = (start % 64) as u32;
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
    fn one_of(&self, from: u32, to: u32, brought: &[u32]) -> Option<u32> {
        let claimed = self.claimed.of(to);
        let open = |chunk: &u32| claimed[*chunk as usize / 64] >> (chunk % 64) & 1 == 0;
        self.graph.incoming(from).iter().map(|&l| brought[l as usize]).find(open)
    }

    fn claim(&mut self, node: u32, chunk: u32) {
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
struct Search<'a> {
    graph: &'a Graph,
    base: &'a Schedule,
    /// Per NPU, true where chunks go.
    open: Vec<bool>,
    /// Transfers to be made.
    total: u64,
}

impl<'a> Search<'a> {
    fn new(graph: &'a Graph, base: &'a Schedule, open: Vec<bool>) -> Self {
        let takers = open.iter().filter(|&&o| o).count() as u64;
        let total = u64::from(base.chunks()) * takers.saturating_sub(1);
        Self { graph, base, open, total }
    }
}

fn start<'a>(search: &Search<'a>, seed: u64, rarest: bool) -> State<'a> {
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

/// Rounds in which every link carries at most one chunk; what arrives in a round can be sent on in the next.
///
/// With latency, what has just arrived is second choice: it counts as had a round later.
fn in_rounds(search: &Search<'_>, seed: u64, rarest: bool, limit: u64) -> Option<(u64, Vec<Transfer>)> {
    let (graph, total) = (search.graph, search.total);
    let mut state = start(search, seed, rarest);
    let links = graph.links().len();
    // Per link, what it carries in this round: written down link by link, which keeps later passes near one place.
    let mut carried = vec![state.none; links];
    // Behind those that were made, room for what a round may bring.
    let mut transfers = vec![Transfer::copy(0, 0); total as usize + links];
    let mut made = 0;
    let ends: Vec<[u32; 2]> = graph.links().iter().map(|link| [link.from, link.to]).collect();
    let mut order: Vec<u32> = (0..links as u32).collect();
    let latent = graph.min_latency_ps() > 0;
    // Per link: what it brought in the last round and in the one before.
    let mut brought = [carried.clone(), carried.clone()];
    // Per link, nothing was left to carry: only what its sender has come to have since then can change that.
    let mut dry = vec![false; links];
    // Per NPU at a switch, its ports out and in are taken in this round.
    let shared = graph.switch().is_some();
    let mut taken = [vec![false; graph.nodes() as usize], vec![false; graph.nodes() as usize]];
    let (mut rounds, mut lacking) = (0, 0);
    while made < total as usize {
        if rounds == limit {
            return None;
        }
        let begun = made;
        // Nothing will ever cross a link into an NPU that lacks nothing.
        if lacking != state.lacking {
            lacking = state.lacking;
            order.retain(|&link| state.missing[ends[link as usize][1] as usize] > 0);
        }
        state.random.shuffle(&mut order);
        let [last, before] = &brought;
        let since = if latent { before } else { last };
        if shared {
            taken.iter_mut().for_each(|ports| ports.fill(false));
        }
        for &link in &order {
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
        for (link, &chunk) in (0..).zip(&carried) {
            // What is no transfer is written over by the next.
            transfers[made] = Transfer::copy(link, chunk);
            made += usize::from(chunk != state.none);
        }
        if made == begun {
            return None;
        }
        for (&[_, to], &chunk) in ends.iter().zip(if latent { &brought[0] } else { &carried }) {
            state.have.insert(to, chunk);
        }
        brought.rotate_right(1);
        std::mem::swap(&mut brought[0], &mut carried);
        carried.fill(state.none);
        rounds += 1;
    }
    transfers.truncate(made);
    Some((rounds, transfers))
}

/// Time, departs, tie, link, chunk: arrivals before departures of one instant, departures in random order.
type Event = (Ps, bool, u64, u32, u32);

/// Event time: every link chooses when it becomes free, or when its sender receives something.
fn in_time(search: &Search<'_>, seed: u64, rarest: bool, limit: Ps) -> Option<(Ps, Vec<Transfer>)> {
    let (graph, base, total) = (search.graph, search.base, search.total);
    let mut state = start(search, seed, rarest);
    let mut transfers = Vec::with_capacity(total as usize);
    let links = graph.links().len() as u32;
    let mut events: BinaryHeap<Reverse<Event>> = BinaryHeap::new();
    let mut idle = vec![true; links as usize];
    let wake = |events: &mut BinaryHeap<_>, idle: &mut [bool], random: &mut Random, link: u32, at: Ps| {
        if std::mem::replace(&mut idle[link as usize], false) {
            events.push(Reverse((at, true, random.next(), link, 0)));
        }
    };
    for link in 0..links {
        wake(&mut events, &mut idle, &mut state.random, link, 0);
    }
    let mut end = 0;
    while let Some(Reverse((now, departs, _, link, chunk))) = events.pop() {
        let ends = *graph.link(link);
        if !departs {
            state.have.insert(ends.to, chunk);
            for &next in graph.out(ends.to) {
                wake(&mut events, &mut idle, &mut state.random, next, now);
            }
            continue;
        }
        let Some(chunk) = state.choose(ends.from, ends.to) else {
            idle[link as usize] = true;
            continue;
        };
        state.claim(ends.to, chunk);
        transfers.push(Transfer::copy(link, chunk));
        let left = now + ends.rate.ps(base.bytes(chunk));
        end = end.max(left + ends.latency_ps);
        if end >= limit {
            return None;
        }
        events.push(Reverse((left + ends.latency_ps, false, 0, link, chunk)));
        events.push(Reverse((left, true, state.random.next(), link, 0)));
    }
    (transfers.len() as u64 == total).then_some((end, transfers))
}

/// The best schedule of many starts; `base` says which chunks there are and who has them. `rounds` is the bound at
/// which to stop, where links are equal.
///
/// Where some NPUs take no part, chunks go to the others alone, to those on shortest ways between them, or to all; what
/// turns out to lead to nobody is left out. At a switch all are neighbours, and what shares ports is put in order.
pub(crate) fn spread(graph: &Graph, base: Schedule, rounds: Option<u64>, seed: u64) -> Synthesis {
    let n = graph.nodes() as usize;
    let mut open = vec![false; n];
    base.members.iter().for_each(|&v| open[v as usize] = true);
    if graph.switch().is_some() {
        return Synthesis::of(graph, arrange(graph, search(graph, base, open, rounds, seed).schedule));
    }
    if base.members.len() == n {
        return search(graph, base, open, rounds, seed);
    }
    let mut between = open.clone();
    let back = graph.reversed();
    let from: Vec<Vec<u32>> = base.members.iter().map(|&v| graph.hops(v)).collect();
    for &to in &base.members {
        let away = back.hops(to);
        for (v, between) in between.iter_mut().enumerate() {
            *between |= from.iter().any(|hops| hops[v] + away[v] == hops[to as usize]);
        }
    }
    let tries = [open, between, vec![true; n]];
    let found = tries.into_iter().map(|open| pruned(graph, search(graph, base.clone(), open, rounds, seed).schedule));
    let complete = found.filter(|s| s.check(graph).is_ok()).map(|s| Synthesis::of(graph, s));
    complete.min_by_key(|s| s.time_ps).unwrap_or_else(|| Synthesis::of(graph, base))
}

/// Without the transfers that lead to no taker.
fn pruned(graph: &Graph, mut schedule: Schedule) -> Schedule {
    let (n, chunks) = (graph.nodes(), schedule.chunks());
    let mut needed = vec![false; schedule.registers(n)];
    for chunk in 0..chunks {
        for node in schedule.takers(chunk) {
            needed[schedule.register(n, chunks, node, chunk)] = true;
        }
    }
    let mut kept = Vec::with_capacity(schedule.transfers.len());
    for &transfer in schedule.transfers.iter().rev() {
        let ends = graph.link(transfer.link);
        if needed[schedule.register(n, chunks, ends.to, transfer.chunk())] {
            needed[schedule.register(n, chunks, ends.from, transfer.chunk())] = true;
            kept.push(transfer);
        }
    }
    kept.reverse();
    schedule.transfers = kept;
    schedule
}

fn search(graph: &Graph, base: Schedule, open: Vec<bool>, rounds: Option<u64>, seed: u64) -> Synthesis {
    let search = Search::new(graph, &base, open);
    let total = search.total;
    // A round at a switch looks at every pair of NPUs.
    let looks = if graph.switch().is_some() { graph.links().len() as u64 * rounds.unwrap_or(1) } else { total };
    let starts = (WORK / looks.max(1)).clamp(1, STARTS);
    let timed = |transfers| Synthesis::of(graph, Schedule { transfers, ..base.clone() });
    let mut found = None;
    if let Some(bound) = rounds {
        let mut best: Option<(u64, Vec<Transfer>)> = None;
        for turn in 0..starts {
            let limit = best.as_ref().map_or(u64::MAX, |b| b.0 - 1);
            // The plain choice is quicker and good enough on meshes; it is tried first.
            let rarest = turn > 0 || (starts == 1 && total < PLAIN && !is_mesh_like(graph));
            if let Some(found) = in_rounds(&search, seed.wrapping_add(turn), rarest, limit) {
                best = Some(found);
            }
            if best.as_ref().is_some_and(|b| b.0 <= bound) {
                break;
            }
        }
        let (_, transfers) = best.unwrap_or_default();
        let quick = timed(transfers);
        if total > WORK || graph.switch().is_some() {
            return quick;
        }
        // Rounds without a pause between them, within half a percent.
        let largest = base.chunk_bytes.iter().copied().max().unwrap_or(0);
        let floor = bound * graph.link(0).rate.ps(largest) + graph.min_latency_ps();
        if quick.time_ps <= floor + floor / 200 {
            return quick;
        }
        found = Some(quick);
    }
    // With latency, links that do not wait for a round to end may be quicker.
    let mut least = found.as_ref().map_or(Ps::MAX, |f| f.time_ps);
    let mut better = None;
    for turn in 0..starts.min(if rounds.is_some() { 1 } else { 64 }) {
        if let Some((end, transfers)) = in_time(&search, seed.wrapping_add(turn), turn > 0, least) {
            (least, better) = (end, Some(transfers));
        }
    }
    better.map(timed).or(found).unwrap_or_else(|| timed(Vec::new()))
}

/// Some NPU has fewer links than others: its ingress is the bottleneck and almost any order attains it.
fn is_mesh_like(graph: &Graph) -> bool {
    (1..graph.nodes()).any(|v| graph.incoming(v).len() != graph.incoming(0).len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::{grid, hypercube};
    use crate::{Collective, bound};

    fn gather(n: u32) -> Schedule {
        Schedule {
            collective: Collective::AllGather,
            method: "greedy",
            members: (0..n).collect(),
            root: 0,
            shares: n,
            chunk_bytes: vec![1_000_000],
            parcels: Vec::new(),
            transfers: Vec::new(),
        }
    }

    fn rounds(graph: Graph) -> (u64, u64) {
        let limit = bound(&graph, Collective::AllGather, 1_000_000, 1, 0).rounds(1);
        let found = spread(&graph, gather(graph.nodes()), limit, 1);
        found.schedule.check(&graph).unwrap();
        (found.rounds, limit.unwrap())
    }

    #[test]
    fn planes_count_like_numbers() {
        let mut random = Random::new(3);
        let (mut planes, mut numbers) = (Counts::new(2, 63), [0u32; 128]);
        for _ in 0..1000 {
            let chunk = random.below(128);
            if numbers[chunk as usize] < 63 {
                planes.add_one(chunk);
                numbers[chunk as usize] += 1;
            }
            let (word, among) = (random.below(2) as usize, random.next() & random.next() | 1);
            let of = |bit: &u32| numbers[word * 64 + *bit as usize];
            let bits = |set: u64| (0..64).filter(move |bit| set >> bit & 1 == 1);
            let least = bits(among).map(|bit| of(&bit)).min().unwrap();
            let wanted = bits(among).filter(|bit| of(bit) == least).fold(0, |set, bit| set | 1 << bit);
            assert_eq!(planes.least(word, among), (least, wanted));
            let count = random.below(64) + 1;
            assert_eq!(lowest(among, count), bits(among).take(count as usize).fold(0, |set, bit| set | 1 << bit));
        }
    }

    /// One word is a case of many.
    #[test]
    fn a_word_turned_round_has_its_order() {
        let (graph, mut random) = (grid(&[8, 8], false), Random::new(5));
        for rarest in [false, true] {
            let base = gather(64);
            let search = Search::new(&graph, &base, vec![true; 64]);
            let mut state = start(&search, 9, rarest);
            for _ in 0..1500 {
                let (from, to) = (random.below(64), random.below(64));
                let turn = (state.random.clone().next() % 64) as u32;
                let wanted = state.choose_from(state.have.of(from), state.claimed.of(to), 0, turn);
                assert_eq!(state.choose(from, to), wanted);
                if let Some(chunk) = wanted {
                    state.claim(to, chunk);
                    state.have.insert(to, chunk);
                }
            }
        }
    }

    #[test]
    fn meshes_attain_the_integral_bound() {
        for graph in [grid(&[4, 4], false), grid(&[8, 8], false), grid(&[4, 4, 4], false), grid(&[4, 4, 4], true)] {
            let (found, bound) = rounds(graph);
            assert_eq!(found, bound);
        }
    }

    #[test]
    fn tori_come_within_a_round() {
        for graph in [grid(&[8, 8], true), hypercube(6)] {
            let (found, bound) = rounds(graph);
            assert!(found <= bound + 1);
        }
    }
}
