//! Runs of the public simulator, to the nanosecond. `AHBM_CORPUS` names the folder that has them.

use ahbm_astra::{Backend, Files, Flags, Options, Setup};
use ahbm_formats::chakra::ReadOptions;
use serde_json::Value;
use std::path::PathBuf;

#[test]
fn every_recorded_run_is_reproduced() {
    let Some(folder) = std::env::var_os("AHBM_CORPUS") else { return };
    let folder = PathBuf::from(folder).join("astra_sim");
    let index: Value = serde_json::from_slice(&std::fs::read(folder.join("index.json")).unwrap()).unwrap();
    let mut wrong = Vec::new();
    let cases = index["cases"].as_array().unwrap();
    for case in cases {
        let id = case["id"].as_str().unwrap();
        if let Err(how) = run(&folder, case) {
            wrong.push(format!("{id} ({}): {how}", case["family"]));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn run(folder: &std::path::Path, case: &Value) -> Result<(), String> {
    let path = |key: &str| case[key].as_str().map(|name| folder.join(name));
    let files = Files {
        workload: path("workload").unwrap(),
        system: path("system").unwrap(),
        network: path("network").unwrap(),
        memory: path("memory").unwrap(),
        groups: path("groups"),
    };
    let aware = case["backend"] == "congestion_aware";
    let flags = Flags {
        backend: if aware { Backend::CongestionAware } else { Backend::CongestionUnaware },
        queues: case["flags"]["num-queues-per-dim"].as_u64().unwrap_or(1) as u32,
        injection_scale: case["flags"]["injection-scale"].as_f64().unwrap_or(1.0),
        rendezvous: case["flags"]["rendezvous-protocol"].as_bool().unwrap_or(false),
    };
    let broken = case["broken"].is_string();
    let told = |what: String| if broken { Ok(()) } else { Err(what) };
    let setup = match Setup::read(&files, &ReadOptions::default()) {
        Ok(setup) => setup,
        Err(findings) => return told(findings[0].to_string()),
    };
    if let Some(first) = setup.findings().first() {
        return told(first.to_string());
    }
    let report = match setup.run(flags, &Options { times: true, ..Options::default() }) {
        Ok(report) => report,
        Err(finding) => return told(finding.to_string()),
    };
    if let Some(finding) = report.findings.first() {
        return told(finding.to_string());
    }
    if broken {
        return Err("nothing is said".into());
    }
    let times = |key: &str| case[key].as_array().map(|list| list.iter().map(Value::as_u64).collect::<Vec<_>>());
    let cycles: Vec<_> = report.ranks.iter().map(|rank| rank.cycles).collect();
    let exposed: Vec<_> = report.ranks.iter().map(|rank| rank.exposed).collect();
    if Some(&cycles) != times("cycles").as_ref() {
        return Err(format!("cycles {cycles:?}, not {:?}", times("cycles")));
    }
    if Some(&exposed) != times("exposed").as_ref() {
        return Err(format!("exposed {exposed:?}, not {:?}", times("exposed")));
    }
    let comm: Vec<_> = report.ranks.iter().map(|rank| Some(rank.comm_ns)).collect();
    if times("comm_time").is_some_and(|recorded| recorded != comm) {
        return Err(format!("communication {comm:?}, not {:?}", times("comm_time")));
    }
    let gpu: Vec<_> = report.ranks.iter().map(|rank| Some(rank.gpu_ns)).collect();
    if times("gpu_time").is_some_and(|recorded| recorded != gpu) {
        return Err(format!("computation {gpu:?}, not {:?}", times("gpu_time")));
    }
    let Some(file) = path("times") else { return Ok(()) };
    let recorded: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    for (rank, nodes) in recorded.as_object().unwrap() {
        let rank: usize = rank.parse().unwrap();
        let graph = setup.job.graph(rank as u32);
        for node in nodes.as_array().unwrap() {
            let at = graph.nodes().binary_search_by_key(&node[0].as_u64().unwrap(), |node| node.id).unwrap();
            let ran = report.times.as_ref().unwrap()[rank][at];
            if (Some(ran.0), Some(ran.1)) != (node[1].as_u64(), node[2].as_u64()) {
                return Err(format!("rank {rank} node {node}: {ran:?}"));
            }
        }
    }
    Ok(())
}
