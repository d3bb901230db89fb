//! Verdicts on small programs: each kind, and what is said about it.

use crate::blocks::{Block, buffers, finish, run, tags};
use ahbm_check::{CheckOptions, Outcome, Verdict, check};
use ahbm_findings::Diagnostic;
use ahbm_machine::{Machine, Node, PeId};
use ahbm_plan::{Expectation, Reduced};
use ahbm_program::{BinaryFn, BufferId, Control, Math, OpKind, Program, ProgramBuilder, Scalar};

/// Both ranks hold one element and end with the sum.
fn sum_of_two(memory: &[BufferId]) -> Expectation {
    let mut expectation = Expectation::new(8);
    for rank in 0..2 {
        expectation.hold(memory[rank as usize], 0..1, rank, 0);
        expectation.name(memory[rank as usize], format!("the input of rank {rank}"));
    }
    let both = expectation.set([(0, 0), (1, 0)]);
    for rank in 0..2 {
        expectation.expect(rank, memory[rank as usize], 0..1, both);
    }
    expectation
}

/// Two ranks exchange their element and add; `receive_first` makes them wait for each other.
fn exchange(receive_first: bool, times: u32, slots: u32) -> (Program, Expectation) {
    let mut builder = ProgramBuilder::new("exchange");
    let memory = buffers(&mut builder, 2, 1);
    let mut agents = Vec::new();
    for rank in 0..2 {
        let mut block = Block::new(&mut builder, rank).load(0, 0, 0);
        block = if receive_first {
            block.recv(1 - rank, 1).send(1 - rank, 0)
        } else {
            block.send(1 - rank, 0).recv(1 - rank, 1)
        };
        for _ in 0..times {
            block = block.add(0, 0, 1);
        }
        agents.push(block.store(0, 0, 0).stand(&[memory[rank as usize]]));
    }
    for (from, to) in [(0, 1), (1, 0)] {
        tags(&mut builder, &agents, from, to);
    }
    (finish(builder, slots), sum_of_two(&memory))
}

#[test]
fn an_exchange_is_correct() {
    let (program, expectation) = exchange(false, 1, 2);
    let verdict = run(&program, &expectation);
    assert_eq!((verdict.outcome, verdict.min_slots), (Outcome::Correct, Some(1)), "{:?}", verdict.findings);
    assert!(verdict.findings.is_empty());
}

#[test]
fn a_doubled_contribution_is_named() {
    let (program, expectation) = exchange(false, 2, 2);
    let verdict = run(&program, &expectation);
    assert_eq!(verdict.outcome, Outcome::Wrong);
    let first = &verdict.findings[0];
    assert_eq!(first.code, "AHBM-V401");
    assert!(first.message.starts_with("rank 0, elements [0, 1) of the input of rank 0: rank 1 twice"), "{first}");
    assert_eq!(first.sites[0].origin, "rank0.xml:6");
}

#[test]
fn a_missing_contribution_is_named() {
    let (program, expectation) = exchange(false, 0, 2);
    let verdict = run(&program, &expectation);
    assert_eq!(verdict.outcome, Outcome::Wrong);
    assert!(verdict.findings[0].message.contains("rank 1 missing"), "{}", verdict.findings[0]);
}

#[test]
fn a_deadlock_names_its_cycle() {
    let (program, expectation) = exchange(true, 1, u32::MAX);
    let verdict = run(&program, &expectation);
    assert_eq!((verdict.outcome, verdict.min_slots), (Outcome::Deadlock, None));
    let finding = &verdict.findings[0];
    assert_eq!(finding.code, "AHBM-D201");
    assert!(finding.message.ends_with("cycle: rank 0 block 0 -> rank 1 block 0 -> rank 0 block 0"), "{finding}");
    let origins: Vec<&str> = finding.sites.iter().map(|s| s.origin.as_str()).collect();
    assert_eq!(origins, ["rank0.xml:2", "rank1.xml:2"]);
}

#[test]
fn the_least_depth_is_found() {
    let mut builder = ProgramBuilder::new("burst");
    let memory = buffers(&mut builder, 2, 1);
    let mut agents = Vec::new();
    for rank in 0..2 {
        let mut block = Block::new(&mut builder, rank).load(0, 0, 0);
        for _ in 0..5 {
            block = block.send(1 - rank, 0);
        }
        for _ in 0..5 {
            block = block.recv(1 - rank, 1);
        }
        agents.push(block.stand(&[memory[rank as usize]]));
    }
    for (from, to) in [(0, 1), (1, 0)] {
        tags(&mut builder, &agents, from, to);
    }
    let program = finish(builder, 2);
    let verdict = run(&program, &Expectation::new(8));
    assert_eq!((verdict.outcome, verdict.min_slots), (Outcome::Deadlock, Some(5)));
    assert!(verdict.findings[0].hint.as_deref().unwrap_or_default().contains("slots"));
    let deep = check(&program, &Expectation::new(8), &CheckOptions { slots: Some(5), ..CheckOptions::default() });
    assert_eq!(deep.outcome, Outcome::NoExpectation);
}

/// Rank 0's two thread blocks: one writes element 1, the other reads it; a counter may order them.
fn producer_and_consumer(signal: bool, wait: bool) -> Verdict {
    let mut builder = ProgramBuilder::new("pair");
    let memory = builder.buffer(Node::Hbm(PeId(0)), 24);
    let counter = builder.counter();
    let mut block = Block::new(&mut builder, 0).load(0, 0, 0).store(0, 0, 1);
    if signal {
        block = block.plain(OpKind::Control(Control::Signal { counter, add: 1, posted: false }));
    }
    block.stand(&[memory]);
    let mut block = Block::new(&mut builder, 0);
    if wait {
        block = block.plain(OpKind::Control(Control::WaitCounter { counter, at_least: 1 }));
    }
    block.load(0, 0, 1).store(0, 0, 2).stand(&[memory]);
    let mut expectation = Expectation::new(8);
    expectation.hold(memory, 0..1, 0, 0);
    let set = expectation.set([(0, 0)]);
    expectation.expect(0, memory, 2..3, set);
    run(&finish(builder, 1), &expectation)
}

#[test]
fn a_counter_orders_accesses() {
    let verdict = producer_and_consumer(true, true);
    assert_eq!(verdict.outcome, Outcome::Correct, "{:?}", verdict.findings);
}

#[test]
fn accesses_without_order_are_found_whatever_the_orders_tried() {
    let verdict = producer_and_consumer(true, false);
    assert_eq!(verdict.outcome, Outcome::Wrong);
    let race = verdict.findings.iter().find(|f| f.code == "AHBM-V403").expect("the race is named");
    let origins: Vec<&str> = race.sites.iter().map(|s| s.origin.as_str()).collect();
    assert_eq!(origins, ["rank0.xml:2", "rank0.xml:1"]);
    assert!(verdict.findings.iter().any(|f| f.code == "AHBM-V404"));
}

#[test]
fn a_race_that_no_order_exposed_is_a_race() {
    // Both write the same contribution, so every order is right.
    let mut builder = ProgramBuilder::new("twins");
    let memory = builder.buffer(Node::Hbm(PeId(0)), 16);
    for _ in 0..2 {
        Block::new(&mut builder, 0).load(0, 0, 0).store(0, 0, 1).stand(&[memory]);
    }
    let mut expectation = Expectation::new(8);
    expectation.hold(memory, 0..1, 0, 0);
    let set = expectation.set([(0, 0)]);
    expectation.expect(0, memory, 1..2, set);
    let verdict = run(&finish(builder, 1), &expectation);
    assert_eq!(verdict.outcome, Outcome::Race);
    assert_eq!(verdict.findings[0].code, "AHBM-V403");
}

#[test]
fn barriers_and_semaphores_order_accesses() {
    let mut builder = ProgramBuilder::new("meet");
    let memory = builder.buffer(Node::Hbm(PeId(0)), 16);
    let (barrier, permit) = (builder.barrier(2), builder.counter());
    let meet = OpKind::Control(Control::Barrier { id: barrier });
    Block::new(&mut builder, 0)
        .load(0, 0, 0)
        .store(0, 0, 1)
        .plain(meet)
        .plain(OpKind::Control(Control::Acquire { counter: permit, amount: 1 }))
        .store(0, 0, 1)
        .stand(&[memory]);
    Block::new(&mut builder, 0)
        .plain(meet)
        .load(0, 0, 1)
        .plain(OpKind::Control(Control::Signal { counter: permit, add: 1, posted: false }))
        .stand(&[memory]);
    let mut expectation = Expectation::new(8);
    expectation.hold(memory, 0..1, 0, 0);
    let set = expectation.set([(0, 0)]);
    expectation.expect(0, memory, 1..2, set);
    let verdict = run(&finish(builder, 1), &expectation);
    assert_eq!(verdict.outcome, Outcome::Correct, "{:?}", verdict.findings);
}

#[test]
fn reading_what_nobody_wrote_is_a_warning() {
    let mut builder = ProgramBuilder::new("early");
    let memory = builder.buffer(Node::Hbm(PeId(0)), 16);
    Block::new(&mut builder, 0).load(0, 0, 1).stand(&[memory]);
    let verdict = run(&finish(builder, 1), &Expectation::new(8));
    assert_eq!(verdict.outcome, Outcome::NoExpectation);
    assert_eq!(verdict.findings[0].code, "AHBM-V402");
    assert_eq!(verdict.findings[0].sites[0].origin, "rank0.xml:1");
}

#[test]
fn what_contributions_cannot_follow_is_named() {
    let mut builder = ProgramBuilder::new("difference");
    let memory = builder.buffer(Node::Hbm(PeId(0)), 8);
    let v = ahbm_program::ValueId;
    Block::new(&mut builder, 0)
        .load(0, 0, 0)
        .op(|_, tile| OpKind::Math(Math::Binary { f: BinaryFn::Sub, dst: v(1), a: v(0), b: v(0), tile }))
        .store(1, 0, 0)
        .stand(&[memory]);
    let mut expectation = Expectation::new(8);
    expectation.hold(memory, 0..1, 0, 0);
    let set = expectation.set([(0, 0)]);
    expectation.expect(0, memory, 0..1, set);
    let verdict = run(&finish(builder, 1), &expectation);
    assert_eq!(verdict.findings[0].sites[0].origin, "rank0.xml:2");
    assert_eq!((verdict.outcome, verdict.findings[0].code), (Outcome::Undecided, "AHBM-U290"));
}

/// One rank loads its element, scales it with each of `work`, and stores it; the request asks for `factor`.
fn scaled(work: &[(BinaryFn, f64)], factor: f64) -> Verdict {
    let mut builder = ProgramBuilder::new("scaled");
    let memory = buffers(&mut builder, 1, 1);
    let v = ahbm_program::ValueId;
    let mut block = Block::new(&mut builder, 0).load(0, 0, 0);
    for &(f, by) in work {
        block = block.op(|body, tile| {
            let scalar = body.scalar(Scalar::Float(by.to_bits()));
            OpKind::Math(Math::BinaryScalar { f, swapped: false, dst: v(0), a: v(0), scalar, tile })
        });
    }
    block.store(0, 0, 0).stand(&[memory[0]]);
    let mut expectation = Expectation::new(8);
    expectation.hold(memory[0], 0..1, 0, 0);
    let set = expectation.set([(0, 0)]);
    expectation.expect(0, memory[0], 0..1, set);
    expectation.reduce(Reduced { function: None, factor });
    run(&finish(builder, 1), &expectation)
}

#[test]
fn a_result_is_scaled_as_the_request_says() {
    let (mul, div) = (BinaryFn::Mul, BinaryFn::Div);
    for (work, factor) in [(&[(mul, 3.0), (div, 12.0)][..], 0.25), (&[(div, 3.0), (mul, 3.0)], 1.0), (&[], 1.0)] {
        assert_eq!(scaled(work, factor).outcome, Outcome::Correct, "{work:?}");
    }
    for (work, factor) in [(&[(mul, 2.0)][..], 1.0), (&[], 0.5), (&[(div, 4.0)], 0.5)] {
        let verdict = scaled(work, factor);
        assert_eq!((verdict.outcome, verdict.findings[0].code), (Outcome::Wrong, "AHBM-V401"), "{work:?}");
        assert!(verdict.findings[0].message.contains(&format!("in place of {factor}")));
    }
    // By 1/127 where 1/128 is asked for: a rounding may be meant.
    let verdict = scaled(&[(div, 127.0)], 1.0 / 128.0);
    assert_eq!((verdict.outcome, verdict.findings[0].code), (Outcome::Undecided, "AHBM-U290"));
    assert_eq!(verdict.findings[0].sites[0].origin, "rank0.xml:2");
}

#[test]
fn a_result_is_reduced_with_the_function_of_the_request() {
    let (program, mut expectation) = exchange(false, 1, 2);
    let terms = |function| Reduced { function: Some(function), factor: 1.0 };
    expectation.reduce(terms(BinaryFn::Add));
    assert_eq!(run(&program, &expectation).outcome, Outcome::Correct);
    expectation.reduce(terms(BinaryFn::Max));
    let verdict = run(&program, &expectation);
    assert_eq!((verdict.outcome, verdict.findings[0].code), (Outcome::Wrong, "AHBM-V401"));
    assert!(verdict.findings[0].message.contains("reduced with add, asked for is max"));
}

#[test]
fn a_check_over_budget_is_refused_before_it_runs() {
    let (program, expectation) = exchange(false, 1, 2);
    let verdict = check(&program, &expectation, &CheckOptions { max_steps: 10, ..CheckOptions::default() });
    assert_eq!((verdict.outcome, verdict.findings[0].code), (Outcome::Undecided, "AHBM-B210"));
    assert!(verdict.findings[0].hint.as_deref().unwrap_or_default().contains("--limit check_steps="));
}

/// Two SIPs of one PE.
fn pair() -> Result<Machine, Vec<Diagnostic>> {
    let text = "sip: {cube_mesh: {w: 1, h: 1}}\ncube: {pe_layout: {corners: 1, pe_per_corner: 1}}";
    Machine::from_yaml(text, "pair", &[])
}

#[test]
fn numbers_confirm_what_contributions_say() {
    let (program, expectation) = exchange(false, 1, 2);
    let verdict = run(&program, &expectation).proven(&program, &expectation, pair);
    let proof = verdict.proof.expect("a correct program is proven");
    assert_eq!((verdict.outcome, proof.elements, verdict.findings.len()), (Outcome::Correct, 2, 0));
    assert!(proof.time_ps > 67_240, "a message crosses a link of 67.24 ns: {proof:?}");
    let (program, expectation) = exchange(false, 2, 2);
    let wrong = run(&program, &expectation);
    assert_eq!(wrong.clone().proven(&program, &expectation, || panic!("nothing to prove")), wrong);
}

#[test]
fn numbers_that_disagree_are_told_loudly() {
    let mistaken = || Verdict::new(Outcome::Correct, Vec::new());
    for (program, expectation) in [exchange(false, 2, 2), exchange(true, 1, 2)] {
        let verdict = mistaken().proven(&program, &expectation, pair);
        assert_eq!((verdict.outcome, verdict.proof, verdict.findings[0].code), (Outcome::Wrong, None, "AHBM-V408"));
    }
    let (program, expectation) = exchange(false, 1, 2);
    let nowhere = || Err(vec![Diagnostic::new("AHBM-T009", "no such machine")]);
    let verdict = mistaken().proven(&program, &expectation, nowhere);
    assert_eq!((verdict.outcome, verdict.proof, verdict.findings[0].code), (Outcome::Correct, None, "AHBM-V409"));
}
