//! Every method's schedule is right, causal and no quicker than its bound.

use ahbm_machine::Machine;
use ahbm_synthesis::{Collective, Graph, METHODS, Request, synthesize};

fn network(topology: &str, sips: u32) -> Graph {
    let text = include_str!("../../../topologies/npu_ring_8.yaml");
    let set = |k: &str, v: String| (k.to_string(), v);
    let overrides = [set("system.sips.topology", topology.into()), set("system.sips.count", sips.to_string())];
    Graph::of(&Machine::from_yaml(text, "npu_ring_8.yaml", &overrides).unwrap()).unwrap()
}

fn request(collective: Collective, method: &str) -> Request {
    Request { collective, share_bytes: 64_000, chunks: 2, unit: 2, root: 3, method: method.into(), seed: 1 }
}

#[test]
fn every_schedule_is_right_and_respects_its_bound() {
    for (topology, sips) in [
        ("ring_1d", 5),
        ("ring_1d", 8),
        ("mesh_2d_no_wrap", 16),
        ("torus_2d", 16),
        ("mesh_3d", 27),
        ("hypercube", 16),
        ("fully_connected", 8),
    ] {
        let graph = network(topology, sips);
        for (name, collective) in Collective::ALL {
            let limit = request(collective, "auto").bound(&graph).unwrap();
            for method in METHODS {
                match synthesize(&graph, &request(collective, method), &limit) {
                    Ok(found) => {
                        found.schedule.check(&graph).unwrap_or_else(|e| panic!("{topology} {name} {method}: {e}"));
                        assert!(
                            found.time_ps >= limit.ps,
                            "{topology} {name} {method}: {} < {}",
                            found.time_ps,
                            limit.ps
                        );
                    }
                    Err(finding) => assert_eq!(finding.code, "AHBM-U406"),
                }
            }
            let best = synthesize(&graph, &request(collective, "auto"), &limit).unwrap();
            let again = synthesize(&graph, &request(collective, "auto"), &limit).unwrap();
            assert_eq!(best, again);
        }
    }
}
