//! Choosing an algorithm for a call in nanoseconds: decision trees and ordered rules, which allocate nothing when they
//! are asked.
//!
//! ```
//! use ahbm_selection::{Call, Input, Rule, Rules, Span, Tree};
//!
//! // Up to 64 KiB the first algorithm, else the second: as a tree over log2(bytes), and as rules.
//! let tree = Tree::new(vec![Input::Log2Bytes], &[0, -2, -2], &[16.0, 0.0, 0.0], &[1, -1, -1], &[2, -1, -1], &[0, 0, 1]);
//! let small = Rule { bytes: Span { least: 0, most: 64 << 10 }, ..Rule::any("all_reduce") };
//! let rules = Rules::new(vec![small, Rule::any("all_reduce")]);
//! let call = Call { bytes: 1 << 20, ranks: 8, nodes: 1, item: 2 };
//! assert_eq!(tree?.choose(&call), 1);
//! assert_eq!(rules.first("all_reduce", &call, 0), Some(1));
//! # Ok::<(), ahbm_selection::Malformed>(())
//! ```

mod rules;
mod tree;

pub use rules::{Rule, Rules, Span};
pub use tree::{Input, Tree};

/// A call, as far as it decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Of one rank's array.
    pub bytes: u64,
    /// Ranks of the group.
    pub ranks: u32,
    /// Nodes that they are on.
    pub nodes: u32,
    /// Bytes of one element.
    pub item: u32,
}

/// Arrays that are no tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {node}: {what}")]
pub struct Malformed {
    /// Index of the node.
    pub node: usize,
    /// The reason, for people.
    pub what: String,
}
