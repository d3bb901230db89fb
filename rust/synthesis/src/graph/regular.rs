//! Networks whose links are all alike, by their shape.

use super::kilobytes;
use ahbm_machine::{Machine, Ps, Rate, SipNetwork};
use std::ops::Range;

/// A regular network: its shape and the properties of its links, which are all alike.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Regular {
    pub(crate) shape: Shape,
    rate: Rate,
    /// From a node to its neighbour.
    pub(crate) latency_ps: Ps,
    unit_gbs: f64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Node = (z * h + y) * w + x; extents greater than 1, cycles (`wrap`) or paths.
    Grid {
        extents: Vec<u32>,
        wrap: bool,
    },
    Full(u32),
    Switch {
        nodes: u32,
        reduces: bool,
    },
}

impl Regular {
    /// The network between the SIPs of a machine. `None` where it is a list of edges or has faults, has fewer than two
    /// SIPs, or links without a bandwidth.
    pub(crate) fn of(machine: &Machine) -> Option<Self> {
        let nodes = machine.sfr().sips;
        let (rate, latency_ps) = machine.sip_link()?;
        let (shape, latency_ps) = match machine.sfr().network {
            SipNetwork::Ring => (Shape::grid(&[nodes], true), latency_ps),
            SipNetwork::Grid { w, h, d, wrap } => (Shape::grid(&[w, h, d], wrap), latency_ps),
            SipNetwork::Hypercube { dims } => (Shape::grid(&vec![2; dims as usize], false), latency_ps),
            SipNetwork::FullyConnected => (Shape::Full(nodes), latency_ps),
            SipNetwork::Switch => {
                (Shape::Switch { nodes, reduces: machine.switch_reduces() }, 2 * latency_ps + machine.switch_ps())
            }
            SipNetwork::Custom => return None,
        };
        Self::new(shape, rate, latency_ps).filter(|regular| regular.nodes() > 1)
    }

    /// A mesh, such as the cubes of a SIP.
    pub(crate) fn mesh(extents: &[u32], rate: Rate, latency_ps: Ps) -> Option<Self> {
        Self::new(Shape::grid(extents, false), rate, latency_ps).filter(|regular| regular.nodes() > 1)
    }

    fn new(shape: Shape, rate: Rate, latency_ps: Ps) -> Option<Self> {
        (!rate.is_unlimited()).then(|| Self { shape, rate, latency_ps, unit_gbs: kilobytes(rate) as f64 / 1e6 })
    }

    /// The full mesh that a switch is when its ports are split; a link has a bandwidth of `unit_gbs`.
    pub(crate) fn split(&self, unit_gbs: f64) -> Self {
        Self { shape: Shape::Full(self.nodes()), unit_gbs, ..self.clone() }
    }

    /// Number of nodes.
    pub(crate) fn nodes(&self) -> u32 {
        match &self.shape {
            Shape::Grid { extents, .. } => extents.iter().product(),
            Shape::Full(nodes) | Shape::Switch { nodes, .. } => *nodes,
        }
    }

    /// Bandwidth of a link in GB/s.
    pub(crate) fn unit_gbs(&self) -> f64 {
        self.unit_gbs
    }

    /// Links out of a node.
    pub(crate) fn degree(&self, node: u32) -> u32 {
        match &self.shape {
            Shape::Grid { extents, wrap: true } => extents.iter().map(|&extent| (extent - 1).min(2)).sum(),
            Shape::Grid { extents, wrap: false } => {
                let place = self.place(node);
                let line = |(at, &extent): (&Range<u32>, &u32)| u32::from(at.start > 0) + u32::from(at.end < extent);
                place.iter().zip(extents).map(line).sum()
            }
            Shape::Full(nodes) => nodes - 1,
            Shape::Switch { .. } => 1,
        }
    }

    pub(crate) fn least_degree(&self) -> u32 {
        // Node 0 is a corner.
        self.degree(0)
    }

    /// Directed links.
    pub(crate) fn links(&self) -> u64 {
        let nodes = u64::from(self.nodes());
        match &self.shape {
            Shape::Grid { extents, wrap } => {
                let pairs = |extent: u32| u64::from(if *wrap && extent > 2 { extent } else { extent - 1 });
                extents.iter().map(|&extent| nodes / u64::from(extent) * pairs(extent) * 2).sum()
            }
            Shape::Full(_) => nodes * (nodes - 1),
            Shape::Switch { .. } => nodes,
        }
    }

    /// The coordinates of a node, as a box.
    pub(crate) fn place(&self, node: u32) -> Vec<Range<u32>> {
        let Shape::Grid { extents, .. } = &self.shape else { return Vec::new() };
        let mut rest = node;
        let coordinate = |&extent: &u32| {
            let at = rest % extent;
            rest /= extent;
            at..at + 1
        };
        extents.iter().map(coordinate).collect()
    }
}

impl Shape {
    fn grid(extents: &[u32], wrap: bool) -> Self {
        Self::Grid { extents: extents.iter().copied().filter(|&extent| extent > 1).collect(), wrap }
    }
}
