//! States and histories: of programs that end, and of programs that stand still.

use crate::support::data::{E, Kernel, W, put, ring as pair, timeline};
use crate::support::ring::npu_network;
use crate::timing::Step::{Await, Barrier, Delay, Post, Recv, RecvAny, Send, Signal, Wait};
use crate::timing::{Step, program};
use ahbm_emulator::inspect::{Flow, Phase, Spot, State};
use ahbm_emulator::{Memory, NEVER, Options, Prepared, Timeline, simulate, until_stuck};
use ahbm_machine::Machine;
use ahbm_program::{AgentId, BinaryFn, BufferId, Comm, Dtype, Math, OpKind, Program, Tile};

fn machine(sips: u32) -> Machine {
    npu_network("ring_1d", sips, 500.0, 50.0, "cut_through")
}

/// The run of these agents as far as it goes.
fn stuck(agents: &[&[Step]], slots: u32) -> (Program, Timeline) {
    let machine = machine(agents.len() as u32);
    let program = program(&machine, agents, slots);
    let timeline = until_stuck(&program, &machine, &Options::default()).unwrap();
    let error = simulate(&program, &machine, &Options::default()).expect_err("a deadlock");
    assert_eq!(timeline.stuck.as_deref(), Some(&error), "both say the same");
    (program, timeline)
}

/// What an agent is about, and whom it waits for with which operation.
fn about(state: &State, agent: usize) -> (Phase, Vec<(u32, u32)>) {
    let doing = state.agents[agent].as_ref().unwrap();
    (doing.phase, doing.by.iter().map(|(agent, op)| (agent.0, *op)).collect())
}

#[test]
fn a_run_that_ends_is_the_same_either_way() {
    let machine = machine(2);
    let p = program(&machine, &[&[Send("global_E", 8)], &[Recv("global_W", 8)]], 4);
    let plain = simulate(&p, &machine, &Options::default()).unwrap();
    assert_eq!(until_stuck(&p, &machine, &Options::default()).unwrap(), plain);
    assert!(plain.stuck.is_none() && plain.spans.iter().flatten().all(|span| span.end != NEVER));
}

#[test]
fn a_cycle_of_receives_names_the_sends_that_never_come() {
    let steps: &[Step] = &[Send("global_E", 8), Recv("global_W", 8), Recv("global_W", 8), Send("global_E", 8)];
    let (p, t) = stuck(&[steps; 3], 4);
    let end = State::at(&p, &t, t.latency).unwrap();
    for agent in 0..3 {
        let doing = end.agents[agent].as_ref().unwrap();
        // Operation 0 makes the value that is sent.
        assert_eq!((doing.span.start, doing.span.end), (t.ends[agent], NEVER));
        let (phase, by) = about(&end, agent);
        let sender = (agent as u32 + 2) % 3;
        let sends: Vec<u32> = (0..)
            .zip(&p.body(AgentId(sender)).ops)
            .filter(|(_, op)| matches!(op.kind, OpKind::Comm(Comm::Send { .. })))
            .map(|(at, _)| at)
            .collect();
        assert_eq!((phase, by), (Phase::Message, vec![(sender, sends[1])]));
    }
    assert!(end.queues.iter().all(|queue| queue.held.is_empty()));
    // Before, the first messages were on their way.
    let before = State::at(&p, &t, t.latency - 1).unwrap();
    assert!(before.queues.iter().any(|queue| queue.sent == 1 && queue.received == 0));
    assert!(t.spans.iter().all(|spans| spans.last().unwrap().start == NEVER), "nothing behind it has begun");
}

#[test]
fn what_waits_in_vain_says_for_what() {
    let receives = |steps: &[Step]| {
        let (p, t) = stuck(&[&[Send("global_E", 8)], steps], 4);
        about(&State::at(&p, &t, t.latency).unwrap(), 1)
    };
    let nobody = (Phase::Message, vec![]);
    assert_eq!(receives(&[Recv("global_W", 8), Recv("global_W", 8)]), nobody);
    assert_eq!(receives(&[RecvAny(8), RecvAny(8)]), nobody);
    assert_eq!(receives(&[Post("global_W", 8), Post("global_W", 8), Await(0), Await(1)]), nobody);

    let (p, t) = stuck(&[&[Delay(1000), Signal(1)], &[Wait(0, 3), Barrier], &[Barrier]], 4);
    let end = State::at(&p, &t, t.latency).unwrap();
    assert_eq!(about(&end, 0), (Phase::Ended, vec![]));
    assert_eq!(about(&end, 1), (Phase::Counter(1), vec![]));
    let (phase, by) = about(&end, 2);
    assert_eq!((phase, by), (Phase::Barrier(1), vec![(1, 1)]), "agent 0 never comes to it, agent 1 would");
    assert_eq!(end.counters, [1]);
}

#[test]
fn a_full_queue_names_the_receive_that_would_empty_it() {
    let mut steps = vec![Send("global_E", 8); 3];
    steps.extend([Recv("global_W", 8); 3]);
    let (p, t) = stuck(&[&steps, &steps], 2);
    let end = State::at(&p, &t, t.latency).unwrap();
    let full = end.queues.iter().filter(|queue| queue.free == 0).count();
    assert_eq!((full, about(&end, 0).0, about(&end, 1).0), (2, Phase::Slot, Phase::Slot));
    let (agent, op) = about(&end, 0).1[0];
    assert!(agent == 1 && matches!(p.body(AgentId(1)).ops[op as usize].kind, OpKind::Comm(Comm::Recv { .. })));
}

/// Two agents that exchange their buffers and store the sum: load, send, receive, add, store.
fn exchange() -> (Program, Tile) {
    let tile = Tile::new(Dtype::I32, &[2]);
    let mut body = Kernel::default();
    let mine = body.load(0, 0, &tile);
    body.send(E, mine, &tile);
    let theirs = body.recv(W, &tile);
    let (dst, t) = (body.body.value(), body.body.tile(tile.clone()));
    body.op(OpKind::Math(Math::Binary { f: BinaryFn::Add, dst, a: mine, b: theirs, tile: t }));
    body.store(dst, 0, 0, &tile);
    let body = body.finish();
    (pair(vec![body.clone(), body], 8), tile)
}

fn flow(p: &Program, t: &Timeline) -> (Flow, Memory) {
    let mut memory = Memory::new(p);
    put(&mut memory, 0, 0, &[1i32, 2]);
    put(&mut memory, 1, 0, &[30i32, 40]);
    let (accesses, lands) = Prepared::of(p).unwrap().accesses(p, t, &mut memory).unwrap();
    (Flow::new(p, t, accesses, lands).unwrap(), memory)
}

#[test]
fn an_element_leads_back_to_its_inputs_and_an_input_to_its_elements() {
    let (p, _) = exchange();
    let t = Timeline { latency: 50, ..timeline(&[&[10, 20, 30, 40, 50], &[10, 20, 30, 40, 50]]) };
    let (flow, memory) = flow(&p, &t);
    let bytes = (BufferId(0), 4..8);
    let origin = flow.origin(&p, &t, &memory, bytes.clone(), None, 100).unwrap();
    let root = &origin.nodes[origin.roots[0] as usize];
    assert_eq!((root.spot.clone(), root.at), (Spot::Op { agent: AgentId(0), op: 4, element: 1 }, 50));
    assert_eq!(root.bytes, 42i32.to_ne_bytes());
    let inputs = origin.nodes.iter().filter(|node| matches!(node.spot, Spot::Before { .. })).count();
    assert_eq!(inputs, 2, "one of each agent");
    // Before the store, the input stands there.
    let early = flow.origin(&p, &t, &memory, bytes.clone(), Some(49), 100).unwrap();
    assert_eq!(early.nodes[early.roots[0] as usize].spot, Spot::Before { buffer: BufferId(0), bytes: 4..8 });
    assert_eq!(flow.origin(&p, &t, &memory, bytes.clone(), None, 3).unwrap_err().code, "AHBM-B124");

    let fate = flow.fate(&p, &t, bytes, 100).unwrap();
    let mut left: Vec<BufferId> = fate.nodes.iter().flat_map(|node| &node.left).map(|(buffer, _)| *buffer).collect();
    left.sort();
    assert_eq!(left, [BufferId(0), BufferId(1)]);
}

#[test]
fn in_a_deadlock_only_what_ran_has_a_history() {
    let (p, _) = exchange();
    // Agent 1 stands at its receive; agent 0 never ends its addition.
    let ended = timeline(&[&[10, 20, 30, NEVER, NEVER], &[10, 20, NEVER, NEVER, NEVER]]);
    let reason = ahbm_findings::Diagnostic::new("AHBM-D101", "planted");
    let t = Timeline { latency: 30, stuck: Some(Box::new(reason)), ..ended };
    let (flow, memory) = flow(&p, &t);
    let origin = flow.origin(&p, &t, &memory, (BufferId(0), 0..4), None, 100).unwrap();
    assert!(matches!(origin.nodes[0].spot, Spot::Before { .. }), "nothing was stored");
    let ops = |buffer: u32| -> Vec<(u32, u32)> {
        let fate = flow.fate(&p, &t, (BufferId(buffer), 0..4), 100).unwrap();
        let spots = fate.nodes.iter().filter_map(|node| match node.spot {
            Spot::Op { agent, op, .. } => Some((agent.0, op)),
            Spot::Before { .. } => None,
        });
        spots.collect()
    };
    assert_eq!(ops(0), [(0, 0), (0, 1)], "agent 1 has not received it");
    assert_eq!(ops(1), [(1, 0), (1, 1), (0, 2)]);
}

#[test]
fn a_timeline_without_spans_has_no_state() {
    let (p, _) = exchange();
    assert_eq!(State::at(&p, &Timeline::default(), 0).unwrap_err().code, "AHBM-D191");
    assert_eq!(Flow::new(&p, &Timeline::default(), Vec::new(), false).unwrap_err().code, "AHBM-D191");
}
