//! Every execution plan of the corpus gets its verdict. Runs where `AHBM_CORPUS` names the corpus.

use ahbm_check::{CheckOptions, Outcome, Verdict, check};
use ahbm_formats::mscclpp::{ReadOptions, read};
use ahbm_plan::execution::{ExecutionPlan, Launch};
use ahbm_plan::{Budget, Goal};
use std::path::PathBuf;

fn verdict(plan: &ExecutionPlan, iterations: u32, launch: Launch) -> Verdict {
    let budget = Budget::default();
    match plan.lower_for_check(iterations, launch, &budget) {
        Err(findings) => Verdict::new(Outcome::Unsupported, findings),
        Ok(lowered) => {
            let cells = u64::from(plan.chunks) * lowered.chunk_bytes / 8;
            let expectation = plan.goal.expectation(&lowered.ranks, cells, 8, &budget).unwrap();
            let options = CheckOptions { min_slots: false, ..CheckOptions::default() };
            check(&lowered.program, &expectation, &options)
        }
    }
}

/// Whether a verdict is what the corpus expects; a race is what makes a sampled result wrong.
fn agrees(expected: &str, plan: &ExecutionPlan, found: &Verdict) -> bool {
    match expected {
        "ok" => found.outcome == Outcome::Correct,
        "runs" => plan.goal == Goal::Custom && found.outcome == Outcome::NoExpectation,
        "deadlock" => found.outcome == Outcome::Deadlock,
        "wrong" => matches!(found.outcome, Outcome::Wrong | Outcome::Race),
        // The executor does not load these; here they run, and only quirks refuse them.
        "unsupported_op" => found.outcome == Outcome::Correct,
        _ => true,
    }
}

#[test]
fn verdicts_of_the_corpus() {
    let Some(folder) = std::env::var_os("AHBM_CORPUS").map(|root| PathBuf::from(root).join("mscclpp_json")) else {
        return;
    };
    let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    let mut differ = Vec::new();
    for (name, entry) in &expected {
        let expected = entry["expected"].as_str().unwrap();
        let bytes = std::fs::read(folder.join(name)).unwrap();
        let plan = match read(&bytes, name, &ReadOptions::default()) {
            Ok(plan) => plan,
            Err(finding) => {
                if expected != "undetermined" {
                    differ.push(format!("{name}: expected {expected}, malformed: {finding}"));
                }
                continue;
            }
        };
        let quirks = ReadOptions { quirks: true, ..ReadOptions::default() };
        if let Ok(plan) = read(&bytes, name, &quirks) {
            // Whatever the defects do to it, it has a verdict.
            let found = verdict(&plan, 1, Launch::EVEN);
            if (expected == "unsupported_op") != (found.outcome == Outcome::Unsupported) {
                differ.push(format!("{name} with quirks: expected {expected}, {:?}", found.outcome));
            }
        }
        for (iterations, launch) in [(1, Launch::ODD), (3, Launch::ODD), (1, Launch::EVEN)] {
            let found = verdict(&plan, iterations, launch);
            if !agrees(expected, &plan, &found) {
                let first = found.findings.first().map(ToString::to_string).unwrap_or_default();
                differ.push(format!(
                    "{name} x{iterations} {launch:?}: expected {expected}, {:?}: {first}",
                    found.outcome
                ));
            }
        }
    }
    assert!(differ.is_empty(), "{} differ\n{}", differ.len(), differ.join("\n"));
}
