//! The two 8-bit floats: `e4m3` in its form without infinity (torch's `float8_e4m3fn`), and `e5m2`.
//!
//! What is too large becomes the largest number in `e4m3` and infinity in `e5m2`, as in torch; NCCL on GPUs saturates to
//! the largest number in both, and so does the crate `float8`. Everything else is NCCL's: its sums and products in `f16`
//! lose nothing that shows in 8 bits.

use super::round::{Rounded, odd_f32, odd_f64, small_float, widen_f16};
use half::f16;

macro_rules! float8 {
    ($name:ident: $digits:literal digits, bias $bias:literal, above $limit:literal $beyond:literal, widened by $widen:expr) => {
        #[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
        #[repr(transparent)]
        pub(super) struct $name(u8);

        impl $name {
            /// Rounded to nearest even; branch-free, as `to_f16`. NaN stays NaN, and its bits do not depend on the machine.
            #[inline(always)]
            pub(super) fn from_f32(x: f32) -> Self {
                const DROPPED: u32 = 23 - $digits;
                const REBIAS: u32 = (127 - $bias) << 23;
                // The last place of this number is that of the subnormal numbers: the addition rounds.
                const MAGIC: u32 = (127 + 24 - $bias - $digits) << 23;
                let sign = (x.to_bits() >> 24) as u8 & 0x80;
                let bits = x.to_bits() & 0x7fff_ffff;
                let half = (1 << (DROPPED - 1)) - 1 + (bits >> DROPPED & 1);
                let normal = bits.wrapping_sub(REBIAS).wrapping_add(half) >> DROPPED;
                let subnormal = (f32::from_bits(bits) + f32::from_bits(MAGIC)).to_bits().wrapping_sub(MAGIC);
                let finite = if bits < REBIAS + (1 << 23) { subnormal } else { normal };
                let number = if f32::from_bits(bits) > $limit { $beyond } else { finite as u8 } | sign;
                Self(if x.is_nan() { 0x7f } else { number })
            }

            /// Exact.
            #[inline(always)]
            pub(super) fn to_f32(self) -> f32 {
                let widen: fn(u8) -> f32 = $widen;
                widen(self.0)
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }
    };
}

float8!(F8E4M3: 3 digits, bias 7, above 448.0 0x7e, widened by |bits| {
    let magnitude = u32::from(bits & 0x7f) << 20;
    // The product with 2^120 corrects the exponent's bias.
    let finite = f32::from_bits(magnitude) * f32::from_bits(0x7b80_0000);
    let number = if bits & 0x7f == 0x7f { 0x7fc0_0000 } else { finite.to_bits() };
    f32::from_bits(number | u32::from(bits & 0x80) << 24)
});
// An e5m2 is the upper half of an f16.
float8!(F8E5M2: 2 digits, bias 15, above 61440.0 0x7c, widened by |bits| widen_f16(f16::from_bits(u16::from(bits) << 8)));
small_float!(F8E4M3, F8E4M3::from_f32);
small_float!(F8E5M2, F8E5M2::from_f32);

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of a bit pattern from its sign, exponent and digits, by the formula of the formats.
    fn number(bits: u8, digits: u32, bias: i32, infinite: bool) -> f64 {
        let (exponent, fraction) = (i32::from(bits & 0x7f) >> digits, f64::from(bits & ((1 << digits) - 1)));
        let part = fraction / f64::from(1u32 << digits);
        let magnitude = match exponent {
            31 if infinite && fraction == 0.0 => f64::INFINITY,
            31 if infinite => f64::NAN,
            _ if !infinite && bits & 0x7f == 0x7f => f64::NAN,
            0 => part * 2f64.powi(1 - bias),
            _ => (1.0 + part) * 2f64.powi(exponent - bias),
        };
        if bits & 0x80 == 0 { magnitude } else { -magnitude }
    }

    macro_rules! agrees_with_the_formula {
        ($name:ident, $digits:literal, $bias:literal, $infinite:literal) => {
            let of = |bits: u8| number(bits, $digits, $bias, $infinite);
            for bits in 0..=255u8 {
                let (ours, want) = ($name(bits).to_f32(), of(bits));
                assert!(f64::from(ours).to_bits() == want.to_bits() || ours.is_nan() && want.is_nan(), "{bits:#04x}");
                if !want.is_nan() {
                    assert_eq!($name::from_f32(ours).0, bits);
                }
            }
            // Of every two neighbours: the midpoint goes to the even one, what is beside it to the nearer one.
            let last = if $infinite { 0x7b } else { 0x7e };
            for (low, sign) in (0..last).flat_map(|low| [(low, 0u8), (low, 0x80)]) {
                let middle = ((of(low) + of(low + 1)) / 2.0) as f32;
                let signed = |x: f32| if sign == 0 { x } else { -x };
                let even = low + low % 2;
                for (x, want) in [
                    (middle, even),
                    (f32::from_bits(middle.to_bits() - 1), low),
                    (f32::from_bits(middle.to_bits() + 1), low + 1),
                ] {
                    assert_eq!($name::from_f32(signed(x)).0, want | sign, "{x}");
                }
            }
        };
    }

    #[test]
    fn every_pattern_and_every_midpoint() {
        agrees_with_the_formula!(F8E4M3, 3, 7, false);
        agrees_with_the_formula!(F8E5M2, 2, 15, true);
    }

    #[test]
    fn what_is_too_large_or_no_number() {
        for (x, want) in [(448.0, 0x7e), (464.0, 0x7e), (480.0, 0x7e), (-1e30, 0xfe), (f32::INFINITY, 0x7e)] {
            assert_eq!(F8E4M3::from_f32(x).0, want, "{x}");
        }
        let below = f32::from_bits(61440f32.to_bits() - 1);
        for (x, want) in [(57344.0, 0x7b), (below, 0x7b), (61440.0, 0x7c), (-1e30, 0xfc), (f32::INFINITY, 0x7c)] {
            assert_eq!(F8E5M2::from_f32(x).0, want, "{x}");
        }
        for nan in [f32::NAN, -f32::NAN] {
            assert_eq!((F8E4M3::from_f32(nan).0, F8E5M2::from_f32(nan).0), (0x7f, 0x7f));
        }
        assert_eq!((F8E4M3::from_f32(-1e-30).0, F8E5M2::from_f32(-1e-30).0), (0x80, 0x80));
    }
}
