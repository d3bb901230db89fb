//! The memory operands of a block of agents, as runs.

use super::columns::{Columns, LANES};
use super::{Class, View};
use crate::Mem;
use crate::mems::{Run, append};
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

/// Numbers of operands, by first use: from an operand on, and so many, each has the next number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Numbers(Vec<(u32, u32)>);

impl Numbers {
    /// The operands that follow have these numbers.
    fn push(&mut self, at: u32, number: u32) {
        if self.0.last().is_none_or(|&(from, first)| first + (at - from) != number) {
            self.0.push((at, number));
        }
    }

    /// The number of an operand.
    pub(super) fn of(&self, operand: u32) -> u32 {
        let (from, first) = self.0[self.0.partition_point(|&(from, _)| from <= operand) - 1];
        first + (operand - from)
    }
}

impl FromIterator<u32> for Numbers {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut this = Self::default();
        numbers.into_iter().zip(0..).for_each(|(number, at)| this.push(at, number));
        this
    }
}

/// Most stretches of rising or falling offsets that are looked for.
const STRETCHES: usize = 8;
/// Operands of a run that are looked for one by one.
const SINGLE: u32 = 4;

/// Runs whose offsets rise, or fall, from one to the next.
struct Stretch {
    buffer: u16,
    /// The offset that it begins with, and ends with.
    first: u64,
    last: u64,
    way: Ordering,
    /// The first of its runs among those that are kept.
    runs: usize,
}

impl Stretch {
    fn meets(&self, run: &Run) -> bool {
        let [one, other] =
            [(self.first, self.last), (run.offset, run.last().offset)].map(|(a, b)| (a.min(b), a.max(b)));
        self.buffer == run.buffer && one.0 <= other.1 && other.0 <= one.1
    }
}

/// Operands as they are met: the distinct ones, and what tells equal ones.
#[derive(Default)]
struct Met {
    stretches: Vec<Stretch>,
    /// Distinct ones, as they were found; `from` is the number.
    kept: Vec<Run>,
    count: u32,
}

impl Met {
    /// The number of an operand that was met before.
    fn number(&self, mem: Mem) -> Option<u32> {
        let ends = self.stretches.iter().skip(1).map(|stretch| stretch.runs).chain([self.kept.len()]);
        self.stretches.iter().zip(ends).find_map(|(stretch, end)| {
            let runs = &self.kept[stretch.runs..end];
            let before = |run: &Run| match stretch.way {
                Ordering::Greater => run.offset >= mem.offset,
                _ => run.offset <= mem.offset,
            };
            let run = runs[..runs.partition_point(before)].last().filter(|run| run.buffer == mem.buffer)?;
            let (way, step) = (mem.offset.wrapping_sub(run.offset), run.step);
            let (way, step) = if (step as i64) < 0 { (way.wrapping_neg(), step.wrapping_neg()) } else { (way, step) };
            let place = if way == 0 { 0 } else { way.checked_div(step).filter(|place| place * step == way)? };
            (place < run.count.into()).then(|| run.from + place as u32)
        })
    }

    /// Takes operands that are not among those before; none where there would be too many stretches.
    fn take(&mut self, run: Run) -> Option<()> {
        let (first, last) = (run.offset, run.last().offset);
        let own = first.cmp(&last);
        let full = self.stretches.len() == STRETCHES;
        let goes_on = self.stretches.last_mut().filter(|stretch| {
            let towards = stretch.last.cmp(&first);
            let goes = |way: Ordering| way == Ordering::Equal || way == towards;
            stretch.buffer == run.buffer && goes(stretch.way) && goes(own)
        });
        match goes_on {
            Some(stretch) => (stretch.way, stretch.last) = (stretch.last.cmp(&first), last),
            None if full => return None,
            None => {
                self.stretches.push(Stretch { buffer: run.buffer, first, last, way: own, runs: self.kept.len() });
            }
        }
        self.kept.push(Run { from: self.count, ..run });
        self.count += run.count;
        Some(())
    }
}

/// The distinct ones among operands, and the number of each; none where that is not seen at a glance. It is where offsets
/// rise, or fall, in a few stretches that do not overlap, as round a ring, and few of them come twice.
pub(super) fn distinct(runs: &[Run]) -> Option<(Vec<Run>, Numbers)> {
    let (mut met, mut numbers) = (Met::default(), Numbers::default());
    for run in runs {
        if run.wraps() {
            return None;
        }
        if (run.step != 0 || run.count == 1) && !met.stretches.iter().any(|stretch| stretch.meets(run)) {
            numbers.push(run.from, met.count);
            met.take(*run)?;
            continue;
        }
        if run.count > SINGLE {
            return None;
        }
        for at in run.from..run.from + run.count {
            let mem = run.at(at);
            let known = met.number(mem);
            numbers.push(at, known.unwrap_or(met.count));
            if known.is_none() {
                met.take(Run::alone(0, mem))?;
            }
        }
    }
    let mut distinct = Vec::with_capacity(met.kept.len());
    met.kept.into_iter().for_each(|run| append(&mut distinct, run));
    Some((distinct, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mems;

    /// As [`distinct`], by comparing each with all before.
    fn by_hand(list: &[Mem]) -> (Vec<Mem>, Vec<u32>) {
        let mut found: Vec<Mem> = Vec::new();
        let number = |&mem: &Mem| {
            found.iter().position(|&other| other == mem).unwrap_or_else(|| {
                found.push(mem);
                found.len() - 1
            }) as u32
        };
        let numbers = list.iter().map(number).collect();
        (found, numbers)
    }

    /// Whether it is seen at a glance; what is seen is right.
    fn seen(list: &[(u16, u64)]) -> bool {
        let list: Vec<Mem> = list.iter().map(|&(buffer, offset)| Mem { buffer, offset }).collect();
        let Some((runs, numbers)) = distinct(Mems::from(&list[..]).runs()) else { return false };
        let (wanted, by) = by_hand(&list);
        assert_eq!(Mems::of(&runs), Mems::from(&wanted[..]), "{list:?}");
        assert_eq!((0..list.len() as u32).map(|at| numbers.of(at)).collect::<Vec<_>>(), by, "{list:?}");
        assert_eq!(numbers, by.into_iter().collect(), "{list:?}");
        true
    }

    fn of(offsets: &[u64]) -> bool {
        seen(&offsets.iter().map(|&offset| (0, offset)).collect::<Vec<_>>())
    }

    #[test]
    fn equal_operands_are_told() {
        assert!(of(&[]));
        assert!(of(&[4]));
        assert!(of(&[3, 2, 1, 0, 7, 6, 5, 4]));
        assert!(of(&[3, 2, 1, 0, 7, 6, 5, 4, 4]), "the last of a ring comes twice");
        assert!(of(&[3, 2, 1, 0, 7, 6, 5, 4, 6, 3, 8, 9]));
        assert!(of(&[5, 6, 7, 1, 2]));
        assert!(of(&[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 256, 255]), "one stretch of many runs");
        assert!(of(&[1, 1]));
        assert!(!of(&[0, 9, 8, 7, 6, 5, 4]), "they are within a stretch");
        assert!(seen(&[(0, 3), (1, 3), (0, 4), (1, 3)]));
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut glances = 0;
        for _ in 0..20_000 {
            let few: Vec<(u16, u64)> = (0..random(9)).map(|_| (random(5) as u16 / 4, random(12))).collect();
            glances += u32::from(seen(&few));
            // Stretches, with some of their operands again.
            let mut many: Vec<(u16, u64)> = Vec::new();
            for stretch in 0..1 + random(3) {
                let (count, step, falls) = (1 + random(9), 1 + random(3), random(2) == 0);
                let offset = |at: u64| 100 * stretch + step * if falls { count - at } else { at };
                many.extend((0..count).map(|at| (0, offset(at))));
                for _ in 0..random(3) {
                    many.push(many[random(many.len() as u64) as usize]);
                }
            }
            glances += u32::from(seen(&many));
        }
        assert!(glances > 20_000, "{glances}");
    }
}
