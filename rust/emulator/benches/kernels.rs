//! The kernels of the data pass against `ndarray`, on the same bytes: sums of arrays, and sums along either axis.
//!
//! `fold_axis` adds in the order of the indices, as the data pass has to; `sum_axis` does not along the last axis, and is
//! shown for its speed alone.

#[path = "../tests/it/support/data.rs"]
mod support;

use ahbm_emulator::{Memory, Timeline, replay};
use ahbm_program::{BinaryFn, Dtype, Math, OpKind, Program, ReduceFn, Tile};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use half::f16;
use ndarray::{Array2, Axis, Zip};
use support::{Kernel, ring};

/// Operations per program, so that loading and storing weigh little.
const OPS: u64 = 64;
const SIDE: usize = 512;

fn adds(tile: &Tile) -> Program {
    let mut k = Kernel::default();
    let (mut acc, b) = (k.load(0, 0, tile), k.load(0, 0, tile));
    let t = k.body.tile(tile.clone());
    for _ in 0..OPS {
        let dst = k.body.value();
        k.op(OpKind::Math(Math::Binary { f: BinaryFn::Add, dst, a: acc, b, tile: t }));
        acc = dst;
    }
    k.store(acc, 0, 0, tile);
    ring(vec![k.finish()], tile.bytes())
}

fn reductions(tile: &Tile, axis: i8) -> Program {
    let mut k = Kernel::default();
    let (a, t) = (k.load(0, 0, tile), k.body.tile(tile.clone()));
    let dst = k.body.value();
    for _ in 0..OPS {
        k.op(OpKind::Math(Math::Reduce { f: ReduceFn::Sum, axis, dst, a, tile: t }));
    }
    ring(vec![k.finish()], tile.bytes())
}

fn compare(c: &mut Criterion) {
    for dtype in [Dtype::F32, Dtype::F16] {
        let tile = Tile::new(dtype, &[SIDE as u64, SIDE as u64]);
        let mut group = c.benchmark_group(format!("kernels/{}", dtype.name()));
        group.throughput(Throughput::Bytes(tile.bytes() * OPS)).sample_size(20);
        for (name, program) in
            [("add", adds(&tile)), ("sum along 0", reductions(&tile, 0)), ("sum along 1", reductions(&tile, 1))]
        {
            let mut memory = Memory::new(&program);
            group.bench_function(format!("{name}/ours"), |b| {
                b.iter(|| replay(&program, &Timeline::default(), &mut memory));
            });
        }
    }
    let mut group = c.benchmark_group("kernels/f32");
    group.throughput(Throughput::Bytes((SIDE * SIDE * 4) as u64 * OPS)).sample_size(20);
    let (mut acc, b) = (Array2::<f32>::ones((SIDE, SIDE)), Array2::<f32>::ones((SIDE, SIDE)));
    group.bench_function("add/ndarray", |bench| bench.iter(|| (0..OPS).for_each(|_| acc += &b)));
    for axis in [0, 1] {
        group.bench_function(format!("sum along {axis}/ndarray fold_axis"), |bench| {
            bench.iter(|| (0..OPS).map(|_| b.fold_axis(Axis(axis), 0.0, |s, x| s + x)[0]).sum::<f32>());
        });
        group.bench_function(format!("sum along {axis}/ndarray sum_axis"), |bench| {
            bench.iter(|| (0..OPS).map(|_| b.sum_axis(Axis(axis))[0]).sum::<f32>());
        });
    }
    group.finish();
    let mut group = c.benchmark_group("kernels/f16");
    group.throughput(Throughput::Bytes((SIDE * SIDE * 2) as u64 * OPS)).sample_size(20);
    let (mut acc, b) = (Array2::from_elem((SIDE, SIDE), f16::ONE), Array2::from_elem((SIDE, SIDE), f16::ONE));
    group.bench_function("add/ndarray", |bench| {
        let add = |a: &mut f16, b: &f16| *a = f16::from_f32(a.to_f32() + b.to_f32());
        bench.iter(|| (0..OPS).for_each(|_| Zip::from(&mut acc).and(&b).for_each(add)));
    });
    for axis in [0, 1] {
        group.bench_function(format!("sum along {axis}/ndarray fold_axis"), |bench| {
            let sum = || b.fold_axis(Axis(axis), 0.0f32, |s, x| s + x.to_f32()).mapv(f16::from_f32)[0].to_f32();
            bench.iter(|| (0..OPS).map(|_| sum()).sum::<f32>());
        });
    }
}

criterion_group!(benches, compare);
criterion_main!(benches);
