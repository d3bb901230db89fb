//! Element-wise operations, computed in place on their first operand.

use super::element::{Element, Float, Number, dispatch, dispatch_float};
use super::error::Fault;
use super::round::{Rounded, odd_sum};
use super::shape::{expand, gather, same_dtype};
use super::value::Value;
use ahbm_program::{BinaryFn, Dtype, Scalar, Tile, UnaryFn};

/// A scalar in the dtype of an operation, as the type the operation is computed in.
fn scalar<T: Element + Rounded>(s: Scalar) -> T::Wide {
    element::<T>(s).widen()
}

/// A scalar rounded once to a dtype: floats to nearest even, integers wrap.
pub(super) fn element<T: Rounded>(s: Scalar) -> T {
    match s {
        Scalar::Float(bits) => T::round_f64(f64::from_bits(bits)),
        Scalar::Int(n) => T::round_int(n),
    }
}

/// `f(a)`.
pub(super) fn unary<'p>(f: UnaryFn, a: Value<'p>, tile: &'p Tile) -> Result<Value<'p>, Fault> {
    let mut acc = expand(a, tile)?;
    if f == UnaryFn::Neg {
        dispatch!(tile.dtype, T => T::map1(acc.view_mut(), Number::neg));
        return Ok(acc);
    }
    dispatch_float!(tile.dtype, T => match f {
        UnaryFn::Exp => T::map1(acc.view_mut(), Float::exp),
        UnaryFn::Log => T::map1(acc.view_mut(), Float::log),
        UnaryFn::Sqrt | UnaryFn::Neg => T::map1(acc.view_mut(), Float::sqrt),
    }, return Err(Fault::floats_only(f, tile)));
    Ok(acc)
}

/// Expands to one loop per function, so that each is vectorised on its own.
macro_rules! by_function {
    ($f:expr, $g:ident => $run:expr) => {
        match $f {
            BinaryFn::Add => {
                let $g = |x, y| Number::add(x, y);
                $run
            }
            BinaryFn::Sub => {
                let $g = |x, y| Number::sub(x, y);
                $run
            }
            BinaryFn::Mul => {
                let $g = |x, y| Number::mul(x, y);
                $run
            }
            BinaryFn::Div => {
                let $g = |x, y| Number::div(x, y);
                $run
            }
            BinaryFn::Max => {
                let $g = |x, y| Number::max(x, y);
                $run
            }
            BinaryFn::Min => {
                let $g = |x, y| Number::min(x, y);
                $run
            }
            BinaryFn::Lt => {
                let $g = |x, y| Number::truth(x < y);
                $run
            }
            BinaryFn::Le => {
                let $g = |x, y| Number::truth(x <= y);
                $run
            }
            BinaryFn::Gt => {
                let $g = |x, y| Number::truth(x > y);
                $run
            }
            BinaryFn::Ge => {
                let $g = |x, y| Number::truth(x >= y);
                $run
            }
            BinaryFn::Eq => {
                let $g = |x, y| Number::truth(x == y);
                $run
            }
            BinaryFn::Ne => {
                let $g = |x, y| Number::truth(x != y);
                $run
            }
            BinaryFn::And => {
                let $g = |x, y| Number::and(x, y);
                $run
            }
            BinaryFn::Or => {
                let $g = |x, y| Number::or(x, y);
                $run
            }
            BinaryFn::Xor => {
                let $g = |x, y| Number::xor(x, y);
                $run
            }
        }
    };
}

/// `f(a, b)` with NumPy broadcasting.
pub(super) fn binary<'p>(f: BinaryFn, a: Value<'p>, b: Value<'p>, tile: &'p Tile) -> Result<Value<'p>, Fault> {
    same_dtype(&b, tile)?;
    defined(f, tile)?;
    let mut acc = expand(a, tile)?;
    if b.elements() == 1 && acc.elements() != 1 {
        dispatch!(tile.dtype, T => with_scalar::<T>(f, false, acc.view_mut(), b.view::<T>()[0].widen())?);
        return Ok(acc);
    }
    let b = expand(b, tile)?;
    dispatch!(tile.dtype, T => divisors::<T>(f, b.view())?);
    in_place(f, tile.dtype, acc.view_mut(), b.view());
    Ok(acc)
}

/// `acc[i] = f(acc[i], b[i])` of as many elements of a dtype, for whose size both are aligned; `f` is defined on them.
pub(super) fn in_place(f: BinaryFn, dtype: Dtype, acc: &mut [u8], b: &[u8]) {
    dispatch!(dtype, T => {
        let (acc, b): (&mut [T], &[T]) = (bytemuck::cast_slice_mut(acc), bytemuck::cast_slice(b));
        by_function!(f, g => T::map2(acc, b, g))
    });
}

/// `acc[i] = f(acc[i], s)`, or `f(s, acc[i])` when `swapped`; as [`in_place`].
pub(super) fn scalar_in_place(f: BinaryFn, swapped: bool, dtype: Dtype, acc: &mut [u8], s: Scalar) {
    dispatch!(dtype, T => map_scalar::<T>(f, swapped, bytemuck::cast_slice_mut(acc), scalar::<T>(s)));
}

/// Whether no element of `T` can be the dividend of a division by zero; `divisor`: where it is the same for all.
pub(super) fn may_divide<T: Element + Rounded>(f: BinaryFn, divisor: Option<Scalar>) -> bool {
    let zero = || divisor.is_none_or(|s| T::narrow(scalar::<T>(s)).widen() == T::Wide::ZERO);
    f != BinaryFn::Div || T::FLOAT || !zero()
}

/// `f(a, s)`, or `f(s, a)` when `swapped`.
pub(super) fn binary_scalar<'p>(
    f: BinaryFn,
    swapped: bool,
    a: Value<'p>,
    s: Scalar,
    tile: &'p Tile,
) -> Result<Value<'p>, Fault> {
    defined(f, tile)?;
    let mut acc = expand(a, tile)?;
    dispatch!(tile.dtype, T => with_scalar::<T>(f, swapped, acc.view_mut(), scalar::<T>(s))?);
    Ok(acc)
}

fn with_scalar<T: Element>(f: BinaryFn, swapped: bool, acc: &mut [T], s: T::Wide) -> Result<(), Fault> {
    if swapped {
        divisors(f, acc)?;
    } else {
        let divisor = [T::narrow(s)];
        divisors(f, &divisor[..acc.len().min(1)])?;
    }
    map_scalar(f, swapped, acc, s);
    Ok(())
}

fn map_scalar<T: Element>(f: BinaryFn, swapped: bool, acc: &mut [T], s: T::Wide) {
    if swapped {
        by_function!(f, g => T::map1(acc, |x| g(s, x)));
    } else {
        by_function!(f, g => T::map1(acc, |x| g(x, s)));
    }
}

/// Refuses functions of bits on floating-point numbers.
fn defined(f: BinaryFn, tile: &Tile) -> Result<(), Fault> {
    let float = dispatch!(tile.dtype, T => T::FLOAT);
    if f.is_bitwise() && float {
        return Err(Fault::integers_only(f, tile));
    }
    Ok(())
}

/// Refuses integer division by zero; floats divide to infinity or NaN.
fn divisors<T: Element>(f: BinaryFn, b: &[T]) -> Result<(), Fault> {
    if f != BinaryFn::Div || T::FLOAT {
        return Ok(());
    }
    match b.iter().position(|x| x.widen() == T::Wide::ZERO) {
        Some(element) => Err(Fault::DivideByZero { element }),
        None => Ok(()),
    }
}

/// `a * b + c`, rounded once; integers wrap.
pub(super) fn fma<'p>(a: Value<'p>, b: Value<'p>, c: Value<'p>, tile: &'p Tile) -> Result<Value<'p>, Fault> {
    let mut acc = expand(a, tile)?;
    let (b, c) = (expand(b, tile)?, expand(c, tile)?);
    dispatch!(tile.dtype, T => {
        let operands = b.view::<T>().iter().zip(c.view::<T>());
        acc.view_mut::<T>().iter_mut().zip(operands).for_each(|(x, (&b, &c))| *x = T::fma(*x, b, c));
    });
    Ok(acc)
}

/// Multiply and add with one rounding.
trait Fma {
    fn fma(self, b: Self, c: Self) -> Self;
}

macro_rules! fma {
    // The product is exact in f64; the sum is rounded to odd there, so the last rounding is the only one.
    (narrow $($t:ty)*) => {$(
        impl Fma for $t {
            #[inline(always)]
            fn fma(self, b: Self, c: Self) -> Self {
                Rounded::round_f64(odd_sum(self.to_f64() * b.to_f64(), c.to_f64()))
            }
        }
    )*};
    (integer $($t:ty)*) => {$(
        impl Fma for $t {
            #[inline(always)]
            fn fma(self, b: Self, c: Self) -> Self {
                self.wrapping_mul(b).wrapping_add(c)
            }
        }
    )*};
}
fma!(narrow half::f16 half::bf16 f32 super::float8::F8E4M3 super::float8::F8E5M2);
fma!(integer i8 i16 i32 i64 u8 u16 u32 u64);

impl Fma for f64 {
    fn fma(self, b: Self, c: Self) -> Self {
        self.mul_add(b, c)
    }
}

/// `min(max(a, lo), hi)`; NaN stays NaN.
pub(super) fn clamp<'p>(a: Value<'p>, lo: Scalar, hi: Scalar, tile: &'p Tile) -> Result<Value<'p>, Fault> {
    let mut acc = expand(a, tile)?;
    dispatch!(tile.dtype, T => {
        let (lo, hi) = (scalar::<T>(lo), scalar::<T>(hi));
        T::map1(acc.view_mut(), |x| Number::min(Number::max(x, lo), hi));
    });
    Ok(acc)
}

/// `cond != 0 ? a : b`; the condition may have any dtype, NaN counts as true.
pub(super) fn select<'p>(cond: Value<'p>, a: Value<'p>, b: Value<'p>, tile: &'p Tile) -> Result<Value<'p>, Fault> {
    // The result's size is checked first, so the mask is bounded too.
    let mut acc = expand(a, tile)?;
    let b = expand(b, tile)?;
    let mask: Vec<bool> = dispatch!(cond.dtype(), T => {
        gather::<T>(cond.view(), &cond.tile.shape, &tile.shape)
            .ok_or_else(|| Fault::Broadcast { found: cond.tile.clone(), expected: tile.clone() })?
            .into_iter()
            .map(|x| x.widen() != <T as Element>::Wide::ZERO)
            .collect()
    });
    dispatch!(tile.dtype, T => {
        let from = mask.iter().zip(b.view::<T>());
        acc.view_mut::<T>().iter_mut().zip(from).for_each(|(x, (&keep, &b))| *x = if keep { *x } else { b });
    });
    Ok(acc)
}
