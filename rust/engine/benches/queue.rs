//! The event queue under the hold model: pop the next event, post one a random delay later.

use ahbm_engine::EventQueue;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

fn delays() -> impl FnMut() -> u64 {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % 1_000_000
    }
}

fn hold(c: &mut Criterion) {
    let mut group = c.benchmark_group("hold");
    group.throughput(Throughput::Elements(1));
    for pending in [1_000u32, 65_536, 1_000_000] {
        group.bench_function(BenchmarkId::new("radix", pending), |b| {
            let mut delay = delays();
            let mut queue = EventQueue::new();
            (0..pending).for_each(|e| queue.push(delay(), e));
            b.iter(|| {
                let (time, event) = queue.pop().expect("never empty");
                queue.push(time + delay(), event);
            });
        });
        group.bench_function(BenchmarkId::new("binary_heap", pending), |b| {
            let mut delay = delays();
            let mut heap: BinaryHeap<_> = (0..pending).map(|e| Reverse((delay(), e, e))).collect();
            let mut sequence = pending;
            b.iter(|| {
                let Reverse((time, _, event)) = heap.pop().expect("never empty");
                sequence = sequence.wrapping_add(1);
                heap.push(Reverse((time + delay(), sequence, event)));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, hold);
criterion_main!(benches);
