//! Symmetry of the network between SIPs.

use crate::Machine;
use crate::sip_links::Shape;
use std::collections::BTreeMap;

impl Machine {
    /// Whether a renumbering of the SIPs that takes every `from[i]` to `to[i]` leaves the machine as it is, routes
    /// included: what runs on the SIPs `from` then takes the same time on the SIPs `to`.
    ///
    /// Any renumbering does on a switch and where all SIPs are connected, a translation on a ring and on a torus, and an
    /// exclusive or with one number on a hypercube. Among nodes it is one that takes the SIPs of a node to those of a node. A
    /// mesh, a custom network and a machine with faults have none.
    pub fn carries(&self, from: &[u32], to: &[u32]) -> bool {
        if from.len() != to.len() {
            return false;
        }
        let pairs = || from.iter().copied().zip(to.iter().copied());
        if from == to {
            return true;
        }
        if !self.is_even() || from.iter().chain(to).any(|&sip| sip >= self.sfr.sips) {
            return false;
        }
        match self.sips.shape {
            Shape::Switch | Shape::FullyConnected => true,
            Shape::Grid { extents, wrap: true } => {
                let mut stride = 1;
                extents.into_iter().all(|extent| {
                    let shift = |(a, b): (u32, u32)| (b / stride % extent + extent - a / stride % extent) % extent;
                    let first = pairs().next().map(shift);
                    let same = pairs().all(|pair| Some(shift(pair)) == first);
                    stride *= extent;
                    same
                })
            }
            Shape::Hypercube { .. } => pairs().all(|(a, b)| a ^ b == from[0] ^ to[0]),
            // Which way is taken goes by the numbers of SIPs.
            Shape::Custom(_) if self.has_fabric() => false,
            Shape::Custom(_) if self.topology == "nodes" => {
                let size = self.node_size();
                let (mut forth, mut back) = (BTreeMap::new(), BTreeMap::new());
                pairs().all(|(a, b)| {
                    let (a, b) = (a / size, b / size);
                    *forth.entry(a).or_insert(b) == b && *back.entry(b).or_insert(a) == a
                })
            }
            Shape::Grid { wrap: false, .. } | Shape::Custom(_) => false,
        }
    }

    /// Whether equal parts of the machine are equally fast: without faults.
    pub fn is_even(&self) -> bool {
        let jitter = &self.costs.jitter;
        self.faults.is_none() && (jitter.latency_ps, jitter.skew_ps) == (0, 0)
    }
}
