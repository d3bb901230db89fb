//! The widest vectors of the processor, chosen when the program runs. None changes a bit of a result.

use super::round::{rounded_number, word};
use fearless_simd::{Level, Simd};
use std::sync::LazyLock;

/// To ask the processor takes longer than to add a few numbers.
static LEVEL: LazyLock<Level> = LazyLock::new(Level::new);

/// Runs loops that the compiler may make vector code of.
#[inline]
pub(super) fn widest<R>(run: impl FnOnce() -> R) -> R {
    match *LEVEL {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(simd) => simd.vectorize(run),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(simd) => simd.vectorize(run),
        _ => run(),
    }
}

/// Loops over `f16` or `bf16`, by whatever converts them.
pub(super) trait Halves {
    fn run(self, convert: impl Convert);
}

/// Runs loops over `f16` or `bf16` with the conversions of the processor; without, where it has none.
#[inline]
pub(super) fn halves(run: impl Halves) {
    match *LEVEL {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(simd) => simd.vectorize(
            #[inline(always)]
            || run.run(simd),
        ),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(simd) => simd.vectorize(
            #[inline(always)]
            || run.run(simd),
        ),
        _ => run.run(portable::Portable),
    }
}

/// Numbers that are converted at once.
pub(super) const BLOCK: usize = 16;

/// `f16` to `f32` and back, and `f32` to `bf16`, to nearest even, the same bits whoever does it. NaN becomes quiet.
pub(super) trait Convert: Copy {
    fn widen(self, x: &[half::f16; BLOCK]) -> [f32; BLOCK];
    fn narrow(self, x: [f32; BLOCK]) -> [half::f16; BLOCK];

    /// Words of two `bf16`, unless one of the numbers is NaN.
    #[inline(always)]
    fn words(self, upper: [f32; BLOCK], lower: [f32; BLOCK]) -> Option<[u32; BLOCK]> {
        let (mut words, mut nan) = ([0; BLOCK], 0);
        for at in 0..BLOCK {
            let (upper, lower) = (upper[at], lower[at]);
            nan |= u32::from(upper.is_nan() | lower.is_nan());
            words[at] = word(rounded_number(upper), rounded_number(lower));
        }
        (nan == 0).then_some(words)
    }
}

mod portable {
    use super::{BLOCK, Convert};
    use crate::data::round::{to_f16, widen_f16};
    use half::f16;

    #[derive(Clone, Copy)]
    pub(super) struct Portable;

    impl Convert for Portable {
        #[inline(always)]
        fn widen(self, x: &[f16; BLOCK]) -> [f32; BLOCK] {
            x.map(widen_f16)
        }

        #[inline(always)]
        fn narrow(self, x: [f32; BLOCK]) -> [f16; BLOCK] {
            x.map(to_f16)
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{BLOCK, Convert};
    use bytemuck::cast;
    use core::arch::x86_64::{
        _CMP_UNORD_Q, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm512_add_epi32, _mm512_cmp_ps_mask, _mm512_cvtph_ps,
        _mm512_cvtps_ph, _mm512_mask_add_epi32, _mm512_set1_epi32, _mm512_srli_epi32, _mm512_ternarylogic_epi32,
        _mm512_test_epi32_mask,
    };
    use fearless_simd::{Avx2, Avx512, kernel};
    use half::f16;

    kernel!(
        #[inline(always)]
        fn widen_8(_simd: Avx2, x: [f16; 8]) -> [f32; 8] {
            cast(_mm256_cvtph_ps(cast(x)))
        }
    );
    kernel!(
        #[inline(always)]
        fn narrow_8(_simd: Avx2, x: [f32; 8]) -> [f16; 8] {
            cast(_mm256_cvtps_ph::<0>(cast(x)))
        }
    );
    kernel!(
        #[inline(always)]
        fn widen_16(_simd: Avx512, x: [f16; 16]) -> [f32; 16] {
            cast(_mm512_cvtph_ps(cast(x)))
        }
    );
    kernel!(
        #[inline(always)]
        fn narrow_16(_simd: Avx512, x: [f32; 16]) -> [f16; 16] {
            cast(_mm512_cvtps_ph::<0>(cast(x)))
        }
    );
    kernel!(
        #[inline(always)]
        fn words_16(_simd: Avx512, upper: [f32; 16], lower: [f32; 16]) -> Option<[u32; 16]> {
            let (last, half) = (_mm512_set1_epi32(1 << 16), _mm512_set1_epi32(1 << 15));
            let less = _mm512_set1_epi32((1 << 15) - 1);
            // Half of the last place is added, less one where that place is even.
            let [upper_rounded, lower_rounded] = [upper, lower].map(
                #[inline(always)]
                |x| {
                    let bits = cast(x);
                    let odd = _mm512_test_epi32_mask(bits, last);
                    _mm512_mask_add_epi32(_mm512_add_epi32(bits, less), odd, bits, half)
                },
            );
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(cast(upper), cast(lower));
            let mask = _mm512_set1_epi32(-1 << 16);
            // upper & mask | lower
            let words = _mm512_ternarylogic_epi32::<0xf8>(_mm512_srli_epi32::<16>(lower_rounded), upper_rounded, mask);
            (nan == 0).then_some(cast(words))
        }
    );

    impl Convert for Avx2 {
        #[inline(always)]
        fn widen(self, x: &[f16; BLOCK]) -> [f32; BLOCK] {
            let [low, high]: [[f16; 8]; 2] = cast(*x);
            cast([widen_8(self, low), widen_8(self, high)])
        }

        #[inline(always)]
        fn narrow(self, x: [f32; BLOCK]) -> [f16; BLOCK] {
            let [low, high]: [[f32; 8]; 2] = cast(x);
            cast([narrow_8(self, low), narrow_8(self, high)])
        }
    }

    impl Convert for Avx512 {
        #[inline(always)]
        fn widen(self, x: &[f16; BLOCK]) -> [f32; BLOCK] {
            widen_16(self, *x)
        }

        #[inline(always)]
        fn narrow(self, x: [f32; BLOCK]) -> [f16; BLOCK] {
            narrow_16(self, x)
        }

        #[inline(always)]
        fn words(self, upper: [f32; BLOCK], lower: [f32; BLOCK]) -> Option<[u32; BLOCK]> {
            words_16(self, upper, lower)
        }
    }
}
