//! When a call of a rank begins and ends, and what that means for the others.

use crate::blocks::{Block, buffers, finish, run, tags};
use ahbm_check::{CheckOptions, Outcome, Verdict, check};
use ahbm_plan::Expectation;
use ahbm_program::{BinaryFn, Control, OpKind, ProgramBuilder};

const TWICE: CheckOptions<'_> = CheckOptions {
    slots: None,
    orders: 4,
    seed: 0,
    calls: 2,
    later: &[],
    machine: None,
    max_steps: 1 << 20,
    min_slots: false,
};

/// Two ranks put their element into each other's memory; signals say that a rank has started, and that its element has
/// arrived. What is left out is lost.
#[derive(Clone, Copy)]
struct Handshake {
    /// Rank 0 waits until rank 1 has started.
    entry: bool,
    /// Rank 0 waits until rank 1's element has arrived.
    exit: bool,
}

fn exchange(how: Handshake) -> Verdict {
    let mut builder = ProgramBuilder::new("put");
    let memory = buffers(&mut builder, 2, 2);
    let ready = [builder.counter(), builder.counter()];
    let arrived = [builder.counter(), builder.counter()];
    for rank in 0..2usize {
        let peer = 1 - rank;
        let signal = |counter| OpKind::Control(Control::Signal { counter, add: 1, posted: false });
        let take = |counter| OpKind::Control(Control::Acquire { counter, amount: 1 });
        let mut block = Block::new(&mut builder, rank as u32).plain(signal(ready[peer]));
        if rank == 1 || how.entry {
            block = block.plain(take(ready[rank]));
        }
        block = block.load(0, 0, rank as u64).store(0, 1, rank as u64).plain(signal(arrived[peer]));
        if rank == 1 || how.exit {
            block = block.plain(take(arrived[rank]));
        }
        block.stand(&[memory[rank], memory[peer]]);
    }
    let mut expectation = Expectation::new(8);
    for rank in 0..2u32 {
        let own = memory[rank as usize];
        expectation.name(own, format!("the buffer of rank {rank}"));
        expectation.hold(own, rank.into()..u64::from(rank) + 1, rank, 0);
        for from in 0..2u32 {
            let set = expectation.set([(from, 0)]);
            expectation.expect(rank, own, from.into()..u64::from(from) + 1, set);
        }
    }
    check(&finish(builder, 1), &expectation, &TWICE)
}

fn codes(verdict: &Verdict) -> Vec<&'static str> {
    verdict.findings.iter().map(|finding| finding.code).collect()
}

#[test]
fn a_rank_waits_for_the_start_and_the_end_of_what_reaches_its_memory() {
    let whole = exchange(Handshake { entry: true, exit: true });
    assert_eq!((whole.outcome, whole.findings.len()), (Outcome::Correct, 0), "{:?}", whole.findings);
    for (how, what) in [
        (Handshake { entry: false, exit: true }, "rank 0 block 0 accesses elements [0, 1) of the buffer of rank 1"),
        (Handshake { entry: true, exit: false }, "rank 0 ends without waiting for rank 1 block 0"),
    ] {
        let found = exchange(how);
        assert!(found.outcome >= Outcome::Race, "{:?}", found.findings);
        let early = found.findings.iter().find(|finding| finding.code == "AHBM-V414").expect("the launch window");
        assert!(early.message.starts_with(what), "{early}");
        assert!(early.sites[0].origin.starts_with("rank"), "{early}");
    }
}

#[test]
fn a_result_is_looked_at_when_its_rank_ends() {
    let found = exchange(Handshake { entry: true, exit: false });
    // In its own order, rank 0 ends before rank 1 has put anything.
    assert_eq!(found.outcome, Outcome::Wrong, "{:?}", found.findings);
    let wrong = found.findings.iter().find(|finding| finding.code == "AHBM-V401").expect("a wrong result");
    assert!(wrong.message.contains("rank 0, elements [1, 2) of the buffer of rank 0: rank 1 missing"), "{wrong}");
}

#[test]
fn a_wait_that_was_lost_leaves_a_signal() {
    let found = exchange(Handshake { entry: false, exit: true });
    let left = found.findings.iter().find(|finding| finding.code == "AHBM-V410").expect("a signal too many");
    assert!(left.message.starts_with("1 signals are never waited for: nobody waits at all"), "{left}");
    assert_eq!(left.sites[0].origin, "rank1.xml:1");
}

/// A root sums what two ranks send it, first come first served; a rank may wait for the root's thanks.
fn reduce(thanks: bool) -> Verdict {
    let mut builder = ProgramBuilder::new("reduce");
    let memory = buffers(&mut builder, 3, 1);
    let thanked = [builder.counter(), builder.counter()];
    let mut agents = Vec::new();
    let mut root =
        Block::new(&mut builder, 0).load(0, 0, 0).receive(1).add(0, 0, 1).receive(1).add(0, 0, 1).store(0, 0, 0);
    if thanks {
        for counter in thanked {
            root = root.plain(OpKind::Control(Control::Signal { counter, add: 1, posted: false }));
        }
    }
    agents.push(root.directed(&[1, 2]).stand(&[memory[0]]));
    for rank in 1..3u32 {
        let mut block = Block::new(&mut builder, rank).load(0, 0, 0).send(0, 0);
        if thanks {
            block = block.plain(OpKind::Control(Control::Acquire { counter: thanked[rank as usize - 1], amount: 1 }));
        }
        agents.push(block.stand(&[memory[rank as usize]]));
    }
    for rank in 1..3 {
        tags(&mut builder, &agents, rank, 0);
    }
    let mut expectation = Expectation::new(8);
    for rank in 0..3u32 {
        expectation.hold(memory[rank as usize], 0..1, rank, 0);
    }
    let all = expectation.set([(0, 0), (1, 0), (2, 0)]);
    expectation.expect(0, memory[0], 0..1, all);
    check(&finish(builder, 4), &expectation, &TWICE)
}

#[test]
fn calls_have_data_of_their_own() {
    let thanked = reduce(true);
    assert_eq!((thanked.outcome, codes(&thanked)), (Outcome::Correct, vec![]), "{:?}", thanked.findings);
    // The fast rank's second message comes before the slow rank's first: its values were equal, and no check saw it.
    let found = reduce(false);
    assert_eq!((found.outcome, found.findings[0].code), (Outcome::Wrong, "AHBM-V411"), "{:?}", found.findings);
    assert!(found.findings[1].message.contains("missing; rank 1's of call 2 instead"), "{}", found.findings[1]);
}

/// Three ranks meet at rank 0, which releases them before or after it has heard from all.
fn barrier(collects_first: bool, all: bool) -> Verdict {
    let mut builder = ProgramBuilder::new("barrier");
    let memory = buffers(&mut builder, 3, 1);
    let (here, go) = (builder.counter(), [builder.counter(), builder.counter()]);
    let mut root = Block::new(&mut builder, 0);
    let collect = OpKind::Control(Control::Acquire { counter: here, amount: if all { 2 } else { 1 } });
    if collects_first {
        root = root.plain(collect);
    }
    for counter in go {
        root = root.plain(OpKind::Control(Control::Signal { counter, add: 1, posted: false }));
    }
    if !collects_first {
        root = root.plain(collect);
    }
    root.stand(&[memory[0]]);
    for rank in 1..3u32 {
        Block::new(&mut builder, rank)
            .plain(OpKind::Control(Control::Signal { counter: here, add: 1, posted: false }))
            .plain(OpKind::Control(Control::Acquire { counter: go[rank as usize - 1], amount: 1 }))
            .stand(&[memory[rank as usize]]);
    }
    let mut expectation = Expectation::new(8);
    expectation.synchronise();
    run(&finish(builder, 1), &expectation)
}

#[test]
fn a_barrier_holds_everybody() {
    let right = barrier(true, true);
    assert_eq!((right.outcome, codes(&right)), (Outcome::Correct, vec![]), "{:?}", right.findings);
    for found in [barrier(false, true), barrier(true, false)] {
        assert_eq!(found.outcome, Outcome::Wrong, "{:?}", found.findings);
        let gap = found.findings.iter().find(|finding| finding.code == "AHBM-V415").expect("a gap");
        assert!(gap.message.contains("leaves the barrier though rank"), "{gap}");
    }
    let mut builder = ProgramBuilder::new("nothing");
    let memory = buffers(&mut builder, 2, 1);
    for rank in 0..2u32 {
        Block::new(&mut builder, rank).load(0, 0, 0).stand(&[memory[rank as usize]]);
    }
    let mut expectation = Expectation::new(8);
    expectation.synchronise();
    let found = run(&finish(builder, 1), &expectation);
    assert_eq!((found.outcome, found.findings[0].code), (Outcome::Wrong, "AHBM-V415"));
    let what = "rank 0 leaves the barrier though rank 1 may not have entered it (2 ranks are not held)";
    assert_eq!(found.findings[0].message, what);
}

/// Block 0 of rank 0 puts an element into the memory of rank 1 and lets block 1 say so: after a fence, or at once.
fn relay(fence: bool) -> Verdict {
    let mut builder = ProgramBuilder::new("relay");
    let memory = buffers(&mut builder, 2, 1);
    let (started, passed, arrived) = (builder.counter(), builder.counter(), builder.counter());
    let signal = |counter, posted| OpKind::Control(Control::Signal { counter, add: 1, posted });
    let take = |counter| OpKind::Control(Control::Acquire { counter, amount: 1 });
    let mut put = Block::new(&mut builder, 0).plain(take(started)).load(0, 0, 0).post(0, 1, 0);
    if fence {
        put = put.plain(OpKind::Control(Control::Fence));
    }
    put.plain(signal(passed, false)).plain(OpKind::Control(Control::Fence)).stand(&[memory[0], memory[1]]);
    Block::new(&mut builder, 0).plain(take(passed)).plain(signal(arrived, true)).stand(&[memory[0]]);
    Block::new(&mut builder, 1).plain(signal(started, false)).plain(take(arrived)).stand(&[memory[1]]);
    let mut expectation = Expectation::new(8);
    for rank in 0..2u32 {
        expectation.hold(memory[rank as usize], 0..1, rank, 0);
    }
    let sent = expectation.set([(0, 0)]);
    expectation.expect(1, memory[1], 0..1, sent);
    check(&finish(builder, 1), &expectation, &TWICE)
}

#[test]
fn what_is_posted_arrives_behind_a_fence_or_a_posted_signal_of_its_agent() {
    let right = relay(true);
    assert_eq!((right.outcome, codes(&right)), (Outcome::Correct, vec![]), "{:?}", right.findings);
    let found = relay(false);
    assert_eq!((found.outcome, found.findings[0].code), (Outcome::Race, "AHBM-V414"), "{:?}", found.findings);
}

/// Two ranks exchange their element; rank 1 unites the two by another function than rank 0.
#[test]
fn everybody_reduces_with_one_function() {
    let mut outcomes = Vec::new();
    for f in [BinaryFn::Add, BinaryFn::Max] {
        let mut builder = ProgramBuilder::new("functions");
        let memory = buffers(&mut builder, 2, 1);
        let mut agents = Vec::new();
        for rank in 0..2u32 {
            let own = if rank == 0 { BinaryFn::Add } else { f };
            let block = Block::new(&mut builder, rank).load(0, 0, 0).send(1 - rank, 0).recv(1 - rank, 1);
            agents.push(block.unite(own, 0, 0, 1).store(0, 0, 0).stand(&[memory[rank as usize]]));
        }
        tags(&mut builder, &agents, 0, 1);
        tags(&mut builder, &agents, 1, 0);
        let mut expectation = Expectation::new(8);
        for rank in 0..2u32 {
            expectation.hold(memory[rank as usize], 0..1, rank, 0);
            let both = expectation.set([(0, 0), (1, 0)]);
            expectation.expect(rank, memory[rank as usize], 0..1, both);
        }
        let verdict = run(&finish(builder, 1), &expectation);
        outcomes.push((verdict.outcome, verdict.findings.first().map(|finding| finding.message.clone())));
    }
    assert_eq!(outcomes[0], (Outcome::Correct, None));
    let (outcome, message) = &outcomes[1];
    let message = message.as_deref().unwrap_or_default();
    assert!(*outcome == Outcome::Wrong && message.contains("reduced with max, other elements with add"), "{message}");
}
