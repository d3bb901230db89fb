//! What a computation of a job does, whatever it takes.

/// The type that operations are done in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Arithmetic {
    /// Two bytes: f16, bf16.
    #[default]
    Half,
    /// Four bytes, in full precision.
    F32,
    /// Four bytes, multiplied in ten bits.
    Tf32,
    /// Eight bytes.
    F64,
    /// One byte: f8, i8.
    Byte,
}

impl Arithmetic {
    /// Every type.
    pub const ALL: [Self; 5] = [Self::Half, Self::F32, Self::Tf32, Self::F64, Self::Byte];

    /// The name in traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Half => "f16",
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::F64 => "f64",
            Self::Byte => "f8",
        }
    }

    /// By name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }
}

/// What a kernel does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Kernel {
    /// Arithmetic operations, 0 where unknown.
    pub operations: u64,
    /// The type that they are done in.
    pub arithmetic: Arithmetic,
    /// Bytes read and written, 0 where unknown.
    pub bytes: u64,
    /// It copies the bytes between the device and its host.
    pub host: bool,
}

impl Kernel {
    /// So many operations and bytes.
    pub const fn new(operations: u64, bytes: u64) -> Self {
        Self { operations, bytes, arithmetic: Arithmetic::Half, host: false }
    }

    /// Whether it states nothing.
    pub fn is_empty(&self) -> bool {
        (self.operations, self.bytes) == (0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_names_of_their_own() {
        for known in Arithmetic::ALL {
            assert_eq!(Arithmetic::named(known.name()), Some(known));
        }
        assert_eq!(Arithmetic::named("f128"), None);
    }
}
