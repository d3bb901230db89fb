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

/// What class of kernels it is of: what its dimensions mean. Each has the names of its dimensions; those that are not
/// given are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// Operations and bytes are all that is known: no dimensions.
    #[default]
    Plain,
    /// A function of each element: elements, how many times the instructions of an error function an element takes.
    Pointwise,
    /// A function of each element whose operands differ in type: elements.
    Cast,
    /// A function of each element with an operand or a result that is not dense in the order of the other: elements, 1 if
    /// their quickest axes differ.
    Strided,
    /// A function of each element with a small operand that is repeated: elements.
    Broadcast,
    /// Writes a constant: elements.
    Fill,
    /// Writes random numbers: elements.
    Random,
    /// Reduces the middle: outer, reduced, inner.
    Reduce,
    /// A norm of each row: rows, columns.
    Norm,
    /// The gradient of the input of such a norm: rows, columns.
    NormBackward,
    /// The gradient of the weights of such a norm: rows, columns.
    NormWeights,
    /// A norm of each channel over a batch: samples, channels, pixels, 1 if channels are last.
    BatchNorm,
    /// Its gradient: as [`Self::BatchNorm`].
    BatchNormBackward,
    /// Softmax of each row: rows, columns.
    Softmax,
    /// Its gradient: rows, columns.
    SoftmaxBackward,
    /// C = A B of matrices in rows: batch, m, n, k, 1 if A is transposed, 1 if B is transposed.
    Product,
    /// A convolution: samples, channels in, channels out, pixels in, pixels out, taps of the kernel, groups, pass (0
    /// forward, 1 gradient of the input, 2 of the weight), 1 if channels are last, stride.
    Convolution,
    /// Fused attention: batch, heads, queries, keys, head size, 1 if causal, backend (0 flash, 1 memory-efficient, 2
    /// cuDNN), heads of keys and values, 1 with dropout.
    Attention,
    /// Its gradient: as [`Self::Attention`].
    AttentionBackward,
    /// Reads rows by their numbers: rows, columns.
    Gather,
    /// Writes or adds rows by their numbers: rows, columns.
    Scatter,
    /// The gradient of a table of embeddings: indices, columns, rows of the table.
    EmbeddingBackward,
    /// One launch of a function of many tensors: tensors, elements.
    Foreach,
    /// Pooling: elements out, window, 1 if channels are last.
    Pool,
    /// Its gradient: as [`Self::Pool`].
    PoolBackward,
    /// A loss: rows, columns.
    Loss,
    /// Its gradient: rows, columns.
    LossBackward,
    /// Running sums of each row: rows, columns.
    Scan,
    /// Sorts each row: rows, columns.
    Sort,
}

impl Kind {
    /// Every class with its name in traces.
    const NAMES: [(Self, &str); 29] = [
        (Self::Plain, "plain"),
        (Self::Pointwise, "pointwise"),
        (Self::Cast, "cast"),
        (Self::Strided, "strided"),
        (Self::Broadcast, "broadcast"),
        (Self::Fill, "fill"),
        (Self::Random, "random"),
        (Self::Reduce, "reduce"),
        (Self::Norm, "norm"),
        (Self::NormBackward, "norm_backward"),
        (Self::NormWeights, "norm_weights"),
        (Self::BatchNorm, "batch_norm"),
        (Self::BatchNormBackward, "batch_norm_backward"),
        (Self::Softmax, "softmax"),
        (Self::SoftmaxBackward, "softmax_backward"),
        (Self::Product, "product"),
        (Self::Convolution, "convolution"),
        (Self::Attention, "attention"),
        (Self::AttentionBackward, "attention_backward"),
        (Self::Gather, "gather"),
        (Self::Scatter, "scatter"),
        (Self::EmbeddingBackward, "embedding_backward"),
        (Self::Foreach, "foreach"),
        (Self::Pool, "pool"),
        (Self::PoolBackward, "pool_backward"),
        (Self::Loss, "loss"),
        (Self::LossBackward, "loss_backward"),
        (Self::Scan, "scan"),
        (Self::Sort, "sort"),
    ];

    /// Every class.
    pub const ALL: [Self; Self::NAMES.len()] = {
        let mut all = [Self::Plain; Self::NAMES.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = Self::NAMES[at].0;
            at += 1;
        }
        all
    };

    /// The name in traces.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// By name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }
}

/// Dimensions that a kernel may have.
pub const DIMS: usize = 10;

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
    /// Its class, which says what the dimensions are.
    pub kind: Kind,
    /// Its dimensions, 0 where it has fewer.
    pub dims: [u32; DIMS],
}

impl Kernel {
    /// So many operations and bytes.
    pub const fn new(operations: u64, bytes: u64) -> Self {
        Self { operations, bytes, arithmetic: Arithmetic::Half, host: false, kind: Kind::Plain, dims: [0; DIMS] }
    }

    /// Whether it states neither operations nor bytes.
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
        for (at, known) in Kind::ALL.into_iter().enumerate() {
            assert_eq!((Kind::named(known.name()), known as usize), (Some(known), at));
        }
        assert_eq!(Kind::named("gemm"), None);
    }
}
