//! The network between SIPs: link numbering and paths, as arithmetic wherever the network allows it.
//!
//! Two SIPs that are neighbours in two ways (a wrapped dimension of extent 2) share one pair of links.

use crate::custom::{Custom, CustomEdge, Wire};
use crate::protocol::{Carried, Interfaces};
use crate::{Ps, Rate};
use std::ops::Range;
use std::sync::Arc;

/// Links between SIPs, numbered from 0 in this module.
#[derive(Debug, Clone)]
pub(crate) struct SipLinks {
    pub(crate) sips: u32,
    /// Bandwidth of a link, where it has none of its own.
    pub(crate) link: Rate,
    /// The interfaces of `topology: nodes`.
    pub(crate) nodes: Option<Interfaces>,
    /// What they carry of the payload of a call.
    pub(crate) carried: Carried,
    pub(crate) latency_ps: Ps,
    /// Bandwidth and latency of the links along each dimension of a grid, where they are unlike `link` and `latency_ps`.
    pub(crate) along: Option<[(Rate, Ps); 3]>,
    pub(crate) switch_ps: Ps,
    /// The switches that reduce, nearer ones first.
    pub(crate) reducers: Vec<Reducer>,
    pub(crate) shape: Shape,
    /// Names of the vertices that are no SIP, where the network says so.
    pub(crate) names: Arc<[String]>,
    /// SIPs of a node or host.
    pub(crate) host: u32,
}

/// A switch that reduces what SIPs send, and copies what goes to several.
#[derive(Debug, Clone)]
pub(crate) struct Reducer {
    /// Its number among the ends of links.
    pub(crate) vertex: u32,
    /// The SIPs that it joins.
    pub(crate) sips: Range<u32>,
    /// Bandwidth of its results.
    pub(crate) rate: Rate,
}

#[derive(Debug, Clone)]
pub(crate) enum Shape {
    /// Rings are grids of one dimension.
    Grid {
        extents: [u32; 3],
        wrap: bool,
    },
    Hypercube {
        dims: u32,
    },
    FullyConnected,
    Switch,
    Custom(Custom),
}

/// One directed link: its index, both ends (the switch is end `sips`), bandwidth and latency.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) rate: Rate,
    pub(crate) latency_ps: Ps,
}

/// Pairs of links along one line of a grid.
fn pairs(extent: u32, wrap: bool) -> u32 {
    if wrap && extent > 2 { extent } else { extent.saturating_sub(1) }
}

impl Shape {
    /// Number of directed links.
    pub(crate) fn links(&self, sips: u32) -> u64 {
        let n = u64::from(sips);
        match self {
            Self::Grid { extents, wrap } => {
                extents.iter().map(|&extent| n / u64::from(extent.max(1)) * u64::from(pairs(extent, *wrap)) * 2).sum()
            }
            Self::Hypercube { dims } => n * u64::from(*dims),
            Self::FullyConnected => n * (n - 1),
            Self::Switch => 2 * n,
            Self::Custom(custom) => custom.edges.len() as u64,
        }
    }
}

impl SipLinks {
    pub(crate) fn links(&self) -> u32 {
        // Validation refused machines whose links do not fit.
        self.shape.links(self.sips) as u32
    }

    /// SIPs, and the vertices that are none: a switch, relays.
    pub(crate) fn vertices(&self) -> u32 {
        match &self.shape {
            Shape::Switch => self.sips + 1,
            Shape::Custom(custom) => custom.vertices(),
            _ => self.sips,
        }
    }

    /// A link by index; `None` when out of range.
    pub(crate) fn link(&self, index: u32) -> Option<Link> {
        if index >= self.links() {
            return None;
        }
        let (from, to) = match &self.shape {
            Shape::Grid { extents, wrap } => {
                let (dimension, from, to) = grid_ends(*extents, *wrap, self.sips, index);
                return Some(self.in_grid(dimension, index, from, to));
            }
            Shape::Hypercube { dims } => {
                let sip = index / (*dims).max(1);
                (sip, sip ^ (1 << (index % (*dims).max(1))))
            }
            Shape::FullyConnected => {
                let others = (self.sips - 1).max(1);
                let (from, to) = (index / others, index % others);
                (from, to + u32::from(to >= from))
            }
            Shape::Switch => {
                let sip = index / 2;
                if index.is_multiple_of(2) { (sip, self.sips) } else { (self.sips, sip) }
            }
            Shape::Custom(custom) => {
                let edge = custom.edges.get(index as usize)?;
                let (rate, latency_ps) = (self.rate(edge), edge.latency_ps);
                return Some(Link { index, from: edge.from, to: edge.to, rate, latency_ps });
            }
        };
        Some(self.uniform(index, from, to))
    }

    /// The link that joins two ends, if there is one.
    pub(crate) fn direct(&self, from: u32, to: u32) -> Option<u32> {
        if from == to || from.max(to) >= self.vertices() {
            return None;
        }
        match &self.shape {
            Shape::Switch if to == self.sips => Some(2 * from),
            Shape::Switch => (from == self.sips).then_some(2 * to + 1),
            Shape::Custom(custom) => custom.direct(from, to),
            _ => {
                let (mut links, mut last) = (0, 0);
                self.path(from, to, &mut |link, _| (links, last) = (links + 1, link.index));
                (links == 1).then_some(last)
            }
        }
    }

    /// Visits the links from one SIP to another in travel order, with the latency that follows each link
    /// besides its own (the switch's). False when there is no way.
    pub(crate) fn path(&self, from: u32, to: u32, visit: &mut dyn FnMut(Link, Ps)) -> bool {
        match &self.shape {
            Shape::Grid { extents, wrap } => {
                let mut at = from;
                let mut stride = 1;
                let mut base = 0;
                for (dimension, &extent) in extents.iter().enumerate() {
                    let lines = self.sips / extent;
                    while at / stride % extent != to / stride % extent {
                        let position = at / stride % extent;
                        let ahead = (to / stride % extent + extent - position) % extent;
                        let forward =
                            if *wrap && extent > 2 { ahead <= extent - ahead } else { to / stride % extent > position };
                        let next = match (forward, position) {
                            (true, _) => (position + 1) % extent,
                            (false, 0) => extent - 1,
                            (false, _) => position - 1,
                        };
                        let line = at % stride + at / (stride * extent) * stride;
                        let pair = if forward { position } else { next };
                        let index = base + (line * pairs(extent, *wrap) + pair) * 2 + u32::from(!forward);
                        let there = at - position * stride + next * stride;
                        visit(self.in_grid(dimension, index, at, there), 0);
                        at = there;
                    }
                    base += lines * pairs(extent, *wrap) * 2;
                    stride *= extent;
                }
            }
            Shape::Hypercube { dims } => {
                let mut at = from;
                for k in 0..*dims {
                    if (at ^ to) >> k & 1 == 1 {
                        let there = at ^ (1 << k);
                        visit(self.uniform(at * dims + k, at, there), 0);
                        at = there;
                    }
                }
            }
            Shape::FullyConnected => {
                if from != to {
                    let index = from * (self.sips - 1) + to - u32::from(to > from);
                    visit(self.uniform(index, from, to), 0);
                }
            }
            Shape::Switch => {
                if from != to {
                    visit(self.uniform(2 * from, from, self.sips), self.switch_ps);
                    visit(self.uniform(2 * to + 1, self.sips, to), 0);
                }
            }
            Shape::Custom(custom) => {
                let Some(path) = custom.path(from, to) else { return false };
                for link in path.into_iter().filter_map(|index| self.link(index)) {
                    visit(link, 0);
                }
            }
        }
        true
    }

    /// The links from one end to another, one of which is a switch.
    pub(crate) fn links_between(&self, from: u32, to: u32) -> Option<Vec<u32>> {
        match &self.shape {
            Shape::Custom(custom) => custom.path(from, to),
            _ => self.direct(from, to).map(|link| vec![link]),
        }
    }

    fn uniform(&self, index: u32, from: u32, to: u32) -> Link {
        Link { index, from, to, rate: self.carried.link, latency_ps: self.latency_ps }
    }

    fn in_grid(&self, dimension: usize, index: u32, from: u32, to: u32) -> Link {
        match self.along.as_ref().and_then(|along| along.get(dimension)) {
            Some(&(rate, latency_ps)) => Link { index, from, to, rate: self.carried.on(rate), latency_ps },
            None => self.uniform(index, from, to),
        }
    }

    fn rate(&self, edge: &CustomEdge) -> Rate {
        match edge.wire {
            Wire::Own(rate) => self.carried.on(rate),
            Wire::Link => self.carried.link,
            Wire::Way => self.carried.way,
            Wire::Spine => self.carried.spine,
            Wire::Fabric(rate) => self.carried.in_fabric(rate),
        }
    }

    /// The links that join two ends: several, where they stand side by side.
    pub(crate) fn between(&self, from: u32, to: u32) -> Range<u32> {
        match &self.shape {
            Shape::Custom(custom) if from.max(to) < self.vertices() => custom.between(from, to),
            _ => self.direct(from, to).map_or(0..0, |link| link..link + 1),
        }
    }

    /// Whether nodes are joined by a fabric of switches.
    pub(crate) fn has_fabric(&self) -> bool {
        matches!(&self.shape, Shape::Custom(custom) if custom.has_fabric())
    }

    /// The least bandwidth that a link between SIPs declares.
    pub(crate) fn slowest(&self) -> Rate {
        if let (Some(along), Shape::Grid { extents, .. }) = (&self.along, &self.shape) {
            let used = along.iter().zip(extents).filter(|&(_, &extent)| extent > 1);
            return used.map(|(&(rate, _), _)| rate).reduce(Rate::slower).unwrap_or(self.link);
        }
        let Shape::Custom(custom) = &self.shape else { return self.link };
        custom.edges.iter().fold(self.link, |slowest, edge| match edge.wire {
            Wire::Own(rate) => slowest.slower(rate),
            _ => slowest,
        })
    }
}

/// The dimension and both ends of a grid link: the dimensions follow each other, each line by line, each line pair by pair
/// (position and position + 1), each pair forward then backward.
fn grid_ends(extents: [u32; 3], wrap: bool, sips: u32, index: u32) -> (usize, u32, u32) {
    let mut index = index;
    let mut stride = 1;
    for (dimension, extent) in extents.into_iter().enumerate() {
        let pairs = pairs(extent, wrap);
        let here = sips / extent * pairs * 2;
        if index < here {
            let (line, within) = (index / (pairs * 2), index % (pairs * 2));
            let start = line % stride + line / stride * stride * extent;
            let low = start + within / 2 * stride;
            let high = start + (within / 2 + 1) % extent * stride;
            return if within.is_multiple_of(2) { (dimension, low, high) } else { (dimension, high, low) };
        }
        index -= here;
        stride *= extent;
    }
    (0, 0, 0)
}
