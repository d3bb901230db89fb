//! Greedy search in event time.

use super::state::{Search, start};
use crate::random::Random;
use crate::schedule::Transfer;
use ahbm_engine::interrupt::spend;
use ahbm_machine::Ps;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Time, departs, tie, link, chunk: arrivals before departures of one instant, departures in random order.
type Event = (Ps, bool, u64, u32, u32);

/// Event time: every link chooses when it becomes free, or when its sender receives something.
pub(super) fn in_time(search: &Search<'_>, seed: u64, rarest: bool, limit: Ps) -> Option<(Ps, Vec<Transfer>)> {
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
        spend(64);
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
