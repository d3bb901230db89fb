//! Time of one choice. The median and the 99th percentile of single calls are printed beside criterion's mean; they
//! include the cost of reading the clock.

use ahbm_selection::{Call, Input, Rule, Rules, Span, Tree};
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::{Duration, Instant};

const DEPTH: usize = 8;

/// 255 questions, alternately of the size, the ranks and a fact about the machine.
fn tree() -> Tree {
    let count = (2 << DEPTH) - 1;
    let inner = |at: usize| at < (1 << DEPTH) - 1;
    let feature: Vec<i64> = (0..count).map(|at| if inner(at) { (at % 3) as i64 } else { -2 }).collect();
    let threshold: Vec<f64> = (0..count).map(|at| (at * 7 % 30) as f64).collect();
    let child = |at: usize, side: usize| if inner(at) { (2 * at + side) as i64 } else { -1 };
    let left: Vec<i64> = (0..count).map(|at| child(at, 1)).collect();
    let right: Vec<i64> = (0..count).map(|at| child(at, 2)).collect();
    let value: Vec<u32> = (0..count as u32).collect();
    let inputs = vec![Input::Log2Bytes, Input::Ranks, Input::Constant(12.0)];
    Tree::new(inputs, &feature, &threshold, &left, &right, &value).expect("a tree")
}

/// 64 ranges of all_reduce and as many of all_gather.
fn rules() -> Rules {
    let range = |at: u64| Rule {
        bytes: Span { least: at << 16, most: ((at + 1) << 16) - 1 },
        ..Rule::any(if at < 64 { "all_gather" } else { "all_reduce" })
    };
    Rules::new(
        (0..64).map(range).chain((64..128).map(|at| Rule { bytes: range(at - 64).bytes, ..range(at) })).collect(),
    )
}

fn calls() -> Vec<Call> {
    (0..4096u64).map(|n| Call { bytes: n * 7919 % (4 << 20), ranks: 2 + (n % 63) as u32, nodes: 1, item: 2 }).collect()
}

fn spread(name: &str, mut choose: impl FnMut(&Call) -> u32) {
    let calls = calls();
    let mut took: Vec<Duration> = (0..200_000)
        .map(|n| {
            let start = Instant::now();
            black_box(choose(black_box(&calls[n % calls.len()])));
            start.elapsed()
        })
        .collect();
    took.sort();
    println!("{name}: median {:?}, p99 {:?} of single calls", took[took.len() / 2], took[took.len() * 99 / 100]);
}

fn run(c: &mut Criterion) {
    let (tree, rules, calls) = (tree(), rules(), calls());
    spread("tree", |call| tree.choose(call));
    spread("rules", |call| rules.first("all_reduce", call, 0).unwrap_or(0));
    let mut group = c.benchmark_group("choose");
    group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(500));
    let mut at = 0;
    let mut next = move || {
        at = (at + 1) % calls.len();
        calls[at]
    };
    group.bench_function("tree of 255 questions", |b| b.iter(|| tree.choose(black_box(&next()))));
    group.bench_function("64 rules", |b| b.iter(|| rules.first("all_reduce", black_box(&next()), 0)));
}

criterion_group!(benches, run);
criterion_main!(benches);
