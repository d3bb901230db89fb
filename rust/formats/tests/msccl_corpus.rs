//! Third-party files with known verdicts, where AHBM_CORPUS names them.

#[path = "support/msccl.rs"]
mod support;

use ahbm_emulator::check::Outcome;
use ahbm_formats::{Budget, Plan, msccl_xml};
use std::path::Path;

/// The writer's file loads in the executor and is the same program.
fn written_again(name: &str, plan: &Plan) {
    let again = msccl_xml::read(msccl_xml::write(plan).as_bytes(), name, &Budget::default()).expect("a plan");
    assert!(again.warnings.iter().all(|w| w.code != "AHBM-F150"), "{name}");
    let hash = |plan: &Plan| plan.lower_for_check(2, &Budget::default()).map(|l| l.program.hash());
    assert_eq!(hash(&again), hash(plan), "{name}");
}

#[test]
fn verdicts_of_the_corpus() {
    let Some(corpus) = std::env::var_os("AHBM_CORPUS") else { return };
    let folder = Path::new(&corpus).join("msccl_xml");
    let expected: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("expected.json")).expect("a corpus")).expect("JSON");
    let mut wrong = Vec::new();
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
        for (field, slots) in [("fifo_1", 1), ("fifo_2", 2), ("fifo_unbounded", u32::MAX)] {
            let verdict = support::verdict(&plan, slots);
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
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
