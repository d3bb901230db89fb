//! Elements: the dtypes as Rust types, with the arithmetic each is computed in.
//!
//! `f16` and `bf16` are computed in `f32` and rounded once per operation. All other types are computed natively. Loops
//! over elements that do not depend on each other are free of branches and run on the widest vectors of the processor,
//! which changes no bit.

use super::round::{rounded_bf16, to_bf16, to_f16, widen_bf16, widen_f16};
use half::{bf16, f16};
use pulp::Arch;

/// An element type and the type its arithmetic runs in.
pub(super) trait Element: bytemuck::Pod + PartialEq {
    /// The type an operation is computed in before it is rounded to `Self`.
    type Wide: Number;
    /// True for the floating-point types.
    const FLOAT: bool;

    /// Exact.
    fn widen(self) -> Self::Wide;
    /// Rounded to nearest even.
    fn narrow(wide: Self::Wide) -> Self;

    /// `acc[i] = f(acc[i])`.
    fn map1(acc: &mut [Self], f: impl Fn(Self::Wide) -> Self::Wide + Copy) {
        Arch::new().dispatch(|| acc.iter_mut().for_each(|x| *x = Self::narrow(f(x.widen()))));
    }

    /// `acc[i] = f(acc[i], b[i])`.
    fn map2(acc: &mut [Self], b: &[Self], f: impl Fn(Self::Wide, Self::Wide) -> Self::Wide + Copy) {
        Arch::new().dispatch(|| acc.iter_mut().zip(b).for_each(|(x, &y)| *x = Self::narrow(f(x.widen(), y.widen()))));
    }

    /// `acc[i] = f(acc[i], a[i])`.
    fn fold_rows(acc: &mut [Self::Wide], a: &[Self], f: impl Fn(Self::Wide, Self::Wide) -> Self::Wide) {
        Arch::new().dispatch(|| acc.iter_mut().zip(a).for_each(|(acc, x)| *acc = f(*acc, x.widen())));
    }

    /// `acc = f(acc, a[i])` in the order of the indices.
    fn fold(acc: Self::Wide, a: &[Self], f: impl Fn(Self::Wide, Self::Wide) -> Self::Wide) -> Self::Wide {
        a.iter().fold(acc, |acc, x| f(acc, x.widen()))
    }
}

/// The operations a type must offer to be computed in.
pub(super) trait Number: Copy + PartialOrd + 'static {
    const ZERO: Self;
    const ONE: Self;

    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn mul(self, o: Self) -> Self;
    /// Integers truncate towards zero, the one overflow (`MIN / -1`) wraps; a zero divisor yields zero and
    /// is refused before.
    fn div(self, o: Self) -> Self;
    fn neg(self) -> Self;
    /// The functions of bits are refused before on floating-point numbers, where they yield `self`.
    fn and(self, o: Self) -> Self;
    fn or(self, o: Self) -> Self;
    fn xor(self, o: Self) -> Self;
    /// True for NaN.
    fn is_nan(self) -> bool;

    /// The larger, NaN if either is NaN (NumPy's `maximum`); the first of equals.
    #[inline(always)]
    fn max(self, o: Self) -> Self {
        if self >= o || self.is_nan() { self } else { o }
    }

    /// The smaller, NaN if either is NaN (NumPy's `minimum`); the first of equals.
    #[inline(always)]
    fn min(self, o: Self) -> Self {
        if self <= o || self.is_nan() { self } else { o }
    }

    #[inline(always)]
    fn truth(x: bool) -> Self {
        if x { Self::ONE } else { Self::ZERO }
    }
}

/// Functions of floating-point types only. `libm` instead of the platform's library, so that every
/// machine computes the same bits.
pub(super) trait Float: Number {
    fn exp(self) -> Self;
    fn log(self) -> Self;
    fn sqrt(self) -> Self;
}

macro_rules! float {
    ($t:ident, $exp:path, $log:path) => {
        impl Number for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            #[inline(always)]
            fn add(self, o: Self) -> Self {
                self + o
            }
            #[inline(always)]
            fn sub(self, o: Self) -> Self {
                self - o
            }
            #[inline(always)]
            fn mul(self, o: Self) -> Self {
                self * o
            }
            #[inline(always)]
            fn div(self, o: Self) -> Self {
                self / o
            }
            #[inline(always)]
            fn neg(self) -> Self {
                -self
            }
            #[inline(always)]
            fn and(self, _: Self) -> Self {
                self
            }
            #[inline(always)]
            fn or(self, _: Self) -> Self {
                self
            }
            #[inline(always)]
            fn xor(self, _: Self) -> Self {
                self
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self.is_nan()
            }
        }
        impl Float for $t {
            fn exp(self) -> Self {
                $exp(self)
            }
            fn log(self) -> Self {
                $log(self)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                self.sqrt()
            }
        }
    };
}
float!(f32, libm::expf, libm::logf);
float!(f64, libm::exp, libm::log);

macro_rules! integer {
    ($($t:ident)*) => {$(
        impl Number for $t {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            #[inline(always)]
            fn add(self, o: Self) -> Self {
                self.wrapping_add(o)
            }
            #[inline(always)]
            fn sub(self, o: Self) -> Self {
                self.wrapping_sub(o)
            }
            #[inline(always)]
            fn mul(self, o: Self) -> Self {
                self.wrapping_mul(o)
            }
            #[inline(always)]
            fn div(self, o: Self) -> Self {
                if o == 0 { 0 } else { self.wrapping_div(o) }
            }
            #[inline(always)]
            fn neg(self) -> Self {
                self.wrapping_neg()
            }
            #[inline(always)]
            fn and(self, o: Self) -> Self {
                self & o
            }
            #[inline(always)]
            fn or(self, o: Self) -> Self {
                self | o
            }
            #[inline(always)]
            fn xor(self, o: Self) -> Self {
                self ^ o
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
        }
    )*};
}
integer!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! native {
    ($float:literal: $($t:ident)*) => {$(
        impl Element for $t {
            type Wide = $t;
            const FLOAT: bool = $float;
            #[inline(always)]
            fn widen(self) -> $t {
                self
            }
            #[inline(always)]
            fn narrow(wide: $t) -> $t {
                wide
            }
        }
    )*};
}
native!(true: f32 f64);
native!(false: i8 i16 i32 i64 u8 u16 u32 u64);

impl Element for f16 {
    type Wide = f32;
    const FLOAT: bool = true;

    #[inline(always)]
    fn widen(self) -> f32 {
        widen_f16(self)
    }

    #[inline(always)]
    fn narrow(wide: f32) -> f16 {
        to_f16(wide)
    }

    fn map1(acc: &mut [Self], f: impl Fn(f32) -> f32 + Copy) {
        let one = |acc: &mut [Self]| acc.iter_mut().for_each(|x| *x = Self::narrow(f(x.widen())));
        match Arch::new() {
            #[cfg(target_arch = "x86_64")]
            Arch::V4(simd) => simd.vectorize(|| {
                let (blocks, rest) = acc.as_chunks_mut();
                for x in blocks {
                    let wide = widen_block(simd, x);
                    *x = narrow_block(simd, std::array::from_fn(|i| f(wide[i])));
                }
                one(rest);
            }),
            arch => arch.dispatch(|| one(acc)),
        }
    }

    fn map2(acc: &mut [Self], b: &[Self], f: impl Fn(f32, f32) -> f32 + Copy) {
        let one = |acc: &mut [Self], b: &[Self]| {
            acc.iter_mut().zip(b).for_each(|(x, &y)| *x = Self::narrow(f(x.widen(), y.widen())));
        };
        match Arch::new() {
            #[cfg(target_arch = "x86_64")]
            Arch::V4(simd) => simd.vectorize(|| {
                let ((blocks, rest), (others, other_rest)) = (acc.as_chunks_mut(), b.as_chunks());
                for (x, y) in blocks.iter_mut().zip(others) {
                    let (a, b) = (widen_block(simd, x), widen_block(simd, y));
                    *x = narrow_block(simd, std::array::from_fn(|i| f(a[i], b[i])));
                }
                one(rest, other_rest);
            }),
            arch => arch.dispatch(|| one(acc, b)),
        }
    }
}

/// Sixteen `f16` to `f32` by the processor's conversion. It makes NaN quiet, as [`to_f16`] does.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn widen_block(simd: pulp::x86::V4, x: &[f16; 16]) -> [f32; 16] {
    pulp::cast(simd.avx512f._mm512_cvtph_ps(pulp::cast(*x)))
}

/// Sixteen `f32` to `f16`, to nearest even.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn narrow_block(simd: pulp::x86::V4, x: [f32; 16]) -> [f16; 16] {
    pulp::cast(simd.avx512f._mm512_cvtps_ph::<0>(pulp::cast(x)))
}

/// A word holds two numbers, each of which is the upper half of an `f32`: nothing moves from lane to lane.
impl Element for bf16 {
    type Wide = f32;
    const FLOAT: bool = true;

    #[inline(always)]
    fn widen(self) -> f32 {
        widen_bf16(self)
    }

    #[inline(always)]
    fn narrow(wide: f32) -> bf16 {
        to_bf16(wide)
    }

    fn map1(acc: &mut [Self], f: impl Fn(f32) -> f32 + Copy) {
        Arch::new().dispatch(|| {
            let (words, rest) = acc.as_chunks_mut();
            words.iter_mut().for_each(|x| {
                let [upper, lower] = halves(x);
                *x = word(f(upper), f(lower));
            });
            rest.iter_mut().for_each(|x| *x = Self::narrow(f(x.widen())));
        });
    }

    fn map2(acc: &mut [Self], b: &[Self], f: impl Fn(f32, f32) -> f32 + Copy) {
        Arch::new().dispatch(|| {
            let ((words, rest), (others, other_rest)) = (acc.as_chunks_mut(), b.as_chunks());
            words.iter_mut().zip(others).for_each(|(x, y)| {
                let ([upper, lower], [above, below]) = (halves(x), halves(y));
                *x = word(f(upper, above), f(lower, below));
            });
            rest.iter_mut().zip(other_rest).for_each(|(x, &y)| *x = Self::narrow(f(x.widen(), y.widen())));
        });
    }
}

/// The numbers in the upper and the lower half of a word.
#[inline(always)]
fn halves(word: &[bf16; 2]) -> [f32; 2] {
    let word: u32 = bytemuck::cast(*word);
    [f32::from_bits(word & 0xffff_0000), f32::from_bits(word << 16)]
}

/// The reverse, to nearest even.
#[inline(always)]
fn word(upper: f32, lower: f32) -> [bf16; 2] {
    bytemuck::cast(rounded_bf16(upper) & 0xffff_0000 | rounded_bf16(lower) >> 16)
}

/// `$body` with `$t` standing for the Rust type of a dtype; `$other` for the dtypes that are not listed.
macro_rules! arms {
    ($dtype:expr, $t:ident => $body:expr; $($name:ident: $rust:ty),+ $(; $other:expr)?) => {
        match $dtype {
            $(ahbm_program::Dtype::$name => {
                type $t = $rust;
                $body
            })+
            $(_ => $other,)?
        }
    };
}

/// Runs an expression with `$t` standing for the Rust type of a dtype.
macro_rules! dispatch {
    ($dtype:expr, $t:ident => $body:expr) => {
        crate::data::element::arms!($dtype, $t => $body;
            F16: half::f16, BF16: half::bf16, F32: f32, F64: f64,
            I8: i8, I16: i16, I32: i32, I64: i64, U8: u8, U16: u16, U32: u32, U64: u64)
    };
}

/// [`dispatch`] over the floating-point types; `$other` for the integers.
macro_rules! dispatch_float {
    ($dtype:expr, $t:ident => $body:expr, $other:expr) => {
        crate::data::element::arms!($dtype, $t => $body; F16: half::f16, BF16: half::bf16, F32: f32, F64: f64; $other)
    };
}
pub(super) use {arms, dispatch, dispatch_float};

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number with numbers of every kind: many at once give the bits of one at a time.
    fn many_as_one<T: Element<Wide = f32>>(of_bits: fn(u16) -> T, bits: fn(T) -> u16, others: &[u16]) {
        let all: Vec<T> = (0..=u16::MAX).map(of_bits).collect();
        let same = |a: &[T], b: &[T]| a.iter().zip(b).all(|(&a, &b)| bits(a) == bits(b));
        for &other in others {
            let (mut many, mut one) = (all.clone(), all.clone());
            T::map2(&mut many, &vec![of_bits(other); all.len()], Number::add);
            one.iter_mut().for_each(|x| *x = T::narrow(x.widen() + of_bits(other).widen()));
            assert!(same(&many, &one), "{other:#06x}");
        }
        // An odd number of them.
        let (mut many, mut one) = (all[1..].to_vec(), all[1..].to_vec());
        T::map1(&mut many, |x| x / 3.0);
        one.iter_mut().for_each(|x| *x = T::narrow(x.widen() / 3.0));
        assert!(same(&many, &one));
    }

    #[test]
    fn many_f16_round_as_one_does() {
        let others = [0, 0x8000, 1, 0x03ff, 0x0400, 0x1001, 0x3555, 0x3c00, 0xbbff, 0x7bff, 0xfbff, 0x7c00, 0xfc00];
        many_as_one(f16::from_bits, f16::to_bits, &others);
    }

    #[test]
    fn many_bf16_round_as_one_does() {
        let others = [0, 0x8000, 1, 0x007f, 0x0080, 0x3eab, 0x3f80, 0xbf7f, 0x7f7f, 0xff7f, 0x7f80, 0xff80];
        many_as_one(bf16::from_bits, bf16::to_bits, &others);
    }
}
