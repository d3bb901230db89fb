//! Chakra traces: reading, refusing, running.

use ahbm_emulator::{Options, simulate};
use ahbm_formats::chakra::{ReadOptions, Trace, parse};
use ahbm_machine::Machine;
use ahbm_plan::{Budget, Limit, LowerOptions};
use ahbm_program::Dtype;
use ahbm_wire::chakra::{Arm, Attribute, Metadata, Node, NodeKind};
use std::io::Write;
use std::sync::Arc;

fn attribute(name: &str, arm: Arm, n: i64) -> Attribute {
    Attribute::integer(&Arc::from(name), arm, n)
}

fn node(id: u64, kind: NodeKind, deps: &[u64], attributes: &[(&str, i64)]) -> Node {
    let mut node = Node::new(id, format!("n{id}"), kind);
    node.data_deps = deps.to_vec();
    node.attributes = attributes.iter().map(|&(name, n)| attribute(name, Arm::Int64, n)).collect();
    node
}

fn message(id: u64, sends: bool, peer: u32, bytes: i64, deps: &[u64]) -> Node {
    let (kind, name) = if sends { (NodeKind::Send, "comm_dst") } else { (NodeKind::Recv, "comm_src") };
    node(id, kind, deps, &[("comm_size", bytes), (name, peer.into()), ("comm_tag", 0)])
}

/// The ring all-reduce that the public consumer's example holds: send, receive, reduce, … as one line per rank.
fn ring(ranks: u32, bytes: i64, reduce_micros: u64) -> Vec<Vec<Node>> {
    let rounds = 2 * (ranks - 1);
    let of = |rank: u32| {
        let mut nodes: Vec<Node> = Vec::new();
        for round in 0..rounds {
            let next = |nodes: &Vec<Node>| (nodes.len() as u64, nodes.last().map(|n| vec![n.id]).unwrap_or_default());
            let (id, deps) = next(&nodes);
            nodes.push(message(id, true, (rank + 1) % ranks, bytes / i64::from(ranks), &deps));
            let (id, deps) = next(&nodes);
            nodes.push(message(id, false, (rank + ranks - 1) % ranks, bytes / i64::from(ranks), &deps));
            if round < ranks - 1 {
                let (id, deps) = next(&nodes);
                nodes.push(Node { duration_micros: reduce_micros, ..node(id, NodeKind::Comp, &deps, &[]) });
            }
        }
        nodes
    };
    (0..ranks).map(of).collect()
}

fn trace(ranks: Vec<Vec<Node>>) -> Trace {
    let metadata = Metadata { version: "0.0.4".into(), ..Metadata::default() };
    Trace::from_nodes("t", &metadata, ranks).unwrap()
}

fn reread(bytes: &[Vec<u8>], options: &ReadOptions) -> Result<Trace, &'static str> {
    let names: Vec<String> = (0..bytes.len()).map(|r| format!("t.{r}.et")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(String::as_str).zip(bytes.iter().map(Vec::as_slice)).collect();
    parse("t", &files, options).map_err(|findings| findings[0].code)
}

fn code(ranks: Vec<Vec<Node>>) -> &'static str {
    let metadata = Metadata::default();
    match Trace::from_nodes("t", &metadata, ranks) {
        Err(findings) => findings[0].code,
        Ok(trace) => trace.lower_for_check(u32::MAX, &Budget::default()).map_or_else(|f| f[0].code, |_| "ok"),
    }
}

fn network(model: &str) -> Machine {
    let overrides = [
        ("system.network_model", model),
        ("system.sips.count", "8"),
        ("system.sips.topology", "ring_1d"),
        ("system.sips.link.latency_ns", "500"),
        ("system.sips.link.bandwidth_gbs", "53.6870912"),
    ];
    let overrides = overrides.map(|(k, v)| (k.to_string(), v.to_string()));
    Machine::from_yaml(
        include_str!("../../../../python/ahbm/data/topologies/npu_ring_8.yaml"),
        "npu_ring_8.yaml",
        &overrides,
    )
    .unwrap()
}

#[test]
fn the_same_bytes_come_back() {
    let mut ranks = ring(4, 4096, 3);
    for (arm, n) in [(Arm::Int32, -1), (Arm::Sint64, -5), (Arm::Fixed32, 7), (Arm::Sfixed64, -9), (Arm::Bool, 1)] {
        ranks[0][0].attributes.push(attribute("extra", arm, n));
    }
    ranks[1][3].ctrl_deps = vec![0, 1];
    let written = trace(ranks).to_bytes();
    let again = reread(&written, &ReadOptions::default()).unwrap();
    assert_eq!(again, trace_named(&again));
    assert_eq!(again.to_bytes(), written);
}

fn trace_named(trace: &Trace) -> Trace {
    let nodes = trace.graphs.iter().map(|g| g.nodes.clone()).collect();
    Trace::from_nodes("t", &trace.graphs[0].metadata, nodes).unwrap()
}

#[test]
fn metadata_may_be_missing_or_empty_and_bytes_compressed() {
    let written = trace(ring(2, 16, 0)).to_bytes();
    let start = written[0][0] as usize + 1;
    let bare: Vec<Vec<u8>> = written.iter().map(|b| b[start..].to_vec()).collect();
    let empty: Vec<Vec<u8>> = bare.iter().map(|b| [&[0], &b[..]].concat()).collect();
    let zipped: Vec<Vec<u8>> = written
        .iter()
        .map(|b| {
            let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            gz.write_all(b).unwrap();
            gz.finish().unwrap()
        })
        .collect();
    let options = ReadOptions::default();
    let expected = reread(&written, &options).unwrap();
    for bytes in [&bare, &empty, &zipped] {
        let nodes = |t: &Trace| t.graphs.iter().map(|g| g.nodes.clone()).collect::<Vec<_>>();
        assert_eq!(nodes(&reread(bytes, &options).unwrap()), nodes(&expected));
    }
    let tight = ReadOptions { budget: Budget::default().with(Limit::InflationRatio, 1), ..options };
    assert_eq!(reread(&zipped, &tight), Err("AHBM-B203"));
    let tight = ReadOptions { budget: Budget::default().with(Limit::InflatedBytes, 100), ..options };
    assert_eq!(reread(&zipped, &tight), Err("AHBM-B202"));
    assert_eq!(reread(&[zipped[0][..40].to_vec()], &options), Err("AHBM-F132"));
}

#[test]
fn cut_anywhere_it_is_an_answer() {
    let written = trace(ring(2, 16, 0)).to_bytes();
    for end in 0..written[0].len() {
        let _ = reread(&[written[0][..end].to_vec(), written[1].clone()], &ReadOptions::default());
    }
    for at in 0..written[0].len() {
        let mut bytes = written.clone();
        bytes[0][at] ^= 0xff;
        let _ = reread(&bytes, &ReadOptions::default()).map(|t| t.lower_for_check(2, &Budget::default()));
    }
    assert_eq!(reread(&[b"<algo/>".to_vec()], &ReadOptions::default()), Err("AHBM-F131"));
}

#[test]
fn graphs_that_are_none() {
    let comp = |id, deps: &[u64]| node(id, NodeKind::Comp, deps, &[]);
    assert_eq!(code(vec![vec![comp(0, &[1]), comp(1, &[2]), comp(2, &[0])]]), "AHBM-F135");
    assert_eq!(code(vec![vec![comp(0, &[9])]]), "AHBM-F134");
    assert_eq!(code(vec![vec![message(0, true, 1, 8, &[])], vec![]]), "AHBM-F137");
    let mismatched = vec![vec![message(0, true, 1, 8, &[])], vec![message(0, false, 0, 4, &[])]];
    assert_eq!(code(mismatched), "AHBM-F138");
    assert_eq!(code(vec![vec![message(0, true, 5, 8, &[])]]), "AHBM-F136");
    assert_eq!(code(vec![vec![node(0, NodeKind::Collective, &[], &[])]]), "AHBM-U231");
    let twice = vec![vec![comp(3, &[]), comp(3, &[])]];
    let bytes: Vec<Vec<u8>> = trace(twice).to_bytes();
    assert_eq!(reread(&bytes, &ReadOptions::default()), Err("AHBM-F133"));
}

#[test]
fn lenient_reading_counts_what_it_leaves_out() {
    let written = trace(vec![vec![node(0, NodeKind::Comp, &[], &[]), node(1, NodeKind::Comp, &[0], &[])]]).to_bytes();
    let mut bytes = written.clone();
    // The dependency is the last byte of the last node's packed list.
    let at = bytes[0].windows(3).rposition(|w| w == [0x2a, 1, 0]).unwrap() + 2;
    bytes[0][at] = 77;
    assert_eq!(reread(&bytes, &ReadOptions::default()), Err("AHBM-F134"));
    let lenient = ReadOptions { lenient: true, ..ReadOptions::default() };
    assert_eq!(reread(&bytes, &lenient).unwrap().summary().dangling, 1);
    bytes[0][at] = 1;
    let circle = reread(&bytes, &lenient).unwrap();
    let refused = circle.lower_for_check(2, &Budget::default()).unwrap_err();
    assert_eq!((circle.nodes(), refused[0].code), (2, "AHBM-F135"));
}

#[test]
fn what_a_node_may_hold_is_bounded() {
    let holding = |attributes: Vec<Attribute>| {
        let node = Node { attributes, ..node(0, NodeKind::Comp, &[], &[]) };
        reread(&trace(vec![vec![node]]).to_bytes(), &ReadOptions::default()).map(|t| t.nodes())
    };
    let text = |length: usize| vec![Attribute::text(&Arc::from("a"), "x".repeat(length))];
    assert_eq!((holding(text(4096)), holding(text(4097))), (Ok(1), Err("AHBM-B207")));
    let many = |count: usize| (0..count).map(|n| attribute(&format!("a{n}"), Arm::Int32, 1)).collect();
    assert_eq!((holding(many(256)), holding(many(257))), (Ok(1), Err("AHBM-F131")));
}

/// The public consumer's closed form: 2(n-1) hops of `latency + size / rate`, and n-1 reductions.
#[test]
fn an_eight_ring_takes_what_the_public_consumer_says() {
    let trace = trace(ring(8, 1 << 20, 7));
    let options = LowerOptions { slots: u32::MAX, ..LowerOptions::new(0, Dtype::U8) };
    for model in ["analytic", "cut_through", "flit"] {
        let machine = network(model);
        let program = trace.lower(&machine, &options).unwrap();
        assert_eq!(ahbm_program::lint(&program, &machine), []);
        let ns = simulate(&program, &machine, &Options::default()).unwrap().latency as f64 / 1000.0;
        // Per hop the consumer rounds 500 + 131072 B / 53.687 GB/s = 2941.4 ns down.
        assert!((ns - 90_174.0).abs() < 30.0, "{model}: {ns} ns");
    }
}

#[test]
fn shares_follow_the_size() {
    let mut ranks = ring(8, 1 << 20, 0);
    for node in ranks.iter_mut().flatten().filter(|n| n.kind != NodeKind::Comp) {
        node.attributes.retain(|a| &*a.name != "comm_size");
        node.attributes.push(attribute("msg_chunk_cnt", Arm::Int32, 1));
        node.attributes.push(attribute("total_chunk_cnt", Arm::Int32, 8));
    }
    let (trace, machine) = (trace(ranks), network("analytic"));
    let bytes = |size| {
        let options = LowerOptions { slots: u32::MAX, ..LowerOptions::new(size, Dtype::U8) };
        let program = trace.lower(&machine, &options).map_err(|f| f[0].code)?;
        Ok(simulate(&program, &machine, &Options::default()).unwrap().bytes)
    };
    assert_eq!(bytes(8192), Ok(8 * 14 * 1024));
    assert_eq!(bytes(0), Err("AHBM-U232"));
    assert_eq!(bytes(8191), Err("AHBM-U232"));
}
