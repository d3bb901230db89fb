//! Decision trees in flat arrays.

use crate::{Call, Malformed};

/// A number that a tree decides by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Input {
    /// Bytes of one rank's array.
    Bytes,
    /// Their binary logarithm; 0 of no bytes.
    Log2Bytes,
    /// Bytes of one rank's array that each rank would have an equal part of.
    BytesPerRank,
    /// Ranks of the group.
    Ranks,
    /// Binary logarithm of the ranks; 0 of none.
    Log2Ranks,
    /// Nodes of the group.
    Nodes,
    /// Bytes of one element.
    Item,
    /// The same for all calls: a fact about the machine.
    Constant(f64),
}

impl Input {
    /// The inputs that come from the call, by name.
    pub const NAMED: [(&str, Self); 7] = [
        ("bytes", Self::Bytes),
        ("log2_bytes", Self::Log2Bytes),
        ("bytes_per_rank", Self::BytesPerRank),
        ("ranks", Self::Ranks),
        ("log2_ranks", Self::Log2Ranks),
        ("nodes", Self::Nodes),
        ("item_bytes", Self::Item),
    ];

    /// Its value for a call, in single precision: the trees of scikit-learn compare a `float` with a `double` threshold.
    pub fn of(self, call: &Call) -> f64 {
        let value = match self {
            Self::Bytes => call.bytes as f64,
            Self::Log2Bytes => (call.bytes.max(1) as f64).log2(),
            Self::BytesPerRank => call.bytes as f64 / f64::from(call.ranks.max(1)),
            Self::Ranks => f64::from(call.ranks),
            Self::Log2Ranks => f64::from(call.ranks.max(1)).log2(),
            Self::Nodes => f64::from(call.nodes),
            Self::Item => f64::from(call.item),
            Self::Constant(value) => value,
        };
        f64::from(value as f32)
    }
}

/// A node: a question with two ways on, or an answer.
#[derive(Clone, Copy, Debug)]
struct Node {
    threshold: f64,
    input: u32,
    /// Of an answer, its value.
    left: u32,
    /// 0 for an answer.
    right: u32,
}

/// A decision tree. Every child stands behind its parent, so a walk always ends.
#[derive(Clone, Debug)]
pub struct Tree {
    inputs: Vec<Input>,
    nodes: Vec<Node>,
}

impl Tree {
    /// A tree of arrays with an entry per node, as scikit-learn has them (`sklearn.tree._tree.Tree`): `feature` indexes
    /// `inputs` and is negative for a leaf, `left` is the way where the input is at most `threshold`, `value` the
    /// answer of a leaf.
    ///
    /// # Errors
    /// Arrays of different lengths, without a node, a feature that is no input, a threshold that is no number, and
    /// children that do not stand behind their node.
    pub fn new(
        inputs: Vec<Input>,
        feature: &[i64],
        threshold: &[f64],
        left: &[i64],
        right: &[i64],
        value: &[u32],
    ) -> Result<Self, Malformed> {
        let count = feature.len();
        let wrong = |node: usize, what: String| Err(Malformed { node, what });
        if count == 0 || [threshold.len(), left.len(), right.len(), value.len()] != [count; 4] {
            return wrong(0, format!("the arrays must have one length, at least 1: feature has {count}"));
        }
        let mut nodes = Vec::with_capacity(count);
        for at in 0..count {
            if feature[at] < 0 {
                nodes.push(Node { threshold: 0.0, input: 0, left: value[at], right: 0 });
                continue;
            }
            if feature[at] as u64 >= inputs.len() as u64 {
                return wrong(at, format!("feature {} of {}", feature[at], inputs.len()));
            }
            if threshold[at].is_nan() {
                return wrong(at, "its threshold is no number".into());
            }
            for child in [left[at], right[at]] {
                if child <= at as i64 || child >= count as i64 {
                    return wrong(at, format!("its child {child} is not between {} and {}", at + 1, count - 1));
                }
            }
            let (input, left, right) = (feature[at] as u32, left[at] as u32, right[at] as u32);
            nodes.push(Node { threshold: threshold[at], input, left, right });
        }
        Ok(Self { inputs, nodes })
    }

    /// The answer for a call.
    pub fn choose(&self, call: &Call) -> u32 {
        let mut node = &self.nodes[0];
        while node.right != 0 {
            let goes_left = self.inputs[node.input as usize].of(call) <= node.threshold;
            node = &self.nodes[if goes_left { node.left } else { node.right } as usize];
        }
        node.left
    }

    /// Nodes of the tree.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Never: a tree has a node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}
