//! Plans that are written step by step.

use ahbm_plan::blocks::{Action, Slot};
use ahbm_plan::{Budget, Collective, Goal, Limit, Plan, PlanBuilder, Space, StepSpec};
use ahbm_program::{Locus, Origin};

fn at(line: u32) -> Origin {
    Origin { file: "author.py".into(), locus: Locus::Line(line) }
}

fn input(chunk: u32) -> Slot {
    Slot { space: Space::Input, chunk }
}

fn builder(ranks: u32) -> PlanBuilder {
    PlanBuilder::new("made", Collective::AllReduce.into(), ranks, 2, Budget::default(), at(1)).expect("a builder")
}

/// A chunk that thread blocks of one rank hand on, and what they send at last.
fn handed(plan: &mut PlanBuilder) -> Plan {
    let blocks = [0, 1].map(|channel| plan.block(0, Some(1), None, channel, at(2)).unwrap());
    let copy = |chunk| StepSpec::new(Action::Copy, input(0), input(chunk));
    let first = plan.step(blocks[0], &copy(1), at(3)).unwrap();
    let second = plan.step(blocks[0], &copy(1), at(4)).unwrap();
    let third = plan.step(blocks[1], &StepSpec { after: vec![first, second], ..copy(1) }, at(5)).unwrap();
    plan.step(blocks[1], &StepSpec { after: vec![third], ..copy(1) }, at(6)).unwrap();
    plan.clone().finish().expect("a plan")
}

#[test]
fn a_step_that_waits_for_several_becomes_several() {
    let plan = handed(&mut builder(2));
    let blocks = &plan.ranks[0].blocks;
    assert!(blocks[0].steps.iter().all(|step| step.posts && step.wait.is_none()));
    let waits: Vec<_> = blocks[1].steps.iter().map(|s| (s.action, s.wait.map(|dep| dep.step), s.posts)).collect();
    assert_eq!(waits, [(Action::Nop, Some(0), false), (Action::Copy, Some(1), false), (Action::Copy, None, false)]);
    assert_eq!(plan.origin(0, blocks[1].steps[1].line).to_string(), "author.py:5");
    assert_eq!(plan.channels, 2);
}

#[test]
fn arguments_are_refused_with_the_authors_line() {
    let mut plan = builder(2);
    let block = plan.block(0, Some(1), None, u32::MAX, at(2)).unwrap();
    let other = plan.block(1, None, Some(0), u32::MAX, at(3)).unwrap();
    let send = StepSpec::new(Action::Send, input(0), input(0));
    let step = plan.step(block, &send, at(4)).unwrap();
    assert_eq!(plan.block(2, None, None, 0, at(5)).unwrap_err().code, "AHBM-C120");
    assert_eq!(plan.declare(7, [0; 3]).unwrap_err().code, "AHBM-C120");
    assert_eq!(plan.copy(2, [0, 0, 1], false, at(5)).unwrap_err().code, "AHBM-C120");
    assert_eq!(plan.step(9.into(), &send, at(6)).unwrap_err().code, "AHBM-C204");
    let late = plan.step(block, &StepSpec { after: vec![8.into()], ..send.clone() }, at(7)).unwrap_err();
    assert_eq!((late.code, &*late.sites[0].origin), ("AHBM-F115", "author.py:7"));
    let theirs = plan.step(other, &StepSpec { after: vec![step], ..send.clone() }, at(8)).unwrap_err();
    assert_eq!((theirs.code, &*theirs.sites[0].origin), ("AHBM-F115", "author.py:8"));
    plan.step(block, &StepSpec { count: u32::MAX, ..send.clone() }, at(9)).unwrap();
    plan.step(other, &send, at(10)).unwrap();
    let findings = plan.finish().expect_err("steps outside of buffers, and without a peer");
    let told: Vec<_> = findings.iter().map(|f| (f.code, &*f.sites[0].origin)).collect();
    assert_eq!(told, [("AHBM-F117", "author.py:9"), ("AHBM-F118", "author.py:10")]);
}

#[test]
fn plans_are_bounded_before_they_are_built() {
    let make = |goal, ranks, chunks, budget| PlanBuilder::new("made", goal, ranks, chunks, budget, at(1));
    let refused = |goal, ranks, chunks, budget| make(goal, ranks, chunks, budget).expect_err("refused").code;
    let budget = Budget::default().with(Limit::Steps, 2);
    assert_eq!(refused(Goal::Custom, u32::MAX, 1, budget), "AHBM-B206");
    assert_eq!(refused(Goal::Custom, 0, 1, budget), "AHBM-C120");
    assert_eq!(refused(Goal::new(Collective::Broadcast, 4), 4, 1, budget), "AHBM-C120");
    assert_eq!(refused(Goal::Custom, 4, 0, budget), "AHBM-F119");
    let mut plan = make(Goal::Custom, 2, 1, budget).unwrap();
    let block = plan.block(0, None, None, 0, at(2)).unwrap();
    let nop = StepSpec::new(Action::Nop, input(0), input(0));
    plan.step(block, &nop, at(3)).unwrap();
    assert_eq!(plan.step(block, &nop, at(4)).unwrap_err().code, "AHBM-B204");
}
