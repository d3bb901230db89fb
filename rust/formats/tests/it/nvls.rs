//! Plans with switch channels, on switches that reduce and on others.
//!
//! On the plain switch here a way has a latency of 2 x 500 ns + 100 ns, and a byte takes 20 ps on a link.

use crate::support::nvls::{Style, all_gather_packets, all_reduce, in_rounds, operation};
use ahbm_check::{CheckOptions, Outcome, Verdict, check};
use ahbm_emulator::{Memory, Options, replay, simulate};
use ahbm_formats::mscclpp::{ReadOptions, read, write};
use ahbm_machine::Machine;
use ahbm_plan::execution::{ExecutionPlan, Launch};
use ahbm_plan::{Budget, LowerOptions, Lowered};
use ahbm_program::{Dtype, Move, OpKind, lint};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const WAY: u64 = 1_100_000;
const BETA: u64 = 20;
const FLIT: u64 = 256;

fn machine(n: u32, model: &str, reduces: bool) -> Machine {
    let overrides = [
        ("system.sips.count", n.to_string()),
        ("system.network_model", model.to_owned()),
        ("system.sips.switch.reduces", reduces.to_string()),
    ];
    let overrides = overrides.map(|(key, value)| (key.to_owned(), value));
    let text = include_str!("../../../../python/ahbm/data/topologies/npu_switch_8.yaml");
    Machine::from_yaml(text, "npu_switch_8.yaml", &overrides).expect("a machine")
}

fn plan(document: &Value) -> ExecutionPlan {
    read(document.to_string().as_bytes(), "small.json", &ReadOptions::default()).expect("a plan")
}

fn lowered(plan: &ExecutionPlan, machine: &Machine, bytes: u64) -> Lowered {
    let lowered = plan.lower(machine, &LowerOptions::new(bytes, Dtype::F32), Launch::ODD).expect("it fits");
    assert_eq!(lint(&lowered.program, machine), []);
    lowered
}

fn latency(document: &Value, machine: &Machine, bytes: u64) -> u64 {
    simulate(&lowered(&plan(document), machine, bytes).program, machine, &Options::default()).expect("it ends").latency
}

/// The verdict on the program that runs on a machine.
fn verdict(plan: &ExecutionPlan, machine: &Machine) -> Verdict {
    let bytes = 64 * plan.ranks.len() as u64;
    let lowered = lowered(plan, machine, bytes);
    let expectation = plan.goal.expectation(&lowered.ranks, bytes / 4, 4, &Budget::default()).expect("it has one");
    check(&lowered.program, &expectation, &CheckOptions { min_slots: false, ..CheckOptions::default() })
}

fn inside(lowered: &Lowered) -> usize {
    let ops = lowered.program.bodies.iter().flat_map(|body| &body.ops);
    ops.filter(|op| matches!(op.kind, OpKind::Move(Move::ReducingLoad { .. } | Move::Multicast { .. }))).count()
}

/// Rank k's chunk is the k-th that crosses every link to the switch. Short sums are multicast while the next chunks come;
/// long ones wait until all chunks have crossed the sender's link, and the sums of the others then cross every link from
/// the switch.
#[test]
fn an_all_reduce_sends_everything_once_and_gets_it_once_whatever_the_number_of_ranks() {
    for n in [2u64, 4, 8] {
        let machine = machine(n as u32, "cut_through", true);
        let time = |bytes| latency(&all_reduce(n as u32, Style::Fused), &machine, bytes);
        let (short, long) = (1 << 14, 1 << 22);
        assert_eq!(time(short), 3 * WAY + (short + short / n + 2 * FLIT) * BETA, "{n} ranks");
        // Of two ranks, nobody waits for the sum that the other sends first.
        let alone = if n == 2 { WAY + FLIT * BETA } else { 0 };
        assert_eq!(time(long), 2 * WAY + (2 * long - long / n + FLIT) * BETA + alone, "{n} ranks");
    }
}

/// In a loop, the sums of one iteration come while the chunks of others go: a switch sees everything once and a chunk more.
#[test]
fn a_loop_reads_and_writes_at_once() {
    let bytes = 1u64 << 26;
    for n in [2u64, 8] {
        let looped = |rank: u32| {
            let context = json!({"unit_size": 1 << 18, "num_chunks": 1});
            vec![vec![json!({"name": "pipeline", "iter_context": context, "ops": [operation("glres", rank, rank)]})]]
        };
        let group: Vec<u32> = (0..n as u32).collect();
        let document = in_rounds("allreduce", &vec![group; n as usize], looped);
        let time = latency(&document, &machine(n as u32, "cut_through", true), bytes);
        let once = (bytes + bytes / n) * BETA;
        assert!((once..once + once / 10).contains(&time), "{n}: {time} for {once}");
    }
}

/// Everybody reads at once and writes at once: twice the data at most, and not as many times as there are ranks.
#[test]
fn under_every_model_the_time_does_not_grow_with_the_ranks() {
    let bytes = 1 << 20;
    for style in [Style::Fused, Style::Apart] {
        for model in ["cut_through", "flit", "analytic"] {
            for n in [2, 8] {
                let time = latency(&all_reduce(n, style), &machine(n, model, true), bytes);
                let most = 3 * WAY + (2 * bytes + 2 * FLIT) * BETA;
                assert!(time <= most, "{style:?} {model} {n}: {time} for {most}");
            }
        }
    }
}

#[test]
fn another_switch_loads_and_stores_one_by_one() {
    for (document, ops) in [(all_reduce(4, Style::Fused), 8), (all_gather_packets(4), 8)] {
        let plan = plan(&document);
        assert_eq!(inside(&lowered(&plan, &machine(4, "cut_through", true), 1 << 16)), ops);
        assert_eq!(inside(&lowered(&plan, &machine(4, "cut_through", false), 1 << 16)), 0);
        let slow = latency(&document, &machine(4, "cut_through", false), 1 << 20);
        assert!(latency(&document, &machine(4, "cut_through", true), 1 << 20) < slow);
    }
}

/// The bits that a plan leaves in every rank's memory.
fn results(lowered: &Lowered, machine: &Machine) -> Vec<Vec<u8>> {
    let timeline = simulate(&lowered.program, machine, &Options::default()).expect("it ends");
    let mut memory = Memory::new(&lowered.program);
    for (rank, buffers) in lowered.ranks.iter().enumerate() {
        for (k, element) in memory.bytes_mut(buffers.input.buffer).chunks_exact_mut(4).enumerate() {
            // Numbers whose sum depends on the order.
            element.copy_from_slice(&((k + 7 * rank + 1) as f32).powi(5 - 3 * (rank as i32 % 3)).to_le_bytes());
        }
    }
    replay(&lowered.program, &timeline, &mut memory).expect("it has data");
    lowered.ranks.iter().map(|buffers| memory.bytes(buffers.output.buffer).to_vec()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Groups in any order, of any ranks; in a round, every rank works on a chunk of its own.
    #[test]
    fn inside_the_network_or_not_the_bits_and_the_verdicts_are_the_same(
        order in Just((0..5u32).collect::<Vec<_>>()).prop_shuffle(), size in 2usize..=5,
        members in prop::collection::vec(prop::sample::subsequence((0..5u32).collect::<Vec<_>>(), 1..=5), 5),
        rounds in prop::collection::vec(
            (prop::collection::vec(prop::sample::select(vec!["glre", "gstore", "glres"]), 5), 0..5u32), 1..4),
        dropped in prop::option::of((0..5usize, any::<prop::sample::Index>())),
    ) {
        let n = size as u32;
        let order: Vec<u32> = order.into_iter().filter(|&rank| rank < n).collect();
        let group = |members: &Vec<u32>| {
            let some: Vec<u32> = order.iter().copied().filter(|rank| members.contains(rank)).collect();
            if some.is_empty() { order.clone() } else { some }
        };
        let groups: Vec<Vec<u32>> = members[..size].iter().map(group).collect();
        let work = |rank: u32| -> Vec<Vec<Value>> {
            let one = |(names, by): &(Vec<&str>, u32)| vec![operation(names[rank as usize], rank, (rank + by) % n)];
            rounds.iter().map(one).collect()
        };
        let mut document = in_rounds("custom", &groups, work);
        if let Some((rank, at)) = dropped {
            let ops = document["gpus"][rank % size]["threadblocks"][0]["ops"].as_array_mut().unwrap();
            // A wait that is lost; the last one is followed by nothing.
            let at = 3 * at.index(ops.len() / 3) + 1;
            ops[at] = json!({"name": "nop"});
        }
        let plan = plan(&document);
        let plain = machine(n, "cut_through", false);
        let verdicts = [&plain, &machine(n, "cut_through", true)].map(|machine| {
            let found = verdict(&plan, machine);
            // The orders that are tried differ, and with them what they expose.
            let codes = found.findings.iter().map(|finding| finding.code).filter(|code| *code != "AHBM-V404");
            (found.outcome, codes.collect::<BTreeSet<_>>())
        });
        prop_assert_eq!(&verdicts[0], &verdicts[1]);
        if dropped.is_none() {
            prop_assert_eq!(&verdicts[0], &(Outcome::NoExpectation, BTreeSet::new()));
            let expected = results(&lowered(&plan, &plain, 64 * u64::from(n)), &plain);
            for model in ["cut_through", "flit", "analytic"] {
                let machine = machine(n, model, true);
                prop_assert_eq!(&results(&lowered(&plan, &machine, 64 * u64::from(n)), &machine), &expected);
            }
        }
    }
}

#[test]
fn the_numbers_are_right() {
    for style in [Style::Fused, Style::Apart] {
        for reduces in [true, false] {
            let (n, bytes) = (3u32, 1536u64);
            let machine = machine(n, "flit", reduces);
            let lowered = lowered(&plan(&all_reduce(n, style)), &machine, bytes);
            let timeline = simulate(&lowered.program, &machine, &Options::default()).unwrap();
            let mut memory = Memory::new(&lowered.program);
            for (rank, buffers) in lowered.ranks.iter().enumerate() {
                for (k, element) in memory.bytes_mut(buffers.input.buffer).chunks_exact_mut(4).enumerate() {
                    element.copy_from_slice(&((k + 1000 * rank) as f32).to_le_bytes());
                }
            }
            replay(&lowered.program, &timeline, &mut memory).unwrap();
            for buffers in &lowered.ranks {
                for (k, element) in memory.bytes(buffers.output.buffer).chunks_exact(4).enumerate() {
                    let found = f32::from_le_bytes(element.try_into().unwrap());
                    assert_eq!(found, (3 * k + 3000) as f32, "{style:?} {reduces}");
                }
            }
        }
    }
}

#[test]
fn a_program_inside_the_network_is_checked_like_another() {
    let documents = [all_reduce(4, Style::Fused), all_reduce(4, Style::Apart), all_gather_packets(4)];
    for document in &documents {
        for reduces in [true, false] {
            let found = verdict(&plan(document), &machine(4, "cut_through", reduces));
            assert_eq!(found.outcome, Outcome::Correct, "{reduces} {:?}", found.findings);
        }
    }
}

/// A rank that does not wait for the others reads their input, or ends, too early.
#[test]
fn an_access_of_a_member_that_nothing_orders_is_a_race() {
    for style in [Style::Fused, Style::Apart] {
        // The place of the last wait.
        let end = if style == Style::Fused { 4 } else { 5 };
        for at in [1, end] {
            let mut document = all_reduce(3, style);
            document["gpus"][1]["threadblocks"][0]["ops"][at] = json!({"name": "nop"});
            for reduces in [true, false] {
                let found = verdict(&plan(&document), &machine(3, "cut_through", reduces));
                let bad = matches!(found.outcome, Outcome::Race | Outcome::Wrong);
                assert!(bad, "{style:?} {at} {reduces}: {:?} {:?}", found.outcome, found.findings);
            }
        }
    }
}

#[test]
fn a_reduction_by_a_switch_alone_is_read_and_written() {
    let document = all_reduce(2, Style::Apart);
    let known = plan(&document);
    assert!(known.warnings.iter().any(|warning| warning.code == "AHBM-F171" && warning.message.contains("glre")));
    let again = read(&write(&known).unwrap(), "small.json", &ReadOptions::default()).unwrap();
    assert_eq!(again, known);
    let quirks = ReadOptions { quirks: true, ..ReadOptions::default() };
    let refused = read(document.to_string().as_bytes(), "small.json", &quirks).unwrap();
    assert_eq!(refused.unsupported[0].code, "AHBM-U211");

    let broken = |change: &dyn Fn(&mut Value)| {
        let mut document = document.clone();
        change(&mut document["gpus"][0]["threadblocks"][0]["ops"][2]);
        read(document.to_string().as_bytes(), "small.json", &ReadOptions::default()).unwrap_err()
    };
    for field in ["buffer_offset", "size", "dst_chunk", "channel_ids"] {
        let found = broken(&|op| drop(op.as_object_mut().unwrap().remove(field)));
        assert_eq!((found.code, &*found.sites[0].origin), ("AHBM-F145", "small.json#/gpus/0/threadblocks/0/ops/2"));
    }
    assert_eq!(broken(&|op| op["channel_ids"] = json!([3])).code, "AHBM-F144");
    assert_eq!(broken(&|op| op["dst_chunk"]["rank"] = json!(1)).code, "AHBM-F145");
    assert_eq!(broken(&|op| op["size"] = json!(2)).code, "AHBM-F145");
    assert_eq!(broken(&|op| op["buffer_offset"] = json!(2)).code, "AHBM-F146");
}
