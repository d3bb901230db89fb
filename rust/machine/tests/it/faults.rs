//! Faults: what they change, what they leave, and what they cut off.

use ahbm_machine::{Coord, FULL_PACE, Jitter, Machine, Node, PeId};
use proptest::prelude::*;

fn machine(text: &str) -> Machine {
    Machine::from_yaml(text, "faulty", &[]).unwrap_or_else(|findings| panic!("{findings:?}"))
}

fn codes(text: &str) -> Vec<&'static str> {
    Machine::from_yaml(text, "faulty", &[]).map_or_else(|f| f.iter().map(|d| d.code).collect(), |_| Vec::new())
}

fn pe(machine: &Machine, sip: u32, cube: u32, pe: u32) -> Node {
    Node::Pe(machine.pe(Coord { sip, cube, pe }).unwrap())
}

fn names(machine: &Machine, from: Node, to: Node) -> Vec<String> {
    machine.route(from, to).unwrap().hops.iter().map(|hop| machine.link_name(hop.link)).collect()
}

const RING: &str = "system: {sips: {count: 4}}\nsip: {cube_mesh: {w: 1, h: 1}}\n";

#[test]
fn a_slow_and_late_link_is_slow_and_late_one_way() {
    let well = machine(RING);
    let ill = machine(&format!(
        "{RING}faults: {{links: [{{from: 0, to: 1, slowdown: 4, extra_latency_ns: 100, bidirectional: false}}]}}"
    ));
    for (from, to) in [(0, 1), (1, 0), (1, 2), (3, 0)] {
        let route = |m: &Machine| m.route(pe(m, from, 0, 0), pe(m, to, 0, 0)).unwrap();
        let (before, after) = (route(&well), route(&ill));
        let late = if (from, to) == (0, 1) { 100_000 } else { 0 };
        assert_eq!(after.latency_ps(), before.latency_ps() + late);
        let slowest = |m: &Machine, r: &ahbm_machine::Route| {
            r.hops.iter().map(|h| m.link_rate(h.link).ps(1 << 20)).max().unwrap()
        };
        let factor = if late > 0 { 4 } else { 1 };
        assert_eq!(slowest(&ill, &after), factor * slowest(&well, &before));
    }
    let rates: Vec<f64> = ill.links_between_sips().map(|l| l.rate.gbs()).collect();
    assert_eq!(rates.iter().filter(|r| **r < 33.0).count(), 1);
    assert_ne!(well.hash(), ill.hash());
}

#[test]
fn messages_go_round_a_dead_link() {
    let m = machine(&format!("{RING}faults: {{links: [{{from: 0, to: 1, dead: true}}]}}"));
    let way = names(&m, pe(&m, 0, 0, 0), pe(&m, 1, 0, 0)).join(" ");
    assert!(way.contains("sip0->sip3 sip3->sip2 sip2->sip1"), "{way}");
    // Ways that do not use it stay as they are.
    let other = machine(RING);
    assert_eq!(names(&m, pe(&m, 1, 0, 0), pe(&m, 2, 0, 0)), names(&other, pe(&other, 1, 0, 0), pe(&other, 2, 0, 0)));
    assert_eq!(m.links_between_sips().count(), 6);
}

#[test]
fn what_is_cut_off_is_named() {
    let text = format!("{RING}faults: {{links: [{{from: 0, to: 1, dead: true}}, {{from: 0, to: 3, dead: true}}]}}");
    let m = machine(&text);
    let error = m.route(pe(&m, 2, 0, 0), pe(&m, 0, 0, 0)).unwrap_err();
    assert_eq!(error.code, "AHBM-T018");
    assert!(error.message.contains("cut off SIP 0 from SIP 2") && error.message.contains("sip1->sip0"), "{error:?}");
    let switch = "system: {sips: {count: 4, topology: switch}}\nfaults: {links: [{from: 2, to: 4, dead: true}]}";
    let m = machine(switch);
    assert_eq!(m.route(pe(&m, 2, 0, 0), pe(&m, 0, 0, 0)).unwrap_err().code, "AHBM-T018");
    assert!(m.route(pe(&m, 1, 0, 0), pe(&m, 0, 0, 0)).is_ok());
}

#[test]
fn messages_go_round_a_dead_port_of_a_cube() {
    let m = machine("faults: {links: [{sip: 1, from: 0, to: 1, dead: true}]}");
    let way = names(&m, pe(&m, 1, 0, 2), pe(&m, 1, 1, 2)).join(" ");
    for crossing in ["cube0.ucie_S2", "cube4.ucie_E2", "cube5.ucie_N2"] {
        assert!(way.contains(crossing), "{way}");
    }
    assert!(names(&m, pe(&m, 0, 0, 2), pe(&m, 0, 1, 2)).join(" ").contains("cube0.ucie_E2"));
}

#[test]
fn nonsense_is_refused_with_its_place() {
    for (faults, code) in [
        ("links: [{from: 0}]", "AHBM-T017"),
        ("links: [{from: 0, to: 2}]", "AHBM-T017"),
        ("links: [{from: 0, to: 9}]", "AHBM-T017"),
        ("links: [{from: 0, to: 0}]", "AHBM-T017"),
        ("links: [{sip: 0, from: 0, to: 5}]", "AHBM-T017"),
        ("links: [{sip: 7, from: 0, to: 1}]", "AHBM-T017"),
        ("links: [{from: 0, to: 1, slowdown: 0.5}]", "AHBM-T017"),
        ("links: [{from: 0, to: 1}, {from: 1, to: 0, dead: true}]", "AHBM-T017"),
        ("stragglers: [{sip: 4}]", "AHBM-T017"),
        ("stragglers: [{slowdown: 0}]", "AHBM-T017"),
        ("stragglers: [{sip: 1}, {sip: 1}]", "AHBM-T017"),
        ("jitter: {seed: -1}", "AHBM-T005"),
        ("links: [{frm: 0}]", "AHBM-T003"),
    ] {
        let text = format!("system: {{sips: {{count: 4}}}}\nfaults: {{{faults}}}");
        assert!(codes(&text).contains(&code), "{faults}: {:?}", codes(&text));
    }
}

#[test]
fn only_the_straggler_is_slow() {
    let m = machine("faults: {stragglers: [{sip: 1, cube: 3, pe: 2, slowdown: 1.5}]}");
    let slow: Vec<u32> = (0..m.pes()).map(|pe| m.pace(PeId(pe))).filter(|&p| p != FULL_PACE).collect();
    assert_eq!(slow, [1500]);
    assert_eq!(m.pace(m.pe(Coord { sip: 1, cube: 3, pe: 2 }).unwrap()), 1500);
}

proptest! {
    /// Delays are at most their limit, grow with it, and differ among messages and streams.
    #[test]
    fn delays_grow_with_their_limit(seed in any::<u64>(), stream in any::<u32>(), number in any::<u32>(), limit in any::<u64>()) {
        let at = |latency_ps| Jitter { seed, latency_ps, skew_ps: latency_ps };
        prop_assert!(at(limit).latency(stream, number) <= limit && at(limit).skew(PeId(number)) <= limit);
        prop_assert!(at(limit / 2).latency(stream, number) <= at(limit).latency(stream, number));
        prop_assert_eq!(at(0).latency(stream, number), 0);
        let wide = at(u64::MAX);
        prop_assert!(wide.latency(stream, number) != wide.latency(stream, number ^ 1));
        prop_assert!(wide.latency(stream, number) != wide.latency(stream ^ 1, number));
    }

    /// A detour is a way: it starts and ends where it should, over links that are alive, and exists whenever any does.
    #[test]
    fn detours_are_ways(seed in any::<u64>(), wrap in any::<bool>()) {
        let kind = if wrap { "torus_2d" } else { "mesh_2d_no_wrap" };
        let base = format!("system: {{sips: {{count: 16, topology: {kind}}}}}\nsip: {{cube_mesh: {{w: 1, h: 1}}}}\n");
        let well = machine(&base);
        let pairs: Vec<(u32, u32)> =
            well.links_between_sips().map(|l| (l.from, l.to)).filter(|(a, b)| a < b).collect();
        let dead: Vec<(u32, u32)> =
            pairs.iter().enumerate().filter(|(i, _)| seed >> (i % 64) & 1 == 1).map(|(_, p)| *p).collect();
        let list: Vec<String> = dead.iter().map(|(a, b)| format!("{{from: {a}, to: {b}, dead: true}}")).collect();
        let m = machine(&format!("{base}faults: {{links: [{}]}}", list.join(", ")));
        let mut reach: Vec<u32> = (0..16).collect();
        for _ in 0..16 {
            for &(a, b) in pairs.iter().filter(|p| !dead.contains(p)) {
                let low = reach[a as usize].min(reach[b as usize]);
                (reach[a as usize], reach[b as usize]) = (low, low);
            }
        }
        for from in 0..16u32 {
            for to in (0..16u32).filter(|to| *to != from) {
                let joined = reach[from as usize] == reach[to as usize];
                match m.route(pe(&m, from, 0, 0), pe(&m, to, 0, 0)) {
                    Err(error) => prop_assert!(!joined && error.code == "AHBM-T018"),
                    Ok(route) => {
                        prop_assert!(joined);
                        let between: Vec<_> = m.links_between_sips().collect();
                        let mut at = from;
                        for hop in &route.hops {
                            if let Some(link) = between.iter().find(|l| l.link == hop.link) {
                                prop_assert_eq!(link.from, at);
                                at = link.to;
                            }
                            let name = m.link_name(hop.link);
                            let is_dead = dead.iter().any(|(a, b)| name == format!("sip{a}->sip{b}"));
                            prop_assert!(!is_dead, "{}", name);
                        }
                        prop_assert_eq!(at, to);
                    }
                }
            }
        }
    }
}
