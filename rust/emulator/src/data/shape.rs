//! NumPy broadcasting.

use super::element::dispatch;
use super::error::Fault;
use super::value::Value;
use ahbm_program::Tile;

/// Refuses an operand of another dtype than the operation's.
pub(super) fn same_dtype(value: &Value<'_>, tile: &Tile) -> Result<(), Fault> {
    if value.dtype() == tile.dtype {
        return Ok(());
    }
    Err(Fault::Operand { found: value.tile.clone(), expected: tile.clone() })
}

/// The operand as the result's tile: unchanged when it has as many elements, repeated along missing
/// axes and axes of extent 1 otherwise.
pub(super) fn expand<'p>(value: Value<'p>, tile: &'p Tile) -> Result<Value<'p>, Fault> {
    same_dtype(&value, tile)?;
    if value.tile.bytes() == tile.bytes() {
        return Ok(value.reshaped(tile));
    }
    let mut out = Value::zeros(tile)?;
    dispatch!(tile.dtype, T => {
        let all: Vec<T> = gather(value.view(), &value.tile.shape, &tile.shape)
            .ok_or_else(|| Fault::Broadcast { found: value.tile.clone(), expected: tile.clone() })?;
        out.view_mut::<T>().copy_from_slice(&all);
    });
    Ok(out)
}

/// The elements of `from` repeated to the shape `to`; `None` when it does not broadcast.
pub(crate) fn gather<T: Copy>(from: &[T], shape: &[u64], to: &[u64]) -> Option<Vec<T>> {
    let total = to.iter().map(|&d| d as usize).product::<usize>();
    if from.len() == total {
        return Some(from.to_vec());
    }
    // Leading axes of extent 1 do not count.
    let shape = &shape[shape.len().saturating_sub(to.len()).min(shape.iter().take_while(|&&d| d == 1).count())..];
    let missing = to.len().checked_sub(shape.len())?;
    let mut strides = vec![0usize; to.len()];
    let mut step = 1;
    for (axis, &extent) in shape.iter().enumerate().rev() {
        if extent != 1 {
            if extent != to[missing + axis] {
                return None;
            }
            strides[missing + axis] = step;
        }
        step *= extent as usize;
    }
    let mut out = Vec::with_capacity(total);
    let mut index = vec![0u64; to.len()];
    let mut at = 0;
    for _ in 0..total {
        out.push(from[at]);
        for axis in (0..to.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < to[axis] {
                break;
            }
            at -= strides[axis] * to[axis] as usize;
            index[axis] = 0;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::gather;

    #[test]
    fn broadcasts_like_numpy() {
        assert_eq!(gather(&[1, 2], &[2], &[2, 2]), Some(vec![1, 2, 1, 2]));
        assert_eq!(gather(&[1, 2], &[2, 1], &[2, 3]), Some(vec![1, 1, 1, 2, 2, 2]));
        assert_eq!(gather(&[1, 2], &[1, 1, 2], &[2, 2]), Some(vec![1, 2, 1, 2]));
        assert_eq!(gather(&[7], &[], &[2, 1]), Some(vec![7, 7]));
        assert_eq!(gather(&[1, 2, 3], &[3], &[2]), None);
        assert_eq!(gather(&[1, 2, 3], &[3], &[2, 2]), None);
        assert_eq!(gather(&[1, 2, 3, 4, 5, 6], &[2, 3], &[3]), None);
        assert_eq!(gather(&[7], &[1], &[0]), Some(vec![]));
    }
}
