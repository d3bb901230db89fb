//! The time of a critical path goes to the chunks that are on it, and to nobody twice.

use ahbm_emulator::{Options, simulate};
use ahbm_machine::Machine;
use ahbm_plan::{Collective, LowerOptions, Plan, Transfer, Transfers};
use ahbm_program::{Dtype, Program};
use ahbm_views::credit::Chunks;
use ahbm_views::features::Algorithm;

fn machine(extra: &[(&str, &str)]) -> Machine {
    let text = include_str!("../../../../python/ahbm/data/topologies/npu_ring_8.yaml");
    let overrides: Vec<(String, String)> =
        extra.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    Machine::from_yaml(text, "npu_ring_8.yaml", &overrides).unwrap()
}

/// A broadcast down a chain of 8 ranks, and one piece that rank 0 also sends the other way.
fn chain(machine: &Machine, ranks: u32) -> Program {
    let transfer = |from: u32, to: u32, at: u32| Transfer {
        from,
        to,
        channel: 0,
        source: 0,
        target: 0,
        adds: false,
        at: at.into(),
    };
    let mut list: Vec<Transfer> = (1..ranks).map(|to| transfer(to - 1, to, to - 1)).collect();
    list.push(transfer(0, ranks, ranks));
    let plan = Plan::from_transfers(&Transfers {
        name: "chain".into(),
        goal: Collective::Broadcast.into(),
        ranks: ranks + 1,
        relays: 0,
        one_port: false,
        pieces: &[1],
        parcels: &[],
        list: &list,
    });
    plan.unwrap().lower(machine, &LowerOptions::new(1 << 20, Dtype::F16)).unwrap().program
}

fn credited(machine: &Machine, program: &Program) -> (Vec<u64>, u64) {
    let timeline = simulate(program, machine, &Options { detail: 1 << 20, ..Options::default() }).unwrap();
    let path = timeline.detail.as_ref().unwrap().critical_path();
    (Chunks::of(program, machine).unwrap().credit(&path), timeline.latency)
}

#[test]
fn the_hops_of_a_chain_share_its_time_and_what_is_off_the_path_has_none() {
    let machine = machine(&[]);
    let program = chain(&machine, 7);
    let (found, latency) = credited(&machine, &program);
    assert_eq!(found.len() as u64, Algorithm::of(&program, &machine, &[]).unwrap().chunk_count);
    // Rank 0 sends first to rank 1, which is on the path, then to rank 7, which is not.
    assert_eq!(found[1], 0);
    assert!(found.iter().enumerate().all(|(at, &ps)| at == 1 || ps > 0), "{found:?}");
    assert_eq!(found.iter().sum::<u64>(), latency);
}

#[test]
fn a_slow_link_gives_its_chunk_more_of_the_path() {
    let slow = machine(&[("faults.links", "[{from: 3, to: 4, slowdown: 4}]")]);
    let (well, _) = credited(&machine(&[]), &chain(&machine(&[]), 7));
    let (ill, _) = credited(&slow, &chain(&slow, 7));
    // Chunk 0 leaves rank 0, chunk 1 too; chunk r + 1 leaves rank r.
    assert!(ill[4] > 3 * well[4], "{well:?} {ill:?}");
    assert_eq!((ill[2], ill[3]), (well[2], well[3]));
}
