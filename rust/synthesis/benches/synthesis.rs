//! Time to bound and to synthesize. Quality (rounds, percent of the bound) is printed once per case.

use ahbm_machine::Machine;
use ahbm_synthesis::trees::Packing;
use ahbm_synthesis::{Collective, Graph, Request, bound, synthesize};
use criterion::{Criterion, criterion_group, criterion_main};
use std::time::Duration;

fn network(topology: &str, sips: u32) -> Graph {
    let text = include_str!("../../../python/ahbm/data/topologies/npu_ring_8.yaml");
    let set = |k: &str, v: String| (k.to_string(), v);
    let overrides = [set("system.sips.topology", topology.into()), set("system.sips.count", sips.to_string())];
    Graph::of(&Machine::from_yaml(text, "npu_ring_8.yaml", &overrides).expect("a machine")).expect("a graph")
}

fn run(c: &mut Criterion) {
    let mut group = c.benchmark_group("synthesis");
    group.sample_size(10).warm_up_time(Duration::from_millis(1)).measurement_time(Duration::from_millis(50));
    for (topology, sips) in [("mesh_2d_no_wrap", 64), ("torus_2d", 64), ("mesh_2d_no_wrap", 1024)] {
        let graph = network(topology, sips);
        for collective in [Collective::AllGather, Collective::AllReduce] {
            group.bench_function(format!("bound/{}/{topology}/{sips}", collective.name()), |b| {
                b.iter(|| bound(&graph, collective, 1 << 20, 0));
            });
        }
    }
    for (topology, sips) in [
        ("mesh_2d_no_wrap", 64),
        ("mesh_3d", 64),
        ("torus_2d", 64),
        ("torus_3d", 64),
        ("hypercube", 64),
        ("mesh_2d_no_wrap", 256),
        ("torus_2d", 256),
        ("mesh_3d", 512),
        ("mesh_2d_no_wrap", 1024),
        ("torus_2d", 1024),
        ("hypercube", 1024),
    ] {
        let graph = network(topology, sips);
        let strength = bound(&graph, Collective::AllReduce, 1 << 30, 0).cut;
        let fluid = 1000.0 * strength.demand as f64 / (strength.capacity as f64 * graph.unit_gbs());
        let packing = Packing::new(&graph, fluid, 1).expect("links both ways");
        println!("packing {topology} {sips}: {:.2} % of the fluid bound", 100.0 * fluid / packing.ps_per_byte());
        group.bench_function(format!("packing/{topology}/{sips}"), |b| {
            b.iter(|| Packing::new(&graph, fluid, 1));
        });
        for (collective, method, bytes) in
            [(Collective::AllGather, "greedy", 1_000_000), (Collective::AllReduce, "trees", 1 << 28)]
        {
            let request = Request {
                collective,
                share_bytes: bytes,
                chunks: 1,
                unit: 2,
                members: vec![],
                root: 0,
                method: method.into(),
                seed: 1,
            };
            let limit = request.bound(&graph).expect("a bound");
            let found = synthesize(&graph, &request, &limit).expect("a schedule");
            println!(
                "{} {topology} {sips}: {} rounds, bound {:?}; {:.1} us, bound {:.1} us, {:.2} %; {} chunks",
                collective.name(),
                found.rounds,
                limit.rounds(found.schedule.chunk_bytes.len() as u64),
                found.time_ps as f64 / 1e6,
                limit.ps as f64 / 1e6,
                100.0 * limit.ps as f64 / found.time_ps as f64,
                found.schedule.chunk_bytes.len(),
            );
            group.bench_function(format!("{}/{topology}/{sips}", collective.name()), |b| {
                b.iter(|| synthesize(&graph, &request, &limit));
            });
        }
    }
}

criterion_group!(benches, run);
criterion_main!(benches);
