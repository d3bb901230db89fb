//! Every method's schedule is right, causal and no quicker than its bound.

use ahbm_machine::Machine;
use ahbm_synthesis::{Collective, Graph, METHODS, Request, Synthesis, synthesize};

fn network(topology: &str, sips: u32) -> Graph {
    let text = include_str!("../../../../python/ahbm/data/topologies/npu_ring_8.yaml");
    let set = |k: &str, v: String| (k.to_string(), v);
    let overrides = [set("system.sips.topology", topology.into()), set("system.sips.count", sips.to_string())];
    Graph::of(&Machine::from_yaml(text, "npu_ring_8.yaml", &overrides).unwrap()).unwrap()
}

fn request(collective: Collective, method: &str) -> Request {
    Request {
        collective,
        share_bytes: 64_000,
        chunks: 2,
        unit: 2,
        members: vec![],
        root: 3,
        method: method.into(),
        seed: 1,
    }
}

#[test]
fn every_schedule_is_right_and_respects_its_bound() {
    let mut refused = 0;
    for (topology, sips) in [
        ("ring_1d", 5),
        ("ring_1d", 8),
        ("mesh_2d_no_wrap", 16),
        ("torus_2d", 16),
        ("mesh_3d", 27),
        ("hypercube", 16),
        ("fully_connected", 8),
        ("torus_3d", 8),
        ("mesh_2d_no_wrap", 9),
        ("switch", 6),
        ("switch", 8),
    ] {
        let graph = network(topology, sips);
        for (name, collective) in Collective::ALL {
            let limit = request(collective, "auto").bound(&graph).unwrap();
            let mut quickest = None;
            for method in METHODS.map(|m| m.name()) {
                match synthesize(&graph, &request(collective, method), &limit) {
                    Ok(found) => {
                        found.schedule.check(&graph).unwrap_or_else(|e| panic!("{topology} {name} {method}: {e}"));
                        assert!(
                            found.time_ps >= limit.ps,
                            "{topology} {name} {method}: {} < {}",
                            found.time_ps,
                            limit.ps
                        );
                        quickest = quickest.filter(|q: &Synthesis| q.time_ps <= found.time_ps).or(Some(found));
                    }
                    Err(finding) => {
                        assert_eq!(finding.code, "AHBM-U406");
                        refused += 1;
                    }
                }
            }
            let best = synthesize(&graph, &request(collective, "auto"), &limit).unwrap();
            let again = synthesize(&graph, &request(collective, "auto"), &limit).unwrap();
            assert_eq!(best, again);
            // What is not finished because another method is quicker is never the quickest.
            assert_eq!(Some(best), quickest);
        }
    }
    assert!(refused > 0);
}

/// A line 2 - 0 - 1, a triangle with a quick way round its slow link, and regular networks.
#[test]
fn no_number_of_chunks_beats_the_bound() {
    let custom = |edges: &[(u32, u32, u64)]| {
        let rate = ahbm_machine::Rate::from_gbs(50.0).unwrap();
        let both = |&(a, b, ns): &(u32, u32, u64)| [(a, b, ns), (b, a, ns)];
        let link = |(from, to, ns)| ahbm_synthesis::Link { from, to, rate, latency_ps: ns * 1000 };
        Graph::new(3, edges.iter().flat_map(both).map(link).collect()).unwrap()
    };
    let mut met = 0;
    for graph in [
        custom(&[(0, 1, 500), (0, 2, 500)]),
        custom(&[(0, 1, 100), (0, 2, 100), (1, 2, 1000)]),
        network("ring_1d", 5),
        network("mesh_2d_no_wrap", 9),
        network("switch", 6),
    ] {
        for (name, collective) in Collective::ALL {
            for members in [vec![], vec![2, 0, 1]] {
                let of = |chunks| Request { chunks, root: 2, members: members.clone(), ..request(collective, "auto") };
                let limit = of(1).bound(&graph).unwrap();
                for chunks in [1, 2, 3, 8, 32] {
                    let request = of(chunks);
                    assert_eq!(request.bound(&graph).unwrap(), limit);
                    for method in METHODS.map(|m| m.name()) {
                        let request = Request { method: method.into(), ..request.clone() };
                        let Ok(found) = synthesize(&graph, &request, &limit) else { continue };
                        assert!(found.time_ps >= limit.ps, "{name} {members:?} {method} {chunks}: {}", found.time_ps);
                        met += usize::from(found.time_ps == limit.ps);
                    }
                }
            }
        }
    }
    assert!(met > 100, "{met}: bounds that nothing reaches prove little");
}

#[test]
fn groups_borrow_links_and_npus_of_others() {
    for (topology, sips, members) in [
        ("mesh_2d_no_wrap", 16, vec![0, 15, 3, 12]),
        ("mesh_2d_no_wrap", 16, vec![5, 6, 9, 10, 4]),
        ("torus_2d", 16, vec![2, 8]),
        ("ring_1d", 8, vec![0, 2, 4, 6]),
        ("switch", 8, vec![7, 1, 2]),
    ] {
        let graph = network(topology, sips);
        for (name, collective) in Collective::ALL {
            let mut done = 0;
            for method in METHODS.map(|m| m.name()).into_iter().chain(["auto"]) {
                let request = Request { members: members.clone(), root: 1, ..request(collective, method) };
                let limit = request.bound(&graph).unwrap();
                match synthesize(&graph, &request, &limit) {
                    Ok(found) => {
                        found.schedule.check(&graph).unwrap_or_else(|e| panic!("{topology} {name} {method}: {e}"));
                        assert!(found.time_ps >= limit.ps, "{topology} {name} {method}");
                        done += 1;
                    }
                    Err(finding) => assert_eq!(finding.code, "AHBM-U406"),
                }
            }
            assert!(done >= 2, "{topology} {name}");
        }
    }
}

/// Time of a method on its native topology, one chunk per share; links of 50 GB/s and 500 ns.
fn time(topology: &str, sips: u32, collective: Collective, method: &str, share_bytes: u64) -> f64 {
    let graph = network(topology, sips);
    let request = Request { share_bytes, chunks: 1, unit: 1, root: 0, ..request(collective, method) };
    let limit = request.bound(&graph).unwrap();
    let found = synthesize(&graph, &request, &limit).unwrap();
    assert_eq!(found.schedule.parcels, [], "{topology} {method}: neighbours only");
    found.time_ps as f64
}

/// The alpha-beta model: alpha = 500 ns a step, beta = 20 ps a byte. Chunks of one step follow each other on a link, so
/// that a step costs its bytes and one latency.
#[test]
fn closed_forms_take_the_time_of_their_formula() {
    use Collective::{AllGather, AllReduce, AllToAll, Broadcast, Reduce, ReduceScatter};
    const A: f64 = 500_000.0;
    let m = 960_000;
    let b = |share: f64| share * m as f64 * 20.0;
    for collective in [AllGather, ReduceScatter] {
        assert_eq!(time("ring_1d", 8, collective, "one_way_ring", m), 7.0 * (A + b(1.0)));
        assert_eq!(time("ring_1d", 8, collective, "ring", m), 7.0 * (A + b(0.5)));
        assert_eq!(time("fully_connected", 8, collective, "direct", m), A + b(1.0));
        // Rows, then columns of four times as much, in four lanes. Chunks of a later step start before an earlier one
        // is over, so that latencies overlap.
        let found = time("torus_2d", 16, collective, "dimensions", m);
        assert!(found <= 6.0 * A + b(15.0 / 4.0) && found >= b(15.0 / 4.0) + A, "{found}");
    }
    assert_eq!(time("ring_1d", 8, AllReduce, "one_way_ring", m), 14.0 * (A + b(1.0 / 8.0)));
    assert_eq!(time("ring_1d", 8, AllReduce, "ring", m), 14.0 * (A + b(1.0 / 16.0)));
    assert_eq!(time("fully_connected", 8, AllReduce, "direct", m), 2.0 * (A + b(1.0 / 8.0)));
    assert_eq!(time("fully_connected", 8, AllToAll, "direct", m), A + b(1.0));
    assert_eq!(time("fully_connected", 8, Broadcast, "direct", m), A + b(1.0));
    // A single small piece goes down the binomial tree, level by level.
    assert_eq!(time("hypercube", 16, Broadcast, "binomial", 64), 4.0 * (A + 64.0 * 20.0));
    assert_eq!(time("hypercube", 16, Reduce, "binomial", 64), 4.0 * (A + 64.0 * 20.0));
    // Neighbours alone on a ring of 4 and a 4 x 4 torus: every link carries its part without a pause.
    for collective in [AllGather, ReduceScatter] {
        assert_eq!(time("ring_1d", 4, collective, "swing", m), A + b(3.0 / 2.0));
    }
    assert_eq!(time("ring_1d", 4, AllReduce, "swing", m), 2.0 * (A + b(3.0 / 8.0)));
    let found = time("torus_2d", 16, AllGather, "swing", m);
    assert!(found <= 4.0 * A + b(15.0 / 4.0) && found >= A + b(15.0 / 4.0), "{found}");
    // Half of a small piece goes down each tree: over the root's own link, then three levels; up and down three.
    for collective in [Broadcast, Reduce] {
        assert_eq!(time("fully_connected", 8, collective, "double_binary", 64), 4.0 * (A + 32.0 * 20.0));
    }
    assert_eq!(time("fully_connected", 8, AllReduce, "double_binary", 64), 6.0 * (A + 32.0 * 20.0));
    // At a switch a message pays its first flit (256 B) twice.
    assert_eq!(time("switch", 8, AllGather, "direct", m), 500_000.0 + 100_000.0 + 500_000.0 + b(7.0) + 256.0 * 20.0);
    let halving = time("hypercube", 16, AllReduce, "halving_doubling", m);
    assert!(halving <= 2.0 * (4.0 * A + b(15.0 / 16.0)) && halving >= A + b(1.0), "{halving}");
}

#[test]
fn every_method_has_a_name_of_its_own_and_one_sentence() {
    let names: std::collections::BTreeSet<_> = METHODS.map(|m| m.name()).into();
    assert_eq!(names.len(), METHODS.len());
    for method in METHODS {
        let about = method.about();
        assert!(about.ends_with('.') && about.starts_with(char::is_uppercase), "{about}");
        assert!(!about.contains(['|', '\n']), "no row of a table: {about}");
    }
}
