//! A run as a trace, read again by the reader of traces.

use ahbm_emulator::{Options, simulate};
use ahbm_formats::chakra::{ReadOptions, parse};
use ahbm_machine::Machine;
use ahbm_plan::{Collective, LowerOptions, Plan, Transfer, Transfers};
use ahbm_program::Dtype;
use ahbm_views::executed;
use ahbm_wire::chakra::{Node, NodeKind};

/// The ring all-reduce: every block goes once around to be summed and once to be known.
fn ring(ranks: u32) -> Plan {
    let mut list = Vec::new();
    for round in 0..2 * (ranks - 1) {
        for from in 0..ranks {
            let (to, piece) = ((from + 1) % ranks, (from + 2 * ranks - round) % ranks);
            let adds = round < ranks - 1;
            list.push(Transfer { from, to, channel: 0, source: piece, target: piece, adds, at: round.into() });
        }
    }
    let (name, goal, pieces) = ("ring".into(), Collective::AllReduce.into(), vec![1; ranks as usize]);
    let pieces = &pieces[..];
    Plan::from_transfers(&Transfers {
        name,
        goal,
        ranks,
        relays: 0,
        one_port: false,
        pieces,
        parcels: &[],
        list: &list,
    })
    .expect("a plan")
}

/// The order that a run took, with its measured durations, is a trace in itself.
#[test]
fn a_run_is_a_trace() {
    let overrides = [("system.network_model".to_owned(), "analytic".to_owned())];
    let text = include_str!("../../../../python/ahbm/data/topologies/npu_ring_8.yaml");
    let machine = Machine::from_yaml(text, "npu_ring_8.yaml", &overrides).unwrap();
    let program = ring(8).lower(&machine, &LowerOptions::new(1 << 20, Dtype::F16)).unwrap().program;
    let timeline = simulate(&program, &machine, &Options { record: true, ..Options::default() }).unwrap();
    let bytes = executed(&program, &timeline).unwrap();
    let names: Vec<String> = (0..bytes.len()).map(|r| format!("t.{r}.et")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(String::as_str).zip(bytes.iter().map(Vec::as_slice)).collect();
    let again = parse("t", &files, &ReadOptions::default()).unwrap();
    assert_eq!(again.to_bytes(), bytes);
    let summary = again.summary();
    assert_eq!((summary.nodes["COMM_SEND_NODE"], summary.nodes["COMM_RECV_NODE"]), (8 * 14, 8 * 14));
    let end = again.graphs[0].nodes.iter().map(|node| node.start_micros + node.duration_micros).max().unwrap();
    let agents = program.agents.iter().zip(&timeline.ends).filter(|(agent, _)| agent.rank == 0);
    assert_eq!(end, agents.map(|(_, end)| end / 1_000_000).max().unwrap());
    // Every receive names its own send, which began before it ended.
    let mut named = std::collections::BTreeSet::new();
    for (graph, node) in again.graphs.iter().flat_map(|graph| graph.nodes.iter().map(move |node| (graph, node))) {
        let Some(from) = node.integer("send_node") else { continue };
        let rank = node.integer("comm_src").unwrap();
        let sender = again.graphs[rank as usize].nodes.iter().find(|node| i128::from(node.id) == from).unwrap();
        assert_eq!((sender.kind, sender.integer("comm_dst")), (NodeKind::Send, Some(graph.rank.into())));
        for name in ["comm_tag", "comm_size"] {
            assert_eq!(sender.integer(name), node.integer(name));
        }
        let end = |node: &Node| node.real("start_ns").unwrap() + node.real("duration_ns").unwrap();
        assert!(sender.real("start_ns").unwrap() < end(node));
        named.insert((rank, from));
    }
    assert_eq!(named.len(), 8 * 14);
    assert_eq!(executed(&program, &Default::default()).unwrap_err().code, "AHBM-D191");
}
