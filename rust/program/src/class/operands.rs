//! The memory operands of a block of agents, as runs.

use super::columns::{Columns, LANES};
use super::{Class, View};
use crate::mems::Run;
use std::cmp::Ordering;

/// Per agent of a block, the memory that its operations name, in order.
///
/// Addresses are read formula by formula, for all agents at once: from one to the next, most agents go on as they did.
pub(super) struct Operands {
    lanes: Vec<Lane>,
    /// Per agent, the address that comes next if the run goes on, and how far one is from the next.
    next: [i64; LANES],
    step: [i64; LANES],
    /// Views and their numbers, by address; none where some overlap.
    views: Vec<(View, u16)>,
    /// Per operand its bytes, and those of all where they are equal.
    bytes: Vec<u64>,
    all: Option<u64>,
}

#[derive(Default)]
struct Lane {
    /// Of addresses while they are read; `buffer` is the place of the view then.
    runs: Vec<Run>,
    /// An address was in no view, or a run in several.
    odd: bool,
}

impl Operands {
    pub(super) fn new(class: &Class, views: &[View]) -> Self {
        let mut views: Vec<(View, u16)> = views.iter().copied().zip(0..).collect();
        views.sort_by_key(|(view, _)| view.address);
        if views.windows(2).any(|pair| pair[0].0.end() > pair[1].0.address) {
            views.clear();
        }
        let bytes: Vec<u64> = class.mems.iter().map(|&access| class.accesses[access as usize].bytes).collect();
        let all = bytes.first().copied().filter(|&first| bytes.iter().all(|&other| other == first));
        let lanes = std::iter::repeat_with(Lane::default).take(LANES).collect();
        Self { lanes, next: [0; LANES], step: [0; LANES], views, bytes, all }
    }

    /// Takes the addresses of a block.
    pub(super) fn read(&mut self, class: &Class, columns: &Columns) {
        for lane in &mut self.lanes {
            lane.runs.clear();
            lane.odd = self.views.is_empty();
        }
        for (number, &access) in (0..).zip(&class.mems) {
            let column = columns.of(class.accesses[access as usize].address);
            let differ = column.iter().zip(&self.next).fold(0, |bits, (a, b)| bits | (a ^ b));
            if number == 0 || differ != 0 {
                for (lane, &address) in column.iter().enumerate() {
                    if number == 0 || address != self.next[lane] {
                        self.turn(lane, number, address);
                    }
                }
            }
            for (next, step) in self.next.iter_mut().zip(&self.step) {
                *next = next.wrapping_add(*step);
            }
        }
        for lane in 0..LANES {
            self.end(lane, class.mems.len() as u32);
            for run in &mut self.lanes[lane].runs {
                let (view, number) = self.views[usize::from(run.buffer)];
                (run.buffer, run.offset) = (number, run.offset - view.address);
            }
        }
    }

    /// The memory operands of an agent; none where they are to be found one by one.
    pub(super) fn of(&self, lane: usize) -> Option<&[Run]> {
        let lane = &self.lanes[lane];
        (!lane.odd).then_some(&lane.runs)
    }

    /// The place of the view that holds all of these bytes.
    fn view(&self, address: u64, bytes: u64) -> Option<u16> {
        let at = self.views.partition_point(|(view, _)| view.address <= address).checked_sub(1)?;
        (address.checked_add(bytes)? <= self.views[at].0.end()).then_some(at as u16)
    }

    /// The run of an agent does not go on as it did.
    fn turn(&mut self, lane: usize, number: u32, address: i64) {
        if self.lanes[lane].odd {
            return;
        }
        let own = u64::try_from(address).ok();
        let Some((own, view)) = own.and_then(|own| Some((own, self.view(own, self.bytes[number as usize])?))) else {
            self.lanes[lane].odd = true;
            return;
        };
        self.next[lane] = address;
        if let Some(run) = self.lanes[lane].runs.last_mut()
            && run.from + 1 == number
            && run.buffer == view
        {
            run.step = own.wrapping_sub(run.offset);
            self.step[lane] = run.step as i64;
            return;
        }
        self.end(lane, number);
        self.lanes[lane].runs.push(Run { buffer: view, from: number, count: 1, offset: own, step: 0 });
        // If the same follows, they are a run, too.
        self.step[lane] = 0;
    }

    /// A run ends before an operand. Where its ends are in one view, so is all of it.
    fn end(&mut self, lane: usize, number: u32) {
        let Some(run) = self.lanes[lane].runs.last_mut() else { return };
        run.count = number - run.from;
        let run = *run;
        let own = &self.bytes[run.from as usize..number as usize];
        let bytes = self.all.or_else(|| own.iter().copied().max()).unwrap_or(0);
        let held = |address: u64| self.view(address, bytes) == Some(run.buffer);
        self.lanes[lane].odd |= run.wraps() || !held(run.offset) || !held(run.last().offset);
    }
}

/// Most stretches of rising or falling offsets that are looked for.
const STRETCHES: usize = 8;

/// Whether operands are seen to be distinct at a glance: those whose offsets rise, or fall, in a few stretches that do not
/// overlap, as round a ring.
pub(super) fn are_distinct(runs: &[Run]) -> bool {
    let mut stretches: Vec<(u16, u64, u64, Ordering)> = Vec::with_capacity(STRETCHES);
    for run in runs {
        let (first, last) = (run.offset, run.last().offset);
        let way = first.cmp(&last);
        if run.wraps() || run.count > 1 && way == Ordering::Equal {
            return false;
        }
        if let Some((buffer, _, end, own)) = stretches.last_mut() {
            let towards = (*end).cmp(&first);
            let goes = |way: Ordering| way == Ordering::Equal || way == towards;
            if *buffer == run.buffer && towards != Ordering::Equal && goes(*own) && goes(way) {
                (*end, *own) = (last, towards);
                continue;
            }
        }
        if stretches.len() == STRETCHES {
            return false;
        }
        stretches.push((run.buffer, first, last, way));
    }
    for (_, first, last, _) in &mut stretches {
        (*first, *last) = ((*first).min(*last), (*first).max(*last));
    }
    stretches.sort_unstable_by_key(|&(buffer, first, ..)| (buffer, first));
    stretches.windows(2).all(|pair| pair[0].0 < pair[1].0 || pair[0].2 < pair[1].1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mem, Mems};

    fn seen(offsets: &[u64]) -> bool {
        let mems: Mems = offsets.iter().map(|&offset| Mem { buffer: 0, offset }).collect();
        are_distinct(mems.runs())
    }

    #[test]
    fn what_is_called_distinct_is() {
        assert!(seen(&[]));
        assert!(seen(&[4]));
        assert!(seen(&[3, 2, 1, 0, 7, 6, 5, 4]));
        assert!(seen(&[5, 6, 7, 1, 2]));
        assert!(seen(&[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]), "one stretch of many runs");
        assert!(!seen(&[3, 2, 1, 3]));
        assert!(!seen(&[1, 1]));
        assert!(!seen(&[0, 9, 5]), "5 is within a stretch");
        let two: Mems = [(0, 3), (1, 3), (0, 4)].map(|(buffer, offset)| Mem { buffer, offset }).into_iter().collect();
        assert!(are_distinct(two.runs()));
        let mut state = 7u64;
        for _ in 0..20_000 {
            let offsets: Vec<u64> = (0..state % 7)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 60) % 12
                })
                .collect();
            state = state.wrapping_add(0x9e37_79b9);
            let distinct = offsets.iter().collect::<std::collections::BTreeSet<_>>().len() == offsets.len();
            assert!(distinct || !seen(&offsets), "{offsets:?}");
        }
    }
}
