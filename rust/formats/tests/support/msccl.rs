//! What MSCCL-IR tests share.

use ahbm_emulator::check::{CheckOptions, Expectation, Verdict, check};
use ahbm_formats::{Budget, Collective, Lowered, Plan, Region};

/// The meaning of a plan at a depth of its queues.
pub(crate) fn verdict(plan: &Plan, slots: u32) -> Verdict {
    let lowered = plan.lower_for_check(slots, &Budget::default()).expect("a sound plan");
    check(&lowered.program, &expectation(plan, &lowered), &CheckOptions { min_slots: false, ..CheckOptions::default() })
}

fn expectation(plan: &Plan, lowered: &Lowered) -> Expectation {
    let mut e = Expectation::new();
    let ranks = plan.ranks.len() as u32;
    let part = plan.chunks / ranks;
    let cell = |region: &Region, chunk: u32| (region.buffer, region.offset / 8 + u64::from(chunk));
    for (rank, buffers) in lowered.ranks.iter().enumerate() {
        for chunk in 0..(buffers.input.bytes / 8) as u32 {
            let (buffer, element) = cell(&buffers.input, chunk);
            e.hold(buffer, element, rank as u32, chunk);
        }
    }
    for (rank, buffers) in lowered.ranks.iter().enumerate() {
        let rank = rank as u32;
        let mut expect = |chunk: u32, set: Vec<(u32, u32)>| {
            let (buffer, element) = cell(&buffers.output, chunk);
            let set = e.set(set);
            e.expect(rank, buffer, element, set);
        };
        let all = |chunk: u32| (0..ranks).map(|r| (r, chunk)).collect::<Vec<_>>();
        match plan.collective {
            Collective::AllReduce => (0..plan.chunks).for_each(|c| expect(c, all(c))),
            Collective::AllGather => (0..plan.chunks).for_each(|c| expect(c, vec![(c / part, c % part)])),
            Collective::ReduceScatter => (0..part).for_each(|c| expect(c, all(rank * part + c))),
            Collective::AllToAll => {
                (0..plan.chunks).for_each(|c| expect(c, vec![(c / part, rank * part + c % part)]));
            }
            Collective::Broadcast { root } => (0..plan.chunks).for_each(|c| expect(c, vec![(root, c)])),
            _ => {}
        }
    }
    e
}
