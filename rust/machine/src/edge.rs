//! Links of a declared edge list.

use crate::{Ps, Rate};

/// A declared directed link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CustomEdge {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) wire: Wire,
    pub(crate) latency_ps: Ps,
}

/// What an edge is, which says what it carries.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wire {
    /// A link of a bandwidth of its own.
    Own(Rate),
    /// A link inside a node.
    Link,
    /// The way between a SIP and the spine.
    Way,
    /// The way between a node and the spine.
    Spine,
    /// A link between switches of the fabric between nodes.
    Fabric(Rate),
}
