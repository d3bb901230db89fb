//! Matrix product and transpose.

use super::element::{Number, dispatch};
use super::error::Fault;
use super::round::Rounded;
use super::shape::same_dtype;
use super::value::Value;
use ahbm_program::{Dtype, Tile};

/// The tile of a matrix product's result.
pub(super) fn product_tile(tile: &Tile) -> Tile {
    match *tile.shape {
        [m, _, n] => Tile::new(tile.dtype, &[m, n]),
        _ => tile.clone(),
    }
}

/// Row-major `[m, k] @ [k, n]`. Products are added in order of k, unfused: in `f64` when an operand or
/// the result is `f64`, in `f32` for the other floats, wrapping for integers; the sum is rounded once.
pub(super) fn dot<'p>(a: Value<'p>, b: Value<'p>, tile: &'p Tile, result: &'p Tile) -> Result<Value<'p>, Fault> {
    let [m, k, n] = *tile.shape else { return Err(Fault::extents(format!("matrix product of extents {tile}"))) };
    for (value, shape) in [(&a, [m, k]), (&b, [k, n])] {
        let expected = Tile::new(a.dtype(), &shape);
        if value.elements() as u64 != expected.elements() || value.dtype() != a.dtype() {
            return Err(Fault::Operand { found: value.tile.clone(), expected });
        }
    }
    let mut out = Value::zeros(result)?;
    let size = (m as usize, k as usize, n as usize);
    match (a.dtype(), tile.dtype) {
        (Dtype::F64, to) | (_, to @ Dtype::F64) if a.dtype().is_float() && to.is_float() => {
            let sums = product(&numbers(&a, |x| x), &numbers(&b, |x| x), size);
            dispatch!(tile.dtype, T => store(out.view_mut::<T>(), &sums, T::round_f64));
        }
        (from, to) if from.is_float() && to.is_float() => {
            let sums = product(&numbers(&a, |x| x as f32), &numbers(&b, |x| x as f32), size);
            dispatch!(tile.dtype, T => store(out.view_mut::<T>(), &sums, |x| T::round_f64(x.into())));
        }
        (from, to) if !from.is_float() && !to.is_float() => {
            let sums = product(&integers(&a), &integers(&b), size);
            dispatch!(tile.dtype, T => store(out.view_mut::<T>(), &sums, |x| T::round_int(x.into())));
        }
        _ => return Err(Fault::Operand { found: a.tile.clone(), expected: tile.clone() }),
    }
    Ok(out)
}

fn numbers<A>(value: &Value<'_>, convert: impl Fn(f64) -> A) -> Vec<A> {
    dispatch!(value.dtype(), T => value.view::<T>().iter().map(|x| convert(x.to_f64())).collect())
}

/// The low 64 bits, which decide the low bits of any wrapping product sum.
fn integers(value: &Value<'_>) -> Vec<i64> {
    dispatch!(value.dtype(), T => value.view::<T>().iter().map(|x| x.to_int().unwrap_or(0) as i64).collect())
}

/// Rows of `b` are added to rows of the result, which keeps the order of k and lets rows be vectors.
fn product<A: Number>(a: &[A], b: &[A], (m, k, n): (usize, usize, usize)) -> Vec<A> {
    let mut out = vec![A::ZERO; m * n];
    if n == 0 {
        return out;
    }
    for (i, row) in out.chunks_exact_mut(n).enumerate() {
        for (x, b) in a[i * k..][..k].iter().zip(b.chunks_exact(n)) {
            row.iter_mut().zip(b).for_each(|(y, &b)| *y = y.add(x.mul(b)));
        }
    }
    out
}

fn store<A: Copy, T>(out: &mut [T], sums: &[A], round: impl Fn(A) -> T) {
    out.iter_mut().zip(sums).for_each(|(y, &x)| *y = round(x));
}

/// Swaps the axes of a matrix.
pub(super) fn transpose<'p>(a: Value<'p>, tile: &'p Tile) -> Result<Value<'p>, Fault> {
    same_dtype(&a, tile)?;
    let [rows, columns] = *tile.shape else { return Err(Fault::extents(format!("transpose of {tile}"))) };
    if a.tile.bytes() != tile.bytes() {
        return Err(Fault::Operand { found: a.tile.clone(), expected: Tile::new(tile.dtype, &[columns, rows]) });
    }
    let (rows, columns) = (rows as usize, columns as usize);
    let mut out = Value::zeros(tile)?;
    dispatch!(tile.dtype, T => {
        let (from, to): (&[T], &mut [T]) = (a.view(), out.view_mut());
        for i in 0..rows {
            for j in 0..columns {
                to[i * columns + j] = from[j * rows + i];
            }
        }
    });
    Ok(out)
}
