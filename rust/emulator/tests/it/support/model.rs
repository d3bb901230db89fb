//! A slow, obvious model of every dtype to compare the data pass with.
#![allow(dead_code, unreachable_pub)]

use super::data::{Kernel, get, put, ring};
use ahbm_emulator::{Copied, Memory, Prepared, Timeline, replay};
use ahbm_findings::Diagnostic;
use ahbm_program::{BufferId, Dtype, OpKind, Tile, ValueId};
use half::{bf16, f16};

/// A number, exactly.
#[derive(Debug, Clone, Copy)]
pub enum Num {
    F(f64),
    I(i128),
}

impl Num {
    pub fn f(self) -> f64 {
        match self {
            Num::F(x) => x,
            Num::I(n) => n as f64,
        }
    }

    /// Equal bits of value and sign; any NaN equals any other.
    pub fn same(self, other: Num) -> bool {
        match (self, other) {
            (Num::F(a), Num::F(b)) => a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
            (Num::I(a), Num::I(b)) => a == b,
            _ => false,
        }
    }
}

/// Rounds by searching all numbers of a format of up to 16 bits for the nearest, ties to the even one.
fn nearest16(x: f64, inf: u16, decode: impl Fn(u16) -> f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let (mut low, mut high) = (0u16, inf);
    // The magnitude lies in [low, high]; infinity stands for the next number after the largest.
    let top = 2.0 * decode(inf - 1) - decode(inf - 2);
    let value = |bits: u16| if bits == inf { top } else { decode(bits) };
    let magnitude = x.abs().min(top);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if value(middle) <= magnitude { low = middle } else { high = middle }
    }
    let (below, above) = (magnitude - value(low), value(high) - magnitude);
    let bits = if below < above || (below == above && low % 2 == 0) { low } else { high };
    decode(bits).copysign(x)
}

/// An 8-bit float that bits stand for, by its digits and the bias of its exponent; finite ones only.
fn eighth(bits: u8, digits: u32, bias: i32) -> f64 {
    let (exponent, fraction) = (i32::from(bits & 0x7f) >> digits, f64::from(bits & ((1 << digits) - 1)));
    let part = fraction / f64::from(1u32 << digits) + f64::from(exponent > 0);
    (part * 2f64.powi(exponent.max(1) - bias)).copysign(if bits & 0x80 == 0 { 1.0 } else { -1.0 })
}

fn e4m3(bits: u8) -> f64 {
    if bits & 0x7f == 0x7f { f64::NAN } else { eighth(bits, 3, 7) }
}

fn e5m2(bits: u8) -> f64 {
    match bits & 0x7f {
        0x7d.. => f64::NAN,
        0x7c => f64::INFINITY.copysign(if bits & 0x80 == 0 { 1.0 } else { -1.0 }),
        _ => eighth(bits, 2, 15),
    }
}

/// An integer as a float for rounding to 16 bits: bits that do not fit are gathered in the last one.
fn sticky(n: i128) -> f64 {
    let drop = (128 - n.unsigned_abs().leading_zeros()).saturating_sub(50);
    let kept = n.unsigned_abs() >> drop;
    let lost = u128::from(kept << drop != n.unsigned_abs());
    ((kept << 1 | lost) as f64 * 2f64.powi(drop as i32 - 1)).copysign(n as f64)
}

/// Rounds a number once to a dtype.
pub fn round(dtype: Dtype, x: Num) -> Num {
    match (dtype, x) {
        (Dtype::F16 | Dtype::BF16 | Dtype::F8E4M3 | Dtype::F8E5M2, Num::I(n)) => round(dtype, Num::F(sticky(n))),
        (Dtype::F16, x) => Num::F(nearest16(x.f(), 0x7c00, |b| f16::from_bits(b).to_f64())),
        (Dtype::BF16, x) => Num::F(nearest16(x.f(), 0x7f80, |b| bf16::from_bits(b).to_f64())),
        // Saturated.
        (Dtype::F8E4M3, x) => Num::F(nearest16(x.f().clamp(-448.0, 448.0), 0x7f, |b| e4m3(b as u8))),
        (Dtype::F8E5M2, x) => Num::F(nearest16(x.f(), 0x7c, |b| e5m2(b as u8))),
        (Dtype::F32, Num::F(x)) => Num::F((x as f32).into()),
        (Dtype::F32, Num::I(n)) => Num::F((n as f32).into()),
        (Dtype::F64, x) => Num::F(x.f()),
        (Dtype::I8, Num::I(n)) => Num::I((n as i8).into()),
        (Dtype::I16, Num::I(n)) => Num::I((n as i16).into()),
        (Dtype::I32, Num::I(n)) => Num::I((n as i32).into()),
        (Dtype::I64, Num::I(n)) => Num::I((n as i64).into()),
        (Dtype::U8, Num::I(n)) => Num::I((n as u8).into()),
        (Dtype::U16, Num::I(n)) => Num::I((n as u16).into()),
        (Dtype::U32, Num::I(n)) => Num::I((n as u32).into()),
        (Dtype::U64, Num::I(n)) => Num::I((n as u64).into()),
        // Truncated and saturated.
        (to, Num::F(x)) => {
            let (lo, hi) = limits(to);
            Num::I(if x.is_nan() { 0 } else { (x.trunc() as i128).clamp(lo, hi) })
        }
    }
}

pub fn limits(dtype: Dtype) -> (i128, i128) {
    let bits = 8 * dtype.bytes() as u32;
    if dtype.name().starts_with('u') { (0, (1 << bits) - 1) } else { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) }
}

pub fn decode(dtype: Dtype, bytes: &[u8]) -> Vec<Num> {
    let read = |c: &[u8]| c.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
    let one = |c: &[u8]| {
        let raw = read(c);
        match dtype {
            Dtype::F16 => Num::F(f16::from_bits(raw as u16).to_f64()),
            Dtype::BF16 => Num::F(bf16::from_bits(raw as u16).to_f64()),
            Dtype::F8E4M3 => Num::F(e4m3(raw as u8)),
            Dtype::F8E5M2 => Num::F(e5m2(raw as u8)),
            Dtype::F32 => Num::F(f32::from_bits(raw as u32).into()),
            Dtype::F64 => Num::F(f64::from_bits(raw)),
            _ => round(dtype, Num::I(raw.into())),
        }
    };
    bytes.chunks_exact(dtype.bytes() as usize).map(one).collect()
}

pub fn encode(dtype: Dtype, numbers: &[Num]) -> Vec<u8> {
    let one = |n: &Num| -> u64 {
        match (dtype, round(dtype, *n)) {
            (Dtype::F16, x) => f16::from_f32(x.f() as f32).to_bits().into(),
            (Dtype::BF16, x) => bf16::from_f32(x.f() as f32).to_bits().into(),
            (Dtype::F8E4M3, x) => (0..=255).find(|&b| Num::F(e4m3(b)).same(x)).unwrap().into(),
            (Dtype::F8E5M2, x) => (0..=255).find(|&b| Num::F(e5m2(b)).same(x)).unwrap().into(),
            (Dtype::F32, x) => (x.f() as f32).to_bits().into(),
            (_, Num::F(x)) => x.to_bits(),
            (_, Num::I(n)) => n as u64,
        }
    };
    numbers.iter().flat_map(|n| one(n).to_le_bytes()[..dtype.bytes() as usize].to_vec()).collect()
}

/// Deterministic bytes: for floats mostly moderate numbers, with every kind of special one between.
pub fn sample(dtype: Dtype, n: usize, seed: u64) -> Vec<Num> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let raw: Vec<u8> = (0..n)
        .flat_map(|_| {
            let bits = next();
            let moderate = ((bits >> 20) as i32 % 4096) as f64 / 64.0;
            match bits % 4 {
                0 | 1 if dtype.is_float() => encode(dtype, &[Num::F(moderate)]),
                2 if !dtype.is_float() => encode(dtype, &[Num::I((bits >> 40) as i128 % 17 - 8)]),
                _ => next().to_le_bytes()[..dtype.bytes() as usize].to_vec(),
            }
        })
        .collect();
    let mut numbers = decode(dtype, &raw);
    let special: &[f64] =
        &[0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 65504.0, 6e-8, 3e38, -5.5];
    for (slot, &x) in numbers.iter_mut().step_by(7).zip(special) {
        *slot = round(dtype, if dtype.is_float() { Num::F(x) } else { Num::I(x as i64 as i128) });
    }
    numbers
}

/// Runs one operation on loaded operands and stores its result.
pub fn apply(
    operands: &[(&Tile, &[Num])],
    result: &Tile,
    build: impl FnOnce(&mut Kernel, &[ValueId], ValueId) -> OpKind,
) -> Result<Vec<Num>, Diagnostic> {
    let mut k = Kernel::default();
    let (mut values, mut inputs, mut at) = (Vec::new(), Vec::new(), 0u64);
    for (tile, numbers) in operands {
        assert_eq!(tile.elements(), numbers.len() as u64);
        // An odd offset for one-byte types exercises unaligned loads.
        values.push(k.load(0, at, tile));
        inputs.push((at, encode(tile.dtype, numbers)));
        at += tile.bytes() + u64::from(tile.dtype.bytes() == 1);
    }
    let at = at.next_multiple_of(8);
    let dst = k.body.value();
    let op = build(&mut k, &values, dst);
    k.op(op);
    k.store(dst, 0, at, result);
    let program = ring(vec![k.finish()], at + result.bytes());
    let mut memory = Memory::new(&program);
    for (at, bytes) in inputs {
        put(&mut memory, 0, at as usize, &bytes);
    }
    let mut array = memory.bytes(BufferId(0)).to_vec();
    replay(&program, &Timeline::default(), &mut memory)?;
    let made = decode(result.dtype, &get::<u8>(&memory, 0, at as usize, result.bytes() as usize));
    let all = [vec![Copied { host: 0, buffer: BufferId(0), offset: 0, bytes: array.len() as u64 }]];
    if let Some(recipe) = Prepared::of(&program)?.recipe(&program, &Timeline::default(), &all, &all) {
        recipe.run(&mut [&mut array], 1);
        assert_same(&decode(result.dtype, &array[at as usize..][..result.bytes() as usize]), &made, "by the recipe");
    }
    Ok(made)
}

pub fn assert_same(got: &[Num], want: &[Num], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!(g.same(*w), "{what}: element {i} is {g:?}, should be {w:?}");
    }
}
