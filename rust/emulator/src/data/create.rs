//! Values from nothing or from another dtype: `full`, `arange`, `cast`.

use super::element::dispatch;
use super::elementwise::element;
use super::error::Fault;
use super::round::Rounded;
use super::value::Value;
use ahbm_program::{Dtype, Scalar, Tile};
use half::{f16, slice::HalfFloatSliceExt};

/// Every element equal to `s`, rounded once.
pub(super) fn fill(s: Scalar, tile: &Tile) -> Result<Value<'_>, Fault> {
    let mut out = Value::zeros(tile)?;
    dispatch!(tile.dtype, T => out.view_mut::<T>().fill(element(s)));
    Ok(out)
}

/// `start + i`, each element rounded once on its own, so errors do not add up.
pub(super) fn arange(start: Scalar, tile: &Tile) -> Result<Value<'_>, Fault> {
    let mut out = Value::zeros(tile)?;
    dispatch!(tile.dtype, T => {
        out.view_mut::<T>().iter_mut().enumerate().for_each(|(i, x)| {
            *x = match start {
                Scalar::Float(bits) => T::round_f64(f64::from_bits(bits) + i as f64),
                Scalar::Int(n) => T::round_int(n.wrapping_add(i as i128)),
            };
        });
    });
    Ok(out)
}

/// NumPy's `astype`: floats round to nearest even, integers wrap among themselves. Floats to integers
/// truncate; where NumPy leaves the result open, they saturate and NaN becomes 0.
pub(super) fn cast<'p>(a: Value<'p>, tile: &'p Tile) -> Result<Value<'p>, Fault> {
    if a.elements() as u64 != tile.elements() {
        return Err(Fault::Operand { found: a.tile.clone(), expected: tile.clone() });
    }
    if a.dtype() == tile.dtype {
        return Ok(a.reshaped(tile));
    }
    let mut out = Value::zeros(tile)?;
    match (a.dtype(), tile.dtype) {
        (Dtype::F16, Dtype::F32) => a.view::<f16>().convert_to_f32_slice(out.view_mut()),
        (Dtype::F32, Dtype::F16) => out.view_mut::<f16>().convert_from_f32_slice(a.view()),
        (from, to) => dispatch!(from, S => dispatch!(to, T => {
            out.view_mut::<T>().iter_mut().zip(a.view::<S>()).for_each(|(y, x)| *y = convert(*x));
        })),
    }
    Ok(out)
}

#[inline(always)]
fn convert<S: Rounded, T: Rounded>(x: S) -> T {
    match x.to_int() {
        Some(n) => T::round_int(n),
        None => T::round_f64(x.to_f64()),
    }
}
