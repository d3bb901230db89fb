//! The public traces, where they are at hand (`AHBM_CORPUS`).

use ahbm_check::{Outcome, PlanCheck, check_plan};
use ahbm_emulator::{Options, simulate};
use ahbm_formats::chakra::{ReadOptions, read};
use ahbm_formats::document::{Document, Reading};
use ahbm_machine::Machine;
use ahbm_plan::LowerOptions;
use ahbm_program::Dtype;
use std::path::PathBuf;

fn corpus() -> Option<PathBuf> {
    std::env::var_os("AHBM_CORPUS").map(|c| PathBuf::from(c).join("chakra"))
}

#[test]
fn algorithms_are_sound_and_run() {
    let Some(corpus) = corpus() else { return };
    let overrides = [
        ("system.network_model", "analytic"),
        ("system.sips.link.latency_ns", "500"),
        ("system.sips.link.bandwidth_gbs", "53.6870912"),
    ];
    let overrides = overrides.map(|(k, v)| (k.to_string(), v.to_string()));
    let machine = Machine::from_yaml(
        include_str!("../../../../python/ahbm/data/topologies/npu_ring_8.yaml"),
        "npu_ring_8.yaml",
        &overrides,
    )
    .unwrap();
    for (name, bytes) in [("ring", 1 << 20), ("rdh", 1 << 20), ("agrd", 1 << 20)] {
        for (dialect, bytes) in [("old", 0), ("new", bytes)] {
            let folder = corpus.join(format!("algorithm/{dialect}_{name}_8"));
            let trace = read(&folder, &ReadOptions::default()).unwrap();
            let options = LowerOptions { slots: u32::MAX, ..LowerOptions::new(bytes, Dtype::U8) };
            let program = trace.lower(&machine, &options).unwrap();
            let ns = simulate(&program, &machine, &Options::default()).unwrap().latency as f64 / 1000.0;
            if (dialect, name) == ("old", "ring") {
                assert!((ns - 90_174.0).abs() < 30.0, "{ns}");
            }
            let document = Document::read(&folder, &Reading::default()).unwrap();
            assert_eq!(document.warnings(), []);
            let expected = if dialect == "new" { Outcome::Correct } else { Outcome::NoExpectation };
            let verdict = check_plan(&document.algorithm, &PlanCheck::default());
            assert_eq!((verdict.outcome, verdict.min_slots), (expected, Some(1)), "{dialect} {name}");
        }
    }
}

#[test]
fn workloads_are_counted() {
    let Some(corpus) = corpus() else { return };
    let strict = ReadOptions::default();
    let single = read(&corpus.join("workload/single_allreduce_8"), &strict).unwrap().summary();
    assert_eq!((single.ranks, single.algorithm), (8, false));
    assert_eq!(single.collectives["all_reduce"], (8, 8 << 20));
    let llama = read(&corpus.join("workload/stg_llama_dp2tp2pp2/workload"), &strict).unwrap().summary();
    assert_eq!(llama.ranks, 8);
    let real = corpus.join("workload/pytorch_trace.0.et");
    assert_eq!(read(&real, &strict).unwrap_err()[0].code, "AHBM-F134");
    let lenient = Reading { lenient: true, ..Reading::default() };
    let document = Document::read(&real, &lenient).unwrap();
    assert_eq!(document.warnings()[0].code, "AHBM-F164");
    assert_eq!(check_plan(&document.algorithm, &PlanCheck::default()).findings[0].code, "AHBM-U231");
    let real = read(&real, &ReadOptions { lenient: true, ..strict }).unwrap().summary();
    assert_eq!((real.nodes.values().sum::<u64>(), real.dangling), (3664, 1277));
}
