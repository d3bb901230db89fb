//! What MSCCL-IR tests share.

use ahbm_check::{CheckOptions, Verdict, check};
use ahbm_plan::{Budget, Plan};

/// The meaning of a plan at a depth of its queues.
pub(crate) fn verdict(plan: &Plan, slots: u32) -> Verdict {
    let budget = Budget::default();
    let lowered = plan.lower_for_check(slots, &budget).expect("a sound plan");
    let expectation = plan.goal.expectation(&lowered.ranks, plan.chunks.into(), 8, &budget).expect("within the budget");
    check(&lowered.program, &expectation, &CheckOptions { min_slots: false, ..CheckOptions::default() })
}
