//! Third-party files with known verdicts, where AHBM_CORPUS names them.

use crate::support::msccl;

use ahbm_check::Outcome;
use ahbm_formats::chakra::{self, PlanOptions, ReadOptions, Trace};
use ahbm_formats::msccl_xml;
use ahbm_plan::{Budget, Plan};
use std::path::Path;

/// The writer's file loads in the executor and is the same program.
fn written_again(name: &str, plan: &Plan) {
    let again = msccl_xml::read(msccl_xml::write(plan).as_bytes(), name, &Budget::default()).expect("a plan");
    assert!(again.warnings.iter().all(|w| w.code != "AHBM-F150"), "{name}");
    let hash = |plan: &Plan| plan.lower_for_check(2, &Budget::default()).map(|l| l.program.hash());
    assert_eq!(hash(&again), hash(plan), "{name}");
}

/// As a trace and back it is the same file. Returns whether a trace can express it.
fn traced_and_back(name: &str, plan: &Plan) -> bool {
    let budget = Budget::default();
    let trace = match Trace::from_plan(name, plan, &PlanOptions::default()) {
        Ok(trace) => trace,
        Err(findings) => {
            assert_eq!(findings[0].code, "AHBM-U292", "{name}: {}", findings[0]);
            return false;
        }
    };
    let bytes = trace.to_bytes();
    let names: Vec<String> = (0..bytes.len()).map(|rank| format!("{name}.{rank}.et")).collect();
    let files: Vec<_> = names.iter().map(String::as_str).zip(bytes.iter().map(Vec::as_slice)).collect();
    let again = chakra::parse(name, &files, &ReadOptions { budget, lenient: false }).expect("a trace");
    let again = again.to_plan(&budget).unwrap_or_else(|findings| panic!("{name}: {}", findings[0]));
    assert_eq!(msccl_xml::write(&again), msccl_xml::write(plan), "{name}");
    true
}

#[test]
fn verdicts_of_the_corpus() {
    let Some(corpus) = std::env::var_os("AHBM_CORPUS") else { return };
    let folder = Path::new(&corpus).join("msccl_xml");
    let expected: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("expected.json")).expect("a corpus")).expect("JSON");
    let (mut wrong, mut untraced) = (Vec::new(), 0);
    for (name, facts) in expected.as_object().expect("an object") {
        let bytes = std::fs::read(folder.join(name)).expect("a file of the corpus");
        let plan = match msccl_xml::read(&bytes, name, &Budget::default()) {
            Ok(plan) => plan,
            Err(findings) => {
                wrong.push(format!("{name}: {}", findings[0]));
                continue;
            }
        };
        assert_eq!(facts["ranks"], plan.ranks.len(), "{name}");
        written_again(name, &plan);
        untraced += usize::from(!traced_and_back(name, &plan));
        for (field, slots) in [("fifo_1", 1), ("fifo_2", 2), ("fifo_unbounded", u32::MAX)] {
            let verdict = msccl::verdict(&plan, slots);
            let word = match verdict.outcome {
                Outcome::Correct => "ok",
                Outcome::Wrong => "wrong",
                Outcome::Deadlock => "deadlock",
                Outcome::NoExpectation => "custom",
                _ => "other",
            };
            // Without a post-condition the corpus cannot tell a race.
            let unknown = facts[field] == "custom" && verdict.outcome == Outcome::Race;
            if facts[field] != word && !unknown {
                let first = verdict.findings.first().map(ToString::to_string).unwrap_or_default();
                wrong.push(format!("{name} {field}: {word}, expected {}: {first}", facts[field]));
            }
        }
    }
    assert_eq!(untraced, 0, "files that no trace can express");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
