//! Plans on plain networks of NPUs against the alpha–beta model, to the picosecond.
//!
//! Nothing inside an NPU costs anything, a link has alpha = 500 ns and beta = 20 ps per byte (50 GB/s), and neighbours
//! are one hop apart, so every network model must give the same closed form: the longest chain of messages, each
//! alpha + bytes · beta, and the bytes that wait for each other at one DMA engine.

use crate::support::ring;

use ahbm_check::{PlanCheck, check_plan};
use ahbm_emulator::{Options, simulate};
use ahbm_formats::msccl_xml;
use ahbm_machine::Machine;
use ahbm_plan::{Algorithm, Budget, LowerOptions};
use ahbm_program::{Dtype, lint};
use std::fmt::Write;

const ALPHA: u64 = 500_000;
const BETA: u64 = 20;

/// The latency of `text` for `bytes` on `n` NPUs of `pes` PEs, the same under every model.
fn latency(text: &str, network: &str, n: u32, pes: u32, bytes: u64) -> u64 {
    let plan = msccl_xml::read(text.as_bytes(), "plan.xml", &Budget::default()).expect("a plan");
    let times = ["analytic", "cut_through", "flit"].map(|model| {
        let overrides = [
            ("system.sips.topology", network.to_owned()),
            ("system.sips.count", n.to_string()),
            ("system.network_model", model.to_owned()),
            ("cube.pe_layout.pe_per_corner", pes.to_string()),
        ];
        let overrides = overrides.map(|(key, value)| (key.to_owned(), value));
        let file = include_str!("../../../../python/ahbm/data/topologies/npu_ring_8.yaml");
        let machine = Machine::from_yaml(file, "npu_ring_8.yaml", &overrides).expect("a machine");
        // Deep queues: credits, which the closed forms do not know, never hold a sender up.
        let options = LowerOptions { slots: u32::MAX, ..LowerOptions::new(bytes, Dtype::F32) };
        let lowered = plan.lower(&machine, &options).expect("it fits");
        assert_eq!(lint(&lowered.program, &machine), []);
        simulate(&lowered.program, &machine, &Options::default()).expect("it ends").latency
    });
    assert_eq!(times, [times[0]; 3], "models differ on {network}");
    times[0]
}

/// A thread block of a test plan.
struct Block {
    peer: Option<u32>,
    steps: String,
}

impl Block {
    fn new(peer: Option<u32>) -> Self {
        Self { peer, steps: String::new() }
    }

    /// Adds a step; `after` is the block and step it waits for.
    fn step(mut self, kind: &str, src: (&str, u32), dst: (&str, u32), chunks: u32, after: Option<(u32, u32)>) -> Self {
        let ((a, i), (b, j)) = (src, dst);
        let wait = after.map_or(String::new(), |(block, step)| format!(" depid=\"{block}\" deps=\"{step}\""));
        let _ = writeln!(
            self.steps,
            "<step type=\"{kind}\" srcbuf=\"{a}\" srcoff=\"{i}\" dstbuf=\"{b}\" dstoff=\"{j}\" cnt=\"{chunks}\"{wait} hasdep=\"1\"/>"
        );
        self
    }
}

/// A plan in place; `[input, output, scratch]` chunks and the blocks of each rank.
fn plan(collective: &str, n: u32, chunks: [u32; 3], blocks: impl Fn(u32) -> Vec<Block>) -> String {
    let [i, o, s] = chunks;
    let mut text = format!(
        "<algo name=\"t\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"{}\" ngpus=\"{n}\" coll=\"{collective}\" inplace=\"1\">\n",
        i.max(o)
    );
    for rank in 0..n {
        let _ = writeln!(text, "<gpu id=\"{rank}\" i_chunks=\"{i}\" o_chunks=\"{o}\" s_chunks=\"{s}\">");
        for (id, block) in blocks(rank).into_iter().enumerate() {
            let peer = block.peer.map_or(-1, i64::from);
            let _ = writeln!(text, "<tb id=\"{id}\" send=\"{peer}\" recv=\"{peer}\" chan=\"0\">{}</tb>", block.steps);
        }
        text += "</gpu>\n";
    }
    text + "</algo>"
}

#[test]
fn ring_all_reduce() {
    // 2(n - 1) rounds, each a message of one of n chunks.
    for n in [2, 5, 8] {
        let (text, rounds) = (ring::ring_xml(n), 2 * (u64::from(n) - 1));
        for chunk in [4, 4096, 1 << 18] {
            assert_eq!(latency(&text, "ring_1d", n, 1, chunk * u64::from(n)), rounds * (ALPHA + chunk * BETA), "{n}");
        }
    }
}

/// Round k exchanges everything with rank ^ 2^k through scratch; a block per round, each after the one before.
fn doubling_all_reduce(n: u32) -> String {
    let rounds = n.ilog2();
    plan("allreduce", n, [1, 1, rounds], |rank| {
        let round = |k: u32| {
            Block::new(Some(rank ^ 1 << k))
                .step("s", ("i", 0), ("i", 0), 1, k.checked_sub(1).map(|before| (before, 2)))
                .step("r", ("i", 0), ("s", k), 1, None)
                .step("re", ("s", k), ("i", 0), 1, None)
        };
        (0..rounds).map(round).collect()
    })
}

/// Round k exchanges the 2^k blocks held so far with rank ^ 2^k.
fn doubling_all_gather(n: u32) -> String {
    plan("allgather", n, [1, n, 0], |rank| {
        let round = |k: u32| {
            let (mine, theirs) = (rank >> k << k, (rank ^ 1 << k) >> k << k);
            Block::new(Some(rank ^ 1 << k))
                .step("s", ("o", mine), ("o", mine), 1 << k, k.checked_sub(1).map(|before| (before, 1)))
                .step("r", ("o", theirs), ("o", theirs), 1 << k, None)
        };
        (0..n.ilog2()).map(round).collect()
    })
}

#[test]
fn recursive_doubling_on_a_hypercube() {
    for n in [2u32, 8, 16] {
        let rounds = u64::from(n.ilog2());
        for part in [4, 4096, 60_000] {
            let all = part * u64::from(n);
            // log2 n exchanges of everything.
            assert_eq!(latency(&doubling_all_reduce(n), "hypercube", n, 1, all), rounds * (ALPHA + all * BETA));
            // Messages double from one part to half of everything: together all but the own part.
            let expected = rounds * ALPHA + (all - part) * BETA;
            assert_eq!(latency(&doubling_all_gather(n), "hypercube", n, 1, all), expected);
        }
    }
}

fn peers(rank: u32, n: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..).zip((0..n).filter(move |&peer| peer != rank))
}

/// Everybody sends its part to everybody.
fn direct_all_gather(n: u32) -> String {
    plan("allgather", n, [1, n, 0], |rank| {
        let exchange = |(_, peer)| {
            Block::new(Some(peer)).step("s", ("o", rank), ("o", rank), 1, None).step(
                "r",
                ("o", peer),
                ("o", peer),
                1,
                None,
            )
        };
        peers(rank, n).map(exchange).collect()
    })
}

/// Everybody sends part p to rank p, which adds them up and sends the sum to everybody.
fn direct_all_reduce(n: u32) -> String {
    plan("allreduce", n, [n, n, n - 1], |rank| {
        let sum = peers(rank, n)
            .fold(Block::new(None), |block, (k, _)| block.step("re", ("s", k), ("i", rank), 1, Some((k, 1))));
        let exchange = |(k, peer)| {
            Block::new(Some(peer))
                .step("s", ("i", peer), ("s", 0), 1, None)
                .step("r", ("i", 0), ("s", k), 1, None)
                .step("s", ("i", rank), ("i", rank), 1, Some((n - 1, n - 2)))
                .step("r", ("i", peer), ("i", peer), 1, None)
        };
        peers(rank, n).map(exchange).chain([sum]).collect()
    })
}

#[test]
fn direct_exchange_on_a_full_network() {
    for n in [2u32, 4, 8] {
        for part in [4, 4096, 1 << 18] {
            let all = part * u64::from(n);
            // Every link has a DMA channel: all messages go at once, also those of one PE.
            for pes in [n, 1] {
                let round = ALPHA + part * BETA;
                assert_eq!(latency(&direct_all_gather(n), "fully_connected", n, pes, all), round, "{n} {part} {pes}");
                assert_eq!(
                    latency(&direct_all_reduce(n), "fully_connected", n, pes, all),
                    2 * round,
                    "{n} {part} {pes}"
                );
            }
        }
    }
}

#[test]
fn the_plans_are_right() {
    for n in [2, 4, 8] {
        for text in [doubling_all_reduce(n), doubling_all_gather(n), direct_all_gather(n), direct_all_reduce(n)] {
            let plan = msccl_xml::read(text.as_bytes(), "plan.xml", &Budget::default()).expect("a plan");
            let verdict = check_plan(&Algorithm::Blocks(plan), &PlanCheck::default());
            assert!(verdict.proof.is_some(), "{:?}", verdict.findings);
        }
    }
}
