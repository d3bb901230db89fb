//! Throughput of the data pass: functions of f16 in result bytes, and a ring of small messages, where the cost per
//! operation shows. Sums are in `sums.rs`.

#[path = "../tests/it/support/data.rs"]
mod support;

use ahbm_emulator::{Memory, Timeline, replay};
use ahbm_program::{BinaryFn, Dtype, Math, OpKind, Program, Tile};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use support::{E, Kernel, W, ring};

/// Additions per program, so that loading and storing weigh little.
const ADDS: u64 = 64;

fn accumulate(f: BinaryFn, tile: &Tile) -> Program {
    let mut k = Kernel::default();
    let (mut acc, b) = (k.load(0, 0, tile), k.load(0, 0, tile));
    let t = k.body.tile(tile.clone());
    for _ in 0..ADDS {
        let dst = k.body.value();
        k.op(OpKind::Math(Math::Binary { f, dst, a: acc, b, tile: t }));
        acc = dst;
    }
    k.store(acc, 0, 0, tile);
    ring(vec![k.finish()], tile.bytes())
}

fn functions(c: &mut Criterion) {
    let mut group = c.benchmark_group("data/f16");
    let tile = Tile::new(Dtype::F16, &[1 << 16]);
    for f in [BinaryFn::Mul, BinaryFn::Div, BinaryFn::Max, BinaryFn::Lt] {
        let program = accumulate(f, &tile);
        let mut memory = Memory::new(&program);
        group.throughput(Throughput::Bytes(tile.bytes() * ADDS)).sample_size(10);
        group.bench_function(format!("{f:?}"), |b| {
            b.iter(|| replay(&program, &Timeline::default(), &mut memory));
        });
    }
}

/// A ring of 256 agents, 255 steps of receive, add, pass on: messages per second.
fn messages(c: &mut Criterion) {
    let mut group = c.benchmark_group("data/ring256");
    for elements in [4u32, 512] {
        let tile = Tile::new(Dtype::F16, &[elements.into()]);
        let mut k = Kernel::default();
        let mut acc = k.load(0, 0, &tile);
        let mut pass = acc;
        for _ in 1..256 {
            k.send(E, pass, &tile);
            let got = k.recv(W, &tile);
            let (dst, t) = (k.body.value(), k.body.tile(tile.clone()));
            k.op(OpKind::Math(Math::Binary { f: BinaryFn::Add, dst, a: acc, b: got, tile: t }));
            (acc, pass) = (dst, got);
        }
        k.store(acc, 0, 0, &tile);
        let body = k.finish();
        let mut program = ring(vec![body; 256], tile.bytes());
        program.bodies.truncate(1);
        program.agents.iter_mut().for_each(|a| a.body = 0);
        let mut memory = Memory::new(&program);
        let messages = 256 * 255;
        group.throughput(Throughput::Elements(messages)).sample_size(10);
        group.bench_function(BenchmarkId::new("channels only", tile.bytes()), |b| {
            b.iter(|| replay(&program, &Timeline::default(), &mut memory));
        });
        // Sharing one buffer forces the merge by end times; step k of every agent ends at time k.
        let mut shared = program.clone();
        shared.buffer_table.iter_mut().for_each(|b| b.0 = 0);
        let ops = shared.bodies[0].ops.len();
        let ends: Vec<u64> = (0..ops as u64).collect();
        let timeline = support::timeline(&vec![&ends[..]; 256]);
        group.bench_function(BenchmarkId::new("merged by time", tile.bytes()), |b| {
            b.iter(|| replay(&shared, &timeline, &mut memory));
        });
    }
}

criterion_group!(benches, functions, messages);
criterion_main!(benches);
