//! Rounding to nearest even in one step, the same bits on every machine.
//!
//! A conversion that passes through an intermediate format would round twice. A needed intermediate value is
//! rounded *to odd* first: a result that is not exact gets an odd last bit, which keeps the final
//! rounding correct as long as the intermediate format has at least two more bits.

use half::{bf16, f16};

/// `f32` to `f16`, branch-free so that loops over it become vector code. NaN stays NaN.
#[inline(always)]
pub(super) fn to_f16(x: f32) -> f16 {
    let sign = x.to_bits() & 0x8000_0000;
    let bits = x.to_bits() ^ sign;
    // The exponent's bias goes from 127 to 15; half of the last place is added, less one where that place is even.
    let normal = bits.wrapping_add(0xc800_0fff + (bits >> 13 & 1)) >> 13;
    // The last place of 0.5 is that of the subnormal numbers: the addition rounds.
    let subnormal = (f32::from_bits(bits) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let finite = if bits < 0x3880_0000 { subnormal } else { normal };
    let special = if bits > 0x7f80_0000 { 0x7e00 | bits >> 13 & 0x3ff } else { 0x7c00 };
    f16::from_bits((if bits >= 0x4780_0000 { special } else { finite } | sign >> 16) as u16)
}

/// `f16` to `f32`, branch-free.
#[inline(always)]
pub(super) fn widen_f16(x: f16) -> f32 {
    // Sign, exponent and digits are at their places in f32. The product with 2^112 corrects the exponent's bias.
    let bits = (i32::from(x.to_bits() as i16) << 13) as u32 & 0x8fff_e000;
    let finite = f32::from_bits(bits) * f32::from_bits(0x7780_0000);
    // Infinity and NaN have the largest exponent.
    let special = if finite.abs() >= 65536.0 { 0x7f80_0000 } else { 0 };
    f32::from_bits(finite.to_bits() | special)
}

/// `f32` to `bf16`, branch-free so that loops over it become vector code. NaN stays NaN.
#[inline(always)]
pub(super) fn to_bf16(x: f32) -> bf16 {
    bf16::from_bits((rounded_bf16(x) >> 16) as u16)
}

/// A word whose upper half is the `bf16`; the lower half is of no use.
#[inline(always)]
pub(super) fn rounded_bf16(x: f32) -> u32 {
    let bits = x.to_bits();
    if bits & 0x7fff_ffff > 0x7f80_0000 { bits | 0x0040_0000 } else { rounded_number(x) }
}

/// [`rounded_bf16`] of what is not NaN.
#[inline(always)]
pub(super) fn rounded_number(x: f32) -> u32 {
    let bits = x.to_bits();
    bits.wrapping_add(0x7fff + (bits >> 16 & 1))
}

/// Two `bf16` of [`rounded_bf16`] in one word.
#[inline(always)]
pub(super) fn word(upper: u32, lower: u32) -> u32 {
    upper & 0xffff_0000 | lower >> 16
}

/// `bf16` to `f32`.
#[inline(always)]
pub(super) fn widen_bf16(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// `f64` to `f32`, rounded to odd.
#[inline(always)]
pub(super) fn odd_f32(x: f64) -> f32 {
    let near = x as f32;
    let back = f64::from(near);
    if back == x || x.is_nan() || x.is_infinite() {
        return near;
    }
    // Truncate towards zero (an overflow to infinity becomes the largest finite number), then set the last bit.
    let bits = near.to_bits() - u32::from(back.abs() > x.abs());
    f32::from_bits(bits | 1)
}

/// The sum of two finite `f64`, rounded to odd; the plain sum when it is not finite.
#[inline(always)]
pub(super) fn odd_sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // Knuth's two-sum: `err` is exactly what `sum` lost.
    let b_part = sum - a;
    let err = (a - (sum - b_part)) + (b - b_part);
    let bits = sum.to_bits();
    if err == 0.0 || bits & 1 == 1 || !sum.is_finite() {
        return sum;
    }
    // The sum is even and not exact; of its two odd neighbours take the one on the side of the error.
    f64::from_bits(if (err > 0.0) == (sum > 0.0) { bits + 1 } else { bits - 1 })
}

/// An integer to `f64`, rounded to odd.
pub(super) fn odd_f64(x: i128) -> f64 {
    let near = x as f64;
    let back = near as i128;
    if back == x {
        return near;
    }
    let bits = near.to_bits() - u64::from(back.unsigned_abs() > x.unsigned_abs());
    f64::from_bits(bits | 1)
}

/// Types a value can be rounded to from `f64` and from integers. The names differ from `half`'s own
/// `from_f64`, which rounds twice and would win over a trait method of the same name.
pub(super) trait Rounded: Copy {
    /// Floats round to nearest even; integers truncate towards zero, saturate out of range, and take NaN as zero.
    fn round_f64(x: f64) -> Self;
    /// Floats round to nearest even; integers wrap.
    fn round_int(x: i128) -> Self;
    /// The exact number, for floats.
    fn to_f64(self) -> f64;
    /// The exact number, for integers; `None` for floats.
    fn to_int(self) -> Option<i128>;
}

macro_rules! small_float {
    ($t:ident, $from_f32:path) => {
        impl Rounded for $t {
            #[inline(always)]
            fn round_f64(x: f64) -> Self {
                $from_f32(odd_f32(x))
            }
            fn round_int(x: i128) -> Self {
                Self::round_f64(odd_f64(x))
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self.to_f32().into()
            }
            #[inline(always)]
            fn to_int(self) -> Option<i128> {
                None
            }
        }
    };
}
small_float!(f16, to_f16);
small_float!(bf16, to_bf16);
pub(super) use small_float;

macro_rules! native_float {
    ($($t:ident)*) => {$(
        impl Rounded for $t {
            #[inline(always)]
            fn round_f64(x: f64) -> Self {
                x as $t
            }
            fn round_int(x: i128) -> Self {
                x as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self.into()
            }
            #[inline(always)]
            fn to_int(self) -> Option<i128> {
                None
            }
        }
    )*};
}
native_float!(f32 f64);

macro_rules! integer {
    ($($t:ident)*) => {$(
        impl Rounded for $t {
            #[inline(always)]
            fn round_f64(x: f64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn round_int(x: i128) -> Self {
                x as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn to_int(self) -> Option<i128> {
                Some(self.into())
            }
        }
    )*};
}
integer!(i8 i16 i32 i64 u8 u16 u32 u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f64_to_f16_rounds_once() {
        // Just above the midpoint of 1 and its successor: through a rounded f32 it would tie to even.
        let above = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(<f16 as Rounded>::round_f64(above).to_bits(), 0x3c01);
        assert_eq!(<f16 as Rounded>::round_f64(1.0 + 2f64.powi(-11)).to_bits(), 0x3c00);
        assert_eq!(<bf16 as Rounded>::round_f64(-(1.0 + 2f64.powi(-8) + 2f64.powi(-50))).to_bits(), 0xbf81);
        assert_eq!(<f16 as Rounded>::round_f64(1e300), f16::INFINITY);
        assert_eq!(<f16 as Rounded>::round_f64(65_519.999_999), f16::MAX);
        assert_eq!(<f16 as Rounded>::round_f64(65520.0), f16::INFINITY);
        assert_eq!(<f16 as Rounded>::round_f64(1e-300).to_bits(), 0);
        assert!(<f16 as Rounded>::round_f64(f64::NAN).is_nan());
    }

    #[test]
    fn integers_round_once() {
        // 2^60 + 2^52 is the midpoint of two bf16; one more must round up, though f64 cannot hold it.
        let midpoint = (1i128 << 60) + (1 << 52);
        assert_eq!(<bf16 as Rounded>::round_int(midpoint).to_f64(), (1u64 << 60) as f64);
        assert_eq!(<bf16 as Rounded>::round_int(midpoint + 1).to_f64(), ((1u64 << 60) + (1 << 53)) as f64);
        assert_eq!(<bf16 as Rounded>::round_int(-midpoint - 1).to_f64(), -(((1u64 << 60) + (1 << 53)) as f64));
        assert_eq!(<u8 as Rounded>::round_int(-1), 255);
        assert_eq!(<i8 as Rounded>::round_f64(1e9), 127);
        assert_eq!(<u8 as Rounded>::round_f64(f64::NAN), 0);
    }

    #[test]
    fn odd_sum_keeps_the_lost_part() {
        let tiny = 2f64.powi(-200);
        assert!(odd_sum(1.5, tiny) > 1.5 && odd_sum(1.5, -tiny) < 1.5);
        assert!(odd_sum(-1.5, tiny) > -1.5 && odd_sum(-1.5, -tiny) < -1.5);
        assert_eq!(odd_sum(1.0, 2.0), 3.0);
        assert!(odd_sum(f64::INFINITY, f64::NEG_INFINITY).is_nan());
        assert_eq!(odd_sum(f64::INFINITY, 1.0), f64::INFINITY);
    }

    #[test]
    fn f16_agrees_with_half() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (widen_f16(f16::from_bits(bits)), f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#06x}");
            // Every number, both midpoints beside it, and what is next to all of these.
            for near in [0, 0x1000, 0x2000].map(|step| theirs.to_bits().wrapping_add(step)) {
                for x in [near.wrapping_sub(1), near, near.wrapping_add(1)].map(f32::from_bits) {
                    let (ours, theirs) = (to_f16(x), f16::from_f32(x));
                    assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{x}");
                }
            }
        }
        for bits in (0..=u32::MAX).step_by(9973) {
            let x = f32::from_bits(bits);
            let (ours, theirs) = (to_f16(x), f16::from_f32(x));
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{x}");
        }
    }

    #[test]
    fn bf16_agrees_with_half() {
        for bits in (0..=u32::MAX).step_by(9973) {
            let x = f32::from_bits(bits);
            let (ours, theirs) = (to_bf16(x), bf16::from_f32(x));
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{x}");
        }
    }
}
