//! The emulator takes exactly the time the synthesizer says, and comes to the right result.

use ahbm_emulator::{Memory, Options, replay, simulate};
use ahbm_machine::Machine;
use ahbm_program::{BinaryFn, Dtype, lint};
use ahbm_synthesis::{Collective, Elements, Graph, Lowered, METHODS, Request, engines, lower, synthesize};

/// A plain network whose NPUs have a PE for every link, and one more.
fn machine(topology: &str, sips: u32) -> Machine {
    let text = include_str!("../../../../python/ahbm/data/topologies/npu_ring_8.yaml");
    let set = |k: &str, v: String| (k.to_string(), v);
    let overrides = [
        set("system.sips.topology", topology.into()),
        set("system.sips.count", sips.to_string()),
        set("cube.pe_layout.pe_per_corner", "8".into()),
    ];
    Machine::from_yaml(text, "npu_ring_8.yaml", &overrides).unwrap()
}

const SHARE: u64 = 6_000;
const ELEMENTS: u64 = SHARE / 4;

fn request(collective: Collective, method: &str) -> Request {
    Request {
        collective,
        share_bytes: SHARE,
        chunks: 2,
        unit: 4,
        members: vec![],
        root: 1,
        method: method.into(),
        seed: 1,
    }
}

/// Element `index` of NPU `node` at the start.
fn input(node: u32, index: u64) -> i32 {
    (node as i32 + 1) * 1_000_003 + index as i32
}

/// Element `index` of NPU `node` at the end, where it is specified.
fn expected(collective: Collective, n: u32, node: u32, index: u64) -> Option<i32> {
    use Collective::*;
    let (share, inside) = ((index / ELEMENTS) as u32, index % ELEMENTS);
    let sum = || (0..n).fold(0i32, |sum, v| sum.wrapping_add(input(v, index)));
    match collective {
        AllReduce => Some(sum()),
        ReduceScatter => (share == node).then(sum),
        Reduce => (node == 1).then(sum),
        AllGather => Some(input(share, index)),
        Gather => (node == 1).then(|| input(share, index)),
        Broadcast => Some(input(1, index)),
        Scatter => (share == node).then(|| input(1, index)),
        AllToAll => Some(input(share, u64::from(node) * ELEMENTS + inside)),
    }
}

fn check_data(lowered: &Lowered, timeline: &ahbm_emulator::Timeline, collective: Collective, members: &[u32]) {
    let n = members.len() as u32;
    let elements = u64::from(collective.shares(n)) * ELEMENTS;
    let mut memory = Memory::new(&lowered.program);
    for (node, &npu) in members.iter().enumerate() {
        let buffer = lowered.buffers[npu as usize];
        memory.reserve(buffer).unwrap();
        let bytes: Vec<u8> = (0..elements).flat_map(|i| input(node as u32, i).to_le_bytes()).collect();
        memory.bytes_mut(buffer).copy_from_slice(&bytes);
    }
    replay(&lowered.program, timeline, &mut memory).unwrap();
    for (node, &npu) in members.iter().enumerate() {
        let buffer = lowered.results[npu as usize];
        memory.reserve(buffer).unwrap();
        for (index, bytes) in memory.bytes(buffer).chunks_exact(4).enumerate() {
            let found = i32::from_le_bytes(bytes.try_into().unwrap());
            if let Some(wanted) = expected(collective, n, node as u32, index as u64) {
                assert_eq!(found, wanted, "{collective:?}: NPU {node} element {index}");
            }
        }
    }
}

#[test]
fn the_emulator_agrees_to_the_picosecond_and_the_data_are_right() {
    for (topology, sips, members) in [
        ("ring_1d", 5, vec![]),
        ("mesh_2d_no_wrap", 9, vec![]),
        ("torus_2d", 16, vec![]),
        ("mesh_3d", 8, vec![]),
        ("hypercube", 8, vec![]),
        ("fully_connected", 4, vec![]),
        ("switch", 6, vec![]),
        ("switch", 8, vec![]),
        ("mesh_2d_no_wrap", 9, vec![8, 0, 2, 6]),
        ("ring_1d", 8, vec![0, 3, 4]),
        ("switch", 7, vec![6, 0, 2, 3, 5]),
    ] {
        let machine = machine(topology, sips);
        let graph = Graph::of(&machine).unwrap();
        assert!(engines(&graph) <= machine.sfr().pes);
        let everybody: Vec<u32> = (0..sips).collect();
        let ranks = if members.is_empty() { &everybody } else { &members };
        for (_, collective) in Collective::ALL {
            let request = |method| Request { members: members.clone(), ..request(collective, method) };
            let limit = request("auto").bound(&graph).unwrap();
            for method in METHODS.map(|m| m.name()) {
                let found = match synthesize(&graph, &request(method), &limit) {
                    Ok(found) => found,
                    Err(finding) => {
                        assert_eq!(finding.code, "AHBM-U406");
                        continue;
                    }
                };
                let elements = Elements { dtype: Dtype::I32, op: BinaryFn::Add, average: false };
                let lowered = lower(&found.schedule, &graph, &machine, elements).unwrap();
                assert_eq!(lint(&lowered.program, &machine), []);
                let timeline = simulate(&lowered.program, &machine, &Options::default()).unwrap();
                assert_eq!(timeline.latency, found.time_ps, "{topology} {collective:?} {method}");
                check_data(&lowered, &timeline, collective, ranks);
            }
        }
    }
}

/// Neighbours use their link even where a way round has less latency, as the schedule has it.
#[test]
fn links_of_unlike_latencies_take_what_they_are_given() {
    let text = include_str!("../../../../python/ahbm/data/topologies/npu_ring_8.yaml");
    let edge = |from: u32, to: u32, ns: u32| format!("{{from: {from}, to: {to}, latency_ns: {ns}}}");
    let edges = [edge(0, 1, 100), edge(0, 2, 100), edge(1, 2, 1000), edge(2, 3, 10)].join(", ");
    let overrides = [
        ("system.sips.topology", "custom"),
        ("system.sips.count", "4"),
        ("system.sips.edges", &format!("[{edges}]")),
        ("cube.pe_layout.pe_per_corner", "8"),
    ]
    .map(|(key, value)| (key.to_string(), value.to_string()));
    let machine = Machine::from_yaml(text, "npu_ring_8.yaml", &overrides).unwrap();
    let graph = Graph::of(&machine).unwrap();
    for (_, collective) in Collective::ALL {
        for method in METHODS.map(|m| m.name()) {
            let request = request(collective, method);
            let Ok(found) = synthesize(&graph, &request, &request.bound(&graph).unwrap()) else { continue };
            let elements = Elements { dtype: Dtype::I32, op: BinaryFn::Add, average: false };
            let lowered = lower(&found.schedule, &graph, &machine, elements).unwrap();
            let timeline = simulate(&lowered.program, &machine, &Options::default()).unwrap();
            assert_eq!(timeline.latency, found.time_ps, "{collective:?} {method}");
            check_data(&lowered, &timeline, collective, &[0, 1, 2, 3]);
        }
    }
}

/// Messages that meet at a port of a switch, also those shorter than a flit or of unequal sizes.
#[test]
fn at_a_switch_ports_are_shared_as_in_the_emulator() {
    let mut waited = 0;
    for sips in [3, 5, 8, 13] {
        let machine = machine("switch", sips);
        let graph = Graph::of(&machine).unwrap();
        for (index, (_, collective)) in Collective::ALL.into_iter().enumerate() {
            for (share_bytes, chunks) in [(40, 1), (1_004, 3), (40_000, 4), (1_000_000, 1)] {
                for method in METHODS.map(|m| m.name()) {
                    let seed = u64::from(sips) + index as u64;
                    let request = Request { share_bytes, chunks, seed, ..request(collective, method) };
                    let limit = request.bound(&graph).unwrap();
                    let found = match synthesize(&graph, &request, &limit) {
                        Ok(found) => found,
                        Err(finding) => {
                            assert!(["AHBM-U406", "AHBM-U407"].contains(&finding.code), "{finding}");
                            continue;
                        }
                    };
                    found.schedule.check(&graph).unwrap();
                    assert!(found.time_ps >= limit.ps, "{sips} {collective:?} {method}");
                    let elements = Elements { dtype: Dtype::I32, op: BinaryFn::Add, average: false };
                    let lowered = lower(&found.schedule, &graph, &machine, elements).unwrap();
                    let timeline = simulate(&lowered.program, &machine, &Options::default()).unwrap();
                    assert_eq!(timeline.latency, found.time_ps, "{sips} {collective:?} {method} {share_bytes}");
                    waited += usize::from(found.time_ps > limit.ps * 21 / 20);
                }
            }
        }
    }
    assert!(waited > 100, "nothing had to wait: {waited}");
}
