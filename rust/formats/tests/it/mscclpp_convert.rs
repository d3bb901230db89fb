//! Execution plans as targets and sources of conversions: what is written means what was read.

use crate::support::execution::{document, got, packets, pipeline, read_and_reduced, switched};
use crate::support::plans::{Shape, at, step};
use ahbm_check::{Outcome, PlanCheck, as_blocks, check_plan};
use ahbm_findings::Diagnostic;
use ahbm_formats::chakra::PlanOptions;
use ahbm_formats::convert::render;
use ahbm_formats::mscclpp::{self, ReadOptions, from_plan, write};
use ahbm_formats::{Document, msccl_xml};
use ahbm_plan::blocks::Action;
use ahbm_plan::execution::{ExecutionPlan, Launch};
use ahbm_plan::{Algorithm, BY_PROTOCOL, Budget, Goal, Plan, Protocol, Space};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

fn outcome(document: &Document, slots: u32) -> Outcome {
    check_plan(&document.algorithm, &PlanCheck { slots, orders: 2, ..PlanCheck::default() }).outcome
}

fn read(bytes: &[u8], name: &str) -> ExecutionPlan {
    mscclpp::read(bytes, name, &ReadOptions::default()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The file for a thread-block plan, read again.
fn written(plan: &Plan, slots: u32) -> Result<ExecutionPlan, Vec<Diagnostic>> {
    Ok(read(&write(&from_plan(plan, slots, &Budget::default())?)?, "written.json"))
}

/// What the written plan comes to; one that cannot be written is no sound one.
fn written_outcome(plan: &Plan, slots: u32) -> Outcome {
    written(plan, slots).map_or(Outcome::Malformed, |plan| outcome(&Document::mscclpp(plan), 2))
}

/// Under LL every message has a slot of its own.
fn depth(plan: &Plan, slots: u32) -> u32 {
    if plan.protocol == Protocol::Ll { u32::MAX } else { slots }
}

#[test]
fn every_shape_is_written() {
    for shape in Shape::ALL {
        for protocol in [Protocol::Simple, Protocol::Ll] {
            let plan = Plan { protocol, ..shape.plan(4, 2) };
            assert_eq!(outcome(&Document::msccl(plan.clone()), 2), Outcome::Correct, "{shape:?}");
            let json = written(&plan, 2).unwrap();
            assert_eq!((json.warnings.as_slice(), json.chunks), ([].as_slice(), plan.chunks), "{shape:?} {protocol:?}");
            assert_eq!(outcome(&Document::mscclpp(json), 2), Outcome::Correct, "{shape:?} {protocol:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 48 } else { 2000 }))]

    /// The written plan has the verdict of the plan, whatever the depth of its queues, and also when a step does
    /// nothing.
    #[test]
    fn verdicts_survive_writing(
        shape in prop::sample::select(Shape::ALL.to_vec()), ranks in 2u32..6, width in 1u32..4, slots in 1u32..4,
        ll in any::<bool>(), broken in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let protocol = if ll { Protocol::Ll } else { Protocol::Simple };
        let mut plan = Plan { protocol, ..shape.plan(ranks, width) };
        if let Some(index) = broken {
            let steps = plan.ranks.iter_mut().flat_map(|r| &mut r.blocks).flat_map(|b| &mut b.steps);
            let mut steps: Vec<_> = steps.collect();
            let at = index.index(steps.len());
            steps[at].action = Action::Nop;
        }
        let wanted = outcome(&Document::msccl(plan.clone()), depth(&plan, slots));
        let found = written_outcome(&plan, slots);
        // What a plan that gets stuck is called differs; that it is not right does not.
        prop_assert_eq!(wanted == Outcome::Correct, found == Outcome::Correct, "{:?} {:?}", wanted, found);
        prop_assert!(broken.is_none() || found != Outcome::Correct, "{:?}", found);
        prop_assert!(broken.is_some() || wanted == found, "{:?} {:?}", wanted, found);
        // And back: whatever does not get stuck needs one slot.
        if found == Outcome::Correct {
            let back = translated(&written(&plan, slots).unwrap()).unwrap();
            prop_assert_eq!(outcome(&Document::msccl(back), 1), Outcome::Correct);
        }
    }
}

#[test]
fn what_the_schema_cannot_say_is_named() {
    let code = |plan: &Plan| {
        let findings = written(plan, 2).unwrap_err();
        (findings[0].code, findings[0].sites[0].origin.clone())
    };
    let ring = Shape::Ring.plan(3, 1);
    assert_eq!(code(&Plan { protocol: Protocol::Ll128, ..ring.clone() }), ("AHBM-U292", "made.xml:1".into()));

    let mut beyond = ring.clone();
    beyond.ranks[1].declared[0] = 9;
    beyond.ranks[1].blocks[0].steps[0] = step(Action::Send, at(Space::Input, 7), at(Space::Input, 7), 1);
    assert_eq!(code(&beyond), ("AHBM-U292", "made.xml:0".into()));

    let mut uneven = Shape::Ring.plan(3, 2);
    uneven.ranks[0].blocks[0].steps[0].count = 1;
    assert_eq!(code(&uneven).0, "AHBM-U292");

    let mut alone = ring;
    alone.ranks[2].blocks[0].recv = Some(0);
    assert_eq!(code(&alone).0, "AHBM-F128");
}

/// The thread-block plan of an execution plan, through its file.
fn translated(plan: &ExecutionPlan) -> Result<Plan, Vec<Diagnostic>> {
    let algorithm = Algorithm::Execution(plan.clone());
    let plan = as_blocks(&algorithm, &PlanCheck::default())?;
    let budget = Budget::default();
    let files = render(&plan, Path::new("translated.xml"), BY_PROTOCOL, &budget, &PlanOptions::default())?;
    msccl_xml::read(&files[0].bytes, "translated.xml", &budget)
}

#[test]
fn whoever_moves_the_bytes_a_message_carries_them() {
    for document in [packets(), pipeline(), got(), switched(), read_and_reduced()] {
        let json = read(document.to_string().as_bytes(), "small.json");
        let once = check_plan(&Algorithm::Execution(json.clone()), &PlanCheck { calls: 1, ..PlanCheck::default() });
        assert_eq!(once.outcome, Outcome::Correct, "{document}");
        let xml = translated(&json).unwrap();
        assert_eq!(outcome(&Document::msccl(xml.clone()), 1), Outcome::Correct, "{}", msccl_xml::write(&xml));
        assert_eq!(written_outcome(&xml, 1), Outcome::Correct);
    }
}

#[test]
fn a_plan_without_chunks_can_be_converted() {
    let meet = |name: &str| serde_json::json!({"name": name, "channel_ids": [0], "channel_type": "memory"});
    let text = document("test", [0, 0, 0], |_| vec![serde_json::json!([meet("signal"), meet("wait")])]);
    let json = Algorithm::Execution(read(text.to_string().as_bytes(), "small.json"));
    let plan = as_blocks(&json, &PlanCheck::default()).unwrap();
    for name in ["empty.xml", "empty.et"] {
        assert!(
            render(&plan, Path::new(name), BY_PROTOCOL, &Budget::default(), &PlanOptions::default()).is_ok(),
            "{name}"
        );
    }
}

#[test]
fn a_ring_comes_back_as_one_thread_block_per_rank() {
    let plan = Shape::Ring.plan(4, 1);
    let again = translated(&from_plan(&plan, 2, &Budget::default()).unwrap()).unwrap();
    assert!(again.ranks.iter().all(|rank| rank.blocks.len() == 1), "{}", msccl_xml::write(&again));
    assert_eq!(again.channels, 1);
}

#[test]
fn what_thread_blocks_cannot_say_is_named() {
    let code = |document: &serde_json::Value| {
        let findings = translated(&read(document.to_string().as_bytes(), "small.json")).unwrap_err();
        (findings[0].code, findings[0].sites[0].origin.clone())
    };
    let ops = "/gpus/0/threadblocks/0/ops";
    let mut least = packets();
    for rank in 0..2 {
        least["gpus"][rank]["threadblocks"][0]["ops"][1]["reduce_op"] = serde_json::json!("min");
    }
    assert_eq!(code(&least), ("AHBM-U292", format!("small.json#{ops}/1")));
    let mut stuck = packets();
    stuck["gpus"][1]["threadblocks"][0]["ops"] = serde_json::json!([]);
    assert_eq!(code(&stuck), ("AHBM-U292", "small.json".into()));
    let mut custom = switched();
    custom["collective"] = serde_json::json!("mine");
    assert_eq!(code(&custom).0, "AHBM-U292");
}

fn corpus(folder: &str) -> Option<(PathBuf, serde_json::Map<String, serde_json::Value>)> {
    let folder = PathBuf::from(std::env::var_os("AHBM_CORPUS")?).join(folder);
    let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    Some((folder, serde_json::from_str(&text).unwrap()))
}

fn bytes(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).unwrap()
}

#[test]
fn plans_of_the_corpus_are_written_again() {
    let Some((folder, expected)) = corpus("mscclpp_json") else { return };
    let mut refused = Vec::new();
    for name in expected.keys() {
        let Ok(plan) = mscclpp::read(&bytes(&folder, name), name, &ReadOptions::default()) else { continue };
        let again = match write(&plan) {
            Ok(text) => read(&text, name),
            Err(findings) => {
                refused.push((name, findings[0].code));
                continue;
            }
        };
        let hash =
            |plan: &ExecutionPlan| plan.lower_for_check(3, Launch::EVEN, &Budget::default()).unwrap().program.hash();
        assert_eq!(hash(&again), hash(&plan), "{name}");
        assert_eq!(again.ends, plan.ends, "{name}");
        assert_eq!(again.warnings.len(), plan.warnings.len(), "{name}");
    }
    assert!(refused.iter().all(|(_, code)| *code == "AHBM-U211"), "{refused:?}");
}

#[test]
fn thread_block_plans_of_the_corpus_are_written_as_execution_plans() {
    let Some((folder, expected)) = corpus("msccl_xml") else { return };
    let mut differ = Vec::new();
    for name in expected.keys() {
        let plan = msccl_xml::read(&bytes(&folder, name), name, &Budget::default()).unwrap();
        // LL128 has no words; its order is that of Simple.
        let protocol = if plan.protocol == Protocol::Ll { Protocol::Ll } else { Protocol::Simple };
        let plan = Plan { protocol, ..plan };
        let wanted = outcome(&Document::msccl(plan.clone()), depth(&plan, 2));
        match written(&plan, 2) {
            Err(findings) => differ.push(format!("{name}: {wanted:?}, {}", findings[0])),
            Ok(json) => {
                let found = outcome(&Document::mscclpp(json), 2);
                if found != wanted {
                    differ.push(format!("{name}: {wanted:?}, written {found:?}"));
                }
            }
        }
    }
    assert!(differ.is_empty(), "{} differ\n{}", differ.len(), differ.join("\n"));
}

#[test]
fn execution_plans_of_the_corpus_are_written_as_thread_block_plans() {
    let Some((folder, expected)) = corpus("mscclpp_json") else { return };
    let (mut differ, mut refused, mut same) = (Vec::new(), Vec::new(), 0);
    for name in expected.keys() {
        let Ok(plan) = mscclpp::read(&bytes(&folder, name), name, &ReadOptions::default()) else { continue };
        let wanted = outcome(&Document::mscclpp(plan.clone()), 2);
        match translated(&plan) {
            Err(findings) => {
                let shift = matches!(plan.goal, Goal::SendRecv { shift: 2.. });
                assert!(wanted != Outcome::Correct || shift, "{name}: {}", findings[0]);
                assert!(["AHBM-U211", "AHBM-U292"].contains(&findings[0].code), "{name}: {}", findings[0]);
                refused.push(format!("{name}: {wanted:?}, {}", findings[0]));
            }
            Ok(xml) => {
                let found = outcome(&Document::msccl(xml), 1);
                same += usize::from(found == wanted);
                if found != wanted {
                    differ.push(format!("{name}: {wanted:?}, written {found:?}"));
                }
            }
        }
    }
    // Those that get stuck, race, have no executor or send further than to the next rank.
    println!("{same} the same, {} refused:\n{}", refused.len(), refused.join("\n"));
    assert!(differ.is_empty(), "{} differ\n{}", differ.len(), differ.join("\n"));
}
