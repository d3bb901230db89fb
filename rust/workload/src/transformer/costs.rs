//! What the parts of a layer cost one rank, and how many parameters it holds.
//!
//! A multiplication and an addition are two operations. A product reads both operands and writes its result; a fused
//! attention (Dao et al., *FlashAttention*, 2022) reads queries, keys and values and writes its result, and computes the
//! scores again in the backward pass.

use super::Transformer;

/// Arithmetic operations and bytes of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cost {
    pub(super) operations: u64,
    pub(super) bytes: u64,
}

impl Cost {
    pub(super) fn times(self, n: u64) -> Self {
        Self { operations: self.operations * n, bytes: self.bytes * n }
    }
}

/// The half of a layer: a norm, a product that is cut by columns, what lies between, a product that is cut by rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) name: &'static str,
    pub(super) column: (&'static str, Cost),
    /// Name, cost, and cost of the backward pass.
    pub(super) middle: Option<(&'static str, Cost, Cost)>,
    pub(super) row: (&'static str, Cost),
    /// Which experts a token visits.
    pub(super) router: Option<Cost>,
    /// Elements of the activations of a tensor-parallel rank's part of the tokens.
    pub(super) share: u64,
}

/// Parameters of a rank: those that all data-parallel ranks have, and those of its experts.
pub(super) type Parameters = [u64; 2];

impl Transformer {
    /// Tokens of a micro-batch.
    pub(super) fn tokens(&self) -> u64 {
        self.micro_batch * self.sequence
    }

    /// Those of them that norms and messages of one rank treat.
    pub(super) fn shard(&self) -> u64 {
        if self.sequence_parallel { self.tokens() / self.tensor } else { self.tokens() }
    }

    /// Columns of the vocabulary of a rank.
    fn words(&self) -> u64 {
        self.vocabulary.div_ceil(self.tensor)
    }

    /// `copies` matrices of `k` rows and `n` columns, by which `m` rows in all are multiplied.
    fn product(&self, m: u64, k: u64, n: u64, copies: u64) -> Cost {
        Cost { operations: 2 * m * k * n, bytes: self.dtype.1 * (m * k + copies * k * n + m * n) }
    }

    /// Norm, residual and dropout of the rank's tokens: three arrays of memory.
    pub(super) fn norm(&self) -> Cost {
        let elements = self.shard() * self.hidden;
        Cost { operations: 8 * elements, bytes: 3 * self.dtype.1 * elements }
    }

    pub(super) fn attention(&self) -> Block {
        let (tokens, hidden, tensor) = (self.tokens(), self.hidden, self.tensor);
        let bytes = 4 * self.dtype.1 * tokens * hidden / tensor;
        // Two products of every token with every other, and five in the backward pass.
        let pairs = 2 * tokens * self.sequence * hidden / tensor;
        let core = Cost { operations: 2 * pairs, bytes };
        Block {
            name: "attention",
            column: ("qkv", self.product(tokens, hidden, 3 * hidden / tensor, 1)),
            middle: Some(("core", core, Cost { operations: 5 * pairs, bytes: 2 * bytes })),
            row: ("projection", self.product(tokens, hidden / tensor, hidden, 1)),
            router: None,
            share: self.shard() * hidden,
        }
    }

    pub(super) fn feed_forward(&self) -> Block {
        let (hidden, ffn) = (self.hidden, self.ffn / self.tensor);
        let (visits, held) = if self.experts > 0 { (self.top_k, self.experts / self.expert) } else { (1, 1) };
        let rows = self.tokens() * visits;
        Block {
            name: if self.experts > 0 { "experts" } else { "mlp" },
            column: ("up", self.product(rows, hidden, ffn, held)),
            middle: None,
            row: ("down", self.product(rows, ffn, hidden, held)),
            router: (self.experts > 0).then(|| self.product(self.shard(), hidden, self.experts, 1)),
            share: self.shard() * visits * hidden,
        }
    }

    /// Reads a row of the table for every token.
    pub(super) fn lookup(&self) -> Cost {
        let elements = self.tokens() * self.hidden;
        Cost { operations: elements, bytes: 2 * self.dtype.1 * elements }
    }

    pub(super) fn logits(&self) -> Cost {
        self.product(self.tokens(), self.hidden, self.words(), 1)
    }

    /// Exponentials of the logits and their sum.
    pub(super) fn softmax(&self) -> Cost {
        let elements = self.tokens() * self.words();
        Cost { operations: 4 * elements, bytes: 2 * self.dtype.1 * elements }
    }

    /// Adam (Kingma and Ba, 2015) in mixed precision: 12 operations per parameter; the master copy and two moments in
    /// four bytes each are read and written, the gradient is read and the parameter written.
    pub(super) fn optimizer(&self, parameters: u64) -> Cost {
        Cost { operations: 12 * parameters, bytes: (24 + 2 * self.dtype.1) * parameters }
    }

    /// With biases, which row-cut products and norms hold whole: `12 h^2 + 13 h` for one rank and `ffn = 4 h`.
    pub(super) fn layer_parameters(&self) -> Parameters {
        let (hidden, ffn, tensor) = (self.hidden, self.ffn, self.tensor);
        let attention = (4 * hidden * hidden + 3 * hidden) / tensor + hidden;
        let forward = (2 * hidden * ffn + ffn) / tensor + hidden;
        let norms = 4 * hidden;
        if self.experts > 0 {
            [attention + norms + hidden * self.experts, self.experts / self.expert * forward]
        } else {
            [attention + norms + forward, 0]
        }
    }

    /// The table of tokens and that of positions.
    pub(super) fn embedding_parameters(&self) -> Parameters {
        [self.words() * self.hidden + self.sequence * self.hidden, 0]
    }

    /// The last norm and the product that gives logits.
    pub(super) fn head_parameters(&self) -> Parameters {
        [self.words() * self.hidden + 2 * self.hidden, 0]
    }
}
