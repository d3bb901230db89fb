//! Sums over time.

use super::Slice;
use super::messages::Message;
use ahbm_machine::Ps;
use std::collections::BTreeMap;

/// Changes of a sum.
#[derive(Default, Clone)]
pub(super) struct Sum(Vec<(u64, i64)>);

impl Sum {
    /// `amount` more from `start` until before `end`.
    fn add(&mut self, amount: i64, start: Ps, end: Ps) {
        self.0.push((start / 1000, amount));
        if end != Ps::MAX {
            self.0.push((end / 1000, -amount));
        }
    }

    /// Nanosecond and sum from then on, where it changes; begins with 0 at 0.
    pub(super) fn points(mut self) -> Vec<(u64, i64)> {
        self.0.sort_unstable_by_key(|change| change.0);
        let mut points = vec![(0, 0)];
        let mut sum = 0;
        for of_one_time in self.0.chunk_by(|a, b| a.0 == b.0) {
            let before = sum;
            sum += of_one_time.iter().map(|change| change.1).sum::<i64>();
            match points.last_mut() {
                Some(first) if first.0 == of_one_time[0].0 => first.1 = sum,
                _ if sum != before => points.push((of_one_time[0].0, sum)),
                _ => {}
            }
        }
        points
    }
}

/// Bytes on their way to each SIP, and slots in use on it.
pub(super) fn of_sips(messages: &[Message], sips: usize, sip: impl Fn(u32) -> usize) -> Vec<(Sum, Sum)> {
    let mut sums = vec![(Sum::default(), Sum::default()); sips];
    for message in messages {
        let (bytes, slots) = &mut sums[sip(message.channel)];
        bytes.add(i64::try_from(message.bytes).unwrap_or(i64::MAX), message.claimed, message.written);
        slots.add(1, message.claimed, message.freed);
    }
    sums
}

/// Per counter track, how many links are busy; `counted` leads from the track of a link to its counter.
pub(super) fn of_links(slices: &[Slice], counted: &BTreeMap<u32, u32>) -> BTreeMap<u32, Sum> {
    let mut sums = BTreeMap::<u32, Sum>::new();
    for slice in slices {
        if let Some(&counter) = counted.get(&slice.track) {
            sums.entry(counter).or_default().add(1, slice.start, slice.end);
        }
    }
    sums
}
