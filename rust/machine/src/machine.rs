//! The resolved machine.

use crate::{Coord, Costs, Diagnostic, LinkId, Node, PeId, Rate, Route, Sfr};

/// A resolved machine: shape, links, routes, neighbour tables, costs.
#[derive(Debug, Clone)]
pub struct Machine {
    pub(crate) sfr: Sfr,
    pub(crate) costs: Costs,
}

impl Machine {
    /// Parses, validates and resolves a topology. `origin` names the text in errors; `overrides` are
    /// dotted paths with YAML scalars (`("ipcq.tiers.tcm.bandwidth_gbs", "512")`), applied before validation.
    pub fn from_yaml(text: &str, origin: &str, overrides: &[(String, String)]) -> Result<Self, Vec<Diagnostic>> {
        let _ = (text, origin, overrides);
        todo!()
    }

    /// Shape and neighbour tables.
    pub fn sfr(&self) -> &Sfr {
        &self.sfr
    }

    /// Costs of the engines.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Flat index of a physical coordinate; `None` when out of range.
    pub fn pe(&self, at: Coord) -> Option<PeId> {
        let _ = at;
        todo!()
    }

    /// Physical coordinate of a PE.
    pub fn coord(&self, pe: PeId) -> Coord {
        let _ = pe;
        todo!()
    }

    /// The way payload takes from one node to another.
    pub fn route(&self, from: Node, to: Node) -> Result<Route, Diagnostic> {
        let _ = (from, to);
        todo!()
    }

    /// Bandwidth of a link.
    pub fn link_rate(&self, link: LinkId) -> Rate {
        let _ = link;
        todo!()
    }

    /// Name of a link for people, e.g. `sip0.cube3.ucie_E2` or `sip0->sip1`.
    pub fn link_name(&self, link: LinkId) -> String {
        let _ = link;
        todo!()
    }

    /// Number of directed links; ids are dense in `0..links()`.
    pub fn links(&self) -> u32 {
        todo!()
    }

    /// Capacity in bytes of the memory behind a node, for bounds checks.
    pub fn memory_bytes(&self, node: Node) -> u64 {
        let _ = node;
        todo!()
    }

    /// Stable 64-bit hash of everything that influences timing.
    pub fn hash(&self) -> u64 {
        todo!()
    }
}
