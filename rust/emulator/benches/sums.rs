//! `acc = acc + b` beside `memcpy`, and on two cores beside one: the best of many short turns, for other work on the
//! computer makes turns longer and none shorter.
//!
//! A sum reads two arrays and writes one; a copy reads one and writes one. The first share counts the bytes of results,
//! the second all bytes that are moved.

#[path = "../tests/it/support/data.rs"]
mod support;

use ahbm_emulator::{Memory, Prepared, Timeline};
use ahbm_program::{BinaryFn, Dtype, Math, OpKind, Program, Tile};
use std::hint::black_box;
use std::time::{Duration, Instant};
use support::{Kernel, ring};

/// Additions per program: beyond those of another, which the time of loading and storing cancels out against.
const ADDS: u64 = 16;
/// Of a call that moves so many bytes.
fn turns(bytes: u64) -> u32 {
    if bytes > 1 << 20 { 6 } else { 60 }
}

/// One agent that adds `adds` times, or several that know nothing of each other.
fn accumulate(tile: &Tile, adds: u64, agents: usize) -> Program {
    let mut k = Kernel::default();
    let (mut acc, b) = (k.load(0, 0, tile), k.load(0, 0, tile));
    let t = k.body.tile(tile.clone());
    for _ in 0..adds {
        let dst = k.body.value();
        k.op(OpKind::Math(Math::Binary { f: BinaryFn::Add, dst, a: acc, b, tile: t }));
        acc = dst;
    }
    k.store(acc, 0, 0, tile);
    let body = k.finish();
    let mut program = ring(vec![body; agents], tile.bytes());
    program.channels.clear();
    program
}

struct Turn {
    program: Program,
    prepared: Prepared,
    memory: Memory,
}

impl Turn {
    fn new(program: Program) -> Self {
        let prepared = Prepared::of(&program).expect("it is right");
        let memory = Memory::new(&program);
        Self { program, prepared, memory }
    }

    fn run(&mut self) {
        self.prepared.replay(&self.program, &Timeline::default(), &mut self.memory).expect("it is right");
    }
}

/// The shortest of several turns of each call, taken in turns.
fn best<const N: usize>(turns: u32, mut calls: [&mut dyn FnMut(); N]) -> [Duration; N] {
    let mut found = [Duration::MAX; N];
    for _ in 0..turns {
        for (call, best) in calls.iter_mut().zip(&mut found) {
            let start = Instant::now();
            call();
            *best = (*best).min(start.elapsed());
        }
    }
    found
}

fn main() {
    println!("| bytes | type | sum, GB/s of its result | memcpy, GB/s | share of results | of bytes moved |");
    println!("|---|---|---|---|---|---|");
    for bytes in [256u64 << 10, 1 << 20, 64 << 20] {
        let (source, mut target) = (vec![1u8; bytes as usize], vec![0u8; bytes as usize]);
        for dtype in [Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::I32] {
            let tile = Tile::new(dtype, &[bytes / dtype.bytes()]);
            let (mut many, mut one) = (Turn::new(accumulate(&tile, 1 + ADDS, 1)), Turn::new(accumulate(&tile, 1, 1)));
            let mut copy = || (0..ADDS).for_each(|_| black_box(&mut target[..]).copy_from_slice(black_box(&source)));
            let [copied, all, few] = best(turns(bytes), [&mut copy, &mut || many.run(), &mut || one.run()]);
            let rate = |time: Duration| (bytes * ADDS) as f64 / time.as_secs_f64() / 1e9;
            let (sum, copy) = (rate(all.saturating_sub(few)), rate(copied));
            let share = 100.0 * sum / copy;
            println!("| {bytes} | {} | {sum:.1} | {copy:.1} | {share:.0} % | {:.0} % |", dtype.name(), 1.5 * share);
        }
    }
    println!("| type | one core, ms | two agents on two cores, ms | times as fast |");
    println!("|---|---|---|---|");
    for dtype in [Dtype::F16, Dtype::BF16, Dtype::F32] {
        let tile = Tile::new(dtype, &[(256 << 10) / dtype.bytes()]);
        let [mut one, mut two] = [1, 2].map(|agents| Turn::new(accumulate(&tile, 64 * ADDS, agents)));
        let [alone, both] = best(turns(0), [&mut || one.run(), &mut || two.run()]).map(|time| 1e3 * time.as_secs_f64());
        println!("| {} | {alone:.2} | {both:.2} | {:.2} |", dtype.name(), 2.0 * alone / both);
    }
}
