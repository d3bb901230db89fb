//! Small execution plans: what they mean, and what is said about bad ones.

use crate::support::execution::{document, got, local, packets, pipeline, read_and_reduced, remote, switched};
use ahbm_check::{CheckOptions, Outcome, Verdict, check};
use ahbm_emulator::{Memory, Options, replay, simulate};
use ahbm_findings::Diagnostic;
use ahbm_formats::mscclpp::{ReadOptions, read};
use ahbm_machine::Machine;
use ahbm_plan::execution::{ExecutionPlan, Launch};
use ahbm_plan::{Budget, Limit, LowerOptions};
use ahbm_program::Dtype;
use proptest::prelude::*;
use serde_json::{Value, json};

fn try_plan(document: &Value, quirks: bool) -> Result<ExecutionPlan, Diagnostic> {
    read(document.to_string().as_bytes(), "small.json", &ReadOptions { quirks, ..ReadOptions::default() })
}

fn plan(document: &Value) -> ExecutionPlan {
    try_plan(document, false).unwrap()
}

fn verdict(plan: &ExecutionPlan) -> Verdict {
    let budget = Budget::default();
    let lowered = plan.lower_for_check(3, Launch::ODD, &budget).unwrap();
    let cells = u64::from(plan.chunks) * lowered.chunk_bytes / 8;
    let expectation = plan.goal.expectation(&lowered.ranks, cells, 8, &budget).unwrap();
    check(&lowered.program, &expectation, &CheckOptions::default())
}

#[test]
fn packets_carry_their_arrival() {
    assert_eq!(verdict(&plan(&packets())).outcome, Outcome::Correct);
    let mut silent = packets();
    silent["gpus"][1]["threadblocks"][0]["ops"].as_array_mut().unwrap().remove(0);
    let found = verdict(&plan(&silent));
    assert_eq!(found.outcome, Outcome::Deadlock);
    assert!(found.findings[0].to_string().contains("small.json#/gpus/0/threadblocks/0/ops/1"), "{}", found.findings[0]);
}

#[test]
fn a_port_sends_what_is_there() {
    let mut document = packets();
    for rank in 0..2 {
        let gpu = &mut document["gpus"][rank];
        gpu["channels"][0]["channel_type"] = json!("port");
        gpu["threadblocks"][0]["channels"][0]["channel_type"] = json!("port");
        gpu["threadblocks"][0]["remote_buffer_refs"][0]["access_channel_type"] = json!("port");
        gpu["threadblocks"][0]["ops"][0]["channel_type"] = json!("port");
    }
    let plain = plan(&document);
    assert_eq!(plain.warnings[0].code, "AHBM-F173");
    assert_eq!(verdict(&plain).outcome, Outcome::Deadlock);

    for rank in 0..2 {
        document["gpus"][rank]["scratch_chunks"] = json!(2);
        let ops = &mut document["gpus"][rank]["threadblocks"][0]["ops"];
        ops[0]["src_buff"] = json!([local("s", 1)]);
        let pack = json!({"name": "cpkt", "src_buff": [local("i", 0)], "dst_buff": [local("s", 1)]});
        ops.as_array_mut().unwrap().insert(0, pack);
    }
    assert_eq!(verdict(&plan(&document)).outcome, Outcome::Correct);
}

#[test]
fn other_ranks_are_read_and_written_one_by_one_or_through_a_switch() {
    for document in [got(), read_and_reduced(), switched()] {
        assert_eq!(verdict(&plan(&document)).outcome, Outcome::Correct, "{document}");
    }
}

#[test]
fn loops_run_their_stages_in_step() {
    assert_eq!(verdict(&plan(&pipeline())).outcome, Outcome::Correct);
    let mut early = pipeline();
    early["gpus"][0]["threadblocks"][1]["ops"][0]["ops"].as_array_mut().unwrap().remove(0);
    assert_eq!(verdict(&plan(&early)).outcome, Outcome::Wrong);
}

#[test]
fn a_signal_outside_and_a_wait_inside_a_loop_stop_at_the_second_iteration() {
    let channel = |name: &str| json!({"name": name, "channel_ids": [0], "channel_type": "memory"});
    let document = document("test", [1, 1, 0], |_| {
        let context = json!({"unit_size": 4096, "num_chunks": 1});
        vec![json!([channel("signal"), {"name": "pipeline", "iter_context": context, "ops": [channel("wait")]}])]
    });
    assert_eq!(verdict(&plan(&document)).outcome, Outcome::Deadlock);
}

#[test]
fn numbers_on_a_machine() {
    let machine = Machine::from_yaml("", "default", &[("system.sips.count".into(), "2".into())]).unwrap();
    for document in [packets(), pipeline()] {
        let plan = plan(&document);
        let bytes = 16_384u64;
        let lowered = plan.lower(&machine, &LowerOptions::new(bytes, Dtype::F32), Launch::EVEN).unwrap();
        assert!(ahbm_program::lint(&lowered.program, &machine).is_empty());
        let timeline = simulate(&lowered.program, &machine, &Options::default()).unwrap();
        let mut memory = Memory::new(&lowered.program);
        for (rank, buffers) in lowered.ranks.iter().enumerate() {
            for (k, element) in memory.bytes_mut(buffers.input.buffer).chunks_exact_mut(4).enumerate() {
                element.copy_from_slice(&((k + 1000 * rank) as f32).to_le_bytes());
            }
        }
        replay(&lowered.program, &timeline, &mut memory).unwrap();
        for buffers in &lowered.ranks {
            assert_eq!(buffers.output.bytes, bytes);
            for (k, element) in memory.bytes(buffers.output.buffer).chunks_exact(4).enumerate() {
                assert_eq!(f32::from_le_bytes(element.try_into().unwrap()), (2 * k + 1000) as f32);
            }
        }
    }
}

#[test]
fn a_group_shares_out_every_chunk_and_with_quirks_the_whole_operation() {
    let copy = |part: u32| {
        let span = |space: &str| json!([{"type": space, "index": 0, "size": 2}]);
        json!([{"name": "copy", "src_buff": span("i"), "dst_buff": span("o"), "tbg_info": {"tb_id": part, "tbg_size": 2}}])
    };
    let document = document("test", [2, 2, 0], |_| vec![copy(0), copy(1)]);
    let copies = |quirks: bool| {
        let plan = try_plan(&document, quirks).unwrap();
        assert_eq!(plan.warnings.iter().map(|w| w.code).collect::<Vec<_>>(), ["AHBM-F173"]);
        plan.lower_for_check(1, Launch::ODD, &Budget::default()).unwrap().program.ops()
    };
    assert_eq!((copies(false), copies(true)), (2 * (2 + 2) + 2, 2 * (1 + 1) + 2));
}

#[test]
fn get_and_min_mean_what_they_say_and_with_quirks_what_the_executor_does() {
    let get = document("test", [2, 2, 0], |_| {
        let op = json!({"name": "get", "src_buff": [remote(0, 0)], "dst_buff": [local("o", 1)], "channel_ids": [0],
            "channel_type": "memory"});
        vec![json!([op])]
    });
    let wrote = |quirks: bool| {
        let plan = try_plan(&get, quirks).unwrap();
        let program = plan.lower_for_check(1, Launch::ODD, &Budget::default()).unwrap().program;
        program.bodies[0].mems.iter().map(|mem| mem.offset).collect::<Vec<_>>()
    };
    assert_eq!((wrote(false), wrote(true)), (vec![0, 8], vec![8, 0]));

    let least = document("test", [1, 1, 0], |_| {
        let op = json!({"name": "re", "src_buff": [local("i", 0), local("i", 0)], "dst_buff": [local("o", 0)],
            "reduce_op": "min"});
        vec![json!([op])]
    });
    let machine = Machine::from_yaml("", "default", &[("system.sips.count".into(), "2".into())]).unwrap();
    let options = LowerOptions::new(1024, Dtype::F32);
    let refused = plan(&least).lower(&machine, &options, Launch::ODD).unwrap_err();
    assert_eq!(refused[0].code, "AHBM-U212");
    assert!(try_plan(&least, true).unwrap().lower(&machine, &options, Launch::ODD).is_ok());
}

#[test]
fn sizes_that_the_executor_refuses() {
    let machine = Machine::from_yaml("", "default", &[("system.sips.count".into(), "2".into())]).unwrap();
    let mut document = packets();
    (document["min_message_size"], document["max_message_size"]) = (json!(32), json!(64));
    let lower = |bytes: u64| plan(&document).lower(&machine, &LowerOptions::new(bytes, Dtype::F32), Launch::ODD);
    for bytes in [0, 16, 40, 80] {
        assert_eq!(lower(bytes).unwrap_err()[0].code, "AHBM-F147", "{bytes}");
    }
    assert!(lower(48).is_ok());
}

#[test]
fn bad_plans_are_named_with_their_place() {
    let broken = |edit: &dyn Fn(&mut Value)| {
        let mut document = packets();
        edit(&mut document);
        let error = try_plan(&document, false).unwrap_err();
        (error.code, error.sites[0].origin.clone())
    };
    let op = "small.json#/gpus/0/threadblocks/0/ops/";
    let set = |document: &mut Value, path: &str, value: Value| *document.pointer_mut(path).unwrap() = value;
    let first = "/gpus/0/threadblocks/0/ops/0";
    assert_eq!(broken(&|d| set(d, "/gpus/1/id", json!(7))), ("AHBM-F142", "small.json#/gpus/1".into()));
    assert_eq!(broken(&|d| set(d, "/gpus", json!([]))), ("AHBM-F143", "small.json#".into()));
    assert_eq!(broken(&|d| set(d, "/gpus/0/remote_buffers/0/rank", json!(2))).0, "AHBM-F144");
    assert_eq!(broken(&|d| set(d, "/gpus/0/threadblocks/0/channels/0/channel_ids", json!([4]))).0, "AHBM-F144");
    assert_eq!(
        broken(&|d| set(d, &format!("{first}/dst_buff/0/buffer_id"), json!(3))),
        ("AHBM-F144", format!("{op}0"))
    );
    assert_eq!(
        broken(&|d| set(d, &format!("{first}/dst_buff/0/buffer_id"), json!(0))),
        ("AHBM-F145", format!("{op}0"))
    );
    assert_eq!(broken(&|d| set(d, &format!("{first}/src_buff"), json!([]))), ("AHBM-F145", format!("{op}0")));
    assert_eq!(broken(&|d| set(d, &format!("{first}/src_buff/0/index"), json!(1))), ("AHBM-F146", format!("{op}0")));
    let text = read(b"{\n\"name\": 3}", "small.json", &ReadOptions::default()).unwrap_err();
    assert_eq!((text.code, &*text.sites[0].origin), ("AHBM-F141", "small.json:2"));
}

#[test]
fn what_no_executor_runs_is_named() {
    let mut document = packets();
    document["gpus"][0]["threadblocks"][0]["ops"][0]["name"] = json!("start");
    let plan = plan(&document);
    assert_eq!(plan.ranks.len(), 2);
    let refused = plan.lower_for_check(1, Launch::ODD, &Budget::default()).unwrap_err();
    assert_eq!(refused[0].code, "AHBM-U211");
    assert!(refused[0].message.contains("start"));
}

#[test]
fn what_would_break_on_hardware_is_a_warning() {
    let mut document = packets();
    document["protocol"] = json!("Simple");
    let ops = document["gpus"][0]["threadblocks"][0]["ops"].as_array_mut().unwrap();
    ops.extend((0..63).map(|_| json!({"name": "nop"})));
    ops.push(json!({"name": "signal", "channel_ids": [0, 0, 0, 0, 0, 0, 0, 0, 0], "channel_type": "memory"}));
    document["gpus"][1]["channels"] = json!([]);
    document["gpus"][1]["threadblocks"][0]["channels"] = json!([]);
    let codes: Vec<_> = plan(&document).warnings.iter().map(|warning| warning.code).collect();
    assert_eq!(codes, ["AHBM-F171", "AHBM-F172", "AHBM-F174", "AHBM-F172"]);
}

#[test]
fn a_small_file_cannot_ask_for_much() {
    let mut long = pipeline();
    for rank in 0..2 {
        for block in 0..2 {
            long["gpus"][rank]["threadblocks"][block]["ops"][0]["iter_context"]["unit_size"] = json!(4);
        }
    }
    let machine = Machine::from_yaml("", "default", &[("system.sips.count".into(), "2".into())]).unwrap();
    let refused = plan(&long).lower(&machine, &LowerOptions::new(1 << 31, Dtype::F32), Launch::ODD).unwrap_err();
    assert_eq!(refused[0].code, "AHBM-B209");

    let mut wide = pipeline();
    (0..2).for_each(|rank| wide["gpus"][rank]["input_chunks"] = json!(u32::MAX));
    (0..2).for_each(|rank| wide["gpus"][rank]["output_chunks"] = json!(u32::MAX));
    let span = json!([{"type": "i", "index": 0, "size": u32::MAX}]);
    let group = json!({"tb_id": 0, "tbg_size": 2});
    let copy = json!([{"name": "copy", "src_buff": span, "dst_buff": span, "tbg_info": group}]);
    wide["gpus"][0]["threadblocks"][0]["ops"] = copy;
    assert_eq!(try_plan(&wide, false).unwrap_err().code, "AHBM-B209");
    let limited = ReadOptions { budget: Budget::default().with(Limit::Ranks, 1), quirks: false };
    assert_eq!(read(packets().to_string().as_bytes(), "small.json", &limited).unwrap_err().code, "AHBM-B206");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 512 } else { 20_000 }))]

    /// Whatever is written over a plan, reading and lowering it answer.
    #[test]
    fn edited_bytes_are_answered(
        loops in any::<bool>(), quirks in any::<bool>(), cut in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(b"0123456789{}[],:\"\\abcio".to_vec())), 0..4),
    ) {
        let mut bytes = if loops { pipeline() } else { packets() }.to_string().into_bytes();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if cut.index(4) == 0 {
            bytes.truncate(cut.index(bytes.len()));
        }
        let budget = Budget::default().with(Limit::Ops, 1 << 16);
        if let Ok(plan) = read(&bytes, "edited.json", &ReadOptions { budget, quirks })
            && let Ok(lowered) = plan.lower_for_check(2, Launch::EVEN, &budget)
        {
            prop_assert!(quirks || ahbm_program::structure(&lowered.program).is_empty());
        }
    }
}
