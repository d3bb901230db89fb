//! Arguments of `tl` calls: parsing and checking.

use ahbm_findings::Diagnostic;
use ahbm_program::{BinaryFn, Dtype, Scalar, Tile};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyTuple};

/// Why a call cannot be recorded; boxed to keep the good path small.
pub(crate) type Fault = Box<Diagnostic>;

/// Dimensions a tile may have.
pub(crate) const MAX_RANK: usize = 8;

/// Elements a tile may have: far above any PE memory, far below what could overflow byte arithmetic.
pub(crate) const MAX_ELEMENTS: u64 = 1 << 40;

/// Bytes of a value that a kernel makes, of nothing or of smaller ones. What it reads, it may also make as large.
pub(crate) const MADE_BYTES: u64 = 1 << 30;

/// A fault without site and hint.
#[cold]
pub(crate) fn fault(code: &'static str, message: impl Into<String>) -> Diagnostic {
    Diagnostic::new(code, message)
}

/// A checked shape.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    extents: [u64; MAX_RANK],
    rank: usize,
}

impl Shape {
    pub(crate) fn extents(&self) -> &[u64] {
        &self.extents[..self.rank]
    }

    /// From a positive int or a sequence of them.
    pub(crate) fn parse(shape: Option<&Bound<'_, PyAny>>) -> Result<Self, Fault> {
        let bad =
            |what: &Bound<'_, PyAny>| {
                Fault::from(fault("AHBM-K206", format!("{what} is not a shape")).hint(format!(
                    "a shape is a positive int or a tuple of 1 to {MAX_RANK} positive ints, e.g. (n_elem,)"
                )))
            };
        let Some(shape) = shape else {
            return Err(fault("AHBM-K206", "no shape given").hint("pass shape=, e.g. shape=(n_elem,)").into());
        };
        let mut this = Self { extents: [0; MAX_RANK], rank: 0 };
        let mut elements = 1u64;
        let mut push = |extent: &Bound<'_, PyAny>| -> Result<(), Fault> {
            let n: i64 = extent.extract().map_err(|_| bad(shape))?;
            if n < 0 || this.rank == MAX_RANK {
                return Err(bad(shape));
            }
            elements = elements.saturating_mul(n as u64);
            if elements > MAX_ELEMENTS {
                return Err(
                    fault("AHBM-B102", format!("a tile of shape {shape}: more than {MAX_ELEMENTS} elements")).into()
                );
            }
            this.extents[this.rank] = n as u64;
            this.rank += 1;
            Ok(())
        };
        if let Ok(tuple) = shape.cast::<PyTuple>() {
            for extent in tuple.iter_borrowed() {
                push(&extent)?;
            }
        } else if let Ok(items) = shape.try_iter() {
            for extent in items {
                push(&extent.map_err(|_| bad(shape))?)?;
            }
        } else {
            push(shape)?;
        }
        match (this.rank, elements) {
            (0, _) => Err(bad(shape)),
            (_, 0) => Err(empty(format!("a tile of shape {shape} has no elements"))),
            _ => Ok(this),
        }
    }
}

/// A tile of no elements: a count below the number of parts that a kernel makes of it.
#[cold]
pub(crate) fn empty(message: String) -> Fault {
    fault("AHBM-K220", message).hint("refuse the count with a ValueError in kernel_args, or leave the tile out").into()
}

/// A dtype by its kernel-side name.
pub(crate) fn dtype(name: &str) -> Result<Dtype, Fault> {
    Dtype::parse(name).ok_or_else(|| {
        let names = Dtype::ALL.map(Dtype::name);
        unknown("AHBM-K207", "dtype", name, &names)
    })
}

/// The name that is not one of `names`, with the closest as a hint.
#[cold]
pub(crate) fn unknown(code: &'static str, what: &str, name: &str, names: &[&str]) -> Fault {
    let closest = names.iter().min_by_key(|known| distance(known, name)).filter(|known| distance(known, name) <= 2);
    let list = names.join(", ");
    let hint =
        closest.map_or_else(|| format!("one of {list}"), |known| format!("did you mean \"{known}\"? One of {list}"));
    fault(code, format!("unknown {what} \"{name}\"")).hint(hint).into()
}

/// The fault for text that names no direction.
#[cold]
pub(crate) fn unknown_direction(text: &str) -> Fault {
    const NAMES: [&str; 10] =
        ["N", "S", "E", "W", "global_N", "global_S", "global_E", "global_W", "global_U", "global_D"];
    let mut fault = unknown("AHBM-K208", "direction", text, &NAMES);
    if let Some(hint) = &mut fault.hint {
        hint.push_str(", global_dim<k>, or a peer: sip<s>, cube<c>, pe<p>, sip<s>.cube<c>.pe<p>");
    }
    fault
}

/// Edit distance, case ignored.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(!x.eq_ignore_ascii_case(y));
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// A Python number, kept exactly.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    /// From an int, a float, or what converts to one (NumPy scalars). `None` for anything else: a handle refuses to.
    pub(crate) fn parse(value: &Bound<'_, PyAny>) -> Option<Self> {
        if value.is_exact_instance_of::<PyFloat>() {
            return value.extract().ok().map(Self::Float);
        }
        if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() {
            return value.extract().ok().map(Self::Int);
        }
        value.extract().map(Self::Int).or_else(|_| value.extract().map(Self::Float)).ok()
    }

    /// As a scalar next to values of `dtype`.
    pub(crate) fn scalar(self, dtype: Dtype) -> Result<Scalar, Fault> {
        match self {
            Self::Float(x) if dtype.is_float() => Ok(Scalar::float(x)),
            Self::Float(x) => Err(fault("AHBM-K209", format!("the float {x:?} beside values of {dtype}"))
                .hint("use an int, or convert the values with tl.cast")
                .into()),
            Self::Int(n) => {
                let bits = dtype.bytes() * 8;
                let fits = match dtype {
                    _ if dtype.is_float() => true,
                    Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => (0..1i128 << bits).contains(&n),
                    _ => (-(1i128 << (bits - 1))..1i128 << (bits - 1)).contains(&n),
                };
                if fits {
                    Ok(Scalar::Int(n))
                } else {
                    Err(fault("AHBM-K209", format!("{n} does not fit {dtype}")).hint("use a wider dtype").into())
                }
            }
        }
    }
}

/// The reduction operator of a collective.
pub(crate) fn reduction(name: &str) -> Result<BinaryFn, Fault> {
    Ok(match name {
        "sum" | "avg" => BinaryFn::Add,
        "prod" => BinaryFn::Mul,
        "min" => BinaryFn::Min,
        "max" => BinaryFn::Max,
        "band" => BinaryFn::And,
        "bor" => BinaryFn::Or,
        "bxor" => BinaryFn::Xor,
        _ => {
            let known = ["sum", "prod", "min", "max", "avg", "band", "bor", "bxor"];
            return Err(unknown("AHBM-K214", "op", name, &known));
        }
    })
}

/// Bits are those of integers.
pub(crate) fn integers_only(f: BinaryFn, tile: &Tile) -> Result<(), Fault> {
    if !(f.is_bitwise() && tile.dtype.is_float()) {
        return Ok(());
    }
    let name = format!("{f:?}").to_lowercase();
    Err(fault("AHBM-K209", format!("bitwise {name} of {tile}")).hint("integers only; convert with tl.cast").into())
}

/// The axis counted from the front; negative ones count from the back.
pub(crate) fn axis(axis: i64, tile: &Tile) -> Result<i8, Fault> {
    let rank = tile.shape.len() as i64;
    let front = if axis < 0 { axis + rank } else { axis };
    if (0..rank).contains(&front) {
        return Ok(front as i8);
    }
    Err(fault("AHBM-K214", format!("axis {axis} of a value of shape {}", shape_text(tile)))
        .hint(if rank == 0 { "a scalar has no axes".into() } else { format!("axes go from {} to {}", -rank, rank - 1) })
        .into())
}

/// The shape two operands broadcast to, by NumPy's rule.
pub(crate) fn broadcast(a: &Tile, b: &Tile) -> Result<Box<[u64]>, Fault> {
    let (long, short) = if a.shape.len() >= b.shape.len() { (a, b) } else { (b, a) };
    let mut shape = long.shape.clone();
    let lead = long.shape.len() - short.shape.len();
    for (extent, &other) in shape[lead..].iter_mut().zip(&short.shape) {
        if *extent == 1 {
            *extent = other;
        } else if other != 1 && other != *extent {
            return Err(fault("AHBM-K209", format!("{a} and {b} do not broadcast"))
                .hint("shapes must be equal, or 1 where they differ")
                .into());
        }
    }
    Ok(shape)
}

/// Operands of one operation have one dtype.
pub(crate) fn same_dtype(a: &Tile, b: &Tile) -> Result<(), Fault> {
    if a.dtype == b.dtype {
        return Ok(());
    }
    Err(fault("AHBM-K209", format!("operands {a} and {b} differ in dtype"))
        .hint("convert one of them with tl.cast")
        .into())
}

/// `(512,)`, as Python writes it.
pub(crate) fn shape_text(tile: &Tile) -> String {
    match &*tile.shape {
        [n] => format!("({n},)"),
        shape => format!("({})", shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}
