//! A route: the links a transfer occupies, in order, and the latencies between them.

use crate::{LinkId, Ps};

/// The way from one node to another. Edges of unlimited bandwidth never make anyone wait, so their
/// latency is folded into the neighbouring hop and only contended links remain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Route {
    /// Latency before the head reaches the first link (the whole latency when `hops` is empty).
    pub head_ps: Ps,
    /// Contended links in travel order.
    pub hops: Vec<Hop>,
}

/// One contended link of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// The link that is occupied.
    pub link: LinkId,
    /// Latency from this link's output to the next link (or to the destination).
    pub after_ps: Ps,
}

impl Route {
    /// The links, in travel order.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.hops.iter().map(|hop| hop.link)
    }

    /// Sum of all latencies, without any serialisation.
    pub fn latency_ps(&self) -> Ps {
        self.head_ps + self.hops.iter().map(|h| h.after_ps).sum::<Ps>()
    }
}
