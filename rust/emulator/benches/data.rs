//! Throughput of the data pass, in result bytes: `acc = acc + b` in every dtype beside `memcpy`, and a ring of
//! small messages, where the cost per operation shows.

#[path = "../tests/it/support/data.rs"]
mod support;

use ahbm_emulator::{Memory, Prepared, Timeline, replay};
use ahbm_program::{BinaryFn, Dtype, OpKind, Program, Tile};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use support::{E, Kernel, W, ring};

/// Additions per program, so that loading and storing weigh little.
const ADDS: u64 = 64;

fn accumulate(f: BinaryFn, tile: &Tile) -> Program {
    let mut k = Kernel::default();
    let (mut acc, b) = (k.load(0, 0, tile), k.load(0, 0, tile));
    let t = k.body.tile(tile.clone());
    for _ in 0..ADDS {
        let dst = k.body.value();
        k.op(OpKind::Binary { f, dst, a: acc, b, tile: t });
        acc = dst;
    }
    k.store(acc, 0, 0, tile);
    ring(vec![k.finish()], tile.bytes())
}

/// Sums beside a copy of as many bytes. All count the bytes of their result. A sum reads two arrays and writes one, three
/// bytes moved for each; a copy moves two.
fn sums(c: &mut Criterion) {
    for bytes in [1u64 << 10, 32 << 10, 1 << 20, 64 << 20] {
        let mut group = c.benchmark_group(format!("data/add {bytes}"));
        group.throughput(Throughput::Bytes(bytes * ADDS)).sample_size(10);
        let (source, mut target) = (vec![1u8; bytes as usize], vec![0u8; bytes as usize]);
        group.bench_function("memcpy", |b| {
            b.iter(|| (0..ADDS).for_each(|_| black_box(&mut target[..]).copy_from_slice(black_box(&source))));
        });
        for dtype in [Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64, Dtype::I32, Dtype::I8] {
            let tile = Tile::new(dtype, &[bytes / dtype.bytes()]);
            let program = accumulate(BinaryFn::Add, &tile);
            let mut memory = Memory::new(&program);
            group.bench_function(dtype.name(), |b| b.iter(|| replay(&program, &Timeline::default(), &mut memory)));
        }
    }
}

/// Two agents that know nothing of each other, a core each, beside one of them alone.
fn threads(c: &mut Criterion) {
    let mut group = c.benchmark_group("data/agents apart");
    for dtype in [Dtype::F16, Dtype::F32] {
        let tile = Tile::new(dtype, &[(256 << 10) / dtype.bytes()]);
        for agents in [1usize, 2] {
            let body = accumulate(BinaryFn::Add, &tile).bodies[0].as_ref().clone();
            let mut program = ring(vec![body; agents], tile.bytes());
            program.channels.clear();
            let (prepared, mut memory) = (Prepared::of(&program).expect("it is right"), Memory::new(&program));
            group.throughput(Throughput::Bytes(tile.bytes() * ADDS * agents as u64)).sample_size(10);
            group.bench_function(BenchmarkId::new(dtype.name(), agents), |b| {
                b.iter(|| prepared.replay(&program, &Timeline::default(), &mut memory));
            });
        }
    }
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
            k.op(OpKind::Binary { f: BinaryFn::Add, dst, a: acc, b: got, tile: t });
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

criterion_group!(benches, sums, threads, functions, messages);
criterion_main!(benches);
