//! Elements: the dtypes as Rust types, with the arithmetic each is computed in.
//!
//! Floats of two bytes and of one are computed in `f32` and rounded once per operation. All other types are computed natively. Loops
//! over elements that do not depend on each other are free of branches and run on the widest vectors of the processor,
//! which changes no bit.

use super::float8::{F8E4M3, F8E5M2};
use super::round::{rounded_bf16, to_bf16, to_f16, widen_bf16, widen_f16, word};
use super::vector::{BLOCK, Convert, Halves, halves, widest};
use half::{bf16, f16};

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
        widest(|| acc.iter_mut().for_each(|x| *x = Self::narrow(f(x.widen()))));
    }

    /// `acc[i] = f(acc[i], b[i])`.
    fn map2(acc: &mut [Self], b: &[Self], f: impl Fn(Self::Wide, Self::Wide) -> Self::Wide + Copy) {
        widest(|| acc.iter_mut().zip(b).for_each(|(x, &y)| *x = Self::narrow(f(x.widen(), y.widen()))));
    }

    /// `acc[i] = f(acc[i], a[i])`.
    fn fold_rows(acc: &mut [Self::Wide], a: &[Self], f: impl Fn(Self::Wide, Self::Wide) -> Self::Wide) {
        widest(|| acc.iter_mut().zip(a).for_each(|(acc, x)| *acc = f(*acc, x.widen())));
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

    /// The larger, NaN if either is NaN, and +0 rather than -0 (`maximum` of IEEE 754-2019): the order of two does not
    /// matter.
    #[inline(always)]
    fn max(self, o: Self) -> Self {
        if self >= o || self.is_nan() { self } else { o }
    }

    /// The smaller, NaN if either is NaN, and -0 rather than +0 (`minimum` of IEEE 754-2019).
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
            #[inline(always)]
            fn max(self, o: Self) -> Self {
                // Equal numbers have equal bits but for the sign of zero.
                let equal = Self::from_bits(self.to_bits() & o.to_bits());
                if self == o {
                    equal
                } else if self > o || self.is_nan() {
                    self
                } else {
                    o
                }
            }
            #[inline(always)]
            fn min(self, o: Self) -> Self {
                let equal = Self::from_bits(self.to_bits() | o.to_bits());
                if self == o {
                    equal
                } else if self < o || self.is_nan() {
                    self
                } else {
                    o
                }
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
        halves(Map1(acc, f));
    }

    fn map2(acc: &mut [Self], b: &[Self], f: impl Fn(f32, f32) -> f32 + Copy) {
        halves(Map2(acc, b, f));
    }

    fn fold_rows(acc: &mut [f32], a: &[Self], f: impl Fn(f32, f32) -> f32) {
        halves(FoldRows(acc, a, f));
    }
}

struct Map1<'a, F>(&'a mut [f16], F);

impl<F: Fn(f32) -> f32> Halves for Map1<'_, F> {
    #[inline(always)]
    fn run(self, convert: impl Convert) {
        let (blocks, rest) = self.0.as_chunks_mut();
        for x in blocks {
            let mut wide = convert.widen(x);
            for x in &mut wide {
                *x = self.1(*x);
            }
            *x = convert.narrow(wide);
        }
        for x in rest {
            *x = f16::narrow(self.1(x.widen()));
        }
    }
}

struct Map2<'a, F>(&'a mut [f16], &'a [f16], F);

impl<F: Fn(f32, f32) -> f32> Halves for Map2<'_, F> {
    #[inline(always)]
    fn run(self, convert: impl Convert) {
        let ((blocks, rest), (others, other_rest)) = (self.0.as_chunks_mut(), self.1.as_chunks());
        for (x, y) in blocks.iter_mut().zip(others) {
            let (mut wide, other) = (convert.widen(x), convert.widen(y));
            for (x, y) in wide.iter_mut().zip(other) {
                *x = self.2(*x, y);
            }
            *x = convert.narrow(wide);
        }
        for (x, y) in rest.iter_mut().zip(other_rest) {
            *x = f16::narrow(self.2(x.widen(), y.widen()));
        }
    }
}

struct FoldRows<'a, F>(&'a mut [f32], &'a [f16], F);

impl<F: Fn(f32, f32) -> f32> Halves for FoldRows<'_, F> {
    #[inline(always)]
    fn run(self, convert: impl Convert) {
        let ((blocks, rest), (others, other_rest)) = (self.0.as_chunks_mut(), self.1.as_chunks());
        for (acc, x) in blocks.iter_mut().zip(others) {
            let acc: &mut [f32; BLOCK] = acc;
            for (acc, x) in acc.iter_mut().zip(convert.widen(x)) {
                *acc = self.2(*acc, x);
            }
        }
        for (acc, x) in rest.iter_mut().zip(other_rest) {
            *acc = self.2(*acc, x.widen());
        }
    }
}

macro_rules! float8 {
    ($($t:ident)*) => {$(
        impl Element for $t {
            type Wide = f32;
            const FLOAT: bool = true;
            #[inline(always)]
            fn widen(self) -> f32 {
                self.to_f32()
            }
            #[inline(always)]
            fn narrow(wide: f32) -> $t {
                <$t>::from_f32(wide)
            }
        }
    )*};
}
float8!(F8E4M3 F8E5M2);

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
        halves(MapWords1(acc, f));
    }

    fn map2(acc: &mut [Self], b: &[Self], f: impl Fn(f32, f32) -> f32 + Copy) {
        halves(MapWords2(acc, b, f));
    }
}

struct MapWords1<'a, F>(&'a mut [bf16], F);

impl<F: Fn(f32) -> f32> Halves for MapWords1<'_, F> {
    #[inline(always)]
    fn run(self, convert: impl Convert) {
        let (blocks, rest) = self.0.as_chunks_mut();
        for x in blocks {
            let mut wide = widen_words(x);
            let [upper, lower] = &mut wide;
            for (a, b) in upper.iter_mut().zip(lower) {
                (*a, *b) = (self.1(*a), self.1(*b));
            }
            *x = narrow_words(convert, wide);
        }
        for x in rest {
            *x = bf16::narrow(self.1(x.widen()));
        }
    }
}

struct MapWords2<'a, F>(&'a mut [bf16], &'a [bf16], F);

impl<F: Fn(f32, f32) -> f32> Halves for MapWords2<'_, F> {
    #[inline(always)]
    fn run(self, convert: impl Convert) {
        let ((blocks, rest), (others, other_rest)) = (self.0.as_chunks_mut(), self.1.as_chunks());
        for (x, y) in blocks.iter_mut().zip(others) {
            let (mut wide, other) = (widen_words(x), widen_words(y));
            for at in 0..BLOCK {
                wide[0][at] = self.2(wide[0][at], other[0][at]);
                wide[1][at] = self.2(wide[1][at], other[1][at]);
            }
            *x = narrow_words(convert, wide);
        }
        for (x, y) in rest.iter_mut().zip(other_rest) {
            *x = bf16::narrow(self.2(x.widen(), y.widen()));
        }
    }
}

/// The numbers in the upper and in the lower halves of [`BLOCK`] words.
type Words = [[f32; BLOCK]; 2];

#[inline(always)]
fn widen_words(x: &[bf16; 2 * BLOCK]) -> Words {
    let words: [u32; BLOCK] = bytemuck::cast(*x);
    let mut wide = [[0.0; BLOCK]; 2];
    for at in 0..BLOCK {
        wide[0][at] = f32::from_bits(words[at] & 0xffff_0000);
        wide[1][at] = f32::from_bits(words[at] << 16);
    }
    wide
}

/// The reverse, to nearest even. Few blocks have NaN, which takes half as long again to look after.
#[inline(always)]
fn narrow_words(convert: impl Convert, [upper, lower]: Words) -> [bf16; 2 * BLOCK] {
    bytemuck::cast(convert.words(upper, lower).unwrap_or_else(
        #[inline(always)]
        || std::array::from_fn(|at| word(rounded_bf16(upper[at]), rounded_bf16(lower[at]))),
    ))
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
            F8E4M3: crate::data::float8::F8E4M3, F8E5M2: crate::data::float8::F8E5M2,
            I8: i8, I16: i16, I32: i32, I64: i64, U8: u8, U16: u16, U32: u32, U64: u64)
    };
}

/// [`dispatch`] over the floating-point types; `$other` for the integers.
macro_rules! dispatch_float {
    ($dtype:expr, $t:ident => $body:expr, $other:expr) => {
        crate::data::element::arms!($dtype, $t => $body;
            F16: half::f16, BF16: half::bf16, F32: f32, F64: f64,
            F8E4M3: crate::data::float8::F8E4M3, F8E5M2: crate::data::float8::F8E5M2; $other)
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
