//! Columns of a program equal counts by hand, through queues, memory, counters and barriers.

use ahbm_machine::Machine;
use ahbm_plan::{Collective, LowerOptions, Plan, Transfer, Transfers};
use ahbm_program::{Dtype, Program};
use ahbm_views::features::{Algorithm, Fingerprint};

const BYTES: u64 = 1 << 14;

fn lowered(ranks: u32, pieces: u32, list: &[Transfer]) -> (Program, Machine) {
    let text = include_str!("../../../../python/ahbm/data/topologies/npu_ring_8.yaml");
    let overrides = [("system.sips.count".to_owned(), ranks.to_string())];
    let machine = Machine::from_yaml(text, "npu_ring_8.yaml", &overrides).unwrap();
    let plan = Plan::from_transfers(&Transfers {
        name: "made".into(),
        goal: Collective::AllReduce.into(),
        ranks,
        relays: 0,
        one_port: false,
        pieces: &vec![1; pieces as usize],
        parcels: &[],
        list,
    });
    let program = plan.unwrap().lower(&machine, &LowerOptions::new(BYTES, Dtype::F16)).unwrap().program;
    (program, machine)
}

fn found(ranks: u32, pieces: u32, list: &[Transfer]) -> Algorithm {
    let (program, machine) = lowered(ranks, pieces, list);
    let found = Algorithm::of(&program, &machine, &[]).unwrap();
    assert_eq!(Algorithm::of(&program, &machine, &[]).unwrap(), found);
    found
}

fn transfer(from: u32, to: u32, piece: u32, adds: bool, at: u32) -> Transfer {
    Transfer { from, to, channel: 0, source: piece, target: piece, adds, at: at.into() }
}

#[test]
fn a_ring() {
    for ranks in 2..9 {
        let mut list = Vec::new();
        for round in 0..2 * (ranks - 1) {
            for from in 0..ranks {
                let piece = (from + 2 * ranks - round) % ranks;
                list.push(transfer(from, (from + 1) % ranks, piece, round < ranks - 1, round));
            }
        }
        let (n, hops) = (u64::from(ranks), 2 * (ranks - 1));
        if !BYTES.is_multiple_of(n * 2) {
            continue;
        }
        let found = found(ranks, ranks, &list);
        assert_eq!((found.chunk_count, found.dependency_depth, found.branch_factor), (n * u64::from(hops), hops, 1));
        assert_eq!((found.sent_bytes, found.busiest_bytes), (u64::from(hops) * BYTES, u64::from(hops) * BYTES / n));
        assert_eq!(found.operations, (n - 1) * BYTES / 2);
        assert!((found.arithmetic_intensity() - 0.25).abs() < 1e-12);
    }
}

#[test]
fn a_star() {
    // Everybody's array to rank 0 and back: two steps, all of them at once.
    for ranks in [2, 3, 5, 8] {
        let others = 1..ranks;
        let list: Vec<Transfer> = (others.clone().map(|rank| transfer(rank, 0, 0, true, 0)))
            .chain(others.map(|rank| transfer(0, rank, 0, false, 1)))
            .collect();
        let found = found(ranks, 1, &list);
        let n = u64::from(ranks);
        assert_eq!((found.chunk_count, found.dependency_depth, found.branch_factor), (2 * (n - 1), 2, n - 1));
        assert_eq!((found.sent_bytes, found.busiest_bytes), (2 * (n - 1) * BYTES, (n - 1) * BYTES));
    }
}

const PS_PER_BYTE: u64 = 20; // 50 GB/s
const LATENCY_PS: u64 = 500_000;

#[test]
fn times_of_a_ring() {
    for ranks in [2, 4, 8] {
        let mut list = Vec::new();
        for round in 0..2 * (ranks - 1) {
            for from in 0..ranks {
                let piece = (from + 2 * ranks - round) % ranks;
                list.push(transfer(from, (from + 1) % ranks, piece, round < ranks - 1, round));
            }
        }
        let found = found(ranks, ranks, &list);
        let (hops, chunk_ps) = (2 * u64::from(ranks - 1), BYTES / u64::from(ranks) * PS_PER_BYTE);
        assert_eq!((found.path_ps, found.link_ps), (hops * (LATENCY_PS + chunk_ps), hops * chunk_ps));
        assert_eq!(found.rounds_ps, found.path_ps);
        assert_eq!((found.queue_depth, found.cut_bytes), (1, 0));
    }
}

#[test]
fn times_and_cut_of_a_pair_that_others_pass() {
    // Two messages over the same link, and one the other way: the link and the DMA channel of rank 0 are busy twice.
    let list = [transfer(0, 1, 0, true, 0), transfer(0, 1, 1, true, 0), transfer(1, 0, 0, false, 1)];
    let program = |parts: &[u32]| {
        let (program, machine) = lowered(4, 2, &list);
        Algorithm::of(&program, &machine, parts).unwrap()
    };
    let half_ps = BYTES / 2 * PS_PER_BYTE;
    assert_eq!(program(&[]).link_ps, 2 * half_ps);
    for (parts, crossing) in [(&[][..], 0), (&[1], 3), (&[1, 1], 0), (&[1, 2, 3, 4], 3), (&[0, 0, 1, 1], 0)] {
        assert_eq!(program(parts).cut_bytes, crossing * BYTES / 2, "{parts:?}");
    }
}

#[test]
fn fingerprints() {
    let of = |text: &str, changed: &[(&str, &str)]| {
        let overrides: Vec<_> = changed.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Fingerprint::of(&Machine::from_yaml(text, "machine.yaml", &overrides).unwrap())
    };
    let numbers = |found: &Fingerprint| (found.links, found.degree, found.diameter, found.bisection_links);
    let ring = include_str!("../../../../python/ahbm/data/topologies/npu_ring_8.yaml");
    let mesh = include_str!("../../../../python/ahbm/data/topologies/npu_mesh_4x4.yaml");
    let torus = include_str!("../../../../python/ahbm/data/topologies/npu_torus_4x4.yaml");
    let cube = include_str!("../../../../python/ahbm/data/topologies/npu_hypercube_16.yaml");
    let full = include_str!("../../../../python/ahbm/data/topologies/npu_fully_connected_8.yaml");
    let switch = include_str!("../../../../python/ahbm/data/topologies/npu_switch_8.yaml");
    assert_eq!(numbers(&of(ring, &[])), (16, [2, 2], 4, 2));
    assert_eq!(numbers(&of(ring, &[("system.sips.count", "7")])), (14, [2, 2], 3, 2));
    assert_eq!(numbers(&of(ring, &[("system.sips.count", "1")])), (0, [0, 0], 0, 0));
    assert_eq!(numbers(&of(mesh, &[])), (48, [2, 4], 6, 4));
    assert_eq!(numbers(&of(mesh, &[("system.sips.w", "8"), ("system.sips.h", "2")])), (44, [2, 3], 8, 2));
    assert_eq!(numbers(&of(torus, &[])), (64, [4, 4], 4, 8));
    assert_eq!(numbers(&of(cube, &[])), (64, [4, 4], 4, 8));
    assert_eq!(numbers(&of(full, &[])), (56, [7, 7], 1, 16));
    assert_eq!(numbers(&of(switch, &[])), (16, [1, 1], 2, 4));
    let found = of(mesh, &[("system.sips.link.latency_ns", "70"), ("system.sips.link.bandwidth_gbs", "25")]);
    assert_eq!((found.latency_ps, found.bandwidth_gbs), ([70_000; 3], [25.0; 3]));
    assert_eq!((found.dimensions, found.bisection_gbs), (vec![4, 4], 100.0));
    assert_eq!(of(cube, &[]).dimensions, [2, 2, 2, 2]);
}

#[test]
fn the_fingerprint_of_relays() {
    // Four SIPs at two relays, which two links join: every SIP is three links from those at the other relay.
    let edges = [(0, 4), (1, 4), (2, 5), (3, 5), (4, 5)].map(|(from, to)| format!("{{from: {from}, to: {to}}}"));
    let text = format!("system: {{sips: {{count: 4, relays: 2, topology: custom, edges: [{}]}}}}", edges.join(", "));
    let found = Fingerprint::of(&Machine::from_yaml(&text, "relays.yaml", &[]).unwrap());
    assert_eq!((found.ranks, found.links, found.degree, found.diameter), (4, 10, [1, 1], 3));
    assert_eq!((found.bisection_links, found.dimensions), (2, vec![4]));
}
