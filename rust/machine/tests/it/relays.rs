//! Vertices between SIPs that are no SIP: relays of custom networks, and the switches, interfaces and spine of nodes.

use ahbm_machine::{Coord, LinkId, Machine, Node};
use proptest::prelude::*;

const PLAIN: &str = "sip: {cube_mesh: {w: 1, h: 1}, io: {latency_ns: 0, bandwidth_gbs: .inf}}\n\
    cube: {noc: {link_gbs: .inf, pitch_mm: 0}}\npe: {noc_port_gbs: .inf, noc_port_in_gbs: .inf}\n";

fn machine(text: &str) -> Machine {
    Machine::from_yaml(&format!("{PLAIN}{text}"), "relays", &[]).unwrap_or_else(|findings| panic!("{findings:?}"))
}

fn codes(text: &str) -> Vec<&'static str> {
    let read = Machine::from_yaml(&format!("{PLAIN}{text}"), "relays", &[]);
    read.map_or_else(|f| f.iter().map(|d| d.code).collect(), |_| Vec::new())
}

/// Names of the links, latency in ps, and GB/s of the slowest.
fn way(machine: &Machine, from: u32, to: u32) -> (Vec<String>, u64, f64) {
    let pe = |sip| Node::Pe(machine.pe(Coord { sip, cube: 0, pe: 0 }).unwrap());
    let route = machine.route(pe(from), pe(to)).unwrap();
    let rates = route.hops.iter().map(|hop| machine.link_rate(hop.link).gbs());
    (
        route.hops.iter().map(|hop| machine.link_name(hop.link)).collect(),
        route.latency_ps(),
        rates.fold(f64::INFINITY, f64::min),
    )
}

fn nodes(count: u32, size: u32, taper: f64) -> Machine {
    machine(&format!(
        "system: {{sips: {{count: {count}, topology: nodes, link: {{latency_ns: 300, bandwidth_gbs: 400}}, \
         nodes: {{size: {size}, switch_ns: 100, nic_latency_ns: 2000, nic_gbs: 50, spine_ns: 500, taper: {taper}}}}}}}"
    ))
}

#[test]
fn neighbours_of_a_node_meet_at_its_switch_and_others_at_the_spine() {
    let machine = nodes(16, 8, 1.0);
    assert_eq!((machine.relays(), machine.topology_name()), (7, "nodes"));
    let (names, latency, gbs) = way(&machine, 9, 14);
    assert_eq!(names, ["sip9->node1.switch", "node1.switch->sip14"]);
    assert_eq!((latency, gbs), (700_000, 400.0));
    let (names, latency, gbs) = way(&machine, 1, 8);
    assert_eq!(names, ["sip1->node0.out", "node0.out->spine", "spine->node1.in", "node1.in->sip8"]);
    assert_eq!((latency, gbs), (4_500_000, 50.0));
}

#[test]
fn a_taper_bounds_what_a_node_sends_in_all() {
    let rate = |taper| {
        let machine = nodes(16, 8, taper);
        let found = machine.links_between_sips().find(|l| machine.link_name(l.link) == "node0.out->spine");
        found.unwrap().rate.gbs()
    };
    assert_eq!((rate(1.0), rate(2.0), rate(16.0)), (400.0, 200.0, 25.0));
    assert_eq!(way(&nodes(16, 8, 16.0), 0, 15).2, 25.0);
}

#[test]
fn one_node_has_a_switch_alone() {
    let machine = nodes(5, 8, 1.0);
    assert_eq!((machine.relays(), machine.links_between_sips().count()), (1, 10));
    assert_eq!(way(&machine, 4, 0).0, ["sip4->node0.switch", "node0.switch->sip0"]);
}

#[test]
fn a_custom_network_may_have_relays() {
    let edges = "[{from: 0, to: 2}, {from: 1, to: 2, latency_ns: 10}]";
    let text =
        format!("system: {{sips: {{count: 2, topology: custom, relays: 1, link: {{latency_ns: 5}}, edges: {edges}}}}}");
    let machine = machine(&text);
    let (names, latency, _) = way(&machine, 0, 1);
    assert_eq!((names, latency), (vec!["sip0->relay0".to_owned(), "relay0->sip1".to_owned()], 15_000));
    assert!(machine.to_svg().contains("relay0"));
}

#[test]
fn mistakes_are_told() {
    for (text, code) in [
        ("system: {sips: {count: 9, topology: nodes, nodes: {size: 4}}}", "AHBM-T007"),
        ("system: {sips: {count: 8, topology: nodes, nodes: {size: 4, taper: 0.5}}}", "AHBM-T005"),
        ("system: {sips: {count: 8, nodes: {size: 4}}}", "AHBM-T015"),
        ("system: {sips: {count: 8, relays: 4}}", "AHBM-T015"),
        ("system: {sips: {count: 2, topology: custom, relays: 1, edges: [{from: 0, to: 3}]}}", "AHBM-T010"),
        ("system: {sips: {count: 200000, topology: nodes}}", "AHBM-T009"),
    ] {
        assert_eq!(codes(text), [code], "{text}");
    }
}

proptest! {
    /// Every SIP reaches every other, by its own links out and in.
    #[test]
    fn everybody_is_reached(m in 1u32..6, size in 1u32..9, from in 0u32..48, to in 0u32..48) {
        let machine = nodes(m * size, size, 1.0);
        let (from, to) = (from % (m * size), to % (m * size));
        prop_assume!(from != to);
        let (names, _, _) = way(&machine, from, to);
        prop_assert_eq!(names.len(), if from / size == to / size { 2 } else { 4 });
        let (first, last) = (format!("sip{from}->"), format!("->sip{to}"));
        prop_assert!(names[0].starts_with(&first) && names[names.len() - 1].ends_with(&last));
    }
}

/// The text of two nodes of four whose switches reduce, with more keys of `nodes`.
fn reducing(more: &str) -> Machine {
    machine(&format!(
        "system: {{sips: {{count: 8, topology: nodes, link: {{latency_ns: 300}}, \
         nodes: {{size: 4, switch_ns: 100, nic_latency_ns: 2000, spine_ns: 500{more}}}}}}}"
    ))
}

#[test]
fn the_nearest_switch_that_reduces_takes_part() {
    let m = reducing(", reduces: true, reduce_gbs: 200, spine_reduces: true");
    let names = |route: &ahbm_machine::Route| route.hops.iter().map(|hop| m.link_name(hop.link)).collect::<Vec<_>>();
    let at = |sip| Node::Hbm(m.pe(Coord { sip, cube: 0, pe: 0 }).unwrap());
    let (node, spine) = (m.reducing_switch(5..8).unwrap(), m.reducing_switch([0, 4]).unwrap());
    assert_eq!(m.reducing_switch(0..8).unwrap(), spine);
    let (there, back) = (m.route_to_switch(at(5), node).unwrap(), m.route_from_switch(at(6), node, true).unwrap());
    assert!(names(&there).contains(&"sip5->node1.switch".to_owned()));
    assert!(names(&back).starts_with(&["node1.reducer".to_owned(), "node1.switch->sip6".to_owned()]));
    let there = names(&m.route_to_switch(at(1), spine).unwrap());
    assert!(there.ends_with(&["sip1->node0.out".to_owned(), "node0.out->spine".to_owned()]), "{there:?}");
    let back = names(&m.route_from_switch(at(4), spine, true).unwrap());
    assert!(back.starts_with(&["spine->node1.in".to_owned(), "node1.in->sip4".to_owned()]), "{back:?}");
    assert_eq!(
        (m.link_name(LinkId(m.links() - 1)), m.link_name(LinkId(m.links() - 3))),
        ("spine.reducer".into(), "node0.reducer".into())
    );
    assert!(m.switch_reduces() && m.dump().contains("reducer of the node             2"), "{}", m.dump());
    assert!(m.dump().contains("reducer of the spine"));
}

#[test]
fn nodes_reduce_nothing_unless_they_say_so() {
    let plain = reducing("");
    assert_eq!(plain.links(), reducing(", reduces: false, spine_reduces: false").links());
    assert!(!plain.canonical().contains("nodes.reduce") && !plain.canonical().contains("spine_reduce"));
    let error = plain.reducing_switch(0..4).unwrap_err();
    assert_eq!(error.code, "AHBM-T019");
    assert!(error.hint.unwrap().contains("system.sips.nodes.reduces"));
    let inside = reducing(", reduces: true");
    assert!(inside.reducing_switch(0..4).is_ok() && inside.reducing_switch(3..5).is_err() && !inside.switch_reduces());
    assert_eq!((plain.node_size(), machine("").node_size()), (4, 1));
}
