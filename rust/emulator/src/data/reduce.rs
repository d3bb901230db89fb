//! Reductions along an axis and softmax.

use super::element::{Element, Float, Number, dispatch, dispatch_float};
use super::error::Fault;
use super::shape::expand;
use super::value::Value;
use ahbm_program::{ReduceFn, Tile};

/// The shape of a reduction's result: the axis is gone; a scalar when all axes are reduced.
pub(super) fn reduced(tile: &Tile, axis: i8) -> Tile {
    let mut shape = tile.shape.to_vec();
    match usize::try_from(axis) {
        Ok(axis) if axis < shape.len() => drop(shape.remove(axis)),
        _ => shape.clear(),
    }
    Tile::new(tile.dtype, &shape)
}

/// Extents before, along and behind an axis.
fn split(tile: &Tile, axis: usize) -> (usize, usize, usize) {
    let product = |extents: &[u64]| extents.iter().map(|&d| d as usize).product();
    (product(&tile.shape[..axis]), tile.shape[axis] as usize, product(&tile.shape[axis + 1..]))
}

/// Reduces in index order. Floats of two bytes and of one accumulate in `f32` and round once at the end;
/// other dtypes accumulate natively. `max` and `min` propagate NaN.
pub(super) fn reduce<'p>(
    f: ReduceFn,
    axis: i8,
    a: Value<'p>,
    tile: &'p Tile,
    result: &'p Tile,
) -> Result<Value<'p>, Fault> {
    let a = expand(a, tile)?;
    let (outer, n, inner) = usize::try_from(axis).map_or((1, a.elements(), 1), |axis| split(tile, axis));
    let mut out = Value::zeros(result)?;
    if n == 0 && f != ReduceFn::Sum && out.elements() > 0 {
        return Err(Fault::extents(format!("{f:?} of no elements").to_lowercase()));
    }
    dispatch!(tile.dtype, T => {
        let (a, out): (&[T], &mut [T]) = (a.view(), out.view_mut());
        match f {
            ReduceFn::Sum => along(a, out, (outer, n, inner), Number::add),
            ReduceFn::Max => along(a, out, (outer, n, inner), Number::max),
            ReduceFn::Min => along(a, out, (outer, n, inner), Number::min),
        }
    });
    Ok(out)
}

fn along<T: Element>(
    a: &[T],
    out: &mut [T],
    (outer, n, inner): (usize, usize, usize),
    f: impl Fn(T::Wide, T::Wide) -> T::Wide,
) {
    // With no elements along the axis the result keeps its zeros.
    if n == 0 || inner == 0 {
        return;
    }
    if inner == 1 {
        let fold = |line: &[T]| T::fold(line[0].widen(), &line[1..], &f);
        out.iter_mut().zip(a.chunks_exact(n)).for_each(|(y, line)| *y = T::narrow(fold(line)));
        return;
    }
    let mut acc = vec![T::Wide::ZERO; inner];
    for o in 0..outer {
        let block = &a[o * n * inner..][..n * inner];
        acc.iter_mut().zip(block).for_each(|(acc, x)| *acc = x.widen());
        for row in block[inner..].chunks_exact(inner) {
            T::fold_rows(&mut acc, row, &f);
        }
        out[o * inner..][..inner].iter_mut().zip(&acc).for_each(|(y, &acc)| *y = T::narrow(acc));
    }
}

/// `exp(a - max) / sum(exp(a - max))` along an axis, negative axes counting from the end. Floats of
/// two bytes and of one are computed in `f32` throughout and rounded once.
pub(super) fn softmax<'p>(axis: i8, a: Value<'p>, tile: &'p Tile) -> Result<Value<'p>, Fault> {
    let mut acc = expand(a, tile)?;
    let axis = if axis < 0 { tile.shape.len() - usize::from(axis.unsigned_abs()) } else { axis as usize };
    let extents = split(tile, axis);
    dispatch_float!(
        tile.dtype,
        T => softmax_along::<T>(acc.view_mut(), extents),
        return Err(Fault::floats_only("softmax", tile))
    );
    Ok(acc)
}

fn softmax_along<T: Element>(a: &mut [T], (outer, n, inner): (usize, usize, usize))
where
    T::Wide: Float,
{
    let mut line = vec![T::Wide::ZERO; n];
    for start in (0..outer).flat_map(|o| (0..inner).map(move |i| o * n * inner + i)) {
        line.iter_mut().enumerate().for_each(|(k, x)| *x = a[start + k * inner].widen());
        let Some(max) = line.iter().copied().reduce(Number::max) else { return };
        line.iter_mut().for_each(|x| *x = x.sub(max).exp());
        let sum = line.iter().fold(T::Wide::ZERO, |sum, &x| sum.add(x));
        line.iter().enumerate().for_each(|(k, x)| a[start + k * inner] = T::narrow(x.div(sum)));
    }
}
