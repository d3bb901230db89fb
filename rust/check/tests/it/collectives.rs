//! What every collective promises: an algorithm that does nothing is right for one rank, and wrong for two.

use ahbm_check::{CheckOptions, Outcome, Verdict, check};
use ahbm_machine::{Node, PeId};
use ahbm_plan::{Budget, Collective, Goal, Limit, RankBuffers, Region};
use ahbm_program::{ChannelSettings, ProgramBuilder};

const NAMES: [&str; 8] =
    ["allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast", "reduce", "gather", "scatter"];

/// Nothing runs; `whole` elements per rank, operand and result are one memory.
fn idle(goal: Goal, ranks: u32, whole: u64) -> Outcome {
    verdict(goal, ranks, whole).outcome
}

fn verdict(goal: Goal, ranks: u32, whole: u64) -> Verdict {
    let mut builder = ProgramBuilder::new("idle");
    let part = whole / u64::from(ranks);
    let buffers: Vec<RankBuffers> = (0..ranks)
        .map(|rank| {
            let (buffer, scratch) =
                (builder.buffer(Node::Hbm(PeId(rank)), 8 * whole), builder.buffer(Node::Hbm(PeId(rank)), 0));
            let region = |offset, elements| Region { buffer, offset: 8 * offset, bytes: 8 * elements };
            let (all, own) = (region(0, whole), region(u64::from(rank) * part, part));
            let (input, output) = match goal.collective() {
                Some(Collective::AllGather | Collective::Gather) => (own, all),
                Some(Collective::ReduceScatter | Collective::Scatter) => (all, own),
                _ => (all, all),
            };
            RankBuffers { input, output, scratch: Region { buffer: scratch, offset: 0, bytes: 0 } }
        })
        .collect();
    let settings = ChannelSettings { slots: 1, slot_bytes: None, tier: 0, credit_bytes: 16 };
    let program = builder.finish(settings).expect("nothing to resolve");
    let expectation = goal.expectation(&buffers, whole, 8, &Budget::default()).expect("small");
    check(&program, &expectation, &CheckOptions::default())
}

#[test]
fn the_number_of_wrong_ranks_is_told_however_few_are_listed() {
    for (ranks, told) in [(1, None), (2, Some("on 2 ranks)")), (512, Some("on 512 ranks, 8 of which are listed)"))] {
        let found = verdict(Goal::from(Collective::AllReduce), ranks, u64::from(ranks)).findings;
        assert_eq!(found.len(), if told.is_some() { ranks.min(8) as usize } else { 0 });
        if let Some(told) = told {
            let all = u64::from(ranks) * u64::from(ranks);
            assert!(found[0].message.ends_with(&format!("({all} of {all} elements are wrong, {told}")), "{}", found[0]);
        }
    }
}

#[test]
fn one_rank_needs_nothing_and_two_need_something() {
    for name in NAMES {
        let goal = Goal::parse(name);
        assert_ne!(goal, Goal::Custom, "{name}");
        assert_eq!(idle(goal, 1, 4), Outcome::Correct, "{name}");
        assert_eq!(idle(goal, 2, 4), Outcome::Wrong, "{name}");
    }
    assert_eq!(idle(Goal::SendRecv { shift: 2 }, 2, 4), Outcome::Correct);
    assert_eq!(idle(Goal::SendRecv { shift: 1 }, 2, 4), Outcome::Wrong);
    assert_eq!(idle(Goal::Custom, 2, 4), Outcome::NoExpectation);
}

#[test]
fn elements_are_bounded() {
    let budget = Budget::default().with(Limit::Cells, 10);
    let all_reduce = Goal::from(Collective::AllReduce);
    assert_eq!(all_reduce.expectation(&[], 1 << 40, 8, &budget).map(|_| ()), Ok(()));
    let region = Region { buffer: ahbm_program::BufferId(0), offset: 0, bytes: 88 };
    let rank = RankBuffers { input: region, output: region, scratch: region };
    let error = all_reduce.expectation(&[rank], 11, 8, &budget).expect_err("11 elements");
    assert_eq!(error.code, "AHBM-B211");
}
