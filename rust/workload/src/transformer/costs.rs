//! What the parts of a layer cost one rank, and how many parameters it holds.
//!
//! A multiplication and an addition are two operations. A product reads both operands and writes its result; a fused
//! attention (Dao et al., *FlashAttention*, 2022) reads queries, keys and values and writes its result, and computes the
//! scores again in the backward pass. Each part says its class and dimensions, too: a machine with a law for them does not
//! take its peak for every shape.

use super::{Recompute, Transformer};
use crate::kernel::{DIMS, Kernel, Kind};

/// A kernel of a class. Dimensions beyond the range of the class leave it without one.
fn kernel<const N: usize>(operations: u64, bytes: u64, kind: Kind, dims: [u64; N]) -> Kernel {
    let mut known = [0; DIMS];
    for (known, &of) in known.iter_mut().zip(&dims) {
        match u32::try_from(of) {
            Ok(of) => *known = of,
            Err(_) => return Kernel::new(operations, bytes),
        }
    }
    Kernel { kind, dims: known, ..Kernel::new(operations, bytes) }
}

/// A product of matrices, and those of its backward pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct Product {
    pub(super) forward: Kernel,
    /// The gradient of its input.
    pub(super) input: Kernel,
    /// The gradient of its weights.
    pub(super) weight: Kernel,
}

/// What lies between the two products of a half: a kernel and those of its backward pass.
#[derive(Debug, Clone)]
pub(super) struct Middle {
    pub(super) name: &'static str,
    pub(super) forward: Kernel,
    pub(super) backward: Vec<Kernel>,
}

/// The half of a layer: a norm, a product that is cut by columns, what lies between, a product that is cut by rows.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) name: &'static str,
    pub(super) column: (&'static str, Product),
    pub(super) middle: Vec<Middle>,
    pub(super) row: (&'static str, Product),
    /// Which experts a token visits.
    pub(super) router: Option<Product>,
    /// Elements of the activations of a tensor-parallel rank's part of the tokens that are treated.
    pub(super) share: u64,
    /// Elements that go to the experts from it.
    pub(super) sent: u64,
    /// Elements of keys and values that go around the ring of context-parallel ranks.
    pub(super) ring: u64,
    /// What lies between is computed again in the backward pass.
    pub(super) again: bool,
}

/// Parameters of a rank: those that all data-parallel ranks have, and those of its experts.
pub(super) type Parameters = [u64; 2];

/// Kinds of parameters that are sharded apart.
pub(super) const SHARDED: usize = std::mem::size_of::<Parameters>() / std::mem::size_of::<u64>();

impl Product {
    /// Both products of the backward pass as one node.
    pub(super) fn backward(self) -> Kernel {
        let mut both = self.input;
        (both.operations, both.bytes) = (2 * both.operations, 2 * both.bytes);
        both.dims[0] = both.dims[0].saturating_mul(2);
        both
    }
}

impl Transformer {
    /// Tokens of a micro-batch that a rank treats.
    pub(super) fn tokens(&self) -> u64 {
        self.micro_batch * self.sequence / self.context
    }

    /// Those of them that norms and messages of one rank treat.
    pub(super) fn shard(&self) -> u64 {
        if self.sequence_parallel { self.tokens() / self.tensor } else { self.tokens() }
    }

    /// Columns of the vocabulary of a rank.
    fn words(&self) -> u64 {
        self.vocabulary.div_ceil(self.tensor)
    }

    /// Columns of queries and of keys or values of a rank.
    fn widths(&self) -> [u64; 2] {
        let head = self.hidden / self.heads;
        [self.hidden / self.tensor, self.kv_heads * head / self.tensor]
    }

    /// `copies` matrices of `k` rows and `n` columns, by which `m` rows in all are multiplied.
    fn product(&self, m: u64, k: u64, n: u64, copies: u64) -> Product {
        let (operations, bytes) = (2 * m * k * n, self.dtype.1 * (m * k + copies * k * n + m * n));
        let rows = m.div_ceil(copies.max(1));
        let of =
            |dims: [u64; 6]| Kernel { arithmetic: self.arithmetic, ..kernel(operations, bytes, Kind::Product, dims) };
        Product {
            forward: of([copies, rows, n, k, 0, 1]),
            input: of([copies, rows, k, n, 0, 0]),
            weight: of([copies, n, k, rows, 1, 0]),
        }
    }

    /// Elements of which `accesses` arrays are read or written.
    fn pointwise(&self, elements: u64, accesses: u64) -> Kernel {
        kernel(elements, accesses * self.dtype.1 * elements, Kind::Pointwise, [elements])
    }

    /// Norm, residual and dropout of the rank's tokens: three arrays of memory; the norm alone has two.
    pub(super) fn norm(&self) -> Kernel {
        let elements = self.shard() * self.hidden;
        let arrays = if self.unfused { 2 } else { 3 };
        kernel(8 * elements, arrays * self.dtype.1 * elements, Kind::Norm, [self.shard(), self.hidden])
    }

    pub(super) fn norm_backward(&self) -> Kernel {
        let of = self.norm();
        Kernel { operations: 2 * of.operations, bytes: 2 * of.bytes, kind: Kind::NormBackward, ..of }
    }

    /// Residual and dropout, where they are kernels of their own: forward and backward.
    pub(super) fn residual(&self) -> Option<[Kernel; 2]> {
        let elements = self.shard() * self.hidden;
        self.unfused.then(|| [self.pointwise(elements, 3), self.pointwise(elements, 3)])
    }

    pub(super) fn attention(&self) -> Block {
        let (tokens, hidden) = (self.tokens(), self.hidden);
        let [queries, keys] = self.widths();
        Block {
            name: "attention",
            column: ("qkv", self.product(tokens, hidden, queries + 2 * keys, 1)),
            middle: if self.materialized { self.scores() } else { vec![self.core()] },
            row: ("projection", self.product(tokens, queries, hidden, 1)),
            router: None,
            share: self.shard() * hidden,
            sent: 0,
            ring: 2 * tokens * keys,
            again: self.recompute == Recompute::Selective && self.materialized,
        }
    }

    /// Fused attention; of a ring of context-parallel ranks one step, in which a rank sees the keys of another.
    fn core(&self) -> Middle {
        let (tokens, steps) = (self.tokens(), self.context);
        let [queries, keys] = self.widths();
        let bytes = self.dtype.1 * tokens * (2 * queries + 2 * keys);
        // Two products of every token with every other, and five in the backward pass.
        let pairs = 2 * tokens * (self.sequence / steps) * queries;
        let (own, head) = (self.sequence / steps, self.hidden / self.heads);
        let [heads, kv_heads] = [self.heads, self.kv_heads].map(|heads| heads / self.tensor);
        let kind = |operations, bytes, kind| {
            kernel(operations, bytes, kind, [self.micro_batch, heads, own, own, head, 1, 0, kv_heads])
        };
        Middle {
            name: "core",
            forward: kind(2 * pairs, bytes, Kind::Attention),
            backward: vec![kind(5 * pairs, 2 * bytes, Kind::AttentionBackward)],
        }
    }

    /// Attention of which the scores lie in memory: two products, and a softmax and a dropout between them.
    fn scores(&self) -> Vec<Middle> {
        let (of, head) = (self.micro_batch * self.heads / self.tensor, self.hidden / self.heads);
        let scores = of * self.sequence * self.sequence;
        let pairs = 2 * scores * head;
        let product = |dims: [u64; 6]| {
            let [_, m, n, k, ..] = dims;
            let bytes = self.dtype.1 * of * (m * k + k * n + m * n);
            Kernel { arithmetic: self.arithmetic, ..kernel(pairs, bytes, Kind::Product, dims) }
        };
        let each = self.sequence;
        let rows = |arrays, kind| kernel(4 * scores, arrays * self.dtype.1 * scores, kind, [of * each, each]);
        // A mask of a byte for each score is written, and read again.
        let dropout = || kernel(scores, (2 * self.dtype.1 + 1) * scores, Kind::Pointwise, [scores]);
        let middle = |name, forward, backward| Middle { name, forward, backward };
        vec![
            middle(
                "scores",
                product([of, each, each, head, 0, 1]),
                vec![product([of, each, head, each, 0, 0]), product([of, each, head, each, 1, 0])],
            ),
            middle("softmax", rows(2, Kind::Softmax), vec![rows(3, Kind::SoftmaxBackward)]),
            middle("dropout", dropout(), vec![dropout()]),
            middle(
                "context",
                product([of, each, head, each, 0, 0]),
                vec![product([of, each, each, head, 0, 1]), product([of, each, head, each, 1, 0])],
            ),
        ]
    }

    /// Visits of experts that a rank sends to each of the expert-parallel ranks: all but the first get the same.
    pub(super) fn routes(&self) -> Vec<u64> {
        let (all, ranks) = (self.shard() * self.top_k, self.expert);
        let hot = (u128::from(all) * u128::from(self.skew) / u128::from(100 * ranks)) as u64;
        let each = if ranks > 1 { (all - hot.min(all)) / (ranks - 1) } else { 0 };
        std::iter::once(all - each * (ranks - 1)).chain((1..ranks).map(|_| each)).collect()
    }

    /// The feed-forward part of the expert-parallel rank `place`.
    pub(super) fn feed_forward(&self, place: u64) -> Block {
        let (hidden, ffn) = (self.hidden, self.ffn / self.tensor);
        let (visits, held) = if self.experts > 0 { (self.top_k, self.experts / self.expert) } else { (1, 1) };
        let mut share = self.shard() * visits;
        if self.is_skewed() {
            share = self.expert * self.routes()[place as usize];
        }
        let rows = share * (self.tokens() / self.shard());
        let up = if self.gated { 2 * ffn } else { ffn };
        let inner = rows * ffn;
        let reads = up / ffn.max(1);
        let activation = Middle {
            name: "activation",
            forward: self.pointwise(inner, reads + 1),
            backward: vec![self.pointwise(inner, 2 * reads + 1)],
        };
        Block {
            name: if self.experts > 0 { "experts" } else { "mlp" },
            column: ("up", self.product(rows, hidden, up, held)),
            middle: if self.unfused { vec![activation] } else { Vec::new() },
            row: ("down", self.product(rows, ffn, hidden, held)),
            router: (self.experts > 0).then(|| self.product(self.shard(), hidden, self.experts, 1)),
            share: share * hidden,
            sent: self.shard() * visits * hidden,
            ring: 0,
            again: false,
        }
    }

    /// Reads a row of the table for every token.
    pub(super) fn lookup(&self) -> Kernel {
        let elements = self.tokens() * self.hidden;
        kernel(elements, 2 * self.dtype.1 * elements, Kind::Gather, [self.tokens(), self.hidden])
    }

    pub(super) fn lookup_backward(&self) -> Kernel {
        let of = self.lookup();
        let dims = [self.tokens(), self.hidden, self.words()];
        kernel(of.operations, of.bytes, Kind::EmbeddingBackward, dims)
    }

    pub(super) fn logits(&self) -> Product {
        self.product(self.tokens(), self.hidden, self.words(), 1)
    }

    /// Exponentials of the logits and their sum.
    pub(super) fn softmax(&self) -> Kernel {
        let elements = self.tokens() * self.words();
        kernel(4 * elements, 2 * self.dtype.1 * elements, Kind::Softmax, [self.tokens(), self.words()])
    }

    /// Adam (Kingma and Ba, 2015) in mixed precision: 12 operations per parameter; the master copy and two moments in
    /// four bytes each are read and written, the gradient is read and the parameter written.
    pub(super) fn optimizer(&self, parameters: u64) -> Kernel {
        kernel(12 * parameters, (24 + 2 * self.dtype.1) * parameters, Kind::Pointwise, [parameters])
    }

    /// With biases, which row-cut products and norms hold whole: `12 h^2 + 13 h` for one rank and `ffn = 4 h`.
    pub(super) fn layer_parameters(&self) -> Parameters {
        let (hidden, ffn, tensor) = (self.hidden, self.ffn, self.tensor);
        let columns = hidden + 2 * self.kv_heads * (hidden / self.heads);
        let attention = (columns * (hidden + 1) + hidden * hidden) / tensor + hidden;
        let up = if self.gated { 2 * ffn } else { ffn };
        let forward = ((up + ffn) * hidden + up) / tensor + hidden;
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
