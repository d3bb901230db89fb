//! Routes, links and calibrated latencies of resolved machines.

use ahbm_machine::{Coord, LinkChange, LinkId, Machine, Node, PeId, Ps, Route};

fn machine(text: &str) -> Machine {
    Machine::from_yaml(text, "topology.yaml", &[]).unwrap_or_else(|findings| panic!("{findings:#?}"))
}

fn pe(machine: &Machine, sip: u32, cube: u32, pe: u32) -> PeId {
    machine.pe(Coord { sip, cube, pe }).unwrap()
}

fn names(machine: &Machine, route: &Route) -> Vec<String> {
    route.hops.iter().map(|hop| machine.link_name(hop.link)).collect()
}

/// An uncontended transfer: latencies, the first flit over every hop but the slowest, all bytes over that one.
fn transfer(machine: &Machine, from: Node, to: Node, bytes: u64) -> Ps {
    let route = machine.route(from, to).unwrap();
    let flit = bytes.min(machine.costs().flit_bytes);
    let rates: Vec<_> = route.hops.iter().map(|hop| machine.link_rate(hop.link)).collect();
    let slowest = rates.iter().map(|rate| rate.ps(bytes)).max().unwrap_or(0);
    let flits: Ps = rates.iter().map(|rate| rate.ps(flit)).sum();
    route.latency_ps() + slowest + flits - rates.iter().map(|rate| rate.ps(flit)).max().unwrap_or(0)
}

#[test]
fn the_default_machine_is_the_documented_one() {
    let m = machine("");
    assert_eq!((m.sfr().sips, m.sfr().cubes(), m.sfr().pes, m.pes()), (2, 16, 8, 256));
    assert_eq!(m.topology_name(), "ring_1d");
    let local = names(&m, &m.route(Node::Hbm(PeId(0)), Node::Pe(PeId(0))).unwrap());
    assert_eq!(local, ["sip0.cube0.pe0.hbm_read"]);
    let next = names(&m, &m.route(Node::Pe(PeId(0)), Node::Pe(PeId(1))).unwrap());
    assert_eq!(next, ["sip0.cube0.pe0.noc_out", "sip0.cube0.r0c0_E", "sip0.cube0.pe1.noc_in"]);
    let out = names(&m, &m.route(Node::Pe(PeId(0)), Node::Pe(pe(&m, 1, 3, 0))).unwrap());
    assert!(out.contains(&"sip0->sip1".to_owned()), "{out:?}");
}

#[test]
fn published_latencies_come_out_of_the_defaults() {
    let m = machine("");
    let setup = m.costs().dma_setup_ps;
    let read = |at: PeId| setup + transfer(&m, Node::Hbm(at), Node::Pe(PeId(0)), 16384);
    let request = |at: PeId| m.route(Node::Pe(PeId(0)), Node::Hbm(at)).unwrap().latency_ps();
    let corner = pe(&m, 0, 15, 0);
    let remote = read(corner) + request(corner);
    let other = pe(&m, 1, 0, 0);
    let sip = read(other) + request(other);
    let write = |bytes| transfer(&m, Node::Io(0), Node::Hbm(PeId(0)), bytes);
    for (got, published) in [
        (read(PeId(0)), 77_000),
        (remote, 573_000),
        (sip, 409_000),
        (write(65536), 545_000),
        (write(1 << 20), 8_230_000),
    ] {
        assert!((got as f64 / f64::from(published) - 1.0).abs() < 0.02, "{got} ps, published {published} ps");
    }
}

#[test]
fn link_ids_and_names_are_one_to_one() {
    let m = machine("system: {sips: {count: 6, topology: torus_2d, w: 3, h: 2}}\nsip: {cube_mesh: {w: 2, h: 2}}");
    let names: std::collections::BTreeSet<String> = (0..m.links()).map(|id| m.link_name(LinkId(id))).collect();
    assert_eq!(names.len() as u32, m.links());
}

/// Machines small enough to check every pair of SIPs, on every network.
fn networks() -> Vec<Machine> {
    let regular = [
        "count: 1",
        "count: 2",
        "count: 7",
        "count: 9, topology: torus_2d",
        "count: 10, topology: torus_2d, w: 5, h: 2",
        "count: 12, topology: mesh_2d_no_wrap, w: 4",
        "count: 24, topology: torus_3d, w: 2, h: 3, d: 4",
        "count: 27, topology: mesh_3d",
        "count: 12, topology: torus_2d, w: 4, links: {w: {bandwidth_gbs: 400}, h: {latency_ns: 9}}",
        "count: 16, topology: hypercube",
        "count: 1, topology: hypercube",
        "count: 6, topology: fully_connected",
        "count: 5, topology: switch",
        "count: 4, topology: custom, edges: [{from: 0, to: 1}, {from: 1, to: 2, latency_ns: 5}, {from: 2, to: 3}, {from: 3, to: 0, bidirectional: false}]",
    ];
    regular
        .iter()
        .map(|sips| machine(&format!("system: {{sips: {{{sips}}}}}\nsip: {{cube_mesh: {{w: 3, h: 2}}}}")))
        .collect()
}

#[test]
fn ways_between_sips_are_chains_of_links_that_exist() {
    for m in networks() {
        let first = m.links() - m.links_between_sips().count() as u32;
        for (id, link) in m.links_between_sips().enumerate() {
            assert_eq!(link.link, LinkId(first + id as u32));
            assert_ne!(link.from, link.to);
            assert_eq!(m.link_latency_ps(link.link), link.latency_ps);
            assert_eq!(m.link_rate(link.link), link.rate);
        }
        let links: Vec<_> = m.links_between_sips().collect();
        for from in 0..m.sfr().sips {
            for to in 0..m.sfr().sips {
                let route = m.route(Node::Io(from), Node::Io(to)).unwrap();
                let mut at = from;
                for hop in &route.hops {
                    let link = links[(hop.link.0 - first) as usize];
                    assert_eq!(link.from, at, "{} {from}->{to}", m.topology_name());
                    at = link.to;
                }
                assert_eq!(at, to, "{} {from}->{to}", m.topology_name());
                assert!(m.topology_name() == "custom" || route.hops.len() == fewest(&links, m.sfr().sips, from, to));
            }
        }
    }
}

/// Breadth-first distance over the links; the switch is one more end.
fn fewest(links: &[ahbm_machine::SipLink], sips: u32, from: u32, to: u32) -> usize {
    let mut distance = vec![usize::MAX; sips as usize + 1];
    distance[from as usize] = 0;
    for round in 0..=sips as usize {
        for link in links {
            if distance[link.from as usize] == round {
                distance[link.to as usize] = distance[link.to as usize].min(round + 1);
            }
        }
    }
    distance[to as usize]
}

#[test]
fn routes_inside_and_between_packages_are_connected() {
    for m in networks() {
        let samples = |count: u32| [0, 1, count / 2, count.saturating_sub(1)].map(|i| i.min(count - 1));
        for from in samples(m.pes()).map(PeId) {
            for to in samples(m.pes()).map(PeId) {
                let nodes = |pe| [Node::Pe(pe), Node::Hbm(pe), Node::Sram(pe), Node::Io(m.coord(pe).sip)];
                for a in nodes(from) {
                    for b in nodes(to) {
                        check_route(&m, a, b);
                    }
                }
            }
        }
    }
}

fn check_route(m: &Machine, from: Node, to: Node) {
    let route = m.route(from, to).unwrap();
    let names = names(m, &route);
    let mut once: Vec<_> = names.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), names.len(), "{from:?} {to:?} crosses a link twice: {names:?}");
    assert!(route.hops.iter().all(|hop| hop.link.0 < m.links() && !m.link_rate(hop.link).is_unlimited()));
    let links: Ps = route.hops.iter().map(|hop| m.link_latency_ps(hop.link)).sum();
    assert!(route.latency_ps() >= links);
    for (hop, name) in route.hops.iter().zip(&names) {
        assert!(hop.after_ps >= m.link_latency_ps(hop.link), "{name}");
    }
    // East always starts at the column before: successive NOC hops of one cube are adjacent routers.
    for pair in names.windows(2) {
        if let (Some((cube, a)), Some((other, b))) = (router(&pair[0]), router(&pair[1]))
            && cube == other
        {
            assert_eq!(a.0.abs_diff(b.0) + a.1.abs_diff(b.1), 1, "{pair:?}");
        }
    }
}

fn router(name: &str) -> Option<(String, (u32, u32))> {
    let (cube, link) = name.rsplit_once('.')?;
    let (row, col) = link.strip_prefix('r')?.split_once('_')?.0.split_once('c')?;
    Some((cube.to_owned(), (row.parse().ok()?, col.parse().ok()?)))
}

#[test]
fn unlimited_edges_leave_only_their_latency() {
    let limited = machine("");
    let folded = machine(
        "cube: {noc: {link_gbs: .inf}, ucie: {bandwidth_gbs: .inf}}\npe: {noc_port_gbs: .inf, noc_port_in_gbs: .inf}",
    );
    let (from, to) = (Node::Pe(PeId(0)), Node::Pe(PeId(127)));
    let (a, b) = (limited.route(from, to).unwrap(), folded.route(from, to).unwrap());
    assert!(b.hops.is_empty() && a.hops.len() > 8);
    assert_eq!(a.latency_ps(), b.head_ps);
}

#[test]
fn distance_is_monotonic() {
    let m = machine("");
    let far = |to: PeId| m.route(Node::Hbm(to), Node::Pe(PeId(0))).unwrap().latency_ps();
    let steps = [PeId(0), PeId(1), PeId(7), pe(&m, 0, 1, 0), pe(&m, 0, 5, 0), pe(&m, 0, 15, 0)].map(far);
    assert!(steps.windows(2).all(|pair| pair[0] < pair[1]), "{steps:?}");
}

#[test]
fn a_two_wide_torus_has_one_pair_of_links_between_neighbours() {
    let m = machine("system: {sips: {count: 4, topology: torus_2d}}");
    assert_eq!(m.links_between_sips().count(), 8);
    assert_eq!(machine("").links_between_sips().count(), 2);
}

#[test]
fn every_dimension_of_a_grid_has_links_of_its_own() {
    let own = "links: {w: {bandwidth_gbs: 400}, d: {bandwidth_gbs: 25, latency_ns: 9}}";
    for network in ["torus_3d", "mesh_3d"] {
        let m = machine(&format!("system: {{sips: {{count: 24, topology: {network}, w: 2, h: 3, d: 4, {own}}}}}"));
        for link in m.links_between_sips() {
            let apart = [link.from % 2 != link.to % 2, link.from / 2 % 3 != link.to / 2 % 3];
            let (gbs, latency_ps) = match apart {
                [true, _] => (400.0, 67_240),
                [_, true] => (128.0, 67_240),
                _ => (25.0, 9_000),
            };
            assert_eq!((link.rate.gbs(), link.latency_ps), (gbs, latency_ps), "{network} {}", m.link_name(link.link));
        }
        // One hop along each dimension.
        assert_eq!(m.route(Node::Io(0), Node::Io(9)).unwrap().latency_ps(), 2 * 67_240 + 9_000);
        assert!(m.sip_link().is_none());
    }
}

#[test]
fn dimensions_whose_links_are_those_of_all_change_nothing() {
    let text = |own: &str| {
        format!("system: {{sips: {{count: 6, topology: torus_2d, w: 3, link: {{bandwidth_gbs: 50}}{own}}}}}")
    };
    let (plain, same) =
        (machine(&text("")), machine(&text(", links: {w: {bandwidth_gbs: 50}, h: {latency_ns: 67.24}}")));
    assert!(plain.links_between_sips().eq(same.links_between_sips()));
    assert!(same.sip_link().is_some() && same.sip_link() == plain.sip_link());
}

#[test]
fn custom_ways_take_a_direct_link_else_the_least_latency_and_may_be_missing() {
    let text = "system: {sips: {count: 5, topology: custom, edges: [
        {from: 0, to: 2, latency_ns: 100}, {from: 0, to: 1, latency_ns: 40}, {from: 1, to: 2, latency_ns: 40},
        {from: 2, to: 3, latency_ns: 7}]}}";
    let m = machine(text);
    let way = |from, to| m.route(Node::Io(from), Node::Io(to)).unwrap();
    assert_eq!(names(&m, &way(0, 2)), ["sip0->sip2"]);
    assert_eq!(way(0, 2).latency_ps(), 100_000);
    assert_eq!(names(&m, &way(0, 3)), ["sip0->sip1", "sip1->sip2", "sip2->sip3"]);
    assert_eq!(way(0, 3).latency_ps(), 87_000);
    assert_eq!(m.route(Node::Io(0), Node::Io(4)).unwrap_err().code, "AHBM-T012");
    assert_eq!(m.route(Node::Pe(PeId(0)), Node::Io(4)).unwrap_err().code, "AHBM-T012");
}

#[test]
fn nodes_that_do_not_exist_are_refused() {
    let m = machine("");
    for node in [Node::Pe(PeId(256)), Node::Hbm(PeId(u32::MAX)), Node::Sram(PeId(300)), Node::Io(2)] {
        assert_eq!(m.route(node, Node::Pe(PeId(0))).unwrap_err().code, "AHBM-T016");
        assert_eq!(m.route(Node::Pe(PeId(0)), node).unwrap_err().code, "AHBM-T016");
    }
    assert!(m.link_rate(LinkId(u32::MAX)).is_unlimited());
    assert_eq!(m.link_name(LinkId(m.links())), format!("link {} of none", m.links()));
}

#[test]
fn a_transit_costs_once_per_package_in_between() {
    let m = machine("system: {sips: {count: 8, link: {latency_ns: 70}}}\nsip: {io: {transit_ns: 3}}");
    let way = m.route(Node::Io(0), Node::Io(3)).unwrap();
    assert_eq!(way.latency_ps(), 3 * 70_000 + 2 * 3_000);
    let switched =
        machine("system: {sips: {count: 8, topology: switch, link: {latency_ns: 70}}}\nsip: {io: {transit_ns: 3}}");
    assert_eq!(switched.route(Node::Io(0), Node::Io(3)).unwrap().latency_ps(), 240_000);
}

#[test]
fn big_machines_are_small() {
    let m = machine("system: {sips: {count: 1024, topology: torus_2d}}");
    assert_eq!(m.pes(), 131_072);
    let far = m.route(Node::Pe(PeId(0)), Node::Pe(pe(&m, 528, 15, 7))).unwrap();
    assert!(names(&m, &far).iter().filter(|name| name.contains("->")).count() == 32);
    assert!(std::mem::size_of::<Machine>() < 1024 && m.canonical().len() < 4096);
    assert!(m.to_svg().len() < 65_536);
}

/// Both halves of a way through the switch are the way; the reducer is one link more, where it has a bandwidth.
#[test]
fn ways_meet_in_a_switch_that_reduces() {
    let text =
        |rate: &str| format!("system: {{sips: {{count: 4, topology: switch, switch: {{reduces: true{rate}}}}}}}");
    let (m, limited) = (machine(&text("")), machine(&text(", reduce_gbs: 100")));
    let switch = m.reducing_switch(0..4).unwrap();
    let nodes = [Node::Pe(pe(&m, 0, 3, 2)), Node::Hbm(pe(&m, 1, 0, 7)), Node::Sram(pe(&m, 2, 5, 0)), Node::Io(3)];
    for (a, from) in nodes.into_iter().enumerate() {
        for (b, to) in nodes.into_iter().enumerate() {
            let (there, back) =
                (m.route_to_switch(from, switch).unwrap(), m.route_from_switch(to, switch, false).unwrap());
            let both = [names(&m, &there), names(&m, &back)].concat();
            assert_eq!(both.iter().filter(|name| name.contains("switch")).count(), 2, "{both:?}");
            if a != b {
                let way = m.route(from, to).unwrap();
                assert_eq!(both, names(&m, &way));
                assert_eq!(there.latency_ps() + back.latency_ps(), way.latency_ps());
            }
            // As fast as the links, it makes nobody wait.
            assert_eq!(m.route_from_switch(to, switch, true).unwrap(), back);
            let reduced = names(&limited, &limited.route_from_switch(to, switch, true).unwrap());
            assert_eq!(reduced, [vec!["switch.reducer".to_owned()], names(&m, &back)].concat());
        }
    }
    let reducer = LinkId(limited.links() - 1);
    assert_eq!(limited.link_name(reducer), "switch.reducer");
    assert_eq!((limited.link_rate(reducer).gbs(), limited.link_latency_ps(reducer)), (100.0, 0));
    assert_eq!(limited.link_source(reducer), None);
    assert_eq!(limited.links_between_sips().count(), 8);
    assert!(m.switch_reduces() && limited.dump().contains("reducer of the switch"));
}

#[test]
fn what_does_not_meet_in_a_switch_is_named() {
    let plain = machine("system: {sips: {count: 4, topology: switch}}");
    assert!(!plain.switch_reduces() && !plain.dump().contains("reducer"));
    for m in [plain, machine("")] {
        assert_eq!(m.reducing_switch([0]).unwrap_err().code, "AHBM-T019");
    }
    let cut = "system: {sips: {count: 4, topology: switch, switch: {reduces: true}}}\n\
               faults: {links: [{from: 1, to: 4, dead: true, bidirectional: false}]}";
    let m = machine(cut);
    let switch = m.reducing_switch([1]).unwrap();
    let there = m.route_to_switch(Node::Pe(pe(&m, 1, 0, 0)), switch).unwrap_err();
    assert_eq!(there.code, "AHBM-T018");
    assert!(there.message.contains("SIP 1 from the switch") && there.message.contains("sip1->switch"), "{there}");
    assert!(m.route_from_switch(Node::Pe(pe(&m, 1, 0, 0)), switch, true).is_ok());
    assert_eq!(m.route_to_switch(Node::Pe(PeId(m.pes())), switch).unwrap_err().code, "AHBM-T016");
}

/// One direction of one link changes, and nothing else about it.
#[test]
fn a_link_can_be_changed_alone() {
    let late = "faults: {links: [{from: 0, to: 1, extra_latency_ns: 70}]}";
    let m = machine(&format!("system: {{sips: {{count: 4, topology: ring_1d, link: {{latency_ns: 30}}}}}}\n{late}"));
    let way =
        |m: &Machine, from, to| m.route(Node::Pe(pe(m, from, 0, 0)), Node::Pe(pe(m, to, 0, 0))).unwrap().latency_ps();
    let link = m.links_between_sips().find(|link| (link.from, link.to) == (0, 1)).unwrap();
    assert_eq!(link.latency_ps, 100_000);
    let instant = m.with_link(link.link, LinkChange::Instant);
    assert_eq!((instant.link_latency_ps(link.link), instant.link_rate(link.link)), (0, link.rate));
    assert_eq!(way(&m, 0, 1) - way(&instant, 0, 1), 100_000);
    assert_eq!(way(&m, 1, 0), way(&instant, 1, 0));
    let twice = m.with_link(link.link, LinkChange::Twice);
    assert_eq!((twice.link_latency_ps(link.link), twice.link_rate(link.link).gbs()), (100_000, 2.0 * link.rate.gbs()));
    assert!(m.hash() != instant.hash() && instant.hash() != twice.hash());
}
