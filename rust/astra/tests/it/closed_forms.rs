//! Times that follow from formulae: one collective, one dimension, streams one after the other, nobody in the way.

use crate::setups::{dimension, one_call, setup, system};
use ahbm_astra::config::{Native, Shape};
use ahbm_astra::{Flags, Options};
use ahbm_workload::Collective;
use proptest::prelude::*;

const ENDPOINT: u64 = 10;
const LATENCY: f64 = 500.0;

/// A message over so many links.
fn delay(hops: u64, bytes: u64) -> u64 {
    (hops as f64 * LATENCY + bytes as f64 / (50.0 * (1u64 << 30) as f64 / 1e9)) as u64
}

/// Two reads and a write at 50 GB/s.
fn reduction(bytes: u64) -> u64 {
    3 * (bytes as f64 / 50.0) as u64
}

fn simulated(native: Native, shape: Shape, ranks: u32, collective: Collective, bytes: u64, splits: u64) -> u64 {
    let mut system = system(native, 1);
    system.splits = splits;
    let setup = setup(vec![dimension(shape, ranks)], system, one_call(ranks, collective, bytes));
    assert_eq!(setup.findings(), []);
    let report = setup.run(Flags::default(), &Options::default()).unwrap();
    let ends: Vec<_> = report.ranks.iter().map(|rank| rank.cycles.unwrap()).collect();
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
    ends[0]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn rings(ranks in 2u32..17, parts in 1u64..5000, splits in 1u64..4) {
        let n = u64::from(ranks);
        let chunk = parts * n;
        let steps = |steps: u64, m: u64, reductions: u64| {
            splits * (ENDPOINT + steps * (delay(1, m) + ENDPOINT) + reductions * reduction(m))
        };
        let simulated = |collective, bytes| simulated(Native::Ring, Shape::Ring, ranks, collective, bytes, splits);
        prop_assert_eq!(simulated(Collective::AllReduce, chunk * splits), steps(2 * (n - 1), parts, n - 1));
        prop_assert_eq!(simulated(Collective::ReduceScatter, chunk * splits), steps(n - 1, parts, n - 1));
        prop_assert_eq!(simulated(Collective::AllGather, chunk * splits), steps(n - 1, chunk, 0));
    }

    #[test]
    fn direct(ranks in 2u32..17, parts in 1u64..5000, splits in 1u64..4) {
        let n = u64::from(ranks);
        let chunk = parts * n;
        let round = |m: u64| delay(1, m) + ENDPOINT;
        let simulated = |collective, bytes| {
            simulated(Native::Direct(None), Shape::FullyConnected, ranks, collective, bytes, splits)
        };
        let reduced = reduction(parts);
        prop_assert_eq!(
            simulated(Collective::AllReduce, chunk * splits),
            splits * (ENDPOINT + 2 * round(parts) + reduced)
        );
        prop_assert_eq!(simulated(Collective::ReduceScatter, chunk * splits), splits * (ENDPOINT + round(parts) + reduced));
        prop_assert_eq!(simulated(Collective::AllGather, chunk * splits), splits * (ENDPOINT + round(chunk)));
        prop_assert_eq!(simulated(Collective::AllToAll, chunk * splits), splits * (ENDPOINT + round(parts)));
    }

    #[test]
    fn halving_and_doubling(level in 1u32..5, parts in 1u64..5000, splits in 1u64..4) {
        let ranks = 1u32 << level;
        // Even parts: the sizes on the way back are doubled from a half that is cut to whole bytes.
        let chunk = 2 * parts * u64::from(ranks);
        // The reduction of a step is charged by the size of the next message; the last one is free.
        let sizes: Vec<u64> = (1..=level).map(|step| chunk >> step).collect();
        let out: u64 = sizes.iter().map(|&m| delay(1, m) + ENDPOINT).sum();
        let reductions: u64 = sizes.iter().skip(1).map(|&m| reduction(m)).sum();
        let gather: u64 = (0..level).map(|step| delay(1, chunk << step) + ENDPOINT).sum();
        let simulated = |collective, bytes| {
            simulated(Native::HalvingDoubling, Shape::FullyConnected, ranks, collective, bytes, splits)
        };
        prop_assert_eq!(simulated(Collective::AllReduce, chunk * splits), splits * (ENDPOINT + 2 * out + reductions));
        prop_assert_eq!(simulated(Collective::ReduceScatter, chunk * splits), splits * (ENDPOINT + out + reductions));
        prop_assert_eq!(simulated(Collective::AllGather, chunk * splits), splits * (ENDPOINT + gather));
    }
}

#[test]
fn the_tree_goes_up_and_down() {
    // A leaf passes, sends up and receives; each inner rank and the root reduce what comes. 4 ranks: depth 3.
    let (bytes, hop) = (4096, delay(1, 4096));
    let reduced = ENDPOINT + reduction(bytes);
    let up = ENDPOINT + hop + reduced + hop + reduced;
    let down = hop + reduced + hop + ENDPOINT;
    let setup = setup(
        vec![dimension(Shape::FullyConnected, 4)],
        system(Native::DoubleBinaryTree, 1),
        one_call(4, Collective::AllReduce, bytes),
    );
    let report = setup.run(Flags::default(), &Options::default()).unwrap();
    assert_eq!(report.ranks.iter().map(|rank| rank.cycles).max().flatten(), Some(up + down));
}
