//! Loads that a switch reduces and stores that it copies, against closed forms, and their data.
//!
//! Nothing inside an NPU costs anything: a way through the switch has a latency of 2 x 500 ns + 100 ns, and a byte takes
//! 20 ps on a link.

use ahbm_emulator::{Memory, Options, Timeline, replay, simulate};
use ahbm_findings::Diagnostic;
use ahbm_machine::{Coord, Machine, Node};
use ahbm_program::{
    AgentId, BinaryFn, BodyBuilder, BufferId, Control, Dtype, Locus, Mem, Move, OpKind, Origin, Program,
    ProgramBuilder, Tile, lint,
};

const WAY: u64 = 1_100_000;
const BETA: u64 = 20;
const FLIT: u64 = 256;

/// A switch of `n` NPUs that reduces at `gbs`, or does not reduce.
fn machine(n: u32, model: &str, gbs: Option<&str>) -> Machine {
    let mut overrides = vec![("system.sips.count", n.to_string()), ("system.network_model", model.to_string())];
    overrides.push(("system.sips.switch.reduces", gbs.is_some().to_string()));
    overrides.extend(gbs.map(|gbs| ("system.sips.switch.reduce_gbs", gbs.to_string())));
    let overrides: Vec<_> = overrides.into_iter().map(|(key, value)| (key.to_string(), value)).collect();
    let text = include_str!("../../../../python/ahbm/data/topologies/npu_switch_8.yaml");
    Machine::from_yaml(text, "npu_switch_8.yaml", &overrides).expect("a machine")
}

#[derive(Clone, Copy)]
enum Step {
    /// Loads so many elements at this element of all members, reduced.
    Reduce(u32, u64),
    /// Stores the value loaded last at this element of all members.
    Spread(u32, u64),
    Fence,
}
use Step::*;

/// An agent per NPU with a buffer each; every group is all NPUs, beginning with `first`.
fn program(machine: &Machine, dtype: Dtype, first: u32, steps: &[&[Step]]) -> Program {
    let mut builder = ProgramBuilder::new("switch");
    let n = machine.sfr().sips;
    let place = |sip| machine.pe(Coord { sip, cube: 0, pe: 0 }).expect("a PE");
    let buffers: Vec<BufferId> = (0..n).map(|sip| builder.buffer(Node::Hbm(place(sip)), 1 << 22)).collect();
    for (sip, steps) in (0..).zip(steps) {
        let origin = builder.origins.intern(Origin { file: format!("{sip}").into(), locus: Locus::Whole });
        let mut body = BodyBuilder::new();
        let value = body.value();
        for step in *steps {
            let mut at = |element: u64| {
                let offset = element * dtype.bytes();
                let order = (0..n).map(|i| ((first + i) % n) as u16);
                let mems: Vec<u32> = order.map(|buffer| body.mem(Mem { buffer, offset })).collect();
                body.group(&mems)
            };
            let kind = match *step {
                Reduce(count, element) => {
                    let group = at(element);
                    let tile = body.tile(Tile::new(dtype, &[count.into()]));
                    OpKind::Move(Move::ReducingLoad { f: BinaryFn::Add, dst: value, group, tile })
                }
                Spread(count, element) => {
                    let group = at(element);
                    OpKind::Move(Move::Multicast {
                        src: value,
                        group,
                        tile: body.tile(Tile::new(dtype, &[count.into()])),
                    })
                }
                Fence => OpKind::Control(Control::Fence),
            };
            body.push(kind, 1, origin);
        }
        let body = builder.body(body.finish());
        builder.thread_block(sip, Coord { sip, cube: 0, pe: 0 }, place(sip), body, &buffers);
    }
    let program = builder.finish(crate::support::ring::settings(1)).expect("sound");
    assert_eq!(lint(&program, machine), []);
    program
}

fn run(program: &Program, machine: &Machine) -> Result<Timeline, Diagnostic> {
    simulate(program, machine, &Options::default())
}

#[test]
fn a_reducing_load_is_a_request_and_one_way_back_for_any_number_of_members() {
    for (model, flits) in [("cut_through", 1), ("flit", 1), ("analytic", 0)] {
        for n in [2, 3, 8] {
            for bytes in [FLIT, 1 << 20, 1000 * FLIT + 8] {
                let machine = machine(n, model, Some(".inf"));
                let program = program(&machine, Dtype::U8, 0, &[&[Reduce(bytes as u32, 0)]]);
                let time = 2 * WAY + bytes * BETA + flits * FLIT * BETA;
                // A last flit that is not full has a shorter way to go behind the others.
                let short = flits * if model == "flit" && bytes % FLIT > 0 { (FLIT - bytes % FLIT) * BETA } else { 0 };
                let latency = run(&program, &machine).unwrap().latency;
                assert!((time - short..=time).contains(&latency), "{model} {n} {bytes}: {latency} for {time}");
            }
        }
    }
}

#[test]
fn a_multicast_is_one_way_for_any_number_of_members() {
    for (model, flits) in [("cut_through", 1), ("flit", 1), ("analytic", 0)] {
        let bytes = 1 << 20;
        for n in [2, 3, 8] {
            let machine = machine(n, model, Some(".inf"));
            let steps: &[Step] = &[Reduce(FLIT as u32, 0), Spread(FLIT as u32, 0), Fence];
            let before = run(&program(&machine, Dtype::U8, 0, &[&steps[..1]]), &machine).unwrap().latency;
            let all = run(&program(&machine, Dtype::U8, 0, &[steps]), &machine).unwrap();
            assert_eq!(all.latency - before, WAY + (1 + flits) * FLIT * BETA, "{model} {n}");
            // It is posted: only the fence waits for its arrival.
            assert_eq!(all.spans[0][1].end - before, FLIT * BETA);
            assert_eq!(all.arrivals[0], [all.latency]);
            let steps: &[Step] = &[Reduce(bytes, 0), Spread(bytes, 0), Fence];
            let long = run(&program(&machine, Dtype::U8, 0, &[steps]), &machine).unwrap().latency;
            assert_eq!(long, 3 * WAY + (2 * u64::from(bytes) + 2 * flits * FLIT) * BETA, "{model} {n}");
        }
    }
}

#[test]
fn the_reducer_has_a_bandwidth_of_its_own_that_all_results_share() {
    let bytes = 1u64 << 20;
    for model in ["cut_through", "flit"] {
        let machine = machine(8, model, Some("25"));
        let one = [Reduce(bytes as u32, 0)];
        let time = run(&program(&machine, Dtype::U8, 0, &[&one]), &machine).unwrap().latency;
        // The head crosses a link, the reducer at half the rate, and a link.
        let slow = 2 * BETA;
        assert_eq!(time, 2 * WAY + bytes * slow + 2 * FLIT * BETA, "{model}");
        let four: Vec<&[Step]> = vec![&one; 4];
        let time = run(&program(&machine, Dtype::U8, 0, &four), &machine).unwrap().latency;
        assert_eq!(time, 2 * WAY + 4 * bytes * slow + 2 * FLIT * BETA, "{model}");
    }
    let machine = machine(8, "analytic", Some("25"));
    let program = program(&machine, Dtype::U8, 0, &[&[Reduce(bytes as u32, 0)]]);
    assert_eq!(run(&program, &machine).unwrap().latency, 2 * WAY + bytes * 2 * BETA);
}

#[test]
fn the_links_of_members_are_shared_by_those_who_read() {
    let bytes = 1u64 << 16;
    for n in [2, 4, 8] {
        let machine = machine(n, "cut_through", Some(".inf"));
        let step = [Reduce(bytes as u32, 0)];
        let steps: Vec<&[Step]> = vec![&step; n as usize];
        let time = run(&program(&machine, Dtype::U8, 0, &steps), &machine).unwrap().latency;
        assert_eq!(time, 2 * WAY + u64::from(n) * bytes * BETA + FLIT * BETA, "{n}");
    }
}

/// A flit waits for the slowest leg, also where another has no link that could hold it up.
#[test]
fn links_without_end_bring_everything_at_once() {
    let text = include_str!("../../../../python/ahbm/data/topologies/npu_switch_8.yaml");
    for model in ["cut_through", "flit", "analytic"] {
        let overrides = [
            ("system.sips.switch.reduces", "true"),
            ("system.sips.link.bandwidth_gbs", ".inf"),
            ("system.sips.switch.reduce_gbs", "50"),
            ("system.network_model", model),
        ];
        let overrides = overrides.map(|(key, value)| (key.to_string(), value.to_string()));
        let machine = Machine::from_yaml(text, "npu_switch_8.yaml", &overrides).unwrap();
        for bytes in [8, FLIT, 1000 * FLIT + 8] {
            let steps: &[Step] = &[Reduce(bytes as u32, 0), Spread(bytes as u32, 0), Fence];
            let time = run(&program(&machine, Dtype::U8, 0, &[steps]), &machine).unwrap().latency;
            assert_eq!(time, 3 * WAY + bytes * BETA, "{model} {bytes}");
        }
    }
}

#[test]
fn members_are_reduced_in_the_order_of_the_group_and_written_everywhere() {
    let values = [1e8f32, 1.0, -1e8];
    for (first, sum) in [(0, 0.0f32), (1, 0.0), (2, 1.0)] {
        let machine = machine(3, "flit", Some(".inf"));
        let program = program(&machine, Dtype::F32, first, &[&[Reduce(1, 0), Spread(1, 5), Fence]]);
        let timeline = run(&program, &machine).unwrap();
        let mut memory = Memory::new(&program);
        for (buffer, value) in (0..).zip(values) {
            memory.bytes_mut(BufferId(buffer))[..4].copy_from_slice(&value.to_le_bytes());
        }
        replay(&program, &timeline, &mut memory).unwrap();
        // 1e8 + 1 is 1e8 in f32.
        let order = (0..3).map(|i| values[(first as usize + i) % 3]);
        assert_eq!(order.reduce(|a, b| a + b), Some(sum));
        for buffer in 0..3 {
            assert_eq!(memory.bytes(BufferId(buffer))[20..24], sum.to_le_bytes(), "{first} {buffer}");
        }
    }
}

#[test]
fn a_network_that_does_not_reduce_refuses() {
    let reducing = machine(3, "cut_through", Some(".inf"));
    let program = program(&reducing, Dtype::U8, 0, &[&[Reduce(8, 0), Spread(8, 0)]]);
    let refused = run(&program, &machine(3, "cut_through", None)).unwrap_err();
    assert_eq!(refused.code, "AHBM-T019");
    let words = program.text();
    assert!(words.contains("load add of 3 u8[8] from buffer 0 + 0 from buffer 1 + 0"), "{words}");
    assert!(words.contains("post store to 3 u8[8] %0 to buffer 0 + 0"), "{words}");
    assert_eq!(program.describe(AgentId(0), 1), "post store to 3 u8[8]");
}
