//! Routes, links and calibrated latencies of resolved machines.

use ahbm_machine::{Coord, LinkId, Machine, Node, PeId, Ps, Route};

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
    assert_eq!(read(PeId(0)), 77_000);
    let request = |at: PeId| m.route(Node::Pe(PeId(0)), Node::Hbm(at)).unwrap().latency_ps();
    let corner = pe(&m, 0, 15, 0);
    let remote = read(corner) + request(corner);
    let other = pe(&m, 1, 0, 0);
    let sip = read(other) + request(other);
    for (got, published) in [
        (remote, 573_000),
        (sip, 409_000),
        (transfer(&m, Node::Io(0), Node::Hbm(PeId(0)), 65536), 545_000),
        (transfer(&m, Node::Io(0), Node::Hbm(PeId(0)), 1 << 20), 8_230_000),
    ] {
        eprintln!("{got} {published}");
        assert!((got as f64 / f64::from(published) - 1.0).abs() < 0.02, "{got} ps, published {published} ps");
    }
}

#[test]
fn link_ids_and_names_are_one_to_one() {
    let m = machine("system: {sips: {count: 6, topology: torus_2d, w: 3, h: 2}}\nsip: {cube_mesh: {w: 2, h: 2}}");
    let names: std::collections::BTreeSet<String> = (0..m.links()).map(|id| m.link_name(LinkId(id))).collect();
    assert_eq!(names.len() as u32, m.links());
}
