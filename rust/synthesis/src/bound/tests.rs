//! Closed forms against the search, and both against every cut there is.

use super::*;
use crate::graph::Regular;
use crate::shapes::{grid, hypercube};
use crate::{Link, Network};
use ahbm_machine::{Machine, Rate};

fn machine(sips: &str, link: &str) -> Machine {
    let text = format!("system: {{sips: {{{sips}, link: {{{link}}}}}}}");
    Machine::from_yaml(&text, "test", &[]).unwrap_or_else(|e| panic!("{text}: {e:?}"))
}

/// Every regular network of at most `most` SIPs with lists of links.
fn regular(most: u32) -> Vec<String> {
    let mut found = Vec::new();
    for n in 2..=most {
        found.push(format!("count: {n}, topology: ring_1d"));
        // Nothing in a full mesh depends on its size, and the search of large ones is slow.
        if n <= 16 || n == 64 {
            found.push(format!("count: {n}, topology: fully_connected"));
        }
        for h in (1..=n).filter(|h| n % h == 0) {
            let w = n / h;
            for name in ["mesh_2d_no_wrap", "torus_2d"] {
                found.push(format!("count: {n}, topology: {name}, w: {w}, h: {h}"));
            }
            for d in (2..=h).filter(|d| h % d == 0) {
                for name in ["mesh_3d", "torus_3d"] {
                    found.push(format!("count: {n}, topology: {name}, w: {w}, h: {}, d: {d}", h / d));
                }
            }
        }
    }
    found.extend((1..).map(|k| 1 << k).take_while(|&n| n <= most).map(|n| format!("count: {n}, topology: hypercube")));
    found
}

const LINKS: [&str; 3] = ["", "bandwidth_gbs: 0.1, latency_ns: 0", "bandwidth_gbs: 37.5, latency_ns: 1234.5"];

const BYTES: [u64; 4] = [1, 1000, 1 << 20, 1 << 40];

/// The roots that differ: corners, edges, the inside.
fn roots(n: u32) -> impl Iterator<Item = u32> {
    [0, 1, n / 2, n - 1].into_iter().take(n.min(4) as usize)
}

#[test]
fn closed_forms_are_what_the_search_finds() {
    let mut compared = 0;
    // Between these sizes there are no other kinds of shapes, and the search of large ones is slow.
    let kept = |sips: &String| {
        let n: u32 = sips[7..sips.find(',').unwrap()].parse().unwrap();
        n <= 32 || n == 48 || n == 64
    };
    for (at, sips) in regular(64).iter().filter(|sips| kept(sips)).enumerate() {
        let machine = machine(sips, LINKS[at % LINKS.len()]);
        let shape = Regular::of(&machine).unwrap();
        let graph = Graph::of(&machine).unwrap();
        let mesh = sips.contains("mesh_");
        for (_, collective) in Collective::ALL {
            for root in roots(graph.nodes()).take(if collective.is_rooted() && mesh { 4 } else { 1 }) {
                let bytes = BYTES[compared % BYTES.len()];
                let Some(closed) = shape.bound(graph.nodes(), collective, bytes, root) else {
                    assert!(matches!(collective, Collective::Scatter | Collective::Gather), "{sips} {collective:?}");
                    continue;
                };
                let found = searched(&graph, collective, bytes, root, &mut Work::on(&graph));
                // The search knows of an all-to-all only what one routing shows.
                assert!(found.tightest || collective == Collective::AllToAll, "{sips} {collective:?} {root}");
                assert_eq!(closed, Bound { tightest: true, ..found }, "{sips} {collective:?} {root} {bytes}");
                compared += 1;
            }
        }
    }
    assert!(compared > 2_000, "{compared}");
}

#[test]
fn closed_forms_of_a_group_are_what_its_nodes_say() {
    for (at, sips) in regular(20).iter().chain(&["count: 48, topology: torus_3d, w: 3, h: 4, d: 4".into()]).enumerate()
    {
        let machine = machine(sips, LINKS[at % LINKS.len()]);
        let graph = Graph::of(&machine).unwrap();
        let list = graph.clone().without_shape();
        for ranks in 2..graph.nodes() {
            let members: Vec<u32> = (0..ranks).collect();
            for (_, collective) in Collective::ALL {
                for root in roots(ranks).take(if collective.is_rooted() { 4 } else { 1 }) {
                    let [closed, searched] =
                        [&graph, &list].map(|graph| bound_among(graph, &members, collective, 5000, root));
                    assert_eq!(closed, searched, "{sips} {collective:?} {ranks} {root}");
                }
            }
        }
    }
}

#[test]
fn closed_forms_of_messages_are_what_the_search_finds() {
    for (at, sips) in regular(12).iter().chain(&["count: 36, topology: torus_2d".into()]).enumerate() {
        let machine = machine(sips, LINKS[at % LINKS.len()]);
        let graph = Graph::of(&machine).unwrap();
        let list = graph.clone().without_shape();
        for (from, to) in
            (0..graph.nodes()).flat_map(|a| (0..graph.nodes()).map(move |b| (a, b))).filter(|(a, b)| a != b)
        {
            assert_eq!(bound_between(&graph, from, to), bound_between(&list, from, to), "{sips} {from} {to}");
        }
    }
}

#[test]
fn a_switch_is_bounded_without_a_list_of_its_pairs() {
    let switch =
        |count: u32| machine(&format!("count: {count}, topology: switch"), "latency_ns: 100, bandwidth_gbs: 1");
    let large = switch(65_536);
    assert_eq!(Graph::of(&large).unwrap_err().code, "AHBM-B402");
    for machine in [switch(64), large] {
        let n = machine.sfr().sips;
        for (_, collective) in Collective::ALL {
            for ranks in [n, 20] {
                let limit = Network::of_sips(&machine).limit(ranks, collective, 3).unwrap();
                // Shares of a thousand bytes through a port of a byte per ns, after two links and the switch.
                let shares = match collective {
                    Collective::Broadcast | Collective::Reduce => 1.0,
                    Collective::AllReduce if ranks == n => 2.0 * f64::from(n - 1) / f64::from(n),
                    Collective::AllReduce => 1.0,
                    _ => f64::from(ranks - 1),
                };
                let latency_ps = 200_000 + machine.switch_ps();
                assert_eq!(limit.ps(0), latency_ps, "{collective:?}");
                assert_eq!(limit.ps(1000), latency_ps + (1_000_000.0 * shares) as u64, "{collective:?} {ranks}");
                assert_eq!(limit.is_tightest(), ranks == n || collective != Collective::AllReduce);
            }
        }
    }
}

/// Every ratio there is: of sets for what they hold or lack, of partitions for an all-reduce.
fn exhausted(graph: &Graph, collective: Collective, root: u32) -> f64 {
    let n = graph.nodes();
    let crossing = |inside: &dyn Fn(u32) -> bool| Cut::out_of(graph, inside, 0).capacity as f64;
    let mut best = 0f64;
    if collective == Collective::AllReduce {
        // Restricted growth strings: every partition once.
        let mut block = vec![0u32; n as usize];
        loop {
            let cut = Cut::between(graph, &block);
            if cut.capacity > 0 {
                best = best.max(cut.demand as f64 / cut.capacity as f64);
            }
            let Some(at) = (1..n as usize).rev().find(|&at| block[at] <= *block[..at].iter().max().unwrap()) else {
                break;
            };
            block[at] += 1;
            block[at + 1..].fill(0);
        }
    }
    for set in 1..(1u32 << n) - 1 {
        let inside = |v: u32| set >> v & 1 == 1;
        let (size, rooted) = (f64::from(set.count_ones()), inside(root));
        let n = f64::from(n);
        let demand = match collective {
            Collective::AllGather => size,
            Collective::ReduceScatter => n - size,
            Collective::AllToAll => size * (n - size),
            Collective::Broadcast => f64::from(u8::from(rooted)),
            Collective::Reduce => f64::from(u8::from(!rooted)),
            Collective::Scatter => {
                if rooted {
                    n - size
                } else {
                    0.0
                }
            }
            Collective::Gather => {
                if rooted {
                    0.0
                } else {
                    size
                }
            }
            Collective::AllReduce => 1.0,
        };
        best = best.max(demand / crossing(&inside));
    }
    best
}

/// Whether the capacity of a set is that of the links out of it.
fn crosses(graph: &Graph, cut: &Cut) -> bool {
    let Parts::Side(runs) = &cut.parts else { return true };
    let again = Cut::out_of(graph, |v| runs.iter().any(|run| run.contains(&v)), cut.demand);
    (again.capacity, again.links) == (cut.capacity, cut.links)
}

/// A connected network of `n` nodes, from a seed: a random tree both ways, and links more.
fn random(n: u32, more: u32, seed: u64) -> Graph {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |below: u32| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as u32 % below
    };
    let mut links = Vec::new();
    let mut join = |from, to, gbs: u32, ns: u32| {
        let rate = Rate::from_gbs(f64::from(gbs)).unwrap();
        links.push(Link { from, to, rate, latency_ps: 1000 * u64::from(ns) });
    };
    for node in 1..n {
        let (peer, gbs, ns) = (next(node), 1 + next(4), next(9));
        join(node, peer, gbs, ns);
        join(peer, node, gbs, ns);
    }
    for _ in 0..more {
        let (from, to, gbs, ns) = (next(n), next(n), 1 + next(4), next(9));
        if from != to {
            join(from, to, gbs, ns);
            // One-way links, too.
            if ns % 4 > 0 {
                join(to, from, gbs, ns);
            }
        }
    }
    Graph::new(n, links).unwrap()
}

#[test]
fn no_cut_is_tighter_where_a_bound_says_so() {
    let mut claimed = [0; 8];
    for seed in 1..60 {
        let n = 2 + seed as u32 % 7;
        let graph = random(n, seed as u32 % 5 * (seed as u32 % 3), seed);
        for (at, (_, collective)) in Collective::ALL.into_iter().enumerate() {
            let root = seed as u32 % n;
            let found = searched(&graph, collective, 1 << 20, root, &mut Work::on(&graph));
            let (got, best) =
                (found.cut.demand as f64 / found.cut.capacity as f64, exhausted(&graph, collective, root));
            assert!(got <= best * (1.0 + 1e-9), "{seed} {collective:?} {got} {best}");
            if collective == Collective::AllReduce {
                assert!((got - best).abs() <= 1e-9 * best, "{seed} {got} {best} {:?}", found.cut);
            }
            assert!(crosses(&graph, &found.cut), "{seed} {collective:?} {:?}", found.cut);
            if found.tightest {
                assert!((got - best).abs() <= 1e-9 * best, "{seed} {collective:?} {got} {best} {:?}", found.cut);
                claimed[at] += 1;
            } else {
                let one_way = collective == Collective::AllReduce && !graph.symmetric();
                assert!(one_way || collective == Collective::AllToAll, "{seed} {collective:?}");
            }
        }
    }
    assert!(claimed.iter().all(|&times| times > 20), "{claimed:?}");
}

/// Nodes in a circle, each with one link to the next, of the given GB/s; the latter ones back.
fn circle(forth: &[f64], back: &[f64]) -> Graph {
    let n = forth.len() as u32;
    let link = |from, to, gbs| Link { from, to, rate: Rate::from_gbs(gbs).unwrap(), latency_ps: 0 };
    let forth = (0..).zip(forth).map(|(v, &gbs)| link(v, (v + 1) % n, gbs));
    let back = (0..).zip(back).map(|(v, &gbs)| link((v + 1) % n, v, gbs));
    Graph::new(n, forth.chain(back).collect()).unwrap()
}

#[test]
fn an_all_reduce_waits_for_the_narrow_direction() {
    let of = |graph: &Graph| bound(graph, Collective::AllReduce, 1_000_000, 0);
    // 1 MB through 10 GB/s, though 100 GB/s lead the other way; a reduce-scatter and an all-gather take as long.
    let pair = Graph::new(2, circle(&[100.0, 10.0], &[]).links().to_vec()).unwrap();
    let found = of(&pair);
    assert_eq!((found.ps, found.tightest, found.cut.parts), (100_000_000, true, Parts::one(1)));
    // Links one way alone, all equal: 2 (n - 1) / n.
    let found = of(&circle(&[10.0; 5], &[]));
    assert_eq!((found.ps, found.tightest), (160_000_000, true));
    // No cut takes more than 100 us, but an element crosses the narrow links three times together.
    let found = of(&circle(&[10.0, 20.0, 10.0, 20.0], &[]));
    assert_eq!((found.ps, found.tightest), (100_000_000, false));
    // Where the directions are equal, a partition says as much.
    let found = of(&circle(&[10.0, 20.0, 30.0], &[10.0, 20.0, 30.0]));
    assert!(found.tightest);
}

#[test]
fn no_cut_of_a_regular_network_is_tighter() {
    for sips in regular(8) {
        let machine = machine(&sips, "");
        let graph = Graph::of(&machine).unwrap();
        for (_, collective) in Collective::ALL {
            let found = bound(&graph, collective, 1 << 20, 1);
            let (got, best) = (found.cut.demand as f64 / found.cut.capacity as f64, exhausted(&graph, collective, 1));
            assert!(found.tightest && (got - best).abs() <= 1e-9 * best, "{sips} {collective:?} {got} {best}");
        }
    }
}

#[test]
fn trees_have_the_tightest_cut_for_every_collective() {
    for seed in 1..20 {
        let graph = random(64, 0, seed);
        for (_, collective) in Collective::ALL {
            let found = bound(&graph, collective, 1 << 20, 5);
            assert!(found.tightest, "{seed} {collective:?}");
        }
    }
}

#[test]
fn a_search_without_work_left_is_a_bound_and_says_that_it_is_not_the_tightest() {
    // Two full meshes of eight joined by one pair of links: no cut around a single node is the tightest.
    let mut pairs = vec![(0, 8)];
    for base in [0, 8] {
        pairs.extend((0..8).flat_map(|a| (a + 1..8).map(move |b| (base + a, base + b))));
    }
    let rate = Rate::from_gbs(50.0).unwrap();
    let links = pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]);
    let graph = Graph::new(16, links.map(|(from, to)| Link { from, to, rate, latency_ps: 100 }).collect()).unwrap();
    for (_, collective) in Collective::ALL {
        let all = searched(&graph, collective, 1 << 20, 3, &mut Work::on(&graph));
        for steps in [0, 10, 1000, 10_000, 100_000] {
            let some = searched(&graph, collective, 1 << 20, 3, &mut Work::of(&graph, steps));
            assert!(some.ps <= all.ps && some.ps > 0, "{collective:?} {steps}");
            assert!(!some.tightest || some.ps == all.ps, "{collective:?} {steps}");
            assert!(steps > 0 || !some.tightest, "{collective:?}");
        }
    }
}

fn ratio(cut: &Cut) -> f64 {
    cut.demand as f64 / cut.capacity as f64
}

#[test]
fn all_gather_is_known_on_regular_networks() {
    let cases = [(grid(&[8], true), 2), (grid(&[4, 4], false), 2), (grid(&[8, 8], true), 4), (hypercube(6), 6)];
    for (graph, degree) in cases {
        let cut = bound(&graph, Collective::AllGather, 1, 0).cut;
        assert_eq!(ratio(&cut), f64::from(graph.nodes() - 1) / f64::from(degree));
    }
}

#[test]
fn a_bridge_is_the_tight_cut() {
    // Two full meshes of four joined by one pair of links.
    let mut pairs = vec![(0, 4)];
    for base in [0, 4] {
        pairs.extend((0..4).flat_map(|a| (a + 1..4).map(move |b| (base + a, base + b))));
    }
    let rate = Rate::from_gbs(50.0).unwrap();
    let links = pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]);
    let links = links.map(|(from, to)| Link { from, to, rate, latency_ps: 0 }).collect();
    let graph = Graph::new(8, links).unwrap();
    let cut = bound(&graph, Collective::AllGather, 1, 0).cut;
    assert_eq!((cut.demand, cut.capacity, cut.parts.lists()[0].len()), (4, 1, 4));
    let cut = bound(&graph, Collective::AllReduce, 1, 0).cut;
    assert_eq!((cut.demand, cut.capacity, cut.parts.count()), (2, 2, 2));
}

#[test]
fn strength_is_known_on_grids() {
    // tau = edges / (nodes - 1) in each direction.
    for (graph, tau) in [
        (grid(&[4, 4], false), 24.0 / 15.0),
        (grid(&[8, 8], false), 112.0 / 63.0),
        (grid(&[4, 4, 4], false), 144.0 / 63.0),
        (grid(&[8, 8], true), 128.0 / 63.0),
        (hypercube(6), 192.0 / 63.0),
    ] {
        let cut = bound(&graph, Collective::AllReduce, 1, 0).cut;
        assert!((1.0 / ratio(&cut) - tau).abs() < 1e-12);
    }
}

#[test]
fn rooted_bounds() {
    let graph = grid(&[4, 4], false);
    assert_eq!(ratio(&bound(&graph, Collective::Broadcast, 1, 5).cut), 0.5);
    assert_eq!(ratio(&bound(&graph, Collective::Scatter, 1, 0).cut), 7.5);
    // Middle cut of a 4 x 4 mesh: 64 pairs over 4 links.
    assert_eq!(ratio(&bound(&graph, Collective::AllToAll, 1, 0).cut), 16.0);
}

#[test]
fn only_nodes_with_equal_links_both_ways_are_alike() {
    let link = |(from, to, gbs): (u32, u32, f64)| Link { from, to, rate: Rate::from_gbs(gbs).unwrap(), latency_ps: 0 };
    let graph = |links: &[(u32, u32, f64)]| Graph::new(4, links.iter().copied().map(link).collect()).unwrap();
    let hub = [(0, 3, 1.0), (1, 3, 1.0), (2, 3, 1.0), (3, 0, 9.0), (3, 1, 9.0), (3, 2, 2.0)];
    assert_eq!(Work::on(&graph(&hub)).alike, [0, 0, 2, 3]);
    // Node 1 is like the root, so that nothing that was found for the root holds for it: all but the root have to wait
    // for the one link that leaves the root.
    let narrow = [(2, 0, 9.0), (2, 1, 9.0), (0, 2, 1.0), (1, 2, 1.0), (3, 2, 1.0), (2, 3, 9.0)];
    let found = bound(&graph(&narrow), Collective::Broadcast, 1 << 20, 0);
    assert_eq!((found.cut.capacity, found.cut.parts), (1, Parts::one(0)));
}
