//! Networks of switches of several tiers between nodes, and which of several equal ways a message takes.

use ahbm_machine::{Coord, Machine, Node};
use proptest::prelude::*;
use std::collections::BTreeMap;

const PLAIN: &str = "sip: {cube_mesh: {w: 1, h: 1}, io: {latency_ns: 0, bandwidth_gbs: .inf}}\n\
    cube: {noc: {link_gbs: .inf, pitch_mm: 0}}\npe: {noc_port_gbs: .inf, noc_port_in_gbs: .inf}\n";

fn read(text: &str) -> Result<Machine, Vec<ahbm_findings::Diagnostic>> {
    Machine::from_yaml(&format!("{PLAIN}{text}"), "fabrics", &[])
}

fn codes(text: &str) -> Vec<&'static str> {
    read(text).map_or_else(|f| f.iter().map(|d| d.code).collect(), |_| Vec::new())
}

fn machine(count: u32, size: u32, fabric: &str, more: &str) -> Machine {
    read(&text(count, size, fabric, more)).unwrap_or_else(|findings| panic!("{findings:?}"))
}

fn text(count: u32, size: u32, fabric: &str, more: &str) -> String {
    format!(
        "system: {{sips: {{count: {count}, topology: nodes, link: {{latency_ns: 300, bandwidth_gbs: 400}}{more}, nodes: \
         {{size: {size}, switch_ns: 100, nic_latency_ns: 2000, nic_gbs: 50, spine_ns: 500, fabric: {{{fabric}}}}}}}}}"
    )
}

/// Names of the links and latency in ps.
fn way(machine: &Machine, from: u32, to: u32) -> (Vec<String>, u64) {
    let pe = |sip| Node::Pe(machine.pe(Coord { sip, cube: 0, pe: 0 }).unwrap());
    let route = machine.route(pe(from), pe(to)).unwrap();
    (route.hops.iter().map(|hop| machine.link_name(hop.link)).collect(), route.latency_ps())
}

/// How many of these flows cross each link.
fn load(machine: &Machine, flows: impl IntoIterator<Item = (u32, u32)>) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for (from, to) in flows {
        way(machine, from, to).0.into_iter().for_each(|link| *found.entry(link).or_default() += 1);
    }
    found
}

const THREE: &str = "tiers: 3, nodes_per_leaf: 2, nodes_per_pod: 4";

#[test]
fn tiers_are_crossed_as_far_up_as_needed() {
    let machine = machine(64, 4, THREE, "");
    assert_eq!((machine.node_size(), machine.has_fabric(), machine.topology_name()), (4, true, "nodes"));
    let (names, latency) = way(&machine, 0, 3);
    assert_eq!((names, latency), (vec!["sip0->node0.switch".into(), "node0.switch->sip3".into()], 700_000));
    let (names, latency) = way(&machine, 0, 7);
    assert_eq!((names, latency), (vec!["sip0->leaf0".into(), "leaf0->sip7".into()], 4_500_000));
    let (names, latency) = way(&machine, 1, 9);
    assert!(names[1].starts_with("leaf0->spine") && names[2].ends_with("->leaf1"), "{names:?}");
    assert_eq!((names.len(), latency), (4, 5_500_000));
    let (names, latency) = way(&machine, 1, 63);
    assert!(names[2].contains("->core") && names[3].starts_with("core"), "{names:?}");
    assert_eq!((names.len(), latency), (6, 6_500_000));
    // 8 leaves of 8 interfaces, 8 spines in each of 4 pods with two links down and two up each, and 16 cores.
    assert_eq!(machine.relays(), 16 + 8 + 32 + 16);
}

#[test]
fn sizes_follow_from_each_other() {
    let count = |fabric: &str, what: &str| {
        let machine = machine(64, 8, fabric, "");
        machine.links_between_sips().filter(|l| machine.link_name(l.link).starts_with(what)).count()
    };
    assert_eq!(count("nodes_per_leaf: 4", "spine"), 32 * 2);
    assert_eq!(count("nodes_per_leaf: 4, oversubscription: 2", "spine"), 16 * 2);
    assert_eq!(count("nodes_per_leaf: 4, links: 4", "spine"), 8 * 2 * 4);
    assert_eq!(count("nodes_per_leaf: 4, bandwidth_gbs: 400", "spine"), 4 * 2);
    let rate = |fabric: &str| {
        let machine = machine(64, 8, fabric, "");
        let link = machine.links_between_sips().find(|l| machine.link_name(l.link).starts_with("leaf0->spine0"));
        link.unwrap().rate.gbs()
    };
    assert_eq!(rate("nodes_per_leaf: 4, spines: 8, oversubscription: 1"), 200.0);
    assert_eq!(rate("nodes_per_leaf: 4, spines: 8, oversubscription: 4"), 50.0);
    assert_eq!(rate("nodes_per_leaf: 4, spines: 8"), 50.0);
}

#[test]
fn rails_have_leaves_of_their_own() {
    let one = machine(32, 4, "kind: rails, tiers: 1", "");
    assert_eq!(way(&one, 1, 29).0, ["sip1->rail1.leaf0", "rail1.leaf0->sip29"]);
    // No switch joins rails: the sender's node does.
    let crossing = ["sip1->node0.switch", "node0.switch->sip2", "sip2->rail2.leaf0", "rail2.leaf0->sip30"];
    assert_eq!(way(&one, 1, 30).0, crossing);
    let two = machine(32, 4, "kind: rails, nodes_per_leaf: 2, spines: 2", "");
    assert_eq!(way(&two, 1, 30).0.len(), 4);
    let kept = machine(32, 4, "kind: rails, nodes_per_leaf: 8, spines: 2", ", routes: {choose: rails}");
    assert_eq!(way(&kept, 1, 30).0, crossing);
}

#[test]
fn groups_of_a_dragonfly_are_all_joined() {
    let machine = machine(72, 2, "kind: dragonfly, nodes_per_leaf: 2, routers: 3", "");
    // 36 nodes, 18 routers, 6 groups.
    let longest = (0..72).map(|to| if to == 5 { 0 } else { way(&machine, 5, to).0.len() }).max();
    assert_eq!(longest, Some(5));
    let between = machine.links_between_sips().filter(|l| {
        let name = machine.link_name(l.link);
        let (a, b) = name.split_once("->").unwrap();
        name.contains("router") && !name.contains("sip") && a.split('.').next() != b.split('.').next()
    });
    assert_eq!(between.count(), 6 * 5);
}

#[test]
fn a_way_may_be_given() {
    let given = ", routes: {given: [{from: 0, to: 9, by: [leaf0, spine3, leaf1]}]}";
    let machine = machine(16, 4, "nodes_per_leaf: 2", given);
    assert_eq!(way(&machine, 0, 9).0, ["sip0->leaf0", "leaf0->spine3", "spine3->leaf1", "leaf1->sip9"]);
    for by in ["[leaf0, leaf1]", "[leaf0, spine99, leaf1]", "[]"] {
        let given = format!(", routes: {{given: [{{from: 0, to: 9, by: {by}}}]}}");
        assert_eq!(codes(&text(16, 4, "nodes_per_leaf: 2", &given)), ["AHBM-T010"], "{by}");
    }
}

#[test]
fn links_side_by_side_have_numbers_and_share_faults() {
    let with = |more: &str| machine(32, 4, "nodes_per_leaf: 4, spines: 2, links: 4", more);
    let names: Vec<_> = (16..32).map(|to| way(&with(""), 0, to).0[1].clone()).collect();
    assert!(names.iter().any(|name| name == "leaf0->spine1.3"), "{names:?}");
    let faulty = format!(
        "{}\nfaults: {{links: [{{from: {}, to: {}, dead: true}}]}}",
        text(32, 4, "nodes_per_leaf: 4, spines: 2, links: 4", ""),
        32 + 8,
        32 + 8 + 2
    );
    let faulty = read(&faulty).unwrap();
    for to in 16..32 {
        let (before, after) = (way(&with(""), 0, to).0, way(&faulty, 0, to).0);
        assert!(after[1].starts_with("leaf0->spine1."), "{after:?}");
        // What was not on the dead links stays where it was.
        assert!(!before[1].starts_with("leaf0->spine1.") || before == after);
    }
}

#[test]
fn a_custom_network_hashes_over_equal_ways_too() {
    let edges = "[{from: 0, to: 2}, {from: 0, to: 3}, {from: 1, to: 2}, {from: 1, to: 3}, {from: 4, to: 2, links: 2}, \
                 {from: 4, to: 3}]";
    let with = |routes: &str| {
        read(&format!(
            "system: {{sips: {{count: 2, topology: custom, relays: 3, relay_names: [a, b, c], edges: {edges}{routes}}}}}"
        ))
    };
    let seen: std::collections::BTreeSet<_> =
        (0..16).map(|seed| way(&with(&format!(", routes: {{choose: ecmp, seed: {seed}}}")).unwrap(), 0, 1).0).collect();
    assert_eq!(seen.len(), 2);
    assert_eq!(with("").unwrap_err()[0].code, "AHBM-T015");
    assert_eq!(with(", routes: {choose: rails}").unwrap_err()[0].code, "AHBM-T015");
}

#[test]
fn mistakes_are_told() {
    for (fabric, more, code) in [
        ("kind: dragonfly, tiers: 2", "", "AHBM-T015"),
        ("tiers: 1, spines: 4", "", "AHBM-T015"),
        ("cores: 4", "", "AHBM-T015"),
        ("spines: 2, oversubscription: 2, bandwidth_gbs: 50", "", "AHBM-T015"),
        ("tiers: 3, nodes_per_leaf: 4, nodes_per_pod: 6", "", "AHBM-T007"),
        ("tiers: 3, spines: 4, cores: 6", "", "AHBM-T007"),
        ("tiers: 1, nodes_per_leaf: 2", "", "AHBM-T010"),
        ("kind: torus", "", "AHBM-T006"),
        ("spines: 4096, links: 1024", "", "AHBM-T009"),
        ("nodes_per_leaf: 2", ", routes: {choose: rails, seed: 3}", "AHBM-T015"),
        ("oversubscription: 0", "", "AHBM-T005"),
    ] {
        assert_eq!(codes(&text(64, 4, fabric, more)), [code], "{fabric}");
    }
    let tapered = text(64, 4, "", "").replace("spine_ns: 500", "spine_ns: 500, taper: 2");
    assert_eq!(codes(&tapered), ["AHBM-T015"]);
    let plain = "system: {sips: {count: 8, topology: nodes, routes: {choose: ecmp}}}";
    assert_eq!(codes(plain), ["AHBM-T015"]);
}

fn shapes() -> impl Strategy<Value = (u32, u32, String)> {
    let shape = prop_oneof![
        (1u32..4).prop_map(|leaf| format!("nodes_per_leaf: {leaf}")),
        (1u32..4, 1u32..5).prop_map(|(leaf, spines)| format!("nodes_per_leaf: {leaf}, spines: {spines}")),
        (1u32..3, 1u32..4)
            .prop_map(|(leaf, pod)| format!("tiers: 3, nodes_per_leaf: {leaf}, nodes_per_pod: {}", leaf * pod)),
        (1u32..4).prop_map(|leaf| format!("kind: rails, nodes_per_leaf: {leaf}")),
        Just("kind: rails, tiers: 1".to_owned()),
        (1u32..3, 1u32..4, 1u32..3).prop_map(|(leaf, routers, links)| {
            format!("kind: dragonfly, nodes_per_leaf: {leaf}, routers: {routers}, links: {links}")
        }),
    ];
    (2u32..9, 1u32..5, shape)
}

proptest! {
    /// Every way is whole, starts and ends where it should, and never crosses a SIP that is neither but in its own node.
    #[test]
    fn ways_lead_there((m, size, fabric) in shapes(), from in 0u32..64, to in 0u32..64, seed in 0u32..9, rails: bool) {
        let routes = if rails { ", routes: {choose: rails}".to_owned() } else { format!(", routes: {{seed: {seed}}}") };
        let machine = machine(m * size, size, &fabric, &routes);
        let (from, to) = (from % (m * size), to % (m * size));
        prop_assume!(from != to);
        let (names, _) = way(&machine, from, to);
        let ends: Vec<Vec<&str>> = names.iter().map(|name| name.split("->").collect()).collect();
        prop_assert_eq!(ends[0][0], format!("sip{from}"));
        prop_assert_eq!(ends[ends.len() - 1][1], format!("sip{to}"));
        for pair in ends.windows(2) {
            let bare = |end: &str| end.to_owned();
            let joined = pair[0][1] == pair[1][0] || pair[0][1].rsplit_once('.').is_some_and(|(a, _)| a == pair[1][0]);
            prop_assert!(joined, "{:?} {:?}", bare(pair[0][1]), bare(pair[1][0]));
        }
    }

    /// With one way there is nothing to choose: a seed, or `rails` on one rail, changes nothing.
    #[test]
    fn with_one_spine_all_choices_agree(m in 2u32..9, size in 1u32..5, seed in 0u32..99, from in 0u32..32, to in 0u32..8) {
        let from = from % (m * size);
        let to = from % size + to % m * size;
        prop_assume!(from != to);
        let fabric = "nodes_per_leaf: 2, spines: 1";
        let hashed = machine(m * size, size, fabric, &format!(", routes: {{seed: {seed}}}"));
        for routes in [", routes: {choose: first}", ", routes: {choose: rails}", ""] {
            prop_assert_eq!(way(&hashed, from, to), way(&machine(m * size, size, fabric, routes), from, to));
        }
    }

    /// Links between switches carry one flow at most where rails are kept and every SIP sends to that of its rail some
    /// nodes on, in a fabric that is not oversubscribed.
    #[test]
    fn rails_never_collide(leaf in 1u32..4, pods in 1u32..4, per_pod in 1u32..4, size in 1u32..5, by in 1u32..36, rails: bool, three: bool) {
        let m = leaf * pods * per_pod;
        let kind = if rails { "rails" } else { "clos" };
        let tiers = if three { format!(", tiers: 3, nodes_per_pod: {}", leaf * per_pod) } else { String::new() };
        let machine = machine(m * size, size, &format!("kind: {kind}, nodes_per_leaf: {leaf}{tiers}"), ", routes: {choose: rails}");
        let count = m * size;
        let shift = by % m * size;
        prop_assume!(shift > 0);
        let load = load(&machine, (0..count).map(|sip| (sip, (sip + shift) % count)));
        prop_assert!(load.values().all(|&flows| flows == 1), "{load:?}");
    }

    /// A seed changes where flows meet, and nothing else: every way stays as long and as late.
    #[test]
    fn seeds_change_ways_alone((m, size, fabric) in shapes(), seed in 1u32..999, from in 0u32..64, to in 0u32..64) {
        let (from, to) = (from % (m * size), to % (m * size));
        prop_assume!(from != to);
        let [one, other] = [0, seed].map(|seed| way(&machine(m * size, size, &fabric, &format!(", routes: {{seed: {seed}}}")), from, to));
        prop_assert_eq!((one.0.len(), one.1), (other.0.len(), other.1));
    }
}

#[test]
fn hashes_spread_evenly_enough() {
    let m = machine(512, 8, "nodes_per_leaf: 4", "");
    let load = load(&m, (0..512).flat_map(|from| (1..64).map(move |by| (from, (from + 8 * by) % 512))));
    let up: Vec<u32> =
        load.iter().filter(|(name, _)| name.starts_with("leaf0->spine")).map(|(_, &count)| count).collect();
    // 32 senders to 60 nodes of other leaves over 32 links.
    assert_eq!((up.len(), up.iter().sum::<u32>()), (32, 32 * 60));
    assert!(up.iter().all(|&flows| (35..90).contains(&flows)), "{up:?}");
}
