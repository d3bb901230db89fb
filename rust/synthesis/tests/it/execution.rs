//! The emulator takes exactly the time the synthesizer says, and comes to the right result.

use ahbm_emulator::{Memory, Options, replay, simulate};
use ahbm_machine::Machine;
use ahbm_plan::{LowerOptions, Lowered};
use ahbm_program::{Dtype, lint};
use ahbm_synthesis::{Collective, Graph, METHODS, Request, Synthesis, ends, synthesize};

/// A plain network whose NPUs have a PE for every end of a link; at a switch one, which keeps what leaves in order.
fn machine(topology: &str, sips: u32) -> Machine {
    let pes = if topology == "switch" { 1 } else { 8 };
    let text = include_str!("../../../../python/ahbm/data/topologies/npu_ring_8.yaml");
    let set = |k: &str, v: String| (k.to_string(), v);
    let overrides = [
        set("system.sips.topology", topology.into()),
        set("system.sips.count", sips.to_string()),
        set("cube.pe_layout.pe_per_corner", pes.to_string()),
    ];
    Machine::from_yaml(text, "npu_ring_8.yaml", &overrides).unwrap()
}

/// The schedule's plan on the machine, with queues that hold every message, whole.
fn lowered(found: &Synthesis, graph: &Graph, machine: &Machine) -> Lowered {
    let schedule = &found.schedule;
    let share: u64 = schedule.chunk_bytes.iter().sum();
    let bytes = share * u64::from(schedule.collective.shares(schedule.members.len() as u32));
    let options = LowerOptions {
        slots: u32::MAX,
        slice_bytes: Some(u64::MAX),
        tier: machine.costs().tiers.get_index_of("hbm").unwrap() as u32,
        sips: schedule.places(graph),
        ..LowerOptions::new(bytes, Dtype::I32)
    };
    schedule.to_plan(graph).unwrap().lower(machine, &options).unwrap()
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

fn check_data(lowered: &Lowered, timeline: &ahbm_emulator::Timeline, collective: Collective) {
    let n = lowered.ranks.len() as u32;
    let elements = u64::from(collective.shares(n)) * ELEMENTS;
    let mut memory = Memory::new(&lowered.program);
    for (node, rank) in (0..).zip(&lowered.ranks) {
        memory.reserve(rank.input.buffer).unwrap();
        let bytes: Vec<u8> = (0..elements).flat_map(|i| input(node, i).to_le_bytes()).collect();
        // In place, a rank that holds or gets a part of the array has no memory behind it.
        let held = memory.bytes_mut(rank.input.buffer);
        let length = held.len().min(bytes.len());
        held[..length].copy_from_slice(&bytes[..length]);
    }
    replay(&lowered.program, timeline, &mut memory).unwrap();
    for (node, rank) in (0..).zip(&lowered.ranks) {
        memory.reserve(rank.output.buffer).unwrap();
        let found = memory.bytes(rank.output.buffer);
        for index in 0..elements {
            if let Some(wanted) = expected(collective, n, node, index) {
                let at = index as usize * 4;
                let element = i32::from_le_bytes(found[at..at + 4].try_into().unwrap());
                assert_eq!(element, wanted, "{collective:?}: rank {node} element {index}");
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
        assert!(ends(&graph) <= machine.sfr().pes);
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
                let lowered = lowered(&found, &graph, &machine);
                assert_eq!(lint(&lowered.program, &machine), []);
                let timeline = simulate(&lowered.program, &machine, &Options::default()).unwrap();
                assert_eq!(timeline.latency, found.time_ps, "{topology} {collective:?} {method}");
                check_data(&lowered, &timeline, collective);
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
            let lowered = lowered(&found, &graph, &machine);
            let timeline = simulate(&lowered.program, &machine, &Options::default()).unwrap();
            assert_eq!(timeline.latency, found.time_ps, "{collective:?} {method}");
            check_data(&lowered, &timeline, collective);
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
                    let lowered = lowered(&found, &graph, &machine);
                    let timeline = simulate(&lowered.program, &machine, &Options::default()).unwrap();
                    assert_eq!(timeline.latency, found.time_ps, "{sips} {collective:?} {method} {share_bytes}");
                    waited += usize::from(found.time_ps > limit.ps * 21 / 20);
                }
            }
        }
    }
    assert!(waited > 100, "nothing had to wait: {waited}");
}
