//! Dtypes and tiles: the shape and element type of every value.

use std::fmt;

/// Element types. `F8E4M3` has no infinity: it is the `e4m3fn` of torch and ONNX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Dtype {
    F16,
    BF16,
    F32,
    F64,
    F8E4M3,
    F8E5M2,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
}

impl Dtype {
    /// Every dtype.
    pub const ALL: [Dtype; 14] = [
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
        Self::F8E4M3,
        Self::F8E5M2,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
    ];

    /// Size of one element in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::F8E4M3 | Self::F8E5M2 | Self::I8 | Self::U8 => 1,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// The kernel-side name, e.g. `f16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F8E4M3 => "f8e4m3",
            Self::F8E5M2 => "f8e5m2",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
        }
    }

    /// Parses a kernel-side name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }

    /// True for the floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64 | Self::F8E4M3 | Self::F8E5M2)
    }

    /// Whether every value of `other` survives a conversion to this type and back. Integers wrap around, so those of one
    /// size hold each other.
    pub const fn holds(self, other: Self) -> bool {
        let ((digits, exponent), (others, other_exponent)) = (self.digits(), other.digits());
        match (self.is_float(), other.is_float()) {
            (true, true) => digits >= others && exponent >= other_exponent,
            (true, false) => digits >= others,
            (false, true) => false,
            (false, false) => self.bytes() >= other.bytes(),
        }
    }

    /// Bits of the magnitudes of which all are exact, and bits of the exponent.
    const fn digits(self) -> (u64, u32) {
        match self {
            Self::F16 => (11, 5),
            Self::BF16 => (8, 8),
            Self::F32 => (24, 8),
            Self::F64 => (53, 11),
            Self::F8E4M3 => (4, 4),
            Self::F8E5M2 => (3, 5),
            Self::I8 | Self::I16 | Self::I32 | Self::I64 => (8 * self.bytes() - 1, 0),
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => (8 * self.bytes(), 0),
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Shape and dtype of a value. Row-major, dense.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Element type.
    pub dtype: Dtype,
    /// Extents; empty for a scalar.
    pub shape: Box<[u64]>,
}

impl Tile {
    /// A tile of the given shape.
    pub fn new(dtype: Dtype, shape: &[u64]) -> Self {
        Self { dtype, shape: shape.into() }
    }

    /// Number of elements; saturates instead of wrapping.
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1u64, |n, &d| n.saturating_mul(d))
    }

    /// Number of bytes; saturates instead of wrapping.
    pub fn bytes(&self) -> u64 {
        self.elements().saturating_mul(self.dtype.bytes())
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, d) in self.shape.iter().enumerate() {
            write!(f, "{}{d}", if i == 0 { "" } else { "x" })?;
        }
        f.write_str("]")
    }
}
