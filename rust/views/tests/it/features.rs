//! Columns of a program equal counts by hand, through queues, memory, counters and barriers.

use ahbm_machine::Machine;
use ahbm_plan::{Collective, LowerOptions, Plan, Transfer, Transfers};
use ahbm_program::Dtype;
use ahbm_views::features::Algorithm;

const BYTES: u64 = 1 << 14;

fn found(ranks: u32, pieces: u32, list: &[Transfer]) -> Algorithm {
    let text = include_str!("../../../../python/ahbm/data/topologies/npu_ring_8.yaml");
    let overrides = [("system.sips.count".to_owned(), ranks.to_string())];
    let machine = Machine::from_yaml(text, "npu_ring_8.yaml", &overrides).unwrap();
    let plan = Plan::from_transfers(&Transfers {
        name: "made".into(),
        goal: Collective::AllReduce.into(),
        ranks,
        relays: 0,
        one_port: false,
        pieces: &vec![1; pieces as usize],
        parcels: &[],
        list,
    });
    let program = plan.unwrap().lower(&machine, &LowerOptions::new(BYTES, Dtype::F16)).unwrap().program;
    let found = Algorithm::of(&program, &machine).unwrap();
    assert_eq!(Algorithm::of(&program, &machine).unwrap(), found);
    found
}

fn transfer(from: u32, to: u32, piece: u32, adds: bool, at: u32) -> Transfer {
    Transfer { from, to, channel: 0, source: piece, target: piece, adds, at: at.into() }
}

#[test]
fn a_ring() {
    for ranks in 2..9 {
        let mut list = Vec::new();
        for round in 0..2 * (ranks - 1) {
            for from in 0..ranks {
                let piece = (from + 2 * ranks - round) % ranks;
                list.push(transfer(from, (from + 1) % ranks, piece, round < ranks - 1, round));
            }
        }
        let (n, hops) = (u64::from(ranks), 2 * (ranks - 1));
        if !BYTES.is_multiple_of(n * 2) {
            continue;
        }
        let found = found(ranks, ranks, &list);
        assert_eq!((found.chunk_count, found.dependency_depth, found.branch_factor), (n * u64::from(hops), hops, 1));
        assert_eq!((found.sent_bytes, found.busiest_bytes), (u64::from(hops) * BYTES, u64::from(hops) * BYTES / n));
        assert_eq!(found.operations, (n - 1) * BYTES / 2);
        assert!((found.arithmetic_intensity() - 0.25).abs() < 1e-12);
    }
}

#[test]
fn a_star() {
    // Everybody's array to rank 0 and back: two steps, all of them at once.
    for ranks in [2, 3, 5, 8] {
        let others = 1..ranks;
        let list: Vec<Transfer> = (others.clone().map(|rank| transfer(rank, 0, 0, true, 0)))
            .chain(others.map(|rank| transfer(0, rank, 0, false, 1)))
            .collect();
        let found = found(ranks, 1, &list);
        let n = u64::from(ranks);
        assert_eq!((found.chunk_count, found.dependency_depth, found.branch_factor), (2 * (n - 1), 2, n - 1));
        assert_eq!((found.sent_bytes, found.busiest_bytes), (2 * (n - 1) * BYTES, (n - 1) * BYTES));
    }
}
