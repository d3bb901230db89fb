//! Protocols and launch: what they change, and that a machine without them is what it was.

use ahbm_machine::{CallCosts, Coord, LinkChange, Machine, Node};
use proptest::prelude::*;

const RING: &str =
    "system: {sips: {count: 4, link: {latency_ns: 500, bandwidth_gbs: 100}}}\nsip: {cube_mesh: {w: 1, h: 1}}\n";
const TWO: &str = "protocols:\n  ll: {step_ns: 600, max_gbs: 20, max_bytes: 65536}\n  simple: {step_ns: 3000, efficiency: 0.5, min_bytes: 1024, slots: 2}\n";

fn machine(text: &str) -> Machine {
    Machine::from_yaml(text, "spoken", &[]).unwrap_or_else(|findings| panic!("{findings:?}"))
}

fn codes(text: &str) -> Vec<&'static str> {
    Machine::from_yaml(text, "spoken", &[]).map_or_else(|f| f.iter().map(|d| d.code).collect(), |_| Vec::new())
}

/// Latency in ps of the way from one SIP to another, and GB/s of its slowest link between SIPs.
fn way(machine: &Machine, from: u32, to: u32) -> (u64, f64) {
    let pe = |sip| Node::Pe(machine.pe(Coord { sip, cube: 0, pe: 0 }).unwrap());
    let route = machine.route(pe(from), pe(to)).unwrap();
    let rates = route
        .hops
        .iter()
        .filter(|hop| machine.link_name(hop.link).starts_with("sip") && machine.link_name(hop.link).contains("->"));
    (route.latency_ps(), rates.map(|hop| machine.link_rate(hop.link).gbs()).fold(f64::INFINITY, f64::min))
}

#[test]
fn a_protocol_changes_messages_between_sips() {
    let (plain, known) = (machine(RING), machine(&format!("{RING}{TWO}")));
    let (ll, simple) = (machine(&format!("{RING}{TWO}protocol: ll")), machine(&format!("{RING}{TWO}protocol: simple")));
    for (from, to) in [(0, 1), (0, 2), (3, 0)] {
        let (latency, rate) = way(&plain, from, to);
        assert_eq!(rate, 100.0);
        assert_eq!(way(&known, from, to), (latency, rate), "a protocol that nobody chose changes nothing");
        assert_eq!(way(&ll, from, to), (latency + 600_000, 20.0));
        assert_eq!(way(&simple, from, to), (latency + 3_000_000, 50.0));
    }
    assert_eq!((known.protocol(), ll.protocol()), (None, Some("ll")));
    let ranges: Vec<_> =
        known.protocols().iter().map(|(name, of)| (name.as_str(), of.min_bytes, of.max_bytes, of.slots)).collect();
    assert_eq!(ranges, [("ll", 0, 65_536, None), ("simple", 1024, u64::MAX, Some(2))]);
    assert_ne!(known.hash(), plain.hash());
}

#[test]
fn channels_bound_what_a_link_carries() {
    let spoken = |keys: &str| machine(&format!("{RING}protocols: {{p: {{{keys}}}}}\nprotocol: p"));
    for (keys, gbs) in [
        ("channels: 3, channel_gbs: 20", 60.0),
        ("channels: 8, channel_gbs: 20", 100.0),
        ("channels: 3, channel_gbs: 20, max_gbs: 50", 50.0),
    ] {
        assert!((way(&spoken(keys), 0, 1).1 - gbs).abs() < 1e-6, "{keys}");
    }
    let known = spoken("channels: 3, channel_gbs: 20, channel_bytes: 4096");
    let (_, of) = &known.protocols()[0];
    let all = of.channels.unwrap();
    assert_eq!((all.most, all.gbs, all.bytes, of.max_gbs), (3, 20.0, 4096, 60.0));
}

#[test]
fn a_calibration_is_no_part_of_the_hash_and_a_library_is() {
    let band = "{collective: all_reduce, ranks: 4, from_bytes: 8, to_bytes: 64, mean_percent: 2.5, worst_percent: 5}";
    let fitted = machine(&format!("{RING}calibration: {{parameters: [a], covariance: [[-0.5]], bands: [{band}]}}"));
    assert_eq!((fitted.hash(), machine(RING).bands()), (machine(RING).hash(), None));
    let bands = fitted.bands().unwrap();
    assert_eq!((bands[0].ranks, bands[0].to_bytes, bands[0].worst_percent), (4, 64, 5.0));
    let own = machine(&format!("{RING}library: {{all_reduce: [ring_allreduce, tree_allreduce]}}"));
    assert_eq!(own.library()[0].1, ["ring_allreduce", "tree_allreduce"]);
    assert_ne!(own.hash(), machine(RING).hash());
}

#[test]
fn a_striped_message_has_the_interfaces_of_its_node() {
    let nodes = |more: &str| {
        let keys = format!("size: 2, nic_gbs: 50{more}");
        machine(&format!(
            "system: {{sips: {{count: 4, topology: nodes, link: {{bandwidth_gbs: 400}}, nodes: {{{keys}}}}}}}\nsip: {{cube_mesh: {{w: 1, h: 1}}}}\n"
        ))
    };
    assert_eq!(way(&nodes(""), 0, 3).1, 50.0);
    assert_eq!(way(&nodes(", striped: true"), 0, 3).1, 100.0);
    assert_eq!(way(&nodes(", striped: true"), 0, 1).1, 400.0);
}

#[test]
fn messages_between_nodes_have_their_own_step_and_bandwidth() {
    let spoken = |keys: &str| {
        machine(&format!(
            "system: {{sips: {{count: 4, topology: nodes, link: {{bandwidth_gbs: 400}}, nodes: {{size: 2, nic_gbs: 50, \
             reduces: true, spine_reduces: true}}}}}}\nsip: {{cube_mesh: {{w: 1, h: 1}}}}\n\
             protocols: {{p: {{step_ns: 600, max_gbs: 40{keys}}}}}\nprotocol: p"
        ))
    };
    let (plain, own) = (spoken(""), spoken(", nic_step_ns: 5000, nic_gbs: 4"));
    assert_eq!(way(&own, 0, 1), way(&plain, 0, 1));
    let (latency, rate) = way(&plain, 0, 3);
    assert_eq!((way(&own, 0, 3), rate), ((latency + 4_400_000, 4.0), 40.0));
    let shown = own.to_string();
    let line = shown.lines().find(|line| line.contains("between nodes")).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["between", "nodes", "5000", "4"]);
    assert!(!plain.to_string().contains("between nodes"));
    // Above what an interface carries, nothing is gained.
    assert_eq!(way(&spoken(", nic_gbs: 400"), 0, 3), (latency, 50.0));
    for (sips, more) in [([0, 1], 0), ([0, 3], 4_400_000)] {
        let to_switch = |machine: &Machine| {
            let pe = Node::Pe(machine.pe(Coord { sip: 0, cube: 0, pe: 0 }).unwrap());
            machine.route_to_switch(pe, machine.reducing_switch(sips).unwrap()).unwrap().latency_ps()
        };
        assert_eq!(to_switch(&own), to_switch(&plain) + more, "{sips:?}");
    }
    let channels = spoken(", channels: 2, channel_gbs: 3, nic_gbs: 20");
    assert_eq!(channels.protocols()[0].1.nic_gbs, Some(20.0));
    assert!((way(&channels, 0, 3).1 - 6.0).abs() < 1e-6);
    // In other networks there are no nodes.
    let ring = |keys: &str| machine(&format!("{RING}protocols: {{p: {{step_ns: 600{keys}}}}}\nprotocol: p"));
    assert_eq!(way(&ring(", nic_step_ns: 5000, nic_gbs: 4"), 0, 1), way(&ring(""), 0, 1));
}

#[test]
fn what_an_interface_carries_bounds_striped_messages_and_nodes() {
    let spoken = |keys: &str, more: &str| {
        machine(&format!(
            "system: {{sips: {{count: 8, topology: nodes, link: {{bandwidth_gbs: 400}}, nodes: {{size: 4, nic_gbs: 50, \
             striped: true{more}}}}}}}\nsip: {{cube_mesh: {{w: 1, h: 1}}}}\nprotocols: {{p: {{{keys}}}}}\nprotocol: p"
        ))
    };
    // Four interfaces, for one message as for all of a node.
    assert_eq!(way(&spoken("nic_gbs: 5", ""), 0, 7).1, 20.0);
    assert_eq!(way(&spoken("max_gbs: 5", ""), 0, 7).1, 5.0);
    assert_eq!(way(&spoken("nic_gbs: 5, channels: 4, channel_gbs: 2", ""), 0, 7).1, 8.0);
    for (keys, taper, gbs) in [("nic_gbs: 80", 4, 50.0), ("nic_gbs: 5", 2, 20.0), ("max_gbs: 5", 1, 200.0)] {
        let machine = spoken(keys, &format!(", taper: {taper}"));
        let spine: Vec<_> = machine
            .links_between_sips()
            .filter(|link| link.from.max(link.to) == 8 + 6)
            .map(|link| link.rate.gbs())
            .collect();
        assert_eq!(spine, [gbs; 4], "{keys}");
    }
    assert_eq!(way(&spoken("nic_gbs: 5, efficiency: 0.05", ""), 0, 7).1, 10.0);
}

#[test]
fn a_message_of_fewer_sips_has_their_interfaces() {
    let nodes = |more: &str, protocol: &str| {
        machine(&format!(
            "system: {{sips: {{count: 8, topology: nodes, link: {{bandwidth_gbs: 400}}, nodes: {{size: 4, nic_gbs: 50, \
             striped: true{more}}}}}}}\nsip: {{cube_mesh: {{w: 1, h: 1}}}}\n{protocol}"
        ))
    };
    let gbs =
        |machine: &Machine, call: CallCosts| (way(&machine.with_costs(&call).unwrap(), 0, 7).1 * 1e6).round() / 1e6;
    let over = |used: u32| CallCosts { interfaces: Some(used), ..CallCosts::default() };
    // What reduces on the way counts for whole nodes alone.
    let gains = nodes(", striped_gain: 1.5", "");
    assert_eq!(gbs(&gains, CallCosts::default()), 300.0);
    for (used, rate) in [(1, 50.0), (2, 100.0), (3, 150.0), (4, 300.0), (9, 300.0)] {
        assert_eq!(gbs(&gains, over(used)), rate, "{used}");
    }
    assert_eq!(gbs(&gains, CallCosts { even: true, ..over(4) }), 200.0);
    assert_eq!(gbs(&gains, CallCosts { part: (2, 5), ..over(1) }), 20.0);
    // The share that calls of a size get is one of all interfaces: fewer are full sooner.
    let ramped = nodes("", "protocols: {p: {max_gbs: 200, ramp_bytes: 1024, ramp_exponent: 1}}");
    for (used, nbytes, rate) in [(1, 1024, 50.0), (4, 1024, 100.0), (1, 1024 / 7, 25.0), (2, 1024 / 7, 25.0)] {
        let found = gbs(&ramped, CallCosts { protocol: Some("p".to_owned()), nbytes, ..over(used) });
        assert!((found / rate - 1.0).abs() < 0.01, "{used} {nbytes}: {found}");
    }
    assert_eq!(gbs(&nodes("", "protocols: {p: {efficiency: 0.5}}\nprotocol: p"), over(1)), 25.0);
    let unlike = Machine::from_yaml("system: {sips: {topology: nodes, nodes: {striped_gain: 0.5}}}", "t", &[]);
    assert_eq!(unlike.unwrap_err()[0].code, "AHBM-T005");
}

/// A machine of two nodes, or of a ring, whose links and interfaces are limited by a protocol of these numbers.
fn limited(nodes: bool, keys: &str, more: &str) -> Machine {
    let network =
        if nodes { "topology: nodes, nodes: {size: 4, nic_gbs: 50, striped: true, striped_gain: 1.2}, " } else { "" };
    machine(&format!(
        "system: {{sips: {{count: 8, {network}link: {{bandwidth_gbs: 400}}}}}}\nsip: {{cube_mesh: {{w: 1, h: 1}}}}\n\
         protocols: {{p: {{step_ns: 600, slots: 3, {keys}}}}}\n{more}"
    ))
}

#[test]
fn the_costs_of_a_call_leave_the_machine_as_it_is() {
    let text = "max_gbs: 100, ramp_bytes: 4096";
    let (plain, for_all) = (limited(true, text, ""), limited(true, text, "protocol: p"));
    let call = CallCosts { protocol: Some("p".to_owned()), nbytes: 4096, math_per_ns: Some(7), ..CallCosts::default() };
    let called = plain.with_costs(&call).unwrap();
    assert_eq!((called.hash(), called.protocol(), called.call()), (plain.hash(), None, &call));
    assert_eq!((called.protocol_of_call().unwrap().0, called.costs().math_bytes_per_ns), ("p", 14));
    assert_eq!((way(&called, 0, 1).0, way(&called, 0, 1).1.round()), (way(&plain, 0, 1).0 + 600_000, 50.0));
    // The costs of the next call say nothing of those before, and those of none give the machine back.
    let again = called.with_costs(&CallCosts::default()).unwrap();
    assert_eq!((way(&again, 0, 1), again.costs()), (way(&plain, 0, 1), plain.costs()));
    // What all runs have goes before what a call asks for; without a size, its bandwidths are whole.
    assert_eq!(way(&for_all.with_costs(&call).unwrap(), 0, 7), way(&called, 0, 7));
    assert_eq!(way(&for_all, 0, 1).1, 100.0);
    let unknown = plain.with_costs(&CallCosts { protocol: Some("q".to_owned()), ..call.clone() });
    assert_eq!(unknown.unwrap_err().code, "AHBM-V125");
    // A link of twice the bandwidth has twice that of each call.
    let link = plain.links_between_sips().next().unwrap().link;
    let twice = plain.with_link(link, LinkChange::Twice).with_costs(&call).unwrap();
    assert!((twice.link_rate(link).gbs() / called.link_rate(link).gbs() - 2.0).abs() < 1e-6);
}

#[test]
fn factors_are_of_the_steps_and_bytes_of_calls_of_a_size() {
    let factors = "factors: [{bytes: 1024, factor: 0.5}, {bytes: 16384, factor: 2}]";
    let at = |nodes, nbytes| {
        let machine = limited(nodes, &format!("max_gbs: 100, nic_gbs: 20, nic_step_ns: 900, {factors}"), "");
        let call = CallCosts { protocol: Some("p".to_owned()), nbytes, ..CallCosts::default() };
        let called = machine.with_costs(&call).unwrap();
        let plain = way(&machine, 0, 1).0;
        let (ps, gbs) = way(&called, 0, 1);
        (ps - plain, gbs.round(), way(&called, 0, 7).1.round())
    };
    for nodes in [false, true] {
        assert_eq!((at(nodes, 1024).0, at(nodes, 1024).1), (300_000, 200.0));
        assert_eq!((at(nodes, 4096).0, at(nodes, 4096).1), (600_000, 100.0));
        assert_eq!((at(nodes, 16384).0, at(nodes, 16384).1), (1_200_000, 50.0));
        // Of other sizes nothing is known.
        for nbytes in [0, 1023, 16385] {
            assert_eq!((at(nodes, nbytes).0, at(nodes, nbytes).1), (600_000, 100.0));
        }
    }
    assert_eq!((at(true, 4096).2, at(true, 16384).2), (80.0, 40.0));
    for wrong in ["{bytes: 1, factor: 0}", "{bytes: 1, factor: 1001}", "{bytes: 0}", "{bytes: 2}, {bytes: 2}"] {
        let text = format!("protocols: {{p: {{factors: [{wrong}]}}}}");
        assert_eq!(Machine::from_yaml(&text, "t", &[]).unwrap_err()[0].code, "AHBM-T005");
    }
}

#[test]
fn a_call_has_as_many_channels_as_its_bytes_fill_or_as_are_asked_for() {
    let machine = limited(false, "channels: 8, channel_gbs: 2, channel_bytes: 1024", "");
    let gbs = |nbytes, channels| {
        let call = CallCosts { protocol: Some("p".to_owned()), nbytes, channels, ..CallCosts::default() };
        way(&machine.with_costs(&call).unwrap(), 0, 1).1.round()
    };
    for (nbytes, asked, wanted) in [
        (0, None, 16.0),
        (1, None, 2.0),
        (4095, None, 6.0),
        (1 << 20, None, 16.0),
        (1, Some(5), 10.0),
        (1, Some(9), 2.0),
    ] {
        assert_eq!(gbs(nbytes, asked), wanted, "{nbytes} {asked:?}");
    }
}

#[test]
fn a_bandwidth_that_was_measured_follows_its_wire() {
    let gbs = |rate: f64, keys: &str| {
        let text = "system: {sips: {count: 4, link: {bandwidth_gbs: RATE}}}\nsip: {cube_mesh: {w: 1, h: 1}}\n\
                    protocols: {p: {KEYS}}\nprotocol: p";
        let found = machine(&text.replace("RATE", &rate.to_string()).replace("KEYS", keys));
        found.sip_link().unwrap().0.gbs()
    };
    let near = |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 1e-6, "{found} {wanted}");
    for (rate, wanted) in [(100.0, 100.0), (200.0, 200.0), (50.0, 50.0)] {
        near(gbs(rate, "max_gbs: 100, wire_gbs: 100"), wanted);
    }
    // One that is far from its wire: 1 / 20 - 1 / 100 + 1 / 200, and + 1 / 50.
    for (rate, wanted) in [(100.0, 20.0), (200.0, 1.0 / 0.045), (50.0, 1.0 / 0.06)] {
        near(gbs(rate, "max_gbs: 20, wire_gbs: 100"), wanted);
    }
    near(gbs(200.0, "max_gbs: 20"), 20.0);
    let between = |nic: f64, keys: &str| {
        let text = "system: {sips: {count: 4, topology: nodes, link: {bandwidth_gbs: 400}, nodes: {size: 2, nic_gbs: NIC, \
                    striped: true}}}\nsip: {cube_mesh: {w: 1, h: 1}}\nprotocols: {p: {KEYS}}\nprotocol: p";
        way(&machine(&text.replace("NIC", &nic.to_string()).replace("KEYS", keys)), 0, 3).1
    };
    near(between(50.0, "max_gbs: 90, wire_nic_gbs: 50"), 90.0);
    near(between(100.0, "max_gbs: 90, wire_nic_gbs: 50"), 1.0 / (1.0 / 90.0 - 1.0 / 200.0));
    near(between(100.0, "nic_gbs: 40, wire_nic_gbs: 50"), 2.0 / (1.0 / 40.0 - 1.0 / 100.0));
}

#[test]
fn a_machine_says_what_it_computes_at_or_that_nobody_knows() {
    let roofline = |keys: &str| machine(&format!("{RING}pe: {{roofline: {{{keys}}}}}"));
    let named = roofline("accelerator: X1, source: its sheet, peak_tflops: 100, memory_gbs: 1000");
    assert_eq!(named.sheet(), (Some("X1"), Some("its sheet")));
    assert!(named.to_string().contains("800.0 TFLOP/s, 8000 GB/s: X1, by its data sheet"));
    // What is told of numbers changes none.
    assert_eq!(named.hash(), roofline("peak_tflops: 100, memory_gbs: 1000").hash());
    let unknown = roofline("unknown: true");
    assert_eq!(unknown.computes().unwrap_err().code, "AHBM-C193");
    assert!(unknown.to_string().contains("computing  unknown"));
    assert!(roofline("unknown: true, peak_tflops: 100, memory_gbs: 1000").computes().is_ok());
    assert!(roofline("unknown: true, peak_tflops: 100").computes().is_err());
    assert!(roofline("").computes().is_ok());
}

#[test]
fn what_kernels_take_by_their_class_is_part_of_the_machine_and_how_it_was_fitted_is_not() {
    const SHEET: &str = "units: 108, clock_mhz: 1410, l2_mib: 40";
    let with = |keys: &str| machine(&format!("{RING}compute: {{{SHEET}{keys}}}"));
    let (without, sheet) = (machine(RING), with(""));
    assert!(without.compute().is_none() && without.compute_source().0.is_none());
    assert_ne!(without.hash(), sheet.hash());
    assert!(!without.canonical().contains("compute"));
    let told = with(", source: a sheet, fit: {rows: 3, errors: [{kind: product, percent: 1.5}]}");
    assert_eq!((told.hash(), told.compute()), (sheet.hash(), sheet.compute()));
    let (source, fit) = told.compute_source();
    assert_eq!((source, &fit["errors"][0]["percent"]), (Some("a sheet"), &1.5.into()));
    assert!(told.dump().contains("108 units at 1410 MHz, L2 of 40 MiB (a sheet)"));
    let slower = with(", host: {operation_ns: 12.5}");
    assert_ne!(slower.hash(), sheet.hash());
    // Every key of the schema is a number of the law, by the same path.
    let schema: serde_json::Value = serde_json::from_str(&ahbm_machine::topology_schema()).unwrap();
    let sections = &schema["properties"]["compute"]["properties"];
    for (path, value) in slower.compute().unwrap().values() {
        let (section, key) = path.split_once('.').unwrap_or(("", path));
        let node = if section.is_empty() { sections } else { &sections[section]["properties"] };
        assert!(node[key]["description"].is_string(), "{path}");
        let expected = match path {
            "units" => 108.0,
            "clock_mhz" => 1410.0,
            "l2_mib" => 40.0,
            "host.operation_ns" => 12.5,
            _ => node[key]["default"].as_f64().unwrap(),
        };
        assert_eq!(value, expected, "{path}");
    }
    for lacking in ["", "units: 108, clock_mhz: 1410", "units: 108, clock_mhz: 0, l2_mib: 40"] {
        assert_eq!(codes(&format!("{RING}compute: {{{lacking}}}")), ["AHBM-T005"], "{lacking}");
    }
    assert_eq!(codes(&format!("{RING}compute: {{{SHEET}, products: 3}}")), ["AHBM-T003"]);
    assert_eq!(codes(&format!("{RING}compute: {{{SHEET}, fit: 3}}")), ["AHBM-T004"]);
}

#[test]
fn a_calibration_says_the_sizes_of_its_protocols() {
    let ranges = |text: &str| Machine::from_yaml(&format!("{RING}calibration: {{ranges: [{text}]}}"), "t", &[]);
    let found = ranges("{protocol: ll, ranks: 8, from_bytes: 8, to_bytes: 64}").unwrap();
    assert_eq!(found.ranges(), [("ll".to_owned(), 8, 8, 64)]);
    for wrong in ["{from_bytes: 8}", "{protocol: ll, from_bytes: 8, to_bytes: 4}"] {
        assert_eq!(ranges(wrong).unwrap_err()[0].code, "AHBM-T005", "{wrong}");
    }
}

#[test]
fn a_protocol_says_which_calls_it_is_for() {
    let text = "protocols:\n  tree: {algorithms: [a, b], max_chunk_bytes: 4095, slice_bytes: 1024}\n  ring: {min_chunk_bytes: 4096}\n";
    let found = machine(&format!("{RING}{text}"));
    let rows: Vec<_> = found
        .protocols()
        .iter()
        .map(|(_, of)| (of.min_chunk_bytes, of.max_chunk_bytes, of.algorithms.join(" "), of.slice_bytes))
        .collect();
    assert_eq!(rows, [(0, 4095, "a b".to_owned(), 1024), (4096, u64::MAX, String::new(), 0)]);
    let shown = found.to_string();
    for line in ["0 to 4095", "with a, b", "in slices of 1024 bytes", "4096 to all"] {
        assert_eq!(shown.matches(line).count(), 1, "{line}");
    }
}

#[test]
fn the_start_of_a_collective_grows_with_its_ranks() {
    assert_eq!(machine(RING).costs().launch_ps, 0);
    assert_eq!(machine(&format!("{RING}launch: {{overhead_ns: 8000, per_rank_ns: 0.5}}")).costs().launch_ps, 8_002_000);
}

#[test]
fn mistakes_are_told() {
    for (text, code) in [
        ("protocol: ll", "AHBM-T006"),
        ("protocols: {ll: {step_ns: 1}}\nprotocol: l1", "AHBM-T006"),
        ("protocols: {ll: {efficiency: 0}}", "AHBM-T005"),
        ("protocols: {ll: {efficiency: 1.5}}", "AHBM-T005"),
        ("protocols: {ll: {ramp_exponent: 0}}", "AHBM-T005"),
        ("protocols: {ll: {ramp_exponent: 1.1}}", "AHBM-T005"),
        ("protocols: {ll: {min_chunk_bytes: 2, max_chunk_bytes: 1}}", "AHBM-T005"),
        ("protocols: {ll: {algorithms: []}}", "AHBM-T005"),
        ("library: {all_sum: [ring]}", "AHBM-T003"),
        ("calibration: {parameters: [a], covariance: [[1, 2]]}", "AHBM-T005"),
        ("calibration: {bands: [{ranks: 8}]}", "AHBM-T005"),
        ("calibration: {bands: [{collective: all_reduce, low_percent: -5}]}", "AHBM-T005"),
        ("calibration: {bands: [{collective: all_reduce, from_bytes: 2, to_bytes: 1}]}", "AHBM-T005"),
        ("protocols: {ll: {min_bytes: 2, max_bytes: 1}}", "AHBM-T005"),
        ("protocols: {ll: {max_bytes: 1.5}}", "AHBM-T005"),
        ("protocols: {ll: {nic_step_ns: -1}}", "AHBM-T005"),
        ("protocols: {ll: {nic_gbs: 0}}", "AHBM-T005"),
        ("protocols: {ll: {channels: 2}}", "AHBM-T005"),
        ("protocols: {ll: {channel_gbs: 2}}", "AHBM-T005"),
        ("protocols: {ll: {channel_bytes: 2}}", "AHBM-T005"),
        ("protocols: {ll: {channels: 0, channel_gbs: 2}}", "AHBM-T005"),
        ("protocols: {'l l': {}}", "AHBM-T005"),
        ("protocols: {ll: {stepns: 1}}", "AHBM-T003"),
        ("protocols: [ll]", "AHBM-T004"),
        ("protocol: 1", "AHBM-T004"),
        ("launch: {overhead_ns: -1}", "AHBM-T005"),
    ] {
        assert_eq!(codes(text), [code], "{text}");
    }
}

proptest! {
    /// A call finds the machine whose file states the numbers of its size for all runs.
    #[test]
    fn a_call_finds_the_numbers_of_its_size(
        nodes: bool, nbytes in 1u64..1 << 30, ramp in 1u64..1 << 24, root: bool, wired: bool, own in proptest::option::of(1u32..60),
        (efficiency, most) in (0.2f64..1.0, 20.0f64..500.0),
    ) {
        let wires = if wired { ", wire_gbs: 300, wire_nic_gbs: 40" } else { "" };
        let keys = |share: f64, ramp: &str| {
            let nic = own.map_or_else(String::new, |gbs| format!(", nic_gbs: {:?}", f64::from(gbs) * share));
            format!("efficiency: {:?}, max_gbs: {:?}{nic}{wires}{ramp}", efficiency * share, most * share)
        };
        let exponent = if root { 0.5 } else { 0.75 };
        let share = 1.0 / (1.0 + (ramp as f64 / nbytes as f64).powf(exponent));
        let scaled = limited(nodes, &keys(share, ""), "protocol: p");
        let ramped = limited(nodes, &keys(1.0, &format!(", ramp_bytes: {ramp}, ramp_exponent: {exponent}")), "");
        let call = CallCosts { protocol: Some("p".to_owned()), nbytes, ..CallCosts::default() };
        let called = ramped.with_costs(&call).unwrap();
        for to in [1, 7] {
            let ((latency, gbs), (wanted, rate)) = (way(&called, 0, to), way(&scaled, 0, to));
            prop_assert_eq!(latency, wanted);
            prop_assert!((gbs / rate - 1.0).abs() < 1e-9, "{} {}", gbs, rate);
        }
        prop_assert_eq!(called.caps(1.0).map(|caps| caps.0.is_some()), scaled.caps(1.0).map(|caps| caps.0.is_some()));
        // What caps say is what the links carry.
        let caps = called.caps(1.0).unwrap();
        prop_assert!(caps.0.is_none_or(|gbs| (way(&called, 0, 1).1 / gbs - 1.0).abs() < 1e-6));
    }

    /// No protocol makes a link faster than it is.
    #[test]
    fn a_link_never_carries_more_than_it_can(efficiency in 0.01f64..1.0, most in 1.0f64..400.0) {
        let text = format!("{RING}protocols: {{p: {{efficiency: {efficiency}, max_gbs: {most}}}}}\nprotocol: p");
        let (_, rate) = way(&machine(&text), 0, 1);
        prop_assert!(rate <= 100.0 && (rate - (100.0 * efficiency).min(most)).abs() < 1e-3);
    }
}
